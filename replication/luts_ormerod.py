"""Luts and Ormerod (2014), sections 4.2, 4.3 and 4.5: the penalty, random intercepts, missing predictors.

The model, priors and decision rule are the paper's: learning rate 1, inverse gamma variances with A = B = 0.01, the
sign of the posterior mean. "VB" is the paper's mean field. "MCMC" is a chain of its posterior: in 4.2 by the printed
sampler and by ours, which also moves the scale together with the coefficients; in 4.3 and 4.5 by ours. The default SVM
searches its penalty on two grids, the second around the best value of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from benchmarks import common
from benchmarks.missing import acath
from benchmarks.random_effects import cut_short, on_indicators, toenail
from replication.common import Page, parser
from softmargin import BayesianSVC, RandomEffect
from softmargin.priors import InverseGamma, Ridge

VARIANCE = InverseGamma(0.01, 0.01)  # the paper's A and B
FIXED = Ridge(1e4)  # the paper's variance 1e8 of fixed effects
LENGTH = {"chains": 1, "draws": 300, "warmup": 100}
PRINTED = {"scale_moves": False}  # variances drawn given coefficients only
SWEEPS = LENGTH["draws"] + LENGTH["warmup"]
PAPER_SWEEPS, PAPER_HOLDOUTS = 10_000, 100
GRID = np.logspace(-3, 1, 5)
CELLS = [(n, d) for d in (10, 50, 100) for n in (100, 200, 500)]
COLOURS = {"SVM": "C7", "VB": "C0", "MCMC": "C1"}


@dataclass(frozen=True)
class Tally:
    """Balanced errors and CPU seconds of several fits, split by split."""

    errors: dict[str, list[float]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, fit: Callable[[], Any], X: Any, y: Any) -> None:
        """Fit, and count the errors on new rows."""
        model, seconds = common.cpu(fit)
        self.errors.setdefault(name, []).append(1.0 - balanced_accuracy_score(y, model.predict(X)))
        self.seconds.setdefault(name, []).append(seconds)

    def mean(self, *names: str) -> str:
        """Mean balanced errors."""
        return ", ".join(f"{name} {np.mean(self.errors[name]):.4f}" for name in names)

    def apart(self, first: str, other: str) -> str:
        """Mean difference of two errors on the same splits, and its standard error."""
        difference = np.subtract(self.errors[first], self.errors[other])
        return f"{difference.mean():+.4f} ± {difference.std() / np.sqrt(len(difference)):.4f}"

    def time(self, name: str, factor: float = 1.0) -> str:
        """Mean CPU seconds of a fit."""
        return f"{factor * np.mean(self.seconds[name]):.3g} s"


def searched(X: Any, y: Any, seed: int, machine: Any, holdouts: int) -> Any:
    """The paper's default: the penalty with the least balanced error on parts held out, from two grids."""
    held = StratifiedShuffleSplit(holdouts, test_size=0.25, random_state=seed)
    first = GridSearchCV(machine, {"C": GRID}, cv=held, scoring="balanced_accuracy", refit=False).fit(X, y)
    second = first.best_params_["C"] * np.logspace(-0.75, 0.75, 7)
    return GridSearchCV(machine, {"C": second}, cv=held, scoring="balanced_accuracy").fit(X, y)


def default_svm(X: Any, y: Any, seed: int, holdouts: int = 5) -> Any:
    """That search with a quick machine and few parts held out."""
    return searched(X, y, seed, LinearSVC(loss="hinge", random_state=0), holdouts)


def fitted(X: Any, y: Any, inference: str, **settings: Any) -> BayesianSVC:
    """The paper's model."""
    length = {"tol": 1e-10, "max_iter": 5000} if inference == "meanfield" else LENGTH
    choices = {"prior": Ridge(hyperprior=VARIANCE), "random_state": 0, **length, **settings}
    return BayesianSVC(inference=inference, learning_rate=1.0, probability="sign", **choices).fit(X, y)


# Section 4.2


