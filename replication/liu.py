"""Liu (2020), sections 4.2 and 5: the simulation on the unit interval and the leukemia data.

Without the sum-to-zero constraint the paper's model is degenerate (docs/explanation/errata.md): problem r uses
only the rows outside of class r. Everything of ours has scores that sum to zero; the printed algorithm is run to see
where it breaks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks import common
from benchmarks.classes import golub
from replication.common import Page, minutes, named, parser
from softmargin import BayesianSVC
from softmargin.core.loop import iterate, run
from softmargin.core.model import Model
from softmargin.designs.classes import ClassDesign, pair_weights
from softmargin.designs.dense import Dense
from softmargin.engines.mode.newton import Newton
from softmargin.engines.vi.fixed_point import EM
from softmargin.losses.hinge import Hinge
from softmargin.plots.style import BLUE, RED, finish, frame
from softmargin.priors import GroupLasso, InverseGamma, Lasso
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.sum_to_zero import SumToZero

NU = 1.0  # the paper does not give its fixed scale
HYPERPRIOR = InverseGamma(2.0, 10.0)  # nor the prior of a learned one
WEAK = InverseGamma(2.0, 1.0)
GREY = "#666666"
JOINT = {"multi_class": "sum-to-zero"}


@dataclass(frozen=True)
class Sizes:
    """How much work a run does."""

    repeats: int = 200  # data sets of the simulation
    iterations: int = 5000  # of EM and ECME; the paper's break at 350 to 500
    draws: int = 1000
    all_genes: bool = True


QUICK = Sizes(repeats=3, iterations=40, draws=40, all_genes=False)


# Section 4.2: three classes on the unit interval


def truth(x: Any) -> Any:
    """Probabilities of the three classes, one column each."""
    first, third = 0.97 * np.exp(-3.0 * x), np.exp(-2.5 * (x - 1.2) ** 2)
    return np.column_stack((first, 1.0 - first - third, third))


def draw(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """x and a second column that says nothing, and the classes, all of them present."""
    while True:
        X = rng.uniform(size=(n, 2))
        y = (rng.uniform(size=(n, 1)) > np.cumsum(truth(X[:, 0]), axis=1)).sum(axis=1)
        if len(np.unique(y)) == 3:
            return X, y


def simulation(page: Page, repeats: int) -> None:
    """Test errors of 100 rows after training on 60, beside the smallest possible error."""
    grid = np.linspace(0.0, 1.0, 20001)
    least = float(1.0 - np.trapezoid(truth(grid).max(axis=1), grid))
    rng = np.random.default_rng(0)
    data = [(*draw(rng, 60), *draw(rng, 100)) for _ in range(repeats)]
    models = {"pairs": BayesianSVC(), "sum-to-zero": BayesianSVC(**JOINT)}
    errors = {
        name: np.array([float((model.fit(X, y).predict(X_new) != y_new).mean()) for X, y, X_new, y_new in data])
        for name, model in models.items()
    }
    page.row(
        "section 4.2: error rate 0.48 on 100 new points, one data set of 60",
        "; ".join(
            f"{name}: mean {e.mean():.3f}, from {np.quantile(e, 0.05):.2f} to {np.quantile(e, 0.95):.2f} in 90 % "
            f"of the data sets, at least 0.48 in {100 * float((e >= 0.48).mean()):.0f} %"
            for name, e in errors.items()
        ),
        f"{repeats} data sets; no rule can be below the Bayes error {least:.3f} on average. The paper's 0.48 is by "
        "msvmpath, not by its own algorithms, and tells little about them",
    )
    X, y, _, _ = data[0]
    x = np.linspace(0.0, 1.0, 200)
    text = "Figure 2: probabilities of the three classes, by one data set of 60 (lines) and the truth (dashed)"
    with page.picture("liu_simulation", text, ncols=2, figsize=(8.6, 3.0), sharey=True) as axes:
        for ax, (name, model) in zip(axes, models.items(), strict=True):
            p = model.fit(X, y).predict_proba(np.column_stack((x, np.full(200, 0.5))))
            for r, colour in enumerate((RED, GREY, BLUE)):
                ax.plot(x, p[:, r], color=colour)
                ax.plot(x, truth(x)[:, r], color=colour, linestyle="--", linewidth=1.0)
            frame(ax)
            finish(ax, f"x ({name})", "probability" if ax is axes[0] else "")


# Section 5: leukemia


class Leukemia(NamedTuple):
    """log10 expressions, the classes, and which rows train."""

    X: Any
    y: Any
    train: Any

    def largest(self, most: int) -> Any:
        """The genes with the largest ratio of sums of squares between and within the classes of the training rows."""
        X, y = self.X[self.train], self.y[self.train]
        means = np.array([X[y == r].mean(axis=0) for r in range(3)])
        within = ((X - means[y]) ** 2).sum(axis=0)
        between = ((means[y] - X.mean(axis=0)) ** 2).sum(axis=0)
        return np.sort(np.argsort(-between / np.maximum(within, 1e-12), kind="stable")[:most])

    def standardized(self, genes: Any) -> Any:
        """Training rows of some genes, with mean 0 and standard deviation 1."""
        X = self.X[self.train][:, genes]
        return (X - X.mean(axis=0)) / X.std(axis=0)

    def errors(self, model: Any, genes: Any) -> tuple[int, int, float]:
        """Errors of a fitted model on the rows left for testing, their number, and the log loss."""
        X, y = self.X[~self.train][:, genes], self.y[~self.train]
        p = model.predict_proba(X)
        return int((p.argmax(axis=1) != y).sum()), len(y), float(-np.log(p[np.arange(len(y)), y]).mean())


def joint_model(X: Any, y: Any, prior: Any) -> Model:
    """Scores that sum to zero, free intercepts, every error at cost one."""
    weights = pair_weights(y, np.ones(len(y)), None, 3)
    design: Any = ClassDesign.of(Dense.plain(np.ascontiguousarray(X), intercept=True), weights)
    blocks = Blocks(design, -np.ones(len(design.index)), weights[weights > 0.0])
    bound = prior.bind(design.free, len(design.index), classes=3)
    return Model(blocks, Hinge(), bound, design.free, Streams((0, 0)), SumToZero.of(design))


def printed(X: Any, y: Any, nu: float, iterations: int) -> Any:
    """EM as printed, each class alone and the intercept shrunk: the path of the coefficients up to where it breaks."""
    Z, sd = np.column_stack((np.ones(len(y)), X)), np.concatenate(([1.0], X.std(axis=0, ddof=1)))
    path, beta = [], np.full((3, Z.shape[1]), 0.01)
    with np.errstate(all="ignore"):
        for _ in range(iterations):
            for r in range(3):
                rows = Z[y != r]
                weight = 1.0 / np.abs(rows @ beta[r] + 0.5)
                precision = np.diag(1.0 / (nu * sd * np.abs(beta[r]))) + (rows.T * weight) @ rows
                try:
                    beta[r] = np.linalg.solve(precision, rows.T @ (-0.5 * weight - 1.0))
                except np.linalg.LinAlgError:
                    beta[r] = np.nan
            if not np.isfinite(beta).all():
                break
            path.append(beta.copy())
    return np.array(path)


class Run(NamedTuple):
    """The path of the coefficients (iterations, classes, variables), its objective, and the scale at its end."""

    path: Any
    objective: Any
    scale: float


def followed(model: Model, iterations: int) -> Run:
    """Plain EM, without acceleration and without a stopping rule."""
    path, objective = np.zeros((iterations, 3, model.size // 3)), np.zeros(iterations)
    for number, state, info in iterate(EM(accelerate=False), model, max_iter=iterations, tol=-1.0):
        path[number - 1], objective[number - 1] = state.q.mean.reshape(3, -1), info.objective
    return Run(path, objective, state.prior.values["scale"])


def described(found: Run, model: Model, seconds: float) -> str:
    """How a run went, and how far from the exact mode at its scale it ended."""
    exact = run(Newton(), model, max_iter=100, tol=1e-9).state.point.beta
    path, value = found.path, found.objective
    fall = float(np.max(-np.diff(value) / (1.0 + np.abs(value[1:])), initial=0.0))
    return (
        f"with scores that sum to zero all {len(path)} iterations are finite ({minutes(seconds)}); largest relative "
        f"fall of the log posterior {abs(fall):.0e}; the end is within "
        f"{float(np.abs(path[-1].ravel() - exact).max()):.0e} of the exact mode (nu = {found.scale:.3g}) and moved by "
        f"{float(np.abs(path[-1] - path[-2]).max()):.0e} in the last step"
    )


def paths(page: Page, data: Leukemia, iterations: int) -> None:
    """Figures 3 to 5: EM and ECME with 40 genes."""
    genes, y = data.largest(40), data.y[data.train]
    X, raw = data.standardized(genes), data.X[data.train][:, genes]
    alone = {nu: printed(raw, y, nu, iterations) for nu in (0.1, NU, 10.0)}
    runs, notes = {}, {}
    for name, prior in {"EM": Lasso(scale=NU), "ECME": Lasso(hyperprior=HYPERPRIOR)}.items():
        model = joint_model(X, y, prior)
        runs[name], seconds = common.cpu(lambda model=model: followed(model, iterations))
        notes[name] = described(runs[name], joint_model(X, y, Lasso(scale=runs[name].scale)), seconds)
    weak = joint_model(X, y, Lasso(hyperprior=WEAK))
    collapsed = run(EM(), weak, max_iter=iterations, tol=1e-12).state.prior.values["scale"]
    page.row(
        "figure 3: EM is stable before 400 iterations and very unstable near 500",
        notes["EM"],
        f"40 genes, standardized, nu = {NU}. The printed algorithm (columns as they are, classes apart, divisions "
        "by what goes to zero) ends with numbers that are not finite after "
        + named(f"{len(path)} iterations at nu = {nu}" for nu, path in alone.items()),
    )
    page.row(
        "figure 5: ECME is very unstable after 300 iterations and ends at 350 with NA",
        notes["ECME"],
        f"nu^-1 ~ Gamma(2, 10). Under Gamma(2, 1) the slopes all go to zero and nu to {collapsed:.2g}: 80 "
        "coefficients of 38 rows overrule a weak prior of the scale, and an algorithm that divides by them breaks. "
        "Here a residual u enters as the root of u^2 + 1e-14 and local precisions are capped, so that nothing is "
        "divided by zero",
    )
    shown = {"printed": alone[NU][:500], "sum to zero": runs["EM"].path[:500]}
    spread = {name: path.var(axis=0, ddof=1) for name, path in shown.items()}
    late = float(runs["EM"].path[-max(iterations // 10, 2) :].var(axis=0).max())
    page.row(
        "figure 4: variances along the EM path: in group 1 three are obviously larger, group 2 small, group 3 large",
        "; ".join(
            f"{name}: largest of a class {named(f'{v:.0e}' for v in values.max(axis=1))}, above a tenth of it "
            f"{named((values > 0.1 * values.max(axis=1, keepdims=True)).sum(axis=1))} coefficients"
            for name, values in spread.items()
        )
        + f"; the last tenth of {iterations} iterations: {late:.0e}",
        "classes AML, B-ALL, T-ALL; the paper does not say which group is which. Variances along a path that converges "
        "say how far the start was from the end, not how uncertain a coefficient is",
    )
    pictures(page, runs, spread)


def pictures(page: Page, runs: dict[str, Run], spread: dict[str, Any]) -> None:
    names = ("AML", "B-ALL", "T-ALL")
    text = "Figures 3 and 5: coefficients of 40 genes along EM (top) and ECME (bottom), scores that sum to zero"
    with page.picture("liu_paths", text, nrows=2, ncols=3, figsize=(9.0, 4.6), sharex=True) as axes:
        for line, (name, found) in zip(axes, runs.items(), strict=True):
            for r, ax in enumerate(line):
                ax.plot(np.arange(1, len(found.path) + 1), found.path[:, r, 1:], linewidth=0.7)
                ax.set_xscale("log")
                frame(ax)
                finish(ax, "iteration" if name == "ECME" else names[r], name if r == 0 else "")
    text = (
        "Figure 4: variances of the coefficients along the first iterations of EM, as printed (top) and ours (bottom)"
    )
    with page.picture(
        "liu_variances", text, nrows=len(spread), ncols=3, figsize=(9.0, 4.0), sharex=True, squeeze=False
    ) as axes:
        for line, (name, values) in zip(axes, spread.items(), strict=True):
            for r, ax in enumerate(line):
                ax.vlines(np.arange(values.shape[1]), 0.0, values[r], color=BLUE, linewidth=1.4)
                frame(ax)
                finish(ax, names[r], name if r == 0 else "")


def classification(page: Page, data: Leukemia, sizes: Sizes) -> None:
    """The rows left for testing, with 40 genes and with all of them."""
    few, every = data.largest(40), np.flatnonzero(data.X[data.train].std(axis=0) > 0.0)
    em = {"engine_options": {"algorithm": "em"}, "max_iter": 5000}
    length = {"draws": sizes.draws, "warmup": sizes.draws // 2, "chains": 2, "random_state": 0}
    wanted = {
        "40 genes, lasso, EM": (few, BayesianSVC(Lasso(scale=NU), "map", **em, **JOINT)),
        "40 genes, lasso, vb": (few, BayesianSVC("lasso", **JOINT)),
        "40 genes, lasso, gibbs": (few, BayesianSVC("lasso", "gibbs", **length, **JOINT)),
        "40 genes, pairs, ridge, vb": (few, BayesianSVC()),
    }
    if sizes.all_genes:
        wanted |= {
            "all genes, lasso 0.5, mode": (every, BayesianSVC(Lasso(scale=0.5), "map", **JOINT)),
            "all genes, group lasso 0.5, mode": (every, BayesianSVC(GroupLasso(scale=0.5), "map", **JOINT)),
            "all genes, pairs, lasso 0.5, mode": (every, BayesianSVC(Lasso(scale=0.5), "map")),
            "all genes, ridge, vb": (every, BayesianSVC(**JOINT)),
        }
    found, sizes_found = [], []
    for name, (genes, model) in wanted.items():
        _, seconds = common.cpu(
            lambda model=model, genes=genes: model.fit(data.X[data.train][:, genes], data.y[data.train])
        )
        wrong, of, loss = data.errors(model, genes)
        found.append(f"{name}: {wrong} of {of}, log loss {loss:.2f} ({minutes(seconds)})")
        if model.inference == "map":
            sizes_found.append(f"{name} {int((model.coef_ != 0).any(axis=0).sum())}")
    page.row(
        "p = 4137 genes are too many, since a p x p matrix is to be inverted; no classification is reported",
        "; ".join(found),
        f"errors on the 34 test samples, 38 train; {len(every)} genes vary. Genes in use: {', '.join(sizes_found)}. "
        "With more genes than rows the systems have the size of the pairs of rows and classes",
    )


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__).parse_args(arguments)
    page, sizes = Page.of("liu", options), QUICK if options.quick else Sizes()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what does not converge is in the table
        simulation(page, sizes.repeats)
        data = Leukemia(*golub(logarithms=True))
        counts = np.bincount(data.y)
        page.row(
            "56 cases: 32 B-cell ALL, 12 T-cell ALL, 28 AML (which are 72); 8468 genes, 4137 after a filter",
            f"{len(data.y)} cases: {counts[1]} B-cell ALL, {counts[2]} T-cell ALL, {counts[0]} AML; "
            f"{data.X.shape[1]} genes",
            "the published data; clipped to [100, 16000], log10, no filter",
        )
        paths(page, data, sizes.iterations)
        classification(page, data, sizes)
    page.publish()


if __name__ == "__main__":
    main()
