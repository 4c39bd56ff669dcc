"""The Bayesian and the complete support vector machine: hinges on a noisy kernel expansion over all rows.

``z = u + K beta + e``, ``e ~ N(0, s2)``, with a hinge on z; a row of weight c is c copies. The coefficients
``x = (u, beta)`` have the precision ``(X'X + diag(lam))/s2`` given the latents z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsv
from scipy.linalg.lapack import dpotrf

from softmargin.core.array import Array
from softmargin.core.move import MoveBase
from softmargin.engines.kernel.data import KernelData
from softmargin.engines.kernel.draws import Expansion, Index
from softmargin.engines.sampling.chains import Chains
from softmargin.rows.streams import Purpose

__all__ = [
    "LocalPrecisions",
    "MachineChain",
    "MachineCoefficients",
    "MachineLaw",
    "MachinePrior",
    "NoiseLevel",
    "NoisyLatents",
    "kernel_machine",
]


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


class MachineChain(NamedTuple):
    """Where one chain stands; ``x`` holds the intercept and the coefficients, f has one entry per copy of a row."""

    x: Array
    f: Array
    z: Array
    lam: Array
    L: Array  # factor of X'X + diag(lam)
    fitted: Array  # L^-1 X'z
    noise: float  # standard deviation
    loglik: float

    def expansion(self, data: KernelData, law: bool = False) -> Expansion:
        """The draw: every row has a coefficient."""
        return Expansion(float(self.x[0]), np.arange(len(self.x) - 1), self.x[1:])

    def proposals(self) -> dict[str, Index]:
        """Nothing is proposed."""
        return {}

    def values(self) -> dict[str, float]:
        """What else was drawn."""
        return {"noise": self.noise, "loglik": self.loglik}


@dataclass(frozen=True)
class NoisyLatents(MoveBase):
    """The noisy predictors z of all copies given the predictors and the noise.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"f", "scale"})
    renews = frozenset({"latents"})
    stale = frozenset({"law"})
    needs_loss = ("draw",)

    def __call__(self, random: Any, model: KernelData, chain: MachineChain) -> MachineChain:
        """The chain with new latents."""
        y = model.copies.y
        w, b = _loss(model, chain.noise).draw(random.at(Purpose.LATENT), y, np.ones(len(y)), chain.f)
        return chain._replace(z=b / w)


@dataclass(frozen=True)
class MachineLaw(MoveBase):
    """The normal law of intercept and coefficients given latents and local precisions, but for the noise.

    Invariance: nothing is drawn.
    """

    reads = frozenset({"latents", "local"})
    renews = frozenset({"law"})

    def __call__(self, random: Any, model: KernelData, chain: MachineChain) -> MachineChain:
        """The chain with the law that belongs to where it stands."""
        X, gram, _ = model.copies
        precision = gram.copy()
        precision.flat[:: len(precision) + 1] += chain.lam
        L, failed = dpotrf(precision.T, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the precision of the coefficients was lost to rounding")
        return chain._replace(L=L, fitted=dtrsv(L, chain.z @ X, lower=1))


@dataclass(frozen=True)
class NoiseLevel(MoveBase):
    """The noise given latents and local precisions.

    Invariance: a draw from its conditional with intercept and coefficients integrated out; these are stale until they
    are drawn again.
    """

    reads = frozenset({"latents", "law"})
    renews = frozenset({"scale"})
    stale = frozenset({"beta", "f", "loglik"})

    def __call__(self, random: Any, model: KernelData, chain: MachineChain) -> MachineChain:
        """The chain with another noise."""
        shape, scale = model.prior.noise
        scale += 0.5 * max(float(chain.z @ chain.z - chain.fitted @ chain.fitted), 0.0)
        return chain._replace(noise=math.sqrt(scale / random.rng.gamma(shape + 0.5 * len(chain.z))))


@dataclass(frozen=True)
class MachineCoefficients(MoveBase):
    """Intercept and coefficients of all rows, as one block.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"law", "scale"})
    renews = frozenset({"beta", "f", "loglik"})
    needs_loss = ("loglik",)

    def __call__(self, random: Any, model: KernelData, chain: MachineChain) -> MachineChain:
        """The chain with new coefficients."""
        X, _, y = model.copies
        noisy = chain.fitted + chain.noise * random.at(Purpose.COEFFICIENTS).standard_normal(len(chain.fitted))
        x = dtrsv(chain.L, noisy, lower=1, trans=1)
        f = X @ x
        loglik = float(_loss(model, chain.noise).loglik(y, np.ones(len(y)), f).sum())
        return chain._replace(x=x, f=f, loglik=loglik)


@dataclass(frozen=True)
class LocalPrecisions(MoveBase):
    """The precision of every coefficient, in units of the noise.

    Invariance: a draw from their full conditional.
    """

    reads = frozenset({"beta", "scale"})
    renews = frozenset({"local"})
    stale = frozenset({"law"})

    def __call__(self, random: Any, model: KernelData, chain: MachineChain) -> MachineChain:
        """The chain with new precisions of its coefficients."""
        (a, rate), beta, lam = model.prior.precision, chain.x[1:] / chain.noise, chain.lam.copy()
        lam[1:] = random.at(Purpose.PRIOR).gamma(a + 0.5, size=len(beta)) / (rate + 0.5 * beta**2)
        return chain._replace(lam=lam)


def kernel_machine(chains: int = 1) -> Chains:
    """Chains of a ``NoisyHinge`` or ``CompleteHinge`` with a ``MachinePrior``.

    A sweep: (1) z given the predictors, exactly; (2) the noise with intercept and coefficients integrated out, then
    (3) these; (4) their precisions given them.

    Parameters
    ----------
    chains : int
        Number of chains.

    References
    ----------
    Mallick, Ghosh and Ghosh (2005), Journal of the Royal Statistical Society B 67, 219-234.
    """
    moves = (NoisyLatents(), MachineLaw(), NoiseLevel(), MachineCoefficients(), LocalPrecisions())
    return Chains(moves, _start, chains)


def _start(model: KernelData, chains: int) -> tuple[MachineChain, ...]:
    """Every chain from predictors of its own."""
    (a, rate), (shape, scale), p = model.prior.precision, model.prior.noise, len(model.y) + 1
    lam, x, noise = np.full(p, a / rate), np.zeros(p), math.sqrt(scale / shape)
    lam[0] = model.prior.intercept

    def start(k: int) -> MachineChain:
        f = model.streams.at(Purpose.START, chain=k).standard_normal(len(model.copies.y))
        return MachineChain(x, f, f, lam, np.empty((0, 0)), x, noise, math.nan)

    return tuple(start(k) for k in range(chains))


def _loss(model: KernelData, noise: float) -> Any:
    """The loss at a noise level."""
    loss: Any = model.loss
    return replace(loss, noise=noise)
