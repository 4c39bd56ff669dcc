"""Random effects: the toenail data against a linear machine on indicators and a variational logistic mixed model.

Speed: a random intercept for 294 patients, columns standardized, CPU seconds of one fit on one thread. Error: balanced
error over ten random splits of the rows, three quarters to train; LinearSVC sees the same columns and one indicator a
patient, its C searched by 5-fold cross-validation over 8 values. Size: one variational step with ten rows a group and
ten columns. The mixed model of statsmodels is timed where that package is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin.designs import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.engines.gaussian_vi import GaussianVI
from softmargin.engines.gibbs import Gibbs
from softmargin.engines.loop import run
from softmargin.engines.model import Model
from softmargin.engines.newton import Newton
from softmargin.engines.scale_mixture import mix_over_scale
from softmargin.execution.blocks import Blocks
from softmargin.execution.streams import Streams
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.priors.terms import TermPrior, Terms
from softmargin.solvers.arrowhead import Arrowhead

PATIENTS = 294
Rows = tuple[Any, Any, Any]  # columns, labels, codes of the groups


def toenail() -> Rows:
    """Treatment, months, their product, all standardized; labels; patients."""
    frame = pd.read_csv(common._file("toenail.csv.gz"))
    treated, months = (frame["treatment"] == "terbinafine").to_numpy(float), frame["time"].to_numpy(float)
    X = np.column_stack((treated, months, treated * months))
    return (X - X.mean(axis=0)) / X.std(axis=0), frame["y"].to_numpy(float), pd.factorize(frame["patient"])[0]


def design_of(X: Any, codes: Any, groups: int, slope: int | None) -> Grouped:
    """The columns, and an intercept for every group, with a slope of one of the columns where asked."""
    extra = [] if slope is None else [X[:, slope]]
    term = GroupTerm(codes, groups, np.column_stack((np.ones(len(X)), *extra)))
    return Grouped(Dense.plain(np.ascontiguousarray(X), intercept=True), (term,))


def model_of(rows: Rows, groups: int, slope: int | None = None, weight: Any = None) -> Model:
    """Hinge rows, a ridge prior on the columns, a learned covariance of the groups."""
    X, y, codes = rows
    design = design_of(X, codes, groups, slope)
    labels = ("group",) if slope is None else ("group", "group:slope")
    free = np.arange(design.shape[1]) == 0
    prior = Terms(Ridge(), (TermPrior(labels, groups, full=slope is not None),)).bind(free, len(y))
    blocks = Blocks(design, y, np.ones(len(y)) if weight is None else weight)
    return Model(blocks, Hinge(), prior, free, Streams.from_random_state(0), Arrowhead(prior.coupling))


def fitted(model: Model) -> Any:
    return run(GaussianVI(), model, max_iter=200, tol=1e-6).state


def speed(quick: bool) -> str:
    """CPU seconds of a fit, the standard deviation of the patients, and the sd of the intercept."""
    model, sweeps = model_of(toenail(), PATIENTS), 1000 if quick else 10_000
    fit, seconds = common.cpu(lambda: fitted(model), least=0.2)
    rows: list[Any] = [("vb", seconds, fit.prior.values["group"], float(np.sqrt(fit.q.var[0])))]
    mixture, more = common.cpu(lambda: mix_over_scale(model, fit, label="group"), least=0.2)
    centre = float(mixture.weights @ mixture.scales)
    rows.append(("vb, mixed over the sd", seconds + more, centre, float(np.sqrt(mixture.root.squares()[0]))))
    settled = model.with_prior(model.prior.settled(fit.prior))
    _, mode = common.cpu(lambda: run(Newton(), settled, max_iter=30, tol=1e-8), least=0.2)
    rows.append(("map, sd from vb", seconds + mode, fit.prior.values["group"], None))

    def chain() -> Any:
        engine, kept = Gibbs(chains=1), []
        state = engine.init(model)
        for iteration in range(sweeps):
            state, _ = engine.step(model, state, iteration)
            kept.append((state[0].prior.values["group"], state[0].beta[0]))
        return np.array(kept)[sweeps // 10 :]

    draws, time = common.cpu(chain)
    rows.append((f"gibbs, {sweeps} sweeps", time, float(draws[:, 0].mean()), float(draws[:, 1].std())))
    if find_spec("statsmodels") is not None:
        rows.append(("statsmodels fit_vb (logistic)", common.cpu(_mixed_model)[1], None, None))
    return common.markdown(("fit", "CPU s", "sd of patients", "sd of intercept"), rows)


def _mixed_model() -> Any:
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    X, y, codes = toenail()
    columns = np.column_stack((np.ones(len(y)), X))
    Z = GroupTerm.intercept(codes, PATIENTS).sparse()
    return BinomialBayesMixedGLM((y > 0).astype(float), columns, Z, np.zeros(PATIENTS, dtype=int)).fit_vb()


def errors(quick: bool) -> str:
    """Balanced error of several fits, with plain rows and with weights that balance the classes."""
    X, y, codes = toenail()
    indicators = sp.hstack((sp.csr_matrix(X), GroupTerm.intercept(codes, PATIENTS).sparse()), format="csr")
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(2 if quick else 10):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = np.sort(order[: len(y) * 3 // 4]), np.sort(order[len(y) * 3 // 4 :])
        for balance in ("plain", "balanced"):
            share = np.where(y[train] > 0, (y[train] > 0).mean(), (y[train] < 0).mean())
            weight = np.ones(len(train)) if balance == "plain" else 0.5 / share
            answers = {}
            for name, slope in (("vb, random intercept", None), ("vb, random intercept and slope", 1)):
                fit = fitted(model_of((X[train], y[train], codes[train]), PATIENTS, slope, weight))
                answers[name] = design_of(X[test], codes[test], PATIENTS, slope).matvec(fit.q.mean)
            folds = StratifiedKFold(5, shuffle=True, random_state=seed)
            machine = LinearSVC(class_weight=None if balance == "plain" else "balanced")
            search = GridSearchCV(machine, {"C": np.logspace(-3, 2, 8)}, cv=folds, scoring="balanced_accuracy")
            answers["LinearSVC on indicators"] = search.fit(indicators[train], y[train]).decision_function(
                indicators[test]
            )
            for name, f in answers.items():
                wrong = np.where(f > 0.0, 1.0, -1.0) != y[test]
                error = 0.5 * (wrong[y[test] > 0].mean() + wrong[y[test] < 0].mean())
                found.setdefault((name, balance), []).append(float(error))
    rows = [(*key, float(np.mean(e)), float(np.std(e) / np.sqrt(len(e)))) for key, e in found.items()]
    return common.markdown(("fit", "weights", "balanced error", "standard error"), rows)


def sizes(quick: bool) -> str:
    """CPU seconds of a variational step."""
    rows = []
    for groups in (200, 2000) if quick else (2000, 20_000, 100_000):
        rng, n = np.random.default_rng(0), 10 * groups
        X, codes = rng.standard_normal((n, 10)), rng.integers(0, groups, n)
        f = X @ rng.standard_normal(10) / 3.0 + rng.standard_normal(groups)[codes]
        y = np.where(f + rng.logistic(size=n) > 0.0, 1.0, -1.0)
        model = model_of((X, y, codes), groups)
        outcome, seconds = common.cpu(lambda model=model: run(GaussianVI(), model, max_iter=100, tol=1e-6))
        rows.append((groups, n, outcome.n_iter, seconds / outcome.n_iter))
    return common.markdown(("groups", "rows", "steps", "CPU s a step"), rows)


def main() -> None:
    options = common.parser(__doc__).parse_args()
    with common.one_thread():
        fitted(model_of(toenail(), PATIENTS))  # compile
        tables = [part(options.quick) for part in (speed, errors, sizes)]
    common.publish("random-effects", "\n\n".join(tables), options)


if __name__ == "__main__":
    main()
