"""What formulae makes of a text: its trees have no common base, so what a node may have is asked for here alone."""

from __future__ import annotations

from typing import Any

__all__ = ["arguments_of", "call_of", "callee_of", "components_of", "level_of", "nodes_below"]

_BELOW = ("left", "right", "expression", "value")  # of operations, brackets and assignments


def components_of(term: Any) -> tuple[Any, ...]:
    """The factors of a product; an intercept has none."""
    return tuple(getattr(term, "components", ()))


def call_of(component: Any) -> Any:
    """The function that makes a component; None for a column as it is."""
    return getattr(component, "call", None)


def level_of(component: Any) -> Any:
    """The level that a component names in brackets, or None."""
    return getattr(component, "reference", None)


def callee_of(node: Any) -> Any:
    """The name of the function of a call, or None."""
    return getattr(node, "callee", None)


def arguments_of(node: Any) -> list[Any]:
    """Arguments of a call; other nodes have none."""
    return [*getattr(node, "args", ()), *getattr(node, "kwargs", {}).values()]


def nodes_below(node: Any) -> list[Any]:
    """Operands and arguments of a node."""
    operands = [getattr(node, name) for name in _BELOW if hasattr(node, name)]
    return [*operands, *arguments_of(node)]
