"""Averages of a smooth loss under a normal predictor, by quadrature that knows where the loss bends."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Message

__all__ = ["gaussian_average"]

Derivatives = Callable[[Array, Array], tuple[Array, Array, Array]]

_REACH = 8.5  # standard deviations after which a Gaussian average is cut
_STEPS = 34  # of the trapezoidal rule for each width in a spread: error exp(-2 pi d/(s h)), d as below
_EVEN = 4  # widths in a spread up to which even steps are cheaper than pieces
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_PIECES = np.linspace(-_REACH, _REACH, 9)
_CHUNK = 1 << 14  # numbers at a time: what the cache of a core holds


def gaussian_average(
    derivatives: Derivatives,
    y: Array,
    c: Array,
    f: Array,
    v: Array,
    bends: tuple[Array, ...],
    width: float,
    straight: float = math.inf,
) -> Message:
    """``w = -E l''``, ``b = E l' + w f`` and ``E l`` under f ~ N(f, v), to about 1e-11 of the largest value met.

    Parameters
    ----------
    derivatives : callable
        ``(y, x) -> l, l', -l''`` with rows along the first axis and nodes along the second.
    y, c, f, v : array of shape (n,)
        Response, weight, mean and variance of the predictor.
    bends : tuple of arrays
        Predictors around which each row's loss bends; it is analytic within about 2.5 ``width`` of the real line there,
        and smooth on the scale of the distance from them elsewhere.
    width : float
        Length over which it bends.
    straight : float
        Distance from all bends, in widths, from which on it is a straight line to rounding.
    """
    s, out = np.sqrt(v), np.empty((3, len(f)))
    # up to a few widths in a spread steps are even; beyond, pieces shrink towards the bends, and levels count them
    even = np.maximum(np.ceil(s / width), 1.0)
    levels = np.ceil(np.log(np.clip(2.0 * _REACH * s / width, 1.0, straight)) / math.log(4.0)) + 1.0
    kinds = np.where(even <= _EVEN, even, _EVEN + levels)
    for kind in np.unique(kinds):
        rows, level = np.flatnonzero(kinds == kind), int(kind) - _EVEN
        if level <= 0:
            z, mass = _even(int(kind))
            size = len(z)
        else:
            size = (len(_PIECES) + len(bends) * (2 * level + 1)) * len(_NODES)
        for part in np.array_split(rows, max(1, math.ceil(len(rows) * size / _CHUNK))):
            if level > 0:
                z, mass = _pieces([(bend[part] - f[part]) / s[part] for bend in bends], width / s[part], level)
            values = derivatives(y[part, None], f[part, None] + s[part, None] * z)
            out[:, part] = [(value * mass).sum(axis=1) for value in values]
    average, slope, curvature = c * out
    return Message(curvature, slope + curvature * f, average)


def _even(k: int) -> tuple[Array, Array]:
    """Nodes and masses of the trapezoidal rule."""
    z = np.linspace(-_REACH, _REACH, k * _STEPS + 1)
    return z, np.exp(-0.5 * z * z) * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)


def _pieces(bends: list[Array], width: Array, level: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and masses: even pieces, and pieces that shrink by four towards each bend."""
    graded = np.concatenate(([0.0], 4.0 ** np.arange(level)))
    graded = np.concatenate((-graded[:0:-1], graded))
    edges = [bend[:, None] + width[:, None] * graded for bend in bends]
    edges.append(np.broadcast_to(_PIECES, (len(width), len(_PIECES))))
    edge = np.sort(np.clip(np.concatenate(edges, axis=1), -_REACH, _REACH), axis=1)
    half = 0.5 * np.diff(edge, axis=1)
    z = (edge[:, :-1] + half)[..., None] + half[..., None] * _NODES
    mass = half[..., None] * _WEIGHTS * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return z.reshape(len(width), -1), mass.reshape(len(width), -1)
