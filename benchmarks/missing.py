"""Missing predictors: the model of the covariates inside the fit against imputation before it.

acath (cholesterol missing in 1246 of 3504 rows; log1p of the duration, log of cholesterol): balanced error over random
splits, three quarters to train, with and without class weights. heart and breast cancer with a fifth of all cells
knocked out at random: error and log loss. The peer is IterativeImputer, standardized columns and LinearSVC (squared
hinge, its default) with C searched by 5-fold cross-validation over 8 values, calibrated by 5 folds for the log loss; on
acath also with the hinge, the loss that our default has.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from benchmarks.random_effects import cut_short
from softmargin import BayesianSVC

GRID = np.logspace(-3, 2, 8)


def acath() -> tuple[Any, Any]:
    """Sex, age, log duration and log cholesterol; whether a significant disease was found."""
    columns, _ = common.table("acath")
    X = columns[:, :4].copy()
    X[:, 2], X[:, 3] = np.log1p(X[:, 2]), np.log(X[:, 3])
    return X, np.where(columns[:, 4] == 1.0, 1.0, -1.0)


def ours(X: Any, y: Any, balanced: bool = False, **settings: Any) -> BayesianSVC:
    """The model with its defaults, but for the settings."""
    return BayesianSVC(class_weight="balanced" if balanced else None, **settings).fit(X, y)


def peer(X: Any, y: Any, balanced: bool = False, **settings: Any) -> Any:
    """Imputation first, then the searched machine."""
    machine = LinearSVC(max_iter=20000, random_state=0, class_weight="balanced" if balanced else None, **settings)
    scoring = "balanced_accuracy" if balanced else None
    search = GridSearchCV(machine, {"C": GRID}, cv=5, scoring=scoring)
    return make_pipeline(IterativeImputer(random_state=0), StandardScaler(), search).fit(X, y)


ACATH = {
    "ours, hinge": ours,
    "ours, hinge, learning rate 1": partial(ours, learning_rate=1.0),
    "ours, logit": partial(ours, likelihood="logit"),
    "imputation, LinearSVC, hinge": partial(peer, loss="hinge"),
    "imputation, LinearSVC, squared hinge": peer,
}


def on_acath(splits: int) -> str:
    """Balanced errors, with the losses and with the learning rates."""
    X, y = acath()
    rows = []
    for balanced in (False, True):
        found = []
        for seed in cut_short(splits):
            train, test = train_test_split(np.arange(len(y)), train_size=0.75, stratify=y, random_state=seed)
            fits = [common.cpu(lambda f=f, t=train, b=balanced: f(X[t], y[t], b)) for f in ACATH.values()]
            errors = [1.0 - balanced_accuracy_score(y[test], model.predict(X[test])) for model, _ in fits]
            found.append((errors, [seconds for _, seconds in fits]))
        errors, seconds = np.array(found).transpose(1, 2, 0)
        apart = errors - errors[-1]
        for name, error, difference, time in zip(ACATH, errors, apart, seconds, strict=True):
            text = f"{difference.mean():+.4f} ± {difference.std() / np.sqrt(len(found)):.4f}"
            rows.append(("balanced" if balanced else "none", len(found), name, error.mean(), text, time.mean()))
    columns = ("class weights", "splits", "fit", "balanced error", "difference to the last", "CPU s")
    return f"acath:\n\n{common.markdown(columns, rows)}"


def knocked_out(splits: int) -> str:
    """Errors and log losses with a fifth of the cells gone."""
    cancer = load_breast_cancer()
    sets = {"heart": common.table("heart"), "breast cancer": (cancer.data, np.where(cancer.target == 1, 1.0, -1.0))}
    rows = []
    for name, (X, y) in sets.items():
        found = []
        for seed in range(splits):
            holes = np.where(np.random.default_rng(seed).random(X.shape) < 0.2, np.nan, X)
            train, test = train_test_split(np.arange(len(y)), train_size=0.7, stratify=y, random_state=seed)
            model, seconds = common.cpu(lambda train=train, holes=holes, y=y: ours(holes[train], y[train]))
            p = model.predict_proba(holes[test])[:, 1]

            def calibrated(train: Any = train, holes: Any = holes, y: Any = y) -> Any:
                best = peer(holes[train], y[train])[-1].best_estimator_
                whole = make_pipeline(IterativeImputer(random_state=0), StandardScaler(), best)
                return CalibratedClassifierCV(whole, cv=5).fit(holes[train], y[train])

            other, peers = common.cpu(calibrated)
            q = other.predict_proba(holes[test])[:, 1]
            for_all = [((np.where(r > 0.5, 1.0, -1.0) != y[test]).mean(), log_loss(y[test] > 0, r)) for r in (p, q)]
            found.append((*for_all[0], *for_all[1], seconds, peers))
        rows.append((name, *np.mean(found, axis=0)))
    columns = ("set", "ours: error", "log loss", "peer: error", "log loss", "ours: CPU s", "peer: CPU s")
    return common.markdown(columns, rows)


def main() -> None:
    parts = {"missing": on_acath, "missing-knocked-out": knocked_out}
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=100, help="splits of acath; the other sets have a fifth of them")
    options.add_argument("--only", choices=tuple(parts), action="append", help="one table, not both")
    chosen = options.parse_args()
    splits = {"missing": chosen.splits, "missing-knocked-out": max(2, chosen.splits // 5)}
    with common.one_thread():
        ours(*acath())  # compiled before it is timed
        for name in chosen.only or parts:
            common.publish(name, parts[name](2 if chosen.quick else splits[name]), chosen)


if __name__ == "__main__":
    main()
