"""Draws of kernel expansions on all rows, in the spectral coordinates of the kernel matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from softmargin.core.array import Array
from softmargin.core.move import MoveBase
from softmargin.engines.kernel.data import KernelData, Spectrum
from softmargin.engines.kernel.draws import Expansion, Index
from softmargin.engines.kernel.latents import RowLatents
from softmargin.engines.kernel.precisions import Precisions, Stretch
from softmargin.engines.sampling.chains import Chains
from softmargin.rows.streams import Purpose

__all__ = ["SpectralChain", "SpectralCoefficients", "all_rows"]


class SpectralChain(NamedTuple):
    """Where one chain stands: ``f = u + X a`` with the columns of a ``Spectrum``, ``a ~ N(0, I/g)``."""

    x: Array  # (u, a)
    shape: Array  # linear predictors less the intercept
    w: Array  # row messages
    b: Array
    eta: float
    g: float
    loglik: float

    @property
    def f(self) -> Array:
        """The linear predictors."""
        f: Array = self.x[0] + self.shape
        return f

    def expansion(self, data: KernelData, law: bool = False) -> Expansion:
        """The draw in coefficients of the rows."""
        return Expansion(float(self.x[0]), np.arange(len(data.y)), data.spectrum.dual @ self.x[1:])

    def proposals(self) -> dict[str, Index]:
        """Nothing is proposed."""
        return {}

    def values(self) -> dict[str, float]:
        """What else was drawn."""
        return {"g": self.g, "eta": self.eta, "loglik": self.loglik}


@dataclass(frozen=True)
class SpectralCoefficients(MoveBase):
    """Intercept and coefficients in spectral coordinates, as one block.

    Invariance: a draw from their full conditional. Where all rows have the same weight, as always with the probit and
    equal weights, the Gram matrix is diagonal and the draw costs two passes over the columns.
    """

    reads = frozenset({"latents", "scale"})
    renews = frozenset({"beta", "f"})
    stale = frozenset({"loglik"})

    def __call__(self, random: Any, model: KernelData, chain: SpectralChain) -> SpectralChain:
        """The chain with new coefficients."""
        w, spectrum, rng = chain.w, model.spectrum, random.at(Purpose.COEFFICIENTS)
        draw = _independent if (w == w[0]).all() else _joint
        x = draw(rng, spectrum, w, chain.b, chain.eta, chain.g)
        return chain._replace(x=x, shape=spectrum.X @ x[1:])


def _independent(rng: np.random.Generator, spectrum: Spectrum, w: Array, b: Array, eta: float, g: float) -> Array:
    """u with a integrated out, then the independent entries of a."""
    level, precision = w[0], w[0] * spectrum.values + g
    ones, linear = level * spectrum.sums, b @ spectrum.X
    information = level * len(b) + eta - float(ones @ (ones / precision))
    mean = (b.sum() - float(ones @ (linear / precision))) / information
    u = mean + rng.standard_normal() / math.sqrt(information)
    return np.append(u, (linear - u * ones) / precision + rng.standard_normal(len(precision)) / np.sqrt(precision))


def _joint(rng: np.random.Generator, spectrum: Spectrum, w: Array, b: Array, eta: float, g: float) -> Array:
    """u and a from the factor of their joint precision."""
    X = np.column_stack((np.ones(len(b)), spectrum.X))
    A = (X.T * w) @ X
    A.flat[:: len(A) + 1] += g
    A[0, 0] += eta - g
    L = np.linalg.cholesky(A)
    z = solve_triangular(L, b @ X, lower=True)
    return np.asarray(solve_triangular(L, z + rng.standard_normal(len(z)), lower=True, trans=1))


def all_rows(chains: int = 1) -> Chains:
    """Chains with every row active.

    A sweep: (1) row latents given the predictors; (2) intercept and coefficients as one block; (3) their precisions;
    (4) g and the coefficients stretched together, latents integrated out.

    Parameters
    ----------
    chains : int
        Number of chains.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), section 3, with all gamma = 1 (BGKM); Yu and Meng (2011) for step 4.
    """
    return Chains((RowLatents(), SpectralCoefficients(), Precisions(), Stretch()), _start, chains)


def _start(model: KernelData, chains: int) -> tuple[SpectralChain, ...]:
    """Every chain from predictors of its own."""
    (eta, g), nothing, x = model.prior.start(), np.zeros(len(model.y)), np.zeros(len(model.spectrum.values) + 1)
    starts = (model.streams.at(Purpose.START, chain=k).standard_normal(len(model.y)) for k in range(chains))
    return tuple(SpectralChain(x, f, model.c, nothing, eta, g, math.nan) for f in starts)