def simulation(page: Page, sets: int, cells: Any) -> None:
    """Figure 1: penalty parameter inference."""
    found = {cell: Tally() for cell in cells}
    for seed in cut_short(sets):
        for (n, d), tally in found.items():
            X, y = common.simulated(n + 1000, d, seed)
            train, new = (X[:n], y[:n]), (X[n:], y[n:])
            tally.add("SVM", lambda t=train, s=seed: default_svm(*t, s), *new)
            tally.add("VB", lambda t=train: fitted(*t, "meanfield"), *new)
            tally.add("MCMC", lambda t=train: fitted(*t, "gibbs", engine_options=PRINTED), *new)
            tally.add("our chain", lambda t=train: fitted(*t, "gibbs"), *new)
            tally.add("ours", lambda t=train: BayesianSVC().fit(*t), *new)

    def compared(first: str, other: str, columns: tuple[int, ...]) -> str:
        return "; ".join(f"{n} x {d}: {t.apart(first, other)}" for (n, d), t in found.items() if d in columns)

    sets = len(found[cells[0]].errors["VB"])
    every = f"{sets} data sets a cell (the paper has 200), 1000 new rows each"
    page.row(
        "4.2, figure 1: VB and MCMC are in general comparable",
        "VB less MCMC, n x d: " + compared("VB", "MCMC", (10, 50, 100)),
        f"balanced error; {every}; a chain of {SWEEPS} sweeps",
    )
    page.row(
        "the default SVM is similar for d = 10",
        "SVM less MCMC: " + compared("SVM", "MCMC", (10,)),
        "5 parts held out in our search of the penalty, 100 in the paper's",
    )
    page.row(
        "and slightly worse than both for d = 50 and 100, less so with more rows",
        "SVM less VB: " + compared("SVM", "VB", (50, 100)) + ". SVM less MCMC: " + compared("SVM", "MCMC", (50, 100)),
    )
    X, y = common.simulated(100, 100, 0)
    reached = (scales(X, y, prior) for prior in (Ridge(hyperprior=VARIANCE), Ridge()))
    page.row(
        "(not in the paper: a sampler that moves the scale with the coefficients)",
        "our chain less MCMC: " + compared("our chain", "MCMC", (10, 50, 100)),
        "of a data set 100 x 100 the middle 80 % of our draws of the scale: {} under the paper's prior, {} under the "
        "library's".format(*reached),
    )
    page.row(
        "(not in the paper: the library's default)",
        "ours less MCMC: " + compared("ours", "MCMC", (10, 50, 100)),
        "`BayesianSVC()`: Gaussian variational fit, learning rate by itself",
    )
    n, d = cells[min(1, len(cells) - 1)]
    X, y = common.simulated(n, d, 0)
    holdouts = PAPER_HOLDOUTS if sets > 2 else 2
    _, whole = common.cpu(lambda: searched(X, y, 0, SVC(kernel="linear"), holdouts))
    tally = found[n, d]
    page.row(
        "n = 200, d = 10: SVM 571.75 s, VB 1.68 s, MCMC 82.31 s",
        f"SVM {whole:.3g} s, VB {tally.time('VB')}, MCMC {tally.time('MCMC', PAPER_SWEEPS / SWEEPS)}, "
        f"`BayesianSVC()` {tally.time('ours')}",
        f"{n} x {d}; SVM: LIBSVM, {holdouts} parts held out, grids of 5 and 7; MCMC: time of {PAPER_SWEEPS} sweeps",
    )
    text = "Figure 1: balanced error on new rows in the simulation"
    with page.picture("lo_simulation", text, ncols=len(cells), figsize=(9.4, 3.4), sharey=True, squeeze=False) as axes:
        for ax, ((n, d), tally) in zip(axes[0], found.items(), strict=True):
            boxes(ax, tally, tuple(COLOURS))
            ax.set_title(f"n = {n}\nd = {d}", fontsize=9)
        axes[0, 0].set_ylabel("balanced error")


def scales(X: Any, y: Any, prior: Ridge) -> str:
    """Where our chain finds the standard deviation of the coefficients."""
    draws = fitted(X, y, "gibbs", prior=prior).to_arviz().posterior["scale"].to_numpy()
    return "{:.2g} to {:.2g}".format(*np.quantile(draws, (0.1, 0.9)))


# Section 4.3


