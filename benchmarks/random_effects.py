"""Random effects: the toenail data against a linear machine on indicators and a variational logistic mixed model.

Speed: whole fits of an intercept for each of 294 patients, CPU seconds on one thread; the mixed model of statsmodels is
timed where that package is installed. Error: balanced error over random splits of the rows, three quarters to train;
LinearSVC sees the same standardized columns and one indicator a patient, its C searched by 5-fold cross-validation of
the balanced error over 8 values. Size: whole fits with ten columns, and the peak of the memory that they allocate.
"""

from __future__ import annotations

import signal
import tracemalloc
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC

GRID = np.logspace(-3, 2, 8)
CHAIN = {"inference": "gibbs", "chains": 2, "draws": 400, "warmup": 100}
PEER = "LinearSVC on indicators"
FITS: dict[str, dict[str, Any]] = {
    "vb, learning rate 1": {"learning_rate": 1.0},
    "gibbs, learning rate 1": {"learning_rate": 1.0, **CHAIN},
    "vb, learning rate by itself": {},
}
SIZES = ((2_000, 20_000), (2_000, 200_000), (20_000, 200_000), (100_000, 200_000))


def cut_short(most: int) -> Iterator[int]:
    """Seeds of splits; an interrupt (Ctrl-C) ends them after the split at work, with what has been done."""
    stop: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: stop.append(number))
    try:
        for seed in range(most):
            if stop:
                return
            yield seed
    finally:
        signal.signal(signal.SIGINT, before)


def toenail() -> tuple[pd.DataFrame, Any]:
    """Treatment, months, their product, and the patient; whether the infection is moderate or severe."""
    frame = pd.read_csv(common._file("toenail.csv.gz"))
    treated, months = (frame["treatment"] == "terbinafine").to_numpy(float), frame["time"].to_numpy(float)
    columns = {"treated": treated, "months": months, "treated months": treated * months}
    return pd.DataFrame({**columns, "patient": frame["patient"]}), frame["y"].to_numpy(int)


def on_indicators(X: pd.DataFrame) -> Any:
    """Standardized columns and an indicator of every patient."""
    columns = X.drop(columns="patient").to_numpy()
    codes = pd.factorize(X["patient"])[0]
    patients = sp.csr_matrix((np.ones(len(X)), (np.arange(len(X)), codes)))
    return sp.hstack((sp.csr_matrix((columns - columns.mean(axis=0)) / columns.std(axis=0)), patients), format="csr")


def ours(X: pd.DataFrame, y: Any, **settings: Any) -> BayesianSVC:
    """An intercept for every patient, unless told otherwise."""
    return BayesianSVC(**{"random_effects": "patient", "random_state": 0} | settings).fit(X, y)


def peer(X: Any, y: Any, class_weight: Any, seed: int) -> Any:
    """The searched machine."""
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    machine = LinearSVC(class_weight=class_weight, random_state=0)
    return GridSearchCV(machine, {"C": GRID}, cv=folds, scoring="balanced_accuracy").fit(X, y)


def speed(quick: bool) -> str:
    """CPU seconds of a fit, the standard deviation between patients, and the sd of one coefficient."""
    X, y = toenail()
    length = {"draws": 450, "warmup": 50} if quick else {"draws": 4500, "warmup": 500}
    fits = {
        "vb, learning rate 1": {"learning_rate": 1.0},
        "vb, learning rate by itself": {},
        "meanfield, learning rate 1": {"learning_rate": 1.0, "inference": "meanfield"},
        "map, learning rate 1": {"learning_rate": 1.0, "inference": "map"},
        f"gibbs, learning rate 1, {2 * sum(length.values())} sweeps": {**CHAIN, "learning_rate": 1.0, **length},
    }
    rows: list[Any] = []
    for name, settings in fits.items():
        model, seconds = common.cpu(lambda settings=settings: ours(X, y, **settings), least=0.2)
        table, between = model.summary(), model.variance_components_["sd"].iloc[0]
        sd = float(table.loc["months", "sd"]) if "sd" in table else None
        rows.append((name, seconds, float(between), float(table.loc["months", "mean"]), sd))
    if find_spec("statsmodels") is not None:
        model = _mixed_model(X, y)
        fit, seconds = common.cpu(model.fit_vb)
        scale = X["months"].std(ddof=0)
        found = (float(np.exp(fit.vcp_mean[0])), float(fit.fe_mean[2] / scale), float(fit.fe_sd[2] / scale))
        rows.append(("statsmodels fit_vb (logistic)", seconds, *found))
    return common.markdown(("fit", "CPU s", "sd between patients", "coefficient of months", "its sd"), rows)


