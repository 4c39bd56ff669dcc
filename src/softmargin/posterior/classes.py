"""What a fit of several classes leaves behind: k blocks of coefficients that sum to zero."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from softmargin.core.array import Array
from softmargin.core.design import Design
from softmargin.designs.standardize import Columns
from softmargin.loo.class_cavity import class_scores
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior, PointPosterior, Posterior, thinned
from softmargin.posterior.draws import CoefficientDraws
from softmargin.solvers.coordinates import Coordinates

__all__ = ["ClassDraws", "ClassGaussian", "ClassPoint"]


@dataclass(frozen=True, eq=False)
class ClassPoint:
    """Class coefficients with their mean (k, r) in the working coordinates of the solver.

    ``square`` is the mean squared prior scale: the variance, in every contrast, of directions that no row sees.
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

    def thinned(self, every: int) -> ClassPoint:
        """Every so many draws, where there are any."""
        return self

    @property
    def k(self) -> int:
        """Number of classes."""
        return len(self.mean)

    @property
    def _coordinates(self) -> Coordinates:
        return Coordinates(None, self.basis, int(self.columns.intercept))  # type: ignore[arg-type]

    @property
    def _centred(self) -> Array:
        """Covariance over the classes of one unseen direction, per unit of its variance in a contrast."""
        return np.eye(self.k) - 1.0 / self.k

    def user_mean(self) -> tuple[Array, Array]:
        """Slopes (k, p) and intercepts (k,) on the user's scale."""
        return self.columns.to_user(self._coordinates.mean(self.mean))

    def _features(self, design: Design) -> tuple[Design, Array]:
        """Rows in working coordinates, and their squared length outside of them."""
        if self.basis is None:
            return design, np.zeros(design.shape[0])
        return self._coordinates.features(design)

    def moments(self, design: Design) -> tuple[Array, Array]:
        """Means (n, k) and covariances (n, k, k) of the scores of new rows."""
        seen, outside = self._features(design)
        f, V = class_scores(seen, self.mean.ravel(), self._root(), self.k)
        return f, V + self._unseen(outside)

    def _root(self) -> Array:
        return np.zeros((self.mean.size, 0))

    def _unseen(self, outside: Array) -> Any:
        return 0.0

    def in_columns(self) -> Array:
        """Blocks (k, r, m) with ``E beta_r beta_s'`` their products."""
        return np.concatenate((self.mean[:, :, None], self._root().reshape(*self.mean.shape, -1)), axis=2)

    def leading(self, size: int) -> ClassPoint:
        """The posterior of the first ``size`` coefficients of every class."""
        return replace(self, mean=self.mean[:, :size])

    def of_class(self, r: int) -> Posterior:
        """The coefficients of one class."""
        return PointPosterior(self.columns, self.basis, self.mean[r], self.square)


