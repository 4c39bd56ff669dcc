"""Class probabilities from leave-one-out predictors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from softmargin.core.array import Array
from softmargin.loo._link_minimum import KAPPA, Rows, Targets, minimised
from softmargin.loo.bend import ENOUGH, Bend, fit_bend
from softmargin.rows.totals import totals_of

__all__ = [
    "CLOSED",
    "FEW",
    "TRUSTED",
    "WORTH",
    "LeaveOneOut",
    "Link",
    "bent",
    "cavity",
    "decided",
    "fit_link",
    "mixed_cavity",
    "taken_out",
]

_LARGEST = 0.999
_SURE = 1e-15  # probability that is as good as none
_ABOVE_HALF = np.nextafter(0.5, 1.0)
WORTH = 2.0  # log likelihood that an offset must gain where none is expected, and log evidence of a curve
CLOSED = "closed form"
TRUSTED = 0.6  # largest k v up to which predictors in closed form are within 0.006 of refits in log loss
# Observations from which links of refits are better above that limit. With fewer such links vary more than those of the
# closed form flatter: they were better on 18 sets from here on, and worse with 60 to 140 rows.
FEW = 200


@dataclass(frozen=True)
class Link:
    """``P(y = 1) = d + (1 - 2 d) sigmoid(a f / sqrt(1 + lam (pi/8) a^2 v) + b)`` for f ~ N(f, v).

    The slope a and offset b are Platt's; lam weighs the posterior variance, whose shape over the rows is right
    while its size depends on the learning rate. A row of which nothing is known has the probability sigmoid(b): were
    the offset shrunk with f it would be one half, and rows of a rare class would be ranked by how little is known.
    The doubt d is the probability of a wrong label, which bounds what any row can be sure of. A bend is a rising curve
    that the argument of the sigmoid goes through.
    """

    a: float
    b: float
    lam: float
    doubt: float = 0.0
    bend: Bend | None = None

    @property
    def offset(self) -> float:
        """How far the boundary is moved from f = 0, at a row without variance."""
        return (self.b if self.bend is None else self.b - self.bend.zero) / self.a

    def shrink(self, v: Array) -> Array:
        """What the spread of f divides it by."""
        s: Array = np.sqrt(1.0 + self.lam * KAPPA * self.a**2 * v)
        return s

    def argument(self, f: Array, v: Array) -> Array:
        """The argument of the sigmoid."""
        x = self.a * f / self.shrink(v) + self.b
        return x if self.bend is None else self.bend(x)

    def decision(self, f: Array, v: Array) -> Array:
        """f moved so that it is positive where the probability is above one half.

        Where there is a bend, which may cross zero far away, it is also shrunk: rows then have the order of their
        probabilities.
        """
        if self.bend is not None:
            return f / self.shrink(v) + self.offset
        return f if self.offset == 0.0 else f + self.offset * self.shrink(v)

    def decision_at(self, p: Array) -> Array:
        """The decision of a row without variance whose probability is p."""
        z = logit(np.clip(p, _SURE, 1.0 - _SURE))
        x = z if self.bend is None else self.bend.inverse(z)
        return np.asarray((x - self.b) / self.a + self.offset)

    def probability(self, f: Array, v: Array) -> Array:
        """Probability of the positive class."""
        p: Array = expit(self.argument(f, v))
        return p if self.doubt == 0.0 else self.doubt + (1.0 - 2.0 * self.doubt) * p


class LeaveOneOut(NamedTuple):
    """How well each row is predicted without itself.

    ``score`` is the mean log loss of the fitted link on leave-one-out predictors, ``error`` its error rate,
    ``max_kv`` the largest share of a predictor's precision that its own row supplies: above 0.6 the score is
    optimistic and nothing is chosen by it. ``objective`` is that of a link without doubt and bend, with the penalties
    on log lam and log a; ``method`` says where the predictors come from. With a bend, each row is scored by the curve
    without it.
    """

    score: float
    error: float
    max_kv: float
    a: float
    b: float
    lam: float
    objective: float
    doubt: float = 0.0
    method: str = CLOSED  # or how many folds were refitted
    bend: Bend | None = None

    @property
    def link(self) -> Link:
        """The fitted link."""
        return Link(self.a, self.b, self.lam, self.doubt, self.bend)


def bent(
    loo: LeaveOneOut, y: Array, f: Array, v: Array, weight: Array, count: Array
) -> tuple[LeaveOneOut, Array | None]:
    """The same with a curve in its link, where left-out predictors show one, and probabilities of rows without it.

    Rows are ``count`` observations each, and weigh ``weight``: what the classes weigh is in that too. An observation
    that weighs ten is one observation, so the evidence is that of the effective number of them (Kish's). Each row's
    probability comes from a curve without one of its observations. Predictors that are not known are NaN. No curve is
    asked for where there is a doubt, since classes hardly overlap, nor where the predictors themselves cannot be
    trusted; and none is kept that predicts rows left out worse than the line.
    """
    if loo.doubt > 0.0 or (loo.max_kv > TRUSTED and loo.method == CLOSED):
        return loo, None
    known: Any = np.isfinite(f) & np.isfinite(v)
    if known.all():
        known = slice(None)  # no copies
    y, weight, count, x = y[known], weight[known], count[known], loo.link.argument(f[known], v[known])
    each = weight / np.where(count > 0.0, count, 1.0)
    total, square = float(weight.sum()), float(weight @ each)
    scale = total / square if square > 0.0 else 1.0  # one where every observation weighs one
    curve = fit_bend(y, x, scale * weight)
    if curve is None or not WORTH < curve.evidence < math.inf:
        return loo, None
    z = curve.bend(x) if len(x) > ENOUGH else curve.left_out(y, x, scale * each * np.minimum(count, 1.0))
    loss = np.logaddexp(0.0, -y * z)
    score, error = float(weight @ loss) / total, float(weight @ (y * z <= 0.0)) / total
    if not score < loo.score:
        return loo, None
    p = np.full(len(f), np.nan)
    p[known] = expit(z)
    return loo._replace(score=score, error=error, bend=curve.bend), p


def decided(p: Array, score: Array) -> Array:
    """Probabilities above one half exactly where the score is positive: rounding on the way must not decide."""
    return np.where(score > 0.0, np.maximum(p, _ABOVE_HALF), np.minimum(p, 0.5))


def cavity(f: Array, v: Array, w: Array, b: Array, part: Array) -> tuple[Array, Array, float]:
    """Moments of the predictors with the part ``part`` of each row's own message taken out, and the largest k v."""
    f_out, v_out, kv = taken_out(f, v, w, b, part)
    return f_out, v_out, float(kv.max()) if len(kv) else 0.0


def taken_out(f: Array, v: Array, w: Array, b: Array, part: Array) -> tuple[Array, Array, Array]:
    """The same with every row's k v."""
    kv = part * w * v
    v_out = v / (1.0 - np.minimum(kv, _LARGEST))
    return f - part * (b - w * f) * v_out, v_out, kv


def mixed_cavity(weights: Array, outs: Any) -> tuple[Array, Array, float]:
    """The same of a mixture, from the cavities of its parts: without a row their weights hardly change."""
    f = np.asarray(sum(p * out[0] for p, out in zip(weights, outs, strict=True)))
    v = np.asarray(sum(p * (out[1] + (out[0] - f) ** 2) for p, out in zip(weights, outs, strict=True)))
    return f, v, float(weights @ np.array([out[2] for out in outs]))


def fit_link(
    y: Array,
    f: Array,
    v: Array,
    weight: Array,
    max_kv: float,
    *,
    offset: bool = True,
    worth: float = WORTH,
    smooth: bool = False,
    wrong: float = 0.0,
    tol: float = 1e-10,
) -> LeaveOneOut:
    """Maximum likelihood of (log a, b, log lam) over a box, with log lam ~ N(0, 1) and a normal tail of log a below 0.

    Minimises ``sum w [log(1 + e^eta) - t eta] + (log lam)^2 / 2 + min(log a, 0)^2 / 18`` with targets t = 1 and 0. A
    slope of one is that of the normalised pseudo-likelihood inside the margin at the base rate; with few rows one that
    is far off its line would turn a signal into the class shares. The offset b moves the
    decision boundary away from f = 0, so it is kept at zero unless it gains more than ``worth`` in log likelihood
    (and always if not ``offset``). ``smooth`` takes Platt's targets (N + 1)/(N + 2) and 1/(N + 2), which bound
    the confidence where no variance does. ``wrong`` labels, as if seen among the N, make a doubt wrong/(N + 2 wrong),
    which the slope does not see. ``tol`` is the relative size of the gradient at the end.
    """
    total, positive = totals_of(len(y), lambda at: [weight[at], (weight[at], y[at] > 0)]).tolist()
    targets = (1.0 / (total - positive + 2.0), (positive + 1.0) / (positive + 2.0)) if smooth else (0.0, 1.0)
    rows = Rows(Targets(y, *targets), f, v, weight)
    free, start = offset and worth <= 0.0, [0.3, 0.0, 0.0]
    theta, found = minimised(start, [True, free, True], rows, tol)
    value = found[0]
    if offset and not free:
        moved, other = minimised(theta, [True, True, True], rows, tol, found)
        if other[0] < value - worth:
            theta, value = moved, other[0]
    a, b, lam = math.exp(theta[0]), theta[1], math.exp(theta[2])
    link = Link(a, b, lam, wrong / (total + 2.0 * wrong))

    def losses(at: slice) -> list[Any]:
        signed = y[at] * link.argument(f[at], v[at])
        loss = np.logaddexp(0.0, -signed)
        if link.doubt > 0.0:
            loss = -np.logaddexp(math.log(link.doubt), math.log1p(-2.0 * link.doubt) - loss)
        return [(weight[at], loss), (weight[at], signed <= 0.0)]

    score, error = totals_of(len(y), losses) / total
    return LeaveOneOut(float(score), float(error), max_kv, a, b, lam, float(value / total), doubt=link.doubt)
