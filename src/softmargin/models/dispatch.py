"""Which model of two classes a recipe asks for."""

from __future__ import annotations

from typing import Any

from softmargin.models.missing import fit_incomplete
from softmargin.models.random_effects.fit import fit_mixed
from softmargin.models.two_class import Binary, Recipe, fit_binary

__all__ = ["fit_two"]


def fit_two(recipe: Recipe, *rows: Any, **task: Any) -> Binary:
    """Fit rows with signs -1 and 1; see ``fit_binary``."""
    if recipe.inference == "svi" and (recipe.effects or recipe.incomplete):
        raise ValueError("inference='svi' takes complete rows without random effects; use inference='vb'.")
    if recipe.effects:
        return fit_mixed(recipe, *rows, **task)
    return (fit_incomplete if recipe.incomplete else fit_binary)(recipe, *rows, **task)
