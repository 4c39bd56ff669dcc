"""What a fitted model says of the rows of its fit, draw by draw: their log likelihood, and responses like theirs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from softmargin.core.array import Array
from softmargin.designs.classes import Pairs
from softmargin.inference.choices import tilted
from softmargin.losses.crammer_singer import CrammerSinger
from softmargin.models.classes.crammer_singer import CrammerSingerFit
from softmargin.models.classes.pairwise import Pairwise
from softmargin.models.classes.scores import SumToZeroFit
from softmargin.models.two_class import Binary
from softmargin.posterior.diagnostics import Sampled

__all__ = ["GivenRows", "Pointwise", "of_labels", "of_responses"]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_LOG_WEIGHTS = np.log(_WEIGHTS / _WEIGHTS.sum())
_PAIRS = "pseudo: the sum over the pairs of a row's class"
_POINTS = 4000  # errors between which a distribution function is interpolated


class GivenRows(NamedTuple):
    """Rows of a fit: predictors as the fitted model takes them, their response, and how each row counts."""

    X: Any
    y: Any  # numbers of the classes, or numbers
    weight: Array
    place: Any  # of the rows in the data


class Pointwise(NamedTuple):
    """Log likelihood and replicates (chain, draw, row), and what kind of likelihood it is."""

    log_likelihood: Array
    replicates: Array
    kind: str


def _by_draw(one: Callable[[Any, Array], Array], f: Array, spread: Array | None) -> Array:
    """``one(rows, predictors)`` of every draw, averaged over what missing entries add to the predictors."""
    flat = f.reshape(-1, *f.shape[2:])
    out = np.stack([one(slice(None), each) for each in flat])
    if spread is not None:
        sd = np.sqrt(spread.reshape(flat.shape))
        open_rows = np.flatnonzero(sd.max(axis=0) > 0.0)
        for draw, (mean, step) in enumerate(zip(flat[:, open_rows], sd[:, open_rows], strict=True)):
            each = [one(open_rows, mean + node * step) for node in _NODES]
            out[draw, open_rows] = logsumexp(np.stack(each) + _LOG_WEIGHTS[:, None], axis=0)
    return out.reshape(*f.shape[:2], -1)


def of_labels(model: Any, drawn: Sampled, rows: GivenRows, rng: np.random.Generator) -> Pointwise:
    """Of a model of classes; a pseudo-likelihood enters as it does in the posterior that is reported."""
    assert drawn.f is not None
    if isinstance(model, Binary):
        values, kind = _two_classes(model, drawn.f, drawn.spread, rows.y, rows.weight)
        if model.loss.normalised:
            return Pointwise(values, _signs(model.loss, drawn, rng), kind)
    elif isinstance(model, Pairwise):
        values, kind = _pairs(model, drawn, rows), _PAIRS
    else:
        drawn_entries = "" if model.reader.law is None else ", at one draw of the missing entries per draw"
        values, kind = _scores(model, drawn.f, rows), f"pseudo: the classes' hinges{drawn_entries}"
    upto = np.cumsum(model.probability(rows.X, "calibrated"), axis=1)
    u = rng.random((*drawn.f.shape[:2], len(upto)))
    labels = (u[..., None] > upto[:, :-1]).sum(axis=-1).astype(np.int16)
    return Pointwise(values, labels, kind)


def _two_classes(model: Binary, f: Array, spread: Array | None, label: Any, weight: Array) -> tuple[Array, str]:
    """Its weights are those of the rate whose spread is reported."""
    loss, sign = model.loss, np.where(label == 1, 1.0, -1.0)
    c = model.learning_rate / model.stretch**2 * weight
    if model.chosen is not None and model.chosen.candidate.tilt:
        c = c * tilted(label, weight)

    def one(at: Any, values: Array) -> Array:
        return np.asarray(loss.loglik(sign[at], c[at], np.ascontiguousarray(values)))

    genuine = loss.normalised and bool((c == 1.0).all())
    return _by_draw(one, f, spread), "likelihood" if genuine else f"pseudo: {type(loss).__name__}"


def _signs(loss: Any, drawn: Sampled, rng: np.random.Generator) -> Array:
    """Labels that a genuine likelihood draws at every draw of the predictors."""
    f: Any = drawn.f
    if drawn.spread is not None:
        f = f + np.sqrt(drawn.spread) * rng.standard_normal(f.shape)
    one = np.ones(f.size)
    p = np.exp(np.asarray(loss.loglik(one, one, np.ascontiguousarray(f.ravel())))).reshape(f.shape)
    return (rng.random(f.shape) < p).astype(np.int16)


def _pairs(model: Pairwise, drawn: Sampled, rows: GivenRows) -> Array:
    """A row is in the models of all pairs of its class, and in no other."""
    f: Any = drawn.f
    out = np.zeros(f.shape[:3])
    for number, (i, j) in enumerate(combinations(range(model.k), 2)):
        at = np.flatnonzero((rows.y == i) | (rows.y == j))
        spread = None if drawn.spread is None else drawn.spread[:, :, at, number]
        label = (rows.y[at] == j).astype(np.intp)
        out[:, :, at] += _two_classes(model.pairs[number], f[:, :, at, number], spread, label, rows.weight[at])[0]
    return out


def _scores(model: SumToZeroFit, f: Array, rows: GivenRows) -> Array:
    """Of scores of all classes."""
    rate = model.learning_rate / model.stretch**2
    weight = rate * rows.weight
    if model.chosen is not None and model.chosen.candidate.tilt:
        weight = weight * tilted(rows.y, rows.weight)
    flat = f.reshape(-1, *f.shape[2:])
    if isinstance(model, CrammerSingerFit):
        each = [CrammerSinger().loglik(rows.y, weight, scores) for scores in flat]
    else:
        pairs = Pairs.of(rows.y, weight, model.costs, model.k, model.own)

        def one(scores: Array) -> Array:
            values = model.loss.loglik(pairs.sign.ravel(), pairs.weight.ravel(), (pairs.grow * scores.T).ravel())
            return np.where(pairs.weight > 0.0, np.asarray(values).reshape(model.k, -1), 0.0).sum(axis=0)

        each = [one(scores) for scores in flat]
    return np.stack(each).reshape(*f.shape[:2], -1)


def of_responses(model: Any, drawn: Sampled, rows: GivenRows, rng: np.random.Generator) -> Pointwise:
    """Of a regression."""
    assert drawn.f is not None
    shape, spread = drawn.f.shape[:2], model.units.spread
    levels, losses = _noise(model, drawn)
    values, replicates = np.empty((2, *drawn.f.shape))
    y, f = rows.y / spread, drawn.f / spread
    missing = None if drawn.spread is None else drawn.spread / spread**2
    for chain, draw in np.ndindex(shape):
        loss, level = losses[chain, draw], float(levels[chain, draw])
        kappa, here = level**-loss.noise_power, (slice(chain, chain + 1), slice(draw, draw + 1))

        def one(at: Any, mean: Array, loss: Any = loss, kappa: float = kappa) -> Array:
            inside = loss.loglik(y[at], kappa * rows.weight[at], np.ascontiguousarray(mean))
            return np.asarray(inside - rows.weight[at] * (loss.log_normalizer(kappa) + np.log(spread)))

        values[here] = _by_draw(one, f[here], None if missing is None else missing[here])
        error = _errors(loss, kappa, rng.random(f.shape[2]))
        if missing is not None:
            error += np.sqrt(missing[chain, draw]) * rng.standard_normal(f.shape[2])
        replicates[chain, draw] = spread * (f[chain, draw] + error)
    return Pointwise(values, replicates, "likelihood")


def _noise(model: Any, drawn: Sampled) -> tuple[Array, Any]:
    """Noise levels (chain, draw) in units of the model's response, and the loss that goes with each."""
    loss, spread = model.fit.held.losses[0], model.units.spread
    levels = drawn.variables["noise"] / spread
    losses = np.full(levels.shape, loss, dtype=object)
    if "epsilon" in drawn.variables:
        for at, band in np.ndenumerate(drawn.variables["epsilon"] / spread):
            losses[at] = loss.with_band(float(band))
    return levels, losses


def _errors(loss: Any, kappa: float, u: Array) -> Array:
    """Errors at given probabilities, interpolated between points of their distribution function."""
    low, high = -1.0, 1.0
    while float(loss.noise_cdf(np.array([low]), kappa)[0]) > 1e-9:
        low *= 2.0
    while float(loss.noise_cdf(np.array([high]), kappa)[0]) < 1.0 - 1e-9:
        high *= 2.0
    points = np.linspace(low, high, _POINTS)
    return np.interp(u, loss.noise_cdf(points, kappa), points)
