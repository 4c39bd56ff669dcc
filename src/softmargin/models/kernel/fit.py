"""From rows to a fitted kernel machine: width and learning rate settled, then one way for every basis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import logit

from softmargin.core.array import Array
from softmargin.designs.kernel.features import kernel_map, rescaled
from softmargin.engines.kernel.data import LengthScale
from softmargin.engines.kernel.draws import KernelDraws, NewRows
from softmargin.engines.kernel.jump import fit_active
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.inducing import Neighbour
from softmargin.inference.functions import INFERENCES
from softmargin.inference.readout import HeldOut
from softmargin.inference.settings import Fit, Settings, options_of, run_engine
from softmargin.inference.trials import Chosen
from softmargin.loo.link import WORTH, LeaveOneOut, fit_link
from softmargin.losses.hinge import Hinge
from softmargin.models.classes.pairwise import Pairwise, paired, until
from softmargin.models.kernel.choice import Request, Settled, settle
from softmargin.models.kernel.inducing import Task, fit_batches, fit_points
from softmargin.models.kernel.levels import points_of
from softmargin.models.kernel.models import KernelBinary, KernelExpansions, by_length
from softmargin.models.kernel.plan import FEW, Plan, merged
from softmargin.models.kernel.search import KernelRows, kernel_prior
from softmargin.models.two_class import Binary
from softmargin.posterior.diagnostics import not_mixed
from softmargin.priors.g_prior import GPrior
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams

__all__ = ["KernelRecipe", "fit_kernel", "fit_kernel_pairs"]

_SHRINKAGE = {"active": (1.0, 1.0), "full": (2.0, 2.0)}  # of the g-prior: long tails, wide kernels need large scales
_OWN_SLOPE = {"logit": 1.0, "probit": math.sqrt(8.0 / math.pi)}  # of the logistic function with the same slope at 0
_WIDTHS = 1.0  # prior standard deviation of the logarithm of a length that is drawn, around the mean distance
_CHUNK = 256  # rows whose draws are held at a time


@dataclass(frozen=True, kw_only=True)
class KernelRecipe(Plan):
    """What the user asked for, checked."""

    loss: Callable[..., Any]
    likelihood: str
    learning_rate: float | str
    max_active: int | None = None
    tilts: bool = False  # whether the automatic choice may tilt

    @property
    def request(self) -> Request:
        """What is to be chosen."""
        return Request(self.kernel, self.length_scale, self.scaled, self.learning_rate, self.tilts)

    @property
    def expansions(self) -> bool:
        """Whether the fit is draws of expansions on rows, with the g-prior, or those of a noisy hinge.

        On all rows the probit has a sampler of its own: its latents have one weight, and a sweep needs no factor.
        """
        spectral = self.inference == "gibbs" and self.likelihood == "probit"
        return self.basis == "active" or self.noisy or spectral

    @property
    def noisy(self) -> bool:
        """Whether the hinge acts on a noisy predictor, which has a prior of its own."""
        return self.likelihood in ("noisy-hinge", "complete-hinge")


def fit_kernel(
    recipe: KernelRecipe,
    X: Any,
    sign: Array,
    count: Array,
    weight: Array,
    *,
    streams: Streams,
    at: Any = None,
    callback: Callable[[int, Any], bool] | None = None,
    before: Any = None,
) -> Binary:
    """Fit rows with signs -1 and 1 that count ``count`` times each and weigh ``weight``.

    ``before`` is a fit by batches to which these rows are added.
    """
    with one_blas_thread():
        loss = Hinge() if recipe.noisy else recipe.loss()
        rows = KernelRows(X, sign, count, weight, loss, kernel_prior(recipe.scale), streams, at)
        task = Task(recipe.run, callback)
        if before is not None:
            same = {"rate": before.learning_rate, "by_class": before.by_class, "tilt": before.chosen.candidate.tilt}
            rows = _in_units(recipe, replace(rows, **same), before.base)
            return fit_batches(rows, before.map, before.base, before.chosen, task, before)
        if recipe.expansions:
            return _drawn(recipe, rows, task)
        if recipe.inference == "svi":
            settled = settle(rows, recipe.request)
            base = _base(recipe, settled)
            size = min(FEW, len(sign)) if recipe.n_inducing is None else recipe.n_inducing
            features = points_of(rows, settled.setting, size).in_units(base)
            rows = _in_units(recipe, rows.at_candidate(settled.candidate), base)
            return fit_batches(rows, features, base, _choice(settled), task)
        return _copied(recipe, rows, task)


def _base(recipe: KernelRecipe, settled: Settled) -> float:
    """What a fit takes as its unit of the scale, so that it starts where the quick fit ended."""
    learned = isinstance(recipe.scale, str) and settled.level is None  # fits on points are told where to start
    return settled.machine.fit.scale if learned else 1.0


def _choice(settled: Settled) -> Chosen:
    return Chosen(settled.candidate, settled.record)


def _in_units(recipe: KernelRecipe, rows: KernelRows, base: float) -> KernelRows:
    return replace(rows, prior=kernel_prior(recipe.scale, base, mode=recipe.inference == "map"))


def _copied(recipe: KernelRecipe, rows: KernelRows, task: Task) -> KernelBinary:
    """Fit rows among which there may be copies: these are one row that counts more.

    No work is done twice, the result is that of weights, and it does not depend on the order of the rows.
    """
    rows, inverse = merged(recipe, rows, rows.sign, "count", "weight")
    settled = settle(rows, recipe.request)
    base = _base(recipe, settled)
    rows = _in_units(recipe, rows.at_candidate(settled.candidate), base)
    if recipe.inducing(len(rows.sign)):
        model = fit_points(rows, settled, base, task, recipe.n_inducing)
    else:
        model = _featured(recipe, rows, settled, base, task)
    held = model.fit.held._replace(f=model.fit.held.f[inverse], v=model.fit.held.v[inverse])
    return replace(model, fit=model.fit._replace(held=held))


def _featured(recipe: KernelRecipe, rows: KernelRows, settled: Settled, base: float, task: Task) -> KernelBinary:
    """A coefficient for every row, by any engine of linear machines on the kernel's features."""
    features, F = kernel_map(settled.kernel, rows.X, rows.count, settled.columns, rows.at)
    features, F = features.in_units(base), base * F
    model = rows.model(F)
    settings = task.settings(rows.readout(F.shape[1]))
    first = _finished(model, settings, settled.messages(rows, base)) if recipe.inference == "vb" else None
    fit = INFERENCES[recipe.inference](model, settings, first)
    fit = fit._replace(scale=base * fit.scale)
    return KernelBinary(fit, rows.rate, rows.loss, _choice(settled), map=features, base=base)


