"""Large sparse data: fits where no dense matrix has room, and how near they are to dense ones."""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import warnings
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import common
from softmargin import BayesianSVC


def text() -> tuple[Any, np.ndarray]:
    """Newsgroup posts about two makes of computers."""
    return common.sparse_rows("text_mac_windows")


def simulated_text(n: int, p: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows of 100 words by a Zipf law, 400 of the 3,000 commonest of which decide; about 80 different ones a row."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, p + 1)
    chosen = np.searchsorted(np.cumsum(frequency / frequency.sum()), rng.random(100 * n)).clip(max=p - 1)
    X = sparse.csr_matrix((np.ones(100 * n), (np.repeat(np.arange(n), 100), chosen)), shape=(n, p))
    X.sum_duplicates()
    X.data = 1.0 + np.log(X.data)
    beta = np.zeros(p)
    beta[rng.choice(min(3000, p), 400, replace=False)] = 2.0 * rng.standard_normal(400)
    f = X @ beta
    chance = 1.0 / (1.0 + np.exp(-1.5 * (f - np.median(f))))
    return X, np.where(rng.random(n) < chance, 1.0, -1.0)


def warm_up() -> None:
    """Compile everything, the engines that work by products included."""
    common.warm_up()
    X, y = simulated_text(60, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for inference in ("map", "vb"):
            BayesianSVC(inference=inference, solver="cg").fit(X, y)


def _one(inference: str, n: int, p: int, length: int) -> tuple[Any, ...]:
    """One fit with everything that users ask for, in a process of its own, so that its memory can be told."""
    X, y = simulated_text(n + n // 10, p)
    warm_up()
    with common.one_thread():
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        drawn = {"draws": length, "warmup": 10, "chains": 1, "learning_rate": 0.25} if inference == "gibbs" else {}
        model = BayesianSVC(inference=inference, random_state=0, **drawn)
        model, seconds = common.cpu(lambda: model.fit(X[:n], y[:n]))
        chance, predicting = common.cpu(lambda: model.predict_proba(X[n:]))
        summary = None if inference == "gibbs" else common.cpu(model.summary)[1]
    error = float((model.classes_[chance.argmax(axis=1)] != y[n:]).mean())
    score = -float(np.log(chance[np.arange(len(chance)), (y[n:] > 0).astype(int)]).mean())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rate = (length + 10) / seconds if inference == "gibbs" else None
    size = f"{n} x {p}"
    return size, inference, seconds, model.n_iter_, getattr(model, "gap_", None), rate, predicting, summary, score, error, peak - begun / 1e6, peak  # fmt: skip  # noqa: E501


def large(quick: bool) -> str:
    """Fits of the default settings at a size where neither Gram matrix has room."""
    n, p = (2000, 10_000) if quick else (20_000, 100_000)
    rows = []
    for inference in ("map", "vb", "gibbs"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(_one, (inference, n, p, 40)))
        print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "size", "inference", "fit, CPU s", "iterations", "gap", "sweeps a second", "predict_proba, CPU s",
        "summary, CPU s", "log loss", "error", "memory above data, GB", "peak, GB",
    )  # fmt: skip
    return common.markdown(columns, rows)


def agreement(quick: bool) -> str:
    """The fit by products against the one in the space of the rows."""
    rows = []
    for name, X, y in (("text", *text()), ("simulated", *simulated_text(2000, 10_000))):
        if quick:
            X, y = X[:: len(y) // 400], y[:: len(y) // 400]
        fits = []
        for solver in ("dual", "cg"):
            model = BayesianSVC(solver=solver, learning_rate=0.25)
            fits.append(common.cpu(lambda model=model, X=X, y=y: model.fit(X, y)))
        (dense, dense_s), (cg, cg_s) = fits
        f, sd = dense.decision_function(X, return_std=True)
        g, other = cg.decision_function(X, return_std=True)
        distance = float(np.sqrt(np.mean(((f - g) / sd) ** 2)))
        low, middle, high = np.quantile(other / sd, [0.05, 0.5, 0.95])
        own = [model.summary()["sd"].to_numpy() for model in (dense, cg)]
        used = own[0] > 0
        rows.append(
            (
                f"{name} {X.shape[0]} x {X.shape[1]}", dense_s, cg_s, dense.scale_, cg.scale_, distance,
                f"{low:.2f}, {middle:.2f}, {high:.2f}", float(np.median(own[1][used] / own[0][used])),
                dense.loo_.score, cg.loo_.score,
            )
        )  # fmt: skip
        print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "set", "dual, CPU s", "cg, CPU s", "scale, dual", "scale, cg", "f: rms difference in sd",
        "sd of f: ratio (5, 50, 95 %)", "sd of coefficients: median ratio", "LOO log loss, dual", "LOO log loss, cg",
    )  # fmt: skip
    return common.markdown(columns, rows)


def main() -> None:
    options: argparse.Namespace = common.parser(__doc__).parse_args()
    if options.output is None and not options.quick:
        options.output = common.PAGE.parents[1] / "how-to" / "big-data.md"
    warm_up()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, table in (("sparse-large", large), ("sparse-agreement", agreement)):
            common.publish(name, table(options.quick), options)


if __name__ == "__main__":
    main()
