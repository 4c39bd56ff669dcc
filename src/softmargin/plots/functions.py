"""Pictures as functions: each makes a display and returns its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from softmargin.core.validation import has_probabilities
from softmargin.plots.displays.chains import AgreementDisplay, TracesDisplay
from softmargin.plots.displays.coefficients import CoefficientsDisplay, InclusionDisplay
from softmargin.plots.displays.decisions import ConfusionDisplay, MarginsDisplay
from softmargin.plots.displays.path import PathDisplay
from softmargin.plots.displays.probabilities import CalibrationDisplay, ProbabilitiesDisplay
from softmargin.plots.displays.surfaces import BoundaryDisplay, IntervalsDisplay
from softmargin.plots.displays.terms import RandomEffectsDisplay, SmoothDisplay
from softmargin.plots.style import INK, need_matplotlib

__all__ = [
    "agreement",
    "boundary",
    "calibration",
    "coefficients",
    "confusion",
    "demo_figure",
    "inclusion",
    "intervals",
    "margins",
    "path",
    "probabilities",
    "random_effects",
    "smooth",
    "traces",
]


def coefficients(model: Any, ax: Any = None, top: int = 20, *, level: float = 0.95) -> Any:
    """Draw the coefficients farthest from zero, as ``CoefficientsDisplay.from_estimator`` does; return the axes."""
    return CoefficientsDisplay.from_estimator(model, top=top, level=level, ax=ax).ax_


def inclusion(model: Any, ax: Any = None, top: int = 30, threshold: float = 0.5) -> Any:
    """Draw inclusion probabilities, as ``InclusionDisplay.from_estimator`` does; return the axes."""
    return InclusionDisplay.from_estimator(model, top=top, threshold=threshold, ax=ax).ax_


def calibration(models: Any, X: Any = None, y: Any = None, ax: Any = None) -> Any:
    """Draw a reliability diagram: how often a class occurs where it is given probability p.

    The curve is the increasing function of p that fits the outcomes best, so there are no bins to choose; its points
    are the levels of that function, larger where they hold more rows. The band is where 90 % of such curves lie if the
    first model is right about every row.

    Parameters
    ----------
    models : dict or classifier
        From a name to a fitted classifier or to an array with the probability of the second class; or one fitted
        classifier of this library, of any number of classes.
    X : array, sparse matrix, data frame or None
        Predictors; None where only probabilities are given, or for the training rows of one classifier, each left out.
    y : array
        What came out.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib axes

    References
    ----------
    Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for probabilistic classifiers, PNAS 118.
    """
    if not isinstance(models, Mapping):
        return CalibrationDisplay.from_estimator(models, X, y, ax=ax).ax_
    if not models:
        raise ValueError("calibration needs at least one model or array of probabilities; the dict is empty.")
    given = {name: _second_class(model, X) for name, model in models.items()}
    return CalibrationDisplay.from_predictions(y, given, ax=ax).ax_


def _second_class(model: Any, X: Any) -> Any:
    """Probabilities of the second class: given, or predicted by a classifier of this library or another."""
    if has_probabilities(model):
        p = np.asarray(model.predict_proba(X))
        return p[:, 1] if p.shape[1] == 2 else p
    try:
        return np.asarray(model, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            "plots.calibration needs fitted classifiers, or arrays with the probability of the second class; got "
            f"{type(model).__name__}."
        ) from None


def probabilities(model: Any, X: Any = None, y: Any = None, ax: Any = None) -> Any:
    """Draw what is predicted and how surely, as ``ProbabilitiesDisplay.from_estimator`` does; return the axes."""
    return ProbabilitiesDisplay.from_estimator(model, X, y, ax=ax).ax_


def margins(model: Any, X: Any = None, y: Any = None, ax: Any = None) -> Any:
    """Draw how far rows are from the boundary, as ``MarginsDisplay.from_estimator`` does; return the axes."""
    return MarginsDisplay.from_estimator(model, X, y, ax=ax).ax_


def confusion(model: Any, X: Any = None, y: Any = None, ax: Any = None, *, costs: Any = None) -> Any:
    """Draw a confusion matrix, as ``ConfusionDisplay.from_estimator`` does; return the axes."""
    return ConfusionDisplay.from_estimator(model, X, y, costs=costs, ax=ax).ax_


def random_effects(model: Any, ax: Any = None, top: int = 1000) -> Any:
    """Draw the effects of groups, as ``RandomEffectsDisplay.from_estimator`` does; return the array of axes."""
    return RandomEffectsDisplay.from_estimator(model, top=top, ax=ax).ax_


def smooth(model: Any, ax: Any = None, *, level: float = 0.95) -> Any:
    """Draw smooth terms with their bands, as ``SmoothDisplay.from_estimator`` does; return the array of axes."""
    return SmoothDisplay.from_estimator(model, level=level, ax=ax).ax_


def boundary(model: Any, X: Any, y: Any = None, ax: Any = None, *, columns: Any = None) -> Any:
    """Draw a decision boundary over two columns, as ``BoundaryDisplay.from_estimator`` does; return the axes."""
    return BoundaryDisplay.from_estimator(model, X, y, columns=columns, ax=ax).ax_


def intervals(
    model: Any, X: Any = None, y: Any = None, ax: Any = None, *, column: Any = None, level: float = 0.95
) -> Any:
    """Draw predictive intervals of a regression, as ``IntervalsDisplay.from_estimator`` does; return the axes."""
    return IntervalsDisplay.from_estimator(model, X, y, column=column, level=level, ax=ax).ax_


def path(path: Any, ax: Any = None, top: int = 10, mark: float | None = None) -> Any:
    """Draw a path of coefficients, as ``PathDisplay.from_path`` does; return the array of axes."""
    return PathDisplay.from_path(path, top=top, mark=mark, ax=ax).ax_


def traces(model: Any, features: Sequence[Any] | None = None, mode: Any = None, ax: Any = None) -> Any:
    """Draw chains, as ``TracesDisplay.from_estimator`` does; return the array of axes."""
    return TracesDisplay.from_estimator(model, features, mode=mode, ax=ax).ax_


def agreement(first: Any, second: Any = None, ax: Any = None) -> Any:
    """Compare two fits, or the chains of one, as ``AgreementDisplay.from_estimator`` does; return the axes."""
    return AgreementDisplay.from_estimator(first, second, ax=ax).ax_


def demo_figure(model: Any, others: Mapping[str, Any], X: Any, y: Any, *, top: int = 15) -> Any:
    """Draw coefficients, reliability and probabilities side by side.

    Parameters
    ----------
    model : BayesianSVC
        A fitted model with a posterior.
    others : dict
        Classifiers or probabilities to compare the reliability with, by name.
    X, y : data of shape (n, p), array of shape (n,)
        Rows that were not used in the fit, and their labels.
    top : int
        How many coefficients to draw.

    Returns
    -------
    matplotlib figure
        Not attached to a window: ``figure.savefig(path)`` writes it.
    """
    need_matplotlib("plots.demo_figure")
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(12.6, 4.5), layout=ConstrainedLayoutEngine(wspace=0.05))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1.0, 1.0))
    coefficients(model, left, top)
    calibration({"softmargin": model, **others}, X, y, middle)
    middle.set(aspect="auto")
    probabilities(model, X, y, right)
    titles = ("Which columns matter, and how surely", "Are the probabilities right?", "How sure is each prediction?")
    for axes, title in zip((left, middle, right), titles, strict=True):
        axes.set_title(title, fontsize=11, loc="left", color=INK, pad=10)
    return figure
