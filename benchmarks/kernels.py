"""Kernel machines: test log loss and error of BayesianKernelClassifier() against a Gaussian process and a tuned SVC.

Sets of Zhang, Dai, Wang and Jordan (2010), table 1, on random splits of their sizes, and the given splits of the
Raetsch sets. ``SVC`` has its C and width searched by 5-fold cross-validation over 6 x 5 values for every training set
and is then calibrated by temperature; ``GaussianProcessClassifier`` learns the scale and width of an rbf kernel. The
second method is ours with the probit and active vectors, two short chains. All see the columns as found, which have one
unit in each of these sets. What was measured is kept in a file, so that a run which was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import SVC

from benchmarks import common
from softmargin import BayesianKernelClassifier
from softmargin.designs.kernels import mean_distance

METHODS = ("softmargin", "active vectors", "SVC, tuned, temperature", "GaussianProcessClassifier")
ACTIVE = {"likelihood": "probit", "basis": "active", "inference": "gibbs", "random_state": 0}
LENGTH = {"draws": 250, "warmup": 250, "thin": 2, "chains": 2}
STORE = Path(gettempdir()) / "softmargin_kernels.json"
PAPER = ("ssl_bci", "ssl_g241d", "ssl_digit1", "ssl_coil2", "letter A B", "letter A C", "usps 0 9", "thyroid")
SIZES = {"thyroid": 140, "usps": 500}  # training rows; 300 of the others


def data(name: str) -> tuple[Any, Any]:
    """Columns and labels of a set of table 1."""
    kind, *pair = name.split(" ")
    if kind == "letter":
        import pandas as pd

        frame = pd.read_csv(common._file("letter.csv.gz"))
        X, y = frame.iloc[:, :-1].to_numpy(float), frame.iloc[:, -1].to_numpy()
    elif kind == "usps":
        stored = common.arrays("usps")
        X, y, pair = stored["X"] / 1000.0 - 1.0, stored["y"], [int(digit) for digit in pair]
    elif kind.startswith("ssl"):
        stored = common.arrays(kind)
        return stored["X"].astype(float), (stored["y"] > 0).astype(int)
    else:
        X, y = common.table(kind)
        return X, (y > 0).astype(int)
    used = np.isin(y, pair)
    return X[used], (y[used] == pair[1]).astype(int)


def splits(name: str, most: int) -> Iterator[common.Split]:
    """The given splits of a Raetsch set, random ones of the paper's size of the others; at most 5000 test rows."""
    if name in common.RAETSCH:
        for X_train, X_test, y_train, y_test in common.raetsch(name, most):
            yield X_train, X_test[:5000], (y_train > 0).astype(int), (y_test[:5000] > 0).astype(int)
        return
    X, y = data(name)
    size = SIZES.get(name.split(" ")[0], 300)
    for seed in range(most):
        yield tuple(train_test_split(X, y, train_size=size, stratify=y, random_state=seed))


def fits(X: Any, y: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every method as a function that fits it."""
    yield METHODS[0], lambda: BayesianKernelClassifier().fit(X, y)
    yield METHODS[1], lambda: BayesianKernelClassifier(**ACTIVE, **LENGTH).fit(X, y)
    width = mean_distance(X)

    def tuned() -> Any:
        grid = {"C": 10.0 ** np.arange(-0.5, 4.0), "gamma": (width * 2.0 ** np.arange(-2, 4)) ** -2.0}
        found = GridSearchCV(SVC(), grid, cv=5).fit(X, y)
        return CalibratedClassifierCV(SVC(**found.best_params_), method="temperature", cv=5, ensemble=False).fit(X, y)

    yield METHODS[2], tuned
    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * RBF(width, (1e-3 * width, 1e3 * width))
    yield METHODS[3], lambda: GaussianProcessClassifier(kernel, random_state=0).fit(X, y)


def measure(known: dict[str, list[float]], X_train: Any, X_test: Any, y_train: Any, y_test: Any) -> Any:
    """Log loss, error and CPU seconds of every method on one split, beside those that are known."""
    answers = dict(known)
    for name, fit in fits(X_train, y_train):
        if name in known:
            continue
        model, seconds = common.cpu(fit)
        p = np.clip(model.predict_proba(X_test), 1e-12, 1.0)
        error = float((model.predict(X_test) != y_test).mean())
        answers[name] = [log_loss(y_test, p), error, seconds]
    return answers


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=4, help="splits of each set at most")
    options.add_argument("--store", type=Path, default=STORE, help="what was measured so far")
    options = options.parse_args()
    names = ["thyroid", "heart"] if options.quick else [*PAPER, *common.RAETSCH]
    known = json.loads(options.store.read_text()) if options.store.exists() and not options.quick else {}
    for settings in ({}, ACTIVE | {"draws": 10, "warmup": 5, "chains": 1}):  # compile
        BayesianKernelClassifier(**settings).fit(*common.simulated(60, 3, 0))
    with common.one_thread():
        for name in names:
            for number, split in enumerate(splits(name, 2 if options.quick else options.splits)):
                key = f"{name}/{number}"
                if len(known.get(key, {})) < len(METHODS):
                    known[key] = measure(known.get(key, {}), *split)
                    print(
                        key, {method: np.round(value, 4).tolist() for method, value in known[key].items()}, flush=True
                    )
                    if not options.quick:
                        options.store.write_text(json.dumps(known))
    parts = []
    for index, (title, form, factor) in enumerate(
        (("test log loss", "{:.4f}", 1.0), ("test error %", "{:.2f}", 100.0), ("CPU s a fit", "{:.2f}", 1.0))
    ):
        values = {}
        for name in names:
            found = [value for key, value in known.items() if key.split("/")[0] == name]
            values[name] = [factor * float(np.mean([one[method][index] for one in found])) for method in METHODS]
        values["mean"] = np.mean(list(values.values()), axis=0).tolist()
        rows = [(name, *(form.format(value) for value in row)) for name, row in values.items()]
        parts += [f"Mean {title}:", common.markdown(["set", *METHODS], rows)]
    common.publish("kernels", "\n\n".join(parts), options)


if __name__ == "__main__":
    main()
