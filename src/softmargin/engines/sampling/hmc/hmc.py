"""Hamiltonian Monte Carlo in the coordinates of the variational fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.loop import Info, run
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.hmc._scale import SharedPrior, shared_prior
from softmargin.engines.sampling.hmc.rows import Motion, Outcome, Point, Rows, Trajectory, rows_for
from softmargin.engines.sampling.moves.interweave import Interweave
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.rows.streams import Address, Purpose

__all__ = ["HMC", "HMCChain", "HMCState"]

_QUARTER = 0.5 * math.pi  # the angle after which a Gaussian has forgotten where it started
_ANGLES = (1.1, 1.5)  # range of trajectories, in quarters: longer ones help means, and cost tails and lengths
_SHORT = 0.1  # share of trajectories cut at random, which leave rough spots that long ones bounce off
_AHEAD = 32  # transitions whose random numbers are drawn together
_SMALL = 2e7  # products of one transition up to which the whole stretch is made in one call
_PILOTS, _ROUNDS, _ROUND = 8, 4, 10  # chains, rounds and transitions that find the number of steps
_MOST_STEPS = 64
_ORDER = 1.4  # the error of a trajectory falls like steps^-1.4, the hinge being kinked
_WIDTHS = (0.7, 2.5)  # of the moves of log |beta|, in turn; trajectories make the small ones
_STUCK = 50  # rejections in a row that no healthy chain sees


class Plan(NamedTuple):
    """What is decided before the first step and then never changes."""

    rows: Rows
    root: Array  # of the covariance of the reference; with fewer columns where equations tie the coefficients
    centre: Array
    shared: SharedPrior
    gram: tuple[Array, Array] | None  # X'KX and X'b of the fit, where chains move given their local precisions
    learned: bool
    steps: int = 4

    @property
    def kappa(self) -> float:
        """Width of the smoothing in sds: the angle of one step."""
        return _QUARTER * 0.5 * sum(_ANGLES) / self.steps


class Tally(NamedTuple):
    """Transitions made, and per chain their acceptance and the rejections in a row, now and at most."""

    moves: int
    acceptance: Array
    idle: Array
    longest: Array

    def counted(self, moved: list[Outcome]) -> list[Tally]:
        """After each of some transitions."""
        accept, t = np.array([outcome.accept for outcome in moved]), np.arange(1, len(moved) + 1)
        acceptance = self.acceptance + np.cumsum([outcome.probability for outcome in moved], axis=0)
        last = np.maximum.accumulate(np.where(accept, t[:, None], 0), axis=0)
        idle = t[:, None] - last + np.where(last == 0, self.idle, 0.0)
        longest = np.maximum(self.longest, np.maximum.accumulate(idle, axis=0))
        return [Tally(self.moves + int(k), *row) for k, *row in zip(t, acceptance, idle, longest, strict=True)]


class Noise(NamedTuple):
    """Random numbers of a stretch of transitions: (transition, chain, ...)."""

    block: int
    momentum: Array
    theta: Array  # angle of the trajectory
    uniform: Array  # decides
    stretch: Array  # moves of log |beta|
    stretch_uniform: Array


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
    def made(cls, state: HMCState, point: Point, motion: Motion, noise: Noise, path: Trajectory, first: int) -> Ahead:
        """Make transitions from a point."""
        moved = state.plan.rows.transitions(point, motion, path)
        objectives = np.mean([outcome.point.loglik for outcome in moved], axis=1).tolist()
        return cls(state.plan, motion, noise, first, moved, state.tally.counted(moved), objectives)

    def serves(self, state: HMCState, noise: Noise, iteration: int) -> bool:
        """Whether they go on from here."""
        at = iteration - self.first
        same = self.plan is state.plan and self.motion is state.motion and self.noise is noise
        return same and 0 < at < len(self.moved) and self.moved[at - 1].point is state.point


class _Integrated:
    """A prior state whose variables are integrated out of the chain, drawn when somebody asks for them."""

    def __init__(self, state: HMCState, k: int):
        self._state, self._k = state, k

    def _rng(self, cell: int) -> np.random.Generator:
        state = self._state
        return state.model.streams.at(Purpose.PRIOR, chain=self._k, iteration=state.iteration, cell=cell)

    @cached_property
    def values(self) -> dict[str, float]:
        state = self._state
        if not state.plan.learned:
            return state.priors[self._k].values
        hyperprior = state.model.prior.scale_prior  # type: ignore[attr-defined]
        return {"scale": state.plan.shared.draw_scale(self._rng(0), hyperprior, state.point.beta[self._k])}

    @cached_property
    def precision(self) -> Array:
        prior = self._state.model.prior.at_scale(self.values["scale"])
        return prior.draw(self._rng(1), prior.start(), self._state.point.beta[self._k]).precision


class HMCChain:
    """Where one chain stands, in the form of the other samplers."""

    def __init__(self, state: HMCState, k: int):
        self._state, self._k = state, k

    @property
    def beta(self) -> Array:
        """Coefficients."""
        beta: Array = self._state.point.beta[self._k]
        return beta

    @property
    def mean(self) -> Array:
        """Expectation of the draw over its acceptance."""
        mean: Array = self._state.mean[self._k]
        return mean

    @property
    def loglik(self) -> float:
        """Log pseudo-likelihood."""
        return float(self._state.point.loglik[self._k])

    @cached_property
    def f(self) -> Array:
        """Linear predictors."""
        return self._state.model.blocks.matvec(self.beta)

    @cached_property
    def prior(self) -> Any:
        """State of the prior, its integrated variables drawn."""
        given = self._state.plan.gram is not None
        return self._state.priors[self._k] if given else _Integrated(self._state, self._k)


@dataclass(frozen=True, eq=False)
class HMCState:
    """All chains; item k is the record of chain k."""

    model: Model
    plan: Plan
    point: Point
    mean: Array
    motion: Motion
    priors: tuple[PriorState, ...]
    tally: Tally
    noise: Noise
    iteration: int = 0
    ahead: Ahead | None = None

    def __len__(self) -> int:
        return len(self.priors)

    def __getitem__(self, k: int) -> HMCChain:
        return HMCChain(self, range(len(self))[k])

    def __iter__(self) -> Iterator[HMCChain]:
        return (HMCChain(self, k) for k in range(len(self)))


@dataclass(frozen=True)
class HMC:
    """Chains in lock-step that follow Hamiltonian trajectories around the Gaussian variational fit.

    In whitened coordinates the fit is a rotation, made exactly; what the posterior adds to it comes as kicks between
    pieces of the rotation, from a smoothed score. Neither has to be right: a trajectory is accepted or refused by the
    exact density, and any kick that depends on the position alone leaves that density invariant. The number of steps
    is found by pilot chains, always the same ones, before the first step.

    Where the log prior is a function of ``sum beta^2`` or ``sum |beta|`` its scale, if learned, is integrated out and
    drawn when asked for. Other priors are drawn as in Gibbs sampling: chains move given the local precisions, and the
    Gaussian follows them.

    Parameters
    ----------
    chains : int
        Number of chains.
    scale_moves : bool
        Whether the length of the coefficients also moves on its own where the scale is learned.
    """

    chains: int = 4
    scale_moves: bool = True
    needs_loss = ("gaussian", "loglik", "score")
    needs_prior = ("gaussian", "expect", "draw", "along", "stretch", "logpdf")

    def init(self, model: Model) -> HMCState:
        """Fit the Gaussian, find the number of steps, and start every chain from its own draw of the Gaussian."""
        fit: VIState = run(GaussianVI(), model, max_iter=100, tol=1e-4, inner=True).state
        prior = PriorState(fit.prior.precision, model.prior.start().values | fit.prior.values)
        learned = model.prior.stretch(prior) is not None
        found = shared_prior(model, prior, fit.q.mean, fit.q.var)
        gram = None
        if found is None:
            nothing = np.zeros(model.size)
            found = SharedPrior(nothing, nothing, np.zeros((1, 2)), np.zeros(2)), prior.precision
            gram = model.blocks.gram(fit.message.w, fit.message.b)
        shared, precision = found
        root = shared.widened(fit.q.root, fit.q.mean, fit.q.var)
        plan = Plan(rows_for(model, fit.v, fit.f), root, fit.q.mean, shared, gram, learned)
        prior = prior._replace(precision=precision)
        return _start(model, _tuned(model, plan, prior), prior, self.chains)

    def step(self, model: Model, state: HMCState, iteration: int) -> tuple[HMCState, Info]:
        """One trajectory of every chain, after the prior's own variables where they are not integrated out."""
        plan, point, motion, priors = state.plan, state.point, state.motion, state.priors
        noise = _noise(model, state.noise, iteration, point.q.shape, Purpose.COEFFICIENTS)
        if plan.gram is not None:
            point, motion, priors = self._prior_moves(model, state, iteration + 1)
        ahead = state.ahead
        if ahead is None or not ahead.serves(state, noise, iteration):
            path = self._path(model, plan, noise, iteration % _AHEAD)
            ahead = Ahead.made(state, point, motion, noise, path, iteration)
        at = iteration - ahead.first
        point, mean = ahead.moved[at][:2]
        new = HMCState(model, plan, point, mean, motion, priors, ahead.tallies[at], noise, iteration + 1, ahead)
        return new, Info(ahead.objectives[at], math.inf)

    def _path(self, model: Model, plan: Plan, noise: Noise, at: int) -> Trajectory:
        """The next transition, or all that are left of the stretch where they are short and need nothing else."""
        n, p = model.blocks.design.shape
        alone = plan.gram is not None or plan.steps * self.chains * n * p > _SMALL
        return _path(
            plan, noise, at, at + 1 if alone else _AHEAD, plan.gram is None and plan.learned and self.scale_moves
        )

    def diagnostics(self, state: HMCState) -> dict[str, Array]:
        """Per chain the mean acceptance, the longest run of rejections and whether that is too long; steps."""
        tally = state.tally
        return {
            "acceptance": tally.acceptance / max(tally.moves, 1),
            "longest_rejection": tally.longest,
            "stuck": tally.longest >= _STUCK,
            "steps": np.array(state.plan.steps),
        }

    def _prior_moves(
        self, model: Model, state: HMCState, iteration: int
    ) -> tuple[Point, Motion, tuple[PriorState, ...]]:
        """Scale moves, then the prior's variables given the coefficients, chain by chain."""
        serial, plan, point = model.serial(), state.plan, state.point

        def move(k: int) -> tuple[Array, PriorState]:
            beta = point.beta[k]
            chain = Chain(beta, serial.blocks.matvec(beta), state.priors[k], beta, 0.0)
            random = Address(model.streams, k, iteration, model.streams.at(Purpose.MOVES, chain=k, iteration=iteration))
            for one in (ScaleMove(), Interweave()) if self.scale_moves else ():
                chain = one(random, serial, chain)
            return chain.beta, model.prior.draw(random.at(Purpose.PRIOR), chain.prior, chain.beta)

        moved = model.blocks.parallel(move, range(len(state)))
        beta, priors = np.stack([entry[0] for entry in moved]), tuple(entry[1] for entry in moved)
        motion = _motion(model, plan, priors)
        q = np.stack([_whitened(plan, motion, beta[k], k) for k in range(len(beta))])
        return plan.rows.point(q, beta, plan.kappa), motion, priors


