"""Many classes as one model in which only the worst rival of a row counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from softmargin.core.array import Array
from softmargin.core.loop import Info
from softmargin.core.prior import PriorMessage
from softmargin.designs.standardize import Columns, design_for
from softmargin.engines.mode.crammer_singer import ScorePoint, mode_root, score_mode
from softmargin.engines.sampling.crammer_singer import ScoreModel, score_gibbs
from softmargin.inference.draws import drawn_fit
from softmargin.inference.mode import UNFINISHED
from softmargin.inference.readout import ClassHeldOut, ClassReadout
from softmargin.inference.settings import Fit, Settings, options_of, run_engine
from softmargin.loo.class_cavity import ClassMoments, class_scores
from softmargin.loo.class_link import matrix_cavity
from softmargin.losses.crammer_singer import CrammerSinger
from softmargin.models.build import coordinates_for
from softmargin.models.classes.reader import ClassReader
from softmargin.models.classes.scores import SumToZeroFit
from softmargin.models.two_class import Recipe
from softmargin.priors.ridge import Ridge
from softmargin.refusals import refused
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

__all__ = ["CrammerSingerFit", "fit_crammer_singer"]

_RATE = 0.25  # learning_rate="auto"
_AVERAGED = 200  # draws of the scores behind a pseudo-probability
_DRAWS = 1000  # draws that leave-one-out moments are taken from
_SETTLED = 1e-7  # relative change of a learned scale at which the mode is found


class CrammerSingerFit(SumToZeroFit):
    """A fitted model of k classes."""

    def _plain(self, f: Array, V: Array, kind: str) -> Array:
        """Averages over draws of the scores: of the normalised pseudo-likelihood, or of which score is largest."""
        if kind == "sign":
            return super()._plain(f, V, kind)
        rng = np.random.Generator(np.random.Philox(0))
        values, vectors = np.linalg.eigh(V)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        total, rate = np.zeros_like(f), np.full(len(f), self.learning_rate)
        for _ in range(_AVERAGED):
            drawn = f + np.einsum("irs,is->ir", root, rng.standard_normal((1, self.k)))
            each = [CrammerSinger().loglik(np.full(len(f), j), rate, drawn) for j in range(self.k)]
            total += softmax(np.column_stack(each), axis=1)
        return total / _AVERAGED


@dataclass(frozen=True, eq=False)
class ScoreReadout(ClassReadout):
    """Leave-one-out scores where one loss ties the classes of an observation together."""

    def of_score_mode(self, model: ScoreModel, smooth: ScorePoint, precision: Array) -> ClassHeldOut:
        """From the mode: one Newton step without the row, with the curvatures of a point close to it."""
        base = model.blocks.design
        root = mode_root(base.rows(np.arange(base.shape[0])), smooth, precision)
        f, V = class_scores(base, smooth.beta.ravel(), root, self.k)
        slope = -smooth.z
        slope[np.arange(len(f)), self.label] += 2.0 * model.c
        mean, _, share = matrix_cavity(f, V, smooth.curvature, slope, self.part)
        return self._linked(ClassMoments(mean, np.zeros_like(V), share), smooth=True)

    def of_draws(self, model: Any, posterior: Any, draws: Array, scale: Array, average: Any) -> ClassHeldOut:
        """From draws, weighted by what the row took off their density; large weights are cut to sqrt(draws) means."""
        draws = draws[:: max(1, len(draws) // _DRAWS)]
        blocks, base = draws.reshape(len(draws), self.k, -1), model.blocks.design
        lead = int(base.intercept)
        flat = np.ascontiguousarray(blocks.reshape(-1, blocks.shape[-1])[:, lead:].T)
        f = base.matmat(flat).reshape(-1, len(draws), self.k) + blocks[:, :, :lead].sum(axis=2)
        loss = np.stack([model.loss.loglik(self.label, model.c, f[:, s]) for s in range(len(draws))], axis=1)
        log_weight = -self.part[:, None] * loss
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        weight = np.minimum(weight, weight.mean(axis=1, keepdims=True) * np.sqrt(len(draws)))
        weight /= weight.sum(axis=1, keepdims=True)
        mean = np.einsum("is,isr->ir", weight, f)
        away = f - mean[:, None]
        V = np.einsum("is,isr,ist->irt", weight, away, away, optimize=True)
        return self._linked(ClassMoments(mean, V, float("nan")))

    def averager(self, model: Any) -> None:
        return None


@dataclass(frozen=True)
class ScoreMode:
    """The mode, with the scale at its conditional mode in turn where it is learned."""

    start: float = 1.0
    needs_loss = ("hinge",)
    needs_prior = ("mode", "penalty", "isotropic")

    def init(self, model: Any) -> Any:
        """Only a precision: the coefficients follow from it."""
        prior = model.prior.start()
        if model.prior.stretch(prior) is not None:
            prior = model.prior.stretched(prior, float(np.log(self.start)))
        return None, None, prior

    def step(self, model: Any, state: Any, iteration: int) -> tuple[Any, Info]:
        """The mode at this scale, then the scale."""
        base, scale = model.blocks.design, state[2].values["scale"]
        precision = np.asarray(model.prior.penalty(scale)[0][: base.shape[1]])
        points = score_mode(base.rows(np.arange(base.shape[0])), model.label, model.c, precision, model.k)
        prior: PriorMessage = model.prior.mode(points[0].beta.ravel())
        change = abs(prior.values["scale"] / scale - 1.0)
        objective = float(model.loss.loglik(model.label, model.c, points[0].f).sum()) + prior.bound
        return (*points, state[2] if change == 0.0 else prior), Info(objective, change)


def _map(model: ScoreModel, settings: Settings) -> Fit:
    options_of(settings)
    learned = model.prior.stretch(model.prior.start()) is not None
    runs = [
        run_engine(ScoreMode(start), model, settings, "map", max_iter=settings.max_iter, tol=_SETTLED)
        for start in ((0.1, 1.0, 10.0) if learned else (1.0,))
    ]
    outcome = max(runs, key=lambda found: found.trace[-1])
    point, smooth, prior = outcome.state
    scale, readout = prior.values["scale"], settings.readout
    held = readout.of_score_mode(model, smooth, prior.precision[: model.blocks.design.shape[1]])
    notice = ""
    if point.gap > UNFINISHED:
        outcome.change = point.gap
        notice = (
            f"the mode is certified to a relative gap of {point.gap:.1e} only; weights may be too unlike, rescale them."
        )
    return Fit(readout.point(point.beta.ravel(), scale), held, scale, outcome, gap=point.gap, notice=notice)


def _gibbs(model: ScoreModel, settings: Settings) -> Fit:
    return drawn_fit(score_gibbs(settings.chains, **options_of(settings, "scale_moves")), model, settings, "gibbs")


_INFERENCES: dict[str, Callable[[ScoreModel, Settings], Fit]] = {"map": _map, "gibbs": _gibbs}


def fit_crammer_singer(
    recipe: Recipe,
    X: Any,
    label: Any,
    count: Array,
    weight: Array,
    columns: Columns,
    k: int,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
) -> CrammerSingerFit:
    """Fit rows of k classes that count ``count`` times each and weigh ``weight``."""
    if recipe.inference not in _INFERENCES:
        raise ValueError(refused("scores by another inference", inference=repr(recipe.inference)))
    if not isinstance(recipe.prior, Ridge):
        raise ValueError(refused("scores with another prior"))
    with one_blas_thread():
        base = coordinates_for(design_for(X, columns), recipe.prior, recipe.solver)
        free = np.tile(np.arange(base.design.shape[1]) < int(columns.intercept), k)
        rate = _RATE if isinstance(recipe.learning_rate, str) else float(recipe.learning_rate)
        blocks = Blocks(base.design, label, rate * weight, workers=workers)
        bound, loss = recipe.prior.bind(free, len(label) * (k - 1), classes=k), CrammerSinger()
        model = ScoreModel(blocks, loss, bound, free, streams, Full(), label=label, k=k)
        readout = ScoreReadout(columns, base.basis, np.minimum(1.0, 1.0 / count), weight, label, k)
        try:
            settings = Settings(readout, callback=callback, **recipe.run)
            fit = _INFERENCES[recipe.inference](model, settings)
            return CrammerSingerFit(fit, rate, None, ClassReader(columns), fit.posterior, loss=recipe.loss)
        finally:
            model.blocks.close()
