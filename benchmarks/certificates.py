"""Simulation-based calibration through the public interface: ranks of what was drawn among the posterior's draws.

Parameters are drawn from the prior, responses from the likelihood, and a chain is run on them. If the sampler is exact,
the rank of every parameter among its posterior draws is uniform. That needs the joint density of parameters and
responses. A likelihood that normalises (logit, probit, squared, epsilon-insensitive) gives it at once. The hinge does
not normalise: with ``Z(f) = L(1, f) + L(-1, f)`` the joint density ``prior(theta) prod L(y_i, f_i)`` has the marginal
``prior(theta) prod Z(f_i)``. Z is at most ``1 + e^(-4c)``, so that parameters from the prior are accepted with
probability ``prod Z(f_i) / (1 + e^(-4c))``, and responses are then drawn with ``L(y, f) / Z(f)``. A classifier needs
both classes: where all responses are of one, parameters and responses are drawn again, which leaves the posterior given
any other responses as it is.

Each line has z-scores of the ranks' mean and spread and the p-value of a chi-square test of eight bins, for the
parameter where it is smallest, multiplied by the number of parameters. The controls must fail: responses of other
coefficients, and hinge responses of parameters that come from the prior as they are.
With missing entries the model of the columns is learned from the data under its default prior, which is so wide that
nothing can be drawn from it; columns are standard normal there, and the ranks uniform up to what 150 rows leave open.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr
from scipy.stats import chi2

from benchmarks import common
from softmargin import BayesianSVC, BayesianSVR, RandomEffect
from softmargin.priors import HalfT, Lasso, Ridge, SpikeSlab

DRAWS, BINS, NOISE, BAND = 63, 8, 0.7, 0.4
HINGE_ROWS = 12  # few, so that one of some dozens of proposals is accepted
LEARNED = HalfT()


def _half_t(rng: np.random.Generator) -> float:
    return float(abs(rng.standard_t(LEARNED.df)) * LEARNED.scale)


def _ridge(rng: np.random.Generator, p: int) -> dict[str, float]:
    return _named(rng.standard_normal(p))


def _learned_ridge(rng: np.random.Generator, p: int) -> dict[str, float]:
    scale = _half_t(rng)
    return _named(scale * rng.standard_normal(p)) | {"scale": scale}


def _lasso(rng: np.random.Generator, p: int) -> dict[str, float]:
    return _named(rng.laplace(0.0, 0.7, p))


def _spike_slab(rng: np.random.Generator, p: int) -> dict[str, float]:
    return _named(np.where(rng.random(p) < 0.5, rng.standard_normal(p), 0.0))


def _named(beta: np.ndarray) -> dict[str, float]:
    return {f"coef {j}": float(value) for j, value in enumerate(beta)}


PRIORS: dict[str, tuple[Any, Callable[[np.random.Generator, int], dict[str, float]]]] = {
    "Ridge(1)": (Ridge(1.0), _ridge),
    "Ridge, learned scale": (Ridge(hyperprior=LEARNED), _learned_ridge),
    "Lasso(0.7)": (Lasso(0.7), _lasso),
    "SpikeSlab(0.5, 1)": (SpikeSlab(0.5, scale=1.0), _spike_slab),
}


@dataclass(frozen=True)
class Case:
    """One composition: likelihood, prior, what else is not known, and the inference."""

    likelihood: str
    prior: str
    unknown: str  # "", "groups" or "missing entries"
    inference: str
    wrong: bool = False  # whether the responses are not those of the model

    @property
    def name(self) -> tuple[str, str, str, str]:
        return self.likelihood, self.prior, self.unknown or "none", self.inference


CASES = (
    *(
        Case(likelihood, prior, "", inference)
        for likelihood in ("hinge", "logit", "probit", "squared", "epsilon-insensitive")
        for prior in PRIORS
        for inference in ("gibbs", "hmc")
        if not (prior.startswith("Spike") and inference == "hmc")
    ),
    *(
        Case(likelihood, prior, unknown, "gibbs")
        for likelihood in ("hinge", "logit", "probit", "squared")
        for unknown in ("groups", "missing entries")
        for prior in ("Ridge(1)", "SpikeSlab(0.5, 1)")
        if (likelihood, unknown) != ("hinge", "missing entries")  # too many rows for the acceptance
    ),
)
CONTROL = Case("logit", "Ridge(1)", "", "gibbs", wrong=True)
CONTROLS = (CONTROL, Case("hinge", "Ridge(1)", "", "gibbs", wrong=True))


@dataclass(frozen=True)
class Problem:
    """Parameters by name with the columns, predictors and responses that they give."""

    truth: dict[str, float]
    columns: pd.DataFrame
    f: np.ndarray
    effects: Any = None
    y: Any = None


def ranks(case: Case, repetitions: int, first: int = 0) -> dict[str, np.ndarray]:
    """Ranks of every parameter, between 0 and 1, over the repetitions."""
    found: list[dict[str, float]] = []
    for seed in range(first, first + repetitions):
        rng = np.random.default_rng([seed, 77])
        given = _accepted(case, rng)
        found.append(_rank(rng, given.truth, _draws(case, given, seed)))
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def _accepted(case: Case, rng: np.random.Generator) -> Problem:
    """A problem from the prior; of the hinge, one that is accepted with the probability above."""
    while True:
        given = _problem(case, rng)
        if case.likelihood == "hinge" and not case.wrong:
            level = np.log(_hinge(given.f) + _hinge(-given.f)).sum() - len(given.f) * np.log1p(np.exp(-4))
            if np.log(rng.random()) >= level:
                continue
        y = _responses(case, given.f, rng)
        if len(np.unique(y)) > 1:
            return replace(given, y=y)


def _hinge(f: np.ndarray) -> np.ndarray:
    """The hinge's pseudo-likelihood of the positive class at learning rate 1."""
    return np.exp(-2.0 * np.maximum(1.0 - f, 0.0))


