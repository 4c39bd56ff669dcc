"""Variable selection: the lasso's mode against linear programming, and how priors with point masses mix.

"ess" is the effective sample size of all chains together, "range" the largest difference of an inclusion probability
between chains of a fit or between two fits. An indicator counts as undecided where its probability is 0.2 to 0.8.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import arviz
import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from sklearn.preprocessing import StandardScaler

from benchmarks import common
from benchmarks.floor import grams
from softmargin import BayesianSVC
from softmargin.priors import LaplaceZero, Lasso, SpikeSlab

SHORT = 0.2  # fits shorter than these seconds are repeated


def colon() -> tuple[Any, Any]:
    """Gene expression of tumours and normal tissue."""
    found = common.arrays("colon")
    return found["X"].astype(float), found["y"]


def golub() -> tuple[Any, Any]:
    """Gene expression of lymphoblastic and myeloid leukaemia, all 72 samples and 7129 genes."""
    found = common.arrays("golub")
    return found["X"].astype(float), np.where(found["y"] == "AML", 1.0, -1.0)


def shape(name: str, X: Any) -> str:
    return f"{name} {X.shape[0]} x {X.shape[1]}"


# The lasso's mode


def linear_program(X: Any, y: Any, scale: float, method: str) -> Any:
    """``min 2 sum max(1 - y f, 0) + sum |b| / scale`` over standardized columns and a free intercept."""
    Z = np.column_stack((np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0))) * y[:, None]
    n, p = Z.shape
    rate = np.full(p, 1.0 / scale)
    rate[0] = 0.0
    A = sparse.hstack([sparse.csr_array(-Z), sparse.csr_array(Z), -sparse.eye_array(n)])
    return linprog(np.concatenate((rate, rate, np.full(n, 2.0))), A_ub=A, b_ub=-np.ones(n), method=method)


def lasso(quick: bool) -> str:
    """Objective, certificate, zeros and time of the mode, with HiGHS as the peer."""
    rows = []
    for name, (X, y) in {"spam": common.table("spam"), "colon": colon()}.items():
        if quick:
            X, y = X[:: max(1, len(X) // 1000), :200], y[:: max(1, len(X) // 1000)]
        for scale in (0.01, 0.1, 1.0):
            model = BayesianSVC(Lasso(scale=scale), "map", learning_rate=1.0)
            model, seconds = common.cpu(lambda model=model, X=X, y=y: model.fit(X, y), SHORT)
            value = 2.0 * np.maximum(1.0 - y * (X @ model.coef_[0] + model.intercept_[0]), 0.0).sum()
            value += np.abs(model.coef_[0] * X.std(axis=0)).sum() / scale
            theirs, lowest = {}, np.inf
            for method in ("highs-ds", "highs-ipm"):
                answer, theirs[method] = common.cpu(lambda m=method, X=X, y=y, s=scale: linear_program(X, y, s, m))
                lowest = min(lowest, answer.fun)
            fastest = min(theirs, key=theirs.__getitem__)
            rows.append(
                (
                    shape(name, X), f"{scale:g}", int((model.coef_[0] == 0.0).sum()), model.gap_,
                    (value - lowest) / lowest, seconds, theirs[fastest], fastest, theirs[fastest] / seconds,
                )
            )  # fmt: skip
            print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "set", "scale", "exact zeros", "our gap", "relative difference to HiGHS", "our CPU s", "HiGHS CPU s",
        "its method", "ratio",
    )  # fmt: skip
    return common.markdown(columns, rows)


# Priors with point masses


def ess(trace: Any) -> float:
    """Effective sample size of (chains, draws); none for a constant."""
    trace = np.asarray(trace, dtype=float)
    return float(arviz.ess(trace)) if np.ptp(trace) > 0 else np.nan


def mixing(model: BayesianSVC) -> dict[str, float]:
    """Effective draws of the log pseudo-likelihood, of the model's size, and of the worst undecided indicator."""
    posterior = model.posterior_
    inside = posterior.draws[..., int(posterior.columns.intercept) :] != 0.0
    share = inside.mean(axis=(0, 1))
    undecided = [ess(inside[..., j]) for j in np.flatnonzero((share >= 0.2) & (share <= 0.8))]
    return {
        "loglik": ess(posterior.loglik),
        "size": ess(inside.sum(axis=-1)),
        "indicator": min(undecided, default=np.nan),
    }


