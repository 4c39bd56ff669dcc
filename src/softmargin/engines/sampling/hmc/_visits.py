"""What trajectories do with the rows: one pass per step, for several chains at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.visits import One

__all__ = ["NARROW", "likelihoods", "slopes", "spread_of", "spreads"]

NARROW = 1e-10  # spread of a predictor, at least


def spreads(block: Any, small: None, kept: Any) -> Any:
    """Keep the sds of predictors whose variances were kept: the unit of smoothing."""
    return One(np.maximum(np.sqrt(kept.v), NARROW)), ()


def spread_of(block: Any, root: Any) -> Any:
    """Keep the sds of predictors under a root of the coefficients' covariance."""
    return One(np.maximum(np.sqrt(block.row_quad(root)), NARROW)), ()


def slopes(block: Any, small: tuple[Any, Array, float, bool], spread: One) -> Any:
    """Sum ``X'g`` of several chains, g the score of the loss averaged over ``f - width .. f + width``.

    With the log likelihoods at f where they are wanted.
    """
    loss, betas, kappa, wanted = small
    f, width = block.matvecs(betas), kappa * spread.f
    g = np.empty_like(f)
    for k, row in enumerate(f):
        above, below = (loss.loglik(block.y, block.weight, each) for each in (row + width, row - width))
        g[k] = (above - below) / (2.0 * width)
    return (block.rmatvecs(g), *(_likelihoods(block, loss, f) if wanted else ()))


def likelihoods(block: Any, small: tuple[Any, Array]) -> Any:
    """Sum the log likelihoods of several chains."""
    loss, betas = small
    return _likelihoods(block, loss, block.matvecs(betas))


def _likelihoods(block: Any, loss: Any, f: Array) -> tuple[Any]:
    return (block.sums(*(loss.loglik(block.y, block.weight, row) for row in f)),)
