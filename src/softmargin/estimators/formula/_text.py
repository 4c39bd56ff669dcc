"""A formula as text: its response, its predictors, its group terms and its smooth functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from softmargin.models.random_effects.effect import Smooth

__all__ = ["Bar", "Pieces", "read", "shortened"]

_LONGEST, _SHOWN = 5000, 200  # characters of a formula, and those that messages show
_KNOTS = 1000
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_BACKQUOTED = re.compile(r"`([^`]*)`")
_SMOOTH = re.compile(r"(?<![\w.])s\s*\(")


class Bar(NamedTuple):
    """A group term ``(left | right)``; with ``||`` its effects are not correlated."""

    left: str
    right: str
    correlated: bool

    def __str__(self) -> str:
        return f"({self.left} {'|' if self.correlated else '||'} {self.right})"


class Pieces(NamedTuple):
    """``common`` is what is left of the right side for predictors; it has the columns of smooth functions too."""

    response: str
    common: str
    bars: tuple[Bar, ...]
    smooths: tuple[Smooth, ...]


def shortened(text: str) -> str:
    """A text as messages show it."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 24]} ... {text[-20:]}"


def read(formula: str) -> Pieces:
    """Take a formula apart; what is neither a group term nor a smooth function is left as it is written."""
    if not isinstance(formula, str):
        raise ValueError(f"formula must be a text such as 'y ~ x + (1 | g)'; got {formula!r}.")
    text, formula = formula, shortened(formula)  # which messages name
    if len(text) > _LONGEST:
        raise ValueError(
            f"the formula {formula!r} has {len(text)} characters, more than {_LONGEST}; give many columns to the "
            "estimator as a data frame instead."
        )
    tilde = [place for place, char in _outside(text, formula) if char == "~"]
    if len(tilde) != 1 or not text[: tilde[0]].strip() or not text[tilde[0] + 1 :].strip():
        raise ValueError(f"the formula {formula!r} needs a response and predictors with one '~' between: 'y ~ x'.")
    response = text[: tilde[0]].strip()
    if any(char in "+-*/:|<>=" for _, char in _outside(response, formula)):
        raise ValueError(f"the response {response!r} must be one column; write arithmetic in braces: '{{{response}}}'.")
    common, bars, smooths = [], [], []
    for sign, piece in _summands(text[tilde[0] + 1 :], formula):
        bar = _bar(piece, formula)
        smooth = None if bar else _smooth(piece, formula)
        if sign == "-" and (bar or smooth):
            raise ValueError(f"the formula {formula!r} subtracts {shortened(piece)!r}; leave the term out instead.")
        if bar:
            bars.append(bar)
        elif smooth:
            smooths.append(smooth)
            common.append(f"+ `{smooth.column}`")
        else:
            _check_plain(piece, formula)
            common.append(f"{sign} {piece}")
    return Pieces(response, " ".join(common).strip() or "1", tuple(bars), tuple(smooths))


def _outside(text: str, formula: str) -> Iterator[tuple[int, str]]:
    """Characters that are in no bracket and in no quotes, with their places."""
    closing, quote = [], ""
    for place, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in _CLOSING:
            closing.append(_CLOSING[char])
        elif char in _CLOSING.values():
            if not closing or closing.pop() != char:
                raise ValueError(f"the formula {formula!r} has a {char!r} that closes nothing; check its brackets.")
        elif not closing:
            yield place, char
    if closing or quote:
        raise ValueError(f"the formula {formula!r} lacks a closing {(quote or closing[-1])!r}; check its brackets.")


def _summands(right: str, formula: str) -> list[tuple[str, str]]:
    """The terms of the right side with their signs."""
    cuts = [place for place, char in _outside(right, formula) if char in "+-"]
    ends = [*cuts, len(right)]
    found = [("+", right[: ends[0]].strip())]
    found += [(right[cut], right[cut + 1 : end].strip()) for cut, end in zip(cuts, ends[1:], strict=True)]
    if not found[-1][1]:
        raise ValueError(f"the formula {formula!r} ends with {found[-1][0]!r}; add the term that follows, or drop it.")
    return found[1:] if not found[0][1] else found


def _bar(piece: str, formula: str) -> Bar | None:
    """The group term that a summand is, if it is one."""
    if not piece.startswith("(") or any(not char.isspace() for _, char in _outside(piece, formula)):
        return None
    inner = piece[1:-1]
    places = [place for place, char in _outside(inner, formula) if char == "|"]
    if not places:
        return None
    left, right = inner[: places[0]].strip(), inner[places[-1] + 1 :].strip()
    if places[-1] - places[0] != len(places) - 1 or len(places) > 2 or not left or not right:
        raise ValueError(f"the group term {shortened(piece)!r} of the formula must look like '(x | g)' or '(x || g)'.")
    return Bar(left, right, len(places) == 1)


def _smooth(piece: str, formula: str) -> Smooth | None:
    """The smooth function that a summand is, if it is one."""
    start = _SMOOTH.match(piece)
    if not start or any(not char.isspace() for _, char in _outside(piece[start.end() - 1 :], formula)):
        return None
    try:  # a name in backquotes is read as a string
        call = ast.parse(_BACKQUOTED.sub(lambda name: repr(name.group(1)), piece), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError
        (column,) = call.args
        name = column.id if isinstance(column, ast.Name) else ast.literal_eval(column)
        options = {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(
            f"the smooth function {shortened(piece)!r} must look like 's(x)' or 's(x, knots=10)'."
        ) from None
    unknown = set(options) - {"knots", "scale"}
    if unknown:
        raise ValueError(
            f"the smooth function {shortened(piece)!r} takes knots and scale; it does not know {sorted(unknown)}."
        )
    if isinstance(options.get("knots"), int) and options["knots"] > _KNOTS:
        raise ValueError(f"the smooth function {shortened(piece)!r} may have at most {_KNOTS} knots; take fewer.")
    return Smooth(name, **options)


def _check_plain(piece: str, formula: str) -> None:
    """Refuse group terms and smooth functions that are part of something else."""
    bare = _QUOTED.sub("", piece)
    if "|" in bare:
        raise ValueError(
            f"the formula {formula!r} has a '|' in {shortened(piece)!r}; write a group term in brackets of its "
            "own, '+ (x | g)'."
        )
    if _SMOOTH.search(bare):
        raise ValueError(
            f"the formula {formula!r} has a smooth function inside {shortened(piece)!r}; it can only be added, "
            "as in '+ s(x)'."
        )
