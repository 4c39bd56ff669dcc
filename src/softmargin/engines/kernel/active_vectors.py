"""Draws of kernel expansions on a few active rows, by reversible jumps between sets of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.loss import Loss
from softmargin.engines.kernel._jump_compiled import advance
from softmargin.engines.kernel._jump_factors import room_for
from softmargin.engines.kernel.draws import Expansion, Index
from softmargin.losses.row_loss import check_whole_weights
from softmargin.priors.g_prior import GPrior
from softmargin.rows.streams import Purpose, Streams
from softmargin.rows.variates import slice_step

__all__ = ["ActiveChain", "ActiveGibbs", "KernelData", "LengthScale", "factor", "jitter_of"]

_JITTER = 1e-8  # share of the kernel's mean diagonal that is added to K_aa, everywhere where K_aa appears
_REBUILD = 100  # sweeps after which the factors are computed anew
_FAR = 50.0  # no single move changes a scale by more than e^50
_KINDS = ("birth", "death", "swap")
_WANTED = 0.4  # acceptance rate that the length scale's step is tuned for during warm-up


@dataclass(frozen=True, eq=False)
class KernelData:
    """The kernel matrix of the rows, their labels in {-1, +1} and weights, and the random streams."""

    K: Array
    y: Array
    c: Array
    streams: Streams

    @cached_property
    def row(self) -> Index:
        """The row of every copy, where a row of weight c is c copies."""
        return np.repeat(np.arange(len(self.y)), self.c.astype(np.int64))


@dataclass(frozen=True)
class LengthScale:
    """A length scale with prior ``log length ~ N(log middle, spread^2)``; ``kernel`` gives the matrix for a length.

    Chains begin at ``start``, or in the middle.
    """

    kernel: Callable[[float], Array]
    middle: float
    spread: float = 0.5
    start: float | None = None

    @property
    def first(self) -> float:
        """Where chains begin."""
        return self.middle if self.start is None else self.start

    def log_prior(self, length: float) -> float:
        """Log density of the logarithm of the length, up to a constant."""
        return -0.5 * (math.log(length / self.middle) / self.spread) ** 2


class ActiveChain(NamedTuple):
    """Where one chain stands; the letters are those of ``jump_kernels``."""

    K: Array
    active: Index
    G: Array  # whitened basis with a row of ones on top
    R: Array
    L: Array  # factor of the precision that (u, alpha) was drawn with, and its linear term
    z: Array
    A: Array  # Gram matrix of the basis under the probit's weights, which never change
    s: Array  # probit latents, empty for losses whose latents do not outlive a sweep
    f: Array
    x: Array  # (u, alpha)
    eta: float
    g: float
    length: float
    step: float  # logarithm of the length scale's step
    loglik: float
    counts: Index  # proposed and accepted births, deaths, swaps


def jitter_of(K: Array) -> float:
    """What is added to the diagonal of K_aa."""
    return _JITTER * float(np.trace(K)) / len(K)


def factor(K: Array, index: Index) -> tuple[Array, Array]:
    """(G, R) of a set of active rows, from scratch."""
    k = len(index)
    G = np.ones((k + 1, len(K)))
    R: Array = K[np.ix_(index, index)]
    R.flat[:: k + 1] += jitter_of(K)
    if k:
        R = np.asarray(np.linalg.cholesky(R), dtype=np.float64)
        G[1:] = solve_triangular(R, K[index], lower=True)
    return G, R


def _posterior(A: Array, eta: float, g: float) -> Array:
    """Factor L of the precision of (u, alpha) from the Gram matrix of the basis."""
    A = A.copy()
    A.flat[:: len(A) + 1] += g
    A[0, 0] += eta - g
    return np.asarray(dpotrf(A, lower=1)[0])  # the smallest eigenvalue is at least g or eta: it always factors


def _gram(L: Array, eta: float, g: float) -> Array:
    """The way back."""
    A = L @ L.T
    A.flat[:: len(A) + 1] -= g
    A[0, 0] -= eta - g
    return A


def log_marginal(G: Array, w: Array, b: Array, eta: float, g: float) -> float:
    """Log density of the row messages given the basis, coefficients integrated out, up to a constant."""
    L = _posterior((G * w) @ G.T, eta, g)
    z = solve_triangular(L, G @ b, lower=True)
    return float(0.5 * (z @ z + math.log(eta) + (len(z) - 1) * math.log(g)) - np.log(L.diagonal()).sum())


def stretch(
    rng: np.random.Generator, model: KernelData, loss: Loss, prior: GPrior, u: float, shape: Array, g: float
) -> float:
    """Slice update of t in (alpha, g) -> (e^t alpha, e^-2t g), latents integrated out; ``f = u + shape``.

    The prior of alpha sqrt(g) drops out. Without this move g and the size of f creep along together.
    """
    if not isinstance(prior.shrinkage, tuple) or not shape.any():
        return 0.0

    def log_density(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        loglik = loss.loglik(model.y, model.c, u + math.exp(t) * shape)
        return float(loglik.sum()) + prior.log_g(math.log(g) - 2.0 * t)

    return slice_step(rng, log_density, 0.0, width=0.5)


@dataclass(frozen=True)
class ActiveGibbs:
    """Several chains over active sets, coefficients and precisions, one sweep of each per step.

    A sweep: (1) row latents, for the probit given each other with the coefficients integrated out, for other losses
    given the predictor; (2) the active set, with the coefficients integrated out, as they are for a learned length
    scale; (3) intercept and coefficients; (4) their precisions; (5) g and the coefficients stretched together, latents
    integrated out, after which the probit's latents are drawn afresh. The first two discard the coefficients, so step 3
    must come before anything uses them: the order printed in the paper, 1, 4, 3, 2, is not invariant.

    Parameters
    ----------
    loss : Loss
        Loss with draws.
    prior : GPrior
        Prior of expansions.
    max_active : int
        Largest number of active rows.
    moves : int
        Birth, death or swap proposals a sweep.
    collapsed : bool
        Whether latents are drawn with the coefficients integrated out, which the probit alone allows.
    informed : bool
        Whether births choose rows by their pull on the residual; a proposal then costs a pass over the kernel matrix.
    length : LengthScale or None
        Learn the length scale.
    warmup : int
        Sweeps during which the length scale's step adapts.
    rao_blackwell : bool
        Whether expansions come with the normal law that their coefficients were drawn from.
    chains : int
        Number of chains.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), section 3.2; Holmes and Held (2006), Bayesian Analysis 1, 145-168.
    """

    loss: Loss
    prior: GPrior
    max_active: int
    moves: int
    collapsed: bool = False
    informed: bool = False
    length: LengthScale | None = None
    warmup: int = 0
    rao_blackwell: bool = False
    chains: int = 1

    def init(self, model: Any) -> tuple[ActiveChain, ...]:
        """Start every chain from a few random active rows, with latents of the right sign."""
        return tuple(self._start(model, k) for k in range(self.chains))

    def _start(self, model: KernelData, chain: int) -> ActiveChain:
        rng = model.streams.at(Purpose.START, chain=chain)
        n = len(model.y)
        index = rng.permutation(n)[: int(rng.integers(1, min(self.max_active, 5) + 1))]
        eta, g = self.prior.start()
        G, R = factor(model.K, index)
        s = np.empty(0)
        if self.collapsed:
            check_whole_weights(self.loss, model.c)
            s = model.y[model.row] * np.abs(rng.standard_normal(len(model.row)))
        x, L = np.zeros(len(G)), np.eye(len(G))
        start = math.nan if self.length is None else self.length.first
        f, counts = np.zeros(n), np.zeros((3, 2), dtype=int)
        return ActiveChain(model.K, index, G, R, L, x, L, s, f, x, eta, g, start, -1.0, math.nan, counts)

    def step(self, model: Any, state: tuple[ActiveChain, ...], iteration: int) -> tuple[tuple[ActiveChain, ...], Info]:
        """One sweep of every chain."""
        state = tuple(self.sweep(model, chain, k, iteration) for k, chain in enumerate(state))
        return state, Info(float(np.mean([chain.loglik for chain in state])), math.inf)

    def sweep(self, model: KernelData, chain: ActiveChain, k: int, iteration: int) -> ActiveChain:
        """One sweep of chain number ``k``."""
        if iteration % _REBUILD == 0:
            G, R = factor(chain.K, chain.active)
            chain = chain._replace(G=G, R=R, A=(G * model.c) @ G.T)
        w: Array
        b: Array
        if self.collapsed:
            w, b = model.c, np.asarray(np.bincount(model.row, chain.s, minlength=len(model.y)), dtype=np.float64)
        else:
            rng = model.streams.at(Purpose.LATENT, chain=k, iteration=iteration)
            w, b = self.loss.draw(rng, model.y, model.c, chain.f)
        rng = model.streams.at(Purpose.MOVES, chain=k, iteration=iteration)
        if self.length is not None:
            chain = self._move_length(rng, self.length, chain, w, b, iteration)
        chain = self._advance(rng, model, chain, w, b)
        alpha = chain.x[1:]
        eta, g = self.prior.draw_eta(rng, float(chain.x[0])), self.prior.draw_g(rng, float(alpha @ alpha), len(alpha))
        u, shape = float(chain.x[0]), alpha @ chain.G[1:]
        t = stretch(rng, model, self.loss, self.prior, u, shape, g)
        f, x, s = u + math.exp(t) * shape, np.append(u, math.exp(t) * alpha), chain.s
        if self.collapsed:  # the stretch has integrated the latents out: new ones before anything uses them
            s = self.loss.draw(rng, model.y[model.row], np.ones(len(s)), f[model.row]).b
        loglik = float(self.loss.loglik(model.y, model.c, f).sum())
        return chain._replace(eta=eta, g=g * math.exp(-2.0 * t), x=x, f=f, s=s, loglik=loglik)

    def _move_length(
        self, rng: np.random.Generator, length: LengthScale, chain: ActiveChain, w: Array, b: Array, iteration: int
    ) -> ActiveChain:
        """A random walk of the logarithm of the length scale."""
        new = chain.length * math.exp(math.exp(chain.step) * rng.standard_normal())
        K = np.ascontiguousarray(length.kernel(new))
        G, R = factor(K, chain.active)
        ratio = log_marginal(G, w, b, chain.eta, chain.g) - log_marginal(chain.G, w, b, chain.eta, chain.g)
        ratio += length.log_prior(new) - length.log_prior(chain.length)
        step = chain.step
        if iteration < self.warmup:
            step += (math.exp(min(ratio, 0.0)) - _WANTED) / math.sqrt(iteration + 1.0)
        if math.log(1.0 - rng.random()) < ratio:
            chain = chain._replace(K=K, G=G, R=R, A=(G * w) @ G.T, length=new)
        return chain._replace(step=step)

    def _advance(
        self, rng: np.random.Generator, model: KernelData, chain: ActiveChain, w: Array, b: Array
    ) -> ActiveChain:
        """Probit latents, active set and coefficients, in one compiled pass over copies with room to grow."""
        k, n = len(chain.active), len(chain.K)
        room = min(self.max_active, k + self.moves) + 1  # a swap needs one place more
        index, counts, s = np.empty(room, dtype=np.int64), chain.counts.copy(), chain.s.copy()
        G, R, L = np.empty((room + 1, n)), np.zeros((room, room)), np.zeros((room + 1, room + 1))
        z, x = np.empty((2, room + 1))
        here = _posterior(chain.A if self.collapsed else (chain.G * w) @ chain.G.T, chain.eta, chain.g)
        index[:k], G[: k + 1], R[:k, :k], L[: k + 1, : k + 1] = chain.active, chain.G, chain.R, here
        V = np.ascontiguousarray(dtrsm(1.0, here, chain.G.T, side=1, lower=1, trans_a=1)) if self.collapsed else L
        row = model.row if self.collapsed else np.empty(0, dtype=np.int64)  # other losses carry a weight as it is
        rows = (chain.K, jitter_of(chain.K), model.y, row, V, s, w, b)
        options = (chain.g, self.prior.inclusion, self.max_active, self.moves, self.informed)
        k = advance(rng, room_for(n, room), *rows, *options, index, G, R, L, z, k, counts, x)
        if not (np.isfinite(x[: k + 1]).all() and np.isfinite(L[: k + 1, : k + 1]).all()):
            raise np.linalg.LinAlgError("the factors of the active rows were lost to rounding")
        G, L, z = G[: k + 1], L[: k + 1, : k + 1], z[: k + 1]
        A = _gram(L, chain.eta, chain.g) if self.collapsed else chain.A
        return chain._replace(active=index[:k], G=G, R=R[:k, :k], L=L, z=z, A=A, s=s, x=x[: k + 1], counts=counts)

    def expansion(self, chain: ActiveChain) -> Expansion:
        """The draw on the user's scale: ``beta = R^-T alpha``."""
        coef = solve_triangular(chain.R, chain.x[1:], lower=True, trans=1)
        if not self.rao_blackwell:
            return Expansion(float(chain.x[0]), chain.active, coef)
        root = solve_triangular(chain.L, np.eye(len(chain.z)), lower=True, trans=1)
        root[1:] = solve_triangular(chain.R, root[1:], lower=True, trans=1)
        mean = solve_triangular(chain.L, chain.z, lower=True, trans=1)
        mean[1:] = solve_triangular(chain.R, mean[1:], lower=True, trans=1)
        return Expansion(float(chain.x[0]), chain.active, coef, mean, root)

    def values(self, chain: ActiveChain) -> dict[str, float]:
        """What else was drawn."""
        length = {} if self.length is None else {"length": chain.length}
        return {"g": chain.g, "eta": chain.eta, "loglik": chain.loglik, **length}

    def accepted(self, state: tuple[ActiveChain, ...]) -> dict[str, float]:
        """Share of accepted births, deaths and swaps."""
        counts = np.sum([chain.counts for chain in state], axis=0)
        return {name: float(yes / max(tried, 1)) for name, (tried, yes) in zip(_KINDS, counts, strict=True)}
