"""How a fitted model of many classes sees new rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.models.reader import Moments, Reader

__all__ = ["ClassReader"]


class ClassReader(Reader):
    """The same of k scores that sum to zero: a term has one standard deviation for all of them.

    The effects of a group are k numbers that sum to zero, with covariance ``s^2 (I - 11'/k)``.
    """

    def moments(self, posterior: Any, X: Any) -> Moments:
        """Means (rows, k) and covariances of the scores; what groups vary by is that of a contrast."""
        parts = self._parts(X)
        design = self._design(X, parts)
        f, V = posterior.moments(design)
        if self.law is not None:
            V = V + design.covariances(posterior.in_columns())
        return Moments(f, V, self._between(parts, len(f)))

    def sample(self, posterior: Any, X: Any, n: int, rng: np.random.Generator) -> Array:
        """Draws (rows, n, k) of the scores; rows of one new group share the draw of its effects."""
        return np.ascontiguousarray(np.moveaxis(self.scores(posterior.joint_draws(rng, n)[0], X, rng), 0, 1))

    def scores(self, beta: Array, X: Any, rng: np.random.Generator) -> Array:
        """The same (n, rows, k) at draws (n, k, q) of all coefficients."""
        parts = self._parts(X)
        design, (n, k) = self._design(X, parts), beta.shape[:2]
        lead = int(design.intercept)
        flat = beta.reshape(n * k, -1)
        f = design.matmat(np.ascontiguousarray(flat[:, lead:].T)) + flat[:, :lead].sum(axis=1)
        f = np.asarray(f).reshape(-1, n, k)
        if self.law is not None:
            for row, (cells, F) in zip(design.patterns.row, design.each(), strict=True):
                z = rng.standard_normal((n, len(cells))) @ F
                f[row] += np.einsum("nl,nrl->nr", z, beta[:, :, lead + cells])
        for component, columns, new, number in self._unseen(X, parts):
            u = component.new_groups(rng, (int(number.max()) + 1) * k, n).reshape(-1, k, n, columns.shape[1])
            u -= u.mean(axis=1, keepdims=True)
            f[new] += np.einsum("ia,irna->inr", columns, u[number])
        return np.moveaxis(f, 1, 0)

    def random_effects(
        self, posterior: Any, stretch: float, level: float = 0.95, classes: Any = None
    ) -> dict[str, pd.DataFrame]:
        """For every grouping factor a table of its groups' effects on the score of every class."""
        each = [
            super(ClassReader, self).random_effects(posterior.of_class(r), stretch, level) for r in range(posterior.k)
        ]
        found: dict[str, pd.DataFrame] = {}
        for name in each[0]:
            table = _by_class([one[name] for one in each], classes)
            own = list(range(1, table.index.nlevels))
            found[name] = table.reorder_levels([*own, 0]).loc[:, list(each[0][name].columns)]
        return found

    def curves(
        self, posterior: Any, stretch: float, level: float = 0.95, classes: Any = None
    ) -> dict[str, pd.DataFrame]:
        """For every smooth term its function in the score of every class."""
        each = [super(ClassReader, self).curves(posterior.of_class(r), stretch, level) for r in range(posterior.k)]
        return {name: _by_class([one[name] for one in each], classes) for name in each[0]}


def _by_class(tables: list[pd.DataFrame], classes: Any) -> pd.DataFrame:
    """Tables of the classes, one below the other."""
    found: pd.DataFrame = pd.concat(dict(zip(np.asarray(classes).tolist(), tables, strict=True)), names=["class"])
    return found