def _motion(model: Model, plan: Plan, priors: tuple[PriorState, ...]) -> Motion:
    """The prior of every chain and the Gaussian that it rotates."""
    D, root, centre = np.stack([prior.precision for prior in priors]), plan.root[None], plan.centre[None]
    if plan.gram is not None:
        A, linear = plan.gram
        gaussians = [model.space.gaussian(A.copy(), linear, row) for row in D]
        gaussians += gaussians[:1]  # one more: a single Gaussian would be taken for that of all chains
        root, centre = np.stack([g.root for g in gaussians]), np.stack([g.mean for g in gaussians])
    spread = np.sqrt(np.einsum("ij,ij->i", plan.root, plan.root))
    origin = plan.centre
    if plan.learned:
        origin = np.asarray(np.linalg.lstsq(plan.root, plan.centre)[0], dtype=np.float64)
    return Motion(
        D, plan.shared, spread, root, np.ascontiguousarray(root[0].T), centre, origin, model.dimension
    )  # fmt: skip


def _whitened(plan: Plan, motion: Motion, beta: Array, k: int) -> Array:
    """Coordinates of a chain's coefficients: ``root' A (beta - centre)``, A the precision of its Gaussian."""
    assert plan.gram is not None
    off = beta - motion.centre[k]
    A = plan.gram[0]  # a matrix, or the blocks of a block-diagonal one
    product = A @ off if A.ndim == 2 else np.einsum("rij,rj->ri", A, off.reshape(len(A), -1)).ravel()
    return np.asarray(motion.root[k].T @ (product + motion.precision[k] * off))


