"""A fitted model of many classes with scores that sum to zero."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.special import softmax

from softmargin.core.array import Array
from softmargin.designs.standardize import Columns
from softmargin.inference.settings import Fit
from softmargin.inference.trials import Chosen
from softmargin.models.classes.reader import ClassReader
from softmargin.models.fitted import spread_of
from softmargin.posterior import diagnostics
from softmargin.posterior.classes import ClassDraws, ClassGaussian
from softmargin.posterior.coefficients import widened
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Purpose, Streams

__all__ = ["SumToZeroFit"]


@dataclass(frozen=True, eq=False)
class SumToZeroFit:
    """A fitted model of k classes."""

    fit: Fit
    learning_rate: float
    costs: Array | None
    reader: ClassReader
    joint: Any  # posterior of all coefficients, those of terms behind the columns'
    chosen: Chosen | None = None
    loss: Any = None
    own: float = 0.0  # weight of the pairs of rows with their own class

    @property
    def parts(self) -> tuple[SumToZeroFit, ...]:
        """The models that this one consists of."""
        return (self,)

    def settled(self) -> Self:
        """The same without the states of its engine."""
        return replace(self, fit=self.fit.settled())

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
        """The posterior as it is reported: standard deviations are those of the rate at which intervals cover."""
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

    def spread(self, X: Any, kind: str) -> Array:
        """Standard deviations (rows, classes) of the scores, as they are reported."""
        with one_blas_thread():
            _, V = self.moments(X)
        return self.stretch * np.sqrt(np.einsum("irr->ir", V))

    def offset(self, kind: str) -> float:
        """The link moves boundaries by a matrix, not by one number."""
        return 0.0

    @property
    def columns(self) -> Columns:
        columns: Columns = self.fit.posterior.columns
        return columns

    def moments(self, X: Any) -> tuple[Array, Array]:
        """Means (rows, k) and covariances of the scores; a new group adds what groups vary by."""
        return self._moments(X, 1.0)

    def _moments(self, X: Any, weight: float) -> tuple[Array, Array]:
        with one_blas_thread():
            f, V, between = self.reader.moments(self.joint, X)
        return f, V + weight * np.asarray(between)[..., None, None] * (np.eye(self.k) - 1.0 / self.k)

    def _linked_moments(self, X: Any, kind: str) -> tuple[Array, Array]:
        """The link weighs what is not known by lam; what groups vary by is no lack of knowledge and counts in full."""
        return self._moments(X, 1.0 / self.fit.loo.link.lam if kind == "calibrated" else 1.0)

    def decision(self, X: Any, kind: str) -> Array:
        """Scores (rows, k) whose argmax is the predicted class: logits of the link, or the scores themselves."""
        f, V = self._linked_moments(X, kind)
        if kind == "calibrated":
            return np.asarray(self.fit.loo.link.logits(f, V))
        score = np.log(np.maximum(self._plain(f, V, kind), 1e-300))
        return np.asarray(score - score.mean(axis=1, keepdims=True))

    def probability(self, X: Any, kind: str) -> Array:
        """Probabilities (rows, k) of the classes."""
        f, V = self._linked_moments(X, kind)
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
                loss += self.own * np.maximum(1.0 - drawn, 0.0)
                total += softmax(-2.0 * self.learning_rate * loss, axis=1)
        return total / n

    def sample(self, X: Any, n: int, streams: Streams) -> Array:
        """Draws (rows, n, k) of the scores."""
        with one_blas_thread():
            posterior = widened(spread_of(self.joint, "sample"), self.stretch)
            return self.reader.sample(posterior, X, n, streams.at(Purpose.PREDICT))

    @property
    def chain_shape(self) -> tuple[int, int] | None:
        """Chains, and draws per chain, where a sampler kept them."""
        shape: tuple[int, int] | None = spread_of(self.fit.posterior, "to_arviz").chain_shape
        return shape

    def sampled(self, classes: Any, wanted: diagnostics.Wanted, streams: Streams) -> diagnostics.Sampled:
        """Draws of everything that was sampled, with the classes as a dimension of the coefficients."""
        posterior = widened(spread_of(self.joint, "to_arviz"), self.stretch).thinned(wanted.every)
        beta, scale, recorded = diagnostics.drawn_from(posterior, wanted, streams)
        drawn = diagnostics.sampled(self.columns, posterior, beta[..., : self.reader.size], scale, recorded)
        drawn.dims.update({"coef": ["class", "feature"], "intercept": ["class"]})
        drawn.coords["class"] = classes.tolist()
        drawn = self.reader.sampled(drawn, beta, wanted)
        if self.fit.inclusion is not None and posterior.chain_shape is not None:
            drawn.variables["indicator"] = (drawn.variables["coef"] != 0.0).any(axis=2).astype(np.int8)
            drawn.dims["indicator"] = ["feature"]
        if wanted.rows is None:
            return drawn
        with one_blas_thread():
            f = self.reader.scores(
                beta.reshape(-1, *beta.shape[2:]), wanted.rows, streams.at(Purpose.PREDICT, iteration=1)
            )
        return drawn._replace(f=f.reshape(*beta.shape[:2], *f.shape[1:]))

    def inclusion(self) -> Any:
        """Inclusion probabilities of the columns of X; zero for constant ones."""
        chosen = self.fit.inclusion
        return None if chosen is None else chosen.by_column(self.columns)

    def summary(self, names: list[str], level: float, classes: Any) -> pd.DataFrame:
        """One row per coefficient and class."""
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