@dataclass(frozen=True, eq=False)
class ClassGaussian(ClassPoint):
    """N(mean, root root') over all classes, root (k r, m), with the probabilities of values of the prior scale."""

    root: Array
    scales: Array
    weights: Array

    has_spread = True

    def times(self, factor: float) -> ClassGaussian:
        """The same mean with standard deviations times ``factor``."""
        return replace(self, root=factor * self.root)

    def _root(self) -> Array:
        return self.root

    def _unseen(self, outside: Array) -> Any:
        return self.square * outside[:, None, None] * self._centred

    def _blocks(self) -> Array:
        """The root class by class, (k, r, m)."""
        return self.root.reshape(*self.mean.shape, -1)

    def leading(self, size: int) -> ClassGaussian:
        root = np.ascontiguousarray(self._blocks()[:, :size].reshape(self.k * size, -1))
        return replace(self, mean=self.mean[:, :size], root=root)

    def of_class(self, r: int) -> GaussianPosterior:
        root = np.ascontiguousarray(self._blocks()[r])
        return GaussianPosterior(self.columns, self.basis, self.mean[r], self.square, root, self.scales, self.weights)

    def table(self, level: float) -> list[dict[str, Array]]:
        """Mean, sd, interval and P(> 0) of every class, intercept first."""
        coef, intercept = self.user_mean()
        lead, reach = int(self.columns.intercept), float(ndtri(0.5 + 0.5 * level))
        direction, tables = self.columns.intercept_direction(), []
        unseen = self._coordinates.unseen()
        for r, part in enumerate(self._blocks()):
            lifted = self._coordinates.lift_root(part)
            variance, across = np.einsum("ij,ij->i", lifted, lifted), lifted.T @ direction
            start = float(across @ across)
            if unseen is not None:
                assert self.basis is not None
                share = self.square * (1.0 - 1.0 / self.k)
                variance = variance + share * unseen
                slopes = direction[lead:]
                inside = self.basis.T @ slopes
                start += share * max(float(slopes @ slopes - inside @ inside), 0.0)
            sd = np.zeros(1 + self.columns.n_features)
            sd[0] = np.sqrt(start)
            sd[1 + self.columns.keep] = np.sqrt(variance[lead:]) * self.columns.scale
            mean = np.concatenate(([intercept[r]], coef[r]))
            with np.errstate(divide="ignore", invalid="ignore"):
                positive = np.where(sd > 0, ndtr(mean / sd), np.where(mean > 0, 1.0, np.where(mean < 0, 0.0, 0.5)))
            tables.append(
                {
                    "mean": mean,
                    "sd": sd,
                    "lower": mean - reach * sd,
                    "upper": mean + reach * sd,
                    "prob_positive": positive,
                }
            )
        return tables

    def joint_draws(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        """n draws (n, k, q) of the model's coefficients, unseen directions included, and of the prior scale."""
        z = self.mean.ravel() + rng.standard_normal((n, self.root.shape[1])) @ self.root.T
        scale = self.scales[rng.choice(len(self.scales), size=n, p=self.weights)]
        return self._with_unseen(z.reshape(n, self.k, -1), scale, rng), scale

    def _with_unseen(self, z: Array, scale: Array, rng: np.random.Generator) -> Array:
        beta = self._coordinates.mean(z)
        if self.basis is None:
            return beta
        noise = rng.standard_normal((*z.shape[:-1], len(self.basis)))
        noise -= (noise @ self.basis) @ self.basis.T
        noise -= noise.mean(axis=-2, keepdims=True)
        beta[..., int(self.columns.intercept) :] += scale[..., None, None] * noise
        return beta

    def sample(self, design: Design, rng: np.random.Generator, n: int) -> Array:
        """Draws (rows, n, k) of the scores of new rows."""
        beta, _ = self.joint_draws(rng, n)
        flat, lead = beta.reshape(n * self.k, -1), int(self.columns.intercept)
        f = design.matmat(np.ascontiguousarray(flat[:, lead:].T)) + flat[:, :lead].sum(axis=1)
        return np.asarray(f.reshape(-1, n, self.k))


@dataclass(frozen=True, eq=False)
class ClassDraws(ClassGaussian):
    """Draws (chains, draws, k, r) of the working coordinates; mean and root are their moments."""

    draws: Array
    loglik: Array  # (chains, draws) log pseudo-likelihood
    recorded: dict[str, Array] = field(default_factory=dict)  # (chains, draws) of what else was sampled

    def times(self, factor: float) -> ClassDraws:
        return replace(self, root=factor * self.root, draws=self.mean + factor * (self.draws - self.mean))

    @property
    def chain_shape(self) -> tuple[int, int]:
        return self.draws.shape[0], self.draws.shape[1]

    def thinned(self, every: int) -> ClassDraws:
        return self if every == 1 else replace(self, **thinned(self, every))

    @property
    def scale(self) -> Array:
        """Draws (chains, draws) of the prior scale."""
        return self.scales.reshape(self.draws.shape[:2])

    def leading(self, size: int) -> ClassDraws:
        own = super().leading(size)
        return replace(self, mean=own.mean, root=own.root, draws=self.draws[..., :size])

    def of_class(self, r: int) -> DrawsPosterior:
        drawn = self.draws[..., r, :]
        given = vars(super().of_class(r))
        return DrawsPosterior(**given, draws=drawn, loglik=self.loglik, recorded=self.recorded)

    def in_blocks(self) -> CoefficientDraws:
        """Every draw of the coefficients, some columns at a time."""
        return CoefficientDraws(self.columns, self.basis, self.draws, self.scale)

    def all_coefficients(self) -> Array:
        """Every draw of the model's coefficients, (chains, draws, k, q)."""
        return self.in_blocks().model()

    def joint_draws(self, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        flat = self.draws.reshape(-1, *self.mean.shape)
        index = rng.choice(len(flat), size=n, replace=n > len(flat))
        return self._with_unseen(flat[index], self.scales[index], rng), self.scales[index]

    def table(self, level: float) -> list[dict[str, Array]]:
        coef, intercept = self.user_mean()
        found = {"mean": np.column_stack((intercept, coef)), **self.in_blocks().spread(level)}
        return [{name: values[r] for name, values in found.items()} for r in range(self.k)]
