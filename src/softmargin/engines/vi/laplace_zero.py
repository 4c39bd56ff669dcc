"""Mean field under the Laplace-zero prior, from several starts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from softmargin.core import visits
from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.loss import Rows as Message
from softmargin.core.model import Model
from softmargin.core.prior import PriorMessage
from softmargin.core.rows import Kept
from softmargin.core.visits import Face
from softmargin.engines.vi._squarem import Parabola, leap_messages, parabola
from softmargin.rows.compiled import njit
from softmargin.solvers.gaussian import Gaussian

__all__ = ["LaplaceZeroState", "LaplaceZeroVB", "coefficients"]

_LOG_2PI = math.log(2.0 * math.pi)
_TRIED = 50  # columns that are in, and columns that are out, tried on their other side
_CHASE = 30  # cycles in which a rival must catch up
_NOTHING = 1e-16  # a variance below this adds nothing to that of a predictor


class LaplaceZeroState(NamedTuple):
    """The densities of a cycle's end: N(q) of the intercept and v, Bernoulli(inclusion) of g, moments of f."""

    q: Gaussian
    inclusion: Array  # E g, one where a coefficient cannot be left out
    second: Array  # E v^2
    rows: Kept  # RowState: moments of the predictors and messages, with the rows
    data: float  # the rows' part of the bound
    prior: PriorMessage
    logit: Array  # E logit of the prior inclusion probability, per coefficient
    tau: float  # E scale^-2
    objective: float

    @property
    def coefficients(self) -> tuple[Array, Array]:
        """Mean and a root of the covariance of the effective coefficients ``u = g v``, free ones included."""
        return self.inclusion * self.q.mean, _root(self.q, self.inclusion, self.second)

    @property
    def f(self) -> Array:
        """Mean of the linear predictors, fetched from the rows."""
        f: Array = self.rows.fetch().f
        return f

    @property
    def v(self) -> Array:
        """Variance of the linear predictors, fetched from the rows."""
        v: Array = self.rows.fetch().v
        return v

    @property
    def message(self) -> Message:
        """Row messages, fetched from the rows."""
        message: Message = self.rows.fetch().message
        return message

    @property
    def ku(self) -> Array:
        """Row precisions that q has of each row, up to convergence: those of the messages."""
        return self.message.w


@njit(cache=True, nogil=True, error_model="numpy")
def _choose(G: Any, r: Any, mean: Any, Omega: Any, candidates: Any, logit: Any, g: Any, eta: Any) -> None:
    """Algorithm 3, lines 4-8: log odds of every indicator in turn, O(q) each; ``g`` is updated as it goes."""
    for j in candidates:
        others = 0.0
        for l in range(len(g)):
            others += G[j, l] * g[l] * Omega[l, j]
        others -= G[j, j] * g[j] * Omega[j, j]
        eta[j] = logit[j] - 0.5 * G[j, j] * Omega[j, j] + r[j] * mean[j] - others
        if eta[j] > 0.0:
            g[j] = 1.0 / (1.0 + math.exp(-eta[j]))
        else:
            small = math.exp(eta[j])
            g[j] = small / (1.0 + small)


def _root(q: Gaussian, g: Array, second: Array) -> Array:
    """A root of Cov(u) = Sigma o (g g') + diag(g (1 - g) E v^2) for u = g v; undecided coefficients add a column."""
    spread = g * (1.0 - g) * second
    extra = np.flatnonzero(spread > _NOTHING)
    root = np.zeros((len(g), len(g) + len(extra)))
    root[:, : len(g)] = q.root * g[:, None]
    root[extra, len(g) + np.arange(len(extra))] = np.sqrt(spread[extra])
    return root


def coefficients(state: LaplaceZeroState) -> tuple[Array, Array]:
    """Mean and a root of the covariance of the effective coefficients."""
    return state.coefficients


def _screened(prior: Any, G: Array, r: Array) -> Array:
    """The columns with the largest marginal gain in, as many as the square root of their number; others nearly out."""
    lead = np.flatnonzero(prior.free)
    h, curvature = r.copy(), G.diagonal().copy()
    if len(lead):
        solved = np.linalg.solve(
            G[np.ix_(lead, lead)] + np.diag(np.broadcast_to(prior.flat, len(lead))), np.c_[r[lead], G[lead]]
        )
        h -= G[:, lead] @ solved[:, 0]
        curvature -= np.einsum("ij,ji->i", G[:, lead], solved[:, 1:])
    gain = h * h / (np.maximum(curvature, 0.0) + 1.0)
    start = np.ones(len(r))
    order = prior.candidates[np.argsort(-gain[prior.candidates], kind="stable")]
    start[order[math.ceil(math.sqrt(len(order))) :]] = 0.05
    return start


def _all_in(prior: Any, G: Array, r: Array) -> Array:
    return np.ones(len(r))


