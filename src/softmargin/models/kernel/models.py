"""Fitted kernel machines of two classes, and what they say of new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.designs.kernel.features import KernelMap, rescaled
from softmargin.designs.kernel.kernels import Kernel
from softmargin.designs.standardize import Columns
from softmargin.engines.kernel.draws import KernelDraws
from softmargin.models.fitted import Fitted, spread_of
from softmargin.models.two_class import Binary
from softmargin.posterior import diagnostics
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Purpose, Streams

__all__ = ["Featured", "KernelBinary", "KernelExpansions", "by_length"]

_CHUNK = 512  # new rows at a time


def by_length(kernel: Kernel, unit: float, X: Any, Z: Any = None) -> Callable[[float, Any], Array]:
    """Columns of the matrix of ``k / unit`` between rows that the kernel sees, as a function of the length."""
    matrix = kernel.by_length(X, Z)
    return lambda length, at: matrix(length, at) / unit


@dataclass(frozen=True, eq=False, kw_only=True)
class Featured(Fitted):
    """A linear model in kernel features; new rows have the variance that the features leave out besides."""

    map: KernelMap
    base: float = 1.0  # what a scale of one stands for in the posterior

    lengths = None  # the length has no draws

    @property
    def has_spread(self) -> bool:
        """Whether f has a posterior, not a mode alone."""
        spread: bool = self.fit.posterior.has_spread
        return spread

    @property
    def length(self) -> float | None:
        """Length of the kernel."""
        return self.map.kernel.length

    @property
    def rescaled(self) -> bool:
        """Whether the kernel sees rescaled columns."""
        return self.map.columns is not None

    def design(self, X: Any) -> Design:
        return self._design(X)[0]

    def _design(self, X: Any) -> tuple[Design, Array]:
        F, outside = self.map.features(X)
        return Dense.plain(F, intercept=True), outside

    def moments(self, X: Any) -> tuple[Array, Array]:
        design, outside = self._design(X)
        f, v = self.fit.posterior.moments(design)
        return f, v + self.fit.posterior.square * outside if self.has_spread else v

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        drawn = super().sample(X, n, streams)
        with one_blas_thread():
            rest = self.map.remainder(X, streams.at(Purpose.PREDICT, iteration=1), n)
        return np.asarray(drawn + np.sqrt(spread_of(self.fit.posterior, "sample").square) * rest)

    def _predictors(self, beta: Array, X: Any, streams: Streams) -> tuple[Array, Array | None]:
        f, spread = super()._predictors(beta, X, streams)
        rest = self.map.remainder(X, streams.at(Purpose.PREDICT, iteration=1), len(beta))
        return f + np.sqrt(self.fit.posterior.square) * rest.T, spread

    def sampled(self, classes: Any, wanted: diagnostics.Wanted, streams: Streams) -> diagnostics.Sampled:
        """Draws of the intercept, the scale and what else was sampled; coefficients of features mean nothing."""
        drawn = super().sampled(classes, wanted, streams)
        drawn.variables.pop("coef")
        drawn.variables["scale"] = self.base * drawn.variables["scale"]
        return drawn


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelBinary(Featured, Binary):
    """A linear machine of two classes in kernel features."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelExpansions(Binary):
    """Draws of ``f = intercept + sum_j coef_j k(., x_j)``, each on some of the training rows."""

    kernel: Kernel
    scaling: Columns | None
    vectors: Any  # rows that some draw has a coefficient on, or their numbers where the kernel is precomputed
    unit: float
    expansions: KernelDraws
    active: Array  # probability of each training row having a coefficient
    linked: bool  # whether a link was fitted; a likelihood that is one needs no other

    has_spread = True

    @property
    def lengths(self) -> Array | None:
        """Draws (chains, draws) of the length of the kernel, where it was drawn."""
        return self.expansions.values.get("length")

    @property
    def length(self) -> float | None:
        """Length of the kernel, or exp of the posterior mean of its logarithm."""
        return self.kernel.length if self.lengths is None else float(np.exp(np.log(self.lengths).mean()))

    @property
    def rescaled(self) -> bool:
        """Whether the kernel sees rescaled columns."""
        return self.scaling is not None

    def _across(self, X: Any) -> Iterator[Array | Callable[[float, Any], Array]]:
        """The kernel matrix of new rows with the vectors, or its columns by length, some rows at a time."""
        for lo in range(0, X.shape[0], _CHUNK):
            part = X[lo : lo + _CHUNK]
            if self.kernel.precomputed:
                yield self.kernel.matrix(part)[:, self.vectors] / self.unit
            elif self.lengths is None:
                yield self.kernel.matrix(rescaled(part, self.scaling), self.vectors) / self.unit
            else:
                yield by_length(self.kernel, self.unit, rescaled(part, self.scaling), self.vectors)

    def _predictor(self, X: Any) -> Array:
        return np.hstack([self.expansions.predictor(across) for across in self._across(X)])

    def moments(self, X: Any) -> tuple[Array, Array]:
        parts = [self.expansions.moments(across) for across in self._across(X)]
        return np.concatenate([mean for mean, _ in parts]), np.concatenate([variance for _, variance in parts])

    def decision(self, X: Any, kind: str) -> Array:
        with one_blas_thread():
            return self._moved(*self.moments(X), kind)

    def positive(self, X: Any, kind: str) -> Array:
        if kind == "calibrated" and self.linked:
            return super().positive(X, kind)
        with one_blas_thread():
            if kind == "sign":
                return np.asarray((self._predictor(X) > 0.0).mean(axis=0))
            rate = self.learning_rate
            return np.concatenate([self.expansions.probability(across, rate=rate) for across in self._across(X)])

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        with one_blas_thread():
            f = self._predictor(X)
        chosen = streams.at(Purpose.PREDICT).choice(len(f), size=n, replace=n > len(f))
        return np.ascontiguousarray(f[chosen].T)

    @property
    def chain_shape(self) -> tuple[int, int] | None:
        chains, draws = self.expansions.intercept.shape
        return chains, draws

    def sampled(self, classes: Any, wanted: diagnostics.Wanted, streams: Streams) -> diagnostics.Sampled:
        """Draws of the intercept, the number of active rows and what else was sampled, and of predictors."""
        expansions, kept = self.expansions, (slice(None), slice(None, None, wanted.every))
        named = {"intercept": expansions.intercept, "n_active": expansions.n_active.astype(float), **expansions.values}
        values = {"length_scale" if name == "length" else name: each[kept] for name, each in named.items()}
        stats = {"loglik": values.pop("loglik")}
        drawn = diagnostics.Sampled(values, stats, {}, {}, False)
        if wanted.rows is None:
            return drawn
        with one_blas_thread():
            f = self._predictor(wanted.rows)
        return drawn._replace(f=f.reshape(*expansions.intercept.shape, -1)[kept])