def _problem(case: Case, rng: np.random.Generator) -> Problem:
    n, p = {"hinge": HINGE_ROWS}.get(case.likelihood, 150 if case.unknown == "missing entries" else 40), 2
    truth = PRIORS[case.prior][1](rng, p)
    X = rng.standard_normal((n, p))
    beta = np.array([truth[f"coef {j}"] for j in range(p)])
    f = X @ (beta + 1.0 if case.wrong and case.likelihood != "hinge" else beta)
    columns, effects = pd.DataFrame(X, columns=["a", "b"]), None
    if case.unknown == "groups":
        groups = 4 if case.likelihood == "hinge" else 8
        label, truth["sd_group"] = np.arange(n) % groups, _half_t(rng)
        f = f + truth["sd_group"] * rng.standard_normal(groups)[label]
        columns["group"], effects = label, RandomEffect("group", hyperprior=LEARNED)
    if case.unknown == "missing entries":
        columns = columns.mask(rng.random((n, p)) < 0.2)
        columns = columns.mask(columns.isna().all(axis=1), columns.fillna(pd.DataFrame(X, columns=["a", "b"])))
    return Problem(truth, columns, f, effects)


def _noise(case: Case, rng: np.random.Generator, n: int) -> np.ndarray:
    """Errors of a regression."""
    if case.likelihood == "squared":
        return NOISE * rng.standard_normal(n)
    # flat on the band, with tails exp(-2 (|e| - BAND) / NOISE): masses 2 BAND and NOISE
    flat = rng.random(n) < 2.0 * BAND / (2.0 * BAND + NOISE)
    tail = BAND + 0.5 * NOISE * rng.exponential(size=n)
    return np.where(flat, BAND * rng.uniform(-1.0, 1.0, n), rng.choice([-1.0, 1.0], n) * tail)


