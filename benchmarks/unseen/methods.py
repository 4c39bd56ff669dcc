"""The methods that are compared, peers tuned by the measure they are judged by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LassoCV, LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC, LinearSVR

from softmargin import BayesianSVC, BayesianSVR

__all__ = ["CLASSIFIERS", "LEAST", "REFERENCE", "REGRESSORS", "SEVERAL"]

Fit = Callable[[Any, Any], Any]
LEAST = 1e-6  # probabilities below it are raised to it, for all methods: isotonic regression says zero
GRID = np.logspace(-3, 2, 6)
REFERENCE = "gradient boosting"  # no linear model: a line to read the others by, not a peer


def _folds(y: Any, most: int = 5) -> int:
    return int(max(2, min(most, np.bincount(y).min())))


def _logistic(X: Any, y: Any) -> Any:
    settings = {"l1_ratios": (0.0,), "scoring": "neg_log_loss", "use_legacy_attributes": False}
    return LogisticRegressionCV(cv=_folds(y), max_iter=1000, **settings).fit(X, y)


def _boosting(X: Any, y: Any) -> Any:
    return HistGradientBoostingClassifier(early_stopping=True, random_state=0).fit(X, y)


def _machine(loss: str, C: float) -> Any:
    return LinearSVC(loss=loss, C=C, dual=True if loss == "hinge" else "auto", max_iter=3000, random_state=0)


def _calibrated(loss: str, method: str) -> Fit:
    """LinearSVC with the C whose calibrated log loss on left-out folds is smallest, calibrated on folds."""

    def fitted(X: Any, y: Any) -> Any:
        folds = StratifiedKFold(_folds(y), shuffle=True, random_state=0)
        parts = list(folds.split(X, y))
        scores = []
        for C in GRID:
            decision = np.empty(len(y))
            for train, test in parts:
                decision[test] = _machine(loss, C).fit(X[train], y[train]).decision_function(X[test])
            scores.append(_linked_loss(decision, y, parts, method))
        best = _machine(loss, GRID[int(np.argmin(scores))])
        return CalibratedClassifierCV(best, method=method, cv=_folds(y)).fit(X, y)

    return fitted


def _linked_loss(decision: Any, y: Any, parts: Any, method: str) -> float:
    """Log loss of left-out decision values, each fold's by a link fitted to the others."""
    p = np.empty(len(y))
    for train, test in parts:
        if method == "isotonic":
            link = IsotonicRegression(out_of_bounds="clip").fit(decision[train], y[train])
            p[test] = link.predict(decision[test])
        else:  # the logistic curve; temperature has no intercept
            link = LogisticRegression(C=1e6, fit_intercept=method == "sigmoid").fit(decision[train, None], y[train])
            p[test] = link.predict_proba(decision[test, None])[:, 1]
    return float(log_loss(y, np.clip(p, LEAST, 1 - LEAST), labels=[0, 1]))


def _several_machine(X: Any, y: Any) -> Any:
    calibrated = CalibratedClassifierCV(_machine("squared_hinge", 1.0), method="temperature", cv=min(3, _folds(y)))
    search = {"estimator__C": GRID[1:]}
    return GridSearchCV(calibrated, search, cv=_folds(y, 3), scoring="neg_log_loss").fit(X, y)


CLASSIFIERS: dict[str, Fit] = {
    "softmargin": lambda X, y: BayesianSVC().fit(X, y),
    "logit": lambda X, y: BayesianSVC(likelihood="logit").fit(X, y),
    "LogisticRegressionCV": _logistic,
    **{
        f"{title}, {method}": _calibrated(loss, method)
        for loss, title in (("hinge", "hinge"), ("squared_hinge", "squared hinge"))
        for method in ("sigmoid", "isotonic", "temperature")
    },
    REFERENCE: _boosting,
}
SEVERAL: dict[str, Fit] = {
    "softmargin": CLASSIFIERS["softmargin"],
    "logit": CLASSIFIERS["logit"],
    "LogisticRegressionCV": _logistic,
    "squared hinge, temperature": _several_machine,
    REFERENCE: _boosting,
}


def _tuned_svr(X: Any, y: Any) -> Any:
    spread = float(np.std(y))
    grid = {"C": GRID[:5] * max(spread, 1e-9), "epsilon": [0.0, 0.1 * spread, 0.5 * spread]}
    search = GridSearchCV(LinearSVR(max_iter=3000, random_state=0), grid, cv=5, scoring="neg_mean_squared_error")
    return search.fit(X, y)


REGRESSORS: dict[str, Fit] = {
    "softmargin": lambda X, y: BayesianSVR().fit(X, y),
    "RidgeCV": lambda X, y: RidgeCV(np.logspace(-3, 4, 20)).fit(X, y),
    "LassoCV": lambda X, y: LassoCV(cv=5, random_state=0).fit(X, y),
    "LinearSVR, searched": _tuned_svr,
    REFERENCE: lambda X, y: HistGradientBoostingRegressor(early_stopping=True, random_state=0).fit(X, y),
}