def random_intercept(page: Page, splits: int) -> None:
    """Figure 2: the toenail data."""
    X, y = toenail()
    columns, indicators = X.drop(columns="patient").to_numpy(), on_indicators(X)
    patients = {"prior": FIXED, "random_effects": RandomEffect("patient", hyperprior=VARIANCE)}
    tally = Tally()
    for seed in cut_short(splits):
        train, test = halves(np.arange(len(y)), len(y) // 4, seed)
        rows, labels, held = X.iloc[train], y[train], y[test]
        tally.add("SVM", lambda a=columns[train], b=labels, s=seed: scaled_svm(a, b, s), columns[test], held)
        tally.add(
            "SVM, indicators", lambda t=train, s=seed: default_svm(indicators[t], y[t], s), indicators[test], held
        )
        tally.add("VB", lambda a=rows, b=labels: fitted(a, b, "meanfield", **patients), X.iloc[test], held)
        tally.add("MCMC", lambda a=rows, b=labels: fitted(a, b, "gibbs", **patients), X.iloc[test], held)
    splits = len(tally.errors["VB"])
    page.row(
        "4.3, figure 2: VB and MCMC with random intercepts are better than traditional SVMs",
        f"SVM without patients {np.mean(tally.errors['SVM']):.4f}; {tally.mean('SVM, indicators', 'VB', 'MCMC')}",
        f"mean balanced error, {splits} random splits of the rows. Without patients the SVM calls nearly every visit "
        "the larger class. One indicator a patient is what a user of a SVM would do, and brings it near; class "
        "weights do more ([benchmarks](benchmarks.md#random-effects-benchmarksrandom_effects))",
    )
    page.row(
        "MCMC has slightly lower errors than VB",
        f"MCMC less VB {tally.apart('MCMC', 'VB')}; VB less SVM with indicators {tally.apart('VB', 'SVM, indicators')}",
        f"`time` in months as visit time (the paper may mean the number of the visit); MCMC: {SWEEPS} sweeps",
    )
    page.row(
        "SVM 3668.70 s, VB 171.85 s, MCMC 3597.12 s",
        f"SVM {tally.time('SVM')}, VB {tally.time('VB')}, MCMC {tally.time('MCMC', PAPER_SWEEPS / SWEEPS)}",
        f"SVM: LIBLINEAR, 5 parts held out; MCMC: time of {PAPER_SWEEPS} sweeps. Patients are eliminated one by one, "
        "where the printed algorithms factor a matrix with a row for each",
    )
    picture(page, tally, "lo_toenail", "Figure 2: balanced error on held-out visits of the toenail data")


# Section 4.5


def missing_predictors(page: Page, splits: int) -> None:
    """Figure 4: the cardiac catheterization data."""
    X, y = acath()
    whole = np.flatnonzero(~np.isnan(X).any(axis=1))
    tally = Tally()
    for seed in cut_short(splits):
        _, test = halves(whole, len(y) // 4, seed)  # only complete rows are held out
        train = np.setdiff1d(np.arange(len(y)), test)
        complete, new = np.intersect1d(train, whole), (X[test], y[test])
        tally.add("SVM", lambda t=complete, s=seed: scaled_svm(X[t], y[t], s), *new)
        tally.add("VB", lambda t=train: fitted(X[t], y[t], "meanfield"), *new)
        tally.add("MCMC", lambda t=train: fitted(X[t], y[t], "gibbs"), *new)
        tally.add("VB, complete rows", lambda t=complete: fitted(X[t], y[t], "meanfield"), *new)
        tally.add("logistic, complete rows", lambda t=complete: logistic().fit(X[t], y[t]), *new)
    splits = len(tally.errors["VB"])
    page.row(
        "4.5, figure 4: methods that use the rows with missing values can be better than a SVM on complete rows",
        f"{tally.mean('SVM', 'VB', 'MCMC', 'VB, complete rows')}; VB less SVM {tally.apart('VB', 'SVM')}",
        f"mean balanced error, {splits} splits, complete rows held out; log1p of the duration, which has zeros",
    )
    shares = (standardized(fitted(X[rows], y[rows], "meanfield"), X) for rows in (np.arange(len(y)), whole))
    page.row(
        "(what the rows with missing values add, by the same method)",
        f"VB less VB on complete rows {tally.apart('VB', 'VB, complete rows')}; VB less logistic regression on "
        f"complete rows {tally.apart('VB', 'logistic, complete rows')}",
        "coefficients of sex, age, duration, cholesterol, standardized, in a fit to all rows: {}; to complete rows: "
        "{}. The hinge has a corner at the answer by sex alone".format(*shares),
    )
    page.row("VB seems slightly better than MCMC", f"VB less MCMC {tally.apart('VB', 'MCMC')}")
    page.row(
        "SVM 3109.40 s, VB 1028.18 s, MCMC 1718.98 s",
        f"SVM {tally.time('SVM')}, VB {tally.time('VB')}, MCMC {tally.time('MCMC', PAPER_SWEEPS / SWEEPS)}",
        f"SVM: LIBLINEAR, 5 parts held out; MCMC: time of {PAPER_SWEEPS} sweeps. Rows are grouped by what is missing",
    )
    picture(page, tally, "lo_acath", "Figure 4: balanced error on held-out complete rows of the catheterization data")


def logistic() -> Any:
    """Logistic regression on standardized columns."""
    return make_pipeline(StandardScaler(), LogisticRegression())


def standardized(model: BayesianSVC, X: Any) -> str:
    """Coefficients of standardized columns."""
    return ", ".join(f"{value:.2f}" for value in model.coef_[0] * np.nanstd(X, axis=0))


# What they share


def halves(rows: Any, size: int, seed: int) -> tuple[Any, Any]:
    """Rows to train on and ``size`` rows to test on."""
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[size:]), np.sort(order[:size])


def scaled_svm(X: Any, y: Any, seed: int) -> Any:
    """The default SVM on standardized columns."""
    scale = StandardScaler().fit(X)
    return make_pipeline(scale, default_svm(scale.transform(X), y, seed))


def boxes(ax: Any, tally: Tally, names: tuple[str, ...]) -> None:
    """Boxplots of balanced errors."""
    drawn = ax.boxplot([tally.errors[name] for name in names], widths=0.7, patch_artist=True, flierprops={"ms": 3})
    for name, patch, line in zip(names, drawn["boxes"], drawn["medians"], strict=True):
        patch.set_facecolor(COLOURS.get(name.split(",")[0], "C2"))
        line.set_color("black")
    ax.set_xticks(range(1, len(names) + 1), names, rotation=90, fontsize=8)


def picture(page: Page, tally: Tally, name: str, text: str) -> None:
    """All boxplots of a data set."""
    with page.picture(name, text, figsize=(4.6, 4.0)) as ax:
        boxes(ax, tally, tuple(tally.errors))
        ax.set_ylabel("balanced error")


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument(
        "--splits",
        type=int,
        default=100,
        help="random splits of the real data (default: 100); Ctrl-C cuts a loop short",
    )
    options.add_argument("--sets", type=int, default=200, help="simulated data sets a cell (default: 200)")
    options.add_argument(
        "--only", choices=("penalty", "groups", "missing"), action="append", help="one of the sections"
    )
    chosen = options.parse_args(arguments)
    splits, sets, cells = (1, 1, CELLS[:2]) if chosen.quick else (chosen.splits, chosen.sets, CELLS)
    parts: dict[str, Callable[[Page], None]] = {
        "penalty": lambda page: simulation(page, sets, cells),
        "groups": lambda page: random_intercept(page, splits),
        "missing": lambda page: missing_predictors(page, splits),
    }
    with common.one_thread():
        X, y = common.simulated(60, 3, 0)
        holes = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
        frame = pd.DataFrame(X).assign(patient=np.arange(60) % 6).rename(columns=str)
        for inference in ("meanfield", "gibbs"):  # compiles
            for rows, effects in ((X, None), (holes, None), (frame, "patient")):
                fitted(rows, y, inference, random_effects=effects)
        BayesianSVC().fit(X, y)
        for name in chosen.only or parts:
            page = Page.of(f"luts_ormerod_{name}", chosen)
            parts[name](page)
            page.publish()


if __name__ == "__main__":
    main()
