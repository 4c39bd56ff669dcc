"""The covariance of a Gaussian by conjugate gradients: variances of what was not fitted come from fixed draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.space import Root

__all__ = ["PROBES", "CGRoot"]

PROBES = 128  # draws behind the variances of new rows and of coefficients
_SEED = 7
_OFF = 0.1  # error of the standard deviations that calls for a notice; the draws that measure it have one of 0.06


@dataclass(frozen=True, eq=False)
class CGRoot(Root):
    """The covariance of a ``CGNormal``; variances of rows that were not fitted, and of coefficients, by fixed draws."""

    normal: Any  # a ``CGNormal``
    grow: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        size = len(self.normal.precision)
        return size, size

    @property
    def _factor(self) -> float:
        return (self.grow * self.normal.grow) ** 2

    @cached_property
    def _probes(self) -> tuple[Any, Any]:
        """Fixed draws of the slopes given the intercept, and what was taken off them, in single precision."""
        rng = np.random.Generator(np.random.Philox(_SEED))
        parts = [self.normal.coupled(rng, PROBES // 4) for _ in range(4)]
        kept, taken = (np.concatenate([part[k] for part in parts], axis=1).astype(np.float32) for k in (0, 1))
        return kept, taken

    @cached_property
    def notice(self) -> str:  # type: ignore[override]
        """What is to say where the sketch leaves so much out that standard deviations of the fitted rows are wrong."""
        normal = self.normal
        if not normal.space.sketch.own.any():
            return ""
        exact = np.maximum(self._by_draws(normal.design, 0, None), 1e-300)
        ratio = np.log(np.maximum(self._factor * normal.rows.variance, 1e-300) / exact)
        error = 0.5 * float(np.sqrt(np.mean(ratio**2)))
        if error <= _OFF:
            return ""
        return (
            "solver='cg' approximates the spread of the predictors: in the fit their standard deviations differed from "
            f"those of {PROBES} draws by {100 * error:.2g} %; use solver='dual' or "
            "'cholesky' where a matrix of the rows or of the columns has room."
        )

    def row_quad(self, design: Design, lo: int = 0, hi: int | None = None) -> Array:
        """Variance of the linear predictors of rows lo..hi; of the rows that were fitted, by the sketch."""
        normal = self.normal
        if design is normal.design:
            return self._factor * normal.rows.variance[lo:hi]
        return self._by_draws(design, lo, hi)

    def _by_draws(self, design: Design, lo: int, hi: int | None) -> Array:
        normal = self.normal
        kept, taken = (design.matmat(part, lo, hi) for part in self._probes)
        v = _split(kept, taken) * normal.prior_variance * design.norms(lo, hi)
        if normal.lead:
            v = v + design.matvec(np.concatenate(([1.0], -normal.cross)), lo, hi) ** 2 / normal.corner
        return np.asarray(self._factor * v)

    def squares(self) -> Array:
        """Marginal variances."""
        normal = self.normal
        own = _split(*self._probes) * normal.prior_variance
        if normal.lead:
            own = np.concatenate(([1.0 / normal.corner], own + normal.cross**2 / normal.corner))
        return self._factor * own

    def quadratic(self, x: Array) -> float:
        """``x' C x`` of the covariance C, by one solve."""
        return self.grow**2 * float(x @ self.normal.solve(x))

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, coefficients) of N(0, C)."""
        parts = [self.normal.noise(rng, min(64, n - lo)) for lo in range(0, n, 64)]
        return self.grow * np.concatenate(parts)

    def enlarged(self, factor: float) -> CGRoot:
        """The root of the covariance times the square of a factor."""
        copy = replace(self, grow=self.grow * factor)
        if "_probes" in self.__dict__:
            copy.__dict__["_probes"] = self._probes
        return copy


def _split(kept: Array, taken: Array) -> Array:
    """Share of a known variance in the first of two independent parts, from draws (..., k) of both."""
    left, gone = (np.einsum("ij,ij->i", part, part, dtype=np.float64) for part in (kept, taken))
    return np.asarray(left / np.maximum(left + gone, 1e-300))
