"""What a formula may hold: columns, numbers and listed functions. The rest is refused before anything is evaluated."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from softmargin.estimators.formula._sizes import check_arguments, check_depth, check_number, check_power, check_terms
from softmargin.estimators.formula._text import shortened

__all__ = ["BOXES", "REMEMBERING", "Functions", "check_expression"]

BOXES = ("C", "S", "T")  # formulae's calls that make a categorical variable of their first argument
_LEVELS = (*BOXES, "Treatment", "Sum")  # those that take levels, which may be texts
REMEMBERING = ("center", "scale", "standardize", "poly", "bs", "cc", "cr", "tp")  # the training rows
_TRANSFORMS = ("I", *REMEMBERING)
_REFUSED_LATER = ("offset", "p", "prop", "proportion")  # harmless, and no part of these models
_RECODED = ("B", "binary")  # formulae codes them by the rows that it is given, those of a prediction too
_OWN = (*_LEVELS, *_TRANSFORMS, *_REFUSED_LATER)
_PLAIN = ("log", "exp", "sqrt", "abs", "power", "minimum", "maximum", "where", "clip")  # with np. or without
_ARGUMENTS = {"where": 3, "clip": 3}  # functions of NumPy that work row by row and are no ufuncs
_COMPARED = ("EQUAL_EQUAL", "BANG_EQUAL")


def _numpy(name: str) -> tuple[Any, int] | None:
    """A function of NumPy that works row by row, with the number of its arguments, if there is one of this name.

    One more argument would be an array to write into.
    """
    found = vars(np).get(name)
    if isinstance(found, np.ufunc) and found.nout == 1 and found.signature is None:
        return found, found.nin
    return (found, _ARGUMENTS[name]) if name in _ARGUMENTS else None


class Functions:
    """Where formulae looks up functions that are not its own; a class of ours, so that models pickle."""

    def __getitem__(self, name: str) -> Any:
        if name == "np":
            return _Numpy()
        found = _numpy(name) if name in _PLAIN else None
        if found is None:
            raise KeyError(name)
        return found[0]


class _Numpy:
    """NumPy as formulas see it."""

    def __getattr__(self, name: str) -> Any:
        found = _numpy(name)
        if found is None:
            raise AttributeError(name)
        return found[0]


def check_expression(node: Any, formula: str) -> None:
    """Refuse what is not on the list, or is too large, in an expression that formulae has parsed."""
    _check(node, formula)
    check_terms(node, formula)


def _check(node: Any, formula: str, *, call: str = "", text: bool = False) -> None:
    """``call`` is the function whose argument the node is, and ``text`` says whether it may be a text."""
    kind = type(node).__name__
    if kind == "Call":
        if not call:
            check_depth(node, formula)
        _check_call(node, formula)
    elif kind == "Binary":
        text = bool(call) and node.operator.kind in _COMPARED
        _check(node.left, formula, call=call, text=text)
        _check(node.right, formula, call=call, text=text)
        if node.operator.kind == "STAR_STAR":
            check_power(node, formula, arithmetic=bool(call))
        if call:
            check_number(node, formula)
    elif kind in ("Grouping", "Unary"):
        _check(node.expression if kind == "Grouping" else node.right, formula, call=call)
    elif kind == "Variable":
        if call and node.level is not None:
            _refuse(formula, f"names a level of {node.name.lexeme!r} inside {call}()")
    elif kind == "Literal":
        if isinstance(node.value, str) and not text:
            _refuse(formula, f"has the text {node.value!r} where a column or a number belongs")
        check_number(node, formula)
    elif kind != "QuotedName":
        _refuse(formula, "has a '=' outside a function")


def _check_call(node: Any, formula: str) -> None:
    name = node.callee.name.lexeme if type(node.callee).__name__ == "Variable" and node.callee.level is None else None
    if name is None:
        _refuse(formula, "calls the result of a call")
    short = name.removeprefix("np.")
    known = _numpy(short) if name.startswith("np.") or name in _PLAIN else None
    if name in _RECODED:
        raise ValueError(
            f"the formula {formula!r} calls {name!r}, whose coding would change with the rows that are predicted; "
            "write a comparison instead, as in '{g == \"a\"}'."
        )
    if known is None and name not in _OWN:
        _refuse(formula, f"calls {name!r}")
    named = [type(argument).__name__ == "Assign" for argument in node.args]
    if known is not None and (any(named) or len(named) != known[1]):
        _refuse(formula, f"calls {name!r} with other than {known[1]} plain argument(s)")
    if name in (*BOXES, "I") and (not named or named[0]):
        _refuse(formula, f"calls {name!r} without a plain first argument")
    for argument, keyword in zip(node.args, named, strict=True):
        _check(argument.value if keyword else argument, formula, call=name, text=name in _LEVELS)
    given = [
        (part.name.name.lexeme, part.value) if keyword else (None, part)
        for part, keyword in zip(node.args, named, strict=True)
    ]
    check_arguments(name, given, formula)


def _refuse(formula: str, what: str) -> NoReturn:
    allowed = ", ".join(name for name in (*_PLAIN, *_TRANSFORMS, *BOXES, "s"))
    raise ValueError(
        f"the formula {formula!r} {shortened(what)}, which formulas may not do; they may call {allowed} and the "
        "element-wise functions of NumPy, as in np.log1p(x): make a column of anything else first."
    )
