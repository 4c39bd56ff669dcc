"""The reference precision that shapes the lines of a spike-and-slab sampler, and its adaptation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array, Flags
from softmargin.engines.selection.columns import Columns, energies
from softmargin.solvers.gaussian import Gaussian

__all__ = ["Packed", "Reference", "Window", "new_reference", "new_window", "pack", "pick_weights", "with_rows"]

_KEPT = 2e7  # numbers in the rows of X'KX that a chain keeps


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


class Packed(NamedTuple):
    """The active block, changed in place by the moves of one sweep."""

    index: Any
    place: Any
    R: Array
    cross: Array


def new_window(n: int, p: int) -> Window:
    """Nothing seen yet."""
    return Window(np.zeros(n), np.zeros(p), 0)


def new_reference(columns: Columns, k: Array, weight: Array, wide: bool) -> Reference:
    """The reference with row curvatures k."""
    K = k * columns.inverse**2
    diagonal = np.empty(len(columns.Z))
    energies(columns.Z, K, diagonal)
    full = np.empty((0, 0))
    if not wide:
        half = columns.Z * np.sqrt(K)
        full = half @ half.T
    return Reference(K, full, diagonal, weight, {})


def pick_weights(inclusion: Array, always: Flags) -> Array:
    """Visit coefficients as often as they are undecided, every one sometimes."""
    inclusion = np.clip(inclusion, 0.0, 1.0)
    floor = min(0.02, 5.0 / len(inclusion))
    weight: Array = np.maximum(np.sqrt(inclusion * (1.0 - inclusion)), floor)
    weight[always] = min(0.2, 10.0 / len(inclusion))
    return weight


def with_rows(columns: Columns, reference: Reference, index: Any) -> Reference:
    """The reference with the rows of ``X'KX`` that some coefficients need."""
    if len(reference.full):
        return reference
    kept, p = reference.kept, len(reference.diagonal)
    if (len(kept) + len(index)) * p > _KEPT:
        kept = {}
    new = [j for j in index.tolist() if j not in kept]
    if not new and kept is reference.kept:
        return reference
    rows = {j: columns.Z @ (reference.K * columns.Z[j]) for j in new}
    return reference._replace(kept={**kept, **rows})


def pack(columns: Columns, reference: Reference, gamma: Flags, D: Array) -> tuple[Packed, Reference]:
    """The active block of a model, with room to grow, and the reference with the rows that it needed."""
    p, index = len(gamma), np.flatnonzero(gamma)
    m, reference = len(index), with_rows(columns, reference, index)
    room = p if len(reference.full) else min(p, m + 32)
    packed = Packed(np.zeros(room, dtype=np.intp), np.full(p, -1), np.zeros((room, room)), np.empty((room, p)))
    packed.index[:m] = index
    packed.place[index] = np.arange(m)
    if len(reference.full):
        packed.cross[:m] = reference.full[index]
    else:
        for k, j in enumerate(index.tolist()):
            packed.cross[k] = reference.kept[j]
    if not m:
        return packed, reference
    P = packed.cross[:m, index]
    P.flat[:: m + 1] += D[index]
    root = Gaussian.from_precision(P, np.zeros(m)).root
    packed.R[:m, :m] = root @ root.T
    return packed, reference
