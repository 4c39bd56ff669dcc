"""Fitted kernel machines of two classes, and what they say of new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin import diagnostics
from softmargin.designs.base import Array, Design
from softmargin.designs.dense import Dense
from softmargin.designs.kernel_map import KernelMap, rescaled
from softmargin.designs.kernels import Kernel
from softmargin.designs.standardize import Columns
from softmargin.engines.kernel_draws import KernelDraws
from softmargin.estimators.binary import Binary, spread_of
from softmargin.execution.blocks import one_blas_thread
from softmargin.execution.streams import Purpose, Streams

__all__ = ["KernelBinary", "KernelExpansions"]


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelBinary(Binary):
    """A linear machine in kernel features; new rows have the variance that the features leave out besides."""

    map: KernelMap
    base: float = 1.0  # what a scale of one stands for in the posterior

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

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        """Draws of the intercept, the scale and what else was sampled; coefficients of features mean nothing."""
        drawn = super().sampled(classes, draws, streams)
        drawn.variables.pop("coef")
        drawn.variables["scale"] = self.base * drawn.variables["scale"]
        return drawn


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
    def length(self) -> float | None:
        """Length of the kernel."""
        return self.kernel.length

    @property
    def rescaled(self) -> bool:
        """Whether the kernel sees rescaled columns."""
        return self.scaling is not None

    def _across(self, X: Any) -> Array:
        if self.kernel.precomputed:
            return self.kernel.matrix(X)[:, self.vectors] / self.unit
        return self.kernel.matrix(rescaled(X, self.scaling), self.vectors) / self.unit

    def moments(self, X: Any) -> tuple[Array, Array]:
        return self.expansions.moments(self._across(X))

    def decision(self, X: Any, kind: str) -> Array:
        with one_blas_thread():
            return self.moments(X)[0] + self.offset(kind)

    def positive(self, X: Any, kind: str) -> Array:
        if kind == "calibrated" and self.linked:
            return super().positive(X, kind)
        with one_blas_thread():
            across = self._across(X)
            if kind != "sign":
                return self.expansions.probability(across, rate=self.learning_rate)
            return np.asarray((self.expansions.predictor(across) > 0.0).mean(axis=0))

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        with one_blas_thread():
            f = self.expansions.predictor(self._across(X))
        chosen = streams.at(Purpose.PREDICT).choice(len(f), size=n, replace=n > len(f))
        return np.ascontiguousarray(f[chosen].T)

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        """Every draw of the intercept, the number of active rows and what else was sampled."""
        expansions = self.expansions
        values = dict(expansions.values)
        stats = {"loglik": values.pop("loglik")}
        active = expansions.n_active.astype(float)
        return diagnostics.Sampled(
            {"intercept": expansions.intercept, "n_active": active, **values}, stats, {}, {}, False
        )
