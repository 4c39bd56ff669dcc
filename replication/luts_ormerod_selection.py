"""Luts and Ormerod (2014), section 4.4: variable selection on the spam data under a Laplace-zero prior.

The variational fit is made twice: by the printed algorithm from the start with every column in, and as the library
makes it, from several starts and with columns tried on their other side.
"""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from benchmarks import common
from replication.common import Page, minutes, named, parser, spam
from softmargin import BayesianSVC, plots
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.designs.dense import Dense
from softmargin.designs.standardize import standardize
from softmargin.engines.vi.laplace_zero import LaplaceZeroVB
from softmargin.losses.hinge import Hinge
from softmargin.priors import InverseGamma, LaplaceZero
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

PRIOR = LaplaceZero(0.01, hyperprior=InverseGamma(0.01, 0.01))  # the paper's rho and A = B = 0.01
CERTAIN = (0.99, 0.95, 0.9)  # what may be meant by almost certain
STARTS = {"all": "every column in", "screened": "the best single columns", "annealed": "prior odds that come down"}
NOTED = ("cs", "hpl", "font", "email", "table")  # what the paper says of its variational selection
SWEEPS = 100_000  # of the paper's chain, half of them burn-in
LOWER = ("hpl", "font")  # selected by the paper's variational fit, somewhat lower by its chain
LOWEST = ("email", "table")  # the paper's two with the smallest variational probabilities


def printed_algorithm(X: Any, y: Any, start: str, most: int) -> tuple[Any, float, float]:
    """Algorithm 3 as printed, from one start: inclusion probabilities, bound, CPU seconds."""
    values, sign = X.to_numpy(float), np.where(y == "spam", 1.0, -1.0)
    columns = standardize(values, np.ones(len(y)))
    design = Dense(values, columns.shift, columns.scale)
    free = np.arange(design.shape[1]) == 0
    prior, streams = PRIOR.bind(free, len(y)), Streams((0, 0))
    model = Model(Blocks(design, sign, np.ones(len(y))), Hinge(), prior, free, streams, Full())
    engine = LaplaceZeroVB(starts=(start,), passes=0, accelerate=False, trial=1)
    found, seconds = common.cpu(lambda: run(engine, model, max_iter=most, tol=1e-13))
    return found.state.inclusion[1:], found.state.objective, seconds


def fit(X: Any, y: Any, inference: str, **settings: Any) -> tuple[BayesianSVC, float]:
    """The estimator with the paper's prior and pseudo-likelihood, and its CPU seconds."""
    model = BayesianSVC(PRIOR, inference, learning_rate=1.0, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the chains disagree on is in the table
        return common.cpu(lambda: model.fit(X, y))


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__).parse_args(arguments)
    page, quick = Page.of("luts_ormerod_selection", options), options.quick
    X, y = spam(quick)
    length = {"draws": 30, "warmup": 30, "chains": 2} if quick else {"draws": 6000, "warmup": 3000, "chains": 4}
    with common.one_thread():
        fit(X.iloc[::20], y[::20], "gibbs", draws=2, warmup=0, chains=1)  # compiles
        printed = {start: printed_algorithm(X, y, start, 50 if quick else 5000) for start in STARTS}
        inclusion, bound, seconds = printed["all"]
        ours, our_seconds = fit(X, y, "meanfield", tol=1e-9)
        chain, chain_seconds = fit(X, y, "gibbs", **length)
    compare(page, X.columns, inclusion, chain)
    page.row(
        "(the paper does not say from where its algorithm starts)",
        "; ".join(f"{STARTS[name]}: {described(X.columns, *found[:2])}" for name, found in printed.items()),
        "the first is taken above, being the one that says about these five columns what the paper says",
    )
    page.row(
        "the variational fit takes 76 minutes",
        f"printed algorithm {minutes(seconds)}, ours {minutes(our_seconds)}",
        "one Gram matrix a cycle serves all indicators, where the printed update passes over the rows for each; other "
        "processors",
    )
    sweeps = length["chains"] * (length["draws"] + length["warmup"])
    page.row(
        "the chain, 50 000 sweeps after 50 000, takes over 10 hours",
        f"{minutes(chain_seconds)} for {length['chains']} chains, {sweeps} sweeps in all: "
        f"{minutes(chain_seconds * SWEEPS / sweeps)} for {SWEEPS}",
        "one Gram matrix a sweep; other processors",
    )
    page.row(
        "(not in the paper)",
        f"bound {bound:.2f} by the printed algorithm, {ours.trace_[-1]:.2f} by ours, which selects "
        f"{int((ours.inclusion_ > 0.5).sum())} columns: {named(X.columns[ours.inclusion_ > 0.5])}",
        "the bound has many local maxima, and the printed algorithm stops at one of them; where it differs from the "
        "chain this may be the reason",
    )
    error = 100.0 * (1.0 - balanced_accuracy_score(y, chain.predict(X)))
    page.row("no error rate is given", f"balanced training error of the chain's posterior mean {error:.2f} %")
    pictures(page, ours, chain, inclusion)
    page.publish()