def _path(plan: Plan, noise: Noise, first: int, stop: int, stretches: bool) -> Trajectory:
    """A few transitions of a stretch."""
    at, none = slice(first, stop), np.empty((0, 0))
    far = (noise.stretch[at], noise.stretch_uniform[at]) if stretches else (none, none)
    return Trajectory(noise.momentum[at], noise.theta[at], noise.uniform[at], *far, plan.steps, plan.kappa)


def _noise(
    model: Model, old: Noise | None, iteration: int, shape: tuple[int, ...], purpose: Purpose, cell: int = 0
) -> Noise:
    """The random numbers of a stretch of transitions, drawn when its first transition comes."""
    block = iteration // _AHEAD
    if old is not None and old.block == block:
        return old
    chains, d = shape
    momentum, uniform = np.empty((_AHEAD, chains, d)), np.empty((3, _AHEAD, chains))
    far, decided = np.empty((2, _AHEAD, chains))
    for k in range(chains):
        rng = model.streams.at(purpose, chain=k, iteration=block, cell=cell)
        momentum[:, k], uniform[:, :, k] = rng.standard_normal((_AHEAD, d)), rng.random((3, _AHEAD))
        far[:, k], decided[:, k] = rng.standard_normal(_AHEAD), rng.random(_AHEAD)
    widths = np.resize(_WIDTHS, _AHEAD)[:, None]
    theta = _QUARTER * (_ANGLES[0] + (_ANGLES[1] - _ANGLES[0]) * uniform[0])
    return Noise(block, momentum, theta * np.minimum(uniform[1] / _SHORT, 1.0), uniform[2], far * widths, decided)


