"""What is read off an engine for regression: the posterior in units of y, and intervals of new responses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Rows
from softmargin.core.model import Model
from softmargin.designs.standardize import Columns
from softmargin.engines.mode.smoothed_start import picked
from softmargin.engines.vi.scale_mixture import Mixture
from softmargin.inference.readout import among
from softmargin.loo.cavity import CavityAverage, grouped_cavity
from softmargin.loo.link import mixed_cavity
from softmargin.loo.missing_cavity import left_out
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior, PointPosterior, Posterior
from softmargin.rows.totals import totals
from softmargin.solvers.low_rank import enlarged
from softmargin.unknowns.noise import NoiseState

__all__ = [
    "HeldOutResponses",
    "RegressionLeaveOneOut",
    "RegressionReadout",
    "Units",
    "half_widths",
    "levels_of_draws",
    "levels_of_law",
    "log_predictive",
]

_NODES = 40  # values of the noise level that stand for its density
_GAUSSIAN = 0.9  # largest k v up to which moments of draws are treated as Gaussian
_NARROW = 2000  # coefficients up to which sweeps are collected
_WORK = 40_000  # rows times noise levels in a predictive density: the more rows, the better one level stands for all
_HERMITE = np.polynomial.hermite_e.hermegauss(48)
_IN_UNITS = ("noise", "epsilon")  # what is recorded in units of the response


class Units(NamedTuple):
    """The response that the model sees is ``(y - centre)/spread``."""

    centre: float
    spread: float

    def mean(self, beta: Array, intercept: bool) -> Array:
        """Coefficients (..., q) in units of y."""
        beta = self.spread * beta
        if intercept:
            beta[..., 0] += self.centre
        return beta

    def model(self, beta: Array, intercept: bool) -> Array:
        """Coefficients (..., q) in units of the model's response: ``mean`` undone."""
        beta = beta / self.spread
        if intercept:
            beta[..., 0] -= self.centre / self.spread
        return beta


class RegressionLeaveOneOut(NamedTuple):
    """How well each row is predicted without itself, in the units of y.

    ``rmse`` is the root mean squared error of leave-one-out predictors, ``log_density`` the mean log predictive
    density, ``r2`` the share of the squared error of the mean of the other rows that the model takes away, and
    ``max_kv`` the largest share of a predictor's precision that its own row supplies: near one the others are
    optimistic.
    """

    rmse: float
    log_density: float
    r2: float
    max_kv: float


class HeldOutResponses(NamedTuple):
    """Moments of the training rows' predictors without the row itself, in units of the model's response.

    ``log_density`` has the log predictive density of every response, likewise.
    """

    f: Array
    v: Array
    log_density: Array
    loo: RegressionLeaveOneOut
    levels: Array  # equally probable noise levels nu
    losses: tuple[Any, ...]  # and the loss that goes with each

    def scattered(self, rows: Any, n: int) -> HeldOutResponses:
        """The same of n rows, where these are the given ones; NaN elsewhere."""
        f, v, density = (among(values, rows, n) for values in (self.f, self.v, self.log_density))
        return self._replace(f=f, v=v, log_density=density)


