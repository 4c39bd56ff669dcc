"""Whether chains agree, and how many independent draws theirs are worth.

Vehtari, Gelman, Simpson, Carpenter, Buerkner (2021), Rank-normalization, folding, and localization: an improved R-hat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from softmargin.core.array import Array

__all__ = ["BLOCK", "mixing", "r_hat"]

BLOCK = 2**17  # draws of several variables that are looked at together: they and their copies stay in the cache
_SHORTEST = 4  # draws per chain below which nothing can be said
_CONSTANT = 1e-15  # range of normal scores below which draws are constant


def mixing(draws: Array) -> tuple[Array, Array]:
    """Effective sample size of the bulk, and split R-hat, each (...), of draws (chains, draws, ...); eqs. 10 and 14.

    Both by normal scores of half chains; R-hat also by those of distances from the median, whichever is larger. It is
    not a number for a single chain and for constant draws, and neither is one for fewer than four draws.
    """
    sizes, ratios = _by_block(lambda x, scores: (_bulk_size(scores), _largest_r_hat(x, scores)), draws, 2)
    return sizes, ratios if len(draws) > 1 else np.full_like(ratios, np.nan)


def r_hat(draws: Array) -> Array:
    """The second of them alone."""
    (ratios,) = _by_block(lambda x, scores: (_largest_r_hat(x, scores),), draws, 1)
    return ratios if len(draws) > 1 else np.full_like(ratios, np.nan)


def _by_block(of_block: Callable[[Array, Array], tuple[Array, ...]], draws: Array, count: int) -> Array:
    """Statistics of halves of chains (variables, halves, draws) and of their scores, some variables at a time."""
    chains, n = draws.shape[:2]
    columns = draws.reshape(chains, n, -1)
    found = np.full((count, columns.shape[-1]), np.nan)
    half, step = n // 2, max(1, BLOCK // (chains * n))
    for lo in range(0, columns.shape[-1] if n >= _SHORTEST else 0, step):
        part = np.ascontiguousarray(np.moveaxis(columns[..., lo : lo + step], 2, 0), dtype=np.float64)
        known = ~np.isnan(part).any(axis=(1, 2))
        halves = np.concatenate((part[known, :, :half], part[known, :, n - half :]), axis=1)
        found[:, lo : lo + step][:, known] = of_block(halves, _scores(halves))
    return found.reshape(count, *draws.shape[2:])


def _scores(x: Array) -> Array:
    """Normal scores of the ranks of each variable's draws, equal draws at the middle of their ranks; eq. 14."""
    flat = x.reshape(len(x), -1)
    n = flat.shape[1]
    order = np.argsort(flat, axis=1)
    rising = np.ones((len(x), n + 1), dtype=bool)
    sorted_ = np.take_along_axis(flat, order, axis=1)
    np.not_equal(sorted_[:, 1:], sorted_[:, :-1], out=rising[:, 1:-1])
    first = last = np.broadcast_to(np.arange(1, n + 1), flat.shape)
    if not rising.all():
        first = np.maximum.accumulate(np.where(rising[:, :-1], first, 0), axis=1)
        last = np.minimum.accumulate(np.where(rising[:, 1:], last, n)[:, ::-1], axis=1)[:, ::-1]
    by_rank = ndtri((0.5 * np.arange(2, 2 * n + 1) - 0.375) / (n + 0.25))  # ranks 1, 3/2, 2, ...
    scores = np.empty_like(flat)
    np.put_along_axis(scores, order, by_rank[first + last - 2], axis=1)
    return scores.reshape(x.shape)


def _largest_r_hat(x: Array, scores: Array) -> Array:
    bulk = _ratio(scores)
    tail = _ratio(_scores(np.abs(x - np.median(x, axis=(1, 2), keepdims=True))))
    return np.where(tail > bulk, tail, bulk)  # of two values that lie symmetrically the distances are constant


def _ratio(x: Array) -> Array:
    """Root of the variance of all chains over that within; eqs. 1 to 4."""
    n = x.shape[2]
    between, within = n * x.mean(axis=2).var(axis=1, ddof=1), x.var(axis=2, ddof=1).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((between / within + n - 1) / n))


def _bulk_size(x: Array) -> Array:
    total = x.shape[1] * x.shape[2]
    size = np.full(len(x), float(total))
    varies = np.ptp(x.reshape(len(x), -1), axis=1) >= _CONSTANT
    rho = _autocorrelation(x[varies])
    size[varies] = total / np.maximum(_correlation_time(rho), 1.0 / np.log10(total))
    return size


def _autocorrelation(x: Array) -> Array:
    """Autocorrelations (variables, lags) of all chains together; eq. 10."""
    n = x.shape[2]
    mean = x.mean(axis=2)
    length = next_fast_len(2 * n, real=True)  # zeros behind a chain keep its ends apart
    spectrum: Any = rfft(x - mean[..., None], length, axis=2)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=1)
    covariance = irfft(power, length, axis=1)[:, :n] / n
    variance = covariance[:, :1] + mean.var(axis=1, ddof=1)[:, None]
    rho: Array = 1.0 - (covariance[:, :1] * (n / (n - 1)) - covariance) / variance
    rho[:, 0] = 1.0
    return rho


def _correlation_time(rho: Array) -> Array:
    """Geyer's initial monotone sequence: pairs of lags up to the first whose sum is not positive, none increasing."""
    count = max((rho.shape[1] - 1) // 2, 1)
    pairs = rho[:, : 2 * count].reshape(len(rho), count, 2).sum(axis=2)
    ends = ~(pairs > 0.0)
    last = np.where(ends.any(axis=1), ends.argmax(axis=1), count - 1)
    sums = np.column_stack((np.zeros(len(rho)), np.minimum.accumulate(pairs, axis=1).cumsum(axis=1)))
    at = np.arange(len(rho))
    even = rho[at, 2 * last]  # the first half of the last pair still helps
    even = np.where((even > 0.0) | (pairs[at, last] >= 0.0), even, 0.0)
    return np.asarray(-1.0 + 2.0 * sums[at, last] + even)
