"""Small fits of every kind, so that what they need is compiled and kept on disk."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from softmargin import BayesianKernelClassifier, BayesianKernelRegressor, BayesianSVC, BayesianSVR, Smooth

__all__ = ["compiled", "fits"]

_SHORT: dict[str, Any] = {"draws": 10, "warmup": 10, "chains": 2, "random_state": 0}


class _Data(NamedTuple):
    """Rows with a response of every kind."""

    X: Any
    y: Any
    groups: Any

    @property
    def two(self) -> Any:
        """Two classes."""
        return self.y > 0.0

    @property
    def three(self) -> Any:
        """Three classes."""
        return np.digitize(self.y, [-1.0, 1.0])

    @property
    def holes(self) -> Any:
        """The rows with missing entries."""
        return np.where(np.arange(self.X.size).reshape(self.X.shape) % 11 == 3, np.nan, self.X)


def _data() -> _Data:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3))
    return _Data(X, X[:, 0] + random.normal(size=60), random.integers(0, 6, 60))


def fits() -> dict[str, Callable[[], Any]]:
    """Every kind of fit by its name: engines, likelihoods, priors, kinds of rows, and estimators."""
    d, found = _data(), {}

    def add(kind: Any, X: Any, y: Any, words: str = "", groups: Any = None, **options: Any) -> None:
        given = {} if groups is None else {"groups": groups}
        said = ", ".join(word for word in (*options.values(), words) if isinstance(word, str) and word)
        found[f"{kind.__name__}: {said}"] = lambda: kind(**_SHORT, **options).fit(X, y, **given)

    for inference in ("vb", "map", "meanfield", "gibbs", "hmc", "svi"):
        add(BayesianSVC, d.X, d.two, inference=inference)
        add(BayesianSVR, d.X, d.y, inference=inference)
    for likelihood in ("logit", "probit", "squared-hinge"):
        for inference in ("vb", "map", "hmc") if likelihood == "squared-hinge" else ("vb", "map", "gibbs", "hmc"):
            add(BayesianSVC, d.X, d.two, inference=inference, likelihood=likelihood)
    for prior in ("lasso", "bridge", "horseshoe", "laplace-zero"):
        add(BayesianSVC, d.X, d.two, prior=prior, inference="vb")
        add(BayesianSVC, d.X, d.two, prior=prior, inference="gibbs")
    for likelihood in ("hinge", "logit"):
        add(BayesianSVC, d.X, d.two, prior="spike-slab", inference="gibbs", likelihood=likelihood)
    add(BayesianSVR, d.X, d.y, prior="spike-slab", inference="gibbs")
    add(BayesianSVC, d.X, d.two, prior="lasso", inference="map")
    for inference in ("vb", "map", "gibbs"):
        add(BayesianSVC, d.X, d.two, "groups", d.groups, inference=inference)
        add(BayesianSVC, d.holes, d.two, "missing values", inference=inference)
        add(BayesianSVC, d.X, d.three, "three classes", inference=inference)
        add(BayesianSVC, d.X, d.three, "three classes", multi_class="sum-to-zero", inference=inference)
    add(BayesianSVC, d.X, d.three, multi_class="sum-to-zero", prior="spike-slab", inference="gibbs")
    add(BayesianSVC, d.X, d.three, multi_class="sum-to-zero", prior="group-lasso", inference="map")
    add(BayesianSVC, d.holes, d.three, "missing values", multi_class="sum-to-zero")
    add(BayesianSVR, d.holes, d.y, "missing values")
    add(BayesianSVC, d.X, d.two, "a smooth term", random_effects=[Smooth(0)])
    for inference in ("map", "gibbs"):
        add(BayesianSVC, d.X, d.three, multi_class="crammer-singer", inference=inference)
    add(BayesianSVC, sp.csr_matrix(d.X * (d.X > 0.0)), d.two, "sparse rows")
    add(BayesianSVC, sp.csr_matrix(d.X * (d.X > 0.0)), d.two, "sparse rows", solver="cg")
    for basis, inferences in {"full": ("vb", "gibbs"), "inducing": ("vb", "svi"), "active": ("gibbs",)}.items():
        for inference in inferences:
            add(BayesianKernelClassifier, d.X, d.two, basis=basis, inference=inference)
    add(BayesianKernelRegressor, d.X, d.y)
    add(BayesianKernelRegressor, d.X, d.y, basis="inducing")
    return found


def compiled(wanted: str = "") -> Iterator[tuple[str, float]]:
    """Make the fits whose names contain ``wanted``; names and CPU seconds as they end."""
    for name, fit in fits().items():
        if wanted in name:
            begun = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # so short a run says nothing about convergence
                fit()
            yield name, time.process_time() - begun
