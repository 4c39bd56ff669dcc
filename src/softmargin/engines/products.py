"""Matrix products for compiled code, by the addresses of SciPy's BLAS.

``np.dot`` inside compiled code comes with checks, copies and error messages that take seconds to compile. These take
numbers as they lie and check nothing: a matrix is an array, the place of its first number and the step from row to row.
An address is that of one process, so functions whose machine code is kept on disk take it as an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import scipy.linalg.cython_blas  # noqa: F401  (the module must be loaded for its functions to have addresses)
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

__all__ = ["Addresses", "addresses", "matmat", "matmat_t", "matvec", "rmatvec"]

_NUMBERS = {types.float64: ir.DoubleType(), types.float32: ir.FloatType()}


class Addresses(NamedTuple):
    """Where the routines are, for numbers of one precision."""

    gemv: int
    gemm: int


@cache
def addresses(letter: str = "d") -> Addresses:
    """Those of double precision ("d") or of single precision ("s")."""
    library = "scipy.linalg.cython_blas"
    return Addresses(*(get_cython_function_address(library, letter + name) for name in ("gemv", "gemm")))


class _Call:
    """A call of a Fortran routine under construction, with the numbers of one array type."""

    def __init__(self, context: Any, builder: Any, kinds: Sequence[Any], number: Any) -> None:
        self.context, self.builder, self.kinds, self.number = context, builder, kinds, number

    def _stored(self, value: Any) -> Any:
        """The address of a number: Fortran takes all arguments by reference."""
        place = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, place)
        return place

    def letter(self, letter: str) -> Any:
        return self._stored(ir.Constant(ir.IntType(8), ord(letter)))

    def whole(self, value: Any) -> Any:
        return self._stored(self.builder.trunc(value, ir.IntType(32)))

    def real(self, value: float) -> Any:
        return self._stored(ir.Constant(self.number, value))

    def array(self, place: int, value: Any, first: Any = None) -> Any:
        data = self.context.make_array(self.kinds[place])(self.context, self.builder, value).data
        return data if first is None else self.builder.gep(data, [first])

    def __call__(self, address: Any, *given: Any) -> Any:
        routine = ir.FunctionType(ir.VoidType(), [each.type for each in given])
        self.builder.call(self.builder.inttoptr(address, routine.as_pointer()), given)
        return self.context.get_dummy_value()


def _typed(given: Sequence[Any]) -> tuple[Any, Any]:
    """The signature of a product, whole numbers widened, and the type of its numbers."""
    kinds = [each if isinstance(each, types.Array) else types.int64 for each in given]
    return types.void(*kinds), _NUMBERS[next(each.dtype for each in kinds if isinstance(each, types.Array))]


def _vector_product(letter: str) -> Any:
    """A or its transpose times a vector, for a matrix A that lies by rows, which Fortran takes for columns."""

    def typed(
        _: Any, gemv: Any, A: Any, first: Any, step: Any, rows: Any, columns: Any, x: Any, out: Any
    ) -> tuple[Any, Any]:
        signature, number = _typed((gemv, A, first, step, rows, columns, x, out))

        def write(context: Any, builder: Any, kind: Any, values: Any) -> Any:
            call, one = _Call(context, builder, signature.args, number), ir.Constant(ir.IntType(64), 1)
            gemv, A, first, step, rows, columns, x, out = values
            return call(
                gemv, call.letter(letter), call.whole(columns), call.whole(rows), call.real(1.0),
                call.array(1, A, first), call.whole(step), call.array(6, x), call.whole(one), call.real(0.0),
                call.array(7, out), call.whole(one),
            )  # fmt: skip

        return signature, write

    return intrinsic(typed)


def _matrix_product(letter: str) -> Any:
    """A times B, or times the transpose of B."""

    def typed(
        _: Any, gemm: Any, rows: Any, inner: Any, columns: Any, A: Any, a: Any, a_step: Any, B: Any, b: Any,
        b_step: Any, out: Any, o: Any, o_step: Any,
    ) -> tuple[Any, Any]:  # fmt: skip
        signature, number = _typed((gemm, rows, inner, columns, A, a, a_step, B, b, b_step, out, o, o_step))

        def write(context: Any, builder: Any, kind: Any, values: Any) -> Any:
            call = _Call(context, builder, signature.args, number)
            gemm, rows, inner, columns, A, a, a_step, B, b, b_step, out, o, o_step = values
            return call(
                gemm, call.letter(letter), call.letter("N"), call.whole(columns), call.whole(rows), call.whole(inner),
                call.real(1.0), call.array(7, B, b), call.whole(b_step), call.array(4, A, a), call.whole(a_step),
                call.real(0.0), call.array(10, out, o), call.whole(o_step),
            )  # fmt: skip

        return signature, write

    return intrinsic(typed)


matvec = _vector_product("T")
"""``matvec(gemv, A, first, step, rows, columns, x, out)``: ``out = A x``."""
rmatvec = _vector_product("N")
"""``rmatvec(gemv, A, first, step, rows, columns, x, out)``: ``out = A'x``."""
matmat = _matrix_product("N")
"""``matmat(gemm, rows, inner, columns, A, first, step, B, first, step, out, first, step)``: ``out = A B``."""
matmat_t = _matrix_product("T")
"""As ``matmat``, of A and the transpose of B."""
