"""How large the parts of a formula may be: numbers, powers, bases of functions, and what they expand to."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import comb
from typing import Any, NoReturn

from softmargin.estimators.formula._parsed import nodes_below

__all__ = ["check_arguments", "check_depth", "check_number", "check_power", "check_terms"]

_WHOLE = 2**53  # integers up to here are exact as floats too
_EXPONENT = 20
_DEPTH = 50  # operations in each other
_TERMS = 5000  # that products and powers outside functions expand to
_LIMITS = {"degree": 100, "df": 100, "max_knots": 2000}
_ORDER = {
    "poly": ("x", "degree"),
    "bs": ("x", "df", "knots", "degree"),
    "cc": ("x", "period", "df"),
    "cr": ("x", "df"),
    "tp": ("x", "df", "center", "max_knots"),
}  # arguments that may come without their names
_VARIES = object()  # value of an expression with columns or functions
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "PLUS": operator.add, "MINUS": operator.sub, "STAR": operator.mul, "SLASH": operator.truediv,
    "STAR_STAR": operator.pow, "EQUAL_EQUAL": operator.eq, "BANG_EQUAL": operator.ne, "LESS_EQUAL": operator.le,
    "LESS": operator.lt, "GREATER_EQUAL": operator.ge, "GREATER": operator.gt,
}  # fmt: skip


def check_number(node: Any, formula: str) -> None:
    """Refuse an integer that is too long, written or computed from numbers alone; its parts have passed already."""
    try:
        value = _constant(node)
    except (ArithmeticError, TypeError) as error:
        _refuse(formula, f"has numbers that cannot be computed ({error}); write the number itself")
    if isinstance(value, int) and abs(value) > _WHOLE:
        _refuse(formula, f"has an integer above {_WHOLE}; write it with a decimal point, as '{_WHOLE}.0'")


def check_power(node: Any, formula: str, arithmetic: bool) -> None:
    """Refuse a power that formulae reads in another order than Python does, or whose exponent is large.

    Outside ``arithmetic`` a power is of terms, and a sign before it adds them or takes them out.
    """
    base = node.left
    if arithmetic and type(base).__name__ == "Unary":
        _refuse(formula, "has a sign before the base of a power; write brackets, as in '-(x**2)' or '(-x)**2'")
    if type(base).__name__ == "Binary" and base.operator.kind == "STAR_STAR":
        _refuse(formula, "has a power of a power; write brackets, as in '(x**2)**3' or 'x**(2**3)'")
    value = _constant(node.right)
    if isinstance(value, int | float) and not abs(value) <= _EXPONENT:
        _refuse(formula, f"has an exponent outside -{_EXPONENT} to {_EXPONENT}; use a smaller one, or make a column")


def check_arguments(name: str, arguments: list[tuple[str | None, Any]], formula: str) -> None:
    """Refuse large bases of functions; an argument is its keyword, if it has one, and its expression."""
    for place, (keyword, node) in enumerate(arguments):
        order = _ORDER.get(name, ())
        key = keyword or (order[place] if place < len(order) else "")
        if name not in _ORDER or key not in _LIMITS:
            continue
        value = _constant(node)
        if value is not None and not (isinstance(value, int | float) and value <= _LIMITS[key]):
            _refuse(formula, f"needs {key} of {name}() as a number of at most {_LIMITS[key]}")


def _constant(node: Any) -> Any:
    """The value of an expression of numbers alone, whose parts are small enough to be computed."""
    kind = type(node).__name__
    if kind == "Literal":
        return node.value
    if kind == "Grouping":
        return _constant(node.expression)
    if kind == "Unary":
        value = _constant(node.right)
        return value if value is _VARIES or node.operator.kind == "PLUS" else -value
    if kind == "Call" and node.callee.name.lexeme == "I" and len(node.args) == 1:
        return _constant(node.args[0])
    if kind == "Binary" and node.operator.kind in _OPERATORS:
        left, right = _constant(node.left), _constant(node.right)
        return _VARIES if left is _VARIES or right is _VARIES else _OPERATORS[node.operator.kind](left, right)
    return _VARIES


def check_depth(node: Any, formula: str) -> None:
    """Refuse operations in operations in operations."""
    if _depth(node) > _DEPTH:
        _refuse(formula, f"has more than {_DEPTH} operations in each other; make columns of its parts first")


def _depth(node: Any) -> int:
    return 1 + max(map(_depth, nodes_below(node)), default=0)


def check_terms(node: Any, formula: str) -> None:
    """Refuse products and powers of predictors that expand to very many terms."""
    if _terms(node) > _TERMS:
        _refuse(formula, f"expands to more than {_TERMS} terms; name the products that are needed")


def _terms(node: Any) -> int:
    """An upper bound of the number of terms."""
    kind = type(node).__name__
    if kind in ("Grouping", "Unary"):
        return _terms(node.expression if kind == "Grouping" else node.right)
    if kind != "Binary":
        return 1
    left, right = _terms(node.left), _terms(node.right)
    if node.operator.kind == "STAR_STAR":
        most = _constant(node.right)
        return sum(comb(left, size) for size in range(1, most + 1)) if isinstance(most, int) else left
    together = left * right if node.operator.kind in ("STAR", "COLON", "SLASH") else 0
    return together if node.operator.kind == "COLON" else left + right + together


def _refuse(formula: str, what: str) -> NoReturn:
    raise ValueError(f"the formula {formula!r} {what}.")
