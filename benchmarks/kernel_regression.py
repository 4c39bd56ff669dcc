"""BayesianKernelRegressor() as it comes, against a Gaussian process of scikit-learn and an SVR tuned by folds.

The Gaussian process has an RBF kernel with a learned scale, width and noise, two starts, on standardized columns; the
SVR has C, width and epsilon searched over 36 values by 3-fold cross-validation, and normal errors of the size of its
cross-validated ones. The second table is one problem at growing numbers of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from benchmarks import common
from softmargin import BayesianKernelRegressor
from softmargin.inference.regression_readout import log_predictive

METHODS = ("softmargin", "Gaussian process", "tuned SVR")
ROWS, TEST = 300, 1000
Split = tuple[Any, Any, Any, Any]


def sinc(n: int, rng: Any, draw: Callable[..., Any]) -> tuple[Any, Any]:
    X = rng.uniform(-10.0, 10.0, (n, 1))
    return X, np.sinc(X[:, 0] / np.pi) + draw(scale=0.1, size=n)


def waves(n: int, rng: Any) -> tuple[Any, Any]:
    X = rng.normal(size=(n, 4))
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(size=n)


SETS: dict[str, Callable[[int, int], tuple[Any, Any]]] = {
    "friedman 1": lambda n, seed: make_friedman1(n, noise=1.0, random_state=seed),
    "friedman 2": lambda n, seed: make_friedman2(n, noise=125.0, random_state=seed),
    "friedman 3": lambda n, seed: make_friedman3(n, noise=0.1, random_state=seed),
    "sinc, normal": lambda n, seed: sinc(n, np.random.default_rng(seed), np.random.default_rng(seed + 99).normal),
    "sinc, Laplace": lambda n, seed: sinc(n, np.random.default_rng(seed), np.random.default_rng(seed + 99).laplace),
    "waves, noisy": lambda n, seed: waves(n, np.random.default_rng(seed)),
}


def splits(name: str, most: int) -> Iterator[Split]:
    """Training and test rows of a set."""
    for seed in range(most):
        if name == "diabetes":
            yield tuple(train_test_split(*load_diabetes(return_X_y=True), train_size=2 / 3, random_state=seed))
        else:
            X, y = SETS[name](ROWS + TEST, seed)
            yield X[:ROWS], X[ROWS:], y[:ROWS], y[ROWS:]


def ours(X: Any, y: Any, new: Any, response: Any) -> tuple[Any, Any]:
    """Predictions, and the log density of every response."""
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    f, sd = model.predict(new, return_std=True)
    held, spread = model._fitted.fit.held, model._fitted.units.spread
    density = log_predictive((response - f) / spread, (sd / spread) ** 2, held.levels, held.losses)
    return f, density - np.log(spread)


def process(X: Any, y: Any, new: Any, response: Any) -> tuple[Any, Any]:
    form = ConstantKernel(1.0) * RBF(np.sqrt(X.shape[1])) + WhiteKernel(0.1)
    peer = GaussianProcessRegressor(form, normalize_y=True, n_restarts_optimizer=1, random_state=0)
    f, sd = make_pipeline(StandardScaler(), peer).fit(X, y).predict(new, return_std=True)
    return f, norm.logpdf(response, f, sd)


def tuned(X: Any, y: Any, new: Any, response: Any) -> tuple[Any, Any]:
    centre, spread = y.mean(), y.std()
    grid = {
        "svr__C": [0.3, 3.0, 30.0],
        "svr__gamma": [each / X.shape[1] for each in (0.05, 0.2, 0.8, 3.0)],
        "svr__epsilon": [0.01, 0.1, 0.5],
    }
    search = GridSearchCV(make_pipeline(StandardScaler(), SVR()), grid, cv=3, scoring="neg_mean_squared_error")
    search.fit(X, (y - centre) / spread)
    f = centre + spread * search.predict(new)
    return f, norm.logpdf(response, f, spread * np.sqrt(-search.best_score_))


def measured(split: Split) -> Any:
    """Error, mean log density and CPU seconds of every method."""
    X, new, y, response = split
    found = []
    for method in (ours, process, tuned):
        (f, density), seconds = common.cpu(lambda m=method: m(X, y, new, response))  # type: ignore[misc]
        found.append((np.sqrt(np.mean((response - f) ** 2)), density.mean(), seconds))
    return np.array(found)


def growing(quick: bool) -> Iterator[tuple[Any, ...]]:
    for n in (50, 200, 800) if quick else (50, 200, 800, 3200, 12_800, 20_000):
        X, y = make_friedman1(n + TEST, noise=1.0, random_state=0)
        model, seconds = common.cpu(lambda: BayesianKernelRegressor(random_state=0).fit(X[:n], y[:n]))  # noqa: B023
        lower, upper = model.predict_interval(X[n:], level=0.9).T
        share = float(np.mean((y[n:] > lower) & (y[n:] < upper)))
        error = float(np.sqrt(np.mean((y[n:] - model.predict(X[n:])) ** 2)))
        yield n, model.posterior_.columns.n_features, error, share, seconds


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=5, help="splits of each set")
    options = options.parse_args()
    most = 1 if options.quick else options.splits
    names = ("diabetes", "sinc, Laplace") if options.quick else ("diabetes", *SETS)
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        BayesianKernelRegressor().fit(*sinc(60, np.random.default_rng(0), np.random.default_rng(1).normal))  # compile
        results = {name: np.mean([measured(split) for split in splits(name, most)], axis=0) for name in names}
        rows = list(growing(options.quick))
    parts = []
    for index, title in enumerate(("root mean squared error", "log density", "CPU s per fit and prediction")):
        table = [(name, *found[:, index].tolist()) for name, found in results.items()]
        parts += [f"Mean test {title}:" if index < 2 else f"Mean {title}:", common.markdown(["set", *METHODS], table)]
    titles = ["rows", "features", "test error (noise 1)", "coverage of 90 %", "CPU s"]
    parts += ["Friedman 1 at growing numbers of rows:", common.markdown(titles, rows)]
    common.publish("kernel-regression", "\n\n".join(parts), options)


if __name__ == "__main__":
    main()
