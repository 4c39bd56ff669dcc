"""Averages of a smooth loss under a normal predictor, by quadrature that knows where the loss bends."""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np

from softmargin.rows.arithmetic import exp_negative
from softmargin.rows.compiled import njit
from softmargin.rows.loops import RowFormula, arguments_of, compiled_loop, scalar

__all__ = ["average_formula", "average_loop", "derivative_loop"]

_REACH = 8.5  # standard deviations after which a Gaussian average is cut
_STEPS = 34  # of the trapezoidal rule for each width in a spread: error exp(-2 pi d/(s h)), d as below
_EVEN = 4  # widths in a spread up to which even steps are cheaper than pieces
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PIECES = np.linspace(-_REACH, _REACH, 9)
_LEVELS = 48  # most pieces on either side of a bend: they grow by four from its width on
_BENDS = 4  # of a loss at most
_MOST = len(_NODES) * (len(_PIECES) + _BENDS * (2 * _LEVELS + 1))  # nodes
_ROOT = 1.0 / math.sqrt(2.0 * math.pi)


@njit(cache=True, nogil=True, error_model="numpy")
def nodes(f: float, s: float, places: Any, width: float, edge: Any, z: Any, mass: Any) -> int:
    """Nodes and masses for N(f, s^2) in standard deviations from f, written into z and mass; returns their number.

    Up to a few widths in a spread steps are even; beyond, there are even pieces and pieces that shrink by four towards
    each bend, with Gauss-Legendre nodes in each.
    """
    if len(places) > _BENDS:
        raise ValueError("a loss may bend at four places at most")
    count = 0
    if s <= _EVEN * width:
        count = _STEPS * max(math.ceil(s / width), 1) + 1
        step = 2.0 * _REACH / (count - 1)
        for k in range(count):
            z[k], mass[k] = k * step - _REACH, step * _ROOT
    else:
        edges = _edges(f, s, places, width, edge)
        for k in range(edges - 1):
            half = 0.5 * (edge[k + 1] - edge[k])
            if half > 0.0:
                for j in range(len(_NODES)):
                    z[count + j], mass[count + j] = edge[k] + half + half * _NODES[j], half * _WEIGHTS[j] * _ROOT
                count += len(_NODES)
    for k in range(count):
        mass[k] *= exp_negative(-0.5 * z[k] * z[k])
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _edges(f: float, s: float, places: Any, width: float, edge: Any) -> int:
    """Ends of the pieces in increasing order, written into edge; returns their number."""
    h, levels, edges = width / s, 1, len(_PIECES)
    for k in range(edges):
        edge[k] = _PIECES[k]
    while levels < _LEVELS and h * 4.0 ** (levels - 1) < 2.0 * _REACH:
        levels += 1
    for place in places:
        t, reach = (place - f) / s, h
        edge[edges] = t
        edges += 1
        for _ in range(levels):
            edge[edges], edge[edges + 1] = t - reach, t + reach
            edges, reach = edges + 2, 4.0 * reach
    for k in range(edges):  # by insertion
        here, j = min(max(edge[k], -_REACH), _REACH), k
        while j > 0 and edge[j - 1] > here:
            edge[j] = edge[j - 1]
            j -= 1
        edge[j] = here
    return edges


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
    at = {"y": "y[_i]", "f": "f[_i] + _s * _z[_k]"}
    bent, there = (", ".join(at.get(each, each) for each in arguments_of(formula)) for formula in (bends, derivatives))
    # names of its own begin with an underscore: those of parameters are the author's
    source = f"""
def loop({", ".join(given)}, _out0, _out1, _out2):
    _work = _empty((5, _most))
    _z, _mass, _edge, _level, _slope, _curve = _work[0], _work[1], _empty(_most), _work[2], _work[3], _work[4]
    for _i in range(len(_out0)):
        _places, _width = _bends({bent})
        _s = _sqrt(v[_i])
        _count = _nodes(f[_i], _s, _places, _width, _edge, _z, _mass)
        for _k in range(_count):
            _level[_k], _slope[_k], _curve[_k] = _derivatives({there})
        _w = c[_i] * _weighted(_mass, _curve, _count)
        _out0[_i], _out1[_i] = _w, c[_i] * _weighted(_mass, _slope, _count) + _w * f[_i]
        _out2[_i] = c[_i] * _weighted(_mass, _level, _count)
"""
    known: dict[str, Any] = {"_nodes": nodes, "_weighted": weighted, "_empty": np.empty, "_sqrt": math.sqrt}
    known |= {"_most": _MOST}
    return given, compiled_loop(name, source, {"_derivatives": derivatives, "_bends": bends}, known)


