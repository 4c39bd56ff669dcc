"""What all fitted models of one response share: their posterior, how it is shown, and how it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd

from softmargin.core.array import Array
from softmargin.designs.standardize import Columns, design_for
from softmargin.inference.settings import Fit, Inclusion
from softmargin.models.reader import Reader
from softmargin.posterior import diagnostics
from softmargin.posterior.coefficients import DrawsPosterior, GaussianPosterior, widened
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Purpose, Streams

__all__ = ["Fitted", "Linear", "spread_of"]


def spread_of(posterior: Any, what: str) -> Any:
    """The posterior, where it has a spread."""
    if not posterior.has_spread:
        raise ValueError(
            f"{what} needs a posterior, and inference='map' gives a point; fit with inference='vb' or 'gibbs'."
        )
    return posterior


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model of one response."""

    fit: Fit

    @property
    def parts(self) -> tuple[Any, ...]:
        """The models that this one consists of."""
        return (self,)

    def settled(self) -> Self:
        """The same without the states of its engine."""
        return replace(self, fit=self.fit.settled())

    @property
    def columns(self) -> Columns:
        columns: Columns = self.fit.posterior.columns
        return columns

    @property
    def posterior(self) -> Any:
        """The posterior as it is reported: standard deviations are those of the base rate, whatever rate was chosen."""
        return widened(self.fit.posterior, self.stretch)

    @property
    def stretch(self) -> float:
        """By how much posterior standard deviations are widened where they are reported."""
        return 1.0

    def design(self, X: Any) -> Any:
        """New rows in the columns of the model."""
        return design_for(X, self.columns)

    def _mean(self, X: Any) -> Array:
        """Posterior mean of f."""
        mean: Array = self.fit.posterior.predictor(self.design(X))
        return mean

    def moments(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean and variance of f."""
        f, v = self.fit.posterior.moments(self.design(X))
        return f, v

    def spread(self, X: Any, kind: str) -> Array:
        """Standard deviations of what ``decision`` returns, as they are reported."""
        with one_blas_thread():
            _, v = self.moments(X)
        return self.stretch * np.sqrt(v)

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        """Draws (rows, n) of f."""
        with one_blas_thread():
            posterior: GaussianPosterior = spread_of(self.posterior, "sample")
            return posterior.sample(self.design(X), streams.at(Purpose.PREDICT), n)

    def inclusion(self) -> Inclusion | None:
        """Inclusion probabilities of the columns of X; zero for constant ones."""
        return None if self.fit.inclusion is None else self.fit.inclusion.by_column(self.columns)

    @property
    def _whole(self) -> Any:
        """The posterior of all coefficients, as it is reported."""
        return self.posterior

    @property
    def chain_shape(self) -> tuple[int, int] | None:
        """Chains, and draws per chain, where a sampler kept them."""
        shape: tuple[int, int] | None = spread_of(self.fit.posterior, "to_arviz").chain_shape
        return shape

    def sampled(self, classes: Any, wanted: diagnostics.Wanted, streams: Streams) -> diagnostics.Sampled:
        """Draws of everything that was sampled, in the units of X, and of predictors where rows are given."""
        posterior = spread_of(self._whole, "to_arviz").thinned(wanted.every)
        beta, scale, recorded = diagnostics.drawn_from(posterior, wanted, streams)
        drawn = self._named(posterior, beta, scale, recorded, wanted)
        if self.fit.inclusion is not None and posterior.chain_shape is not None:
            drawn.variables["indicator"] = (drawn.variables["coef"] != 0.0).astype(np.int8)
            drawn.dims["indicator"] = drawn.dims["coef"]
        if wanted.rows is None:
            return drawn
        with one_blas_thread():
            f, spread = self._predictors(beta.reshape(-1, beta.shape[-1]), wanted.rows, streams)
        shape = (*beta.shape[:2], -1)
        return drawn._replace(f=f.reshape(shape), spread=None if spread is None else spread.reshape(shape))

    def _named(
        self, posterior: Any, beta: Array, scale: Array, recorded: dict[str, Array], wanted: diagnostics.Wanted
    ) -> diagnostics.Sampled:
        return diagnostics.sampled(self.columns, posterior, beta, scale, recorded)

    def _predictors(self, beta: Array, X: Any, streams: Streams) -> tuple[Array, Array | None]:
        """Predictors (draws, rows) at draws of the coefficients, and what missing entries add to their variance."""
        design = self.design(X)
        return np.stack([design.matvec(one) for one in beta]), None

    def summary(self, names: list[str], level: float, classes: Any = None) -> pd.DataFrame:
        """One row per coefficient, the intercept first where there is one."""
        posterior = self.posterior
        if isinstance(posterior, GaussianPosterior):
            table = posterior.table(level)
        else:
            coef, intercept = posterior.user_mean()
            table = {"mean": np.concatenate(([intercept], coef))}
        frame = pd.DataFrame(table, index=pd.Index(["Intercept", *names], name="feature"))
        chosen = self.inclusion()
        if chosen is not None:
            frame["inclusion"] = np.concatenate(([1.0], chosen.chains.mean(axis=0)))
            frame["inclusion_error"] = np.concatenate(([0.0], chosen.error))
            frame["inclusion_range"] = np.concatenate(([0.0], np.ptp(chosen.chains, axis=0)))
        if isinstance(posterior, DrawsPosterior):
            frame = frame.assign(**posterior.in_blocks().mixing())
        return frame if self.columns.intercept else frame.iloc[1:]


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Fitted):
    """A fitted model of columns, effects of groups and missing entries; ``fit.posterior`` is of the columns alone."""

    reader: Reader
    joint: Any  # posterior of all coefficients, those of terms behind the columns'

    @classmethod
    def parted(cls, fit: Fit, reader: Reader) -> dict[str, Any]:
        """A fit of all coefficients as the arguments ``fit``, ``reader`` and ``joint``."""
        joint, kept = fit.posterior, fit.inclusion
        if reader.terms:
            kept = None if kept is None else Inclusion(*(entry[..., : reader.size] for entry in kept))
            fit = fit._replace(posterior=reader.own(joint), inclusion=kept)
        return {"fit": fit, "reader": reader, "joint": joint}

    def design(self, X: Any) -> Any:
        return self.reader.design(X)

    def _mean(self, X: Any) -> Array:
        return self.reader.predictor(self.joint, X)

    def moments(self, X: Any) -> tuple[Array, Array]:
        """A new group adds the variance between groups to that of f."""
        f, v, between = self.reader.moments(self.joint, X)
        return f, v + between

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        with one_blas_thread():
            posterior = widened(spread_of(self.joint, "sample"), self.stretch)
            return self.reader.sample(posterior, X, n, streams.at(Purpose.PREDICT))

    @property
    def _whole(self) -> Any:
        return widened(self.joint, self.stretch)

    def _named(
        self, posterior: Any, beta: Array, scale: Array, recorded: dict[str, Array], wanted: diagnostics.Wanted
    ) -> diagnostics.Sampled:
        own = diagnostics.sampled(self.columns, posterior, beta[..., : self.reader.size], scale, recorded)
        return self.reader.sampled(own, beta, wanted)

    def _predictors(self, beta: Array, X: Any, streams: Streams) -> tuple[Array, Array | None]:
        return self.reader.predictors(beta, X)
