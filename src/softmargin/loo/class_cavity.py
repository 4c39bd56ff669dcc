"""Joint leave-one-out moments of the class scores: an observation takes all its pairs with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.loss import AnyMessage
from softmargin.core.model import Model
from softmargin.core.space import Normal
from softmargin.designs.classes import ClassDesign
from softmargin.engines.mode.active_set import ActiveSet
from softmargin.loo.cavity import scale_groups
from softmargin.loo.class_link import joint_cavity
from softmargin.loo.class_missing_cavity import incomplete_cavities
from softmargin.priors.penalty import Penalty

__all__ = ["ClassMoments", "class_scores", "draw_cavities", "fit_cavities", "mix_cavities", "mode_cavities"]

_NUMBERS = 2**21  # in a chunk of scores
_ZERO = 1e8  # precision of a coefficient that is zero, in units of the others
_ANSWERS = 6  # rounds between variances and curvatures


class ClassMoments(NamedTuple):
    """Means (n x k) and covariances (n x k x k) of the class scores, and the largest share of an own row."""

    mean: Array
    covariance: Array
    max_kv: float


def class_scores(base: Design, mean: Array, root: Array, k: int) -> tuple[Array, Array]:
    """Means and covariances of the scores ``x_i'beta_r`` of all rows, from the mean and a root of the coefficients."""
    (n, q), M = base.shape, root.shape[1]
    spread = np.ascontiguousarray(root.reshape(k, q, M).transpose(1, 0, 2)).reshape(q, k * M)
    f, V = np.empty((n, k)), np.empty((n, k, k))
    chunk = max(1, _NUMBERS // (k * max(M, 1)))
    for lo in range(0, n, chunk):
        at = np.arange(lo, min(lo + chunk, n))
        rows = base.rows(at)
        f[at] = rows @ mean.reshape(k, q).T
        part = (rows @ spread).reshape(len(at), k, M)
        V[at] = part @ part.transpose(0, 2, 1)
    return f, V


def _design(model: Model) -> ClassDesign:
    design: Any = model.blocks.design
    return design


def _table(design: ClassDesign, values: Array) -> Array:
    """Values of pairs as n x k, zero where there is no pair."""
    out = np.zeros((design.base.shape[0], design.k))
    out[design.index, design.pair_class] = values
    return out


def fit_cavities(model: Model, q: Normal, f: Array, message: AnyMessage, part: Array) -> ClassMoments:
    """From a Gaussian fit: q, the predictors of the pairs and their messages; ``part`` of every observation is out."""
    design = _design(model)
    mean, V = class_scores(design.base, q.mean, q.root, design.k)
    curvature = _table(design, message.w * design.grow**2)
    slope = _table(design, (message.b - message.w * f) * design.grow)
    base: Any = design.base
    if base.law is None:
        return ClassMoments(*joint_cavity(mean, V, curvature, slope, part))
    at, known = base.patterns.row, np.ones(len(mean), dtype=bool)
    known[at] = False
    rows = (mean[known], V[known], curvature[known], slope[known], part[known])
    mean[known], V[known], largest = joint_cavity(*rows)
    linear = _table(design, message.b * design.grow)[at] * part[at, None]
    mean[at], V[at], own = incomplete_cavities(base, q.mean, q.root, curvature[at] * part[at, None], linear)
    return ClassMoments(mean, V, max(largest, own))


def mix_cavities(weights: Array, parts: list[ClassMoments]) -> ClassMoments:
    """The moments of a mixture, as over a grid of scales."""
    mean = sum(p * part.mean for p, part in zip(weights, parts, strict=True))
    V = 0.0
    for p, part in zip(weights, parts, strict=True):
        away = part.mean - mean
        V = V + p * (part.covariance + away[:, :, None] * away[:, None, :])
    share = sum(float(p) * part.max_kv for p, part in zip(weights, parts, strict=True))
    return ClassMoments(np.asarray(mean), np.asarray(V), share)


def draw_cavities(model: Model, draws: Array, scale: Array, part: Array) -> ClassMoments:
    """From draws of the coefficients, grouped by the prior scale, given which the posterior is close to Gaussian."""
    design = _design(model)
    grow, pairs, parts = design.grow, (design.index, design.pair_class), []
    groups = scale_groups(scale)
    for group in groups:
        taken = draws[group]
        mean = taken.mean(axis=0)
        root = (taken - mean).T / np.sqrt(max(len(taken) - 1, 1))
        f, V = class_scores(design.base, mean, np.ascontiguousarray(root), design.k)
        own, v = grow * f[pairs], grow**2 * np.einsum("irr->ir", V)[pairs]
        message = model.loss.gaussian(model.y, model.c, own, v)
        curvature = _table(design, message.w * grow**2)
        slope = _table(design, grow * (message.b - message.w * own))
        parts.append(ClassMoments(*joint_cavity(f, V, curvature, slope, part)))
    return mix_cavities(np.full(len(groups), 1.0 / len(groups)), parts)


def mode_cavities(model: Model, point: ActiveSet, penalty: Penalty, part: Array) -> ClassMoments:
    """From the mode: its multipliers are taken out, and the fit answers with a smoothed curvature.

    The hinge has its curvature at single points, which an observation that leaves shifts to others. So rows have the
    curvature that they would have under a Gaussian around the mode, whose variances answer to it in turn. Coefficients
    at zero stay there; absolute values and lengths are replaced by the parabola that touches them at the mode.
    """
    design = _design(model)
    k, q, lead, grow = design.k, design.base.shape[1], int(design.base.intercept), design.grow
    beta, active = point.beta.reshape(k, q), point.active.reshape(k, q) & (point.beta.reshape(k, q) != 0.0)
    active[:, :lead] = True
    kept = np.flatnonzero(active.any(axis=0))
    base = design.base.take(kept[lead:] - lead) if len(kept) < q else design.base
    size = np.abs(beta) if penalty.blocks == 1 else np.sqrt((beta**2).sum(axis=0))
    precision = penalty.precision.reshape(k, q) + penalty.rate.reshape(-1, q) / np.maximum(size, 1e-12)
    precision, active = precision[:, kept], active[:, kept]
    precision = np.maximum(precision, 1e-4 * float(precision[active].max()))
    precision = np.where(active, precision, _ZERO * float(np.median(precision[active])))
    small, v = replace(design, base=base), np.ones(len(point.f))
    for _ in range(_ANSWERS):
        w = model.loss.gaussian(model.y, model.c, point.f, v).w
        gaussian = model.space.gaussian(*small.gram(w, np.zeros(len(w))), precision.ravel())
        v = small.row_quad(gaussian.root)
    f, V = class_scores(base, beta[:, kept].ravel(), gaussian.root, k)
    excess = np.maximum(point.g - (1.0 - part[design.index]) * 2.0 * model.c, 0.0)
    curvature = _table(design, w * part[design.index] * grow**2)
    return ClassMoments(*joint_cavity(f, V, curvature, _table(design, model.y * excess * grow), np.ones(len(f))))
