"""What formulae's components remember of the training rows, as plain numbers, levels and arrays, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from softmargin.estimators.formula._parsed import arguments_of, call_of, callee_of
from softmargin.estimators.formula._safe import REMEMBERING, Functions

__all__ = ["recall", "remembered"]

_PLAIN = ("kind", "levels", "spans_intercept")
_ROWS = "_random_state"  # a basis of the training rows, for random effects of formulae's own


def remembered(component: Any) -> dict[str, Any]:
    """The kind of a component, its levels with their contrasts, and what its functions learned."""
    found: dict[str, Any] = {name: vars(component)[name] for name in _PLAIN}
    contrasts = component.contrast_matrix
    found["contrasts"] = None if contrasts is None else (contrasts.matrix, list(contrasts.labels))
    found["functions"] = [_learned(call.stateful_transform) for call in _calls(call_of(component))]
    return found


def recall(component: Any, memory: dict[str, Any]) -> None:
    """Give a component that was just parsed what another one remembers."""
    from formulae.categorical import ENCODINGS, ContrastMatrix
    from formulae.environment import Environment
    from formulae.transforms import TRANSFORMS

    if type(memory["functions"]) is not list:
        raise ValueError("functions that are no list")
    for name in _PLAIN:
        setattr(component, name, memory[name])
    if memory["contrasts"] is not None:
        component.contrast_matrix = ContrastMatrix(*memory["contrasts"])
    call = call_of(component)
    for part, learned in zip(_calls(call), memory["functions"], strict=True):
        part.stateful_transform = None if learned is None else _transform(TRANSFORMS[part.callee](), learned)
    if call is not None:
        own = Environment([{**TRANSFORMS, **ENCODINGS}])
        component.env = own.with_outer_namespace(Environment([Functions()]).namespace)


def _calls(part: Any) -> Iterator[Any]:
    """The functions in an expression that remember rows, in a fixed order."""
    if callee_of(part) in REMEMBERING:
        yield part
    for inner in arguments_of(part):
        yield from _calls(inner)


def _learned(transform: Any) -> dict[str, Any] | None:
    if transform is None:
        return None
    found = {name: value for name, value in vars(transform).items() if name != _ROWS}
    splines = {name: value for name, value in found.items() if isinstance(value, CubicSpline)}
    return found | {name: (spline.c, spline.x, spline.axis, spline.extrapolate) for name, spline in splines.items()}


def _transform(transform: Any, learned: dict[str, Any]) -> Any:
    """A function as it was after it had seen the training rows."""
    if set(learned) != set(vars(transform)) - {_ROWS}:
        raise ValueError("a function that remembers other things")
    for name, value in learned.items():
        setattr(transform, name, _spline(*value) if isinstance(value, tuple) else value)
    return transform


def _spline(c: Any, x: Any, axis: Any, extrapolate: Any) -> CubicSpline:
    if not (isinstance(c, np.ndarray) and c.shape[:2] == (4, len(x) - 1) and (np.diff(x) > 0.0).all()):
        raise ValueError("a spline that is none")
    made: CubicSpline = CubicSpline.construct_fast(c, x, extrapolate, axis)
    return made
