"""How a fitted model sees new rows: their columns, the effects of their groups, and entries that are missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from softmargin.core.array import Array
from softmargin.designs.dense import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.designs.imputed import Cells, given_observed
from softmargin.designs.standardize import Columns, design_for
from softmargin.models.random_effects.effect import Smooth
from softmargin.models.random_effects.labels import table_index
from softmargin.models.random_effects.terms import Coded
from softmargin.posterior import diagnostics
from softmargin.posterior.coefficients import DrawsPosterior, widened
from softmargin.posterior.variance_components import Components
from softmargin.rows.in_memory import Blocks
from softmargin.unknowns.covariates import CovariateLaw

__all__ = ["Moments", "Reader", "indicators"]

_POINTS = 101  # values of a column at which its smooth function is given


class Moments(NamedTuple):
    """Mean of f, the variance of what is not known of it, and what groups that were not seen vary by."""

    f: Array
    v: Array
    between: Array | float = 0.0


def indicators(parts: tuple[GroupTerm, ...]) -> Array:
    """The terms as plain columns."""
    return np.concatenate([part.sparse().toarray() for part in parts], axis=1)


@dataclass(frozen=True, eq=False)
class Reader:
    """The columns of a fitted model, its terms with what is known of their covariances, and its covariates' law.

    With terms a posterior is of the coefficients of the predictors first, and of all terms behind them.
    """

    columns: Columns
    terms: tuple[Coded, ...] = ()
    components: tuple[Components, ...] = ()
    law: CovariateLaw | None = None  # where predictors were missing
    entries: Cells | None = None  # the missing entries of the training rows, in units of the data

    @property
    def size(self) -> int:
        """Coefficients of the predictors, with the intercept."""
        return int(self.columns.intercept) + len(self.columns.keep)

    def own(self, posterior: Any) -> Any:
        """The posterior of the predictors' coefficients."""
        return posterior.leading(self.size) if self.terms else posterior

    def design(self, X: Any) -> Any:
        """New rows; a group that is not known has no effect here, and what is missing has its density."""
        parts = self._parts(X)
        return self._design(X, parts)

    def _parts(self, X: Any) -> tuple[GroupTerm, ...]:
        return tuple(term.term(X) for term in self.terms)

    def _design(self, X: Any, parts: tuple[GroupTerm, ...]) -> Any:
        plain = X.X if self.terms else X
        if self.law is None:
            base = design_for(plain, self.columns)
            return Grouped(base, parts) if self.terms else base
        rows = (plain[:, self.columns.keep] - self.columns.shift) * self.columns.scale
        given = given_observed(rows, *self.law, intercept=self.columns.intercept)
        return given.beside(indicators(parts)) if self.terms else given

    def predictor(self, posterior: Any, X: Any) -> Array:
        """Mean of f."""
        design = self.design(X)
        return Blocks(design).matvec(posterior.mean) if self.terms else posterior.predictor(design)

    def moments(self, posterior: Any, X: Any) -> Moments:
        """Mean and variance of f."""
        if not self.terms and self.law is None:
            return Moments(*posterior.moments(self.design(X)))
        parts = self._parts(X)
        blocks = Blocks(self._design(X, parts))
        f = blocks.matvec(posterior.mean)
        v = blocks.row_quad(posterior.root) if posterior.has_spread else np.zeros(len(f))
        return Moments(f, v + blocks.excess(posterior.mean), self._between(parts, len(f)))

    def _between(self, parts: tuple[GroupTerm, ...], rows: int) -> Array:
        """What rows vary by whose groups were not seen."""
        between = np.zeros(rows)
        for term, component, part in zip(self.terms, self.components, parts, strict=True):
            if term.levels is not None:
                z = part.columns[part.codes < 0]
                between[part.codes < 0] += np.einsum("ia,ab,ib->i", z, component.covariance, z)
        return between

    def _unseen(self, X: Any, parts: tuple[GroupTerm, ...]) -> Iterator[tuple[Components, Array, Any, Any]]:
        """For every term with groups that were not seen: what it varies by, its columns in their rows, these, and
        the number of each one's group."""
        for term, component, part in zip(self.terms, self.components, parts, strict=True):
            new = np.flatnonzero(part.codes < 0)
            if term.levels is not None and len(new):
                number = pd.factorize(term.names(X).iloc[new])[0]
                alone = np.flatnonzero(number < 0)  # no label: a group of its own
                number[alone] = number.max(initial=-1) + 1 + np.arange(len(alone))
                yield component, part.columns[new], new, number

    def sample(self, posterior: Any, X: Any, n: int, rng: np.random.Generator) -> Array:
        """Draws (rows, n) of f, missing entries drawn too; rows of one new group share the draw of its effect."""
        if not self.terms and self.law is None:
            drawn: Array = posterior.sample(self.design(X), rng, n)
            return drawn
        parts = self._parts(X)
        design = self._design(X, parts)
        beta = posterior.coordinate_draws(rng, n) if self.terms else posterior.coefficient_draws(rng, n)
        f = np.column_stack([design.matvec(one) for one in beta])
        if self.law is not None:
            spread = np.column_stack([np.sqrt(np.maximum(design.excess(one), 0.0)) for one in beta])
            f += spread * rng.standard_normal(f.shape)
        for component, columns, new, number in self._unseen(X, parts):
            u = component.new_groups(rng, int(number.max()) + 1, n)
            f[new] += np.einsum("ia,ina->in", columns, u[number])
        return np.asarray(f)

    def imputed(self, rows: Any, names: list[str]) -> pd.DataFrame:
        """The missing entries of the training rows; ``rows`` are the positions of the fitted rows in the data."""
        assert self.entries is not None
        row, column, mean, sd = self.entries
        return pd.DataFrame({"row": rows[row], "feature": [names[j] for j in column], "mean": mean, "sd": sd})

    def random_effects(
        self, posterior: Any, stretch: float, level: float = 0.95, classes: Any = None
    ) -> dict[str, pd.DataFrame]:
        """For every grouping factor a table of its groups' effects in the units of the data."""
        found, start, reach = {}, self.size, float(ndtri(0.5 + 0.5 * level))
        for number, term in enumerate(self.terms):
            size = term.prior.size
            at = slice(start, start + size)
            start += size
            if isinstance(term.effect, Smooth):
                continue
            turn, m = term.turn(), len(term.levels)
            mean = posterior.mean[at].reshape(m, -1) @ turn.T
            table = {"mean": mean.ravel()}
            if posterior.has_spread:
                sd = stretch * self._spread(posterior, number, m, turn)
                table |= {"sd": sd.ravel(), "lower": (mean - reach * sd).ravel(), "upper": (mean + reach * sd).ravel()}
            if isinstance(posterior, DrawsPosterior):
                draws = widened(posterior, stretch).draws[..., at].reshape(-1, m, turn.shape[0]) @ turn.T
                tail = 0.5 * (1.0 - level)
                lower, upper = np.quantile(draws, (tail, 1.0 - tail), axis=0)
                table |= {"lower": lower.ravel(), "upper": upper.ravel()}
            index = table_index(term.levels, term.effect.group, term.effects)
            found[term.name] = pd.DataFrame(table, index=index)
        return found

    def curves(
        self, posterior: Any, stretch: float, level: float = 0.95, classes: Any = None
    ) -> dict[str, pd.DataFrame]:
        """For every smooth term its function, line and bend together: x, mean, and where there is a spread interval."""
        found, start, reach, tail = {}, self.size, float(ndtri(0.5 + 0.5 * level)), 0.5 * (1.0 - level)
        for number, term in enumerate(self.terms):
            curve: Any = term
            at = np.arange(start, start + term.prior.size)
            start += term.prior.size
            if not isinstance(term.effect, Smooth) or curve.spline is None:
                continue
            x = np.linspace(curve.spline.knots[0], curve.spline.knots[-1], _POINTS)
            own = np.flatnonzero(self.columns.keep == curve.place)
            line = (x[:, None] - self.columns.shift[own]) * self.columns.scale[own]
            bend, lead = curve.spline.columns(x), int(self.columns.intercept) + own
            rows, at = np.hstack((line, bend)), np.concatenate((lead, at))
            table = {"x": x, "mean": rows @ posterior.mean[at]}
            if posterior.has_spread:
                plain = np.zeros((_POINTS, self.size))
                plain[:, lead] = line
                part = GroupTerm(np.zeros(_POINTS, dtype=np.intp), 1, np.ascontiguousarray(bend))
                sd = stretch * np.sqrt(Blocks(self._alone(number, part, plain)).row_quad(posterior.root))
                lower, upper = table["mean"] - reach * sd, table["mean"] + reach * sd
                if isinstance(posterior, DrawsPosterior):
                    drawn = widened(posterior, stretch).draws[..., at] @ rows.T
                    lower, upper = np.quantile(drawn.reshape(-1, _POINTS), (tail, 1.0 - tail), axis=0)
                table |= {"sd": sd, "lower": lower, "upper": upper}
            found[term.name] = pd.DataFrame(table)
        return found

    def _spread(self, posterior: Any, number: int, groups: int, turn: Array) -> Array:
        """Standard deviations (groups, effects) of a term's effects in the units of the data."""
        found = np.empty((groups, len(turn)))
        for effect, weights in enumerate(turn):  # a row that sees one effect of one group has its variance
            own = GroupTerm(np.arange(groups), groups, np.ascontiguousarray(np.tile(weights, (groups, 1))))
            design = self._alone(number, own, np.zeros((groups, self.size)))
            found[:, effect] = np.sqrt(Blocks(design).row_quad(posterior.root))
        return found

    def _alone(self, number: int, own: GroupTerm, plain: Array) -> Any:
        """Rows with the numbers ``plain`` in the predictors, and of all terms only ``own`` at the place ``number``."""
        nothing = np.full(len(plain), -1, dtype=np.intp)
        parts = [GroupTerm(nothing, count, np.zeros((len(plain), width))) for count, width in map(_shape, self.terms)]
        return Grouped(Dense.plain(plain, intercept=False), (*parts[:number], own, *parts[number + 1 :]))

    def variance_components(self, noise: float, level: float = 0.95) -> pd.DataFrame:
        """Standard deviations and correlations between groups.

        ``intraclass`` is the correlation of two rows of a group beside the ``noise`` variance of a row, where slope
        columns have their mean. Only a likelihood says how large that noise is: the hinge does not.
        """
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

    def sampled(self, drawn: diagnostics.Sampled, beta: Array, wanted: diagnostics.Wanted) -> diagnostics.Sampled:
        """Draws for ArviZ, those of the terms under their own names; ``beta`` are those of all coefficients."""
        internal = {name for term in self.terms for name in term.labels}
        internal |= {name for name in drawn.variables if name.startswith("corr(")} if self.terms else set()
        kept = {name: value for name, value in drawn.variables.items() if name not in internal}
        for part in self.components:
            kept |= part.named_draws(wanted.draws, wanted.every)
        dims, coords = dict(drawn.dims), dict(drawn.coords)
        for name, (values, own) in self._effect_draws(beta).items():
            kept[name] = values
            dims[name] = [*dims.get("intercept", []), *own]
            coords |= own
        return drawn._replace(variables=kept, dims=dims, coords=coords)

    def _effect_draws(self, beta: Array) -> dict[str, tuple[Array, dict[str, list[Any]]]]:
        """For every grouping factor the effects of its groups in the units of the data, and their labels."""
        found, start = {}, self.size
        for term in self.terms:
            at = slice(start, start + term.prior.size)
            start = at.stop
            if isinstance(term.effect, Smooth):
                continue
            turn = term.turn()
            values = beta[..., at].reshape(*beta.shape[:-1], len(term.levels), -1) @ turn.T
            own: dict[str, list[Any]] = {f"{term.name}_level": [_label(level) for level in term.levels]}
            if len(term.effects) > 1:
                own[f"{term.name}_effect"] = list(term.effects)
            else:
                values = values[..., 0]
            found[f"effect_{term.name}"] = values, own
        return found

    def predictors(self, beta: Array, X: Any) -> tuple[Array, Array | None]:
        """Predictors (draws, rows) of given rows at draws of all coefficients, and what missing entries add to them."""
        design = self.design(X)
        f = np.stack([design.matvec(one) for one in beta])
        if self.law is None:
            return f, None
        return f, np.stack([np.maximum(design.excess(one), 0.0) for one in beta])


def _label(level: Any) -> Any:
    """A group as one label."""
    return " : ".join(str(part) for part in level) if isinstance(level, tuple) else level


def _shape(term: Coded) -> tuple[int, int]:
    """Groups of a term and numbers per group."""
    return (1, term.prior.size) if term.levels is None else (len(term.levels), term.prior.width)
