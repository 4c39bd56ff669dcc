"""From rows to a fitted kernel machine: width and learning rate settled, then one way for every basis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import logit

from softmargin.designs.base import Array
from softmargin.designs.kernel_map import copies, kernel_map, rescaled
from softmargin.diagnostics import not_mixed
from softmargin.engines.active_vectors import LengthScale
from softmargin.engines.gaussian_vi import GaussianVI
from softmargin.engines.jump import fit_active
from softmargin.engines.kernel_draws import KernelDraws, NewRows
from softmargin.estimators.binary import Binary
from softmargin.estimators.fits import Fit, Settings, options_of, run_engine
from softmargin.estimators.inference import INFERENCES
from softmargin.estimators.kernel_inducing import Points, Task, fit_batches, fit_points, points_of
from softmargin.estimators.kernel_models import KernelBinary, KernelExpansions, by_length
from softmargin.estimators.kernel_search import Candidate, KernelRows, kernel_prior, settle
from softmargin.estimators.pairwise import Pairwise, paired, until
from softmargin.estimators.readout import HeldOut
from softmargin.execution.blocks import one_blas_thread
from softmargin.execution.streams import Purpose, Streams
from softmargin.link import LeaveOneOut, fit_link
from softmargin.losses.hinge import Hinge
from softmargin.priors.g_prior import GPrior

__all__ = ["KernelRecipe", "fit_kernel", "fit_kernel_pairs"]

_SHRINKAGE = {"active": (1.0, 1.0), "full": (2.0, 2.0)}  # of the g-prior: long tails, wide kernels need large scales
_OWN_SLOPE = {"logit": 1.0, "probit": math.sqrt(8.0 / math.pi)}  # of the logistic function with the same slope at 0
_WIDTHS = 1.0  # prior standard deviation of the logarithm of a length that is drawn, around the mean distance
_SLAB = 256  # rows whose draws are held at a time
_FULL = 1000  # rows from which "auto" takes inducing points
_SEARCHED = 600  # rows, at most, that the width and the learning rate are settled on


@dataclass(frozen=True)
class KernelRecipe:
    """What the user asked for, checked; ``run`` are the lengths, tolerances and options of the engine."""

    kernel: Any
    length_scale: Any
    scaled: bool | str
    scale: float | str
    loss: Callable[..., Any]
    likelihood: str
    basis: str
    inference: str
    learning_rate: float | str
    max_active: int | None = None
    n_inducing: int | None = None
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def precomputed(self) -> bool:
        """Whether rows are rows of the kernel matrix."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def inducing(self, rows: int) -> bool:
        """Whether a fit of this many rows is on inducing points."""
        if self.basis != "auto":
            return self.basis == "inducing"
        return self.inference == "svi" or (self.inference == "vb" and rows > _FULL and not self.precomputed)

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
            points = Points(before.map, before.base, before.learning_rate)
            return fit_batches(_in_units(recipe, rows, before.base), points, task, before)
        if recipe.inducing(len(sign)):
            found = _settled(recipe, rows)
            base = _base(recipe, found)
            features = points_of(rows, found.map.kernel, found.map.columns, recipe.n_inducing).in_units(base)
            fit_rows = fit_batches if recipe.inference == "svi" else fit_points
            return fit_rows(_in_units(recipe, rows, base), Points(features, base, found.rate), task)
        if recipe.expansions:
            return _drawn(recipe, rows, task)
        return _featured(recipe, rows, task)


def _base(recipe: KernelRecipe, found: Candidate) -> float:
    """What a fit takes as its unit of the scale, so that it starts where the quick fit ended."""
    return float(found.state.prior.values["scale"]) if isinstance(recipe.scale, str) else 1.0


def _in_units(recipe: KernelRecipe, rows: KernelRows, base: float) -> KernelRows:
    return replace(rows, prior=kernel_prior(recipe.scale, base, mode=recipe.inference == "map"))


def _featured(recipe: KernelRecipe, rows: KernelRows, task: Task) -> KernelBinary:
    """A coefficient for every row, by any engine of linear machines on the kernel's features."""
    # copies of a row are one row that counts more: no work is done twice, and the result is that of weights
    rows, inverse = _merged(recipe, rows)
    chosen = _settled(recipe, rows)
    features, F, base = chosen.map, chosen.features, 1.0
    whole = len(F) == len(rows.sign)
    if not whole:
        features, F = kernel_map(features.kernel, rows.X, rows.count, features.columns)
    quick = whole and recipe.inference == "vb"
    if not quick:
        base = _base(recipe, chosen)
        features, F, rows = features.in_units(base), base * F, _in_units(recipe, rows, base)
    model = rows.model(F, chosen.rate)
    settings = task.settings(rows.readout(F.shape[1]))
    fit = INFERENCES[recipe.inference](model, settings, _finished(model, settings, chosen) if quick else None)
    held = fit.held._replace(f=fit.held.f[inverse], v=fit.held.v[inverse])
    fit = fit._replace(held=held, scale=base * fit.scale)
    return KernelBinary(fit, chosen.rate, rows.loss, map=features, base=base)


