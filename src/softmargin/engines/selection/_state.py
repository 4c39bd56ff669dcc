"""What the spike-and-slab sampler carries: the scaled columns, the reference precision and its adaptation."""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.selection._compiled import cross_row
from softmargin.engines.selection._line_compiled import _FAST
from softmargin.rows.compiled import njit
from softmargin.solvers.gaussian import Gaussian

__all__ = ["Packed", "Reference", "Rows", "SelectionChain", "Tally", "Window", "energies", "pack", "rows_of"]

_MOST = 4e8  # numbers in the dense copy of the columns
_BANDWIDTH = 0.25  # of the kernel estimate of the curvature, in units of the margin or of the loss
_LEVELS = 6  # copies of the columns that are kept: one per weight of the rows
_KEPT = 2e7  # numbers in the rows of X'KX that a chain keeps

_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class Rows(NamedTuple):
    """Columns times the signed slope of their row's hinge, one column a row: ``Z_ji = 2 c_i y_i x_ij``.

    A loss of several hinges has its rows several times, all first ones before all second ones; y is the sign of each.
    """

    Z: Array  # (p, n)
    slope: Array  # 2 c, times where the hinge starts
    signed: Array  # 2 c y
    inverse: Array  # 1/(2 c y), zero where c is

    def moved(self, f: Array) -> Array:
        """What linear predictors take off ``slope``."""
        lowered: Array = (self.signed.reshape(-1, len(f)) * f).ravel()
        return lowered


def rows_of(model: Model) -> Rows:
    """The scaled columns of a model, kept as long as its design, loss, labels and weights stay the same."""
    design, y, c, loss = model.blocks.design, model.y, model.c, model.loss
    known = _known.setdefault(design, [])
    for known_loss, known_y, known_c, rows in known:
        if known_loss == loss and np.array_equal(known_c, c) and np.array_equal(known_y, y):
            return rows
    n, p = design.shape
    start, sign, _ = loss.pieces(y, c)
    if sign.size * p > _MOST:
        raise ValueError(f"the spike-and-slab sampler copies the columns, and {n} x {p} are too many for that.")
    signed = 2.0 * c * sign
    inverse = np.divide(1.0, signed, out=np.zeros_like(signed), where=signed != 0.0)
    Z = np.empty((p, len(sign), n))
    np.multiply(design.rows(np.arange(n)).T[:, None], signed, out=Z)
    rows = Rows(Z.reshape(p, -1), (2.0 * c * start).ravel(), signed.ravel(), inverse.ravel())
    known.insert(0, (loss, y.copy(), c.copy(), rows))
    del known[_LEVELS:]
    return rows


class Reference(NamedTuple):
    """The precision ``X'KX + D`` that shapes the lines, and how often each coefficient is picked.

    ``full`` is ``X'KX``, or empty where there are too many columns; then ``kept`` holds the rows met so far, each a
    function of ``K`` alone.
    """

    K: Array  # row curvatures over (2 c)^2
    full: Array
    diagonal: Array
    weight: Array
    kept: dict[int, Array]


class Window(NamedTuple):
    """Sums over the sweeps since the last adaptation."""

    curvature: Array
    inclusion: Array
    sweeps: int


class Tally(NamedTuple):
    """Counts since the end of the warm-up: sums of indicators and conditional probabilities, moves tried and made."""

    sweeps: int
    indicator: Array
    inclusion: Array
    flips: Array  # visits, accepted, changes of the model
    swaps: Array  # tried, accepted
    births: Array  # tried, accepted
    exchanges: Array  # tried, accepted, with the next hotter level


class SelectionChain(NamedTuple):
    """Where one chain stands; row latents are not part of it.

    ``inclusion`` is the conditional probability that a coefficient is in, given everything but itself (and, under
    the plain scan, the latents) when it was last visited.
    """

    beta: Array
    f: Array
    prior: PriorState
    mean: Array
    loglik: float
    gamma: Flags
    inclusion: Array
    reference: Reference | None
    window: Window
    tally: Tally
    hot: tuple[SelectionChain, ...] = ()  # the same problem at smaller row weights


class Packed(NamedTuple):
    """The active block, changed in place by the moves of one sweep."""

    index: Any
    place: Any
    R: Array
    cross: Array


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_FAST)
def energies(Z: Any, K: Any, out: Any) -> None:
    """``sum_i K_i Z_ji^2`` of every column."""
    for j in range(len(Z)):
        row, total = Z[j], 0.0
        for i in range(len(K)):
            total += K[i] * row[i] * row[i]
        out[j] = total


def new_tally(p: int) -> Tally:
    """Nothing counted yet."""
    return Tally(0, np.zeros(p), np.zeros(p), np.zeros(3), np.zeros(2), np.zeros(2), np.zeros(2))


def new_window(n: int, p: int) -> Window:
    """Nothing seen yet."""
    return Window(np.zeros(n), np.zeros(p), 0)


_FARTHEST = 40.0  # bandwidths beyond which the density is nothing, and its exponent may be too large a number


def curvature(model: Model, f: Array) -> Array:
    """Kernel estimate of the curvature of the rows' hinges at linear predictors f."""
    start, sign, width = model.loss.pieces(model.y, model.c)
    bandwidth = _BANDWIDTH * width
    u = np.clip((start - sign * f) / bandwidth, -_FARTHEST, _FARTHEST)
    density: Array = 2.0 * model.c * np.exp(-0.5 * u * u) / (bandwidth * math.sqrt(2.0 * math.pi))
    return density.ravel()


def new_reference(rows: Rows, k: Array, weight: Array, wide: bool) -> Reference:
    """The reference with row curvatures k."""
    K = k * rows.inverse**2
    diagonal = np.empty(len(rows.Z))
    energies(rows.Z, K, diagonal)
    full = np.empty((0, 0))
    if not wide:
        half = rows.Z * np.sqrt(K)
        full = half @ half.T
    return Reference(K, full, diagonal, weight, {})


def pick_weights(inclusion: Array, always: Flags) -> Array:
    """Visit coefficients as often as they are undecided, every one sometimes."""
    inclusion = np.clip(inclusion, 0.0, 1.0)
    floor = min(0.02, 5.0 / len(inclusion))
    weight: Array = np.maximum(np.sqrt(inclusion * (1.0 - inclusion)), floor)
    weight[always] = min(0.2, 10.0 / len(inclusion))
    return weight


def pack(rows: Rows, reference: Reference, gamma: Flags, D: Array) -> Packed:
    """The active block of a model, with room to grow."""
    p = len(gamma)
    index = np.flatnonzero(gamma)
    m = len(index)
    room = p if len(reference.full) else min(p, m + 32)
    packed = Packed(np.zeros(room, dtype=np.intp), np.full(p, -1), np.zeros((room, room)), np.empty((room, p)))
    packed.index[:m] = index
    packed.place[index] = np.arange(m)
    if len(reference.full):
        packed.cross[:m] = reference.full[index]
    else:
        kept = reference.kept
        if (len(kept) + m) * p > _KEPT:
            kept.clear()
        for k, j in enumerate(index.tolist()):
            if j not in kept:
                kept[j] = np.empty(p)
                cross_row(rows.Z, reference.K, reference.full, j, kept[j])
            packed.cross[k] = kept[j]
    if not m:
        return packed
    P = packed.cross[:m, index]
    P.flat[:: m + 1] += D[index]
    root = Gaussian.from_precision(P, np.zeros(m)).root
    packed.R[:m, :m] = root @ root.T
    return packed
