"""Two orders of a Gibbs sweep for one coefficient under a Laplace prior with a learned scale, and the exact answer."""

from __future__ import annotations

import math

import numpy as np

ROWS = np.array([1.2, 0.7, -0.3, 0.9, -0.6, 0.4, 1.5, -0.8])  # y x of every row
SHAPE, RATE = 2.0, 2.0  # 1/nu ~ Gamma(SHAPE, RATE)


def exact_moments() -> np.ndarray:
    """Means of beta and of its absolute value, with all latents and the scale integrated out, on a grid."""
    grid = np.linspace(-40.0, 40.0, 800_001)
    log_density = -2.0 * np.maximum(1.0 - np.multiply.outer(ROWS, grid), 0.0).sum(axis=0)
    log_density -= (SHAPE + 1.0) * np.log(RATE + np.abs(grid))
    weight = np.exp(log_density - log_density.max())
    return np.array([weight @ grid, weight @ np.abs(grid)]) / weight.sum()


def _latents(rng: np.random.Generator, v: np.ndarray) -> np.ndarray:
    """Draws of GIG(1/2, 1, v^2) without cancellation, v = 0 included."""
    y = rng.standard_normal(v.shape) ** 2
    large = v + y / 2.0 + np.sqrt(v * y + y**2 / 4.0)
    return np.where(rng.random(v.shape) * (large + v) <= large, large, v**2 / large)


def lasso_chains(
    scale_first: bool, seed: int, chains: int = 4000, sweeps: int = 400, burn: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Means of beta and of its absolute value over parallel chains, and their standard errors.

    The scale is drawn with the local variance integrated out. That leaves the posterior invariant if the local variance
    is drawn next; drawn before, as printed, it belongs to another scale when beta is drawn.
    """
    rng = np.random.default_rng(seed)
    beta, scale = rng.standard_normal(chains), np.ones(chains)
    total = np.zeros((2, chains))
    for sweep in range(burn + sweeps):
        if scale_first:
            scale = 1.0 / rng.gamma(SHAPE + 1.0, 1.0 / (RATE + np.abs(beta)))
        local = _latents(rng, np.abs(beta) / scale)
        if not scale_first:
            scale = 1.0 / rng.gamma(SHAPE + 1.0, 1.0 / (RATE + np.abs(beta)))
        latent = _latents(rng, np.abs(1.0 - beta[:, None] * ROWS))
        precision = 1.0 / (scale**2 * local) + np.sum(ROWS**2 / latent, axis=1)
        mean = np.sum(ROWS * (1.0 + 1.0 / latent), axis=1) / precision
        beta = mean + rng.standard_normal(chains) / np.sqrt(precision)
        if sweep >= burn:
            total += np.stack([beta, np.abs(beta)])
    means = total / sweeps
    return means.mean(axis=1), means.std(axis=1, ddof=1) / math.sqrt(chains)