def _merged(recipe: KernelRecipe, rows: KernelRows) -> tuple[KernelRows, Any]:
    """Rows without copies, and which of them each row is."""
    if recipe.precomputed:
        return rows, np.arange(len(rows.sign))
    first, inverse = copies(rows.X, rows.sign)
    count, weight = np.zeros((2, len(first)))
    np.add.at(count, inverse, rows.count)
    np.add.at(weight, inverse, rows.weight)
    return replace(rows.take(first), count=count, weight=weight), inverse


def _settled(recipe: KernelRecipe, rows: KernelRows) -> Candidate:
    """Kernel, width and learning rate, and a quick fit with them; of some of the rows where there are many."""
    n = len(rows.sign)
    if n > _SEARCHED and not recipe.precomputed:
        rng = rows.streams.at(Purpose.START)
        positive, negative = np.flatnonzero(rows.sign > 0), np.flatnonzero(rows.sign < 0)
        few = max(1, min(round(_SEARCHED * len(positive) / n), _SEARCHED - 1))
        parts = [
            rng.choice(own, min(size, len(own)), replace=False)
            for own, size in ((positive, few), (negative, _SEARCHED - few))
        ]
        rows = rows.take(np.sort(np.concatenate(parts)))
    return settle(rows, recipe.kernel, recipe.length_scale, recipe.scaled, recipe.learning_rate)


def _finished(model: Any, settings: Settings, chosen: Candidate) -> Fit:
    """The quick fit run on to the tolerance asked for."""
    limits = {"max_iter": settings.max_iter, "tol": settings.tol}
    start = GaussianVI().restart(model, chosen.state)
    outcome = run_engine(GaussianVI(), model, settings, "vb", state=start, **limits)
    state = outcome.state
    scale = state.prior.values["scale"]
    posterior = settings.readout.gaussian(state.q.mean, state.q.root, np.array([scale]), np.ones(1))
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, vi=state)


def _drawn(recipe: KernelRecipe, rows: KernelRows, task: Task) -> KernelExpansions:
    """Draws of expansions, on a few rows or on all of them."""
    chosen = _settled(recipe, _merged(recipe, rows)[0])
    rate = 1.0 if recipe.noisy and isinstance(recipe.learning_rate, str) else chosen.rate
    kernel, columns, unit = chosen.map.kernel, chosen.map.columns, chosen.map.unit
    seen = rows.X if kernel.precomputed else rescaled(rows.X, columns)
    K = (kernel.matrix(seen)[:, rows.at] if kernel.precomputed else kernel.matrix(seen)) / unit
    length = _drawn_length(recipe, chosen, seen) if recipe.basis == "active" else None
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
        rate * rows.weight,
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
    c = rate * rows.weight / np.maximum(rows.count, 1.0)

    def across(at: slice) -> NewRows:
        return K[at][:, used] if length is None else by_length(kernel, unit, seen[at], seen[used])

    f, v, p, max_kv = _left_out(kept, across, rows.sign, c, loss)
    own = _OWN_SLOPE.get(recipe.likelihood)
    if own is None:
        held = HeldOut(f, v, fit_link(rows.sign, f, v, rows.weight, max_kv))
    else:
        held = _own_link(own, rows, p, max_kv)
    assert draws.outcome is not None
    spread = float("nan") if recipe.noisy else float(np.exp(np.log(draws.scale).mean()))
    return KernelExpansions(
        Fit(draws, held, spread, draws.outcome, notice=_mixing(draws)),
        rate,
        loss,
        kernel=kernel,
        scaling=columns,
        vectors=np.asarray(rows.at)[used] if kernel.precomputed else seen[used],
        unit=unit,
        expansions=kept,
        active=draws.active_probability(),
        linked=own is None,
    )


def _drawn_length(recipe: KernelRecipe, chosen: Candidate, seen: Any) -> LengthScale | None:
    """How the length is drawn, where it is learned and the kernel has one: from where left-out rows want it on."""
    kernel, middle = chosen.map.kernel, chosen.setting.kernel.length
    if recipe.length_scale != "learn" or middle is None:
        return None
    matrix = by_length(kernel, chosen.map.unit, seen)
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
    for lo in range(0, len(sign), _SLAB):
        at = slice(lo, lo + _SLAB)
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
