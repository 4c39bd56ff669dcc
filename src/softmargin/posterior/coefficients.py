"""What a fit leaves behind: a point, a Gaussian, or draws of the coefficients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.core.space import Root
from softmargin.designs.standardize import Columns
from softmargin.posterior.draws import CoefficientDraws
from softmargin.rows.in_memory import Blocks, Cell
from softmargin.solvers.coordinates import Coordinates
from softmargin.solvers.low_rank import enlarged, noise, quadratic, squares

__all__ = ["DrawsPosterior", "GaussianPosterior", "PointPosterior", "Posterior", "thinned", "widened"]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Coefficients with their mean, in the working coordinates of the solver.

    ``square`` is the posterior mean of the squared prior scale: the variance of directions that no row sees.
    """

    columns: Columns
    basis: Array | None
    mean: Array
    square: float

    has_spread = False

    @property
    def chain_shape(self) -> tuple[int, int] | None:
        """Chains, and draws per chain, where a sampler kept them."""
        return None

    def thinned(self, every: int) -> Posterior:
        """Every so many draws, where there are any."""
        return self

    @property
    def _coordinates(self) -> Coordinates:
        return Coordinates(None, self.basis, int(self.columns.intercept))  # type: ignore[arg-type]

    def user_mean(self) -> tuple[Array, float]:
        """Slopes and intercept on the user's scale."""
        coef, intercept = self.columns.to_user(self._coordinates.mean(self.mean))
        return coef, float(intercept)

    def predictor(self, design: Design) -> Array:
        """Posterior mean of the linear predictor of new rows."""
        return Blocks(design).matvec(self._coordinates.mean(self.mean))

    def moments(self, design: Design) -> tuple[Array, Array]:
        """Mean and variance of the linear predictor of new rows."""
        f = self.predictor(design)
        return f, np.zeros_like(f)

    def leading(self, size: int) -> Posterior:
        """The posterior of the first ``size`` coefficients."""
        return replace(self, mean=self.mean[:size])


@dataclass(frozen=True, eq=False)
class PointPosterior(Posterior):
    """The mode alone."""


