"""Numbers about a posterior: whether chains agree, and draws for ArviZ."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior
from softmargin.posterior.mixing import r_hat
from softmargin.rows.streams import Purpose, Streams

__all__ = [
    "Sampled",
    "not_mixed",
    "sampled",
    "stacked",
    "to_arviz",
]

_BAD_R_HAT = 1.05


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'softmargin[arviz]'.") from error
    return arviz


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


class Sampled(NamedTuple):
    """Draws (chain, draw, ...) by name, statistics of the chains, and what their further dimensions are."""

    variables: dict[str, Array]
    stats: dict[str, Array]
    dims: dict[str, list[str]]
    coords: dict[str, list[Any]]
    approximate: bool


def sampled(posterior: GaussianPosterior, draws: int, streams: Streams) -> Sampled:
    """Coefficients on the user's scale, the prior scale and what else was sampled; of an approximation, ``draws``."""
    recorded, stats = {}, {}
    if isinstance(posterior, DrawsPosterior):
        beta, scale, recorded = posterior.all_coefficients(), posterior.scale, posterior.recorded
        stats = {"loglik": posterior.loglik}
    else:
        rng = streams.at(Purpose.PREDICT)
        beta = posterior.coefficient_draws(rng, draws)[None]
        scale = posterior.scale_draws(rng, draws)[None]
    coef, intercept = posterior.columns.to_user(beta)
    variables = {"coef": coef, "intercept": intercept, "scale": scale, **recorded}
    return Sampled(variables, stats, {"coef": ["feature"]}, {}, not stats)


def stacked(parts: Sequence[Sampled], dimension: str, labels: list[str]) -> Sampled:
    """Several of them with one more dimension, the first after the draws."""

    def together(tables: list[dict[str, Array]]) -> dict[str, Array]:
        return {name: np.stack([table[name] for table in tables], axis=2) for name in tables[0]}

    first = parts[0]
    names = (*first.variables, *first.stats)
    dims = {name: [dimension, *first.dims.get(name, [])] for name in names}
    variables, stats = together([part.variables for part in parts]), together([part.stats for part in parts])
    return Sampled(variables, stats, dims, {dimension: labels}, first.approximate)


def to_arviz(drawn: Sampled, names: list[str], inference: str) -> Any:
    """InferenceData of what was sampled, marked as an approximation where it is one."""
    arviz = _arviz()
    coords = {"feature": names, **drawn.coords}
    attrs = {"inference_library": "softmargin", "inference": inference, "approximation": int(drawn.approximate)}
    groups = {"posterior": drawn.variables} | ({"sample_stats": drawn.stats} if drawn.stats else {})
    if int(arviz.__version__.split(".")[0]) < 1:
        data = arviz.from_dict(**groups, coords=coords, dims=drawn.dims, posterior_attrs=attrs)
    else:  # ArviZ 1: groups in one dictionary
        data = arviz.from_dict(groups, coords=coords, dims=drawn.dims)
        data["posterior"].attrs.update(attrs)
    return data
