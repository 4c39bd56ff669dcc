"""Draws of many coefficients, some columns at a time: all of them at once need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.standardize import Columns
from softmargin.posterior.mixing import mixing

__all__ = ["CoefficientDraws"]

BLOCK = 2**20  # draws of several coefficients at a time: their copies stay below some 100 MB


class CoefficientDraws(NamedTuple):
    """Coefficients ``beta = basis z + remainder`` from draws z (chains, draws, ..., r) of the working coordinates.

    The remainder, which no row sees, is normal noise times the prior scale outside of the basis. It is drawn when it
    is needed, each slice of columns from its own stream, and sums to zero over classes, the dimension before the last.
    """

    columns: Columns
    basis: Array | None
    z: Array
    scale: Array  # (chains, draws)

    def model_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Slices of the model's coefficients, and their draws (chains, draws, ..., width)."""
        lead = int(self.columns.intercept)
        if lead:
            yield slice(0, 1), self.z[..., :1]
        z = self.z[..., lead:]
        if self.basis is None:
            for at in self._slices():
                yield slice(lead + at.start, lead + at.stop), z[..., at]
            return
        scale = self.scale.reshape(*self.scale.shape, *[1] * (z.ndim - 2))
        inside: Any = sum(self._noise(at) @ self.basis[at] for at in self._slices())
        z = z - scale * inside
        for at in self._slices():
            yield slice(lead + at.start, lead + at.stop), z @ self.basis[at].T + scale * self._noise(at)

    def model(self) -> Array:
        """All of them, (chains, draws, ..., q), with those of terms behind the columns' where there are any."""
        return self.z if self.basis is None else np.concatenate([part for _, part in self.model_blocks()], axis=-1)

    def user_blocks(self) -> Iterator[tuple[Any, Array]]:
        """Places of coefficients in the user's table, the intercept first, and their draws in the units of the data.

        Columns that are not in the model come together, with one draw of zero for all.
        """
        columns, lead = self.columns, int(self.columns.intercept)
        intercept = np.zeros(self.z.shape[:-1])
        for at, beta in self.model_blocks():
            if at.stop <= lead:
                intercept += beta[..., 0]
                continue
            own = slice(at.start - lead, at.stop - lead)
            slopes = beta * columns.scale[own]
            intercept -= slopes @ columns.shift[own]
            yield 1 + columns.keep[own], slopes
        yield np.zeros(1, dtype=np.intp), intercept[..., None]
        dropped = np.setdiff1d(np.arange(columns.n_features), columns.keep)
        if len(dropped):
            yield 1 + dropped, np.zeros((*self.z.shape[:-1], 1))

    def spread(self, level: float) -> dict[str, Array]:
        """Standard deviation, interval and P(> 0 given that it is not zero), each (..., 1 + columns of the data)."""
        tail = 0.5 * (1.0 - level)
        found = {name: self._empty() for name in ("sd", "lower", "upper", "prob_positive")}
        for at, draws in self.user_blocks():
            flat = np.ascontiguousarray(np.moveaxis(draws.reshape(-1, *draws.shape[2:]), 0, -1))
            lower, upper = np.quantile(flat, (tail, 1.0 - tail), axis=-1)
            used = (flat != 0.0).sum(axis=-1)
            found["sd"][..., at] = flat.std(axis=-1, ddof=1)
            found["lower"][..., at], found["upper"][..., at] = lower, upper
            # one half where it always is zero
            found["prob_positive"][..., at] = np.where(used > 0, (flat > 0).sum(axis=-1) / np.maximum(used, 1), 0.5)
        return found

    def mixing(self) -> dict[str, Array]:
        """Effective sample size and split R-hat, each (..., 1 + columns of the data)."""
        found = {name: self._empty() for name in ("ess", "r_hat")}
        for at, draws in self.user_blocks():
            found["ess"][..., at], found["r_hat"][..., at] = mixing(draws)
        return found

    def _empty(self) -> Array:
        return np.empty((*self.z.shape[2:-1], 1 + self.columns.n_features))

    def _slices(self) -> Iterator[slice]:
        """Of the model's slopes."""
        size, width = len(self.columns.keep), max(1, BLOCK // int(np.prod(self.z.shape[:-1])))
        return (slice(lo, min(lo + width, size)) for lo in range(0, size, width))

    def _noise(self, at: slice) -> Array:
        """Standard normal draws (chains, draws, ..., width) for some columns; over classes they sum to zero."""
        rng = np.random.Generator(np.random.Philox(0).jumped(at.start))
        noise = rng.standard_normal((*self.z.shape[:-1], at.stop - at.start))
        return noise - noise.mean(axis=-2, keepdims=True) if noise.ndim > 3 else noise
