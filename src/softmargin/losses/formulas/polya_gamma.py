"""Polya-Gamma variates of any positive shape, right for every tilt."""

from __future__ import annotations

import math
from typing import Any

from softmargin.rows.compiled import njit

__all__ = ["polya_gamma"]

_CUT = 0.64  # where the two series of the density meet
_FAR = 18.0  # half tilt beyond which the law is inverse Gaussian up to a share exp(-36) of its mass
_TERMS = 16  # gamma terms drawn one by one for a fractional or large shape
_MANY = 16.0  # shape above which all of it is a sum of gammas, so that the work does not grow with it


@njit(cache=True, nogil=True)
def _inverse_gaussian(rng: Any, mean: float, shape: float) -> float:
    """Michael, Schucany and Haas with both roots free of cancellation."""
    half = 0.5 * mean / shape * rng.standard_normal() ** 2
    factor = 1.0 + half + math.sqrt(half * (2.0 + half))
    small = mean / factor
    return small if rng.random() * (mean + small) <= mean else mean * factor


@njit(cache=True, nogil=True)
def _left(rng: Any, z: float) -> float:
    """Inverse Gaussian with mean 1/z and shape 1, below the cut."""
    if z * _CUT >= 1.0:
        while True:
            x = _inverse_gaussian(rng, 1.0 / z, 1.0)
            if x < _CUT:
                return x
    while True:
        while True:
            e = rng.standard_exponential()
            if e * e <= 2.0 * rng.standard_exponential() / _CUT:
                break
        x = _CUT / (1.0 + _CUT * e) ** 2
        if rng.random() <= math.exp(-0.5 * z * z * x):
            return x


@njit(cache=True, nogil=True)
def _term(n: int, x: float) -> float:
    """Coefficient n of the alternating series of the density at zero tilt."""
    k = n + 0.5
    if x > _CUT:
        return math.pi * k * math.exp(-0.5 * k * k * math.pi**2 * x)
    return math.pi * k * (2.0 / (math.pi * x)) ** 1.5 * math.exp(-2.0 * k * k / x)


@njit(cache=True, nogil=True)
def _whole(rng: Any, z: float, right: float, rate: float) -> float:
    """Four times PG(1, 2z) by Devroye's rejection: the partial sums of the series enclose the density."""
    while True:
        x = _CUT + rng.standard_exponential() / rate if rng.random() < right else _left(rng, z)
        total = _term(0, x)
        level, n = rng.random() * total, 0
        while True:
            n += 1
            total -= _term(n, x)
            if level <= total:
                return x
            n += 1
            total += _term(n, x)
            if level > total:
                break


@njit(cache=True, nogil=True)
def _fraction(rng: Any, h: float, z: float) -> float:
    """Four times PG(h, 2z) as a sum of gammas; ``mean`` and ``second`` are the sums of their sizes and of the squares.

    Terms after the first few have tiny spread together: one gamma with their mean and variance stands for them, which
    changes the skewness of the sum by less than 1e-7.
    """
    if z > 1e-3:
        tanh = math.tanh(z)
        mean, second = tanh / z, (tanh - z * (1.0 - tanh * tanh)) / z**3
    else:
        mean, second = 1.0 - z * z / 3.0, 2.0 / 3.0 - 8.0 * z * z / 15.0
    total = 0.0
    for k in range(_TERMS):
        size = 2.0 / (((k + 0.5) * math.pi) ** 2 + z * z)
        total += size * rng.standard_gamma(h)
        mean -= size
        second -= size * size
    return total + second / mean * rng.standard_gamma(h * mean * mean / second)


@njit(cache=True, nogil=True)
def polya_gamma(rng: Any, h: float, tilt: float) -> float:
    """A draw of PG(h, tilt); shape zero gives zero.

    The whole part of the shape is a sum of exact rejection draws, the rest a sum of gammas, and so is all of a shape
    above 16, where no probability is off by more than 1e-5 (1e-9 for tilts up to 2); for large tilts the law is
    inverse Gaussian with mean ``h/(2 tilt)`` to rounding. Reference: Polson, Scott and Windle (2013), section 4.
    """
    z, total = 0.5 * abs(tilt), 0.0
    if h <= 0.0:
        return 0.0
    if math.isnan(z):  # no draw would ever be accepted
        return z
    if z > _FAR:
        return 0.25 * _inverse_gaussian(rng, h / z, h * h)
    whole = int(h) if h <= _MANY else 0
    if whole:
        rate = math.pi**2 / 8.0 + 0.5 * z * z
        root = math.sqrt(_CUT)
        below = math.exp(-z) * math.erfc((1.0 - _CUT * z) / root * math.sqrt(0.5))
        below += math.exp(z) * math.erfc((1.0 + _CUT * z) / root * math.sqrt(0.5))
        above = 0.5 * math.pi / rate * math.exp(-rate * _CUT)
        for _ in range(whole):
            total += _whole(rng, z, above / (above + below), rate)
    if h > whole:
        total += _fraction(rng, h - whole, z)
    return 0.25 * total
