"""A fitted model of two classes with effects of groups and smooth functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from softmargin import diagnostics
from softmargin.components import Components
from softmargin.covariates import CovariateLaw
from softmargin.designs.base import Array
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.designs.imputed import Cells, given_observed
from softmargin.designs.standardize import design_for
from softmargin.estimators.binary import Binary, spread_of
from softmargin.estimators.effects import Coded, Labelled
from softmargin.estimators.incomplete import imputed_table
from softmargin.execution.blocks import Blocks, one_blas_thread
from softmargin.execution.streams import Purpose, Streams
from softmargin.posterior import DrawsPosterior
from softmargin.solvers.wide import squares

__all__ = ["Mixed", "indicators"]

_LATENT = np.pi**2 / 3.0  # variance of the logistic density


def indicators(parts: tuple[GroupTerm, ...]) -> Array:
    """The terms as plain columns."""
    return np.concatenate([part.sparse().toarray() for part in parts], axis=1)


@dataclass(frozen=True, eq=False)
class Mixed(Binary):
    """A fitted model with effects; ``fit.posterior`` is of the predictors' coefficients, ``joint`` of all of them.

    ``law`` and ``cells`` are there where predictors were missing.
    """

    joint: Any = None
    terms: tuple[Coded, ...] = ()
    components: tuple[Components, ...] = ()
    law: CovariateLaw | None = None
    cells: Cells | None = None

    @property
    def takes_missing(self) -> bool:  # type: ignore[override]
        return self.law is not None

    def _design(self, X: Labelled, parts: tuple[GroupTerm, ...]) -> Any:
        """New rows; a group that is not known has no effect here, and what is missing has its density."""
        if self.law is None:
            return Grouped(design_for(X.X, self.columns), parts)
        rows = (X.X[:, self.columns.keep] - self.columns.shift) * self.columns.scale
        return given_observed(rows, *self.law, intercept=self.columns.intercept).beside(indicators(parts))

    def _parts(self, X: Labelled) -> tuple[GroupTerm, ...]:
        return tuple(term.term(X) for term in self.terms)

    def decision(self, X: Labelled, kind: str) -> Array:
        with one_blas_thread():
            return np.asarray(self._design(X, self._parts(X)).matvec(self.joint.mean) + self.offset(kind))

    def moments(self, X: Labelled) -> tuple[Array, Array]:
        """A new group adds the variance between groups to that of f."""
        parts = self._parts(X)
        blocks = Blocks(self._design(X, parts))
        f = blocks.matvec(self.joint.mean)
        v = blocks.row_quad(self.joint.root) if self.joint.has_spread else np.zeros(len(f))
        v = v + blocks.excess(self.joint.mean)
        for term, component, part in zip(self.terms, self.components, parts, strict=True):
            if term.levels is not None:
                z = part.columns[part.codes < 0]
                v[part.codes < 0] += np.einsum("ia,ab,ib->i", z, component.covariance, z)
        return f, v

    def sample(self, X: Labelled, n: int, streams: Streams) -> Array:
        """Draws (rows, n) of f; rows of one new group share the draw of its effect."""
        with one_blas_thread():
            rng, parts = streams.at(Purpose.PREDICT), self._parts(X)
            design = self._design(X, parts)
            beta = spread_of(self.joint, "sample").coordinate_draws(rng, n)
            lead = int(self.columns.intercept)
            f = design.matmat(np.ascontiguousarray(beta[:, lead:].T)) + beta[:, :lead].sum(axis=1)
            if self.law is not None:
                spread = np.column_stack([np.sqrt(np.maximum(design.excess(one), 0.0)) for one in beta])
                f += spread * rng.standard_normal(f.shape)
            for term, component, part in zip(self.terms, self.components, parts, strict=True):
                new = np.flatnonzero(part.codes < 0)
                if term.levels is not None and len(new):
                    number = pd.factorize(term.names(X).iloc[new])[0]
                    alone = np.flatnonzero(number < 0)  # no label: a group of its own
                    number[alone] = number.max(initial=-1) + 1 + np.arange(len(alone))
                    u = component.new_groups(rng, int(number.max()) + 1, n)
                    f[new] += np.einsum("ia,ina->in", part.columns[new], u[number])
            return np.asarray(f)

    def imputed(self, rows: Any, names: list[str]) -> pd.DataFrame:
        """The training cells as a table; ``rows`` are the positions of the fitted rows in the data."""
        assert self.cells is not None
        return imputed_table(self.cells, rows, names)

    def random_effects(self, level: float = 0.95) -> dict[str, pd.DataFrame]:
        """For every grouping factor a table of its groups' effects in the units of the data."""
        found, start, reach = {}, self.columns_count, float(ndtri(0.5 + 0.5 * level))
        variance = squares(self.joint.root) if self.joint.has_spread else None
        for term in self.terms:
            size = term.prior.size
            at = slice(start, start + size)
            start += size
            if term.levels is None:
                continue
            turn, m = term.turn(), len(term.levels)
            mean = self.joint.mean[at].reshape(m, -1) @ turn.T
            table = {"mean": mean.ravel()}
            if variance is not None:
                sd = self._spread(at, m, turn, variance)
                table |= {"sd": sd.ravel(), "lower": (mean - reach * sd).ravel(), "upper": (mean + reach * sd).ravel()}
            if isinstance(self.joint, DrawsPosterior):
                draws = self.joint.draws[..., at].reshape(-1, m, turn.shape[0]) @ turn.T
                tail = 0.5 * (1.0 - level)
                lower, upper = np.quantile(draws, (tail, 1.0 - tail), axis=0)
                table |= {"lower": lower.ravel(), "upper": upper.ravel()}
            index = pd.Index(term.levels, name=term.name)
            if len(term.effects) > 1:
                index = pd.MultiIndex.from_product((list(term.levels), term.effects), names=(term.name, "effect"))
            found[term.name] = pd.DataFrame(table, index=index)
        return found

    @property
    def columns_count(self) -> int:
        """Coefficients of the predictors, with the intercept."""
        return int(self.columns.intercept) + len(self.columns.keep)

    def _spread(self, at: slice, groups: int, turn: Array, variance: Array) -> Array:
        """Standard deviations of the groups' effects in the units of the data."""
        width = turn.shape[0]
        if not np.any(turn - np.diag(turn.diagonal())):
            return np.asarray(np.sqrt(variance[at].reshape(groups, width)) * np.abs(turn.diagonal()))
        draws = spread_of(self.joint, "random_effects_").coordinate_draws(np.random.default_rng(0), 2000)[:, at]
        return np.asarray((draws.reshape(-1, groups, width) @ turn.T).std(axis=0, ddof=1))

    def variance_components(self, level: float = 0.95) -> pd.DataFrame:
        """Standard deviations and correlations between groups, with the share of each level effect in what is latent.

        ``intraclass`` is the correlation of two rows of a group in the noise whose sign the response is: that of the
        likelihood where it has one, and otherwise logistic noise on the scale of the calibrated link.
        """
        known = getattr(self.loss, "latent", None)
        a, noise = (self.fit.loo.a, _LATENT) if known is None else (1.0, known)
        total = sum(a**2 * part.level_variance for part in self.components)
        tables = []
        for part in self.components:
            table = part.table(level)
            share = a**2 * part.level_variance / (total + noise)
            table["intraclass"] = [share if name in ("Intercept", "spline") else np.nan for name in table.index]
            tables.append(table)
        return pd.concat(
            {part.name: table for part, table in zip(self.components, tables, strict=True)}, names=["term", "effect"]
        )

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        drawn = super().sampled(classes, draws, streams)
        internal = {name for term in self.terms for name in term.labels}
        internal |= {name for name in drawn.variables if name.startswith("corr(")}
        kept = {name: value for name, value in drawn.variables.items() if name not in internal}
        for part in self.components:
            kept |= part.named_draws(draws)
        return drawn._replace(variables=kept)
