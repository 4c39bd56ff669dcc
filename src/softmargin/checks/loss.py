"""Does a loss keep the promises that the engines rely on?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from operator import methodcaller

import numpy as np

from softmargin.checks._compare import agree, close, holds, mean_is
from softmargin.core.array import Array
from softmargin.losses import Loss

__all__ = ["check_loss"]

_DRAWS = 20_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 9.5  # standard deviations after which a Gaussian average is cut
_SETTLED = 1e-15  # change by halving an interval, to the integral of absolute values, that is rounding
_EPSILON = float(np.finfo(float).eps)
_MANY = 200  # intervals that a few kinks leave open at most; of more the rest is rounding of the loss itself
_HALVINGS = 40  # of an interval at most: a kink is then known to a millionth of the rounding of f


def check_loss(loss: Loss, *, responses: Sequence[float] = (-1.0, 1.0)) -> None:
    """Check a loss against its own ``loglik``.

    The message of ``expect`` is tight at v = 0 and a lower bound elsewhere, ``gaussian`` equals quadrature, both have
    ``d bound/df = b - w f`` and ``d bound/dv = -w/2``, weights act as counts, and draws of the latent satisfy
    ``E exp(-w (g^2 - f^2)/2 + b (g - f)) = exp(l(g) - l(f))``, which determines their law.

    A face that the loss does not have is not checked; where draws need whole weights, those are drawn.

    Parameters
    ----------
    loss : Loss
        The loss to check; it has ``loglik`` and ``score``.
    responses : sequence of float
        Values of the response to check it at.

    Examples
    --------
    >>> from softmargin.checks import check_loss
    >>> from softmargin.losses import Hinge
    >>> check_loss(Hinge())
    """
    for response in responses:
        kinks = _kinks(loss, response, -12.0, 12.0)
        places = np.concatenate(([-6.0, -2.5, -0.4, 0.0, 0.7, 3.3, 40.0], kinks, kinks - 0.3, kinks + 0.3))
        smooth = np.array([f for f in places if np.all(np.abs(f - kinks) > 0.02)])
        y, one, step = np.full(len(smooth), response), np.ones(len(smooth)), 1e-5
        slope = (loss.loglik(y, one, smooth + step) - loss.loglik(y, one, smooth - step)) / (2.0 * step)
        agree(loss, "score is the derivative of loglik", loss.score(y, one, smooth), slope)
        if loss.offers("expect"):
            tight = loss.expect(y, one, smooth, 0.0 * one)
            close(loss, "the bound of expect at v = 0 is loglik", tight.bound, loss.loglik(y, one, smooth))
            agree(loss, "b - w f of expect at v = 0 is the score", tight.b - tight.w * smooth, slope)
        for f, v in product(places, (1e-10, 1e-4, 0.3, 4.0, 1e4)):
            _check_averages(loss, response, float(f), v)
        for name, times in product(("loglik", "score", "gaussian", "expect"), (0.0, 2.0)):
            if not loss.offers(name):
                continue
            given = (smooth, 0.3 * one) if name in ("gaussian", "expect") else (smooth,)
            got, once = (np.asarray(methodcaller(name, y, c, *given)(loss)) for c in (times * one, one))
            close(loss, f"{name} is proportional to the weight", got, times * once, 1e-12 * (1.0 + np.abs(once)))
        if loss.offers("draw"):
            _check_draws(loss, np.random.default_rng(0), response, kinks)


def _kinks(loss: Loss, response: float, lo: float, hi: float) -> Array:
    """Where the score changes most between lo and hi: jumps if there are any, else places worth resolving."""
    x, y, one = np.linspace(lo, hi, 2001), np.full(2001, response), np.ones(2001)
    score = loss.score(y, one, x)
    change, found = np.abs(np.diff(score)), []
    for k in np.argsort(-change)[:3]:
        left, right = x[k : k + 2]
        for _ in range(60):
            middle = 0.5 * (left + right)
            a, m, b = loss.score(y[:3], one[:3], np.array([left, middle, right]))
            left, right = (left, middle) if abs(m - a) > abs(b - m) else (middle, right)
        found += [right] if change[k] > 1e-3 * (1.0 + np.abs(score).max()) else []
    return np.array(found, dtype=float)


def _bend(loss: Loss, response: float, lo: float, hi: float) -> Array:
    """Where the score is least a straight line between lo and hi, which may be a jump of its own derivative."""
    x = np.linspace(lo, hi, 2001)
    score = loss.score(np.full(2001, response), np.ones(2001), x)
    k = int(np.argmax(np.abs(np.diff(score, 2))))
    left, right = x[k], x[k + 2]
    for _ in range(45):
        at = np.linspace(left, right, 5)
        s = loss.score(np.full(5, response), np.ones(5), at)
        first = abs(s[0] - 2.0 * s[1] + s[2]) >= abs(s[2] - 2.0 * s[3] + s[4])
        left, right = (left, at[2]) if first else (at[2], right)
    return np.array([left])


def _quadrature(loss: Loss, response: float, f: float, v: float) -> tuple[float, float, float, float]:
    """``E l`` under N(f, v) and its derivatives in f and v, from loglik alone, and the largest ``|l|`` met.

    Intervals are small near the sharpest kinks, and are halved until that changes nothing, in case there are others.
    """
    s, largest = math.sqrt(v), 0.0
    here = float(loss.loglik(np.full(1, response), np.ones(1), np.full(1, f))[0])

    def integrals(lo: Array, hi: Array) -> Array:
        """Of ``l - l(f)`` times 1, z and z^2 - 1 over each interval: an array (3, intervals)."""
        nonlocal largest
        half = 0.5 * (hi - lo)[:, None]
        z = lo[:, None] + half * (1.0 + _NODES)
        level = loss.loglik(np.full(z.size, response), np.ones(z.size), (f + s * z).ravel()).reshape(z.shape)
        largest = max(largest, float(np.abs(level).max()))
        mass = half * _WEIGHTS * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * (level - here)
        return np.stack([mass.sum(axis=1), (mass * z).sum(axis=1), (mass * (z * z - 1.0)).sum(axis=1)])

    ends = f - _REACH * s, f + _REACH * s
    jumps = (np.concatenate((_kinks(loss, response, *ends), _bend(loss, response, *ends))) - f) / s
    graded = 2.0 * _REACH * 0.5 ** np.arange(18)
    edges = [np.linspace(-_REACH, _REACH, 39), jumps] + [k + side * graded for k in jumps for side in (-1.0, 1.0)]
    edge = np.unique(np.clip(np.concatenate(edges), -_REACH, _REACH))
    lo, hi = edge[:-1], edge[1:]
    whole, total = integrals(lo, hi), np.zeros(3)
    small = _SETTLED * np.abs(whole).sum(axis=1, keepdims=True) + _EPSILON * largest
    for _ in range(_HALVINGS):
        middle = 0.5 * (lo + hi)
        left, right = integrals(lo, middle), integrals(middle, hi)
        open_ = (np.abs(left + right - whole) > small).any(axis=0)
        total += (left + right)[:, ~open_].sum(axis=1)
        whole = np.concatenate((left[:, open_], right[:, open_]), axis=1)
        lo, hi = np.concatenate((lo[open_], middle[open_])), np.concatenate((middle[open_], hi[open_]))
        if not 0 < len(lo) <= _MANY:
            break
    average, slope, curve = total + whole.sum(axis=1)
    # d/df E l = E[l z]/s and d/dv E l = E[l (z^2 - 1)]/(2 v), by parts
    return here + float(average), float(slope) / s, float(curve) / (2.0 * v), max(largest, abs(here))


def _check_averages(loss: Loss, response: float, f: float, v: float) -> None:
    """Both Gaussian faces of the loss at one N(f, v)."""
    average, slope, curve, largest = _quadrature(loss, response, f, v)
    size, rounding = 1e-9 * (1.0 + largest), 1e-14 * (1.0 + largest)
    if loss.offers("gaussian"):
        w, b, bound = (x[0] for x in loss.gaussian(np.full(1, response), np.ones(1), np.full(1, f), np.full(1, v)))
        close(loss, "the bound of gaussian is E loglik", bound, average, size)
        near = 1e-7 * (1.0 + abs(slope)) + rounding / math.sqrt(v)
        close(loss, "b - w f of gaussian is E loglik'", b - w * f, slope, near)
        close(loss, "w of gaussian is -E loglik''", w, -2.0 * curve, 1e-7 * (1.0 + abs(curve)) + rounding / v)
    if not loss.offers("expect"):
        return
    h, k = 1e-4 * min(math.sqrt(v), 1.0), 1e-4 * v  # a loss may bend within a length of one
    at, spread = f + np.array([-h, h, 0, 0, 0]), v + np.array([0, 0, -k, k, 0])
    W, B, L = loss.expect(np.full(5, response), np.ones(5), at, spread)
    holds(loss, "w of expect is finite and not negative, b is finite", np.isfinite(W) & (W >= 0) & np.isfinite(B))
    holds(loss, "the bound of expect is not above E loglik", L[4] <= average + size)
    if v > 1e-2:  # the latent density is optimal, so the bound moves only through f and v themselves
        slope, what = B[4] - W[4] * f, "of expect is the derivative of its bound in"
        near = 1e-5 * (1.0 + abs(slope)) + rounding / h
        close(loss, f"b - w f {what} f", (L[1] - L[0]) / (2.0 * h), slope, near)
        close(loss, f"-w/2 {what} v", (L[3] - L[2]) / (2.0 * k), -0.5 * W[4], 1e-5 * W[4] + rounding / k)


def _check_draws(loss: Loss, rng: np.random.Generator, response: float, kinks: Array) -> None:
    """Moments and the exponential identity of the latent's law, and finite draws everywhere."""
    places = [f for f in (-2.2, -0.3, 0.3, 2.2) if np.all(np.abs(f - kinks) > 0.5)]
    for weight, f in product((1.0, 2.0, 3.0) if loss.whole_weights else (0.4, 1.0, 2.5), places):
        y, c, at = np.full(_DRAWS, response), np.full(_DRAWS, weight), np.full(_DRAWS, f)
        w, b = loss.draw(rng, y, c, at)
        where = f"at y = {response:g}, f = {f:g} and weight {weight:g}"
        if loss.offers("expect"):
            mean = loss.expect(y[:1], c[:1], at[:1], np.zeros(1)).w[0]
            mean_is(loss, f"the mean of drawn w is w of expect {where}", w, mean)
        mean_is(loss, f"the mean of drawn b - w f is the score {where}", b - w * f, loss.score(y[:1], c[:1], at[:1])[0])
        here, down, up = loss.loglik(y[:3], c[:3], np.array([f, f - 0.2, f + 0.2]))
        for g, there in ((f - 0.2, down), (f + 0.2, up)):
            ratio = np.exp(-0.5 * w * (g * g - f * f) + b * (g - f))
            mean_is(loss, f"drawn messages average to the likelihood ratio {where}", ratio, math.exp(there - here))
    away = 10.0 ** np.arange(-16.0, 9.0)
    at = np.repeat(np.add.outer(np.append(kinks, 0.0), np.concatenate(([0.0], away, -away))).ravel(), 50)
    w, b = loss.draw(rng, np.full(len(at), response), np.ones(len(at)), at)
    holds(loss, "drawn w is finite and not negative, b is finite", np.isfinite(w) & (w >= 0) & np.isfinite(b))
