"""Steps of the spike-and-slab sampler inside one model, and the plain scan over models given the latents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.model import Model
from softmargin.engines.selection._line_compiled import loss_at
from softmargin.engines.selection._scan_compiled import scan
from softmargin.engines.selection._state import Rows, SelectionChain, energies
from softmargin.priors.spike_slab import BoundSpikeSlab
from softmargin.rows.in_memory import Cell
from softmargin.rows.streams import Purpose
from softmargin.rows.variates import slice_step
from softmargin.solvers.gaussian import Gaussian

__all__ = ["coefficients", "interweave", "plain_scan", "scale_move"]

_FAR = 50.0  # no single move changes a scale by more than e^50


def scale_move(
    rng: np.random.Generator, rows: Rows, prior: Any, beta: Array, f: Array, scale: float, gamma: Flags
) -> tuple[Array, Array]:
    """Slice update of g in beta -> g beta, all active coefficients scaled: log target + (their number) log g."""
    if not beta.any():
        return beta, f
    d, signed = int(gamma.sum()), rows.moved(f)
    half = 0.5 * float(prior.slab_precision(scale) @ (beta * beta))

    def log_density(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        g = math.exp(t)
        return -loss_at(rows.slope, signed, g) - half * g * g + d * t

    g = math.exp(slice_step(rng, log_density, 0.0, width=1.0 / math.sqrt(d)))
    return g * beta, g * f


def interweave(
    rng: np.random.Generator, rows: Rows, prior: Any, beta: Array, f: Array, scale: float, chain: SelectionChain
) -> tuple[Array, Array, float]:
    """Slice update of g in (scale, beta) -> (g scale, g beta): the prior of the slab drops out, the free ones move."""
    log_hyper: Callable[[float], float] | None = prior.stretch(chain.prior)
    if log_hyper is None or not beta.any():
        return beta, f, scale
    free, signed = prior.free, rows.moved(f)
    n_free, half = int(free.sum()), 0.5 * float(np.sum(prior.flat * beta[free] ** 2))

    def log_density(t: float) -> float:
        if abs(t) > _FAR:
            return -math.inf
        return -loss_at(rows.slope, signed, math.exp(t)) + log_hyper(t) + n_free * t - half * math.exp(2.0 * t)

    g = math.exp(slice_step(rng, log_density, 0.0, width=0.5))
    return g * beta, g * f, g * scale


def _latents(model: Model, f: Array, k: int, iteration: int, turn: int) -> tuple[Array, Array]:
    """Row messages given the linear predictors, cell by cell."""
    w, b = np.empty(len(f)), np.empty(len(f))

    def one(cell: Cell) -> None:
        at = slice(cell.lo, cell.hi)
        rng = model.streams.at(Purpose.LATENT, chain=k, iteration=iteration, cell=cell.number + (turn << 40))
        w[at], b[at] = model.loss.draw(rng, model.y[at], model.c[at], f[at])

    model.blocks.map(one)
    return w, b


def coefficients(
    model: Model, chain: SelectionChain, rows: Rows, scale: float, pi: float, k: int, iteration: int, all_odds: bool,
    turn: int = 0,
) -> SelectionChain:  # fmt: skip
    """Step 5; with ``all_odds`` also the inclusion probability of every coefficient given the latents."""
    prior: BoundSpikeSlab = model.prior  # type: ignore[assignment]
    n, messages = len(chain.f), np.zeros((2, len(rows.slope)))  # a row's message goes to its first hinge
    messages[:, :n] = _latents(model, chain.f, k, iteration, turn)
    w, b = messages[0] * rows.inverse**2, messages[1] * rows.inverse
    index = np.flatnonzero(chain.gamma)
    beta, mean, inclusion = np.zeros(model.size), np.zeros(model.size), chain.inclusion
    f, active, q = np.zeros(len(model.y)), rows.Z[index], None
    if len(index):
        half = active * np.sqrt(w)
        A = half @ half.T
        A.flat[:: len(index) + 1] += prior.slab_precision(scale)[index]
        q = Gaussian.from_precision(A, active @ b)
        beta[index] = q.draw(model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration, cell=turn))
        mean[index] = q.mean
        f = model.blocks.matvec(beta)
    if all_odds:
        inclusion = _inclusions(rows, w, b, index, active, q, prior, scale, pi)
    loglik = float(model.loss.loglik(model.y, model.c, f).sum())
    return chain._replace(
        beta=beta, f=f, mean=mean, loglik=loglik, inclusion=inclusion, prior=prior.state(scale, pi, chain.gamma)
    )


def _inclusions(
    rows: Rows, w: Array, b: Array, index: Any, active: Array, q: Gaussian | None, prior: BoundSpikeSlab, scale: float,
    pi: float,
) -> Array:  # fmt: skip
    """P(gamma_j = 1 | other indicators, latents) of every j, in one pass over the columns; q is None if none is in."""
    d = prior.slab_precision(scale)
    s, r = np.empty(len(d)), rows.Z @ b
    energies(rows.Z, w, s)
    s += d
    if q is not None:
        block = (active * w) @ rows.Z.T  # (active, p): X_A' W X
        r -= q.mean @ block
        s -= np.einsum("kj,kj->j", block, q.root @ (q.root.T @ block))
        s[index] = 1.0 / q.var
        r[index] = q.mean * s[index]
    s = np.maximum(s, 0.5 * d)
    odds = math.log(pi) - math.log1p(-pi) + 0.5 * np.log(d / s) + 0.5 * r * r / s
    inclusion: Array = np.where(prior.always, 1.0, 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(odds, -700.0), 700.0))))
    return inclusion


def plain_scan(
    model: Model, chain: SelectionChain, rng: np.random.Generator, scale: float, pi: float, k: int, iteration: int
) -> SelectionChain:
    """Latents given beta, indicators given latents with beta integrated out, beta given both."""
    prior: BoundSpikeSlab = model.prior  # type: ignore[assignment]
    p = model.size
    w, b = _latents(model, chain.f, k, iteration, 0)
    d = prior.slab_precision(scale)
    M = np.zeros((p + 1, p + 1))
    A, r = model.blocks.gram(w, b)
    A.flat[:: p + 1] += d
    M[:p, :p], M[:p, p], M[p, :p] = A, r, r
    gamma, inclusion = chain.gamma.copy(), np.ones(p)
    order = rng.permutation(np.flatnonzero(~prior.always))
    logit = np.full(p, math.log(pi) - math.log1p(-pi))
    changed = scan(M, d, logit, order, rng.random(len(order)), gamma, inclusion)
    index = np.flatnonzero(gamma)
    beta, mean = np.zeros(p), np.zeros(p)
    if len(index):
        q = Gaussian.from_precision(A[np.ix_(index, index)], r[index])
        beta[index] = q.draw(model.streams.at(Purpose.COEFFICIENTS, chain=k, iteration=iteration))
        mean[index] = q.mean
    f = model.blocks.matvec(beta)
    counts = chain.tally.flips + np.array([len(order), len(order), changed])
    return chain._replace(
        beta=beta,
        f=f,
        prior=prior.state(scale, pi, gamma),
        mean=mean,
        loglik=float(model.loss.loglik(model.y, model.c, f).sum()),
        gamma=gamma,
        inclusion=inclusion,
        tally=chain.tally._replace(flips=counts),
    )
