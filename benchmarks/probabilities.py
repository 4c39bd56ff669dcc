"""Class probabilities: test log loss and error of BayesianSVC() against calibrated and searched peers.

The given splits of the Raetsch sets and random splits of spam. Peers see standardized columns; their C is searched once
for each training set by 5-fold cross-validation over 8 values, then they are calibrated by 5-fold cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC

GRID = np.logspace(-3, 2, 8)
Timed = tuple[Any, float]  # a fitted model and its CPU seconds


def has_temperature() -> bool:
    """Whether the installed scikit-learn calibrates by temperature."""
    methods = [
        option
        for choice in CalibratedClassifierCV._parameter_constraints["method"]
        for option in getattr(choice, "options", ())
    ]
    return "temperature" in methods


def search(loss: str, X: Any, y: Any) -> Timed:
    """LinearSVC with its C chosen by cross-validation, not yet calibrated."""
    machine = LinearSVC(loss=loss, dual=True if loss == "hinge" else "auto", max_iter=5000, random_state=0)
    found, seconds = common.cpu(lambda: GridSearchCV(machine, {"C": GRID}, cv=5, refit=False).fit(X, y))
    return machine.set_params(**found.best_params_), seconds


def peers(X: Any, y: Any) -> Iterator[tuple[str, Timed]]:
    """Every peer with the CPU seconds of its search and its calibration together."""
    hinge, squared = search("hinge", X, y), search("squared_hinge", X, y)
    kinds = [("hinge, sigmoid", hinge, "sigmoid"), ("hinge, isotonic", hinge, "isotonic")]
    if has_temperature():
        kinds.append(("squared hinge, temperature", squared, "temperature"))
    for name, (machine, spent), method in kinds:
        model, seconds = common.cpu(
            lambda machine=machine, method=method: CalibratedClassifierCV(machine, method=method, cv=5).fit(X, y)
        )
        yield name, (model, spent + seconds)
    yield "LogisticRegressionCV", common.cpu(lambda: LogisticRegressionCV(cv=5, max_iter=1000).fit(X, y))


def measure(X_train: Any, X_test: Any, y_train: Any, y_test: Any) -> dict[str, tuple[float, float, float]]:
    """Log loss, error and CPU seconds of every method on one split."""
    answers = {}
    y_train, y_test = (
        (y_train > 0).astype(int),
        (y_test > 0).astype(int),
    )  # "temperature" mistakes -1 for a class number
    model, seconds = common.cpu(lambda: BayesianSVC().fit(X_train, y_train))
    p = model.predict_proba(X_test)
    label = model.predict(X_test)
    assert (label == model.classes_[np.argmax(p, axis=1)]).all(), "predict must be the argmax of predict_proba"
    answers["softmargin"] = (log_loss(y_test, p), float((label != y_test).mean()), seconds)
    scaler = StandardScaler().fit(X_train)
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    for name, (peer, spent) in peers(X_train, y_train):
        error = float((peer.predict(X_test) != y_test).mean())
        answers[name] = (log_loss(y_test, peer.predict_proba(X_test)), error, spent)
    return answers


def sets(quick: bool, splits: int) -> Iterator[tuple[str, Callable[[], Iterator[common.Split]]]]:
    """The sets, each with its splits."""
    for name in ("heart", "titanic") if quick else common.RAETSCH:
        yield name, lambda name=name: common.raetsch(name, splits)
    X, y = common.table("spam")
    step = 8 if quick else 1
    yield "spam", lambda: common.random_splits(X[::step], y[::step], splits)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=10, help="splits of each set at most")
    options = options.parse_args()
    splits = 2 if options.quick else options.splits
    common.warm_up()
    results: dict[str, dict[str, np.ndarray]] = {}
    with common.one_thread():
        for name, given in sets(options.quick, splits):
            found = [measure(*split) for split in given()]
            results[name] = {method: np.mean([one[method] for one in found], axis=0) for method in found[0]}
            print(name, {method: np.round(value, 4).tolist() for method, value in results[name].items()}, flush=True)
    methods = list(next(iter(results.values())))
    parts = []
    for index, (title, form) in enumerate((("log loss", "{:.4f}"), ("error %", "{:.2f}"), ("CPU ms a fit", "{:.3g}"))):
        factor = (1.0, 100.0, 1000.0)[index]
        values = {name: [factor * result[method][index] for method in methods] for name, result in results.items()}
        values["mean"] = list(np.mean(list(values.values()), axis=0))
        rows = [(name, *(form.format(value) for value in row)) for name, row in values.items()]
        parts.append(f"Mean test {title}:" if index < 2 else f"Mean {title}:")
        parts.append(common.markdown(["set", *methods], rows))
    common.publish("probabilities", "\n\n".join(parts), options)


if __name__ == "__main__":
    main()
