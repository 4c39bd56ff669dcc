"""All that was sampled as ArviZ InferenceData."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.posterior.diagnostics import Sampled

__all__ = ["RowGroups", "to_arviz"]


class RowGroups(NamedTuple):
    """What is said of the rows of a fit: (chain, draw, row) of each, and what they are."""

    log_likelihood: Array
    replicates: Array  # of the response
    observed: Any
    constant: dict[str, Any]  # what rows come with
    coords: dict[str, Any]
    attrs: dict[str, Any]  # of the log likelihood


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'softmargin[arviz]'.") from error
    return arviz


def to_arviz(drawn: Sampled, names: list[str], inference: str, rows: RowGroups | None = None, every: int = 1) -> Any:
    """InferenceData of what was sampled, marked as an approximation where it is one."""
    arviz = _arviz()
    attrs = {"inference_library": "softmargin", "inference": inference, "approximation": int(drawn.approximate)}
    attrs |= {"thinned": every} if every > 1 else {}
    groups: dict[str, dict[str, Any]] = {"posterior": drawn.variables}
    coords, dims = {"feature": names, **drawn.coords}, dict(drawn.dims)
    stats = dict(drawn.stats)
    if rows is not None:
        stats.setdefault("loglik", rows.log_likelihood.sum(axis=2))
        groups |= {"log_likelihood": {"y": rows.log_likelihood}, "posterior_predictive": {"y": rows.replicates}}
        groups |= {"observed_data": {"y": rows.observed}, "constant_data": rows.constant}
        coords |= rows.coords
        dims |= {"y": ["row"]} | {name: _dims_of(name, value) for name, value in rows.constant.items()}
    groups |= {"sample_stats": stats} if stats else {}
    if int(arviz.__version__.split(".")[0]) < 1:
        data = arviz.from_dict(**groups, coords=coords, dims=dims)
    else:  # ArviZ 1: groups in one dictionary
        data = arviz.from_dict(groups, coords=coords, dims=dims)
    for name in groups:
        data[name].attrs.update(attrs | (rows.attrs if rows is not None and name == "log_likelihood" else {}))
    return data


def _dims_of(name: str, value: Any) -> list[str]:
    """The dimensions of what rows come with."""
    return ["class"] if name == "classes" else ["row", "feature"][: np.ndim(value)]