@njit(nogil=True, error_model="numpy")
def next_edge(left: float, f: float, s: float, places: Any, width: float) -> float:
    """The first end of a piece right of another: ``_edges`` one by one, for those who have no room for all."""
    best, h, levels = _REACH, width / s, 1
    while levels < _LEVELS and h * 4.0 ** (levels - 1) < 2.0 * _REACH:
        levels += 1
    for k in range(len(_PIECES)):
        if left < _PIECES[k] < best:
            best = _PIECES[k]
    for place in places:
        t, reach = (place - f) / s, h
        if left < t < best:
            best = t
        for _ in range(levels):
            if left < t - reach < best:
                best = t - reach
            if left < t + reach < best:
                best = t + reach
            reach *= 4.0
    return best


def average_formula(label: str, derivatives: FunctionType, bends: FunctionType) -> RowFormula:
    """The averages of ``average_loop`` as one formula of a row that keeps no nodes, for kernels."""
    names = [each for each in (*arguments_of(derivatives), *arguments_of(bends)) if each not in ("y", "f")]
    given = ("y", "c", "f", "v", *dict.fromkeys(names))
    at = {"f": "f + _s * _z"}
    there = ", ".join(at.get(each, each) for each in arguments_of(derivatives))
    add = f"""_l, _d, _b = _derivatives({there})
            _level, _slope, _curve = _level + _mass * _l, _slope + _mass * _d, _curve + _mass * _b"""
    source = f"""
def average({", ".join(given)}):
    _places, _width = _bends({", ".join(arguments_of(bends))})
    _s, _level, _slope, _curve = _sqrt(v), 0.0, 0.0, 0.0
    if _s <= _even * _width:
        _count = _steps * max(_ceil(_s / _width), 1) + 1
        _step = 2.0 * _reach / (_count - 1)
        for _k in range(_count):
            _z = _k * _step - _reach
            _mass = _step * _root * _exp(-0.5 * _z * _z)
            {add}
    _left = _reach if _s <= _even * _width else -_reach
    while _left < _reach:
        _right = _next(_left, f, _s, _places, _width)
        _half = 0.5 * (_right - _left)
        for _k in range(len(_nodes)):
            _z = _left + _half + _half * _nodes[_k]
            _mass = _half * _weights[_k] * _root * _exp(-0.5 * _z * _z)
            {add}
        _left = _right
    _w = c * _curve
    return _w, c * _slope + _w * f, c * _level
"""
    scope: dict[str, Any] = {"_sqrt": math.sqrt, "_ceil": math.ceil, "_exp": exp_negative, "_next": next_edge}
    scope |= {"_even": _EVEN, "_steps": _STEPS, "_reach": _REACH, "_root": _ROOT}
    scope |= {"_nodes": _NODES, "_weights": _WEIGHTS, "_derivatives": scalar(derivatives), "_bends": scalar(bends)}
    exec(compile(source, "<average>", "exec"), scope)
    per_row = ("y", "c", "f", "v")
    call = ", ".join(f"{each}[_i]" if each in per_row else each for each in given)
    return RowFormula(label, given, per_row, f"_average({call})", {"_average": scope["average"]}, 3)


def derivative_loop(name: str, derivatives: FunctionType, order: int) -> tuple[tuple[str, ...], Any]:
    """Arguments and loop of the weighted loss (order 0) or of its derivative (order 1)."""
    names = arguments_of(derivatives)
    there = [f"{each}[_i]" if each in ("y", "f") else each for each in names]
    source = f"""
def loop(c, {", ".join(names)}, _out0):
    for _i in range(len(_out0)):
        _answer = _derivatives({", ".join(there)})
        _out0[_i] = c[_i] * _answer[{order}]
"""
    return ("c", *names), compiled_loop(name, source, {"_derivatives": derivatives})
