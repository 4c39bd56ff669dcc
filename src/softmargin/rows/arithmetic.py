"""Exponential, logarithm and Mills' ratio in plain arithmetic, so that loops over rows run on vector registers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from softmargin.rows.compiled import njit

__all__ = ["exp_negative", "log1p_unit", "mills"]

_LEAST = -708.0  # exponents below which the exponential is smaller than the smallest normal number
_ROUND = 1.5 * 2.0**52  # added and taken away, it rounds to the nearest whole number and leaves it in the last bits
_LOG2, _LOG2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # of 2, the first part with zeros at its end
_EXP = np.array([1.0 / math.factorial(k) for k in range(13, -1, -1)])
_ATANH = np.array([2.0 / (2.0 * k + 1.0) for k in range(16, -1, -1)])
_CENTRE = 5.0
_MILLS = np.array(  # (1 + a) Phi(-a)/phi(a) as a polynomial in (a - 5)/(a + 5), highest power first; good to 2e-15
    [
        -9.564819991767425e-10,
        -7.073892943215587e-10,
        1.1032063865933762e-08,
        9.092473028639269e-09,
        -7.758518463009728e-08,
        -6.58897375531708e-08,
        4.919962086815381e-07,
        3.2054315673074056e-07,
        -3.2772876121659993e-06,
        -1.763323846157583e-07,
        2.2709612697529792e-05,
        -2.480583845613085e-05,
        -0.0001343742785528803,
        0.00045704392358093793,
        1.9530638369816993e-05,
        -0.004201290329187595,
        0.016348231281029517,
        -0.038026592185841354,
        0.06150504584018649,
        -0.0661776007790963,
        0.0250721793016388,
        0.07778159886873769,
        -0.22948753825211315,
        1.1568486282918946,
    ]
)


def _recast(start: Any, end: Any, to: Any) -> Any:
    """A function for compiled code that gives the number with the same bits in another type."""

    def typed(_: Any, number: Any) -> Any:
        return end(start), lambda context, build, kind, args: build.bitcast(args[0], to)

    return intrinsic(typed)


_bits = _recast(types.float64, types.int64, ir.IntType(64))
_number = _recast(types.int64, types.float64, ir.DoubleType())


@njit(inline="always")
def _polynomial(coefficients: Any, x: float) -> float:
    total = 0.0
    for k in range(len(coefficients)):
        total = total * x + coefficients[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def exp_negative(x: float) -> float:
    """``exp(x)`` for ``x <= 0``, to a few units in the last place; zero below ``-708``.

    It is ``2^k exp(r)`` with r of at most half of log 2, where the Taylor series is short.
    """
    inside = max(x, _LEAST)
    shifted = inside * (1.0 / math.log(2.0)) + _ROUND
    k = shifted - _ROUND
    power = _number((_bits(shifted) + 1023) << 52)  # 2^k: the exponent field of a double is k + 1023
    value = _polynomial(_EXP, (inside - k * _LOG2) - k * _LOG2_REST) * power
    return value if x >= _LEAST else 0.0


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def log1p_unit(x: float) -> float:
    """``log(1 + x)`` for ``0 <= x <= 1``: twice the inverse hyperbolic tangent of ``x/(2 + x)``, by its series."""
    s = x / (2.0 + x)
    return s * _polynomial(_ATANH, s * s)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def mills(a: float) -> float:
    """Mills' ratio ``Phi(-a)/phi(a)`` for ``a >= 0``, to a few units in the last place."""
    return _polynomial(_MILLS, (a - _CENTRE) / (a + _CENTRE)) / (1.0 + a)
