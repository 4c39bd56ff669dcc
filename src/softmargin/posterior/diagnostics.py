"""Numbers about a posterior: whether chains agree, and all that was sampled by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.standardize import Columns
from softmargin.posterior.mixing import r_hat
from softmargin.rows.streams import Purpose, Streams

__all__ = ["Sampled", "Wanted", "drawn_from", "not_mixed", "sampled", "stacked"]

_BAD_R_HAT = 1.05


def not_mixed(posteriors: Sequence[Any]) -> str:
    """One sentence with the worst R-hat where chains disagree; nothing otherwise."""
    worst = max((float(np.nanmax(r_hat(each.draws), initial=0.0)) for each in posteriors), default=0.0)
    if worst <= _BAD_R_HAT:
        return ""
    return (
        f"the chains disagree: the largest R-hat is {_shown_above(worst, _BAD_R_HAT)} (wanted: at most {_BAD_R_HAT}); "
        "raise draws and warmup."
    )


def _shown_above(value: float, limit: float) -> str:
    """A number above the limit in three digits, or in as many as it takes to see that."""
    return next(text for digits in range(3, 18) if float(text := f"{value:.{digits}g}") > limit)


class Wanted(NamedTuple):
    """Which draws are wanted: ``draws`` of an approximation, or every ``every``-th that a sampler kept.

    With ``rows``, as a fitted model takes them, the draws of their predictors are wanted too.
    """

    draws: int
    every: int = 1
    rows: Any = None


class Sampled(NamedTuple):
    """Draws (chain, draw, ...) by name, statistics of the chains, and what their further dimensions are."""

    variables: dict[str, Array]
    stats: dict[str, Array]
    dims: dict[str, list[str]]
    coords: dict[str, list[Any]]
    approximate: bool
    f: Array | None = None  # predictors (chain, draw, row, ...) of the rows that were given
    spread: Array | None = None  # and their variance, where entries are missing


def drawn_from(posterior: Any, wanted: Wanted, streams: Streams) -> tuple[Array, Array, dict[str, Array]]:
    """Coefficients and scales (chain, draw, ...) of the model, and what else was sampled."""
    if posterior.chain_shape is not None:
        return posterior.all_coefficients(), posterior.scale, posterior.recorded
    beta, scale = posterior.joint_draws(streams.at(Purpose.PREDICT), wanted.draws)
    return beta[None], scale[None], {}


def sampled(columns: Columns, posterior: Any, beta: Array, scale: Array, recorded: dict[str, Array]) -> Sampled:
    """Coefficients on the user's scale, the prior scale and what else was sampled."""
    stats = {} if posterior.chain_shape is None else {"loglik": posterior.loglik}
    coef, intercept = columns.to_user(beta)
    variables = {"coef": coef, "intercept": intercept, "scale": scale, **recorded}
    return Sampled(variables, stats, {"coef": ["feature"]}, {}, not stats)


def stacked(parts: Sequence[Sampled], dimension: str, labels: list[str]) -> Sampled:
    """Several of them with one more dimension, the first after the draws; NaN for labels that one does not have."""
    coords: dict[str, list[Any]] = {}
    for part in parts:
        for name, values in part.coords.items():
            coords[name] = list(dict.fromkeys([*coords.get(name, []), *values]))

    def widened(part: Sampled, name: str, values: Array) -> Array:
        for axis, dim in enumerate(part.dims.get(name, []), start=2):
            if dim in coords and part.coords[dim] != coords[dim]:
                at, places = np.array([coords[dim].index(label) for label in part.coords[dim]]), values
                values = np.full((*places.shape[:axis], len(coords[dim]), *places.shape[axis + 1 :]), np.nan)
                np.moveaxis(values, axis, 0)[at] = np.moveaxis(places, axis, 0)
        return values

    def together(tables: list[dict[str, Array]]) -> dict[str, Array]:
        made: dict[str, list[Array | None]] = {}
        for number, (part, table) in enumerate(zip(parts, tables, strict=True)):
            for name, values in table.items():
                made.setdefault(name, [None] * len(parts))[number] = widened(part, name, values)
        return {name: np.stack(_filled(values), axis=2) for name, values in made.items()}

    dims = {name: [dimension, *part.dims.get(name, [])] for part in parts for name in (*part.variables, *part.stats)}
    variables, stats = together([part.variables for part in parts]), together([part.stats for part in parts])
    return Sampled(variables, stats, dims, {**coords, dimension: labels}, parts[0].approximate)


def _filled(values: list[Array | None]) -> list[Array]:
    """NaN where one of them has nothing of the name."""
    like = next(value for value in values if value is not None)
    return [np.full(like.shape, np.nan) if value is None else value for value in values]
