"""Kernels: the scalar formulas of losses compiled by numba-cuda, one thread per row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from softmargin.rows.loops import RowFormula, scalar

__all__ = ["Kernel", "compiled", "row_kernel", "simulated"]

THREADS = 256  # of a block: a multiple of the warp that leaves enough registers for every formula here
_ENTRY = re.compile(r"\.visible\s+\.entry\s+(\w+)\s*\(")


class Kernel(NamedTuple):
    """A function of pointers and numbers for every thread, and what its arguments are: "f8*", "u8*", "i8", ..."""

    function: Callable[..., None]
    kinds: tuple[str, ...]


@contextmanager
def _lent_name() -> Iterator[None]:
    """Lend NumPy a name that numba-cuda asks for where it loads its parts, and that NumPy 2.5 has dropped."""
    lent = "row_stack" not in vars(np)
    if lent:
        vars(np)["row_stack"] = np.vstack
    try:
        yield
    finally:
        if lent:
            del vars(np)["row_stack"]


def cuda() -> Any:
    """numba-cuda."""
    with _lent_name():
        try:
            from numba import cuda
        except ImportError as error:
            raise ImportError("arrays on a GPU need numba-cuda; run pip install 'softmargin[gpu]'.") from error
    return cuda


@cache
def compiled(kernel: Kernel, capability: tuple[int, int]) -> tuple[str, bytes]:
    """Name and PTX code of a kernel for a device."""
    from numba import types

    known = {"f8": types.float64, "u8": types.uint64, "i8": types.int64}
    signature = [types.CPointer(known[each[:2]]) if each.endswith("*") else known[each] for each in kernel.kinds]
    with _lent_name():
        text, _ = cuda().compile_ptx(kernel.function, tuple(signature), device=False, cc=capability)
    found = _ENTRY.search(text)
    assert found is not None, "numba-cuda gave no kernel"
    return found.group(1), text.encode()


def simulated(kernel: Kernel, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel on NumPy arrays in numba-cuda's simulator, which the variable NUMBA_ENABLE_CUDASIM=1 switches on."""
    cuda().jit(kernel.function)[blocks, threads](*arguments)


def row_kernel(formula: RowFormula) -> Kernel:
    """The kernel that calls a formula for every row: its arguments, the number of rows, the arrays for its results."""
    out = [f"_out{k}" for k in range(formula.results)]
    source = (
        f"def kernel({', '.join((*formula.names, '_size', *out))}):\n"
        f"    _i = _cuda.grid(1)\n"
        f"    if _i < _size:\n"
        f"        {', '.join(f'{each}[_i]' for each in out)} = {formula.call}\n"
    )
    scope: dict[str, Any] = {"_cuda": cuda()} | {label: scalar(each) for label, each in formula.parts.items()}
    exec(compile(source, "<kernel>", "exec"), scope)
    kinds = ["f8*" if name in formula.per_row else "f8" for name in formula.names]
    return Kernel(scope["kernel"], (*kinds, "i8", *(["f8*"] * formula.results)))
