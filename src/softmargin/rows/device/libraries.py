"""The one file that knows array libraries: CuPy, Torch through it, and NumPy in their place where there is no device.

Vectors over rows and large matrices are the library's arrays. Vectors with one number per coefficient are small, and
come and go as NumPy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from softmargin.rows.device import kernels
from softmargin.rows.device._narrow import LEAST, MOST, NarrowKernels
from softmargin.rows.device.kernels import THREADS, Kernel
from softmargin.rows.loops import RowFormula, run_elsewhere

__all__ = ["HOST", "Library", "library_of"]


class Library(ABC):
    """What the rows on a device ask of a library of arrays."""

    xp: Any  # its namespace

    @abstractmethod
    def take(self, x: Any) -> Any:
        """A user's array, or one of NumPy, on the device; its type is kept where it is float32 or float64."""

    @abstractmethod
    def back(self, x: Any) -> Any:
        """An array in the library that the user gave."""

    @abstractmethod
    def home(self, x: Any) -> Any:
        """An array as one of NumPy."""

    @abstractmethod
    def product(self, a: Any, b: Any, out: Any, *, transposed: bool = False) -> None:
        """Write ``a b``, or ``a' b``, into a third matrix; rows are contiguous, and may be parts of longer ones."""

    @abstractmethod
    def square_sums(self, rows: Any) -> Any:
        """Sums of the squares of each row of a matrix, in double precision."""

    def narrow(self, Z: Any) -> NarrowKernels | None:
        """Kernels for rows of this width and precision, where there are any."""
        return None

    @abstractmethod
    def cholesky(self, A: Any) -> Any:
        """Lower triangular factor; ``LinAlgError`` where the matrix is not positive definite."""

    @abstractmethod
    def triangular(self, factor: Any, rhs: Any, *, transposed: bool = False) -> Any:
        """Solve a lower triangular system, or its transpose."""

    @abstractmethod
    def launch(self, kernel: Kernel, blocks: int, *arguments: Any) -> None:
        """Run a kernel on so many blocks of threads."""

    @abstractmethod
    def free_bytes(self) -> float:
        """Memory of the device that is free."""

    def vector(self, x: Any) -> Any:
        """A vector over rows in double precision, on the device."""
        return self.take(x).astype(np.float64, copy=False)

    def run(self, formula: RowFormula, size: int, given: list[Any]) -> tuple[Any, ...]:
        """The results of a formula for every row."""
        rows = [self._argument(name, each, formula, size) for name, each in zip(formula.names, given, strict=True)]
        out = tuple(self.xp.empty(size) for _ in range(formula.results))
        self.launch(_kernel(formula.label, self, formula), -(-size // THREADS), *rows, np.int64(size), *out)
        return out

    def _argument(self, name: str, given: Any, formula: RowFormula, size: int) -> Any:
        if name not in formula.per_row:
            return np.float64(given)
        if np.ndim(given) == 0:
            return self.xp.full(size, float(given))
        return self.xp.ascontiguousarray(self.vector(given))


_made: dict[Any, Kernel] = {}


def _kernel(label: str, library: Library, formula: RowFormula) -> Kernel:
    """The kernel of a formula, made once; a formula of the same name may be another one typed in later."""
    key = label, formula.call, tuple(formula.parts.values())
    if key not in _made:
        _made[key] = kernels.row_kernel(formula)
    return _made[key]


class _NumPy(Library):
    """NumPy in the place of a device: the same code, and kernels in numba-cuda's simulator."""

    xp = np

    def take(self, x: Any) -> Any:
        x = np.asarray(x)
        return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)

    def back(self, x: Any) -> Any:
        return x

    def home(self, x: Any) -> Any:
        return np.asarray(x)

    def product(self, a: Any, b: Any, out: Any, *, transposed: bool = False) -> None:
        np.matmul(a.T if transposed else a, b, out=out)

    def square_sums(self, rows: Any) -> Any:
        return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)

    def cholesky(self, A: Any) -> Any:
        return np.linalg.cholesky(A)

    def triangular(self, factor: Any, rhs: Any, *, transposed: bool = False) -> Any:
        return solve_triangular(factor, rhs, lower=True, trans="T" if transposed else "N", check_finite=False)

    def launch(self, kernel: Kernel, blocks: int, *arguments: Any) -> None:
        kernels.simulated(kernel, blocks, THREADS, arguments)

    def free_bytes(self) -> float:
        return float("inf")


