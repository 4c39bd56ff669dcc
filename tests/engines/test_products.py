"""Products inside compiled code are those of NumPy, also of a part of a larger matrix."""

import numpy as np
import pytest
from numba.core import event

from softmargin.engines.products import addresses, matmat, matmat_t, matvec, rmatvec
from softmargin.rows.compiled import njit


@njit(error_model="numpy")
def products(blas, A, B, x, out, turned, whole, square):
    """Of the last two of three rows of A, whose rows are longer than the three columns that count."""
    matvec(blas.gemv, A, A.shape[1], A.shape[1], 2, 3, x, out)
    rmatvec(blas.gemv, A, A.shape[1], A.shape[1], 2, 3, out, turned)
    matmat(blas.gemm, 2, 3, B.shape[1], A, A.shape[1], A.shape[1], B, 0, B.shape[1], whole, 0, whole.shape[1])
    matmat_t(blas.gemm, 2, 3, 2, A, A.shape[1], A.shape[1], A, A.shape[1], A.shape[1], square, 0, square.shape[1])


@pytest.mark.parametrize(("letter", "kind", "tol"), [("d", np.float64, 1e-14), ("s", np.float32, 1e-6)])
def test_products_of_a_part_are_those_of_numpy(letter, kind, tol):
    rng = np.random.default_rng(0)
    A, B, x = (rng.normal(size=size).astype(kind) for size in ((3, 5), (3, 4), 3))
    out, turned, whole, square = (np.full(size, np.nan, kind) for size in (2, 3, (2, 4), (2, 2)))
    products(addresses(letter), A, B, x, out, turned, whole, square)
    part = A[1:, :3]
    np.testing.assert_allclose(out, part @ x, rtol=tol, atol=tol)
    np.testing.assert_allclose(turned, out @ part, rtol=tol, atol=tol)
    np.testing.assert_allclose(whole, part @ B, rtol=tol, atol=tol)
    np.testing.assert_allclose(square, part @ part.T, rtol=tol, atol=tol)


def test_a_function_is_compiled_once_for_all_constants():
    inner = njit()(lambda k: k + 1)
    outer = njit()(lambda k: inner(1) + inner(2) + inner(k))
    with event.install_recorder("numba:compile") as recorder:
        assert outer(3) == 9
    began = [each.data["dispatcher"].py_func for _, each in recorder.buffer if each.is_start]
    assert began.count(inner.py_func) == 1
