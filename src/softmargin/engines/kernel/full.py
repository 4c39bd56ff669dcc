"""Draws of kernel expansions on all rows, in the spectral coordinates of the kernel matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.loss import Loss
from softmargin.engines.kernel.active_vectors import KernelData, stretch
from softmargin.engines.kernel.draws import Expansion
from softmargin.priors.g_prior import GPrior
from softmargin.rows.streams import Purpose

__all__ = ["FullChain", "FullGibbs", "Spectrum"]

_RANK = 1e-10  # eigenvalues below this share of the largest are zero


class Spectrum(NamedTuple):
    """``K = X X'`` with orthogonal columns of squared lengths ``values``; ``beta = dual @ a`` has ``K beta = X a``."""

    X: Array
    values: Array
    dual: Array
    sums: Array  # of the columns of X

    @classmethod
    def of(cls, K: Array) -> Spectrum:
        """Leave out the directions in which a singular kernel matrix has no length."""
        values, U = np.linalg.eigh(K)
        seen = values > _RANK * values[-1]
        values, U = values[seen], U[:, seen]
        X = np.ascontiguousarray(U * np.sqrt(values))
        return cls(X, values, U / np.sqrt(values), X.sum(0))


class FullChain(NamedTuple):
    """Where one chain stands: ``f = u + X a``."""

    u: float
    a: Array
    f: Array
    eta: float
    g: float
    loglik: float


@dataclass(frozen=True, eq=False)
class FullGibbs:
    """Several chains with every row active: ``a ~ N(0, I/g)`` in spectral coordinates, one sweep of each per step.

    A sweep: (1) latents given f; (2) u and a as one block; (3) eta given u, g given a; (4) g and a stretched together,
    latents integrated out. Where all rows have the same weight, as always
    with the probit and equal weights, the Gram matrix is diagonal and a sweep costs two passes over X.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), section 3, with all gamma = 1 (BGKM); Yu and Meng (2011) for step 4.
    """

    loss: Loss
    prior: GPrior
    spectrum: Spectrum
    chains: int = 1

    def init(self, model: Any) -> tuple[FullChain, ...]:
        """Start every chain from predictors of its own."""
        eta, g = self.prior.start()
        starts = (model.streams.at(Purpose.START, chain=k).standard_normal(len(model.y)) for k in range(self.chains))
        return tuple(FullChain(0.0, np.zeros(len(self.spectrum.values)), f, eta, g, math.nan) for f in starts)

    def step(self, model: Any, state: tuple[FullChain, ...], iteration: int) -> tuple[tuple[FullChain, ...], Info]:
        """One sweep of every chain."""
        state = tuple(self.sweep(model, chain, k, iteration) for k, chain in enumerate(state))
        return state, Info(float(np.mean([chain.loglik for chain in state])), math.inf)

    def sweep(self, model: KernelData, chain: FullChain, k: int, iteration: int) -> FullChain:
        """One sweep of chain number ``k``."""
        rng = model.streams.at(Purpose.LATENT, chain=k, iteration=iteration)
        w, b = self.loss.draw(rng, model.y, model.c, chain.f)
        rng = model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration)
        draw = self._draw_equal if (w == w[0]).all() else self._draw
        u, a = draw(rng, w, b, chain.eta, chain.g)
        rng = model.streams.at(Purpose.PRIOR, chain=k, iteration=iteration)
        eta, g = self.prior.draw_eta(rng, u), self.prior.draw_g(rng, float(a @ a), len(a))
        shape = self.spectrum.X @ a
        t = stretch(rng, model, self.loss, self.prior, u, shape, g)
        a, shape, g = math.exp(t) * a, math.exp(t) * shape, g * math.exp(-2.0 * t)
        f = u + shape
        return FullChain(u, a, f, eta, g, float(self.loss.loglik(model.y, model.c, f).sum()))

    def _draw_equal(self, rng: np.random.Generator, w: Array, b: Array, eta: float, g: float) -> tuple[float, Array]:
        """u with a integrated out, then the independent entries of a."""
        level, precision = w[0], w[0] * self.spectrum.values + g
        ones, linear = level * self.spectrum.sums, b @ self.spectrum.X
        information = level * len(b) + eta - float(ones @ (ones / precision))
        u = (b.sum() - float(ones @ (linear / precision))) / information + rng.standard_normal() / math.sqrt(
            information
        )
        return u, (linear - u * ones) / precision + rng.standard_normal(len(precision)) / np.sqrt(precision)

    def _draw(self, rng: np.random.Generator, w: Array, b: Array, eta: float, g: float) -> tuple[float, Array]:
        """u and a from the factor of their joint precision."""
        X = np.column_stack((np.ones(len(b)), self.spectrum.X))
        A = (X.T * w) @ X
        A.flat[:: len(A) + 1] += g
        A[0, 0] += eta - g
        L = np.linalg.cholesky(A)
        z = solve_triangular(L, b @ X, lower=True)
        x = solve_triangular(L, z + rng.standard_normal(len(z)), lower=True, trans=1)
        return float(x[0]), x[1:]

    def expansion(self, chain: FullChain) -> Expansion:
        """The draw in coefficients of the rows."""
        return Expansion(chain.u, np.arange(len(self.spectrum.X)), self.spectrum.dual @ chain.a)

    def values(self, chain: FullChain) -> dict[str, float]:
        """What else was drawn."""
        return {"g": chain.g, "eta": chain.eta, "loglik": chain.loglik}

    def accepted(self, state: tuple[FullChain, ...]) -> dict[str, float]:
        """Nothing is proposed."""
        return {}
