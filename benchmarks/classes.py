"""Many classes: test log loss and error of BayesianSVC() against linear peers tuned by what they are judged by.

Stratified random splits, 70 % to train (digits: 300 rows; golub: its own split, and random ones of the same size, the
columns as they are and as log10 after clipping to [100, 16000]). "six classes" is simulated: classes of very unequal
size whose means are half as far apart as their spread, as in the glass data. Peers see standardized columns; C of
LinearSVC is searched by 5 folds over 6 values, by errors for the column of errors, and by the log loss of the machine
calibrated by temperature for that of log loss; LogisticRegressionCV searches 10 values by log loss. A second table has
modes on golub, under ridge and sparse priors, beside logistic regression with an L1 penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.priors import GroupLasso, Lasso

GRID = np.logspace(-4, 1, 6)
SIZES = (0.33, 0.35, 0.08, 0.06, 0.04, 0.14)  # shares of the six simulated classes
ACCEPTED = ("iris", "wine", "digits, 300 rows", "thyroid_uci")  # sets that the default is judged by
Answer = tuple[float, float, float]  # log loss, error, CPU seconds


def _folds(y: Any) -> int:
    """Five, or as many as the smallest class has rows."""
    return int(max(2, min(5, np.bincount(y).min())))


def _machine(X: Any, y: Any) -> tuple[Any, Any]:
    """LinearSVC with the C that errors prefer, and one calibrated, with the C that its log loss prefers."""
    folds, one = _folds(y), LinearSVC(max_iter=5000, random_state=0)
    search = GridSearchCV(one, {"C": GRID}, cv=folds).fit(X, y)
    calibrated = CalibratedClassifierCV(one, method="temperature", cv=min(3, folds))
    return search, GridSearchCV(calibrated, {"estimator__C": GRID}, cv=folds, scoring="neg_log_loss").fit(X, y)


def _logistic(X: Any, y: Any) -> tuple[Any, Any]:
    settings = {"l1_ratios": (0.0,), "scoring": "neg_log_loss", "use_legacy_attributes": False}
    model = LogisticRegressionCV(cv=_folds(y), max_iter=500, **settings).fit(X, y)
    return model, model


def _sparse_logistic(X: Any, y: Any) -> tuple[Any, Any]:
    one = OneVsRestClassifier(LogisticRegression(l1_ratio=1.0, solver="liblinear", random_state=0))
    search = GridSearchCV(one, {"estimator__C": np.logspace(-3, 2, 8)}, cv=_folds(y), scoring="neg_log_loss").fit(X, y)
    return search, search


def _ours(*choices: Any, **settings: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    def fitted(X: Any, y: Any) -> tuple[Any, Any]:
        model = BayesianSVC(*choices, **settings).fit(X, y)
        return model, model

    return fitted


JOINT = {"multi_class": "sum-to-zero"}
METHODS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "softmargin": _ours(),
    "softmargin, sum-to-zero": _ours(**JOINT),
    "LinearSVC": _machine,
    "LogisticRegressionCV": _logistic,
}
MODES: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "pairs, ridge, map": _ours("ridge", "map"),
    "pairs, `Lasso(0.5)`, map": _ours(Lasso(scale=0.5), "map"),
    "sum-to-zero, `Lasso(0.5)`, map": _ours(Lasso(scale=0.5), "map", **JOINT),
    "sum-to-zero, `GroupLasso(0.5)`, map": _ours(GroupLasso(scale=0.5), "map", **JOINT),
    "L1 logistic, searched": _sparse_logistic,
}


def measure(methods: dict[str, Any], split: common.Split) -> dict[str, Answer]:
    """Log loss, error and CPU seconds of every method on one split."""
    X_train, X_test, y_train, y_test = split
    scaler = StandardScaler().fit(X_train)  # ours standardizes inside; for it this changes nothing
    X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    answers = {}
    for name, fit in methods.items():
        (decides, says), seconds = common.cpu(lambda fit=fit: fit(X_train, y_train))
        loss = log_loss(y_test, says.predict_proba(X_test), labels=np.unique(y_train))
        answers[name] = (loss, float((decides.predict(X_test) != y_test).mean()), seconds)
    return answers


def golub(logarithms: bool) -> tuple[Any, Any, Any]:
    """Genes, classes, and which rows its own split trains on."""
    data = common.arrays("golub")
    X, y = data["X"].astype(float), np.unique(data["y"], return_inverse=True)[1]
    return np.log10(np.clip(X, 100.0, 16000.0)) if logarithms else X, y, data["split"] == "train"


def golub_sets(splits: int) -> Iterator[tuple[str, list[common.Split]]]:
    """Raw columns and logarithms, each by its own split and by random ones."""
    for name, logarithms in (("golub", False), ("golub, log10", True)):
        X, y, train = golub(logarithms)
        yield f"{name}, its split", [(X[train], X[~train], y[train], y[~train])]
        yield name, list(common.random_splits(X, y, splits, 38 / 72))


def six_classes(seed: int, train: int = 150, test: int = 3000) -> common.Split:
    """Nine columns; classes of unequal size with means that are half as far apart as columns spread, and skew."""
    rng = np.random.default_rng([seed, 6])
    means = 0.5 * np.sqrt(2.0) * rng.standard_normal((len(SIZES), 9))
    mixing = np.eye(9) + 0.3 * rng.standard_normal((9, 9))
    counts = [np.round(np.array(SIZES) * size).astype(int) for size in (train, test)]
    labels = [np.repeat(np.arange(len(SIZES)), count) for count in counts]
    X_train, X_test = (
        (means[y] + rng.standard_gamma(4.0, (len(y), 9)) / 2.0) @ mixing for y in labels
    )  # gamma with shape 4: standard deviation 1
    return X_train, X_test, labels[0], labels[1]


def sets(quick: bool, splits: int) -> Iterator[tuple[str, list[common.Split]]]:
    """The sets, each with its splits; labels are 0, 1, ..."""
    for name, load in (("iris", load_iris), ("wine", load_wine)):
        yield name, list(common.random_splits(*load(return_X_y=True), splits, 0.7))
    X, y = common.table("thyroid_uci")
    yield "thyroid_uci", list(common.random_splits(X, y.astype(int) - 1, splits, 0.7))
    yield "six classes", [six_classes(seed) for seed in range(splits)]
    if not quick:
        X, y = load_digits(return_X_y=True)
        yield "digits, 300 rows", list(common.random_splits(X, y, splits, 300 / len(y)))
        yield from golub_sets(splits)


Found = dict[str, dict[str, Any]]  # set -> method -> mean answer


def compare(methods: dict[str, Any], data: Iterator[tuple[str, list[common.Split]]]) -> tuple[Found, str]:
    """Mean answers, and the table of them."""
    found: Found = {}
    rows = []
    for name, splits in data:
        every = [measure(methods, split) for split in splits]
        found[name] = {method: np.mean([one[method] for one in every], axis=0) for method in methods}
        cells = (f"{loss:.4f} / {100 * error:.2f} / {cpu:.2g}" for loss, error, cpu in found[name].values())
        rows.append([name, *cells])
        print(rows[-1], flush=True)
    return found, "Mean test log loss / error % / CPU seconds per fit:\n\n" + common.markdown(["set", *methods], rows)


def verdict(found: Found) -> str:
    """The default against the better peer on the sets it is judged by."""
    ours, _, *peers = METHODS
    judged = [name for name in ACCEPTED if name in found]
    ahead = [found[name][ours][1] - min(found[name][peer][1] for peer in peers) for name in judged]
    behind = [name for name in judged if found[name][ours][0] > min(found[name][peer][0] for peer in peers)]
    return (
        f"Error of the default minus that of the better peer, mean over {', '.join(judged)}: "
        f"{100 * np.mean(ahead):+.2f} points. Log loss above that of the better peer on: {', '.join(behind) or 'none'}."
    )


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=10, help="splits of each set")
    options.add_argument("--part", choices=("all", "sets", "genes"), default="all", help="which of the two tables")
    options = options.parse_args()
    common.warm_up()
    splits = 2 if options.quick else options.splits
    with common.one_thread():
        if options.part != "genes":
            found, text = compare(METHODS, sets(options.quick, splits))
            common.publish("classes", f"{text}\n\n{verdict(found)}", options)
        if options.part != "sets" and not options.quick:
            common.publish("classes_genes", compare(MODES, golub_sets(splits))[1], options)


if __name__ == "__main__":
    main()