# name: indicators to start from, then what the prior log odds begin above their value, and for how many cycles
_STARTS: dict[str, tuple[Callable[[Any, Array, Array], Array], float, int]] = {
    "all": (_all_in, 0.0, 0),
    "screened": (_screened, 0.0, 0),
    "annealed": (_all_in, 5.0, 30),
}


@dataclass(frozen=True)
class LaplaceZeroVB:
    """Algorithm 3 of Luts and Ormerod (2014): one weighted Gram a cycle, the best of several starts kept.

    A cycle: (1) the Gram at the present row messages; (2) the joint normal density of intercept and v; (3) every
    indicator in turn; (4) local and global scale, alternated to their joint optimum; (5) a learned inclusion
    probability; (6) row messages. A step is two cycles and an extrapolation along their differences, kept where a
    third cycle sends it higher (SQUAREM). The bound has many local optima: the best start is refined by trying
    columns on their other side. The inclusion probabilities are too sure, as mean field is.

    Parameters
    ----------
    starts : tuple of str
        "all" begins with every column in, "screened" with those of the largest marginal gain, "annealed" with every
        column in and prior log odds that come down to their value over 30 cycles.
    trial : int
        Steps each start may take before the best bound is chosen.
    trial_tol : float
        Relative gain of the bound at which a trial ends earlier.
    passes : int
        How often the columns are tried on their other side, at most.
    accelerate : bool
        Whether to extrapolate.
    """

    starts: tuple[str, ...] = ("all", "screened", "annealed")
    trial: int = 100
    trial_tol: float = 1e-6
    passes: int = 2
    accelerate: bool = True
    coefficients = staticmethod(coefficients)
    needs_loss = ("expect",)
    needs_prior = ("expect_inclusion",)

    def __post_init__(self) -> None:
        unknown = [start for start in self.starts if start not in _STARTS]
        if unknown or not self.starts:
            raise ValueError(f"starts must be some of {list(_STARTS)}; got {self.starts!r}.")

    def init(self, model: Model) -> LaplaceZeroState:
        """Run every start, keep the one with the highest bound, and refine it."""
        best = max((self._begin(model, start) for start in self.starts), key=lambda state: state.objective)
        return self._refine(model, best) if self.passes else best

    def step(self, model: Model, state: LaplaceZeroState, iteration: int) -> tuple[LaplaceZeroState, Info]:
        """One cycle, or two and an extrapolation; the bound never falls."""
        one = self._map(model, state)
        new = one
        if self.accelerate:
            new = two = self._map(model, one)
            way = parabola(model, state, one, two)
            length = way.length
            while length > 1.0:
                leap = self._leap(model, way, two, length)
                if leap is not None and leap.objective >= two.objective:
                    new = leap
                    break
                length = 0.5 * (length - 1.0) + 1.0 if length > 1.5 else 1.0
        return new, Info(new.objective, abs(new.objective - state.objective) / (1.0 + abs(new.objective)))

    def seen(self, model: Model, state: LaplaceZeroState, *, rows: bool = True) -> LaplaceZeroState:
        """The same densities on a model with other weights or loss, or with other ``rows``."""
        face = Face(model.loss, "expect")
        if rows:
            kept, ((data,),) = model.blocks.keep(visits.messages_at, (face, *coefficients(state)))
        else:
            kept, ((data,),) = model.blocks.keep(visits.messages, face, state.rows)
        objective = state.objective + float(data) - state.data
        return state._replace(rows=kept, data=float(data), objective=objective)

    @staticmethod
    def _prior(model: Model) -> Any:
        return model.prior

    def _map(self, model: Model, state: LaplaceZeroState, logit: Array | None = None) -> LaplaceZeroState:
        logit = state.logit if logit is None else logit
        return self._cycle(model, state.rows, state.inclusion, state.prior.precision, logit, state.tau)

    def _leap(self, model: Model, way: Parabola, two: LaplaceZeroState, length: float) -> LaplaceZeroState | None:
        """The cycle applied to an extrapolated point."""
        try:
            with np.errstate(over="raise", invalid="raise"):  # a leap may end anywhere
                found = leap_messages(model, way, length)
                if found is None:
                    return None
                messages, logs = found
                return self._cycle(model, messages, two.inclusion, np.exp(logs), two.logit, two.tau)
        except (np.linalg.LinAlgError, FloatingPointError):
            return None

    def _begin(self, model: Model, start: str) -> LaplaceZeroState:
        prior = self._prior(model)
        message, _ = model.blocks.keep(visits.standard, (Face(model.loss, "expect"), 0.0))
        G, r = model.blocks.sum(visits.gram, None, message)
        make, above, cycles = _STARTS[start]
        g, first = make(prior, G, r), prior.start()
        logit = prior.expect_inclusion(g[prior.candidates])[0] + above
        state = self._cycle(model, message, g, first.precision, logit, first.values["scale"] ** -2)
        for t in range(cycles):
            state = self._map(model, state, state.logit + above * (1.0 - t / cycles))
        return self._climb(model, state, self.trial, self.trial_tol)

    def _climb(self, model: Model, state: LaplaceZeroState, steps: int, tol: float) -> LaplaceZeroState:
        for t in range(steps):
            state, info = self.step(model, state, t)
            if info.change < tol:
                break
        return state

    def _doubtful(self, model: Model, state: LaplaceZeroState) -> Any:
        """Columns worth trying on their other side: the weakest that are in, the most promising that are out."""
        G, r = model.blocks.sum(visits.gram, None, state.rows)
        candidates = self._prior(model).candidates
        pull = r - G @ (state.inclusion * state.q.mean)
        outside = state.inclusion[candidates] <= 0.5
        loss = (G.diagonal() * state.q.mean**2)[candidates]
        gain = (pull**2 / (G.diagonal() + state.prior.precision))[candidates]
        weak = np.flatnonzero(~outside)[np.argsort(loss[~outside], kind="stable")]
        strong = np.flatnonzero(outside)[np.argsort(-gain[outside], kind="stable")]
        return np.sort(candidates[np.concatenate((weak[:_TRIED], strong[:_TRIED]))])

    def _refine(self, model: Model, state: LaplaceZeroState) -> LaplaceZeroState:
        """Try columns on their other side; a rival that cannot catch up in ten gains is given up."""
        for _ in range(self.passes):
            # from its own optimum, so that a rival wins by its columns and not by further cycles
            state = self._climb(model, state, 2 * self.trial, 0.01 * self.trial_tol)
            before = state.objective
            for j in self._doubtful(model, state):
                g = state.inclusion.copy()
                g[j] = 0.0 if g[j] > 0.5 else 1.0
                rival, gain = self._map(model, state._replace(inclusion=g)), math.inf
                for _ in range(_CHASE):
                    if not rival.objective <= state.objective < rival.objective + 10.0 * gain:
                        break
                    new = self._map(model, rival)
                    gain, rival = new.objective - rival.objective, new
                if rival.objective > state.objective:
                    state = rival
            if state.objective <= before + self.trial_tol * (1.0 + abs(before)):
                break
        return state

    def _cycle(
        self, model: Model, messages: Kept, g: Array, precision: Array, logit: Array, tau: float
    ) -> LaplaceZeroState:
        prior = self._prior(model)
        shrunk, candidates = prior.shrunk, prior.candidates
        G, r = model.blocks.sum(visits.gram, None, messages)
        A = G * np.outer(g, g)
        A.flat[:: len(g) + 1] = G.diagonal() * g + precision  # E g^2 = E g
        q = Gaussian.from_precision(A, g * r)
        Omega = q.root @ q.root.T + np.outer(q.mean, q.mean)
        second = Omega.diagonal().copy()
        g, eta = g.copy(), np.zeros(len(g))
        _choose(G, r, q.mean, Omega, candidates, logit, g, eta)
        precision, tau, bound = _scales(prior, second, tau)
        chosen = float(g[candidates].sum())
        logit, indicators = prior.expect_inclusion(g[candidates])
        entropy = float((np.logaddexp(0.0, eta[candidates]) - g[candidates] * eta[candidates]).sum())
        bound += indicators + entropy
        small = Face(model.loss, "expect"), g * q.mean, _root(q, g, second)
        rows, ((data,),) = model.blocks.keep(visits.messages_at, small)
        objective = float(data) + bound + q.entropy
        m = max(len(candidates), 1)
        values = prior.values(tau**-0.5, float(g[shrunk].sum()), (1.0 + chosen) / (2.0 + m))
        return LaplaceZeroState(
            q, g, second, rows, float(data), PriorMessage(precision, bound, values), logit, tau, objective
        )


def _scales(prior: Any, second: Array, tau: float) -> tuple[Array, float, float]:
    """Prior precisions ``E scale^-2 E b``, ``E scale^-2`` and their part of the bound, given ``E v^2``.

    With q(b) inverse Gaussian of mean ``local = (tau E v^2)^(-1/2)`` and shape 1, the terms of b are
    ``log(2 pi)/2 - log 2 - 1/(2 local)`` each.
    """
    size = np.sqrt(np.maximum(second[prior.shrunk], 1e-300))
    m, total, used, bound = len(size), float(size.sum()), tau, 0.0
    for _ in range(60):
        used = tau
        tau, bound = prior.scale_prior.expect(total / math.sqrt(used), m)
        if abs(tau - used) <= 1e-13 * tau:
            break
    bound -= m * math.log(2.0) + 0.5 * math.sqrt(used) * total
    free = second[prior.free]
    flat = np.broadcast_to(prior.flat, len(free))
    bound += 0.5 * float((np.log(flat) - _LOG_2PI - flat * free).sum())
    precision = np.empty(len(second))
    precision[prior.free] = flat
    precision[prior.shrunk] = tau / (math.sqrt(used) * size)
    return precision, tau, bound
