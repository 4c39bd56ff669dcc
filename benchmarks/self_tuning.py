"""Error without a grid: BayesianSVC() against a searched LinearSVC and a searched logistic regression.

The simulation of Luts and Ormerod (2014), section 4.2, with new coefficients in every replicate, and random splits of
spam. The balanced error is the mean of the error rates of the two classes on the test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC

ROWS, COLUMNS, TEST = (100, 200, 500), (10, 50, 100), 1000


def searched_svc(X: Any, y: Any) -> Any:
    """LinearSVC with the hinge, C from 20 values by 5-fold cross-validation."""
    machine = make_pipeline(StandardScaler(), LinearSVC(loss="hinge", dual=True, max_iter=2000, random_state=0))
    return GridSearchCV(machine, {"linearsvc__C": np.logspace(-3, 3, 20)}, cv=5).fit(X, y)


def searched_logistic(X: Any, y: Any) -> Any:
    """Logistic regression, C from scikit-learn's 10 values by 5-fold cross-validation."""
    return make_pipeline(StandardScaler(), LogisticRegressionCV(cv=5, max_iter=1000)).fit(X, y)


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "softmargin": lambda X, y: BayesianSVC().fit(X, y),
    "LinearSVC": searched_svc,
    "logistic": searched_logistic,
}


def simulations(n: int, d: int, replicates: int) -> Iterator[common.Split]:
    """Replicates of one cell; a training set with fewer than five rows of a class is drawn again."""
    seed = 0
    for _ in range(replicates):
        while True:
            X, y = common.simulated(n + TEST, d, seed)
            seed += 1
            if min((y[:n] > 0).sum(), (y[:n] < 0).sum()) >= 5:
                break
        yield X[:n], X[n:], y[:n], y[n:]


def compare(name: str, splits: Iterator[common.Split]) -> tuple[Any, ...]:
    """One row of the table: balanced error in per cent and mean CPU milliseconds of each method."""
    errors: list[list[float]] = []
    times: list[list[float]] = []
    for X_train, X_test, y_train, y_test in splits:
        fits = [common.cpu(lambda fit=fit, X=X_train, y=y_train: fit(X, y)) for fit in METHODS.values()]
        errors.append([100.0 * (1.0 - balanced_accuracy_score(y_test, model.predict(X_test))) for model, _ in fits])
        times.append([1000.0 * seconds for _, seconds in fits])
    error, spent = np.array(errors), np.mean(times, axis=0)
    # standard error of the paired difference to each peer
    against = [
        f"{difference.mean():+.2f} ± {difference.std(ddof=1) / len(difference) ** 0.5:.2f}"
        for difference in (error[:, :1] - error[:, 1:]).T
    ]
    row = (name, *(f"{value:.2f}" for value in error.mean(axis=0)), *against, *spent, float(spent[1:].min() / spent[0]))
    print(*row, flush=True)
    return row


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--replicates", type=int, default=50, help="training sets in a cell of the simulation")
    options.add_argument("--splits", type=int, default=10, help="random splits of spam")
    options = options.parse_args()
    replicates, splits = (2, 2) if options.quick else (options.replicates, options.splits)
    common.warm_up()
    rows = []
    with common.one_thread():
        for n in ROWS[:1] if options.quick else ROWS:
            for d in COLUMNS[:2] if options.quick else COLUMNS:
                rows.append(compare(f"simulated {n} x {d}", simulations(n, d, replicates)))
        X, y = common.table("spam")
        if options.quick:
            X, y = X[::8], y[::8]
        rows.append(compare("spam", common.random_splits(X, y, splits)))
    names = list(METHODS)
    columns = [
        "set", *(f"{name}, error %" for name in names), *(f"difference to {name}" for name in names[1:]),
        *(f"{name}, ms" for name in names), "quicker peer / softmargin",
    ]  # fmt: skip
    note = f"{replicates} training sets a cell and {splits} splits of spam; differences with their standard errors."
    common.publish("self_tuning", f"{common.markdown(columns, rows)}\n\n{note}", options)


if __name__ == "__main__":
    main()
