"""From data to a model: columns standardized, coordinates chosen, parts bound to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array, elementwise
from softmargin.core.capabilities import require
from softmargin.core.design import Design
from softmargin.core.model import Model
from softmargin.core.prior import Prior, PriorBase
from softmargin.core.space import RowBasis
from softmargin.core.validation import check_choice
from softmargin.designs.imputed import standardize_observed
from softmargin.designs.sparse import Sparse
from softmargin.designs.standardize import Columns, as_given, design_for, standardize, standardize_rows
from softmargin.models.prior_choice import PRIORS, always_mask
from softmargin.priors.composed.by_column import PriorByColumn
from softmargin.priors.group_lasso import GroupLasso
from softmargin.priors.laplace_zero import LaplaceZero
from softmargin.priors.scaled import Centred, Scaled
from softmargin.priors.spike_slab import SpikeSlab
from softmargin.refusals import refused
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.solvers.cg.solver import ConjugateGradients
from softmargin.solvers.cholesky import Cholesky
from softmargin.solvers.coordinates import Coordinates
from softmargin.solvers.dual import Dual
from softmargin.solvers.row_span import distinct

__all__ = [
    "SOLVERS",
    "Problem",
    "bound_prior",
    "checked",
    "coordinates_for",
    "kept_columns",
    "observed_columns",
    "prepare",
    "prior_of",
]

SOLVERS: dict[str, Any] = {"cholesky": Cholesky, "dual": Dual, "cg": ConjugateGradients}
_SPARSE_POWER = 0.5  # 0.3 and 0.5 differ by 0.0005 in log loss over seven sets of text; see docs/explanation/choices.md
_SMALL = 1000  # columns up to which the mode of more rows than columns is found with a Gram matrix, sparse or not
_FEW = 500  # rows up to which matrices of their size take no time worth saving
_ROOM = 1e9  # bytes of dense matrices above which a sparse problem is solved by products alone


class Problem(NamedTuple):
    """A model with how its coordinates relate to the user's columns; ``model.blocks.close()`` ends its threads."""

    columns: Columns
    coordinates: Coordinates
    model: Model
    part: Array  # share of each row's message that one observation makes


def prior_of(prior: Any) -> Any:
    """The prior that a name or an object stands for."""
    if isinstance(prior, str):
        check_choice("prior", prior, list(PRIORS))
        return PRIORS[prior]()
    if isinstance(prior, Mapping):
        if not prior:
            raise ValueError("prior={} says nothing; use prior={...: Ridge()}, or a name.")
        return PriorByColumn({key: prior_of(each) for key, each in prior.items()})
    if not isinstance(prior, Prior):
        raise ValueError(f"prior must be one of {list(PRIORS)} or a prior object; got {prior!r}.")
    return prior


def kept_columns(X: Any, count: Array, *, intercept: bool, standardized: bool | str, complete: bool = False) -> Columns:
    """The columns that vary, with their centres and scales; entries may be missing unless X is ``complete``.

    "auto" standardizes dense columns and divides sparse ones by the root of their standard deviation. That lies between
    "every word matters as much", where a word of two rows moves these two enormously, and "every occurrence counts as
    much".
    """
    sparse: bool = sp.issparse(X)
    power = (_SPARSE_POWER if sparse else 1.0) if isinstance(standardized, str) else float(bool(standardized))
    how: dict[str, Any] = {"intercept": intercept, "power": power}
    with one_blas_thread():
        if isinstance(X, Elsewhere):
            rows = X.rows(X.design(as_given(X.shape[1])), None, count, 1)
            columns = standardize_rows(rows, float(count.sum()), names=X.names, **how)
        else:
            columns = (standardize if sparse or complete else standardize_observed)(X, count, **how)
    if not len(columns.keep) and not intercept:
        raise ValueError("all columns of X are zero and fit_intercept=False, so there is nothing to fit.")
    return columns


def observed_columns(X: Array) -> Array:
    """Columns without any value in some of the rows as constants: they say nothing there."""
    return np.where(np.isnan(X).all(axis=0), 0.0, X)


