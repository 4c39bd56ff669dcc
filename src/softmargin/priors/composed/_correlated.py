"""Normal effects of groups that share a full covariance matrix: ``u_g ~ N(0, S)``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from softmargin.core.array import Array
from softmargin.core.precision import Coupled
from softmargin.core.prior import PriorBase, PriorMessage, PriorState
from softmargin.priors.composed.covariances import CovariancePrior, FixedCovariance
from softmargin.refusals import refused

__all__ = ["BoundCovariance"]

_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True, eq=False)
class BoundCovariance(PriorBase):
    """The coefficients of one term, group by group; precisions and variances in the coupling's writing."""

    labels: tuple[str, ...]
    groups: int
    hyperprior: CovariancePrior

    @cached_property
    def _layout(self) -> Coupled:
        return Coupled(0, self.groups, len(self.labels))

    @property
    def _size(self) -> int:
        return self.groups * len(self.labels)

    def _row(self, P: Array) -> Array:
        return np.concatenate((np.tile(P.diagonal(), self.groups), P[self._layout.pairs]))

    def _matrix(self, row: Array) -> Array:
        P = np.diag(row[: len(self.labels)])
        rows, columns = self._layout.pairs
        P[rows, columns] = P[columns, rows] = row[self._size :]
        return P

    def _squares(self, mean: Array, var: Array | None = None) -> Array:
        """``sum_g E u_g u_g'``."""
        U = mean.reshape(self.groups, -1)
        E: Array = U.T @ U
        if var is not None:
            E[np.diag_indices_from(E)] += var[: self._size].reshape(self.groups, -1).sum(axis=0)
            rows, columns = self._layout.pairs
            E[rows, columns] += 0.5 * var[self._size :]
            E[columns, rows] += 0.5 * var[self._size :]
        return E

    def _values(self, P: Array) -> dict[str, float]:
        """Standard deviations under the labels, and correlations."""
        S = np.linalg.inv(P)
        sd = np.sqrt(S.diagonal())
        values = {label: float(sd[a]) for a, label in enumerate(self.labels)}
        for a, b in zip(*self._layout.pairs, strict=True):
            values[f"corr({self.labels[a]}, {self.labels[b]})"] = float(S[a, b] / (sd[a] * sd[b]))
        return values

    def _message(self, solved: tuple[Array, float]) -> PriorMessage:
        P, bound = solved
        return PriorMessage(self._row(P), bound - 0.5 * self._size * _LOG_2PI, self._values(P))

    def _state(self, P: Array) -> PriorState:
        return PriorState(self._row(P), self._values(P))

    def start(self) -> PriorState:
        return self._state(self.hyperprior.start(len(self.labels)))

    def expect(self, mean: Array, var: Array) -> PriorMessage:
        return self._message(self.hyperprior.expect(self._squares(mean, var), self.groups))

    gaussian = expect  # the log density is quadratic: both averages are the same

    def mode(self, beta: Array) -> PriorMessage:
        if self.hyperprior.learned:
            raise ValueError(refused("no joint mode of a covariance"))
        return self._message(self.hyperprior.expect(self._squares(beta), self.groups))

    def draw(self, rng: np.random.Generator, state: PriorState, beta: Array) -> PriorState:
        P = self._matrix(state.precision)
        return self._state(self.hyperprior.draw(rng, self._squares(beta), self.groups, P))

    def _energy(self, state: PriorState, beta: Array) -> float:
        return 0.5 * float((self._matrix(state.precision) * self._squares(beta)).sum())

    def logpdf(self, state: PriorState, beta: Array) -> float:
        log_det = float(np.linalg.slogdet(self._matrix(state.precision))[1])
        return 0.5 * self.groups * log_det - self._energy(state, beta) - 0.5 * self._size * _LOG_2PI

    def along(self, state: PriorState, beta: Array) -> Callable[[float], float]:
        energy = self._energy(state, beta)
        return lambda step: -energy * math.exp(2.0 * step)

    def stretch(self, state: PriorState) -> Callable[[float], float] | None:
        return self.hyperprior.stretch(self._matrix(state.precision)) if self.hyperprior.learned else None

    def stretched(self, state: PriorState, t: float) -> PriorState:
        return self._state(self._matrix(state.precision) * math.exp(-2.0 * t))

    def precision_matrix(self, precision: Array) -> Array:
        """The inverse of the covariance from a row in the coupling's writing."""
        return self._matrix(precision)

    def at_covariance(self, S: Array) -> BoundCovariance:
        """The covariance fixed."""
        return replace(self, hyperprior=FixedCovariance(np.asarray(np.linalg.inv(S), dtype=float)))

    def settled(self, precision: Array) -> BoundCovariance:
        """The covariance fixed where this precision has it."""
        return replace(self, hyperprior=FixedCovariance(self._matrix(precision)))
