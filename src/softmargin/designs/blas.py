"""BLAS routines that NumPy does not offer, called where they are: in place, and without holding other threads up."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  (the module must be loaded for its functions to have addresses)
from numba.extending import get_cython_function_address

from softmargin.designs.base import Array

__all__ = ["times_triangle"]

_KINDS = {np.dtype(np.float64): ("dtrmm", ctypes.c_double), np.dtype(np.float32): ("strmm", ctypes.c_float)}


def _trmm(name: str) -> Any:
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_char_p] * 4, *[ctypes.c_void_p] * 7)
    return signature(get_cython_function_address("scipy.linalg.cython_blas", name))


_ROUTINES = {kind: (_trmm(name), number(1.0)) for kind, (name, number) in _KINDS.items()}


def times_triangle(rows: Array, root: Array) -> Array:
    """``rows @ root`` in place of ``rows``, for an upper triangular root; both in C order and of one type."""
    n, p = rows.shape
    routine, one = _ROUTINES[rows.dtype]
    size, count = ctypes.c_int(p), ctypes.c_int(n)
    width = ctypes.byref(size)
    # to Fortran the arrays are their transposes: rows' := root' rows', with root' lower triangular
    end = root.ctypes.data, width, rows.ctypes.data, width
    routine(b"L", b"L", b"N", b"N", width, ctypes.byref(count), ctypes.byref(one), *end)
    return rows
