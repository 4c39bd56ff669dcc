"""A fitted model of two classes with effects of groups and smooth functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from softmargin.core.array import Array
from softmargin.designs.dense import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.designs.imputed import Cells, given_observed
from softmargin.designs.standardize import design_for
from softmargin.models.missing import imputed_table
from softmargin.models.random_effects.effect import Smooth
from softmargin.models.random_effects.labels import table_index
from softmargin.models.random_effects.terms import Coded, Labelled
from softmargin.models.two_class import Binary, spread_of
from softmargin.posterior import diagnostics
from softmargin.posterior.coefficients import DrawsPosterior, widened
from softmargin.posterior.variance_components import Components
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Purpose, Streams
from softmargin.unknowns.covariates import CovariateLaw

__all__ = ["Mixed", "indicators"]


def _shape(term: Coded) -> tuple[int, int]:
    """Groups of a term and numbers a group."""
    return (1, term.prior.size) if term.levels is None else (len(term.levels), term.prior.width)


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
            if self.offset(kind) == 0.0:
                return Blocks(self._design(X, self._parts(X))).matvec(self.joint.mean)
            return self._moved(*self._linked_moments(X), kind)

    def moments(self, X: Labelled) -> tuple[Array, Array]:
        """A new group adds the variance between groups to that of f."""
        f, v, between = self._moments(X)
        return f, v + between

    def _moments(self, X: Labelled) -> tuple[Array, Array, Array]:
        """Mean of f, what is not known of it, and what new groups vary by."""
        parts = self._parts(X)
        blocks = Blocks(self._design(X, parts))
        f = blocks.matvec(self.joint.mean)
        v = blocks.row_quad(self.joint.root) if self.joint.has_spread else np.zeros(len(f))
        between = np.zeros(len(f))
        for term, component, part in zip(self.terms, self.components, parts, strict=True):
            if term.levels is not None:
                z = part.columns[part.codes < 0]
                between[part.codes < 0] += np.einsum("ia,ab,ib->i", z, component.covariance, z)
        return f, v + blocks.excess(self.joint.mean), between

    def _linked_moments(self, X: Labelled) -> tuple[Array, Array]:
        """The link weighs what is not known by lam, learned from rows of known groups.

        What groups vary by is no lack of knowledge and counts in full.
        """
        f, v, between = self._moments(X)
        return f, v + between / self.fit.loo.lam

    def sample(self, X: Labelled, n: int, streams: Streams) -> Array:
        """Draws (rows, n) of f; rows of one new group share the draw of its effect."""
        with one_blas_thread():
            rng, parts = streams.at(Purpose.PREDICT), self._parts(X)
            design = self._design(X, parts)
            beta = widened(spread_of(self.joint, "sample"), self.stretch).coordinate_draws(rng, n)
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
        for number, term in enumerate(self.terms):
            size = term.prior.size
            at = slice(start, start + size)
            start += size
            if isinstance(term.effect, Smooth):
                continue
            turn, m = term.turn(), len(term.levels)
            mean = self.joint.mean[at].reshape(m, -1) @ turn.T
            table = {"mean": mean.ravel()}
            if self.joint.has_spread:
                sd = self.stretch * self._spread(number, m, turn)
                table |= {"sd": sd.ravel(), "lower": (mean - reach * sd).ravel(), "upper": (mean + reach * sd).ravel()}
            if isinstance(self.joint, DrawsPosterior):
                draws = widened(self.joint, self.stretch).draws[..., at].reshape(-1, m, turn.shape[0]) @ turn.T
                tail = 0.5 * (1.0 - level)
                lower, upper = np.quantile(draws, (tail, 1.0 - tail), axis=0)
                table |= {"lower": lower.ravel(), "upper": upper.ravel()}
            index = table_index(term.levels, term.effect.group, term.effects)
            found[term.name] = pd.DataFrame(table, index=index)
        return found

    @property
    def columns_count(self) -> int:
        """Coefficients of the predictors, with the intercept."""
        return int(self.columns.intercept) + len(self.columns.keep)

    def _spread(self, number: int, groups: int, turn: Array) -> Array:
        """Standard deviations (groups, effects) of a term's effects in the units of the data."""
        nothing = np.full(groups, -1, dtype=np.intp)
        base: Any = Dense.plain(np.zeros((groups, self.columns_count)), intercept=False)
        shapes = [_shape(term) for term in self.terms]
        parts = [GroupTerm(nothing, count, np.zeros((groups, width))) for count, width in shapes]
        found = np.empty((groups, len(turn)))
        for effect, weights in enumerate(turn):  # a row that sees one effect of one group has its variance
            own = GroupTerm(np.arange(groups), groups, np.ascontiguousarray(np.tile(weights, (groups, 1))))
            design: Any = Grouped(base, (*parts[:number], own, *parts[number + 1 :]))
            found[:, effect] = np.sqrt(Blocks(design).row_quad(self.joint.root))
        return found

    def variance_components(self, level: float = 0.95) -> pd.DataFrame:
        """Standard deviations and correlations between groups.

        ``intraclass`` is the correlation of two rows of a group in the noise whose sign the response is, where slope
        columns have their mean. Only a likelihood says how large that noise is: the hinge does not.
        """
        noise = self.loss.latent_variance
        factors = [part for term, part in zip(self.terms, self.components, strict=True) if term.levels is not None]
        total = noise + sum(part.level_variance for part in factors)
        tables = {}
        for part in self.components:
            table = part.table(level)
            table["intraclass"] = np.nan
            if part in factors and "Intercept" in table.index:
                table.loc["Intercept", "intraclass"] = part.level_variance / total
            tables[part.name] = table
        return pd.concat(tables, names=["term", "effect"])

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        drawn = super().sampled(classes, draws, streams)
        internal = {name for term in self.terms for name in term.labels}
        internal |= {name for name in drawn.variables if name.startswith("corr(")}
        kept = {name: value for name, value in drawn.variables.items() if name not in internal}
        for part in self.components:
            kept |= part.named_draws(draws)
        return drawn._replace(variables=kept)