HOST = _NumPy()


class _CuPy(Library):
    """Arrays of CuPy; kernels are compiled by numba-cuda, and loaded and started by CuPy."""

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise ImportError("arrays on a GPU need CuPy; run pip install 'softmargin[gpu]'.") from error
        self.xp = cupy
        run_elsewhere(cupy.ndarray, self.run)

    def take(self, x: Any) -> Any:
        x = self.xp.asarray(x)
        return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)

    def back(self, x: Any) -> Any:
        return x

    def home(self, x: Any) -> Any:
        return self.xp.asnumpy(x)

    @cached_property
    def _blas(self) -> Any:
        from cupy_backends.cuda.libs import cublas

        return cublas

    def product(self, a: Any, b: Any, out: Any, *, transposed: bool = False) -> None:
        m, n = out.shape
        k, size = a.shape[0 if transposed else 1], a.dtype.itemsize
        one, nothing = np.ones((), a.dtype), np.zeros((), a.dtype)
        gemm = self._blas.dgemm if size == 8 else self._blas.sgemm
        # to Fortran the arrays are their transposes: out' = b' a'
        turned = self._blas.CUBLAS_OP_T if transposed else self._blas.CUBLAS_OP_N
        left = b.data.ptr, b.strides[0] // size
        right = a.data.ptr, a.strides[0] // size
        gemm(
            self.xp.cuda.device.get_cublas_handle(),
            self._blas.CUBLAS_OP_N,
            turned,
            n,
            m,
            k,
            one.ctypes.data,
            *left,
            *right,
            nothing.ctypes.data,
            out.data.ptr,
            out.strides[0] // size,
        )

    @cached_property
    def _squares(self) -> Any:
        what = "T x", "float64 y", "(double)x * (double)x", "a + b", "y = a", "0", "softmargin_square_sums"
        return self.xp.ReductionKernel(*what, reduce_type="double")

    def square_sums(self, rows: Any) -> Any:
        return self._squares(rows, axis=1)

    def narrow(self, Z: Any) -> NarrowKernels | None:
        fits = Z.dtype == np.float32 and LEAST <= Z.shape[1] <= MOST and Z.shape[1] % 8 == 0
        return self._narrow_kernels(Z.shape[1]) if fits else None

    @cache  # noqa: B019  (there is one library of a kind)
    def _narrow_kernels(self, width: int) -> NarrowKernels:
        return NarrowKernels(self.xp, width)

    def cholesky(self, A: Any) -> Any:
        from cupyx import errstate

        with errstate(linalg="raise"):
            return self.xp.linalg.cholesky(A)

    def triangular(self, factor: Any, rhs: Any, *, transposed: bool = False) -> Any:
        from cupyx.scipy.linalg import solve_triangular as solved

        return solved(factor, rhs, lower=True, trans=int(transposed), check_finite=False)

    @cache  # noqa: B019  (there is one library of a kind)
    def _loaded(self, kernel: Kernel) -> Any:
        text = self.xp.cuda.Device().compute_capability
        name, code = kernels.compiled(kernel, (int(text[:-1]), int(text[-1])))
        module = self.xp.cuda.function.Module()
        module.load(code)
        return module.get_function(name)

    def launch(self, kernel: Kernel, blocks: int, *arguments: Any) -> None:
        if blocks:
            self._loaded(kernel)((blocks,), (THREADS,), arguments)

    def free_bytes(self) -> float:
        pool = self.xp.get_default_memory_pool()
        return float(self.xp.cuda.Device().mem_info[0] + pool.free_bytes())


class _Torch(_CuPy):
    """Tensors of Torch on a GPU, seen by CuPy without a copy."""

    def take(self, x: Any) -> Any:
        if type(x).__module__.partition(".")[0] == "torch":
            x = self.xp.from_dlpack(x.detach().contiguous())
        return super().take(x)

    def back(self, x: Any) -> Any:
        from torch.utils.dlpack import from_dlpack

        return from_dlpack(self.xp.ascontiguousarray(x))


@cache
def _library(kind: str) -> Library:
    return _CuPy() if kind == "cupy" else _Torch()


def library_of(x: Any) -> Library | None:
    """The library of an array on a device; None for everything else, tensors in the memory of the host among them."""
    kind = type(x).__module__.partition(".")[0]
    if kind == "cupy" or (kind == "torch" and x.is_cuda):
        return _library(kind)
    return None