def compare(page: Page, names: Any, inclusion: Any, chain: BayesianSVC) -> None:
    """The statements about who selects what."""
    by_chain = dict(zip(names, chain.inclusion_, strict=True))
    chosen, spread = names[inclusion > 0.5], np.ptp(chain.chain_inclusion_, axis=0)
    certain = {level: names[chain.inclusion_ > level] for level in CERTAIN}
    page.row(
        "24 variables are almost certainly selected by MCMC",
        "; ".join(f"{len(found)} above {level}" for level, found in certain.items()),
        "by inclusion probability: "
        + named(f"{names[j]} {chain.inclusion_[j]:.2f}" for j in np.argsort(-chain.inclusion_, kind="stable")[:36]),
    )
    page.row(
        "they match the variational selection, except for cs",
        "not in the variational selection, of those "
        + "; ".join(f"above {level}: {named(sorted(set(found) - set(chosen)))}" for level, found in certain.items()),
        f"{len(chosen)} selected by the printed algorithm, every column in at first: {named(chosen)}",
    )
    page.row(
        "hpl and font are selected by VB and have slightly lower probabilities by MCMC",
        named(f"{name}: VB {inclusion[names.get_loc(name)]:.2f}, MCMC {by_chain[name]:.2f}" for name in LOWER),
        "font takes turns with charHash, and chains change between the two rarely: by chain "
        + named(f"{value:.2f}" for value in chain.chain_inclusion_[:, names.get_loc("font")]),
    )
    order = np.argsort(np.where(inclusion > 0.5, inclusion, 2.0), kind="stable")[:3]
    page.row(
        "email and table are selected by VB with the smallest probabilities, and lower by MCMC",
        named(f"{name}: VB {inclusion[names.get_loc(name)]:.4f}, MCMC {by_chain[name]:.2f}" for name in LOWEST),
        f"smallest of our variational selection: {named(f'{names[j]} {inclusion[j]:.4f}' for j in order)}",
    )
    undecided = int(((inclusion > 0.01) & (inclusion < 0.99)).sum())
    middle = int(((chain.inclusion_ > 0.01) & (chain.inclusion_ < 0.99)).sum())
    page.row(
        "VB generates more extreme inclusion probabilities",
        f"between 0.01 and 0.99: {undecided} by VB, {middle} by MCMC",
        "mean field settles on one model",
    )
    page.row(
        "the chain mixes slowly, hence 50 000 sweeps after 50 000",
        f"largest range of an inclusion probability over chains {spread.max():.2f} ({names[spread.argmax()]}), above "
        f"0.1 for {named(names[spread > 0.1])}",
        "one chain, however long its burn-in, does not show this",
    )


def described(names: Any, inclusion: Any, bound: float) -> str:
    """A variational selection in a few words."""
    chosen = set(names[inclusion > 0.5])
    in_it = named(name for name in NOTED if name in chosen)
    return f"bound {bound:.1f}, {len(chosen)} columns, of {named(NOTED)} it has {in_it}"


def pictures(page: Page, ours: BayesianSVC, chain: BayesianSVC, inclusion: Any) -> None:
    """Figure 3, and the two variational answers against the chain."""
    text = "Figure 3: inclusion probabilities, variational (left, best bound) and by Gibbs sampling with its range "
    with page.picture("lo_inclusion", text + "over chains (right)", ncols=2, figsize=(9.4, 7.6)) as axes:
        for ax, model, title in zip(axes, (ours, chain), ("variational", "Gibbs"), strict=True):
            plots.inclusion(model, ax, 36)
            ax.set_xlabel(f"posterior inclusion probability, {title}")
    text = "Variational inclusion against the chain: the printed algorithm (left) and the best bound (right)"
    with page.picture("lo_agreement", text, ncols=2, figsize=(9.0, 4.6)) as axes:
        printed = copy(ours)
        printed.inclusion_ = inclusion
        for ax, variational in zip(axes, (printed, ours), strict=True):
            plots.agreement(chain, variational, ax)
            ax.set(xlabel="inclusion probability, Gibbs", ylabel="inclusion probability, variational")


if __name__ == "__main__":
    main()