@dataclass(frozen=True, eq=False)
class RegressionReadout:
    """Posteriors in units of y from results in units of the model's response, and predictors without their own row.

    ``part`` is the share of a row's message that one observation makes, and ``count`` how many a row stands for.
    """

    columns: Columns
    basis: Array | None
    units: Units
    part: Array
    count: Array
    noise: int = 0  # which of the unknowns the noise is

    def _mean(self, beta: Array) -> Array:
        return self.units.mean(beta, self.columns.intercept)

    def point(self, beta: Array, scale: float) -> Posterior:
        """The posterior of a mode."""
        return PointPosterior(self.columns, self.basis, self._mean(beta), (self.units.spread * scale) ** 2)

    def gaussian(self, mean: Array, root: Any, scales: Array, weights: Array) -> Posterior:
        """A Gaussian posterior with a discrete density of the prior scale."""
        scales = self.units.spread * scales
        root = enlarged(root, self.units.spread)
        return GaussianPosterior(
            self.columns, self.basis, self._mean(mean), float(weights @ scales**2), root, scales, weights
        )

    def draws(
        self, mean: Array, root: Array, scale: Array, draws: Array, loglik: Array, recorded: dict[str, Array]
    ) -> Posterior:
        """A posterior of draws (chains, draws, coefficients)."""
        spread = self.units.spread
        scales, weights = spread * scale.ravel(), np.full(scale.size, 1.0 / scale.size)
        noted = {name: values * (spread if name in _IN_UNITS else 1.0) for name, values in recorded.items()}
        return DrawsPosterior(
            self.columns, self.basis, self._mean(mean), float((scales**2).mean()), spread * root, scales, weights,
            self._mean(draws), loglik, noted,
        )  # fmt: skip

    def averager(self, model: Model) -> CavityAverage | None:
        """Collects sweeps where draws alone may not do."""
        kept = model.size <= _NARROW and model.loss.offers("draw")
        return CavityAverage(model, self.part) if kept else None

    def some(self, model: Model, rows: Any) -> tuple[Model, RegressionReadout]:
        """The model of some observations, in order, and what reads it."""
        return picked(model, rows), replace(self, part=self.part[rows], count=self.count[rows])

    def of_fit(self, model: Model, state: Any, unknowns: tuple[Any, ...]) -> HeldOutResponses:
        """Rows left out of a Gaussian fit; exact for the squared loss at a given noise level and scale."""
        return self._held(model.y, *_left_out(model, state, self.part), *levels_of_law(unknowns[self.noise]))

    def of_mixture(self, model: Model, mixture: Mixture, unknowns: tuple[Any, ...]) -> HeldOutResponses:
        """Rows left out of a mixture of such fits over the scale."""
        moments = mixed_cavity(mixture.weights, [_left_out(model, each, self.part) for each in mixture.states])
        return self._held(model.y, *moments, *levels_of_law(unknowns[self.noise]))

    def scored(self, y: Array, f: Array, v: Array, max_kv: float, unknowns: tuple[Any, ...]) -> HeldOutResponses:
        """Rows that a Gaussian fit has not seen yet."""
        return self._held(y, f, v, max_kv, *levels_of_law(unknowns[self.noise]))

    def predictors(self, model: Model, beta: Array, f: Array) -> Array:
        """The linear predictors are all there is."""
        return f

    def of_point(
        self, model: Model, f: Array, mean: Array, held: HeldOutResponses, unknowns: tuple[Any, ...]
    ) -> HeldOutResponses:
        """Rows left out of the Gaussian fit, with the noise of the mode: a point has no spread to take a row from."""
        return self._held(model.y, held.f, held.v, held.loo.max_kv, *levels_of_law(unknowns[self.noise]))

    def of_other(self, held: HeldOutResponses, posterior: Any) -> HeldOutResponses:
        """Rows left out of a Gaussian fit, with the noise of the draws."""
        levels, losses = levels_of_draws(posterior.recorded, held.losses[0], self.units)
        return held._replace(levels=levels, losses=losses)

    def of_draws(self, model: Model, posterior: Any, draws: Array, scale: Array, average: Any) -> HeldOutResponses:
        """Rows left out of draws, their messages those of the average noise."""
        levels, losses = levels_of_draws(posterior.recorded, model.loss, self.units)
        loss: Any = losses[0]
        if loss.band is not None:
            loss = loss.with_band(float(np.mean([each.band for each in losses])))
        weight = float(np.mean(levels**-loss.noise_power))
        now = replace(model.with_weight(weight * model.c), loss=loss)
        moments = grouped_cavity(now, draws, scale, self.part)
        if moments[2] > _GAUSSIAN and average is not None:  # few draws, or far from normal
            moments = average.moments()
        return self._held(model.y, *moments, levels, losses)

    def of_moments(self, y: Array, f: Array, v: Array, max_kv: float, unknowns: tuple[Any, ...]) -> HeldOutResponses:
        """Scores of given left-out predictors, with the noise of a variational fit."""
        return self._held(y, f, v, max_kv, *levels_of_law(unknowns[self.noise]))

    def _held(
        self, y: Array, f: Array, v: Array, max_kv: float, levels: Array, losses: tuple[Any, ...]
    ) -> HeldOutResponses:
        """Scores of predictors with moments f and v that do not know their own row."""
        spread, error = self.units.spread, y - f
        density = log_predictive(error, v, levels, losses)
        total, sum_y, square, told = totals(
            self.count, (self.count, y), (self.count, error**2), (self.count, density)
        ).tolist()
        around = float(totals((self.count, (y - sum_y / total) ** 2))[0])
        constant = around * (total / max(total - 1.0, 0.5 * total)) ** 2  # of the other rows' mean
        loo = RegressionLeaveOneOut(
            spread * float(np.sqrt(square / total)),
            told / total - float(np.log(spread)),
            1.0 - square / constant if constant > 0.0 else float("nan"),
            max_kv,
        )
        return HeldOutResponses(f, v, density, loo, levels, losses)


