"""What the user asked of a kernel model, whatever its response, and its rows without copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from softmargin.core.array import Array
from softmargin.designs.kernel.features import copies

__all__ = ["FEW", "Plan", "merged"]

FEW = 200  # inducing points to begin with, and rows up to which there is one for each
R = TypeVar("R", bound=Any)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was asked for; ``run`` are the lengths, tolerances and options of the engine."""

    kernel: Any
    length_scale: Any
    scaled: bool | str
    scale: float | str
    basis: str
    inference: str
    n_inducing: int | None = None
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def precomputed(self) -> bool:
        """Whether rows are rows of the kernel matrix."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def inducing(self, rows: int) -> bool:
        """Whether a fit of this many rows is on inducing points."""
        if self.basis != "auto":
            return self.basis == "inducing"
        return self.inference == "svi" or (self.inference == "vb" and rows > FEW and not self.precomputed)


def merged(plan: Plan, rows: R, response: Array, *summed: str) -> tuple[R, Any]:
    """Rows without copies, and which of them each row is; the fields ``summed`` are added up over copies."""
    if plan.precomputed:
        return rows, np.arange(len(response))
    first, inverse = copies(rows.X, response)
    sums = {name: np.bincount(inverse, vars(rows)[name], len(first)) for name in summed}
    return replace(rows.take(first), **sums), inverse
