"""Many classes as one model: scores that sum to zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.classes import ClassDesign, pair_weights
from softmargin.designs.standardize import Columns, design_for
from softmargin.inference.choices import Candidate, Part, Rules, tilted
from softmargin.inference.functions import INFERENCES
from softmargin.inference.readout import ClassReadout
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.trials import Chosen, Trials, chosen_by, loss_of, row_order
from softmargin.inference.variational import fit_vb
from softmargin.models.build import coordinates_for, kept_columns
from softmargin.models.fitted import spread_of
from softmargin.models.prior_choice import always_mask
from softmargin.models.reader import Reader
from softmargin.models.two_class import Recipe
from softmargin.posterior import diagnostics
from softmargin.posterior.classes import ClassDraws, ClassGaussian
from softmargin.posterior.coefficients import widened
from softmargin.priors.ridge import Ridge
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Purpose, Streams
from softmargin.solvers.sum_to_zero import SumToZero

__all__ = ["SumToZeroFit", "cost_table", "fit_sum_to_zero"]

# Scores of k classes have a margin of 1/(k - 1) while one observation has a total loss of 1: a base rate of k/8, which
# is 1/4 for two classes, lies between the rate that restores the margin and the one that keeps the total loss. Where
# the prior is large beside a row's part the fit is a constant at low rates, and higher ones are tried.
_RULES = Rules(flat=0.9, steps=(2.0, 4.0, 8.0, 16.0), dropped=0.1)


@dataclass(frozen=True, eq=False)
class SumToZeroFit:
    """A fitted model of k classes."""

    fit: Fit
    learning_rate: float
    costs: Array | None
    chosen: Chosen | None = None

    @property
    def reader(self) -> Reader:
        """How the model sees new rows."""
        return Reader(self.columns)

    @property
    def parts(self) -> tuple[SumToZeroFit, ...]:
        """The models that this one consists of."""
        return (self,)

    @property
    def k(self) -> int:
        """Number of classes."""
        return int(self.fit.posterior.k)

    @property
    def stretch(self) -> float:
        """By how much posterior standard deviations are widened where they are reported."""
        return 1.0 if self.chosen is None else self.chosen.stretch

    @property
    def posterior(self) -> Any:
        """The posterior as it is reported: standard deviations are those of the base rate, whatever rate was chosen."""
        return widened(self.fit.posterior, self.stretch)

    @property
    def loo(self) -> Any:
        """Leave-one-out scores and the link."""
        return self.fit.loo

    @property
    def loo_probability(self) -> Array:
        """Probabilities (n, k) of the training rows, each left out."""
        p: Array = self.fit.held.probability
        return p

    def offset(self, kind: str) -> float:
        """The link moves boundaries by a matrix, not by one number."""
        return 0.0

    @property
    def columns(self) -> Columns:
        columns: Columns = self.fit.posterior.columns
        return columns

    def scores(self, X: Any) -> tuple[Array, Array]:
        """Means (rows, k) and covariances of the scores."""
        with one_blas_thread():
            f, V = self.fit.posterior.moments(design_for(X, self.columns))
        return f, V

    def decision(self, X: Any, kind: str) -> Array:
        """Scores (rows, k) whose argmax is the predicted class: logits of the link, or the scores themselves."""
        f, V = self.scores(X)
        if kind == "calibrated":
            return np.asarray(self.fit.loo.link.logits(f, V))
        score = np.log(np.maximum(self._plain(f, V, kind), 1e-300))
        return np.asarray(score - score.mean(axis=1, keepdims=True))

    def probability(self, X: Any, kind: str) -> Array:
        """Probabilities (rows, k) of the classes."""
        f, V = self.scores(X)
        return np.asarray(self.fit.loo.link.probability(f, V)) if kind == "calibrated" else self._plain(f, V, kind)

    def _plain(self, f: Array, V: Array, kind: str) -> Array:
        """Averages over draws of the scores: of the normalised pseudo-likelihood, or of which score is largest."""
        rng = np.random.Generator(np.random.Philox(0))
        values, vectors = np.linalg.eigh(V)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        total, n = np.zeros_like(f), 200
        costs = (np.ones((self.k, self.k)) if self.costs is None else self.costs) * (1.0 - np.eye(self.k))
        for _ in range(n):
            drawn = f + np.einsum("irs,is->ir", root, rng.standard_normal((1, self.k)))
            if kind == "sign":
                total[np.arange(len(f)), drawn.argmax(axis=1)] += 1.0
            else:
                loss = np.maximum(drawn + 1.0 / (self.k - 1), 0.0) @ costs.T
                total += softmax(-2.0 * self.learning_rate * loss, axis=1)
        return total / n

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        """Draws (rows, n, k) of the scores."""
        with one_blas_thread():
            draws: Array = spread_of(self.posterior, "sample").sample(
                design_for(X, self.columns), streams.at(Purpose.PREDICT), n
            )
        return draws

    def sampled(self, classes: Any, draws: int, streams: Streams) -> diagnostics.Sampled:
        """Draws of everything that was sampled, with the classes as a dimension of the coefficients."""
        posterior, recorded, stats = spread_of(self.posterior, "to_arviz"), {}, {}
        if isinstance(posterior, ClassDraws):
            beta, scale, recorded = posterior.all_coefficients(), posterior.scale, posterior.recorded
            stats = {"loglik": posterior.loglik}
        else:
            beta, scale = (part[None] for part in posterior.coefficient_draws(streams.at(Purpose.PREDICT), draws))
        coef, intercept = self.columns.to_user(beta)
        dims = {"coef": ["class", "feature"], "intercept": ["class"]}
        variables = {"coef": coef, "intercept": intercept, "scale": scale, **recorded}
        return diagnostics.Sampled(variables, stats, dims, {"class": classes.tolist()}, not stats)

    def inclusion(self) -> Any:
        """Inclusion probabilities of the columns of X; zero for constant ones."""
        chosen = self.fit.inclusion
        return None if chosen is None else chosen.by_column(self.columns)

    def summary(self, names: list[str], level: float, classes: Any) -> pd.DataFrame:
        """One row a coefficient and class."""
        posterior = self.posterior
        if isinstance(posterior, ClassGaussian):
            tables = posterior.table(level)
        else:
            coef, intercept = posterior.user_mean()
            tables = [{"mean": np.concatenate(([a], b))} for a, b in zip(intercept, coef, strict=True)]
        index = pd.Index(["Intercept", *names], name="feature")
        frames, chosen = [], self.inclusion()
        mixing = posterior.in_blocks().mixing() if isinstance(posterior, ClassDraws) else {}
        for r, table in enumerate(tables):
            frame = pd.DataFrame(table, index=index)
            if chosen is not None:
                frame["inclusion"] = np.concatenate(([1.0], chosen.chains.mean(axis=0)))
                frame["inclusion_error"] = np.concatenate(([0.0], chosen.error))
                frame["inclusion_range"] = np.concatenate(([0.0], np.ptp(chosen.chains, axis=0)))
            frames.append(frame.assign(**{name: values[r] for name, values in mixing.items()}))
        table = pd.concat(dict(zip(classes.tolist(), frames, strict=True)), names=["class"]).swaplevel()
        return table.loc[[*(["Intercept"] if self.columns.intercept else []), *names]]


def cost_table(costs: Any, k: int) -> Array | None:
    """The costs as numbers."""
    try:
        return None if costs is None else np.array(costs, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"costs must be a {k} x {k} table of numbers, one row and one column a class.") from None


def fit_sum_to_zero(
    recipe: Recipe,
    X: Any,
    label: Any,
    count: Array,
    weight: Array,
    columns: Columns,
    costs: Any,
    k: int,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> SumToZeroFit:
    """Fit rows of k classes that count ``count`` times each and weigh ``weight``."""
    with one_blas_thread():
        table = cost_table(costs, k)
        weights = pair_weights(label, weight, table, k)
        costless = np.flatnonzero(~(weights > 0.0).any(axis=1))
        if len(costless):
            raise ValueError(
                f"costs charges nothing for deciding on class number {costless[0]}, so that would always be best: give "
                f"column {costless[0]} a positive entry."
            )
        mean_cost = weights.sum(axis=0)  # what an error of a row costs on average: how it counts in the link
        part = np.minimum(1.0, 1.0 / count)

        def built(prior: Any, solver: str) -> tuple[Model, ClassReadout]:
            base = coordinates_for(design_for(X, columns), prior, solver)
            design = ClassDesign.of(base.design, weights)
            space = SumToZero.of(design)
            selects = hasattr(prior, "always_include")
            if selects:
                free = np.arange(base.design.shape[1]) < int(columns.intercept)
                always = always_mask(prior.always_include, columns, recipe.names)
                bound = prior.bind(free, len(label), always=always, classes=k)
            else:
                bound = prior.bind(design.free, len(design.index), classes=k)
            rows: Any = design
            blocks = Blocks(rows, -np.ones(len(design.index)), weights[weights > 0.0], workers=workers)
            model = Model(blocks, recipe.loss, bound, design.free, streams, space)
            return model, ClassReadout(columns, base.basis, part, mean_cost, label, k)

        def weighted(model: Model, candidate: Candidate) -> Model:
            rows: Any = model.blocks.design
            own = tilted(label, count)[rows.index] if candidate.tilt else 1.0
            return model.with_weight(candidate.rate * own * model.c)

        def loss(candidate: Candidate, whole: Fit, train: Part, test: Part, prior: Any = None) -> Array:
            some, times = train.rows, count[train.rows] * train.share
            kept = kept_columns(X[some], times, intercept=columns.intercept, standardized=recipe.standardized)
            part = (X[some], label[some], times, weight[some] * train.share, kept)
            other = fit_sum_to_zero(recipe.refit(candidate, prior), *part, costs, k, streams=streams)
            return loss_of(other.probability(X[test.rows], "calibrated"), label[test.rows])

        model, readout = built(recipe.prior, recipe.solver)
        settings = Settings(readout, callback=callback, **recipe.run)
        chosen, first, normal = recipe.decided(), None, model
        try:
            if recipe.quick and chosen is not None:
                fit = fit_vb(weighted(model, chosen.candidate), settings)
                return SumToZeroFit(fit, chosen.candidate.rate, table, chosen)
            if chosen is None:
                other, prior = readout, None
                if model.prior.selects or model.dimension > len(label):
                    prior = Ridge()  # point masses, or more columns than rows: chosen under a normal prior
                    normal, other = built(prior, "auto")
                quiet = settings.aside(readout=other.quick())

                def quick(candidate: Candidate, least: float) -> Any:
                    return fit_vb(weighted(normal, candidate), quiet, least=least)

                rules = replace(_RULES, steps=()) if recipe.selects else _RULES
                trials = Trials(
                    quick,
                    partial(loss, prior=prior),
                    label,
                    count,
                    row_order(X),
                    recipe.tilts,
                    base=k / 8.0,
                    rules=rules,
                )
                chosen, first, *_ = chosen_by(trials)
            infer = INFERENCES[recipe.inference]
            fit = infer(weighted(model, chosen.candidate), settings, first if normal is model else None)
            return SumToZeroFit(fit, chosen.candidate.rate, table, chosen)
        finally:
            normal.blocks.close()
            model.blocks.close()
