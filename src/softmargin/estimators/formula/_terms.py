"""The terms of a formula as training data fill them: columns, groups, levels, and the response."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from softmargin.estimators.formula._memory import recall, remembered
from softmargin.estimators.formula._parsed import components_of, level_of
from softmargin.estimators.formula._response import Response, response_later, response_of
from softmargin.estimators.formula._rows import check_labels, columns_of, forget, matrix, rows_of, said, values_of
from softmargin.estimators.formula._safe import Functions, check_expression
from softmargin.estimators.formula._text import Bar, read, shortened
from softmargin.models.random_effects.effect import RandomEffect

__all__ = ["Terms", "learned"]


@dataclass(frozen=True, eq=False)
class Terms:
    """A formula with the levels and transformations that the training data gave it.

    ``terms`` and ``groups`` are formulae's terms of the predictors and components of the grouping factors, the latter
    with the names that their columns have in a frame; ``answer`` is its term of the response.
    """

    text: str
    columns: tuple[str, ...]
    terms: tuple[Any, ...]
    names: tuple[str, ...]
    groups: tuple[tuple[str, Any], ...]
    effects: tuple[Any, ...]
    intercept: bool
    answer: Any

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Terms({self.text!r})"

    def frame(self, data: Any) -> pd.DataFrame:
        """The predictors of these rows, a column for each coefficient, and the columns of their groups."""
        rows = rows_of(data, self.columns, shortened(self.text))
        parts = [matrix(term, rows) for term in self.terms]
        made = np.concatenate([np.empty((len(rows), 0)), *parts], axis=1)
        frame = pd.DataFrame(made, columns=list(self.names), index=rows.index)
        for name, component in self.groups:
            frame[name] = np.asarray(values_of(component, rows), dtype=object)
        return frame

    def response(self, data: Any, y: Any = None) -> Any:
        """The response of rows after the fit: ``y``, or what the left side makes of the data."""
        return response_later(self.answer, data, shortened(self.text), y)

    def remembered(self) -> dict[str, Any]:
        """The formula and what its parts learned, in plain numbers, texts and arrays."""
        parts = [component for term in (*self.terms, self.answer) for component in term.components]
        return {
            "text": self.text,
            "names": list(self.names),
            "effects": list(self.effects),
            "kinds": [term.kind for term in (*self.terms, self.answer)],
            "components": [remembered(component) for component in parts],
            "groups": [remembered(component) for _, component in self.groups],
        }

    @classmethod
    def recalled(cls, memory: dict[str, Any]) -> Terms:
        """The formula, read and checked again, with what its parts learned."""
        if not all(type(memory[name]) is list for name in ("names", "effects", "kinds", "components", "groups")):
            raise ValueError("a formula that remembers other things")
        pieces, formula = read(memory["text"]), shortened(memory["text"])
        answer, common = (_described(text, formula) for text in (f"0 + {pieces.response}", pieces.common))
        factors = [_described(f"0 + {bar.right}", formula) for bar in pieces.bars]
        inner = [_described(bar.left, formula) for bar in pieces.bars]
        columns = {key for side in (common, *inner, *factors) for term in side.common_terms for key in columns_of(term)}
        terms = tuple(term for term in common.common_terms if term.kind != "intercept")
        every = (*terms, *answer.common_terms)
        for term, kind in zip(every, memory["kinds"], strict=True):
            term.kind = kind
        parts = [component for term in every for component in term.components]
        names = tuple(memory["names"])
        groups = {
            _group_name(component.name, names): component
            for side in factors
            for factor in side.common_terms
            for component in factor.components
        }
        for component, known in (
            *zip(parts, memory["components"], strict=True),
            *zip(groups.values(), memory["groups"], strict=True),
        ):
            recall(component, known)
        intercept, effects = len(terms) < len(common.common_terms), tuple(memory["effects"])
        texts = (memory["text"], tuple(sorted(columns)))
        return cls(*texts, terms, names, tuple(groups.items()), effects, intercept, every[-1])


def learned(formula: str, data: Any, y: Any = None) -> tuple[Terms, Response]:
    """The formula as these data fill it, and the response: ``y``, or what the left side makes of the data."""
    try:
        return _learned(formula, data, y)
    except RecursionError as error:
        raise ValueError(f"the formula {shortened(formula)!r} cannot be read: {said(error)}.") from None


def _learned(text: str, data: Any, y: Any) -> tuple[Terms, Response]:
    pieces, formula = read(text), shortened(str(text))
    answer = _described(f"0 + {pieces.response}", formula)
    common = _described(pieces.common, formula)
    inner = [_described(bar.left, formula) for bar in pieces.bars]
    factors = [_described(f"0 + {bar.right}", formula) for bar in pieces.bars]
    columns = {key for side in (common, *inner, *factors) for term in side.common_terms for key in columns_of(term)}
    asked = set().union(*map(columns_of, answer.common_terms))
    rows = rows_of(data, columns | (asked if y is None else set()), formula)
    if asked and asked <= columns:
        raise ValueError(
            f"the formula {formula!r} has the response {sorted(asked)[0]!r} on its right side too; take it out there."
        )
    if not len(rows):
        raise ValueError("the data have no rows; a fit needs some.")
    for side in (common, *inner):
        _evaluate(side, rows, formula)
    terms = tuple(term for term in common.common_terms if term.kind != "intercept")
    names = tuple(str(label) for term in terms for label in term.labels)
    groups, effects = _group_effects(list(zip(pieces.bars, inner, factors, strict=True)), names, rows, formula)
    intercept = len(terms) < len(common.common_terms)
    if not names and not (effects and intercept):
        raise ValueError(f"the formula {formula!r} has no predictors; add some, or an intercept and a group term.")
    for smooth in pieces.smooths:
        if smooth.column not in names:
            held = rows[smooth.column].dtype
            raise ValueError(f"{smooth.name} needs numbers; the column {smooth.column!r} has {held}.")
    response = response_of(answer.common_terms, rows if y is None else data, formula, y)
    for term in (*terms, *answer.common_terms):
        forget(term)
    made = Terms(
        text,
        tuple(sorted(columns)),
        terms,
        names,
        groups,
        (*effects, *pieces.smooths),
        intercept,
        answer.common_terms[0],
    )
    return made, response


def _described(text: str, formula: str) -> Any:
    """What formulae makes of a text."""
    try:
        from formulae import model_description
        from formulae.parser import Parser
        from formulae.scanner import Scanner
    except ImportError:
        raise ImportError('formulas need the package formulae: pip install "softmargin[formula]".') from None
    try:
        parser = Parser(Scanner(text).scan())
        parsed = parser.parse()
    except Exception as error:  # the parser stumbles in many ways
        raise ValueError(f"the formula {formula!r} cannot be read: {said(error)}.") from error
    if not parser.at_end():  # formulae itself would leave out what follows
        rest = parser.peek().lexeme
        raise ValueError(f"the formula {formula!r} cannot be read from {rest!r} on; write a '+' between terms.")
    check_expression(parsed, formula)
    try:
        described = model_description(text)
        # interactions share their parts with main effects, which would make both be coded alike
        described.common_terms = [deepcopy(term) for term in described.common_terms]
    except Exception as error:
        raise ValueError(f"the formula {formula!r} cannot be read: {said(error)}.") from error
    return described


def _evaluate(side: Any, rows: pd.DataFrame, formula: str) -> None:
    """Let formulae find out what the terms are with these rows, and how categorical ones are coded."""
    from formulae.environment import Environment

    parts = [component for term in side.common_terms for component in components_of(term)]
    for component in parts:
        check_labels(component, rows)
        if level_of(component) is not None:  # formulae would leave it out
            name, level = component.name, component.reference
            raise ValueError(f"{name}[{level!r}] is for a response; write {{{name} == {level!r}}} for a predictor.")
    try:
        side.eval(rows, Environment([Functions()]))
    except KeyError as error:
        raise ValueError(
            f"the formula {formula!r} uses {error}, which is not known to this version of formulae; add a column to "
            "the data."
        ) from error
    except Exception as error:  # whatever a function in the formula raises
        raise ValueError(f"the formula {formula!r} does not fit these data: {said(error)}.") from error
    for component in parts:
        if component.kind == "offset":
            raise ValueError(f"the formula {formula!r} has an offset, which these models do not take; leave it out.")


def _group_effects(
    terms: list[tuple[Bar, Any, Any]], names: tuple[str, ...], rows: pd.DataFrame, formula: str
) -> tuple[tuple[tuple[str, Any], ...], list[RandomEffect]]:
    """Columns of the grouping factors, and their effects."""
    groups: dict[str, Any] = {}
    found: dict[tuple[str, ...], list[tuple[bool, tuple[str, ...], bool]]] = {}
    for bar, side, factors in terms:
        slopes = tuple(str(name) for term in side.common_terms if term.kind != "intercept" for name in term.labels)
        intercept = any(term.kind == "intercept" for term in side.common_terms)
        alone = [name for name in slopes if name not in names]
        if alone:
            raise ValueError(
                f"the slope {alone[0]!r} of {bar} must be one of the predictors {list(names)} too; add its term to the "
                "formula."
            )
        if not slopes and not intercept:
            raise ValueError(f"the group term {bar} has no effects; write '(1 | g)' or '(0 + x | g)'.")
        for factor in factors.common_terms:
            if not components_of(factor):
                raise ValueError(f"the group term {bar} has no groups; write a column after '|'.")
            _evaluate_groups(factor, rows, formula)
            key = tuple(_group_name(component.name, names) for component in factor.components)
            groups |= dict(zip(key, factor.components, strict=True))
            found.setdefault(key, []).append((intercept, slopes, bar.correlated))
    return tuple(groups.items()), [_effect(key, parts) for key, parts in found.items()]


def _group_name(name: str, names: Iterable[str]) -> str:
    """A column can be a predictor and hold groups too."""
    return f"{name} (group)" if name in names else name


def _evaluate_groups(factor: Any, rows: pd.DataFrame, formula: str) -> None:
    from formulae.environment import Environment

    try:
        factor.set_type(rows, Environment([Functions()]))
    except Exception as error:
        raise ValueError(f"the groups {factor.name!r} of {formula!r} do not fit these data: {said(error)}.") from error
    forget(factor)


def _effect(key: tuple[str, ...], parts: list[tuple[bool, tuple[str, ...], bool]]) -> RandomEffect:
    """One effect of a grouping factor; terms of its own for each part mean parts that are not correlated."""
    own = [name for intercept, slopes, _ in parts for name in (*([""] if intercept else []), *slopes)]
    if len(parts) > 1 and (len(set(own)) < len(own) or len(own) > len(parts)):
        raise ValueError(
            f"the formula has several terms for the groups {':'.join(key)!r}; write one, '(x + z | g)', or, where "
            "effects are not correlated, '(x + z || g)'."
        )
    covariance = "full" if len(own) == 1 or (len(parts) == 1 and parts[0][2]) else "diagonal"
    return RandomEffect(key, [name for name in own if name], covariance, intercept="" in own)
