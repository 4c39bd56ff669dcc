"""The methods and data of Zhang, Dai, Wang and Jordan (2010), and what is counted of their fits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
from softmargin.priors.g_prior import GPrior

THIN = 5
BAYES = ("BSVM", "CSVM", "BGKM", "FBGKM")
SVC, OURS = "tuned SVC", "library's default"
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


def fbgkm(X: Any, y: Any, most: int, moves: int | None = None, **length: int) -> BayesianKernelClassifier:
    """Fit FBGKM with the paper's prior."""
    options = {"prior": GPrior(), "moves": moves}
    model = BayesianKernelClassifier(
        likelihood="probit", basis="active", max_active=most, engine_options=options, **CHAIN, **length
    )
    return model.fit(X, y)


def fitted(name: str, X: Any, y: Any, most: int, sweeps: int) -> Any:
    """Fit one of the methods."""
    if name == "FBGKM":
        return fbgkm(X, y, most, **halves(sweeps))
    if name in MACHINES:
        options = {"prior": GPrior()} if name == "BGKM" else None
        machine = BayesianKernelClassifier(
            likelihood=MACHINES[name], basis="full", engine_options=options, **CHAIN, **halves(sweeps)
        )
        return machine.fit(X, y)
    return tuned(X, y) if name == SVC else BayesianKernelClassifier().fit(X, y)


def tuned(X: Any, y: Any) -> Any:
    """An SVC with C and width searched by 5-fold cross-validation over 30 values, calibrated by temperature."""
    width = mean_distance(X)
    grid = {"C": 10.0 ** np.arange(-0.5, 4.0), "gamma": (width * 2.0 ** np.arange(-2, 4)) ** -2.0}
    found = GridSearchCV(Machine(), grid, cv=5).fit(X, y)
    return CalibratedClassifierCV(Machine(**found.best_params_), method="temperature", cv=5, ensemble=False).fit(X, y)


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


def rows_of(name: str) -> tuple[Any, Any]:
    """Columns and labels 0 and 1 of a set of the paper."""
    if name == "NewsGroups":
        return documents()
    return data((TABLE_2 | TABLE_5)[name].file)


def partition(X: Any, y: Any, train: int, test: int, seed: int) -> common.Split:
    """Random rows to train on and others to test on."""
    order = np.random.default_rng([seed, train]).permutation(len(y))
    own, held = order[:train], order[train : train + test]
    return X[own], X[held], y[own], y[held]


@dataclass(frozen=True)
class Tally:
    """Test errors in per cent, CPU seconds and mean numbers of active rows of several methods, split by split."""

    errors: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    active: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, split: common.Split, most: int, sweeps: int) -> None:
        """Fit a method and count its errors."""
        X, new, y, truth = split
        model, seconds = common.cpu(lambda: fitted(name, X, y, most, sweeps))
        self.errors.setdefault(name, []).append(100.0 * float((model.predict(new) != truth).mean()))
        self.seconds.setdefault(name, []).append(seconds)
        if hasattr(model, "n_active_"):
            self.active.setdefault(name, []).append(float(model.n_active_.mean()))
        print(f"{name} {self.errors[name][-1]:.2f} % {seconds:.1f} s", end="; ", flush=True)

    @property
    def splits(self) -> int:
        """Splits done."""
        return len(next(iter(self.errors.values())))

    def error(self, name: str) -> str:
        """Mean error and its standard deviation over splits."""
        found = self.errors[name]
        return f"{np.mean(found):.2f}" + (f" ({np.std(found, ddof=1):.2f})" if len(found) > 1 else "")

    def apart(self, first: str, other: str) -> float:
        """Mean difference of two errors."""
        return float(np.mean(self.errors[first]) - np.mean(self.errors[other]))

    def time(self, name: str, factor: float = 1.0) -> float:
        """Mean CPU seconds."""
        return factor * float(np.mean(self.seconds[name]))
