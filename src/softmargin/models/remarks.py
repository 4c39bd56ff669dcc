"""What a fit says about the model itself: that it predicts nothing, or that another likelihood would see more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.engines.vi.gaussian import GaussianVI, VIState
from softmargin.exceptions import ModelWarning, warn_user
from softmargin.inference.choices import entropy, mean_and_error
from softmargin.inference.mode_left_out import Deferred
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.variational import fit_vb
from softmargin.losses.logit import Logit

__all__ = ["compared_with_logit", "remark_on_models", "warn_of_models"]

_NOTHING = 0.99  # share of the entropy of the class shares from which a score says nothing
_OPEN = 0.7  # share of the entropy below which the hinge is not flat, and no other likelihood is tried
_CLEARLY = 0.01  # fall of the log loss, nats per row, that is worth a sentence
_ERRORS = 2.0  # and its size in standard errors of the paired differences
_TRUSTED = 0.5  # largest k v up to which the logit's own leave-one-out score is level with refits
_STEPS, _ROUGH = 20, 1e-3  # limits of a fit that is only compared, and by a hundredth of a nat


def compared_with_logit(model: Model, settings: Settings, weight: Array, fit: Fit) -> str:
    """A sentence where a quick logistic fit of the same rows predicts rows left out clearly better than the hinge.

    ``model`` has the rows under the hinge, and ``weight`` says how often each of them counts.
    """
    held: Any = fit.held
    label = (model.y > 0.0).astype(np.intp)
    hinge = model.loss.margin_slope > 0.0 and not model.prior.selects and model.prior.offers("expect")
    if not hinge or isinstance(held, Deferred) or model.size > len(label):
        return ""
    score = float(fit.loo.score)
    if not score > _OPEN * entropy(label, weight):
        return ""
    quiet = settings.aside(readout=settings.readout.quick(), max_iter=_STEPS, tol=_ROUGH)
    logit = replace(model, loss=Logit()).with_weight(weight)
    other = fit_vb(logit, quiet, start=_started(logit, weight, fit))
    if other.outcome.interrupted:  # Ctrl-C is not lost: the fit before it is kept, and says that it was stopped
        fit.outcome.interrupted = True
    if not other.loo.max_kv <= _TRUSTED or other.outcome.interrupted:
        return ""
    gain = _losses(held, label) - _losses(other.held, label)
    mean, error = mean_and_error(gain, weight)
    if not mean > max(_CLEARLY, _ERRORS * error):
        return ""
    return (
        f"the hinge is flat here, since too few rows reach its margin: left-out rows are predicted better by "
        f"likelihood='logit' (log loss {other.loo.score:.3f} against {score:.3f}); use it, or class_weight='balanced'."
    )


def _started(logit: Model, weight: Array, fit: Fit) -> VIState | None:
    """A start for the logistic fit: the coefficients of the hinge in units of the logit, which its link knows."""
    vi, a = fit.vi, fit.loo.a
    if vi is None or not isinstance(vi.q.root, np.ndarray):
        return None
    p = fit.loo.link.probability(vi.f, vi.v)
    return GaussianVI().at(logit, weight * p * (1.0 - p), vi.Du / a**2, a * vi.q.mean)


def _losses(held: Any, label: Any) -> Array:
    """Log loss of every training row, left out."""
    p = held.probability
    return -np.log(np.maximum(np.where(label > 0, p, 1.0 - p), 1e-15))


def warn_of_models(fitted: Any, least: float) -> None:
    """At most one warning: what ``remark_on_models`` says."""
    message = remark_on_models(fitted, least)
    if message:
        warn_user(message, ModelWarning)


def remark_on_models(fitted: Any, least: float) -> str:
    """A sentence: that the model predicts no better than the class shares, or what a part of it remarks; or nothing.

    ``least`` is the entropy of the class shares.
    """
    fits = [model.fit for model in fitted.parts]
    if any(fit.outcome.interrupted for fit in fits):
        return ""
    message = next((fit.remark for fit in fits if fit.remark), "")
    score = _score(fitted)
    if score > _NOTHING * least:
        message = (
            f"this model predicts no better than the class frequencies: left-out rows have a log loss of {score:.3f}, "
            f"the frequencies alone {least:.3f}; the columns say next to nothing, or another likelihood, prior or "
            "learning_rate is needed."
        )
    return message


def _score(fitted: Any) -> float:
    """Leave-one-out log loss; of a mode that puts it off, that of the quick fit by which its rate was chosen."""
    part = fitted.parts[0]
    if len(fitted.parts) > 1 or not isinstance(part.fit.held, Deferred):
        return float(fitted.loo.score)
    record = None if part.chosen is None else part.chosen.record
    if record is None:
        return float("nan")
    table = record.table()
    return float(table.loc[table["taken"], "score"].iloc[0])
