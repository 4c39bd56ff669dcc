"""Class probabilities of two classes: test log loss and error against peers tuned by the log loss they are judged by.

LogisticRegressionCV searches by log loss; LinearSVC (squared hinge) is calibrated by temperature, its C searched by the
log loss of the calibrated model. All peers see standardized columns. "logit" is our own
``likelihood="logit"``. Standard errors of differences are over splits, which overlap, so they are somewhat too small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from benchmarks.two_class_sets import SETS
from softmargin import BayesianSVC

QUICK = ("heart", "titanic", "adult, 8 %")
PEERS = ("LogisticRegressionCV", "squared hinge, temperature", "logit")  # those that acceptance is measured against
BEHIND = 0.005  # log loss by which we may be behind the best peer of a set before it is listed


def _calibrated(loss: str, method: str) -> Any:
    machine = LinearSVC(loss=loss, dual=True if loss == "hinge" else "auto", max_iter=5000, random_state=0)
    model = make_pipeline(StandardScaler(), CalibratedClassifierCV(machine, method=method, cv=5))
    grid = {"calibratedclassifiercv__estimator__C": np.logspace(-3, 2, 8)}
    return GridSearchCV(model, grid, cv=5, scoring="neg_log_loss")


def methods() -> dict[str, Any]:
    """Every method as an unfitted model."""
    logistic = LogisticRegressionCV(
        cv=5, max_iter=1000, scoring="neg_log_loss", l1_ratios=(0.0,), use_legacy_attributes=False
    )
    return {
        "softmargin": BayesianSVC(),
        "LogisticRegressionCV": make_pipeline(StandardScaler(), logistic),
        "squared hinge, temperature": _calibrated("squared_hinge", "temperature"),
        "logit": BayesianSVC(likelihood="logit"),
    }


def measure(X_train: Any, X_test: Any, y_train: Any, y_test: Any, only: tuple[str, ...] = ()) -> dict[str, list[float]]:
    """Log loss, error and CPU seconds of every method on one split."""
    answers = {}
    y_train, y_test = (
        (y_train > 0).astype(int),
        (y_test > 0).astype(int),
    )  # "temperature" mistakes -1 for a class number
    for name, model in methods().items():
        if only and name not in only:
            continue
        fitted, seconds = common.cpu(lambda model=model: model.fit(X_train, y_train))
        p = fitted.predict_proba(X_test)
        error = float((fitted.predict(X_test) != y_test).mean())
        answers[name] = [float(log_loss(y_test, p)), error, seconds]
        if name == "softmargin":
            answers["choice"] = [float(getattr(fitted, "tilt_", False)), fitted.learning_rate_, fitted.loo_.score]
    share = y_train.mean()
    answers["class shares"] = [float(log_loss(y_test, np.full(len(y_test), share))), min(share, 1 - share), 0.0]
    return answers


def summary(results: dict[str, dict[str, np.ndarray]]) -> str:
    """The tables: one line per set, means, and the sets where we are behind the best peer."""
    shown = [name for name in next(iter(results.values())) if name not in ("choice", "class shares")]
    parts = []
    for index, (title, factor, form) in enumerate(
        (("test log loss", 1.0, "{:.4f}"), ("test error %", 100.0, "{:.2f}"), ("CPU ms per fit", 1000.0, "{:.3g}"))
    ):
        values = {name: [factor * found[m][:, index].mean() for m in shown] for name, found in results.items()}
        values["mean"] = list(np.mean(list(values.values()), axis=0))
        parts.append(f"Mean {title}:")
        rows = [(name, *(form.format(value) for value in row)) for name, row in values.items()]
        parts.append(common.markdown(["set", *shown], rows))
    lines = []
    for name, found in results.items():
        best = min((m for m in PEERS if m in found), key=lambda m: found[m][:, 0].mean())
        d = found["softmargin"][:, 0] - found[best][:, 0]
        error = d.std(ddof=1) / np.sqrt(len(d)) if len(d) > 1 else np.nan
        if d.mean() > BEHIND:
            lines.append((name, best, f"{d.mean():+.4f}", f"{error:.4f}", "yes" if d.mean() > 2 * error else "no"))
    parts.append(f"Sets where softmargin is behind the best of {', '.join(PEERS)} by more than {BEHIND}:")
    parts.append(common.markdown(["set", "best peer", "difference", "standard error", "more than two"], lines))
    return "\n\n".join(parts)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=5, help="splits of each set at most")
    options.add_argument("--only", nargs="*", default=[], metavar="METHOD")
    options.add_argument("--sets", nargs="*", default=[], metavar="SET")
    options.add_argument("--json", type=Path, metavar="FILE", help="every single figure")
    options = options.parse_args()
    splits = 2 if options.quick else options.splits
    common.warm_up()
    results: dict[str, dict[str, np.ndarray]] = {}
    if options.json and options.json.exists():  # a run that was stopped goes on
        known = json.loads(options.json.read_text())
        results = {name: {m: np.array(v) for m, v in found.items()} for name, found in known.items()}
    with common.one_thread():
        for name in options.sets or (QUICK if options.quick else SETS):
            if name in results:
                continue
            found = [measure(*split, only=tuple(options.only)) for split in SETS[name](splits)]
            results[name] = {method: np.array([one[method] for one in found]) for method in found[0]}
            print(name, {m: np.round(v.mean(axis=0), 4).tolist() for m, v in results[name].items()}, flush=True)
            if options.json:
                kept = {key: {m: v.tolist() for m, v in found.items()} for key, found in results.items()}
                options.json.write_text(json.dumps(kept))
    if not options.only:
        common.publish("probabilities", summary(results), options)


if __name__ == "__main__":
    main()