def _left_out(model: Model, state: Any, part: Array) -> tuple[Array, Array, float]:
    """Predictors of a Gaussian fit without their own row, and the largest k v.

    What is taken out of the precision is what a row has put in, where the fit tells: the message that it would send
    next may be another while the noise level still moves, and more than there is.
    """
    (w, b), built = state.message[:2], state.ku
    return left_out(model, state, part, Rows(built, b + (built - w) * state.f))


def log_predictive(error: Array, v: Array, levels: Array, losses: tuple[Any, ...]) -> Array:
    """Log density of responses at distance ``error`` from N(0, v) predictors, averaged over noise levels."""
    number = max(1, min(len(levels), _WORK // len(error)))
    middle = ((np.arange(number) + 0.5) * len(levels) / number).astype(int)
    total = np.full(len(error), -np.inf)
    for k in np.argsort(levels, kind="stable")[middle]:
        total = np.logaddexp(total, losses[k].log_predictive(error, v, float(levels[k] ** -losses[k].noise_power)))
    out: Array = total - np.log(number)
    return out


def levels_of_law(state: NoiseState) -> tuple[Array, tuple[Any, ...]]:
    """Equally probable noise levels of a fit, with the loss that goes with each."""
    below = np.cumsum(state.law.masses) - 0.5 * state.law.masses
    points = np.interp((np.arange(_NODES) + 0.5) / _NODES, below, state.law.points)
    return np.exp(points), (state.loss,) * _NODES


def levels_of_draws(recorded: dict[str, Array], loss: Any, units: Units) -> tuple[Array, tuple[Any, ...]]:
    """The same of some of the draws."""
    noise = recorded["noise"].ravel() / units.spread
    chosen = np.linspace(0, noise.size - 1, min(noise.size, 2 * _NODES)).astype(int)
    losses = (loss,) * len(chosen)
    if "epsilon" in recorded:
        losses = tuple(loss.with_band(band) for band in recorded["epsilon"].ravel()[chosen] / units.spread)
    return noise[chosen], losses


def half_widths(level: float, v: Array, levels: Array, losses: tuple[Any, ...]) -> Array:
    """h with ``P(|f + e| <= h) = level`` for f ~ N(0, v) and noise e averaged over its levels.

    h depends on the variance alone, so it is found on a grid of variances and interpolated between.
    """
    top, low = float(np.sqrt(v.max())), float(np.sqrt(v.min()))
    sd = np.linspace(low, top, 33) if top > low else np.array([low])
    nodes, weights = _HERMITE
    weights = weights / weights.sum()

    def inside(h: Array) -> Array:
        total = np.zeros(len(sd))
        shift = sd[:, None] * nodes
        for nu, loss in zip(levels, losses, strict=True):
            kappa = nu**-loss.noise_power
            total += (loss.noise_cdf(shift + h[:, None], kappa) - loss.noise_cdf(shift - h[:, None], kappa)) @ weights
        return total / len(losses)

    lower, upper = np.zeros(len(sd)), np.full(len(sd), 1.0)
    while (inside(upper) < level).any():
        upper *= 2.0
    for _ in range(32):
        middle = 0.5 * (lower + upper)
        enough = inside(middle) >= level
        lower, upper = np.where(enough, lower, middle), np.where(enough, middle, upper)
    return np.interp(np.sqrt(v), sd, upper)
