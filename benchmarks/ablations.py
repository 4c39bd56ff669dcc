"""What each part is worth: the same fit with one thing changed at a time.

The order of a Gibbs sweep (limits against quadrature), moves of the samplers and coordinates of trajectories (effective
draws of the worst coefficient per CPU second, R-hat), moves of spike-and-slab (how far chains from different starts
agree), the three approximations (standard deviations against those of exact draws), the way to the mode (objective
above the certified minimum), and the automatic choices (test log loss).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import common
from benchmarks.gibbs_order import exact_moments, lasso_chains
from benchmarks.two_class_sets import SETS
from softmargin import BayesianSVC
from softmargin.inference.choices import choose
from softmargin.inference.readout import HeldOut
from softmargin.posterior.mixing import mixing
from softmargin.priors import Lasso, Ridge, SpikeSlab

Table = tuple[str, list[str], list[tuple[Any, ...]]]
_TOLD = 0.002  # difference of log losses that is counted


def _rows(name: str) -> common.Split:
    return next(iter(SETS[name](1)))


def _worst(model: Any) -> tuple[float, float]:
    """Effective draws and R-hat of the coefficient that mixes worst."""
    draws = model.to_arviz().posterior["coef"].to_numpy()
    sizes, ratios = mixing(draws)
    return float(np.min(sizes)), float(np.max(ratios))


def order(quick: bool) -> Table:
    """The scale before the local variances, against the order that the papers print."""
    lines, exact = [], exact_moments()
    for name, scale_first in (
        ("scale, then local variances", True),
        ("as printed: local variances, then scale", False),
    ):
        mean, error = lasso_chains(scale_first, seed=1, chains=400 if quick else 4000)
        off = np.abs(mean - exact) / error
        lines.append((name, *(f"{x:.4f}" for pair in zip(exact, mean, strict=True) for x in pair), f"{off.max():.1f}"))
    head = [
        "order of a sweep",
        "mean of beta, exact",
        "drawn",
        "mean of its size, exact",
        "drawn",
        "standard errors off",
    ]
    return "The order of a Gibbs sweep (one coefficient under a lasso with a learned scale, 8 rows)", head, lines


def whitening(quick: bool) -> Table:
    """Trajectories in the coordinates of the variational fit, against coordinates that are only scaled."""
    scaled = patch(
        "softmargin.engines.sampling.hmc._scale.SharedPrior.widened", lambda self, root, mean, var: np.diag(var**0.5)
    )
    length = {"draws": 200 if quick else 1000, "warmup": 200, "chains": 4, "random_state": 0, "learning_rate": 1.0}
    lines = []
    for data in ("heart",) if quick else ("heart", "spam, 600 rows", "wisconsin"):
        X, _, y, _ = _rows(data)
        for name, way in (("whitened by the fit", nullcontext()), ("scaled alone", scaled)):
            with way:
                model, seconds = common.cpu(lambda X=X, y=y: BayesianSVC(Ridge(), "hmc", **length).fit(X, y))
            ess, r_hat = _worst(model)
            lines.append((data, name, seconds, ess / seconds, f"{r_hat:.3f}"))
    return (
        "Coordinates of hmc",
        ["set", "coordinates", "CPU s", "worst coefficient, draws per s", "largest R-hat"],
        lines,
    )


def moves(quick: bool) -> Table:
    """The Gibbs sampler with and without moves along axes and of the scale, and trajectories beside it."""
    length = {"draws": 200 if quick else 1000, "warmup": 200, "chains": 4, "random_state": 0, "learning_rate": 1.0}
    ways = {
        "gibbs": {"inference": "gibbs"},
        "gibbs, no moves along axes or of the scale": {"inference": "gibbs", "engine_options": {"scale_moves": False}},
        "hmc": {"inference": "hmc"},
        "hmc, scale not moved with the coefficients": {"inference": "hmc", "engine_options": {"scale_moves": False}},
    }
    lines = []
    for data in ("heart",) if quick else ("heart", "spam, 600 rows", "wisconsin"):
        X, _, y, _ = _rows(data)
        for label, prior in (("ridge", Ridge()), ("lasso", Lasso())):
            for name, way in ways.items():
                BayesianSVC(prior, **way, draws=5, warmup=5, chains=1).fit(X, y)  # compiled before it is timed
                model, seconds = common.cpu(
                    lambda prior=prior, way=way, X=X, y=y: BayesianSVC(prior, **way, **length).fit(X, y)
                )
                ess, r_hat = _worst(model)
                lines.append((data, label, name, seconds, ess / seconds, f"{r_hat:.3f}"))
    head = ["set", "prior", "sampler", "CPU s", "worst coefficient, draws per s", "largest R-hat"]
    return "Moves of the samplers", head, lines


def selection_moves(quick: bool) -> Table:
    """Spike-and-slab with one kind of move left out at a time: flips at few columns, births and deaths at many."""
    few: dict[str, dict[str, Any]] = {
        "all moves": {},
        "births and deaths in place of flips": {"flips": 0, "births": 16},
        "no swaps": {"swaps": 0},
        "no moves of the scale": {"scale_moves": False},
        "the printed scan": {"scan": "plain"},
    }
    many: dict[str, dict[str, Any]] = {
        "all moves": {},
        "no births and deaths": {"births": 0},
        "no swaps": {"swaps": 0},
        "no tempered companions": {"ladder": ()},
        "the printed scan": {"scan": "plain"},
    }
    length = {"draws": 100 if quick else 600, "warmup": 100 if quick else 400, "chains": 4, "random_state": 0}
    X, _, y, _ = _rows("spam, 600 rows")
    sets = [("spam, 600 rows", X[:, :12] if quick else X, y, dict(list(few.items())[:3]) if quick else few)]
    if not quick:
        sets.append(("200 x 400, columns correlated by 0.7 in tens", *_correlated(200, 400), many))
    lines = []
    for data, X, y, ways in sets:
        for name, options in ways.items():
            settings: dict[str, Any] = {"learning_rate": 1.0, "engine_options": options}
            prior = SpikeSlab(min(0.1, 4.0 / X.shape[1]), scale=1.0)
            BayesianSVC(prior, "gibbs", **settings, draws=5, warmup=5, chains=1).fit(
                X, y
            )  # compiled before it is timed
            model, seconds = common.cpu(
                lambda prior=prior, settings=settings, X=X, y=y: BayesianSVC(prior, "gibbs", **settings, **length).fit(
                    X, y
                )
            )
            apart = np.ptp(model.chain_inclusion_, axis=0)
            size = model.to_arviz().posterior["size"].to_numpy()
            ess = float(mixing(size)[0])
            lines.append(
                (data, name, seconds, f"{apart.max():.2f}", f"{apart.sum():.2f}", ess / seconds, f"{size.mean():.1f}")
            )
    head = [
        "set",
        "sampler",
        "CPU s",
        "largest range of an inclusion over chains",
        "sum of ranges",
        "size, draws per s",
        "mean size",
    ]
    return "Moves of spike-and-slab", head, lines


def _correlated(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns in tens that share a factor, of which four carry the response."""
    rng = np.random.default_rng(0)
    X = np.sqrt(0.3) * rng.standard_normal((n, p)) + np.sqrt(0.7) * np.repeat(rng.standard_normal((n, p // 10)), 10, 1)
    return X, (X[:, [0, 50, 100, 150]] @ [1.5, -1.5, 1.5, -1.5] + rng.logistic(size=n) > 0.0).astype(int)


def approximations(quick: bool) -> Table:
    """Mean field, Gaussian and draws: standard deviations by those of the draws, and what probabilities lose."""
    lines = []
    for data in ("heart",) if quick else ("heart", "spam, 600 rows", "wisconsin", "adult, 1000 rows"):
        X, X_test, y, y_test = _rows(data)
        fits = {
            name: common.cpu(
                lambda name=name, X=X, y=y: BayesianSVC(
                    Ridge(), name, learning_rate=0.25, draws=1000, random_state=0
                ).fit(X, y)
            )
            for name in ("meanfield", "vb", "hmc")
        }
        exact = fits["hmc"][0].summary()["sd"].to_numpy()[1:]
        varies = exact > 0.0  # constant columns have the coefficient zero
        for name, (model, seconds) in fits.items():
            ratio = model.summary()["sd"].to_numpy()[1:][varies] / exact[varies]
            loss = log_loss(y_test, model.predict_proba(X_test))
            lines.append(
                (
                    data,
                    name,
                    seconds,
                    f"{np.median(ratio):.3f}",
                    f"{ratio.min():.3f}",
                    f"{ratio.max():.3f}",
                    f"{loss:.4f}",
                )
            )
    head = ["set", "inference", "CPU s", "sd by that of draws, median", "least", "largest", "test log loss"]
    return "Approximations", head, lines


def modes(quick: bool) -> Table:
    """Newton's method with an exact end against EM."""
    lines = []
    for data in ("heart",) if quick else ("heart", "spam, 600 rows", "wisconsin"):
        X, _, y, _ = _rows(data)
        for label, prior in (("ridge, scale 1", Ridge(1.0)), ("lasso, scale 0.5", Lasso(0.5))):
            exact = None
            for name, options, most in (
                ("newton", {}, 500),
                ("plain EM", {"algorithm": "em", "accelerate": False}, 500),
                ("accelerated EM", {"algorithm": "em"}, 500),
            ):
                build = BayesianSVC(prior, "map", learning_rate=1.0, engine_options=options, max_iter=most, tol=1e-10)
                model, seconds = common.cpu(lambda build=build, X=X, y=y: build.fit(X, y))
                value = float(model.trace_[-1])
                exact = value if exact is None else exact
                lines.append(
                    (
                        data,
                        label,
                        f"{name}, at most {most}",
                        seconds,
                        model.n_iter_,
                        abs(value - exact) / abs(exact),
                    )
                )
    return "The way to the mode", ["set", "prior", "algorithm", "CPU s", "iterations", "objective off by"], lines


def _clean(seed: int) -> common.Split:
    """Classes with a gap between them, by three of thirty columns."""
    rng = np.random.default_rng([1, seed])
    X = rng.standard_normal((6000, 30))
    score = X[:, :3].sum(axis=1)
    X, y = X[np.abs(score) > 0.5], np.sign(score[np.abs(score) > 0.5])
    return X[:200], X[200:], y[:200], y[200:]


def _stepped(seed: int) -> common.Split:
    """A probability that jumps where a sum of two columns crosses a number."""
    rng = np.random.default_rng([2, seed])
    X = rng.standard_normal((4600, 8))
    y = np.where(rng.random(4600) < np.where(X[:, 0] + X[:, 1] > 0.7, 0.95, 0.35), 1.0, -1.0)
    return X[:600], X[600:], y[:600], y[600:]


def _ruled(**changed: Any) -> Any:
    """The choice of a rate under other rules."""
    return patch("softmargin.inference.trials.choose", lambda task, rules: choose(task, replace(rules, **changed)))


def choices(quick: bool) -> Table:
    """The automatic choices one by one: each left out, or taken for granted."""
    ways: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "default": (BayesianSVC, nullcontext),
        "no tilt": (lambda: BayesianSVC(class_weight={0: 1.0, 1: 1.0}), nullcontext),
        "no higher rates": (BayesianSVC, lambda: _ruled(gate=np.inf)),  # tried, never asked for
        "no lower rates": (BayesianSVC, lambda: _ruled(lower=())),
        "no cold posterior": (BayesianSVC, lambda: patch("softmargin.models.two_class.colder", lambda *_: None)),
        "no link from refits": (BayesianSVC, lambda: patch("softmargin.models.two_class.TRUSTED", np.inf)),
        "no curve": (BayesianSVC, lambda: patch.object(HeldOut, "bent", lambda self, *_: self)),
        "rate 0.25, no tilt": (lambda: BayesianSVC(learning_rate=0.25), nullcontext),
        "rate 1, no tilt": (lambda: BayesianSVC(learning_rate=1.0), nullcontext),
        "columns as they are": (lambda: BayesianSVC(standardize=False), nullcontext),
        "probabilities of the pseudo-likelihood": (lambda: BayesianSVC(probability="pseudo"), nullcontext),
    }
    sets = {name: list(made(3)) for name, made in SETS.items() if not quick or name == "heart"}
    sets |= {"a gap": [_clean(k) for k in range(3)], "a step": [_stepped(k) for k in range(3)]}
    losses: dict[str, dict[str, float]] = {way: {} for way in ways}
    for name, splits in sets.items():
        for way, (make, changed) in ways.items():
            with changed():
                losses[way][name] = float(np.mean([_loss(make(), split) for split in splits]))
        print(name, flush=True)
    lines = []
    for way, found in losses.items():
        more = {name: value - losses["default"][name] for name, value in found.items()}
        worst, best = max(more, key=lambda name: more[name]), min(more, key=lambda name: more[name])
        counts = sum(d < -_TOLD for d in more.values()), sum(d > _TOLD for d in more.values())
        most = (f"{worst}: {more[worst]:+.4f}", f"{best}: {more[best]:+.4f}") if way != "default" else ("", "")
        lines.append((way, f"{np.mean([*found.values()]):.4f}", *counts, *most))
    title = f"Automatic choices, test log loss over {len(sets)} sets, three splits each"
    head = ["", "mean", f"better by {_TOLD} on", "worse on", "worse most", "better most"]
    return title, head, lines


def _loss(model: Any, split: common.Split) -> float:
    X, X_test, y, y_test = split
    y, y_test = (np.asarray(v > 0).astype(int) for v in (y, y_test))
    return float(log_loss(y_test, model.fit(X, y).predict_proba(X_test)))


PARTS: dict[str, Callable[[bool], Table]] = {
    "order": order,
    "moves": moves,
    "whitening": whitening,
    "selection": selection_moves,
    "approximations": approximations,
    "modes": modes,
    "choices": choices,
}


def parts(quick: bool, only: list[str]) -> Iterator[str]:
    """The tables, as text."""
    for name in only or PARTS:
        title, head, lines = PARTS[name](quick)
        yield f"**{title}**\n\n{common.markdown(head, lines)}"


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--only", nargs="*", choices=tuple(PARTS), default=[])
    options = options.parse_args()
    common.warm_up()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = "\n\n".join(parts(options.quick, options.only))
    common.publish("ablations", text, options)


if __name__ == "__main__":
    main()
