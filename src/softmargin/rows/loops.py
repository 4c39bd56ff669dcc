"""Loops over rows, written around scalar formulas and compiled once for all processes.

Numba inlines a formula into its loop, so that the loop runs on vector registers as one written by hand does. Machine
code is found again by what the formula says: its own code, its constants, and the code of all that it calls.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from softmargin.rows.compiled import njit

__all__ = [
    "RowFormula",
    "arguments_of",
    "at_row",
    "compiled_loop",
    "elsewhere",
    "multiples_loop",
    "row_loop",
    "run_elsewhere",
    "scalar",
]

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
scalar = njit(nogil=True, inline="always", **_OPTIONS)  # of functions that formulas share


class RowFormula(NamedTuple):
    """What a formula is to those who write a loop of their own around it."""

    label: str
    names: tuple[str, ...]  # of its arguments
    per_row: tuple[str, ...]  # those of them that are arrays
    call: str  # of the formula for row ``_i``
    parts: Mapping[str, FunctionType]  # the functions that the call names
    results: int  # numbers that it gives


Runner = Callable[..., tuple[Any, ...]]  # (formula, loss, random numbers, rows by name) -> arrays
_RUNNERS: dict[type, Runner] = {}


def run_elsewhere(kind: type, runner: Runner) -> None:
    """Name who runs formulas over arrays of a kind that the processor's loops do not take."""
    _RUNNERS[kind] = runner


def elsewhere(arrays: Sequence[Any]) -> Runner | None:
    """Who runs formulas over these arrays; None where that is the processor."""
    found = (_RUNNERS.get(type(each)) for each in arrays)
    return next((each for each in found if each is not None), None)


def arguments_of(formula: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the arguments of a formula."""
    return tuple(inspect.signature(formula).parameters)


def row_loop(name: str, formula: FunctionType, per_row: Sequence[str], results: int) -> Any:
    """The loop that calls a formula for every row and writes its results into as many arrays.

    It takes the arguments of the formula, those ``per_row`` as arrays and the others as they are, and then the arrays
    for the results.
    """
    names = arguments_of(formula)
    out = [f"_out{k}" for k in range(results)]
    source = (
        f"def loop({', '.join((*names, *out))}):\n"
        f"    for _i in range(len(_out0)):\n"
        f"        {', '.join(f'{each}[_i]' for each in out)} = _formula({at_row(names, per_row)})\n"
    )
    return compiled_loop(name, source, {"_formula": formula})


def multiples_loop(formula: RowFormula) -> Any:
    """The loop that calls a formula of one result at each of some multiples of predictors ``f``.

    It takes the other arguments of the formula, then predictors that are multiplied, predictors that are added or none,
    the multiples, and a matrix for the results with one row per multiple.
    """
    names = [each for each in formula.names if each != "f"]
    source = (
        f"def loop({', '.join((*names, '_along', '_fixed', '_factors', '_out'))}):\n"
        f"    f = np.empty(len(_along))\n"
        f"    for _k in range(len(_factors)):\n"
        f"        _factor, _row = _factors[_k], _out[_k]\n"
        f"        for _i in range(len(f)):\n"
        f"            f[_i] = _factor * _along[_i]\n"
        f"        for _i in range(len(_fixed)):\n"
        f"            f[_i] += _fixed[_i]\n"
        f"        for _i in range(len(f)):\n"
        f"            _row[_i] = {formula.call}\n"
    )
    return compiled_loop(f"{formula.label} of multiples", source, formula.parts, {"np": np})


def at_row(names: Sequence[str], per_row: Sequence[str]) -> str:
    """Arguments of a formula for row ``_i``, as they stand in a source text."""
    return ", ".join(f"{each}[_i]" if each in per_row else each for each in names)


def compiled_loop(
    name: str,
    source: str,
    formulas: Mapping[str, FunctionType],
    known: Mapping[str, Any] | None = None,
) -> Any:
    """The function ``loop`` of a source text that calls formulas, and other things that are ``known`` to it.

    Its machine code is kept beside the file of the first formula; a formula that was typed in at a prompt has no file,
    and is compiled by every process.
    """
    first = next(iter(formulas.values()))
    path = inspect.getfile(first)
    scope: dict[str, Any] = dict(known or {})
    key = [name, source, *(_digest(each) for each in scope.values())]
    for label, formula in formulas.items():
        key.append(_digest(formula))
        scope[label] = scalar(formula)
    exec(compile(source, path, "exec"), scope)
    loop = scope["loop"]
    loop.__module__, loop.__qualname__ = first.__module__, name
    return njit(cache=os.path.exists(path), key=tuple(key), nogil=True, **_OPTIONS)(loop)


def _digest(thing: Any, above: tuple[Any, ...] = ()) -> str:
    """What decides the machine code of a function, or a constant, as one short text."""
    thing = getattr(thing, "py_func", thing)
    if any(thing is each for each in above):  # a function that calls itself
        return "recursion"
    if isinstance(thing, FunctionType):
        scope = inspect.getclosurevars(thing)
        used = sorted({**scope.globals, **scope.nonlocals}.items())
        parts = [_code(thing.__code__), *(f"{name}={_digest(value, (*above, thing))}" for name, value in used)]
    elif isinstance(thing, np.ndarray):
        parts = [thing.dtype.str, str(thing.shape), hashlib.sha256(thing.tobytes()).hexdigest()]
    elif isinstance(thing, (bool, int, float, complex, str, tuple)):
        parts = [repr(thing)]
    elif isinstance(thing, ModuleType):
        parts = [thing.__name__]
    else:
        parts = [type(thing).__qualname__, getattr(thing, "__qualname__", "") or getattr(thing, "_name", "")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _code(code: CodeType) -> str:
    """The instructions and constants of a function, with those of functions inside it."""
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))
