"""Numbers about a posterior: whether chains agree, draws for ArviZ, and the two uncalibrated probabilities."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx, expit, log_ndtr, ndtr

from softmargin.designs.base import Array
from softmargin.execution.streams import Purpose, Streams
from softmargin.mixing import r_hat
from softmargin.posterior import DrawsPosterior, GaussianPosterior

__all__ = [
    "Sampled",
    "not_mixed",
    "predictive_probability",
    "pseudo_probability",
    "sampled",
    "sign_probability",
    "stacked",
    "to_arviz",
]

_BAD_R_HAT = 1.05
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'softmargin[arviz]'.") from error
    return arviz


def not_mixed(posteriors: Sequence[DrawsPosterior]) -> str:
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
    if hasattr(arviz, "InferenceData"):
        data = arviz.from_dict(**groups, coords=coords, dims=drawn.dims, posterior_attrs=attrs)
    else:  # ArviZ 1: groups in one dictionary
        data = arviz.from_dict(groups, coords=coords, dims=drawn.dims)
        data["posterior"].attrs.update(attrs)
    return data


def sign_probability(f: Array, v: Array) -> Array:
    """P(f > 0) for f ~ N(f, v): confidence in the sign, not a class probability."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p: Array = np.where(v > 0, ndtr(f / np.sqrt(v)), np.where(f > 0, 1.0, np.where(f < 0, 0.0, 0.5)))
    return p


def pseudo_probability(f: Array, v: Array, rate: float) -> Array:
    """``E sigmoid(c [max(1 + f, 0) - max(1 - f, 0)])``, c = 2 rate, under f ~ N(f, v).

    The middle |f| <= 1 by Gauss-Legendre, the two tails by the geometric series of the sigmoid, whose terms are
    Gaussian integrals; both without cancellation.
    """
    c, s = 2.0 * rate, np.sqrt(np.maximum(v, 1e-20))
    # nodes in units of the spread: a difference of predictors would lose digits where it is tiny
    lo, hi = np.maximum((-1.0 - f) / s, -9.0), np.minimum((1.0 - f) / s, 9.0)
    half = np.maximum(0.5 * (hi - lo), 0.0)
    z = 0.5 * (hi + lo)[:, None] + half[:, None] * _NODES
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    middle = half * ((expit(2.0 * c * (f[:, None] + s[:, None] * z)) * density) @ _WEIGHTS)
    tail = _tail if c > 0.2 else _smooth_tail
    upper = ndtr((f - 1.0) / s) - tail(f, s, c)
    p: Array = np.clip(middle + upper + tail(-f, s, c), 0.0, 1.0)
    return p


def predictive_probability(loss: Any, f: Array, v: Array, rate: float) -> Array:
    """``E L(1)/(L(1) + L(-1))`` under f ~ N(f, v) of a smooth loss weighted by ``rate``, by Gauss-Hermite."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(96)
    x = (f[:, None] + np.sqrt(v)[:, None] * nodes).ravel()
    c, one = np.full(len(x), rate), np.ones(len(x))
    share = expit(loss.loglik(one, c, x) - loss.loglik(-one, c, x)).reshape(len(f), -1)
    return np.asarray(share @ (weights / weights.sum()))


def _smooth_tail(m: Array, s: Array, c: float) -> Array:
    """The same as ``_tail`` by Gauss-Legendre: for small c the integrand is smooth and the series long."""
    lo = np.clip((1.0 - m) / s, -9.0, 9.0)
    half = 0.5 * (9.0 - lo)
    z = 0.5 * (9.0 + lo)[:, None] + half[:, None] * _NODES
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return half * ((expit(-c * (m[:, None] + s[:, None] * z + 1.0)) * density) @ _WEIGHTS)


def _tail(m: Array, s: Array, c: float) -> Array:
    """``E[ 1/(1 + e^(c (f + 1))) ; f > 1 ]`` for f ~ N(m, s^2), by its alternating series."""
    total = np.zeros_like(m)
    for j in range(1, max(2, math.ceil(37.0 / (2.0 * c))) + 1):
        z = (1.0 - m + j * c * s * s) / s
        with np.errstate(over="ignore", invalid="ignore"):
            near = math.exp(-2.0 * j * c) * np.exp(-0.5 * ((1.0 - m) / s) ** 2) * 0.5 * erfcx(z / math.sqrt(2.0))
            far = np.exp(-j * c * (m + 1.0) + 0.5 * (j * c * s) ** 2 + log_ndtr(-z))
        total += (-1.0) ** (j - 1) * np.where(z > 0, near, far)
    return total