def _mixed_model(X: pd.DataFrame, y: Any) -> Any:
    """A logistic mixed model of the same columns."""
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    design = on_indicators(X)
    columns = np.column_stack((np.ones(len(y)), design[:, :3].toarray()))
    patients = design[:, 3:]
    return BinomialBayesMixedGLM((y > 0).astype(float), columns, patients, np.zeros(patients.shape[1], dtype=int))


def errors(splits: int) -> str:
    """Balanced errors on held-out rows, with plain rows and with weights that balance the classes."""
    X, y = toenail()
    indicators = on_indicators(X)
    found: dict[tuple[str, str], list[Any]] = {}
    for seed in cut_short(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.sort(order[: len(y) * 3 // 4]), np.sort(order[len(y) * 3 // 4 :])
        for weights in (None, "balanced"):
            search, seconds = common.cpu(lambda w=weights, t=train, s=seed: peer(indicators[t], y[t], w, s))
            answers = {PEER: (search.predict(indicators[test]), seconds)}
            for name, settings in FITS.items():
                settings = {"class_weight": weights, "random_state": seed, **settings}
                model, seconds = common.cpu(lambda t=train, s=settings: ours(X.iloc[t], y[t], **s))
                answers[name] = model.predict(X.iloc[test]), seconds
            for name, (labels, seconds) in answers.items():
                error = 1.0 - balanced_accuracy_score(y[test], labels)
                found.setdefault((weights or "none", name), []).append((error, np.mean(labels != y[test]), seconds))
    rows, splits = [], len(found["none", PEER])
    for (weights, name), each in found.items():
        balanced, plain, seconds = np.array(each).T
        difference = balanced - np.array(found[weights, PEER])[:, 0]
        apart = f"{difference.mean():+.4f} ± {difference.std() / np.sqrt(splits):.4f}" if name != PEER else "-"
        rows.append((weights, name, balanced.mean(), apart, plain.mean(), seconds.mean()))
    columns = ("class weights", "fit", "balanced error", f"difference to {PEER}", "error", "CPU s")
    return f"{splits} splits.\n\n" + common.markdown(columns, rows)


def sizes(quick: bool) -> str:
    """Whole fits, and the memory that they allocate beyond the data, which has eight bytes a number."""
    rows = []
    for groups, n in SIZES[:1] if quick else SIZES:
        rng = np.random.default_rng(0)
        X, codes = rng.standard_normal((n, 10)), rng.integers(0, groups, n)
        f = X @ rng.standard_normal(10) / 3.0 + rng.standard_normal(groups)[codes]
        y = np.where(f + rng.logistic(size=n) > 0.0, 1, -1)
        model = BayesianSVC(learning_rate=0.5)
        _, seconds = common.cpu(lambda model=model, X=X, y=y, codes=codes: model.fit(X, y, groups=codes))
        tracemalloc.start()
        model.fit(X, y, groups=codes)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        unit = n + 10 * groups
        rows.append((groups, n, model.n_iter_, seconds, 1e6 * seconds / (n + groups), peak / 1e6, peak / 8 / unit))
    columns = ("groups", "rows", "iterations", "CPU s", "CPU µs a row or group", "peak MB", "numbers per n + m p")
    return common.markdown(columns, rows)


def main() -> None:
    parts = {"random-effects": errors, "random-effects-speed": speed, "random-effects-sizes": sizes}
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, default=100, help="random splits of the rows; Ctrl-C cuts them short")
    options.add_argument("--only", choices=tuple(parts), action="append", help="one table, not all of them")
    chosen = options.parse_args()
    with common.one_thread():
        X, y = toenail()
        for inference in ("vb", "meanfield", "map", "gibbs"):  # compiles
            ours(X, y, inference=inference, learning_rate=1.0, chains=1, draws=10, warmup=0)
        for name in chosen.only or parts:
            size = (2 if chosen.quick else chosen.splits) if name == "random-effects" else chosen.quick
            common.publish(name, parts[name](size), chosen)


if __name__ == "__main__":
    main()
