"""What is read off a finished engine: the posterior in the user's terms, and predictors without their own rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.standardize import Columns
from softmargin.engines.mode.active_set import ActiveSet, leave_one_out
from softmargin.engines.mode.smoothed_start import picked
from softmargin.engines.vi.scale_mixture import Mixture
from softmargin.loo.cavity import CavityAverage, grouped_cavity
from softmargin.loo.class_average import ClassCavityAverage
from softmargin.loo.class_cavity import (
    ClassMoments,
    class_scores,
    draw_cavities,
    fit_cavities,
    mix_cavities,
    mode_cavities,
)
from softmargin.loo.class_link import ClassLeaveOneOut, fit_class_link
from softmargin.loo.link import WORTH, LeaveOneOut, bent, cavity, fit_link, mixed_cavity
from softmargin.loo.missing_cavity import left_out
from softmargin.posterior.classes import ClassDraws, ClassGaussian, ClassPoint
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior, PointPosterior, Posterior
from softmargin.priors.penalty import Penalty

__all__ = ["BinaryReadout", "ClassHeldOut", "ClassReadout", "HeldOut", "Readout", "among"]

_GAUSSIAN = 0.9  # largest k v up to which moments of draws are treated as Gaussian


def among(values: Array, rows: Any, n: int) -> Array:
    """Values of some of n rows, NaN for the others."""
    out = np.full((n, *values.shape[1:]), np.nan)
    out[rows] = values
    return out


class HeldOut(NamedTuple):
    """Moments of the training rows' predictors without the row itself, and the link fitted on them."""

    f: Array
    v: Array
    loo: LeaveOneOut
    curved: Array | None = None  # probabilities under a curve in the link that was fitted without the row

    def scattered(self, rows: Any, n: int) -> HeldOut:
        """The same of n rows, where these are the given ones; NaN elsewhere."""
        curved = None if self.curved is None else among(self.curved, rows, n)
        return HeldOut(among(self.f, rows, n), among(self.v, rows, n), self.loo, curved)

    @property
    def offset(self) -> float:
        """How far the link moves the boundary from f = 0."""
        return self.loo.link.offset

    def bent(self, y: Array, weight: Array, count: Array) -> HeldOut:
        """The same with a curve in the link, where these predictors show one."""
        return HeldOut(self.f, self.v, *bent(self.loo, y, self.f, self.v, weight, count))

    @property
    def decision(self) -> Array:
        """What decides the class of every training row, left out: positive where its probability is above one half."""
        link = self.loo.link
        return link.decision(self.f, self.v) if self.curved is None else link.decision_at(self.curved)

    @property
    def probability(self) -> Array:
        """Probability of the second class of every training row, left out."""
        return self.loo.link.probability(self.f, self.v) if self.curved is None else self.curved


class ClassHeldOut(NamedTuple):
    """The same for the scores of several classes."""

    f: Array
    V: Array
    loo: ClassLeaveOneOut

    def scattered(self, rows: Any, n: int) -> ClassHeldOut:
        """The same of n rows, where these are the given ones; NaN elsewhere."""
        return self._replace(f=among(self.f, rows, n), V=among(self.V, rows, n))

    @property
    def probability(self) -> Array:
        """Probabilities (n, k) of every training row, left out."""
        return self.loo.link.probability(self.f, self.V)


class Readout(Protocol):
    """How the results of any engine become a posterior and leave-one-out predictors."""

    def point(self, beta: Array, scale: float) -> Any:
        """The posterior of a mode."""

    def gaussian(self, mean: Array, root: Any, scales: Array, weights: Array) -> Any:
        """A Gaussian posterior with a discrete density of the prior scale."""

    def draws(
        self, mean: Array, root: Array, scale: Array, draws: Array, loglik: Array, recorded: dict[str, Array]
    ) -> Any:
        """A posterior of draws (chains, draws, coefficients)."""

    def some(self, model: Model, rows: Any) -> tuple[Model, Any]:
        """The model of some observations, in order, and what reads it."""

    def of_fit(self, model: Model, state: Any, unknowns: tuple[Any, ...] = ()) -> Any:
        """Leave-one-out predictors from a Gaussian fit; the model is the one that the unknowns imply."""

    def of_mixture(self, model: Model, mixture: Mixture, unknowns: tuple[Any, ...] = ()) -> Any:
        """From a mixture of such fits over the scale."""

    def predictors(self, model: Model, beta: Array, f: Array) -> Array:
        """What ``held`` has of every row, of given coefficients and with the row itself; f are those of the loss."""

    def of_point(self, model: Model, f: Array, mean: Array, held: Any, unknowns: tuple[Any, ...] = ()) -> Any:
        """From a mode with ``predictors`` f, beside a Gaussian fit with predictors ``mean`` and their ``held`` ones."""

    def of_other(self, held: Any, posterior: Any) -> Any:
        """From draws whose left-out predictors are those of a Gaussian fit."""

    def of_mode(self, model: Model, point: ActiveSet, penalty: Penalty) -> Any:
        """From a mode."""

    def of_draws(self, model: Model, posterior: Any, draws: Array, scale: Array, average: Any) -> Any:
        """From draws (n, coefficients); ``average`` is what ``averager`` made, fed with sweeps."""

    def averager(self, model: Model) -> Any:
        """Collects sweeps where draws alone may not do, or None."""