def _finished(model: Any, settings: Settings, start: Neighbour) -> Fit:
    """The quick fit run on, in the features of this model, to the tolerance asked for."""
    limits = {"max_iter": settings.max_iter, "tol": settings.tol}
    engine = GaussianVI()
    outcome = run_engine(engine, model, settings, "vb", state=start.start(model, engine), **limits)
    state = outcome.state
    scale = state.prior.values["scale"]
    posterior = settings.readout.gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, vi=state)


def _drawn(recipe: KernelRecipe, rows: KernelRows, task: Task) -> KernelExpansions:
    """Draws of expansions, on a few rows or on all of them."""
    settled = settle(merged(recipe, rows, rows.sign, "count", "weight")[0], recipe.request)
    candidate = settled.candidate
    if recipe.noisy and isinstance(recipe.learning_rate, str):  # the noise is learned, and does what a rate does
        candidate = candidate._replace(rate=1.0)
    rows = rows.at_candidate(candidate)
    kernel, columns, unit = settled.kernel, settled.columns, settled.machine.map.unit
    seen = rows.X if kernel.precomputed else rescaled(rows.X, columns)
    K = (kernel.matrix(seen)[:, rows.at] if kernel.precomputed else kernel.matrix(seen)) / unit
    length = _drawn_length(recipe, settled, seen) if recipe.basis == "active" else None
    settings, basis = task.settings(None), "active" if recipe.basis == "active" else "full"
    known = ("prior", "moves", "informed") if basis == "active" else ("prior",)
    options = dict(options_of(settings, *(("machine_prior",) if recipe.noisy else known)))
    if not isinstance(recipe.scale, str):
        options.setdefault("prior", GPrior(float(recipe.scale) ** -2.0))
    elif not recipe.noisy:
        options.setdefault("prior", GPrior(_SHRINKAGE[basis]))
    draws = fit_active(
        K,
        rows.sign,
        rows.c,
        likelihood=recipe.likelihood,
        basis=basis,
        max_active=recipe.max_active,
        length=length,
        sweeps=settings.draws * settings.thin,
        warmup=settings.warmup,
        thin=settings.thin,
        chains=settings.chains,
        streams=rows.streams,
        callback=task.callback,
        verbose=settings.verbose,
        **options,
    )
    used = np.unique(draws.index)
    places: Any = np.searchsorted(used, draws.index)
    kept = replace(draws, rows=len(used), index=places)
    loss = recipe.loss(float(draws.values["noise"].mean())) if recipe.noisy else recipe.loss()
    c = rows.c / np.maximum(rows.count, 1.0)

    def across(at: slice) -> NewRows:
        return K[at][:, used] if length is None else by_length(kernel, unit, seen[at], seen[used])

    f, v, p, max_kv = _left_out(kept, across, rows.sign, c, loss)
    own = _OWN_SLOPE.get(recipe.likelihood)
    if own is None:
        held = HeldOut(f, v, fit_link(rows.sign, f, v, rows.weight, max_kv, worth=0.0 if rows.tilt else WORTH))
    else:
        held = _own_link(own, rows, p, max_kv)
    assert draws.outcome is not None
    spread = float("nan") if recipe.noisy else float(np.exp(np.log(draws.scale).mean()))
    return KernelExpansions(
        Fit(draws, held, spread, draws.outcome, notice=_mixing(draws)),
        candidate.rate,
        loss,
        Chosen(candidate, settled.record),
        kernel=kernel,
        scaling=columns,
        vectors=np.asarray(rows.at)[used] if kernel.precomputed else seen[used],
        unit=unit,
        expansions=kept,
        active=draws.active_probability(),
        linked=own is None,
    )


