"""``softmargin demo``: a fit of real data beside a tuned and calibrated support vector machine."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from softmargin import BayesianSVC
from softmargin.plots import demo_figure

__all__ = ["demo"]

_PICTURE = "softmargin-demo.png"
_SHOWN = 10  # rows of the coefficient table


class _Result(NamedTuple):
    """A fitted classifier and how it did on rows it has not seen."""

    model: Any
    seconds: float
    accuracy: float
    log_loss: float


def demo(folder: Path) -> int:
    """Fit, compare, print, draw."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = _data()
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)
    print(f"Wisconsin breast cancer data: {len(X_train)} rows to fit, {len(X_test)} to test, {X.shape[1]} columns\n")

    BayesianSVC().fit(X_train[::5], y_train[::5])  # compiles, once for each installation: not part of the time
    ours = _measure(lambda: BayesianSVC(random_state=0).fit(X_train, y_train), X_test, y_test)
    theirs = _measure(lambda: _calibrated_svm(X_train, y_train), X_test, y_test)

    print(_coefficient_table(ours.model))
    print(_comparison_table(ours, theirs))
    print(_learned(ours.model))
    try:
        figure = demo_figure(ours.model, {"calibrated LinearSVC": theirs.model}, X_test, y_test)
    except ImportError:
        print("\nNo picture: it needs matplotlib, which pip install 'softmargin[demo]' installs.", file=sys.stderr)
        return 0
    figure.savefig(folder / _PICTURE, dpi=110, pil_kwargs={"optimize": True})
    print(f"\nPicture: {folder / _PICTURE}")
    return 0


def _data() -> tuple[Any, Any]:
    """Columns as a data frame, labels as words."""
    data = load_breast_cancer(as_frame=True)
    return data.data, data.target_names[data.target.to_numpy()]


def _measure(fit: Any, X: Any, y: Any) -> _Result:
    begun = time.perf_counter()
    model = fit()
    seconds = time.perf_counter() - begun
    probability = model.predict_proba(X)
    return _Result(model, seconds, float((model.predict(X) == y).mean()), float(log_loss(y, probability)))


def _calibrated_svm(X: Any, y: Any) -> Any:
    """What one does without this package: search for C by cross-validation, then calibrate by cross-validation."""
    machine = make_pipeline(StandardScaler(), LinearSVC(loss="hinge", dual=True, max_iter=10_000, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # large C: not converged, and not chosen
        search = GridSearchCV(machine, {"linearsvc__C": np.logspace(-3, 2, 8)}, cv=5).fit(X, y)
        return CalibratedClassifierCV(search.best_estimator_, method="sigmoid", cv=5).fit(X, y)


def _coefficient_table(model: Any) -> str:
    table = model.summary()
    table = table[table.index != "Intercept"]
    order = (table["mean"] / table["sd"]).abs().sort_values(ascending=False).index[:_SHOWN]
    lines = [
        f"Coefficients farthest from zero (f > 0 means {model.classes_[1]}; units of the columns)",
        f"{'':26}{'mean':>10}{'sd':>10}{'95 % interval':>24}{'P(> 0)':>9}",
    ]
    for name in order:
        row = table.loc[name]
        interval = f"{row['lower']:.4g} to {row['upper']:.4g}"
        lines.append(f"{name:26}{row['mean']:>10.4g}{row['sd']:>10.4g}{interval:>24}{row['prob_positive']:>9.3f}")
    return "\n".join(lines) + "\n"


def _comparison_table(ours: _Result, theirs: _Result) -> str:
    lines = [f"{'On the test rows':40}{'accuracy':>10}{'log loss':>10}{'fit':>10}"]
    for name, result in (
        ("softmargin, nothing to tune", ours),
        ("LinearSVC, C searched, calibrated", theirs),
    ):
        lines.append(f"{name:40}{result.accuracy:>10.4f}{result.log_loss:>10.4f}{result.seconds:>8.2f} s")
    return "\n".join(lines) + "\n"


def _learned(model: Any) -> str:
    loo = model.loo_
    return "\n".join(
        (
            f"Learned prior scale            {model.scale_:.4f}   (sd of the coefficients of standardized columns)",
            f"Chosen learning rate           {model.learning_rate_:.4g}",
            f"Leave-one-out log loss, error  {loo.score:.4f}, {loo.error:.4f}   (from the fit itself, no refits)",
        )
    )
