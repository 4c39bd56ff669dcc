"""Hamiltonian Monte Carlo in the coordinates of the variational fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import Move, MoveBase
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.hmc._scale import integrable
from softmargin.engines.sampling.hmc._visits import spread_of
from softmargin.engines.sampling.hmc.plan import (
    AHEAD,
    Noise,
    Plan,
    first_point,
    motion,
    noise_of,
    path,
    planned,
    whitened,
)
from softmargin.engines.sampling.hmc.rows import Direct, Motion, Outcome, Point, Trajectory
from softmargin.engines.sampling.moves.coefficients import Predictors
from softmargin.engines.sampling.moves.interweave import Interweave
from softmargin.engines.sampling.moves.prior_variables import PriorLocals, PriorVariables
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns
from softmargin.rows.streams import Purpose

__all__ = ["Record", "Trajectories", "diagnostics", "hmc"]

_SMALL = 2e7  # products of one transition up to which the whole stretch is made in one call
_STUCK = 50  # rejections in a row that no healthy chain sees


class Tally(NamedTuple):
    """Transitions made, and per chain their acceptance and the rejections in a row, now and at most."""

    moves: int
    acceptance: Array
    idle: Array
    longest: Array

    @classmethod
    def empty(cls, chains: int) -> Tally:
        """Nothing made yet."""
        return cls(0, *np.zeros((3, chains)))

    def counted(self, moved: list[Outcome]) -> list[Tally]:
        """After each of some transitions."""
        accept, t = np.array([outcome.accept for outcome in moved]), np.arange(1, len(moved) + 1)
        acceptance = self.acceptance + np.cumsum([outcome.probability for outcome in moved], axis=0)
        last = np.maximum.accumulate(np.where(accept, t[:, None], 0), axis=0)
        idle = t[:, None] - last + np.where(last == 0, self.idle, 0.0)
        longest = np.maximum(self.longest, np.maximum.accumulate(idle, axis=0))
        return [Tally(self.moves + int(k), *row) for k, *row in zip(t, acceptance, idle, longest, strict=True)]


class Ahead(NamedTuple):
    """Transitions made before they are asked for, and what they were made from."""

    plan: Plan
    motion: Motion
    noise: Noise
    first: int
    moved: list[Outcome]
    tallies: list[Tally]
    objectives: list[float]

    @classmethod
    def made(cls, state: Record, point: Point, motion: Motion, noise: Noise, path: Trajectory, first: int) -> Ahead:
        """Make transitions from a point."""
        moved = state.plan.rows.transitions(point, motion, path)
        objectives = np.mean([outcome.point.loglik for outcome in moved], axis=1).tolist()
        return cls(state.plan, motion, noise, first, moved, state.tally.counted(moved), objectives)

    def serves(self, state: Record, noise: Noise, iteration: int) -> bool:
        """Whether they go on from here."""
        at = iteration - self.first
        same = self.plan is state.plan and self.motion is state.motion and self.noise is noise
        return same and 0 < at < len(self.moved) and self.moved[at - 1].point is state.point


class Record(NamedTuple):
    """What the trajectories of some chains keep; chains that move together share one."""

    plan: Plan
    point: Point
    motion: Motion
    tally: Tally
    noise: Noise
    ahead: Ahead | None = None


@dataclass(frozen=True)
class Trajectories(MoveBase):
    """One Hamiltonian trajectory of every chain around the Gaussian variational fit.

    In whitened coordinates the fit is a rotation, made exactly; what the posterior adds to it comes as kicks between
    pieces of the rotation, from a smoothed score. Invariance: neither has to be right, because a trajectory is accepted
    or refused by the exact density, and any kick that depends on the position alone is volume-preserving and
    reversible. The number of steps is found by pilot chains, always the same ones, before the first step.

    Parameters
    ----------
    integrated : bool
        Whether the log prior is a function of ``sum beta^2`` or ``sum |beta|`` whose scale, if learned, is integrated
        out: it is drawn after the trajectory, and local variables are stale. Otherwise chains move given the local
        precisions, and the Gaussian follows them.
    scale_moves : bool
        Whether the length of the coefficients also moves on its own where the scale is integrated out.
    alone : bool
        Whether chains move one by one, because the rows, their weights or the loss differ between them. What was tuned
        on the first model stays.
    """

    integrated: bool = True
    scale_moves: bool = True
    alone: bool = False

    renews = frozenset({"beta", "loglik"})
    needs_loss = ("gaussian", "loglik", "score")
    needs_prior = ("gaussian", "expect", "draw", "along", "stretch", "logpdf")

    @property
    def together(self) -> bool:  # type: ignore[override]
        """Chains of one model move in lock-step."""
        return not self.alone

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        """The local variables where chains move given them."""
        return frozenset({"beta"} if self.integrated else {"beta", "local"})

    @property
    def stale(self) -> frozenset[str]:  # type: ignore[override]
        """Predictors, and what was integrated out."""
        return frozenset({"f", "local"} if self.integrated else {"f"})

    def prepare(self, model: Model, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        """The chains as they are where they start with a record, or with one made for where they stand."""
        if "hmc" in chains[0].own:
            return chains
        plan, prior = planned(model)
        beta = np.stack([chain.beta for chain in chains])
        priors = (prior,) * len(chains) if self.integrated else tuple(chain.prior for chain in chains)
        moving = motion(model, plan, priors)
        q = np.linalg.lstsq(plan.root, (beta - plan.centre).T)[0].T
        point = plan.rows.point(np.ascontiguousarray(q), beta, plan.kappa)
        noise = noise_of(model, None, 0, point.q.shape, Purpose.COEFFICIENTS)
        record = Record(plan, point, moving, Tally.empty(len(chains)), noise)
        return tuple(chain.keeping(hmc=record) for chain in chains)

    def __call__(self, random: Any, model: Model, chain: Any) -> Any:
        """All chains after a transition, or one."""
        if not self.alone:
            return self._step(random, model, chain)
        record: Record = chain.own["hmc"]
        plan = record.plan._replace(rows=replace(record.plan.rows, model=model))  # type: ignore[type-var]
        q = record.point.q
        if self.integrated and not np.array_equal(chain.beta, record.point.beta[0]):  # another move was here
            q = np.linalg.lstsq(plan.root, chain.beta - plan.centre)[0][None]
        point = plan.rows.point(q, chain.beta[None], plan.kappa)
        here = chain.keeping(hmc=record._replace(plan=plan, point=point, ahead=None))
        moved = self._step(random, model, (here,))[0]
        own: Record = moved.own["hmc"]
        return moved.keeping(hmc=own._replace(plan=record.plan, ahead=None))  # made for this model alone

    def _step(self, random: Any, model: Model, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        record, iteration = chains[0].own["hmc"], random.iteration - 1
        plan, point, moving = record.plan, record.point, record.motion
        noise = noise_of(model, record.noise, iteration, point.q.shape, Purpose.COEFFICIENTS, first=random.chain)
        if not self.integrated:
            moving = motion(model, plan, tuple(chain.prior for chain in chains))
            beta = np.stack([chain.beta for chain in chains])
            q = np.stack([whitened(plan, moving, beta[k], k) for k in range(len(beta))])
            point = plan.rows.point(q, beta, plan.kappa)
        ahead = record.ahead
        if ahead is None or not ahead.serves(record, noise, iteration):
            made = self._path(model, plan, noise, iteration % AHEAD, len(chains))
            ahead = Ahead.made(record, point, moving, noise, made, iteration)
        at = iteration - ahead.first
        point, mean = ahead.moved[at][:2]
        own = {**chains[0].own, "hmc": Record(plan, point, moving, ahead.tallies[at], noise, ahead)}
        return tuple(
            chain._replace(
                beta=point.beta[k],
                mean=mean[k],
                loglik=float(point.loglik[k]),
                prior=self._scale(random, model, plan, chain.prior, point.beta[k], random.chain + k),
                own=own,
            )
            for k, chain in enumerate(chains)
        )

    def _path(self, model: Model, plan: Plan, noise: Noise, at: int, chains: int) -> Trajectory:
        """The next transition, or all that are left of the stretch where they are short and need nothing else."""
        n, p = model.blocks.shape
        one = self.alone or not self.integrated or plan.steps * chains * n * p > _SMALL
        return path(plan, noise, at, at + 1 if one else AHEAD, self.integrated and plan.learned and self.scale_moves)

    def _scale(self, random: Any, model: Model, plan: Plan, prior: PriorState, beta: Array, k: int) -> PriorState:
        """The prior with a scale that was integrated out drawn given the coefficients."""
        if not (self.integrated and plan.learned):
            return prior
        rng = random.streams.at(Purpose.PRIOR, chain=k, iteration=random.iteration)
        hyperprior = model.prior.scale_prior  # type: ignore[attr-defined]
        return PriorState(prior.precision, {"scale": plan.shared.draw_scale(rng, hyperprior, beta)})


def hmc(
    model: Model,
    chains: int = 4,
    scale_moves: bool = True,
    unknowns: tuple[Any, ...] | None = None,
    alone: bool | None = None,
) -> Chains:
    """Chains that follow Hamiltonian trajectories around the Gaussian variational fit of a model.

    Where the log prior is a function of ``sum beta^2`` or ``sum |beta|`` its scale, if learned, is integrated out.
    Other priors are drawn as in Gibbs sampling, after moves of the length and of a learned scale.

    Parameters
    ----------
    model : Model
        The model; its prior and its unknowns decide which moves there are.
    chains : int
        Number of chains.
    scale_moves : bool
        Whether the length of the coefficients and a learned scale also move on their own.
    unknowns : tuple or None
        States of the unknowns in a variational fit, to start from.
    alone : bool or None
        Whether chains move one by one; None: where there are unknowns, which differ between chains.
    """
    alone = bool(model.unknowns) if alone is None else alone
    integrated = integrable(model)
    move = Trajectories(integrated, scale_moves, alone)
    draws: tuple[Move, ...] = (Predictors(), DrawUnknowns()) if alone else ()
    between: tuple[Move, ...] = (ScaleMove(), Interweave()) if scale_moves else ()
    given: tuple[Move, ...] = () if integrated else (Predictors(), *between, PriorVariables())
    closing: tuple[Move, ...] = (Predictors(), PriorLocals()) if integrated else (Predictors(),)

    def start(model: Model, chains: int) -> tuple[Chain, ...]:
        plan, prior = planned(model)
        if not alone:
            return _first(model, plan, prior, chains)
        plan = plan._replace(rows=Direct(model, model.blocks.keep(spread_of, plan.root)[0]))
        return tuple(_first(model.serial(), plan, prior, 1, first=k)[0] for k in range(chains))

    return Chains((*draws, *given, move), start, chains, unknowns, closing)


def _first(model: Model, plan: Plan, prior: PriorState, chains: int, first: int = 0) -> tuple[Chain, ...]:
    """Every chain at its own draw of the fit."""
    point, moving = first_point(model, plan, prior, chains, first)
    noise = noise_of(model, None, 0, point.q.shape, Purpose.COEFFICIENTS, first=first)
    record, rows = Record(plan, point, moving, Tally.empty(chains), noise), model.predicted(np.zeros(model.size))[0]
    return tuple(
        Chain(beta, rows, prior, beta, float(loglik), own={"hmc": record})
        for beta, loglik in zip(point.beta, point.loglik, strict=True)
    )


def diagnostics(state: Sequence[Chain]) -> dict[str, Array]:
    """Per chain the mean acceptance, the longest run of rejections and whether that is too long; steps."""
    records: list[Record] = [chain.own["hmc"] for chain in state]
    if all(record is records[0] for record in records):
        records = records[:1]
    longest = np.concatenate([record.tally.longest for record in records])
    return {
        "acceptance": np.concatenate([record.tally.acceptance / max(record.tally.moves, 1) for record in records]),
        "longest_rejection": longest,
        "stuck": longest >= _STUCK,
        "steps": np.array(records[0].plan.steps),
    }
