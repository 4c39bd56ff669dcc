"""The exact posterior mode of sparse rows under a normal prior: coordinate descent on the multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from softmargin.designs.base import Array
from softmargin.engines.active_set import ActiveSet
from softmargin.engines.certificate import certify
from softmargin.engines.model import Model
from softmargin.engines.newton import Newton
from softmargin.engines.penalty import Penalty

__all__ = ["Descent", "mode_engine"]

_ROUNDS = 30  # rounds of sweeps at most
_FIRST, _SWEEPS = 30, 10  # sweeps of the first round and of others; then the multipliers inside their box move together
_INNER = 200  # conjugate-gradient iterations of that move at most
_CLOSER = 1e-4  # what it leaves of the squared residual at least
_CLOSEST = 1e-13  # and where no multiplier would leave its box
_MARGIN = 1e-6  # distance from the margin within which a row of an earlier mode was on it
_SHORT = 1e-4  # rows on the margin that fall short of it by no more are close enough to be lifted
_SEED = 11


@dataclass(frozen=True)
class Descent(Newton):
    """As ``Newton``, for designs that give their sparse entries, where no matrix of rows or columns can be held.

    The dual of ``2 c'max(1 - y f, 0) + tau |beta|^2 / 2`` is a quadratic in the multipliers g over the box [0, 2c].
    A sweep minimises it over one multiplier after the other, at the cost of the entries of the rows that move (Hsieh
    et al., 2008). What sweeps leave to the end, the multipliers inside the box, is then moved at once, by conjugate
    gradients on their equations. The free intercept is held near its last value by a quadratic that vanishes at the
    end (a proximal point), because a flat one would tie all multipliers together. The certificate is exact.
    """

    def at(self, model: Model, penalty: Penalty, near: Any = None) -> ActiveSet:
        rows = _Rows.of(model, penalty)
        g, base = np.zeros(len(model.y)), 0.0
        if near is not None:  # the sides of the rows are known, the multipliers on the margin are not
            u = 1.0 - model.y * near.f
            alone = np.minimum(1.0 / rows.size, rows.top)  # what a row would have without the others
            g = np.where(u > _MARGIN, rows.top, np.where(u < -_MARGIN, 0.0, alone))
            base = float(near.beta[0]) if rows.rho else 0.0
        found = self._rounds(model, penalty, rows, g, base)
        if found.certificate.gap <= self.gap:
            return found
        # many rows in few directions: the interior point finds who is on the margin, the rounds their multipliers
        inner = self._interior(model, penalty)
        g = np.where(inner.margin, inner.g, np.where(inner.g > model.c, rows.top, 0.0))
        last = self._rounds(model, penalty, rows, g, float(inner.beta[0]) if rows.rho else 0.0)
        return min(found, inner, last, key=lambda point: point.certificate.gap)

    def _rounds(self, model: Model, penalty: Penalty, rows: _Rows, g: Array, base: float) -> ActiveSet:
        """Joint moves and sweeps in turn; the best point that they pass."""
        rng = np.random.Generator(np.random.Philox(_SEED))
        best, sweeps = rows.point(model, penalty, g, base), 0 if g.any() else _FIRST
        for _ in range(_ROUNDS):
            g = g.copy()
            base = rows.swept(g, base, [rng.permutation(len(g)) for _ in range(sweeps)])
            g, sweeps = rows.moved(g, base), _SWEEPS
            best = min(best, rows.point(model, penalty, g, base), key=lambda point: point.certificate.gap)
            if best.certificate.gap <= self.gap:
                break
        return best


def mode_engine(model: Model) -> type[Newton]:
    """The engine that finds the mode of a model under a convex penalty."""
    return Descent if hasattr(model.blocks.design, "entries") else Newton


class _Rows(NamedTuple):
    """Signed rows in the metric of the prior, ``sqrt(1/tau) y_i (x_i - shift)``, as entries and a shift."""

    X: Any  # CSR, entries scaled and signed, without the shift
    y: Array
    along: Array  # product of every row of X with the shift
    square: float  # squared length of the shift
    top: Array  # upper end of the box
    size: Array  # squared length of the rows, and what the intercept adds
    rho: float  # variance of the intercept around its last value; zero without an intercept
    keep: float  # what its prior leaves of the last value

    @classmethod
    def of(cls, model: Model, penalty: Penalty) -> _Rows:
        design: Any = model.blocks.design
        X, shift = design.entries()
        sd = float(penalty.precision[-1]) ** -0.5
        X.data *= np.repeat(sd * model.y, np.diff(X.indptr))
        shift = sd * shift
        size = sd * sd * design.norms()
        rho, keep = 0.0, 1.0
        if design.intercept:
            wide = max(float(np.median(size)), 4.0 / float(model.c.sum()))  # it must be able to cross the margin
            rho = 1.0 / (float(penalty.precision[0]) + 1.0 / wide)
            keep = rho / wide
        along = np.asarray(X @ shift)
        top = model.loss.box * model.c  # type: ignore[attr-defined]
        return cls(X, model.y, along, float(shift @ shift), top, size + rho, rho, keep)

    def intercept(self, g: Array, base: float) -> float:
        """The intercept that goes with the multipliers."""
        return self.keep * base + self.rho * float(self.y @ g)

    def swept(self, g: Array, base: float, orders: list[Any]) -> float:
        """Change ``g`` by sweeps in the given orders; the intercept follows after each."""
        sums, totals, X = np.asarray(self.X.T @ g), np.array([self.y @ g, self.along @ g]), self.X
        for order in orders:
            numbers = np.array([self.square + self.rho, self.keep * base])
            _sweep(
                X.data, X.indices, X.indptr, self.y, self.along, self.top, self.size, order, numbers, g, sums, totals
            )
            base = self.intercept(g, base)
        return base

    def products(self, g: Array, index: Any) -> Array:
        """``Z Z'g`` with the intercept's part, over the rows ``index`` alone: others neither give nor get."""
        X, out = self.X, np.zeros_like(g)
        _products(
            X.data, X.indices, X.indptr, self.y, self.along, index, self.square + self.rho, g, np.zeros(X.shape[1]), out
        )
        return out

    def moved(self, g: Array, base: float) -> Array:
        """The multipliers inside the box, moved towards the solution of their equations; at worst not at all."""
        everything, inside = np.arange(len(g)), np.flatnonzero((g > 0.0) & (g < self.top))
        if not len(inside):
            return g
        slope = self.products(g, everything) + self.y * (self.keep * base) - 1.0
        X, d = self.X, np.zeros_like(g)
        d[inside] = _towards(
            X.data, X.indices, X.indptr, self.y, self.along, self.size, self.square + self.rho, inside, slope[inside],
            g[inside], self.top[inside], np.zeros(X.shape[1]), np.zeros((4, len(inside))),
        )  # fmt: skip
        length = 1.0
        for _ in range(12):  # the change of the dual is a quadratic: its value along the clipped path decides
            ahead = np.clip(g + length * d, 0.0, self.top)
            change = ahead - g
            if float(change @ slope) + 0.5 * float(change @ self.products(change, inside)) < 0.0:
                return ahead
            length *= 0.5
        return g

    def point(self, model: Model, penalty: Penalty, g: Array, base: float) -> ActiveSet:
        """Coefficients, predictors and certificate of the multipliers."""
        beta = model.blocks.rmatvec(model.y * g) / penalty.precision
        if self.rho:
            beta[0] = self.intercept(g, base)
        f, margin = model.blocks.matvec(beta), (g > 0.0) & (g < self.top)
        everything = np.ones(len(beta), dtype=bool)
        found = ActiveSet(beta, f, g.copy(), margin, everything, certify(model, beta, f, g, penalty))
        # where a tiny penalty is set against the rounding errors of many rows on the margin, they are lifted over it
        short = float((1.0 - model.y * f)[g < self.top].max(initial=0.0))
        if not 0.0 < short < _SHORT:
            return found
        beta, f = (1.0 + short) * beta, (1.0 + short) * f
        lifted = found._replace(beta=beta, f=f, certificate=certify(model, beta, f, g, penalty))
        return min(found, lifted, key=lambda point: point.certificate.gap)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _sweep(
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    along: Any,
    top: Any,
    size: Any,
    order: Any,
    numbers: Any,
    g: Any,
    sums: Any,
    totals: Any,
) -> None:
    """One multiplier after the other to its best value given the others."""
    constant, base = numbers
    total, crossed = totals
    for i in order:
        product = 0.0
        for s in range(indptr[i], indptr[i + 1]):
            product += data[s] * sums[indices[s]]
        slope = product - total * along[i] + y[i] * (total * constant - crossed + base) - 1.0
        new = min(max(g[i] - slope / size[i], 0.0), top[i])
        change = new - g[i]
        if change != 0.0:
            g[i] = new
            for s in range(indptr[i], indptr[i + 1]):
                sums[indices[s]] += change * data[s]
            total += change * y[i]
            crossed += change * along[i]
    totals[0], totals[1] = total, crossed


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _products(
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    along: Any,
    index: Any,
    constant: float,
    g: Any,
    sums: Any,
    out: Any,
) -> None:
    """Products of the rows ``index`` with the sum of these rows times g; ``sums`` comes as zeros."""
    total, crossed = 0.0, 0.0
    for i in index:
        for s in range(indptr[i], indptr[i + 1]):
            sums[indices[s]] += g[i] * data[s]
        total += y[i] * g[i]
        crossed += along[i] * g[i]
    for i in index:
        product = 0.0
        for s in range(indptr[i], indptr[i + 1]):
            product += data[s] * sums[indices[s]]
        out[i] = product - total * along[i] + y[i] * (total * constant - crossed)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _towards(
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    along: Any,
    size: Any,
    constant: float,
    index: Any,
    slope: Any,
    g: Any,
    top: Any,
    sums: Any,
    work: Any,
) -> Any:
    """The move of the multipliers of the rows ``index`` that makes their slopes zero, by conjugate gradients.

    It ends early where it has become clear enough that a multiplier would leave its box [0, top].
    """
    d, r, p, ahead = work
    rz = 0.0
    for k in range(len(index)):
        r[k] = -slope[k]
        p[k] = r[k] / size[index[k]]
        rz += r[k] * p[k]
    goal, last = _CLOSER * rz, _CLOSEST * rz
    for _ in range(_INNER):
        sums[:] = 0.0
        total, crossed, bend, length = 0.0, 0.0, 0.0, 0.0
        for k in range(len(index)):
            i = index[k]
            for s in range(indptr[i], indptr[i + 1]):
                sums[indices[s]] += p[k] * data[s]
            total += y[i] * p[k]
            crossed += along[i] * p[k]
        for k in range(len(index)):
            i = index[k]
            product = 0.0
            for s in range(indptr[i], indptr[i + 1]):
                product += data[s] * sums[indices[s]]
            ahead[k] = product - total * along[i] + y[i] * (total * constant - crossed)
            bend += p[k] * ahead[k]
            length += size[i] * p[k] * p[k]
        if bend <= 1e-14 * length:  # more rows than directions: sweeps settle the rest
            break
        step, new = rz / bend, 0.0
        for k in range(len(index)):
            d[k] += step * p[k]
            r[k] -= step * ahead[k]
            new += r[k] * r[k] / size[index[k]]
        if new <= goal:
            leaves = False
            for k in range(len(index)):
                leaves = leaves or not 0.0 <= g[k] + d[k] <= top[k]
            if leaves or new <= last:
                break
        for k in range(len(index)):
            p[k] = r[k] / size[index[k]] + (new / rz) * p[k]
        rz = new
    return d
