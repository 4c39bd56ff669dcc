"""A BLAS routine that NumPy does not offer, called where it is: in place, and without holding other threads up."""

from __future__ import annotations

import ctypes

import scipy.linalg.cython_blas  # noqa: F401  (the module must be loaded for its functions to have addresses)
from numba.extending import get_cython_function_address

from softmargin.core.array import Array

__all__ = ["times_triangle"]

_ARGUMENTS = [ctypes.c_char_p] * 4 + [ctypes.c_void_p] * 7
_TRMM = ctypes.CFUNCTYPE(None, *_ARGUMENTS)(get_cython_function_address("scipy.linalg.cython_blas", "dtrmm"))


def times_triangle(rows: Array, root: Array) -> Array:
    """``rows @ root`` in place of ``rows``, for an upper triangular root; both of doubles in C order."""
    n, p = rows.shape
    size, count, one = ctypes.c_int(p), ctypes.c_int(n), ctypes.c_double(1.0)
    width = ctypes.byref(size)
    # to Fortran the arrays are their transposes: rows' := root' rows', with root' lower triangular
    end = root.ctypes.data, width, rows.ctypes.data, width
    _TRMM(b"L", b"L", b"N", b"N", width, ctypes.byref(count), ctypes.byref(one), *end)
    return rows
