"""The Bayesian and the complete support vector machine: hinges on a noisy kernel expansion over all rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.loss import Loss
from softmargin.engines.kernel.active_vectors import KernelData
from softmargin.engines.kernel.draws import Expansion
from softmargin.rows.streams import Purpose

__all__ = ["Copies", "KernelMachine", "MachineChain", "MachinePrior"]


@dataclass(frozen=True)
class MachinePrior:
    """``beta_j | s2, lam_j ~ N(0, s2/lam_j)`` with ``lam_j ~ Gamma(a, rate b)``, ``s2 ~ IG(a, b)``.

    The coefficients are t distributed with 2a degrees of freedom once lam is integrated out. The intercept has the
    fixed precision ``intercept`` in units of the noise. Rows say little about the noise: where it is large the hinge
    becomes a probit whose scale the coefficients follow, so its default prior is narrow, around 0.55.
    """

    precision: tuple[float, float] = (1.0, 10.0)
    noise: tuple[float, float] = (100.0, 30.0)
    intercept: float = 1e-2

    def __post_init__(self) -> None:
        if not all(0.0 < value < math.inf for value in (*self.precision, *self.noise, self.intercept)):
            raise ValueError(f"MachinePrior needs positive numbers; got {self}.")


class Copies(NamedTuple):
    """Design with a column of ones, its Gram matrix and labels, with as many copies of a row as it weighs."""

    X: Array
    gram: Array
    y: Array

    @classmethod
    def of(cls, rows: KernelData) -> Copies:
        """Repeat the rows."""
        X = np.column_stack((np.ones(len(rows.row)), rows.K[rows.row]))
        return cls(X, X.T @ X, rows.y[rows.row])


class MachineChain(NamedTuple):
    """Where one chain stands; ``x`` holds the intercept and the coefficients, f has one entry per copy of a row."""

    x: Array
    f: Array
    lam: Array
    noise: float  # standard deviation
    loglik: float


@dataclass(frozen=True, eq=False)
class KernelMachine:
    """Several chains of ``z = u + K beta + e``, ``e ~ N(0, s2)``, with a hinge on z, one sweep of each per step.

    A sweep: (1) z given the predictor, exactly; (2) s2 with intercept and coefficients integrated out, then these;
    (3) lam given them. A row of weight c is c copies.

    Parameters
    ----------
    loss : callable
        Gives the loss for a noise standard deviation: ``NoisyHinge`` or ``CompleteHinge``.
    prior : MachinePrior
        Prior of coefficients and noise.
    rows : Copies
        The data, prepared.
    chains : int
        Number of chains.

    References
    ----------
    Mallick, Ghosh and Ghosh (2005), Journal of the Royal Statistical Society B 67, 219-234.
    """

    loss: Callable[[float], Loss]
    prior: MachinePrior
    rows: Copies
    chains: int = 1

    def init(self, model: Any) -> tuple[MachineChain, ...]:
        """Start every chain from predictors of its own."""
        (a, rate), (shape, scale), p = self.prior.precision, self.prior.noise, self.rows.X.shape[1]
        lam = np.full(p, a / rate)
        lam[0] = self.prior.intercept
        at = (model.streams.at(Purpose.START, chain=k) for k in range(self.chains))
        starts = (rng.standard_normal(len(self.rows.y)) for rng in at)
        return tuple(MachineChain(np.zeros(p), f, lam, math.sqrt(scale / shape), math.nan) for f in starts)

    def step(
        self, model: Any, state: tuple[MachineChain, ...], iteration: int
    ) -> tuple[tuple[MachineChain, ...], Info]:
        """One sweep of every chain."""
        state = tuple(self.sweep(model, chain, k, iteration) for k, chain in enumerate(state))
        return state, Info(float(np.mean([chain.loglik for chain in state])), math.inf)

    def sweep(self, model: KernelData, chain: MachineChain, k: int, iteration: int) -> MachineChain:
        """One sweep of chain number ``k``."""
        X, gram, y = self.rows
        one = np.ones(len(y))
        rng = model.streams.at(Purpose.LATENT, chain=k, iteration=iteration)
        w, b = self.loss(chain.noise).draw(rng, y, one, chain.f)
        z = b / w
        A = gram + np.diag(chain.lam)
        L = np.linalg.cholesky(A)
        fitted = solve_triangular(L, z @ X, lower=True)
        rng = model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration)
        shape, scale = self.prior.noise
        scale += 0.5 * max(float(z @ z - fitted @ fitted), 0.0)
        s = math.sqrt(scale / rng.gamma(shape + 0.5 * len(y)))
        x = solve_triangular(L, fitted + s * rng.standard_normal(len(fitted)), lower=True, trans=1)
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        a, rate = self.prior.precision
        lam = chain.lam.copy()
        lam[1:] = rng.gamma(a + 0.5, size=len(x) - 1) / (rate + 0.5 * (x[1:] / s) ** 2)
        f = X @ x
        return MachineChain(x, f, lam, s, float(self.loss(s).loglik(y, one, f).sum()))

    def expansion(self, chain: MachineChain) -> Expansion:
        """The draw: every row has a coefficient."""
        return Expansion(float(chain.x[0]), np.arange(len(chain.x) - 1), chain.x[1:])

    def values(self, chain: MachineChain) -> dict[str, float]:
        """What else was drawn."""
        return {"noise": chain.noise, "loglik": chain.loglik}

    def accepted(self, state: tuple[MachineChain, ...]) -> dict[str, float]:
        """Nothing is proposed."""
        return {}