def heard(fit: Callable[[], BayesianSVC]) -> tuple[BayesianSVC, float, bool]:
    """A fit, its CPU seconds, and whether it warned that chains disagree."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, seconds = common.cpu(fit)
    return model, seconds, any("disagree" in str(warning.message) for warning in caught)


def chain_range(model: BayesianSVC) -> float:
    return float(np.ptp(model.chain_inclusion_, axis=0).max())


def spam(quick: bool) -> str:
    """Four chains on spam under the pseudo-likelihood of the papers, and what the plain scan costs."""
    X, y = common.table("spam")
    rows = []
    for inclusion in (0.5, 0.01):
        for scale in (1.0, 10.0):
            model = BayesianSVC(
                SpikeSlab(inclusion, scale=scale), "gibbs", learning_rate=1.0, draws=40 if quick else 6000,
                warmup=40 if quick else 1500, random_state=0,
            )  # fmt: skip
            model, seconds, warned = heard(lambda model=model: model.fit(X, y))
            found = mixing(model)
            rows.append(
                (
                    f"{inclusion:g}", f"{scale:g}", chain_range(model), float(model.inclusion_.sum()), seconds / 4,
                    found["loglik"], found["size"], found["indicator"], seconds / np.nanmin(list(found.values())),
                    "yes" if warned else "no",
                )
            )  # fmt: skip
            print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "inclusion", "slab sd", "range over chains", "mean size", "CPU s a chain", "ess loglik", "ess size",
        "ess worst undecided", "CPU s an effective draw", "warned",
    )  # fmt: skip
    sweeps = 200 if quick else 10_000
    plain = BayesianSVC(
        SpikeSlab(0.01, scale=1.0), "gibbs", learning_rate=1.0, draws=sweeps, warmup=0, chains=1, random_state=0,
        engine_options={"scan": "plain"},
    )  # fmt: skip
    plain.set_params(draws=20).fit(X, y)
    floor = grams(X, sweeps // 2)
    _, seconds, _ = heard(lambda: plain.set_params(draws=sweeps).fit(X, y))
    floor += grams(X, sweeps - sweeps // 2)  # half before, half after: the machine may drift
    note = f"{sweeps} sweeps of the plain scan over the indicators (`engine_options={{'scan': 'plain'}}`) take "
    note += f"{seconds:.1f} s, {seconds / floor:.2f} times as long as as many bare weighted Gram matrices."
    return f"{shape('spam', X)}, learning rate 1, four chains:\n\n{common.markdown(columns, rows)}\n\n{note}"


def genes(quick: bool) -> str:
    """Two seeds on wide sets."""
    rows = []
    for name, (X, y) in {"colon": colon(), "golub": golub()}.items():
        if quick and name == "golub":
            continue
        for rate in ("auto",) if name == "golub" else ("auto", 1.0):
            rows.append(two_seeds(name, X, y, 1.0, rate, 50 if quick else 1000))
            print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "set", "slab sd", "learning rate", "its posterior sd", "range over seeds above 0.2", "range over chains",
        "mean size", "CPU s a fit", "ess loglik", "ess size", "ess worst undecided", "CPU s an effective draw",
        "warned",
    )  # fmt: skip
    setting = "`SpikeSlab(expected_size=5)`, four chains of 1000 draws and 500 to warm up:"
    return f"{setting}\n\n{common.markdown(columns, rows)}"


def two_seeds(name: str, X: Any, y: Any, scale: Any, rate: Any, draws: int) -> tuple[Any, ...]:
    """One row of the table: the same fit with two seeds."""
    prior = SpikeSlab(expected_size=5, scale=scale)
    fits = [
        heard(
            lambda seed=seed: BayesianSVC(
                prior, "gibbs", learning_rate=rate, draws=draws, warmup=draws // 2, random_state=seed
            ).fit(X, y)
        )
        for seed in (0, 1)
    ]
    (one, seconds, warned), (other, again, also) = fits
    found = mixing(one)
    above = np.maximum(one.inclusion_, other.inclusion_) > 0.2
    apart = float(np.abs(one.inclusion_ - other.inclusion_)[above].max()) if above.any() else 0.0
    return (
        shape(name, X), str(scale), f"{rate} ({one.learning_rate_:g})", one.scale_, apart,
        max(chain_range(one), chain_range(other)), float(one.inclusion_.sum()), 0.5 * (seconds + again),
        found["loglik"], found["size"], found["indicator"], seconds / np.nanmin(list(found.values())),
        f"{int(warned) + int(also)} of 2",
    )  # fmt: skip


def planted(n: int, p: int, signals: int, seed: int) -> tuple[Any, Any, Any]:
    """Independent normal columns; the first ``signals`` decide a logistic label with slopes of 1.5 and either sign."""
    rng = np.random.default_rng([seed, n, p])
    X = rng.standard_normal((n, p))
    slopes = np.where(np.arange(signals) % 2 == 0, 1.5, -1.5)
    probability = 1.0 / (1.0 + np.exp(-X[:, :signals] @ slopes))
    return X, np.where(rng.random(n) < probability, 1.0, -1.0), np.arange(p) < signals


def many(quick: bool) -> str:
    """Ten columns that matter among very many."""
    rows = []
    n, p = (200, 1000) if quick else (500, 20_000)
    for seed in (0,) if quick else (0, 1, 2):
        X, y, truth = planted(n, p, 10, seed)
        model = BayesianSVC(SpikeSlab(expected_size=10), "gibbs", draws=100, warmup=100, random_state=0)
        model, seconds, warned = heard(lambda model=model, X=X, y=y: model.fit(X, y))
        supports = (model.get_support(), model.get_support(false_discovery=0.1))
        counts = [f"{(mask & truth).sum()} of 10, {(mask & ~truth).sum()} wrong" for mask in supports]
        found = mixing(model)
        rows.append(
            (
                f"{n} x {p}, seed {seed}", model.learning_rate_, model.scale_, *counts, chain_range(model), seconds,
                found["loglik"], found["size"], "yes" if warned else "no",
            )
        )  # fmt: skip
        print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "simulated", "learning rate", "slab sd", "get_support()", "get_support(false_discovery=0.1)",
        "range over chains", "CPU s", "ess loglik", "ess size", "warned",
    )  # fmt: skip
    setting = "`SpikeSlab(expected_size=10)`, 100 draws and as many to warm up, everything else as it comes:"
    return f"{setting}\n\n{common.markdown(columns, rows)}"


def laplace(quick: bool) -> str:
    """Laplace-zero on spam: the variational fit, and chains."""
    X, y = common.table("spam")
    vb = BayesianSVC(LaplaceZero(), learning_rate=1.0)
    vb.fit(X[::20], y[::20])
    vb, seconds, _ = heard(lambda: vb.fit(X, y))
    draws = 100 if quick else 5000
    sweeps = draws + draws // 5
    chain = BayesianSVC(LaplaceZero(), "gibbs", learning_rate=1.0, draws=20, warmup=20, chains=1, random_state=0)
    chain.fit(X[::20], y[::20])
    chain, spent, _ = heard(lambda: chain.set_params(draws=draws, warmup=draws // 5).fit(X, y))
    found = mixing(chain)
    rows = [
        ("vb, CPU s", seconds),
        ("vb, columns above one half", int(vb.get_support().sum())),
        (f"gibbs, CPU s for {sweeps} sweeps", spent),
        ("gibbs, the same for 100,000 sweeps", spent * 100_000 / sweeps),
        ("gibbs, columns above one half", int(chain.get_support().sum())),
        ("gibbs, ess loglik", found["loglik"]),
        ("gibbs, ess size", found["size"]),
        ("gibbs, ess worst undecided", found["indicator"]),
        ("largest difference of inclusion", float(np.abs(vb.inclusion_ - chain.inclusion_).max())),
    ]
    return common.markdown((f"{shape('spam', X)}, `LaplaceZero()`, learning rate 1", ""), rows)


def ours(X: Any, y: Any, size: int, draws: int, seed: int) -> Any:
    """Inclusion probabilities of one chain of ours at slab sd 1, hinge."""
    prior = SpikeSlab(size / X.shape[1], scale=1.0)
    options = {"draws": draws, "warmup": draws // 2, "chains": 1, "random_state": seed}
    return BayesianSVC(prior, "gibbs", **options).fit(X, y).inclusion_


def millipede(X: Any, y: Any, size: int, draws: int, seed: int) -> Any:
    """The same of millipede's weighted tempered Gibbs sampler, logistic likelihood."""
    import pandas as pd
    from millipede import BernoulliLikelihoodVariableSelector

    frame = pd.DataFrame(StandardScaler().fit_transform(X)).add_prefix("x").assign(label=(y > 0).astype(float))
    selector = BernoulliLikelihoodVariableSelector(frame, "label", S=float(size), tau=1.0)
    selector.run(T=draws, T_burnin=draws // 2, verbosity=None, seed=seed)
    return selector.pip.to_numpy()


def peer(quick: bool) -> str:
    """Spike-and-slab beside millipede: what a given Monte Carlo error of the inclusion probabilities costs."""
    n, p, size, seeds = (200, 100, 5, 3) if quick else (500, 1000, 10, 4)
    X, y, truth = planted(n, p, size, 0)
    share = 0.1 if quick else 1.0
    samplers: dict[str, tuple[str, Callable[[int], Any]]] = {
        "softmargin": ("hinge", lambda seed: ours(X, y, size, int(1000 * share), seed)),
    }
    if find_spec("millipede") is not None:
        samplers["millipede"] = "logistic", lambda seed: millipede(X, y, size, int(4000 * share), seed)
    rows = []
    for name, (likelihood, run) in samplers.items():
        fits = [common.cpu(lambda run=run, seed=seed: run(seed)) for seed in range(seeds)]
        found, seconds = (
            np.array([probability for probability, _ in fits]),
            float(np.mean([spent for _, spent in fits])),
        )
        error = float(found.std(axis=0, ddof=1).max())
        chosen = found.mean(axis=0) > 0.5
        counts = f"{(chosen & truth).sum()} of {size}, {(chosen & ~truth).sum()} wrong"
        rows.append((name, likelihood, counts, seconds, error, seconds * (error / 0.01) ** 2))
        print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "sampler", "likelihood", "above one half", "CPU s a chain", "largest sd of an inclusion over seeds",
        "CPU s to an sd of 0.01",
    )  # fmt: skip
    setting = f"Simulated {n} x {p}, {size} columns that matter and as many expected, slab sd 1, {seeds} seeds:"
    return f"{setting}\n\n{common.markdown(columns, rows)}"


PARTS = {"lasso": lasso, "spam": spam, "genes": genes, "many": many, "laplace": laplace, "peer": peer}


def warm_up() -> None:
    """Compile the samplers, wide and narrow."""
    X, y = common.simulated(60, 3, 0)
    wide = np.random.default_rng(0).standard_normal((60, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for columns in (X, wide):
            BayesianSVC(SpikeSlab(0.1), "gibbs", draws=10, warmup=10, chains=1).fit(columns, y)
            BayesianSVC(Lasso(scale=0.1), "map", learning_rate=1.0).fit(columns, y)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--part", choices=[*PARTS], action="append", help="only this part; may be repeated")
    options = options.parse_args()
    common.warm_up()
    with common.one_thread():
        warm_up()
        for name in options.part or PARTS:
            common.publish(f"selection_{name}", PARTS[name](options.quick), options)


if __name__ == "__main__":
    main()
