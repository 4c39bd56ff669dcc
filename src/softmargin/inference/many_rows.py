"""Many rows: fits that look at all of them a few times only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.core.unknown import implied
from softmargin.core.visits import Face, Moments, messages
from softmargin.engines.mode.smoothed_start import many_rows, picked, spread_rows
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.engines.vi.screened import ScreenedVI
from softmargin.inference.settings import Fit, Settings, options_of, run_engine
from softmargin.inference.stochastic import infer_svi
from softmargin.inference.variational import fit_vb
from softmargin.refusals import refused

__all__ = ["by_batches", "choice_rows", "of_many_rows", "sampled", "suits"]

_ROWS, _RATIO = 5_000, 10  # rows, and rows for each coefficient, that a learning rate is chosen on
_MANY = 4  # times that number from which on it pays to leave the others out
_SAMPLE = 4000  # rows by which two covariances are compared
_ALIKE = 3e-3  # relative difference of variances that no probability shows


def suits(model: Model) -> bool:
    """Whether a model has so many rows that ``of_many_rows`` is for it."""
    plain = not (model.prior.selects or model.unknowns or model.prior.parts)
    return plain and not model.blocks.stays and many_rows(model)  # on a device all rows cost less than some at home


def choice_rows(n: int, size: int) -> Any:
    """Places of the rows that a learning rate is chosen on: of very many for ``size`` coefficients, a subsample."""
    few = max(_ROWS, _RATIO * size)
    return spread_rows(n, few) if n >= _MANY * few else np.arange(n)


def sampled(model: Model, settings: Settings) -> tuple[Any, Model, Settings]:
    """Places of a subsample, and the problem of these rows, that a learning rate can be chosen on.

    Its effect on predictions vanishes as rows grow in number, because all rates then have the same limit.
    """
    index = spread_rows(len(model.y), max(_ROWS, _RATIO * model.size))
    few, readout = settings.readout.some(model, index)
    return index, few, replace(settings, readout=readout)


def _variances(model: Model, root: Any, near: Array) -> Array:
    """Variance of every predictor; from those of a covariance that is all but the same, where a sample says it is."""
    some = spread_rows(len(near), _SAMPLE)
    ratio = picked(model, some).blocks.row_quad(root) / near[some]
    if float(np.abs(ratio - 1.0).max()) > _ALIKE:
        return model.blocks.row_quad(root)
    return near * float(ratio.mean())


def _moments(model: Model, mean: Array, root: Any, near: Array) -> Any:
    """Moments of the predictors, left with the rows; variances may come from those of a covariance nearby."""
    return model.blocks.place(Moments(model.blocks.matvec(mean), _variances(model, root, near)))


def by_batches(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """By batches of rows; of very many rows only some have leave-one-out predictors.

    What is not known beside the coefficients is learned from some of the rows, and then given: that many rows tell a
    noise level as well as all of them tell the coefficients.
    """
    if any(unknown.changes_rows for unknown in model.unknowns) or model.prior.parts:
        raise ValueError(refused("batches of incomplete rows or groups"))
    if model.prior.selects:
        raise ValueError(refused("batches of point masses"))
    states: tuple[Any, ...] = ()
    if model.unknowns:
        few, readout = settings.readout.some(model, spread_rows(len(settings.readout.part), _ROWS))
        told = replace(settings, readout=readout, options={}, callback=None, main=False)
        quick = fit_vb(few, told) if first is None else first
        if quick.outcome.interrupted:
            raise KeyboardInterrupt("interrupted while the batches were being prepared")
        states = quick.unknowns
        model = implied(model, states)
    done = infer_svi(model, settings, unknowns=states)
    return done.fit._replace(held=done.fit.held.scattered(done.rows, len(settings.readout.part)))


def of_many_rows(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """As the usual one; leave-one-out predictors are those of the Gaussian with the moments of the mixture.

    That is what they tend to where a row has next to no part in its own predictor.
    """
    options_of(settings)
    outcome = run_engine(ScreenedVI(settings.tol), model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)
    state = outcome.state.whole
    scales, weights, mean, root = np.array([state.prior.values["scale"]]), np.ones(1), state.q.mean, state.q.root
    if model.prior.stretch(model.prior.start()) is not None and not outcome.interrupted:
        try:
            mixture = mix_over_scale(outcome.state.small, outcome.state.few)
            mean, root, scales, weights = mixture.mean, mixture.root, mixture.scales, mixture.weights
            rows = _moments(model, mean, root, state.v)
            state = state._replace(rows=model.blocks.keep(messages, Face(model.loss, "gaussian"), rows)[0])
        except KeyboardInterrupt:  # the fit itself is done: only the spread of the scale is missing
            outcome.interrupted = True
    posterior = settings.readout.gaussian(mean, root, scales, weights)
    scale = float(np.exp(weights @ np.log(scales)))
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, vi=outcome.state.whole)
