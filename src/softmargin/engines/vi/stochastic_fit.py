"""A stochastic variational fit from start to end: steps, the bound over all rows, predictors without their own rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Outcome, run
from softmargin.core.model import Model, require
from softmargin.engines.vi.stochastic import SVI, Sums, SVIState, distance, posterior_of, sums_of
from softmargin.rows.in_memory import Cell
from softmargin.survival.watch import present

__all__ = ["SVIFit", "fit_svi", "full_bound", "unsettled"]

_STEPS = 200  # at least, in a fit
_EPOCHS = 3  # at least, likewise
_SEARCH = 0.6  # power with which steps become shorter at first
_SETTLED = 1.0  # standard deviations that a coefficient may be from where all rows want it, in the mean


class SVIFit(NamedTuple):
    """A fit: the model and the state, from which it can go on."""

    model: Model
    state: SVIState
    outcome: Outcome


def fit_svi(
    model: Model, engine: SVI | None = None, *, epochs: int | None = None, state: SVIState | None = None, **watch: Any
) -> SVIFit:
    """Fit by batches of rows; memory does not grow with the rows.

    Parameters
    ----------
    model : Model
        Rows in any design that has ``pick``, dense, sparse or of inducing points; a loss; a prior.
    engine : SVI
        Sizes and options.
    epochs : int, optional
        Times that each row is used: 3, more where that makes fewer than 200 steps; 1 where ``state`` is given.
    state : SVIState, optional
        Of a fit to other rows, to which these are added.
    **watch
        ``progress`` and ``callback`` of the run.
    """
    engine = SVI() if engine is None else engine
    require(engine, loss=model.loss, prior=model.prior)
    n = len(model.y)
    batches = math.ceil(n / engine.batch)
    if state is not None:
        steps = batches * (1 if epochs is None else epochs)
        outcome = run(engine, model, max_iter=steps, state=engine.extended(state, n), **watch)
    else:
        if epochs is None:
            epochs = max(_EPOCHS, math.ceil(_STEPS / batches))
        since = present().behind()
        if since:
            more = batches * ((epochs + 1) // 2)
            outcome = run(replace(engine, decay=1.0), model, max_iter=more, since=since, main=True, **watch)
        else:
            outcome = _two_phases(model, engine, batches, epochs, watch)
    outcome.converged = not outcome.interrupted
    if state is None and outcome.converged:  # rows of an earlier fit are no longer here
        off = math.sqrt(unsettled(model, engine, outcome.state))
        outcome.converged = off <= _SETTLED
        outcome.reason = (
            f"the rows together want coefficients {off:.1e} standard deviations from those of the last batches, and "
            f"at most {_SETTLED:.0f} is wanted; use inference='vb', or engine_options with a larger batch."
        )
    return SVIFit(model, outcome.state, outcome)


def _two_phases(model: Model, engine: SVI, batches: int, epochs: int, watch: dict[str, Any]) -> Outcome:
    """Long steps that forget where the run came from, then as many epochs in which every row counts the same.

    Whole epochs go through all rows, so that their average has next to no noise from the choice of batches.
    """
    calm = (epochs + 1) // 2
    first = Outcome(engine.init(model))
    if epochs > calm:
        first = run(
            replace(engine, decay=_SEARCH), model, max_iter=batches * (epochs - calm), state=first.state, **watch
        )
        if first.interrupted:
            return first
    state = first.state._replace(
        batches=max(first.state.batches, 1.0) ** _SEARCH
    )  # the next step is as long as the last
    outcome = run(replace(engine, decay=1.0), model, max_iter=batches * calm, state=state, main=True, **watch)
    outcome.trace, outcome.n_iter = first.trace + outcome.trace, first.n_iter + outcome.n_iter
    return outcome


def full_bound(fit: SVIFit, engine: SVI) -> float:
    """The bound over all rows, in one pass."""
    model, state = fit.model, fit.state

    def collect(cell: Cell) -> tuple[float]:
        rows = model.blocks.pick(np.arange(cell.lo, cell.hi))
        return (float(engine.messages(model, rows, state.q, state.prior).bound.sum()),)

    return float(model.blocks.reduce(collect)[0]) + state.prior.bound + state.q.entropy


def unsettled(model: Model, engine: SVI, state: SVIState) -> float:
    """Squared distance a coefficient from q's mean to the one that the messages of all rows at q ask for."""

    def collect(cell: Cell) -> tuple[Array, Array, float]:
        rows = model.blocks.pick(np.arange(cell.lo, cell.hi))
        sums = sums_of(rows.design, engine.messages(model, rows, state.q, state.prior))
        return tuple((cell.hi - cell.lo) * part for part in sums)  # type: ignore[return-value]

    n = float(len(model.y))
    A, c, rest = model.blocks.reduce(collect)
    there, _ = posterior_of(model, Sums(A / n, c / n, float(rest) / n), n, state.q, state.prior)
    return distance(state.q, there) / model.size