def _start(model: Model, plan: Plan, prior: PriorState, chains: int) -> HMCState:
    """Every chain at its own draw of the reference."""
    priors = (prior,) * chains
    motion = _motion(model, plan, priors)
    d = motion.root.shape[2]
    q = np.stack([model.streams.at(Purpose.START, chain=k).standard_normal(d) for k in range(chains)])
    beta = np.stack(
        [motion.centre[k % len(motion.centre)] + motion.root[k % len(motion.root)] @ q[k] for k in range(chains)]
    )
    point = plan.rows.point(q, beta, plan.kappa)
    nothing = np.zeros(chains)
    noise = _noise(model, None, 0, q.shape, Purpose.COEFFICIENTS)
    return HMCState(model, plan, point, beta, motion, priors, Tally(0, nothing, nothing, nothing), noise)


def _tuned(model: Model, plan: Plan, prior: PriorState) -> Plan:
    """The number of steps, from a few rounds of pilot chains."""
    state = _start(model, plan, prior, _PILOTS)
    point = state.point
    for number in range(_ROUNDS):
        noise = _noise(model, None, number * _AHEAD, point.q.shape, Purpose.START, cell=1)
        moved = plan.rows.transitions(point, state.motion, _path(plan, noise, 0, _ROUND, False))
        point = moved[-1].point
        acceptance = float(np.mean([outcome.probability for outcome in moved]))
        plan = plan._replace(steps=_best_steps(plan, len(model.y), acceptance))
        point = plan.rows.point(point.q, point.beta, plan.kappa)  # another width of smoothing
    return plan


def _best_steps(plan: Plan, rows: int, acceptance: float) -> int:
    """The number of steps with the most acceptance squared for its cost.

    Acceptance is ``2 Phi(-d/2)`` with d falling like steps^-1.4. A transition costs its steps, which see the rows that
    move, and a share that does not depend on them: calls, and the exact density of all rows.
    """
    d, steps = -2.0 * float(ndtri(0.5 * min(max(acceptance, 0.01), 0.995))), plan.steps
    product = 2e-4 * len(plan.root)  # microseconds a row
    share = (8.0 + product * rows) / (1.0 + product * plan.rows.moving)
    low, high = max(1, math.ceil(0.4 * steps)), min(_MOST_STEPS, math.ceil(2.5 * steps))
    candidates = np.arange(low, high + 1)
    expected = 2.0 * ndtr(-0.5 * d * (steps / candidates) ** _ORDER)
    return int(candidates[np.argmax(expected**2 / (candidates + share))])