@dataclass(frozen=True, eq=False)
class BinaryReadout:
    """Two classes.

    ``part`` is the share of a row's message that one observation makes, and ``weight`` is how a row counts in the link.
    """

    columns: Columns
    basis: Array | None
    part: Array
    weight: Array
    tol: float = 1e-10
    free_offset: bool = False  # whether the link may move the boundary at no price: rows left out have to place it
    wrong: float = 0.0  # labels that the link takes for wrong, beside those it sees

    def point(self, beta: Array, scale: float) -> Posterior:
        return PointPosterior(self.columns, self.basis, beta, scale**2)

    def gaussian(self, mean: Array, root: Any, scales: Array, weights: Array) -> Posterior:
        square = float(weights @ scales**2)
        root = np.ascontiguousarray(root) if isinstance(root, np.ndarray) else root
        return GaussianPosterior(self.columns, self.basis, mean, square, root, scales, weights)

    def draws(
        self, mean: Array, root: Array, scale: Array, draws: Array, loglik: Array, recorded: dict[str, Array]
    ) -> Posterior:
        weights = np.full(scale.size, 1.0 / scale.size)
        square = float((scale**2).mean())
        return DrawsPosterior(
            self.columns, self.basis, mean, square, root, scale.ravel(), weights, draws, loglik, recorded
        )

    def linked(self, model: Model, f: Array, v: Array, max_kv: float, *, smooth: bool = False) -> HeldOut:
        """The link; for a point (``smooth``) without an offset, so that the mode decides as the SVM that it is."""
        offset = self.columns.intercept and (self.free_offset or not smooth)
        worth = 0.0 if self.free_offset else WORTH
        how: dict[str, Any] = {"offset": offset, "worth": worth, "smooth": smooth, "wrong": self.wrong}
        loo = fit_link(model.y, f, v, self.weight, max_kv, **how, tol=self.tol)
        return HeldOut(f, v, loo)

    def some(self, model: Model, rows: Any) -> tuple[Model, BinaryReadout]:
        return picked(model, rows), replace(self, part=self.part[rows], weight=self.weight[rows])

    def of_fit(self, model: Model, state: Any, unknowns: tuple[Any, ...] = ()) -> HeldOut:
        return self.linked(model, *left_out(model, state, self.part))

    def of_mixture(self, model: Model, mixture: Mixture, unknowns: tuple[Any, ...] = ()) -> HeldOut:
        outs = [left_out(model, state, self.part) for state in mixture.states]
        return self.linked(model, *mixed_cavity(mixture.weights, outs))

    def predictors(self, model: Model, beta: Array, f: Array) -> Array:
        return f

    def of_point(self, model: Model, f: Array, mean: Array, held: HeldOut, unknowns: tuple[Any, ...] = ()) -> HeldOut:
        """With an offset: few rows per group leave the mode of their effects far from the mean."""
        offset, worth = self.columns.intercept, 0.0 if self.free_offset else WORTH
        out, nothing = f - (mean - held.f), np.zeros_like(f)
        how: dict[str, Any] = {"offset": offset, "worth": worth, "smooth": True, "tol": self.tol}
        return HeldOut(out, nothing, fit_link(model.y, out, nothing, self.weight, float("nan"), **how))

    def of_other(self, held: HeldOut, posterior: Any) -> HeldOut:
        return held

    def of_mode(self, model: Model, point: ActiveSet, penalty: Penalty) -> HeldOut:
        own = model.space.offers("left_out")  # of a space without matrices
        f = (model.space.left_out if own else leave_one_out)(model, point, penalty, self.part)
        return self.linked(model, f, np.zeros(len(f)), float("nan"), smooth=True)

    def of_smooth_mode(self, model: Model, beta: Array, f: Array, precision: Array) -> HeldOut:
        """From the mode of a loss with a curvature everywhere: one Newton step without the row."""
        message = model.loss.gaussian(model.y, model.c, f, np.full(len(f), 1e-12))
        v = model.blocks.row_quad(model.gaussian(message.w, message.b, precision).root)
        f_out, _, max_kv = cavity(f, v, message.w, message.b, self.part)
        return self.linked(model, f_out, np.zeros_like(f), max_kv, smooth=True)

    def of_draws(self, model: Model, posterior: Any, draws: Array, scale: Array, average: Any) -> HeldOut:
        moments = grouped_cavity(model, draws, scale, self.part)
        if moments[2] > _GAUSSIAN and average is not None:  # too skewed for Gaussian moments, as on separable data
            moments = average.moments()
        return self.linked(model, *moments)

    def quick(self) -> BinaryReadout:
        """The same with a rougher link, to compare fits by."""
        return replace(self, tol=1e-6)

    def averager(self, model: Model) -> CavityAverage | None:
        narrow = model.size <= 2000 or model.prior.selects
        return CavityAverage(model, self.part) if narrow and model.loss.offers("draw") else None