def _drawn_length(recipe: KernelRecipe, settled: Settled, seen: Any) -> LengthScale | None:
    """How the length is drawn, where it is learned and the kernel has one: from where left-out rows want it on."""
    kernel, middle = settled.kernel, settled.middle
    if recipe.length_scale != "learn" or middle is None:
        return None
    matrix = by_length(kernel, settled.machine.map.unit, seen)
    return LengthScale(lambda length: matrix(length, slice(None)), middle, _WIDTHS, kernel.length)


def _left_out(
    draws: KernelDraws, across: Callable[[slice], NewRows], sign: Array, c: Array, loss: Any
) -> tuple[Array, Array, Array, float]:
    """Moments of the training rows' predictors without the row, and their probability of the second class.

    ``across`` gives the kernel matrix of some training rows with those that have coefficients.
    Draws are weighted by the inverse of the row's likelihood, weights cut at the root of their number times their mean:
    Ionides (2008), Truncated importance sampling. The last number is the largest share of precision a row supplies.
    """
    mean, variance, within, p = np.empty((4, len(sign)))
    for lo in range(0, len(sign), _CHUNK):
        at = slice(lo, lo + _CHUNK)
        f = draws.predictor(across(at))
        n, m = f.shape
        loss_here = -loss.loglik(np.tile(sign[at], n), np.tile(c[at], n), f.ravel()).reshape(n, m)
        weight = np.exp(loss_here - loss_here.max(axis=0))
        weight = np.minimum(weight, np.sqrt(n) * weight.mean(axis=0))
        weight /= weight.sum(axis=0)
        mean[at] = (weight * f).sum(axis=0)
        variance[at] = (weight * (f - mean[at]) ** 2).sum(axis=0)
        within[at] = f.var(axis=0)
        p[at] = (weight * draws.link(f.ravel(), 0.0, 1.0).reshape(n, m)).sum(axis=0)
    return mean, variance, p, float((1.0 - within / np.maximum(variance, 1e-300)).max())


def _mixing(draws: KernelDraws) -> str:
    """What is to say where chains disagree on the likelihood, scale or length; which rows are active may differ."""
    followed = [draws.values[name] for name in ("loglik", "g", "noise", "length") if name in draws.values]
    chains: Any = SimpleNamespace(draws=np.stack(followed, axis=-1))
    return not_mixed([chains])


def _own_link(slope: float, rows: KernelRows, p: Array, max_kv: float) -> HeldOut:
    """Probabilities of a likelihood that needs no link, as predictors that have them without a variance."""
    f = logit(np.clip(p, 1e-15, 1.0 - 1e-15)) / slope
    total = float(rows.weight.sum())
    score = float(rows.weight @ np.logaddexp(0.0, -slope * rows.sign * f)) / total
    error = float(rows.weight @ (rows.sign * f <= 0.0)) / total
    return HeldOut(f, np.zeros_like(f), LeaveOneOut(score, error, max_kv, slope, 0.0, 1.0, score))


def fit_kernel_pairs(
    recipe: KernelRecipe,
    X: Any,
    index: Any,
    count: Array,
    weight: Array,
    k: int,
    *,
    streams: Streams,
    at: Any,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
    before: Pairwise | None = None,
) -> Pairwise:
    """Fit every pair of the k classes in ``index`` on its own rows, each with its own width, pairs on the threads.

    A pair of which no row is there stays as it was ``before``.
    """

    def one(number: int, rows: Any, sign: Array, stop: Event) -> Binary:
        last = None if before is None else before.pairs[number]
        if last is not None and not len(rows):
            return last
        part = (X[rows], sign, count[rows], weight[rows])
        run: dict[str, Any] = {"streams": streams.child(number), "callback": until(stop, callback)}
        return fit_kernel(recipe, *part, at=at[rows], before=last, **run)

    return paired(one, X, index, weight, k, workers)
