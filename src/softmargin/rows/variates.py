"""One-dimensional random variates that several parts need."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from softmargin.rows.compiled import njit

__all__ = ["Uniforms", "log_concave", "reciprocal_horseshoe", "slice_step", "tilted_stable", "uniform"]

_LOT = 2  # points of a shrinking slice that are evaluated at once: more would save passes, and waste half of them


_routines: dict[type, int] = {}  # by the kind of generator, all of which have one: to ask anew takes a while


class Uniforms(NamedTuple):
    """The uniform numbers of a generator as compiled code asks for them, by ``uniform``.

    To hand over the generator itself takes longer than a pass over some thousand rows.
    """

    routine: int  # address of the function that gives the next one
    state: int  # address of what it is given

    @classmethod
    def of(cls, rng: np.random.Generator) -> Uniforms:
        """Those of a generator, which has to live as long."""
        kind, own = type(rng.bit_generator), rng.bit_generator.ctypes
        routine = _routines.get(kind)
        if routine is None:
            routine = _routines[kind] = ctypes.cast(own.next_double, ctypes.c_void_p).value or 0
        return cls(routine, own.state_address)


def _uniform(_: Any, uniforms: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = ir.IntType(8).as_pointer()
        kinds = ir.FunctionType(ir.DoubleType(), [place]).as_pointer(), place
        routine, state = (builder.inttoptr(builder.extract_value(values[0], k), kind) for k, kind in enumerate(kinds))
        return builder.call(routine, [state])

    return types.float64(uniforms), write


uniform: Any = intrinsic(_uniform)
"""``uniform(uniforms)``: ``rng.random()`` in compiled code, of a generator given as ``Uniforms``."""


def slice_step(
    rng: np.random.Generator,
    log_density: Callable[[float], float],
    start: float,
    *,
    width: float,
    max_steps: int = 50,
    ahead: Callable[[list[float]], None] | None = None,
) -> float:
    """One slice-sampling update by stepping out and shrinkage; leaves ``log_density`` invariant.

    ``ahead`` is told of points that may be asked for next, where a density is cheaper at several points at once: a
    point that is refused shrinks the interval on its own side, so that the next ones are known beforehand.
    Reference: Neal (2003), Slice sampling, Annals of Statistics 31, sections 4.1-4.2.
    """
    fall, side, *shares, split = rng.random(3 + _LOT).tolist()
    left = start - width * side
    right = left + width
    first, shrunk = (left, right), _shrunk(start, left, right, shares)
    if ahead is not None:  # with what is asked for next if the slice reaches neither end, or one of them
        ahead([start, left, right, left - width, right + width, *shrunk[0]])
    level = log_density(start) + math.log(1.0 - fall)
    # the budget of steps is split at random between the two sides, which keeps the update reversible
    steps_left = int(max_steps * split)
    steps_right = max_steps - 1 - steps_left
    while steps_left > 0 and log_density(left) > level:
        left -= width
        steps_left -= 1
    while steps_right > 0 and log_density(right) > level:
        right += width
        steps_right -= 1
    known = first == (left, right)
    while True:
        points, left, right = shrunk if known else _shrunk(start, left, right, shares)
        if ahead is not None and not known:
            ahead(points)
        for point in points:
            if log_density(point) > level:
                return point
        if abs(right - left) < 1e-14 * (1.0 + abs(start)):
            return start
        shares, known = rng.random(_LOT).tolist(), False


def _shrunk(start: float, left: float, right: float, shares: list[float]) -> tuple[list[float], float, float]:
    """The next points, if each one is refused and shrinks the interval on its side, and the interval behind them."""
    points = []
    for share in shares:
        points.append(left + (right - left) * share)
        left, right = (points[-1], right) if points[-1] < start else (left, points[-1])
    return points, left, right


def log_concave(rng: np.random.Generator, log_density: Callable[[float], float], mode: float, *, width: float) -> float:
    """A draw from a density whose logarithm is concave and finite, with its mode and about its width.

    By rejection: the density is below its value at the mode, and beyond a point below the line through the two.
    Reference: Devroye (1986), Non-Uniform Random Variate Generation, section VII.2.
    """
    top = log_density(mode)
    sides = _side(log_density, mode, top, -width), _side(log_density, mode, top, width)
    (left, left_fall), (right, right_fall) = sides
    parts = -left, -left * (math.exp(-left_fall) / left_fall), right, right * (math.exp(-right_fall) / right_fall)
    total = sum(parts)
    while True:
        pick, k = rng.random() * total, 0
        while k < 3 and pick >= parts[k]:
            pick -= parts[k]
            k += 1
        step, fall = sides[k // 2]
        beyond = rng.exponential() if k % 2 else -fall * rng.random()
        point, bound = mode + step * (1.0 + beyond / fall), -fall - beyond if k % 2 else 0.0
        if log_density(point) - top >= bound - rng.exponential():
            return point


def _side(log_density: Callable[[float], float], mode: float, top: float, step: float) -> tuple[float, float]:
    """A step to one side of the mode, and by how much the log density has fallen there: between 1/2 and 4."""
    short, far = 0.0, math.inf
    for _ in range(200):
        fall = top - log_density(mode + step)
        if 0.5 <= fall <= 4.0:
            break
        short, far = (short, abs(step)) if fall > 4.0 else (abs(step), far)
        step = math.copysign(2.0 * short if math.isinf(far) else 0.5 * (short + far), step)
    return step, fall


@njit(cache=True, nogil=True)
def _tilted_stable(rng: Any, z: Any, alpha: float, out: Any) -> None:
    """Splitting rejection: sum of m pieces, each a stable law of index alpha/2 accepted with exp(-z^2 piece)."""
    a = 0.5 * alpha
    for j in range(len(z)):
        pieces = max(1, round(z[j] ** alpha))
        shrink = pieces ** (-1.0 / a)
        square = z[j] * z[j]
        total = 0.0
        for _ in range(pieces):
            while True:
                u = math.pi * rng.random()
                e = -math.log(1.0 - rng.random())
                # Kanter's representation of the positive stable law with Laplace transform exp(-s^a)
                log_piece = (
                    math.log(math.sin((1.0 - a) * u))
                    + (a / (1.0 - a)) * math.log(math.sin(a * u))
                    - math.log(math.sin(u)) / (1.0 - a)
                    - math.log(e)
                ) * ((1.0 - a) / a)
                piece = math.exp(log_piece) * shrink
                if rng.random() <= math.exp(-square * piece):
                    break
            total += piece
        out[j] = 2.0 * total


def tilted_stable(rng: np.random.Generator, z: Any, alpha: float) -> Any:
    """Draws of ``1/omega`` for coefficients of size ``z`` in units of their scale, exact for every alpha in (0, 2].

    The bridge density ``exp(-z^alpha)`` is a scale mixture over ``T = 1/omega``; given z, T is twice a positive
    stable variable of index alpha/2, exponentially tilted by z^2. At alpha = 1 it is inverse Gaussian with mean
    1/z, at alpha = 2 the constant 2. Reference: Hofert (2011), Sampling exponentially tilted stable distributions.
    """
    z = np.asarray(z, dtype=np.float64)
    if not (z < 1e150).all():  # rejection would never end
        raise FloatingPointError("a coefficient is not finite, or beyond 1e150 of its prior's scale")
    if alpha > 1.999:
        return np.full(len(z), 2.0)
    if alpha == 1.0:
        half = 0.5 * rng.standard_normal(len(z)) ** 2
        large = z + half + np.sqrt(half * (2.0 * z + half))
        omega = np.where(rng.random(len(z)) * (large + z) <= large, large, z * (z / large))
        return 1.0 / np.maximum(omega, 1e-300)
    out = np.empty(len(z))
    _tilted_stable(rng, z, alpha, out)
    return out


def reciprocal_horseshoe(rng: np.random.Generator, z: Any) -> Any:
    """Exact draws of x with density proportional to ``exp(-x z)/(1 + x)``: squared reciprocal horseshoe scales.

    For z < 1 the envelope is log-uniform below 1/z and exponential above, for z >= 1 exponential; every piece is
    accepted with probability at least about 1/e.
    """
    z = np.asarray(z, dtype=np.float64)
    out = np.empty(len(z))
    todo = np.arange(len(z))
    while len(todo):
        s = z[todo]
        small = s < 1.0
        edge = 1.0 / np.maximum(s, 1e-300)
        body = np.where(small, np.log1p(edge), 0.0)
        tail = np.where(small, math.exp(-1.0) / (1.0 + s), 1.0)
        first = rng.random(len(s)) * (body + tail) < body
        exponential = rng.standard_exponential(len(s)) * edge
        x = np.where(first, np.expm1(rng.random(len(s)) * body), np.where(small, edge, 0.0) + exponential)
        accept = np.where(first, np.exp(-x * s), np.where(small, 1.0 + edge, 1.0) / (1.0 + x))
        good = rng.random(len(s)) <= accept
        out[todo[good]] = x[good]
        todo = todo[~good]
    return out