@dataclass(frozen=True, eq=False)
class ClassReadout:
    """Several classes with scores that sum to zero; ``label`` is the class of every observation."""

    columns: Columns
    basis: Array | None
    part: Array
    weight: Array
    label: Any
    k: int

    def _blocks(self, beta: Array) -> Array:
        return beta.reshape(*beta.shape[:-1], self.k, -1)

    def point(self, beta: Array, scale: float) -> ClassPoint:
        return ClassPoint(self.columns, self.basis, self._blocks(beta), scale**2)

    def gaussian(self, mean: Array, root: Any, scales: Array, weights: Array) -> ClassGaussian:
        square = float(weights @ scales**2)
        return ClassGaussian(self.columns, self.basis, self._blocks(mean), square, root, scales, weights)

    def draws(
        self, mean: Array, root: Array, scale: Array, draws: Array, loglik: Array, recorded: dict[str, Array]
    ) -> ClassDraws:
        weights = np.full(scale.size, 1.0 / scale.size)
        square, blocks = float((scale**2).mean()), self._blocks(draws)
        return ClassDraws(
            self.columns, self.basis, self._blocks(mean), square, root, scale.ravel(), weights, blocks, loglik, recorded
        )

    def _linked(self, moments: ClassMoments, *, smooth: bool = False) -> ClassHeldOut:
        f, V, max_kv = moments
        link = fit_class_link(self.label, f, V, self.weight, max_kv, count=1.0 / self.part, smooth=smooth)
        return ClassHeldOut(f, V, link)

    def some(self, model: Model, rows: Any) -> tuple[Model, ClassReadout]:
        design: Any = model.blocks.design
        own = {"part": self.part[rows], "weight": self.weight[rows], "label": self.label[rows]}
        return picked(model, design.pairs_of(rows)), replace(self, **own)

    def of_fit(self, model: Model, state: Any, unknowns: tuple[Any, ...] = ()) -> ClassHeldOut:
        return self._linked(fit_cavities(model, state.q, state.f, state.message, self.part))

    def of_mixture(self, model: Model, mixture: Mixture, unknowns: tuple[Any, ...] = ()) -> ClassHeldOut:
        parts = [fit_cavities(model, state.q, state.f, state.message, self.part) for state in mixture.states]
        return self._linked(mix_cavities(mixture.weights, parts))

    def predictors(self, model: Model, beta: Array, f: Array) -> Array:
        design: Any = model.blocks.design
        return class_scores(design.base, beta, np.zeros((len(beta), 0)), self.k)[0]

    def of_point(
        self, model: Model, f: Array, mean: Array, held: ClassHeldOut, unknowns: tuple[Any, ...] = ()
    ) -> ClassHeldOut:
        moments = ClassMoments(f - (mean - held.f), np.zeros_like(held.V), float("nan"))
        return self._linked(moments, smooth=True)

    def of_other(self, held: ClassHeldOut, posterior: Any) -> ClassHeldOut:
        return held

    def of_mode(self, model: Model, point: ActiveSet, penalty: Penalty) -> ClassHeldOut:
        moments = mode_cavities(model, point._replace(g=self._least(model, point)), penalty, self.part)
        # a mode has no spread: new rows come without one, and so must these
        return self._linked(ClassMoments(moments.mean, np.zeros_like(moments.covariance), moments.max_kv), smooth=True)

    def _least(self, model: Model, point: ActiveSet) -> Array:
        """Multipliers where copies of an observation hold as much as they may: without it, only the rest must go."""
        design: Any = model.blocks.design
        close = point.margin | (np.abs(1.0 - model.y * point.f) < 1e-6)
        at = np.unique(design.index[close])
        if not len(at):
            return point.g
        observed = np.column_stack((self.label[at], design.base.rows(at).round(12)))
        copy = np.full(len(self.label), -1)
        copy[at] = np.unique(observed, axis=0, return_inverse=True)[1].ravel()
        pairs = np.flatnonzero(copy[design.index] >= 0)
        group = copy[design.index[pairs]] * self.k + design.pair_class[pairs]
        total = np.bincount(group, point.g[pairs] - 2.0 * model.c[pairs])
        g = point.g.copy()
        g[pairs] = np.maximum(total[group] + 2.0 * model.c[pairs], 0.0)
        return g

    def of_draws(self, model: Model, posterior: Any, draws: Array, scale: Array, average: Any) -> ClassHeldOut:
        moments = draw_cavities(model, draws, scale, self.part)
        if average is not None:
            other = average.moments()
            distance = float(((moments.mean - other.mean) ** 2).sum())
            far = distance > float(np.einsum("irr->", other.covariance))  # a group of draws was far from Gaussian
            if far or moments.max_kv > _GAUSSIAN or model.prior.selects:
                moments = other
        return self._linked(moments)

    def quick(self) -> ClassReadout:
        return self

    def averager(self, model: Model) -> ClassCavityAverage | None:
        narrow = model.size <= 2000 or model.prior.selects
        return ClassCavityAverage(model, self.part) if narrow else None
