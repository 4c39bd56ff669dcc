"""What Hamiltonian chains decide before the first step, and the random numbers of their transitions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from softmargin.core import visits
from softmargin.core.array import Array
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.hmc._scale import SharedPrior, shared_prior
from softmargin.engines.sampling.hmc.rows import Motion, Point, Rows, Trajectory, rows_for
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.rows.streams import Purpose

__all__ = ["AHEAD", "Noise", "Plan", "first_point", "motion", "noise_of", "path", "planned", "whitened"]

_QUARTER = 0.5 * math.pi  # the angle after which a Gaussian has forgotten where it started
_ANGLES = (1.1, 1.5)  # range of trajectories, in quarters: longer ones help means, and cost tails and lengths
_SHORT = 0.1  # share of trajectories cut at random, which leave rough spots that long ones bounce off
AHEAD = 32  # transitions whose random numbers are drawn together
_PILOTS, _ROUNDS, _ROUND = 8, 4, 10  # chains, rounds and transitions that find the number of steps
_MOST_STEPS = 64
_ORDER = 1.4  # the error of a trajectory falls like steps^-1.4, the hinge being kinked
_WIDTHS = (0.7, 2.5)  # of the moves of log |beta|, in turn; trajectories make the small ones


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


class Noise(NamedTuple):
    """Random numbers of a stretch of transitions: (transition, chain, ...)."""

    block: int
    momentum: Array
    theta: Array  # angle of the trajectory
    uniform: Array  # decides
    stretch: Array  # moves of log |beta|
    stretch_uniform: Array


def planned(model: Model) -> tuple[Plan, PriorState]:
    """Fit the Gaussian and find the number of steps; the prior state that chains start from."""
    fit: VIState = run(GaussianVI(), model, max_iter=100, tol=1e-4, inner=True).state
    prior = PriorState(fit.prior.precision, model.prior.start().values | fit.prior.values)
    learned = model.prior.stretch(prior) is not None
    found = shared_prior(model, prior, fit.q.mean, fit.q.var)
    gram = None
    if found is None:
        nothing = np.zeros(model.size)
        centre = nothing if model.prior.centre is None else model.prior.centre
        found = SharedPrior(nothing, nothing, np.zeros((1, 2)), np.zeros(2), centre), prior.precision
        A, linear = model.blocks.sum(visits.gram, None, fit.rows)
        gram = model.space.home(A), linear
    shared, precision = found
    root = shared.widened(fit.q.root, fit.q.mean, fit.q.var)
    plan = Plan(rows_for(model, fit.rows), root, fit.q.mean, shared, gram, learned)
    prior = prior._replace(precision=precision)
    return _tuned(model, plan, prior), prior


def motion(model: Model, plan: Plan, priors: tuple[PriorState, ...]) -> Motion:
    """The prior of every chain and the Gaussian that it rotates."""
    D, root, centre = np.stack([prior.precision for prior in priors]), plan.root[None], plan.centre[None]
    if plan.gram is not None:
        A, linear = plan.gram
        gaussians = [model.space.gaussian(A.copy(), linear + model.prior.shift(row), row) for row in D]
        gaussians += gaussians[:1]  # one more: a single Gaussian would be taken for that of all chains
        root, centre = np.stack([g.root for g in gaussians]), np.stack([g.mean for g in gaussians])
    spread = np.sqrt(np.einsum("ij,ij->i", plan.root, plan.root))
    origin = plan.centre
    if plan.learned:
        origin = np.asarray(np.linalg.lstsq(plan.root, plan.centre)[0], dtype=np.float64)
    return Motion(
        D, plan.shared, spread, root, np.ascontiguousarray(root[0].T), centre, origin, model.dimension
    )  # fmt: skip


def whitened(plan: Plan, motion: Motion, beta: Array, k: int) -> Array:
    """Coordinates of a chain's coefficients: ``root' A (beta - centre)``, A the precision of its Gaussian."""
    assert plan.gram is not None
    off = beta - motion.centre[k]
    A = plan.gram[0]  # a matrix, or the blocks of a block-diagonal one
    product = A @ off if A.ndim == 2 else np.einsum("rij,rj->ri", A, off.reshape(len(A), -1)).ravel()
    return np.asarray(motion.root[k].T @ (product + motion.precision[k] * off))


def path(plan: Plan, noise: Noise, first: int, stop: int, stretches: bool) -> Trajectory:
    """A few transitions of a stretch."""
    at, none = slice(first, stop), np.empty((0, 0))
    far = (noise.stretch[at], noise.stretch_uniform[at]) if stretches else (none, none)
    return Trajectory(noise.momentum[at], noise.theta[at], noise.uniform[at], *far, plan.steps, plan.kappa)


def noise_of(
    model: Model,
    old: Noise | None,
    iteration: int,
    shape: tuple[int, ...],
    purpose: Purpose,
    cell: int = 0,
    first: int = 0,
) -> Noise:
    """The random numbers of a stretch of transitions, drawn when its first transition comes."""
    block = iteration // AHEAD
    if old is not None and old.block == block:
        return old
    chains, d = shape
    momentum, uniform = np.empty((AHEAD, chains, d)), np.empty((3, AHEAD, chains))
    far, decided = np.empty((2, AHEAD, chains))
    for k in range(chains):
        rng = model.streams.at(purpose, chain=first + k, iteration=block, cell=cell)
        momentum[:, k], uniform[:, :, k] = rng.standard_normal((AHEAD, d)), rng.random((3, AHEAD))
        far[:, k], decided[:, k] = rng.standard_normal(AHEAD), rng.random(AHEAD)
    widths = np.resize(_WIDTHS, AHEAD)[:, None]
    theta = _QUARTER * (_ANGLES[0] + (_ANGLES[1] - _ANGLES[0]) * uniform[0])
    return Noise(block, momentum, theta * np.minimum(uniform[1] / _SHORT, 1.0), uniform[2], far * widths, decided)


def first_point(model: Model, plan: Plan, prior: PriorState, chains: int, first: int = 0) -> tuple[Point, Motion]:
    """Every chain at its own draw of the reference."""
    moving = motion(model, plan, (prior,) * chains)
    d = moving.root.shape[2]
    q = np.stack([model.streams.at(Purpose.START, chain=first + k).standard_normal(d) for k in range(chains)])
    beta = np.stack(
        [moving.centre[k % len(moving.centre)] + moving.root[k % len(moving.root)] @ q[k] for k in range(chains)]
    )
    return plan.rows.point(q, beta, plan.kappa), moving


def _tuned(model: Model, plan: Plan, prior: PriorState) -> Plan:
    """The number of steps, from a few rounds of pilot chains."""
    point, moving = first_point(model, plan, prior, _PILOTS)
    for number in range(_ROUNDS):
        noise = noise_of(model, None, number * AHEAD, point.q.shape, Purpose.START, cell=1)
        moved = plan.rows.transitions(point, moving, path(plan, noise, 0, _ROUND, False))
        point = moved[-1].point
        acceptance = float(np.mean([outcome.probability for outcome in moved]))
        plan = plan._replace(steps=_best_steps(plan, model.n, acceptance))
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
