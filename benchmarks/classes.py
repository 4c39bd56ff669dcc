"""Many classes: test log loss and error of BayesianSVC() against searched and calibrated linear peers.

Ten stratified random splits, 70 % to train (golub: its own split, and ten random ones of the same size). Peers see
standardized columns; C of LinearSVC is searched by 5-fold cross-validation over 8 values, then it is calibrated by
5-fold cross-validation with the sigmoid; LogisticRegressionCV searches 10 values by 5 folds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC

GRID = np.logspace(-3, 2, 8)
METHODS = ("softmargin", "LinearSVC, sigmoid", "LogisticRegressionCV")


def _folds(y: Any) -> int:
    """Five, or as many as the smallest class has rows."""
    return int(max(2, min(5, np.bincount(y).min())))


def measure(X_train: Any, X_test: Any, y_train: Any, y_test: Any) -> dict[str, tuple[float, float, float]]:
    """Log loss, error and CPU seconds of every method on one split."""
    labels = np.unique(y_train)
    model, seconds = common.cpu(lambda: BayesianSVC().fit(X_train, y_train))
    p = model.predict_proba(X_test)
    answers = {METHODS[0]: (log_loss(y_test, p, labels=labels), float((p.argmax(axis=1) != y_test).mean()), seconds)}
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    folds = _folds(y_train)

    def machine() -> Any:
        search = GridSearchCV(LinearSVC(max_iter=20000, random_state=0), {"C": GRID}, cv=folds).fit(X_train, y_train)
        return search, CalibratedClassifierCV(search.best_estimator_, cv=folds).fit(X_train, y_train)

    (search, calibrated), seconds = common.cpu(machine)
    error = float((search.predict(X_test) != y_test).mean())
    answers[METHODS[1]] = (log_loss(y_test, calibrated.predict_proba(X_test), labels=labels), error, seconds)
    logistic, seconds = common.cpu(
        lambda: LogisticRegressionCV(cv=folds, max_iter=500, use_legacy_attributes=False).fit(X_train, y_train)
    )
    error = float((logistic.predict(X_test) != y_test).mean())
    answers[METHODS[2]] = (log_loss(y_test, logistic.predict_proba(X_test), labels=labels), error, seconds)
    return answers


def sets(quick: bool, splits: int) -> Iterator[tuple[str, list[common.Split]]]:
    """The sets, each with its splits; labels are 0, 1, ..."""
    for name, load in (("iris", load_iris), ("wine", load_wine), ("digits", load_digits)):
        if not (quick and name == "digits"):
            X, y = load(return_X_y=True)
            yield name, list(common.random_splits(X, y, splits, 0.7))
    X, y = common.table("thyroid_uci")
    yield "thyroid_uci", list(common.random_splits(X, y.astype(int) - 1, splits, 0.7))
    if not quick:
        golub = common.arrays("golub")
        X, y = golub["X"].astype(float), np.unique(golub["y"], return_inverse=True)[1]
        train = golub["split"] == "train"
        yield "golub, its split", [(X[train], X[~train], y[train], y[~train])]
        yield "golub", list(common.random_splits(X, y, splits, 38 / 72))


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=10, help="splits of each set")
    options = options.parse_args()
    common.warm_up()
    rows = []
    with common.one_thread():
        for name, splits in sets(options.quick, 2 if options.quick else options.splits):
            found = [measure(*split) for split in splits]
            mean = {method: np.mean([one[method] for one in found], axis=0) for method in METHODS}
            rows.append(
                [
                    name,
                    *(
                        f"{mean[method][0]:.4f} / {100 * mean[method][1]:.2f} / {mean[method][2]:.3g}"
                        for method in METHODS
                    ),
                ]
            )
            print(rows[-1], flush=True)
    text = "Mean test log loss / error % / CPU seconds a fit:\n\n" + common.markdown(["set", *METHODS], rows)
    common.publish("classes", text, options)


if __name__ == "__main__":
    main()
