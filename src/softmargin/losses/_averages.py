"""Averages of a smooth loss under a normal predictor, by quadrature that knows where the loss bends."""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np

from softmargin.rows.arithmetic import exp_negative
from softmargin.rows.compiled import njit
from softmargin.rows.loops import arguments_of, compiled_loop

__all__ = ["average_loop", "derivative_loop"]

_REACH = 8.5  # standard deviations after which a Gaussian average is cut
_STEPS = 34  # of the trapezoidal rule for each width in a spread: error exp(-2 pi d/(s h)), d as below
_EVEN = 4  # widths in a spread up to which even steps are cheaper than pieces
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PIECES = np.linspace(-_REACH, _REACH, 9)
_LEVELS = 48  # most pieces on either side of a bend: they grow by four from its width on
_ROOT = 1.0 / math.sqrt(2.0 * math.pi)


@njit(inline="always")
def _mass(z: float) -> float:
    return _ROOT * exp_negative(-0.5 * z * z)


@njit(cache=True, nogil=True, error_model="numpy")
def nodes(f: float, s: float, places: Any, width: float, edge: Any, z: Any, mass: Any) -> int:
    """Nodes and masses for N(f, s^2) in standard deviations from f, written into z and mass; returns their number.

    Up to a few widths in a spread steps are even; beyond, there are even pieces and pieces that shrink by four towards
    each bend, with Gauss-Legendre nodes in each.
    """
    if s <= _EVEN * width:
        count = _STEPS * max(math.ceil(s / width), 1) + 1
        step = 2.0 * _REACH / (count - 1)
        for k in range(count):
            z[k] = k * step - _REACH
            mass[k] = step * _mass(z[k])
        return count
    h, levels, edges = width / s, 1, len(_PIECES)
    for k in range(edges):
        edge[k] = _PIECES[k]
    while levels < _LEVELS and h * 4.0 ** (levels - 1) < 2.0 * _REACH:
        levels += 1
    for place in places:
        t = (place - f) / s
        edge[edges] = t
        edges += 1
        for level in range(levels):
            edge[edges], edge[edges + 1] = t - h * 4.0**level, t + h * 4.0**level
            edges += 2
    for k in range(edges):  # into increasing order, by insertion
        here, j = min(max(edge[k], -_REACH), _REACH), k
        while j > 0 and edge[j - 1] > here:
            edge[j] = edge[j - 1]
            j -= 1
        edge[j] = here
    count = 0
    for k in range(edges - 1):
        half = 0.5 * (edge[k + 1] - edge[k])
        if half > 0.0:
            for j in range(len(_NODES)):
                z[count + j] = edge[k] + half + half * _NODES[j]
                mass[count + j] = half * _WEIGHTS[j] * _mass(z[count + j])
            count += len(_NODES)
    return count


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def weighted(mass: Any, values: Any, count: int) -> float:
    """Sum of the first ``count`` values times their masses."""
    total = 0.0
    for k in range(count):
        total += mass[k] * values[k]
    return total


def average_loop(name: str, derivatives: FunctionType, bends: FunctionType) -> tuple[tuple[str, ...], Any]:
    """Arguments and loop of ``-E l''``, ``E l' + w f`` and ``E l`` under f ~ N(f, v), to about 1e-11 of the largest l.

    ``derivatives(y, f, ...)`` gives ``l``, ``l'`` and ``-l''``; ``bends(y, ...)`` a tuple of the predictors around
    which the loss bends and the length over which it does. It is analytic within about 2.5 lengths of the real line
    there, and smooth on the scale of the distance from them elsewhere.
    """
    names = [each for each in (*arguments_of(derivatives), *arguments_of(bends)) if each not in ("y", "f")]
    given = ("y", "c", "f", "v", *dict.fromkeys(names))
    here = ["y[i]" if each == "y" else each for each in arguments_of(bends)]
    there = [{"y": "y[i]", "f": "f[i] + s * z[k]"}.get(each, each) for each in arguments_of(derivatives)]
    source = f"""
def loop({", ".join(given)}, out0, out1, out2):
    if len(out0) == 0:
        return
    places, width = bends({", ".join("y[0]" if each == "y" else each for each in arguments_of(bends))})
    edge = empty(rough + len(places) * (2 * levels + 1))
    z, mass, level, slope, curve = empty(fine * len(edge)), empty(fine * len(edge)), empty(fine * len(edge)), empty(
        fine * len(edge)), empty(fine * len(edge))
    for i in range(len(out0)):
        places, width = bends({", ".join(here)})
        s = sqrt(v[i])
        count = nodes(f[i], s, places, width, edge, z, mass)
        for k in range(count):
            level[k], slope[k], curve[k] = derivatives({", ".join(there)})
        w = c[i] * weighted(mass, curve, count)
        out0[i], out1[i] = w, c[i] * weighted(mass, slope, count) + w * f[i]
        out2[i] = c[i] * weighted(mass, level, count)
"""
    known: dict[str, Any] = {"nodes": nodes, "weighted": weighted, "empty": np.empty, "sqrt": math.sqrt}
    known |= {"rough": len(_PIECES), "fine": len(_NODES), "levels": _LEVELS}
    return given, compiled_loop(name, source, {"derivatives": derivatives, "bends": bends}, known, inline=True)


def derivative_loop(name: str, derivatives: FunctionType, order: int) -> tuple[tuple[str, ...], Any]:
    """Arguments and loop of the weighted loss (order 0) or of its derivative (order 1)."""
    names = arguments_of(derivatives)
    there = [f"{each}[i]" if each in ("y", "f") else each for each in names]
    source = f"""
def loop(c, {", ".join(names)}, out0):
    for i in range(len(out0)):
        answer = derivatives({", ".join(there)})
        out0[i] = c[i] * answer[{order}]
"""
    return ("c", *names), compiled_loop(name, source, {"derivatives": derivatives}, inline=True)
