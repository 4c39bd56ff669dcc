"""Sparse text: test log loss and error of BayesianSVC() against linear peers tuned by log loss on the same columns.

Random stratified splits with three quarters of the rows, at most 3000, to train. C of LinearSVC is searched by the log
loss of the model calibrated by temperature, 5 folds; LogisticRegressionCV searches by log loss. Peers see columns as
they are, which suits them better than scaled ones. Standard errors of differences are those of splits that overlap.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC

ROWS = 3000


def _stored(name: str) -> tuple[Any, np.ndarray]:
    path = os.path.join(os.environ.get("SOFTMARGIN_DATA", ""), f"{name}.npz")
    return sp.csr_array(sp.load_npz(path)).astype(float), np.load(path)["y"]


def _pair(a: int, b: int) -> tuple[Any, np.ndarray]:
    X, y = _stored("news20_w1000")
    keep = (y == a) | (y == b)
    return X[keep], (y[keep] == b).astype(int)


def _one_of_many(a: int, words: int) -> tuple[Any, np.ndarray]:
    X, y = _stored("news20_w1000")
    return X[:, :words], (y == a).astype(int)


def _rec_talk() -> tuple[Any, np.ndarray]:
    X, y = _stored("news20_w100")
    keep = (y == 2) | (y == 4)
    return X[keep], (y[keep] == 4).astype(int)


def _mac() -> tuple[Any, np.ndarray]:
    X, y = common.sparse_rows("text_mac_windows")
    return sp.csr_array(X), (y > 0).astype(int)


def _ssl() -> tuple[Any, np.ndarray]:
    X, y = _stored("ssl_text")
    return X, (y > 0).astype(int)


SETS: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "mac, windows (tf-idf)": _mac,
    "ssl text": _ssl,
    "newsgroups 1, 2": lambda: _pair(1, 2),
    "newsgroups 15, 19": lambda: _pair(15, 19),
    "newsgroups 8, 9": lambda: _pair(8, 9),
    "newsgroups 3, 4": lambda: _pair(3, 4),
    "100 words, rec and talk": _rec_talk,
    "newsgroup 1 of 20": lambda: _one_of_many(1, 300),
    "newsgroup 10 of 20": lambda: _one_of_many(10, 300),
}


def methods() -> dict[str, Any]:
    """Every method as an unfitted model."""
    machine = CalibratedClassifierCV(LinearSVC(max_iter=5000, random_state=0), method="temperature", cv=5)
    grid = {"estimator__C": np.logspace(-3, 2, 8)}
    return {
        "softmargin": BayesianSVC(),
        "LinearSVC, temperature": GridSearchCV(machine, grid, cv=5, scoring="neg_log_loss"),
        "LogisticRegressionCV": LogisticRegressionCV(
            cv=5, max_iter=1000, scoring="neg_log_loss", l1_ratios=(0.0,), use_legacy_attributes=False
        ),
    }


def _narrow(X: Any) -> Any:
    """The same with short indices: LIBLINEAR takes no others."""
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def sizes(y: np.ndarray) -> tuple[int, int]:
    """How many rows train and test."""
    train = min(ROWS, round(0.75 * len(y)))
    return train, min(4000, len(y) - train)


def measure(X: Any, y: np.ndarray, seed: int) -> dict[str, list[float]]:
    """Log loss, error and CPU seconds of every method on one split."""
    train, test = sizes(y)
    first, rest = train_test_split(np.arange(len(y)), train_size=train, stratify=y, random_state=seed)
    rest = rest[:test]
    answers = {}
    for name, model in methods().items():
        fitted, seconds = common.cpu(lambda model=model: model.fit(_narrow(X[first]), y[first]))
        p = fitted.predict_proba(_narrow(X[rest]))
        answers[name] = [float(log_loss(y[rest], p)), float((p.argmax(axis=1) != y[rest]).mean()), seconds]
    return answers


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--sets", nargs="*", default=[])
    options = options.parse_args()
    common.warm_up()
    rows = []
    with common.one_thread():
        for name in options.sets or (list(SETS)[6:7] if options.quick else SETS):
            X, y = SETS[name]()
            found = [measure(X, y, seed) for seed in range(2 if options.quick else options.splits)]
            line: list[Any] = [name]
            for index, factor in ((0, 1.0), (1, 100.0)):
                by = {m: factor * np.array([one[m][index] for one in found]) for m in found[0]}
                best = min(list(by)[1:], key=lambda m: by[m].mean())
                d = by["softmargin"] - by[best]
                line += [f"{values.mean():.4g}" for values in by.values()]
                line.append(f"{d.mean():+.2g} ± {common.standard_error(d, *sizes(y)):.1g}")
            line += [f"{np.mean([one[m][2] for one in found]):.2g}" for m in found[0]]
            rows.append(line)
            print(line, flush=True)
    short = ["ours", "SVC", "LR"]
    columns = ["set", *(f"log loss, {m}" for m in short), "to the better", *(f"error %, {m}" for m in short)]
    table = common.markdown([*columns, "to the better", *(f"s, {m}" for m in short)], rows)
    common.publish("text", table, options)


if __name__ == "__main__":
    main()