def prepare(
    X: Any,
    sign: Array,
    count: Array,
    weight: Array,
    columns: Columns,
    *,
    prior: Any,
    loss: Any,
    solver: str = "auto",
    names: Any = None,
    workers: int = 1,
    streams: Streams,
    point: bool = False,
    gaussian: bool = False,
) -> Problem:
    """The model of rows X with responses ``sign``, that count ``count`` times each and weigh ``weight``.

    ``point`` says that its mode alone is wanted, ``gaussian`` that a Gaussian approximation is.
    """
    if isinstance(X, Elsewhere):
        _check_elsewhere(X, prior, solver)
    given = design_for(X, columns)
    ways = {"products": True, "point": point, "gaussian": gaussian}
    coordinates = coordinates_for(given, prior, solver, **ways)
    span = None if coordinates.basis is None else RowBasis(given, coordinates.basis)
    free = np.zeros(coordinates.design.shape[1], dtype=bool)
    free[: int(columns.intercept)] = True
    make: Any = X.rows if isinstance(X, Elsewhere) else _in_memory
    blocks = make(coordinates.design, sign, weight, workers)
    rows = _different(coordinates.design) if len(free) > len(sign) else len(sign)
    model = Model(blocks, loss, bound_prior(prior, free, columns, rows, names), free, streams, coordinates.space, span)
    return Problem(columns, coordinates, model, elementwise(lambda each: np.minimum(1.0, 1.0 / each), count))


def _check_elsewhere(X: Elsewhere, prior: Any, solver: str) -> None:
    """Refuse what needs the columns of all rows at once."""
    if prior.point_masses:
        raise ValueError(refused("point masses elsewhere", kind=X.kind))
    n, p = X.shape
    if p >= n or solver not in ("auto", "cholesky"):
        raise ValueError(refused("wide elsewhere", kind=X.kind, solver=solver, rows=n, columns=p))


def _in_memory(design: Design, y: Array, weight: Array, workers: int) -> Blocks:
    return Blocks(design, y, weight, workers=workers)


def _different(design: Any) -> int:
    """How many different rows there are: with more columns, that many directions, as often as a row may be repeated."""
    return len(np.unique(distinct(design.X)) if isinstance(design, Sparse) else np.unique(design.X, axis=0))


def coordinates_for(
    design: Design, prior: Any, solver: str, *, products: bool = False, point: bool = False, gaussian: bool = False
) -> Coordinates:
    """The coordinates that a solver works in.

    "auto" takes the space of the rows where that is smaller and allowed; and, where ``products`` alone will do for what
    follows, those where either would need too large a matrix, or where they find a ``point`` exactly and
    sooner, or a ``gaussian`` of sparse rows of more columns much sooner.
    """
    if solver == "cg" and not products:
        raise ValueError(refused("products of classes"))
    chosen = SOLVERS[_suited(design, prior, products, point, gaussian) if solver == "auto" else solver]()
    require(chosen, loss=None, prior=prior)
    coordinates: Coordinates = chosen.coordinates(design)
    return coordinates


def _suited(design: Design, prior: Any, products: bool, point: bool, gaussian: bool) -> str:
    n, q = design.shape
    if not prior.isotropic:
        return "cholesky"
    wide = q > n
    # what a fit holds at once: X X' with its factor and four bases, or the Gram matrix, its factor and its inverse
    room = 8.0 * (n * (3.0 * n + 4.0 * q) if wide else 3.0 * q * q)
    sooner = (point and (wide or q > _SMALL)) or (gaussian and wide and n > _FEW)
    if products and isinstance(design, Sparse) and (room > _ROOM or sooner):
        return "cg"
    return "dual" if wide else "cholesky"


def bound_prior(prior: Any, free: Any, columns: Columns, rows: int, names: Any) -> Any:
    """The prior on given coefficients, names of columns resolved."""
    if isinstance(prior, Centred):
        return prior.around(bound_prior(prior.prior, free, columns, rows, names), columns, names)
    if isinstance(prior, PriorByColumn | GroupLasso):
        return prior.of_columns(free, rows, columns, names)
    if isinstance(prior, Scaled):
        return prior.of_columns(free, rows, columns.keep, columns.n_features)
    if not prior.point_masses:
        return checked(prior, prior.bind(free, rows))
    if isinstance(prior, SpikeSlab | LaplaceZero):
        prior = prior.of_columns(columns)
    return prior.bind(free, rows, always=always_mask(prior.always_include, columns, names))


def checked(prior: Any, bound: Any) -> Any:
    """What a prior of the user's own has made of its coefficients, refused where no inference could take it."""
    if not isinstance(bound, PriorBase):
        raise ValueError(
            f"{type(prior).__name__}.bind must return an object that derives from softmargin.priors.PriorBase; got "
            f"{bound!r}."
        )
    if not bound.offers("start") or "scale" not in bound.start().values:
        raise ValueError(
            f"what {type(prior).__name__}.bind returns needs a method start() that gives PriorState(precision, "
            "{'scale': ...}); write it, as check_prior wants it."
        )
    return bound