def _responses(case: Case, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if case.likelihood in ("squared", "epsilon-insensitive"):
        return f + _noise(case, rng, len(f))
    share = {"logit": expit, "probit": ndtr, "hinge": lambda f: _hinge(f) / (_hinge(f) + _hinge(-f))}[case.likelihood]
    return (rng.random(len(f)) < share(f)).astype(int)


def _draws(case: Case, given: Problem, seed: int) -> Any:
    run = {"fit_intercept": False, "standardize": False, "draws": DRAWS, "chains": 1, "random_state": seed}
    run |= {"warmup": 300, "thin": 6 if case.inference == "hmc" else 15, "random_effects": given.effects}
    prior = PRIORS[case.prior][0]
    own: dict[str, Any] = {"likelihood": case.likelihood}
    model: Any
    if case.likelihood in ("squared", "epsilon-insensitive"):
        own |= {"noise": NOISE} | ({} if case.likelihood == "squared" else {"epsilon": BAND})
        model = BayesianSVR(prior, case.inference, **own, **run)
    else:
        own |= {"learning_rate": 1.0} if case.likelihood == "hinge" else {}
        model = BayesianSVC(prior, case.inference, **own, **run)
    return model.fit(given.columns, given.y).to_arviz().posterior


def _rank(rng: np.random.Generator, truth: dict[str, float], posterior: Any) -> dict[str, float]:
    answers = {}
    for name, value in truth.items():
        if name.startswith("coef"):
            chain = posterior["coef"].to_numpy()[0, :, int(name.split()[1])]
        else:
            chain = posterior[name].to_numpy()[0]
        # zeros are many: ties are broken at random
        answers[name] = (int((chain < value).sum()) + int(rng.integers(0, (chain == value).sum() + 1)) + 0.5) / (
            len(chain) + 1
        )
    return answers


def judged(found: dict[str, np.ndarray]) -> dict[str, float]:
    """z of the mean and of the spread of the ranks, and p, where the ranks are least uniform."""
    answers = []
    for u in found.values():
        n = len(u)
        mean = (u.mean() - 0.5) * np.sqrt(12.0 * n)
        square = (u - 0.5) ** 2
        spread = (square.mean() - 1.0 / 12.0) / np.sqrt((1.0 / 80.0 - 1.0 / 144.0) / n)
        counts = np.bincount(np.minimum((u * BINS).astype(int), BINS - 1), minlength=BINS)
        p = float(chi2.sf(((counts - n / BINS) ** 2 / (n / BINS)).sum(), BINS - 1))
        answers.append((p, float(mean), float(spread)))
    p, mean, spread = min(answers)
    worst = [max(abs(each[k]) for each in answers) for k in (1, 2)]
    return {"mean": worst[0], "spread": worst[1], "p": min(1.0, p * len(answers))}


def summary(results: list[tuple[Case, int, dict[str, float]]]) -> str:
    """One line per composition."""
    rows = [
        (*case.name, "control, must fail" if case.wrong else "ranks", n, *(f"{found[k]:.2g}" for k in found))
        for case, n, found in results
    ]
    head = ["likelihood", "prior", "unknown", "inference", "oracle", "data sets"]
    return common.markdown([*head, "largest z of a mean", "largest z of a spread", "p"], rows)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--repetitions", type=int, default=200)
    options.add_argument("--json", type=Path, metavar="FILE", help="ranks; a run that was stopped goes on")
    options = options.parse_args()
    repetitions = 32 if options.quick else options.repetitions
    known = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    results = []
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in (*CASES, *CONTROLS):
            key = "; ".join((*case.name, str(case.wrong)))
            if key not in known:
                known[key] = {name: u.tolist() for name, u in ranks(case, repetitions).items()}
            found = {name: np.array(u) for name, u in known[key].items()}
            results.append((case, len(next(iter(found.values()))), judged(found)))
            print(*case.name, results[-1][2], flush=True)
            if options.json:
                options.json.write_text(json.dumps(known))
    common.publish("certificates", summary(results), options)


if __name__ == "__main__":
    main()
