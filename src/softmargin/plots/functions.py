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
    """Draw the ``top`` coefficients that are farthest from zero, with their intervals.

    Coefficients are drawn for a change of one standard deviation of their column, so that they compare (in the units of
    the columns where the model did not standardize). "Farthest" is by ``|mean| / sd``, or by ``|mean|`` where there
    is no sd. Filled markers: the interval leaves zero out. With more than two classes there is a marker per pair or
    class, or a field of colours where there are more than six.

    Parameters
    ----------
    model : BayesianSVC, BayesianSVR or Formula
        A fitted model.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.
    top : int
        How many to draw.
    level : float
        Probability of the intervals.

    Returns
    -------
    matplotlib axes
    """
    return CoefficientsDisplay.from_estimator(model, top=top, level=level, ax=ax).ax_


def inclusion(model: Any, ax: Any = None, top: int = 30, threshold: float = 0.5) -> Any:
    """Draw the ``top`` largest inclusion probabilities, coloured by the sign of the coefficient.

    The colour is the probability of a positive coefficient given that the column is in; whiskers are the range over
    chains. Faint bars stay below the threshold.

    Parameters
    ----------
    model : BayesianSVC, BayesianSVR or Formula
        A fitted model whose prior has point masses.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.
    top : int
        How many to draw.
    threshold : float
        Where the line is; 0.5 bounds the median model.

    Returns
    -------
    matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 3.
    """
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
    """Draw the probability of the second class against f, each row with its 95 % interval of f.

    With more than two classes: the probability of the true class, rows of each class in its order.

    Parameters
    ----------
    model : BayesianSVC, BayesianKernelClassifier or Formula
        A fitted classifier; given rows of two classes need a posterior (not ``inference="map"``).
    X, y : data of shape (n, p), array of shape (n,), optional
        Rows to draw, best not those of the fit, and their labels; the training rows, each left out, by default.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib axes
    """
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
    """Draw a path of coefficients against the prior scale, and the number of non-zero ones in a panel below.

    Coefficients are for one standard deviation of their column, on an axis that is linear near zero and logarithmic
    far from it. The ``top`` largest at the end of the path are named, in the colour of their sign; the others are grey.

    Parameters
    ----------
    path : Path
        What ``softmargin.path`` returns.
    ax : matplotlib axes or two of them, optional
        Where to draw the coefficients, and with a second one the number of non-zero ones; both are new by default.
    top : int
        How many to name.
    mark : float, optional
        A scale to mark, such as one that was learned.

    Returns
    -------
    array of matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 1.
    """
    return PathDisplay.from_path(path, top=top, mark=mark, ax=ax).ax_


def traces(model: Any, features: Sequence[Any] | None = None, mode: Any = None, ax: Any = None) -> Any:
    """Draw the draws of chosen numbers, one panel each and the chains side by side.

    Parameters
    ----------
    model : BayesianSVC, BayesianSVR, kernel model or Formula
        A model fitted with ``inference="gibbs"`` or ``"hmc"``: coefficients of a linear model, and intercept, lengths
        and scales of a kernel model.
    features : sequence of str or int, optional
        Names or positions of columns; the three farthest from zero by ``|mean| / sd`` by default.
    mode : BayesianSVC or BayesianSVR, optional
        A model of the same columns, such as one fitted with ``inference="map"``, whose coefficients are drawn as lines.
    ax : matplotlib axes or sequence of them, optional
        One per panel; new ones by default.

    Returns
    -------
    array of matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 4.
    """
    return TracesDisplay.from_estimator(model, features, mode=mode, ax=ax).ax_


def agreement(first: Any, second: Any = None, ax: Any = None) -> Any:
    """Draw what one fit found against what another found, column by column, with the largest difference written.

    Compared are inclusion probabilities where both have them, and coefficients for one standard deviation of the
    column otherwise. One model alone is compared with itself: each chain against the mean of all.

    Parameters
    ----------
    first, second : BayesianSVC, BayesianSVR or Formula
        Fitted models of the same columns; without ``second``, a model with several chains.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 2.
    """
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
