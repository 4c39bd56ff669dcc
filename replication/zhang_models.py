"""The methods and data of Zhang, Dai, Wang and Jordan (2010)."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import load_npz
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC as Machine

from benchmarks import common
from replication.zhang_tables import TABLE_2, TABLE_5
from softmargin import BayesianKernelClassifier
from softmargin.designs.kernel.kernels import mean_distance
from softmargin.engines.kernel.machines import MachinePrior
from softmargin.priors.g_prior import GPrior

THIN = 5
POWERS, WIDTHS = np.arange(-0.5, 4.0), 2.0 ** np.arange(-2, 4)  # of 10 in C, and in mean distances
BAYES = ("BSVM", "CSVM", "BGKM", "FBGKM")
SVC, OURS = "tuned SVC", "library's default"
NEWS = "NewsGroups"
GROUPS = ("rec.autos", "rec.motorcycles")  # the pair of kindred groups with nearly the paper's 1985 documents
CHAIN = {
    "length_scale": "mean-distance",
    "inference": "gibbs",
    "learning_rate": 1.0,
    "standardize": False,
    "probability": "pseudo",
    "random_state": 0,
}
MACHINES = {"BGKM": "probit", "BSVM": "noisy-hinge", "CSVM": "complete-hinge"}  # on all rows


def halves(sweeps: int) -> dict[str, int]:
    """One chain of so many sweeps, the first half burn-in."""
    return {"chains": 1, "thin": THIN, "warmup": sweeps // 2, "draws": (sweeps - sweeps // 2) // THIN}


def fbgkm(most: int, moves: int | None = None, **length: int) -> BayesianKernelClassifier:
    """FBGKM with the paper's prior."""
    options = {"prior": GPrior(), "moves": moves}
    return BayesianKernelClassifier(
        likelihood="probit", basis="active", max_active=most, engine_options=options, **CHAIN, **length
    )


def bayesian(name: str, most: int, sweeps: int) -> BayesianKernelClassifier:
    """One of the paper's methods, or the library's default."""
    if name == "FBGKM":
        return fbgkm(most, **halves(sweeps))
    if name == OURS:
        return BayesianKernelClassifier()
    options = {"prior": GPrior()} if name == "BGKM" else {"machine_prior": MachinePrior()}
    return BayesianKernelClassifier(
        likelihood=MACHINES[name], basis="full", engine_options=options, **CHAIN, **halves(sweeps)
    )


def tuned(X: Any, y: Any) -> Any:
    """An SVC with C and width searched by 5-fold cross-validation over 30 values, calibrated by temperature."""
    grid = {"C": 10.0**POWERS, "gamma": (mean_distance(X) * WIDTHS) ** -2.0}
    found = GridSearchCV(Machine(), grid, cv=5).fit(X, y)
    return CalibratedClassifierCV(Machine(**found.best_params_), method="temperature", cv=5, ensemble=False).fit(X, y)


def fitted(name: str, X: Any, y: Any, most: int, sweeps: int) -> Any:
    """Fit one of the methods."""
    return tuned(X, y) if name == SVC else bayesian(name, most, sweeps).fit(X, y)


class Settings(NamedTuple):
    """Whether a method has sweeps and a largest number of active rows, and a digest of its other options."""

    sweeps: bool
    most: bool
    digest: str


@cache
def settings(name: str, method: str) -> Settings:
    """What a fit of a method to a set depends on, the library's defaults included."""
    own: Any = (POWERS.tolist(), WIDTHS.tolist()) if method == SVC else bayesian(method, 1, 2 * THIN).get_params()
    source = GROUPS if name == NEWS else (TABLE_2 | TABLE_5)[name].file
    text = repr((source, sorted(own.items()) if isinstance(own, dict) else own))
    return Settings(method in BAYES, method == "FBGKM", hashlib.sha256(text.encode()).hexdigest()[:8])


@cache
def warm_up() -> None:
    """Compile what is timed."""
    X, y = common.simulated(60, 3, 0)
    for method in (*BAYES, OURS):
        fitted(method, X, (y > 0).astype(int), 20, 20)


# The data


def data(name: str) -> tuple[Any, Any]:
    """Columns and labels of a set of the paper, by its file, such as "letter A B" or "ssl_bci"."""
    kind, *pair = name.split(" ")
    if kind == "letter":
        frame = pd.read_csv(common._file("letter.csv.gz"))
        X, y, wanted = frame.iloc[:, :-1].to_numpy(float), frame.iloc[:, -1].to_numpy(), np.array(pair)
    elif kind == "usps":
        stored = common.arrays("usps")
        X, y, wanted = stored["X"] / 1000.0 - 1.0, stored["y"], np.array(pair, dtype=int)
    elif kind.startswith("ssl"):
        stored = common.arrays(kind)
        return stored["X"].astype(float), (stored["y"] > 0).astype(int)
    else:
        X, y = common.table(kind)
        return X, (y > 0).astype(int)
    used = np.isin(y, wanted)
    return X[used], (y[used] == wanted[1]).astype(int)


def documents() -> tuple[Any, Any]:
    """Two news groups: unit rows of weighted word counts."""
    stored = common.arrays("news20_w1000")
    counts = load_npz(common._file("news20_w1000.npz")).tocsr()
    first, second = (int(np.flatnonzero(stored["group"] == group)[0]) for group in GROUPS)
    used = np.isin(stored["y"], (first, second))
    return TfidfTransformer().fit_transform(counts[used]).toarray(), (stored["y"][used] == second).astype(int)


@cache
def rows_of(name: str) -> tuple[Any, Any]:
    """Columns and labels 0 and 1 of a set of the paper."""
    if name == NEWS:
        return documents()
    return data((TABLE_2 | TABLE_5)[name].file)


def partition(X: Any, y: Any, train: int, test: int, seed: int) -> common.Split:
    """Random rows to train on and others to test on."""
    order = np.random.default_rng([seed, train]).permutation(len(y))
    own, held = order[:train], order[train : train + test]
    return X[own], X[held], y[own], y[held]
