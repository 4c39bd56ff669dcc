"""What a fit has to say when something is not as it should be."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from softmargin.exceptions import warn_user
from softmargin.inference.settings import Fit
from softmargin.posterior import diagnostics
from softmargin.posterior.classes import ClassDraws
from softmargin.posterior.coefficients import DrawsPosterior

__all__ = ["notice_of_fits", "warn_of_fits"]

_DISAGREE = 0.1  # range of an inclusion probability over chains that calls for a warning


def warn_of_fits(fits: Sequence[Fit], inference: str, tol: float) -> None:
    """At most one warning: what ``notice_of_fits`` says."""
    message = notice_of_fits(fits, inference, tol)
    if message:
        warn_user(message, ConvergenceWarning)


def notice_of_fits(fits: Sequence[Fit], inference: str, tol: float) -> str:
    """A sentence about the worst of several fits: stopped, not converged, or chains that disagree; or nothing."""
    many = f" in {{}} of {len(fits)} pairs" if len(fits) > 1 else ""
    message = ""
    stopped = [fit for fit in fits if fit.outcome.interrupted]
    open_ = [fit for fit in fits if not fit.outcome.converged]
    spread = max(_disagreement(fit) for fit in fits)
    if stopped:
        last = max(stopped, key=lambda fit: fit.outcome.n_iter).outcome
        where = f"{last.n_iter} iterations{many.format(len(stopped))}{last.reason}"
        message = f"{inference} was stopped after {where}; what was computed is kept."
    elif open_:
        worst = max(open_, key=lambda fit: fit.outcome.change)
        change = worst.outcome.change  # infinite after steps that no run may end with
        moved = f"relative change {change:.1e}" if math.isfinite(change) else "still in its first steps"
        usual = f"{moved} after {worst.outcome.n_iter} iterations, tolerance {tol:.0e}; raise max_iter."
        message = f"{inference} did not converge{many.format(len(open_))}: {worst.outcome.reason or usual}"
    elif any(fit.notice for fit in fits):
        message = next(fit.notice for fit in fits if fit.notice)
    elif spread > _DISAGREE:
        message = (
            f"the chains disagree on inclusion probabilities by up to {spread:.2f} (see inclusion_range in summary()); "
            "raise draws and warmup."
        )
    elif any(fit.inclusion is None for fit in fits):
        drawn = [fit.posterior for fit in fits if isinstance(fit.posterior, (DrawsPosterior, ClassDraws))]
        message = diagnostics.not_mixed(drawn)
    return message


def _disagreement(fit: Fit) -> float:
    """Largest range of an inclusion probability over the chains of a fit."""
    if fit.inclusion is None or len(fit.inclusion.chains) < 2:
        return 0.0
    return float(np.ptp(fit.inclusion.chains, axis=0).max())
