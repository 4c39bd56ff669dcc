"""From data to a model of one response: columns, terms of groups, and unknowns, in any combination."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.dense import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.designs.standardize import Columns, design_for
from softmargin.inference.settings import Fit
from softmargin.models.build import bound_prior, observed_columns, prepare
from softmargin.models.random_effects.terms import Coded, coded
from softmargin.models.reader import Reader, indicators
from softmargin.posterior.variance_components import Components
from softmargin.priors.composed.terms import Terms
from softmargin.priors.ridge import Ridge
from softmargin.refusals import refused
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.arrowhead import Arrowhead
from softmargin.solvers.full import Full
from softmargin.unknowns.missing import Missing
from softmargin.unknowns.term_scales import TermScales

__all__ = ["Composition", "Data", "as_columns", "compose", "some_rows"]

_PLAIN = 3000  # coefficients that an engine without elimination takes


class Data(NamedTuple):
    """Rows with a response, that count ``counts`` times each and weigh ``weight``, and how their columns are scaled."""

    X: Any  # an array, a sparse matrix or rows elsewhere, with labels where there are groups
    response: Array
    counts: Array
    weight: Array
    columns: Columns


class Composition(NamedTuple):
    """A model, and what relates its coefficients to the data; ``model.blocks.close()`` ends its threads."""

    model: Model
    columns: Columns
    basis: Array | None
    part: Array  # share of each row's message that one observation makes
    terms: tuple[Coded, ...] = ()
    missing: int | None = None  # which of the unknowns the missing entries are

    def reader(self, fit: Fit, unit: float = 1.0, kind: type[Reader] = Reader) -> Reader:
        """How the fitted model sees new rows; ``unit`` is that of the model's response in units of the data."""
        components = tuple(_components(term, fit.values, unit) for term in self.terms)
        if self.missing is None:
            return kind(self.columns, self.terms, components)
        found = fit.unknowns[self.missing]
        return kind(self.columns, self.terms, components, found.law, found.cells().to_user(self.columns))


def compose(
    recipe: Any,
    data: Data,
    *,
    loss: Any,
    prior: Any = None,
    solver: str | None = None,
    unknowns: tuple[Any, ...] = (),
    streams: Streams,
    workers: int = 1,
    part: bool = False,
    **ways: Any,
) -> Composition:
    """The model of the data that a recipe asks for.

    ``prior`` and ``solver`` replace those of the recipe; ``part`` says that the rows are some of the data's; ``ways``
    are those of ``prepare``.
    """
    prior = recipe.prior if prior is None else prior
    missing = len(unknowns) if recipe.incomplete else None
    if recipe.incomplete:
        unknowns = (*unknowns, Missing(weight=data.weight))
    if recipe.effects:
        terms = coded(recipe.effects, data.X, data.columns, part=part)
        model = _with_terms(recipe, data, terms, prior, loss, streams, workers)
        share = np.minimum(1.0, 1.0 / data.counts)
        if model.prior.selects:
            unknowns = (*unknowns, TermScales())
        return Composition(model.with_unknowns(unknowns), data.columns, None, share, terms, missing)
    solver = "cholesky" if recipe.incomplete else recipe.solver if solver is None else solver
    form: dict[str, Any] = {"loss": loss, "names": recipe.names, "workers": workers, "streams": streams}
    problem = prepare(*data, **(form | ways | {"prior": prior, "solver": solver}))
    if problem.model.prior.selects and problem.model.prior.parts:
        unknowns = (*unknowns, TermScales())
    model = problem.model.with_unknowns(unknowns) if unknowns else problem.model
    return Composition(model, data.columns, problem.coordinates.basis, problem.part, missing=missing)


def _with_terms(
    recipe: Any, data: Data, terms: tuple[Coded, ...], prior: Any, loss: Any, streams: Streams, workers: int
) -> Model:
    """The groups eliminated where that can be done, and as plain columns where engines need those."""
    X, columns, n = data.X, data.columns, len(data.response)
    parts = tuple(term.term(X) for term in terms)
    base: Any = design_for(X.X, columns)
    own = base.shape[1]
    free = np.zeros(own + sum(part.size for part in parts), dtype=bool)
    free[: int(columns.intercept)] = True
    fixed = bound_prior(prior, free[:own], columns, n, recipe.names)
    bound = Terms(Ridge(), tuple(term.prior for term in terms)).bind(free, n).with_fixed(fixed)
    if fixed.selects and not (fixed.parts[0].prior if fixed.parts else fixed).offers("beside"):
        raise ValueError(refused("point masses beside effects", prior=type(prior).__name__))
    reason = (
        ("a fit with missing values" if recipe.incomplete else "")
        or ("a prior that selects" if bound.selects else "")
        or ("inference='hmc'" if recipe.inference == "hmc" else "")
    )
    if not reason:
        grouped: Any = Grouped(base, parts)
        blocks = Blocks(grouped, data.response, data.weight, workers=workers)
        return Model(blocks, loss, bound, free, streams, Arrowhead(bound.coupling))
    way = "use inference='vb' or 'gibbs' with complete rows and a prior such as Ridge or Horseshoe"
    design = as_columns(base, parts, terms, reason, way)
    blocks = Blocks(design, data.response, data.weight, workers=workers)
    return Model(blocks, loss, bound, free, streams, Full(), known=sum(part.size for part in parts))


def as_columns(
    base: Any, parts: tuple[GroupTerm, ...], terms: tuple[Coded, ...], reason: str, way: str, copies: int = 1
) -> Dense:
    """The terms as plain columns behind those of the base, each with ``copies`` coefficients."""
    if any(term.prior.coupled for term in terms):
        raise ValueError(refused("correlated effects", reason=reason))
    size = copies * (base.shape[1] + sum(part.size for part in parts))
    if size > _PLAIN:
        raise ValueError(refused("many groups", reason=reason, size=size, most=_PLAIN, way=way))
    rows = np.column_stack((base.rows(np.arange(base.shape[0]))[:, int(base.intercept) :], indicators(parts)))
    return Dense.plain(rows, intercept=base.intercept)


def some_rows(recipe: Any, X: Any, rows: Any) -> tuple[Any, Any]:
    """Some of the rows, to be fitted on their own: with their groups, and the predictors alone."""
    own = X.at(rows) if recipe.effects or isinstance(X, Elsewhere) else X[rows]
    if recipe.incomplete:
        own = own._replace(X=observed_columns(own.X)) if recipe.effects else observed_columns(own)
    return own, own.X if recipe.effects else own


def _components(term: Coded, values: dict[Any, Any], unit: float) -> Components:
    """The covariance of a term's effects from what an engine says of its labels."""
    if term.labels in values:  # draws of whole matrices
        return Components(term.name, term.effects, term.turn(), unit**2 * values[term.labels])
    sd = np.stack([np.atleast_1d(values[label]).ravel() for label in term.labels], axis=-1)
    S = np.zeros((len(sd), sd.shape[1], sd.shape[1]))
    S[:, range(sd.shape[1]), range(sd.shape[1])] = sd**2
    for a, first in enumerate(term.labels):
        for b in range(a + 1, len(term.labels)):
            correlation = np.ravel(values.get(f"corr({first}, {term.labels[b]})", 0.0))
            S[:, a, b] = S[:, b, a] = correlation * sd[:, a] * sd[:, b]
    return Components(term.name, term.effects, term.turn(), unit**2 * S, values.get(None))