@dataclass(frozen=True, eq=False)
class GaussianPosterior(Posterior):
    """N(mean, root root'), with the probabilities of values of the prior scale."""

    root: Any  # an array R with covariance R R', or a structured root
    scales: Array
    weights: Array

    has_spread = True

    def moments(self, design: Design) -> tuple[Array, Array]:
        return self.predictor(design), self._variance(design)

    def leading(self, size: int) -> GaussianPosterior:
        plain = isinstance(self.root, np.ndarray)
        root = np.ascontiguousarray(self.root[:size]) if plain else _LeadingRoot(self.root, size)
        return replace(self, mean=self.mean[:size], root=root)

    def times(self, factor: float) -> GaussianPosterior:
        """The same mean with standard deviations times ``factor``."""
        return replace(self, root=enlarged(self.root, factor))

    def _variance(self, design: Design) -> Array:
        if self.basis is None:
            return Blocks(design).row_quad(self.root)

        def variance(cell: Cell) -> Array:
            seen, outside = self._coordinates.features(design, cell.lo, cell.hi)
            return seen.row_quad(self.root) + self.square * outside

        return np.concatenate(Blocks(design).map(variance))

    def _user_sd(self) -> tuple[Array, float]:
        """Standard deviations of slopes and intercept on the user's scale."""
        lifted = self._coordinates.lift_root(self.root)
        variance = squares(lifted)
        direction = self.columns.intercept_direction()
        intercept = quadratic(lifted, direction)
        unseen = self._coordinates.unseen()
        if unseen is not None:
            variance = variance + self.square * unseen
            assert self.basis is not None
            slopes = direction[int(self.columns.intercept) :]
            inside = self.basis.T @ slopes
            intercept += self.square * max(float(slopes @ slopes - inside @ inside), 0.0)
        lead = int(self.columns.intercept)
        sd = np.zeros(self.columns.n_features)
        sd[self.columns.keep] = np.sqrt(variance[lead:]) * self.columns.scale
        return sd, float(np.sqrt(intercept))

    def table(self, level: float) -> dict[str, Array]:
        """Mean, sd, interval and P(> 0), intercept first."""
        coef, intercept = self.user_mean()
        sd, intercept_sd = self._user_sd()
        mean, sd = np.concatenate(([intercept], coef)), np.concatenate(([intercept_sd], sd))
        reach = float(ndtri(0.5 + 0.5 * level))
        with np.errstate(divide="ignore", invalid="ignore"):
            positive = np.where(sd > 0, ndtr(mean / sd), np.where(mean > 0, 1.0, np.where(mean < 0, 0.0, 0.5)))
        return {
            "mean": mean,
            "sd": sd,
            "lower": mean - reach * sd,
            "upper": mean + reach * sd,
            "prob_positive": positive,
        }

    def coordinate_draws(self, rng: np.random.Generator, n: int) -> Array:
        """n draws of the working coordinates."""
        return self.mean + noise(self.root, rng, n)

    def scale_draws(self, rng: np.random.Generator, n: int) -> Array:
        """n draws of the prior scale."""
        return self.scales[rng.choice(len(self.scales), size=n, p=self.weights)]

    def coefficient_draws(self, rng: np.random.Generator, n: int) -> Array:
        """n draws of the model's coefficients, unseen directions included."""
        return self.joint_draws(rng, n)[0]

    def joint_draws(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """n draws of the model's coefficients, unseen directions included, and of the prior scale."""
        z, scale = self.coordinate_draws(rng, n), self.scale_draws(rng, n)
        return self._with_unseen(z, scale, rng), scale

    def _with_unseen(self, z: Array, scale: Array, rng: np.random.Generator) -> Array:
        beta = self._coordinates.mean(z)
        if self.basis is None:
            return beta
        noise = rng.standard_normal((len(z), len(self.basis)))
        noise -= (noise @ self.basis) @ self.basis.T
        beta[:, int(self.columns.intercept) :] += scale[:, None] * noise
        return beta

    def sample(self, design: Design, rng: np.random.Generator, n: int) -> Array:
        """Draws (rows, n) of the linear predictor of new rows."""
        beta = self.coefficient_draws(rng, n)
        lead = int(self.columns.intercept)
        return design.matmat(np.ascontiguousarray(beta[:, lead:].T)) + beta[:, :lead].sum(axis=1)


@dataclass(frozen=True, eq=False)
class DrawsPosterior(GaussianPosterior):
    """Draws (chains, draws, r) of the working coordinates; mean and root are their moments."""

    draws: Array
    loglik: Array  # (chains, draws) log pseudo-likelihood
    recorded: dict[str, Array] = field(default_factory=dict)  # (chains, draws) of what else was sampled

    def leading(self, size: int) -> DrawsPosterior:
        own = super().leading(size)
        return replace(self, mean=own.mean, root=own.root, draws=self.draws[..., :size])

    def times(self, factor: float) -> DrawsPosterior:
        draws = self.mean + factor * (self.draws - self.mean)
        return replace(self, root=enlarged(self.root, factor), draws=draws)

    @property
    def chain_shape(self) -> tuple[int, int]:
        return self.draws.shape[0], self.draws.shape[1]

    def thinned(self, every: int) -> DrawsPosterior:
        return self if every == 1 else replace(self, **thinned(self, every))

    @property
    def scale(self) -> Array:
        """Draws (chains, draws) of the prior scale."""
        return self.scales.reshape(self.draws.shape[:2])

    @cached_property
    def _flat(self) -> Array:
        return self.draws.reshape(-1, self.draws.shape[-1])

    def in_blocks(self) -> CoefficientDraws:
        """Every draw of the coefficients, some columns at a time."""
        return CoefficientDraws(self.columns, self.basis, self.draws, self.scale)

    def all_coefficients(self) -> Array:
        """Every draw of the model's coefficients, (chains, draws, q)."""
        return self.in_blocks().model()

    def coordinate_draws(self, rng: np.random.Generator, n: int) -> Array:
        chosen: Array = self._flat[self._choice(rng, n)]
        return chosen

    def coefficient_draws(self, rng: np.random.Generator, n: int) -> Array:
        index = self._choice(rng, n)
        return self._with_unseen(self._flat[index], self.scales[index], rng)

    def _choice(self, rng: np.random.Generator, n: int) -> Any:
        return rng.choice(len(self._flat), size=n, replace=n > len(self._flat))

    def table(self, level: float) -> dict[str, Array]:
        mean, start = self.user_mean()  # Rao-Blackwell average of conditional means
        return {"mean": np.concatenate(([start], mean)), **self.in_blocks().spread(level)}


def thinned(posterior: Any, every: int) -> dict[str, Any]:
    """Every so many draws of all that a posterior of draws has of them."""
    scale = posterior.scale[:, ::every]
    return {
        "draws": posterior.draws[:, ::every],
        "scales": scale.ravel(),
        "weights": np.full(scale.size, 1.0 / scale.size),
        "loglik": posterior.loglik[:, ::every],
        "recorded": {name: values[:, ::every] for name, values in posterior.recorded.items()},
    }


def widened(posterior: Any, factor: float) -> Any:
    """The posterior around the same mean with standard deviations times ``factor``; a point stays what it is."""
    if factor == 1.0 or not posterior.has_spread:
        return posterior
    return posterior.times(factor)


@dataclass(frozen=True, eq=False)
class _LeadingRoot(Root):
    """The root of the first coefficients' covariance, from a structured one of all of them."""

    whole: Any
    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def squares(self) -> Array:
        """Marginal variances."""
        return squares(self.whole)[: self.size]

    def quadratic(self, x: Array) -> float:
        """``x' C x`` of the covariance C."""
        return quadratic(self.whole, np.concatenate((x, np.zeros(self.whole.shape[0] - self.size))))

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draws (n, size) of N(0, C)."""
        return noise(self.whole, rng, n)[:, : self.size]
