"""What samplers of kernel expansions leave behind: draws of expansions and the predictions they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, ndtr

from softmargin.core.array import Array
from softmargin.core.loop import Outcome
from softmargin.losses import Logit
from softmargin.losses.probability import predictive_probability, pseudo_probability

__all__ = [
    "Expansion",
    "Index",
    "KernelDraws",
    "Link",
    "NewRows",
    "Recorder",
    "hinge_link",
    "logit_link",
    "probit_link",
]

_CHUNK = 512  # new rows predicted at a time

Index = np.ndarray[Any, np.dtype[np.int64]]
Link = Callable[[Array, Any, float], Array]  # probability of +1 under f ~ N(f, v), at a learning rate
NewRows = Array | Callable[[float, Any], Array]  # kernel matrix, or a function of the length and of its columns


def probit_link(f: Array, v: Any, rate: float) -> Array:
    """``E Phi(f)``."""
    return np.asarray(ndtr(f / np.sqrt(1.0 + v)))


def logit_link(f: Array, v: Any, rate: float) -> Array:
    """``E 1/(1 + exp(-f))``."""
    return expit(f) if np.all(v == 0.0) else predictive_probability(Logit(), f, np.broadcast_to(v, f.shape), 1.0)


def hinge_link(f: Array, v: Any, rate: float) -> Array:
    """The pseudo-likelihood normalised over both labels, averaged."""
    if np.all(v == 0.0):
        return np.asarray(expit(2.0 * rate * (np.maximum(1.0 + f, 0.0) - np.maximum(1.0 - f, 0.0))))
    return pseudo_probability(f, np.broadcast_to(v, f.shape), rate)


class Expansion(NamedTuple):
    """One draw of ``f = intercept + sum_j coef_j K(., x_j)`` over the ``active`` rows.

    ``mean`` and ``root`` describe the normal law that (intercept, coef) was drawn from, N(mean, root root'), where it
    was asked for.
    """

    intercept: float
    active: Index
    coef: Array
    mean: Array | None = None
    root: Array | None = None


@dataclass(frozen=True, eq=False)
class KernelDraws:
    """Draws of kernel expansions, chain after chain.

    Parameters
    ----------
    rows : int
        Number of training rows.
    offset, index, coef : arrays
        Draw t has coefficients ``coef[offset[t]:offset[t + 1]]`` at the training rows ``index[...]``.
    intercept : array (chains, draws)
        Intercepts.
    values : dict of arrays (chains, draws)
        What else was drawn, by name: ``g``, ``eta``, ``length``, ``noise``, and ``loglik``.
    link : callable
        Probability of +1 given the predictor.
    conditional : list of (mean, root)
        For every draw the normal law of (intercept, coef), where it was kept.
    accepted : dict of float
        Share of accepted proposals by kind.
    outcome : Outcome
        How the run ended.
    """

    rows: int
    offset: Index
    index: Index
    coef: Array
    intercept: Array
    values: dict[str, Array]
    link: Link
    conditional: list[tuple[Array, Array]] = field(default_factory=list)
    accepted: dict[str, float] = field(default_factory=dict)
    outcome: Outcome | None = None

    @property
    def n_active(self) -> Array:
        """Number of rows with a coefficient, (chains, draws)."""
        return np.diff(self.offset).reshape(self.intercept.shape)

    @property
    def scale(self) -> Array:
        """Standard deviation ``g^-1/2`` of the expansion in units of the kernel, (chains, draws)."""
        return np.asarray(self.values["g"] ** -0.5)

    @cached_property
    def matrix(self) -> Any:
        """All coefficients, a sparse matrix (draws of all chains, training rows)."""
        return sp.csr_array((self.coef, self.index, self.offset), shape=(self.intercept.size, self.rows))

    def active_probability(self) -> Array:
        """Posterior probability of each training row being active."""
        return np.bincount(self.index, minlength=self.rows) / self.intercept.size

    def predictor(self, new: NewRows) -> Array:
        """Draws of f for new rows, (draws of all chains, new rows).

        ``new`` is their kernel matrix with the training rows, or, where the length scale was drawn, a function that
        gives some of its columns for a length.
        """
        u = self.intercept.reshape(-1, 1)
        if not callable(new):
            return np.asarray(u + self.matrix @ self._checked(new).T)
        parts = [new(length, at) @ coef for length, at, coef in self._pieces()]
        return np.asarray(u + np.vstack(parts))

    def probability(self, new: NewRows, *, rao_blackwell: bool = False, rate: float = 1.0) -> Array:
        """Probability of +1 for new rows, averaged over the draws.

        ``rao_blackwell`` averages over the normal law of the coefficients in place of one draw from it; ``rate`` is the
        learning rate of the hinge.
        """
        noise = self.values.get("noise")
        extra = 0.0 if noise is None else noise.reshape(-1, 1) ** 2
        total = []
        for f, v in self._parts(new, rao_blackwell):
            shape, v = f.shape, np.broadcast_to(v + extra, f.shape)
            total.append(self.link(f.ravel(), v.ravel(), rate).reshape(shape).mean(axis=0))
        return np.concatenate(total)

    def moments(self, new: NewRows, *, rao_blackwell: bool = False) -> tuple[Array, Array]:
        """Posterior mean and variance of f for new rows."""
        pairs = [(f.mean(axis=0), f.var(axis=0) + v.mean(axis=0)) for f, v in self._parts(new, rao_blackwell)]
        return np.concatenate([mean for mean, _ in pairs]), np.concatenate([variance for _, variance in pairs])

    def _parts(self, new: NewRows, rao_blackwell: bool) -> Iterator[tuple[Array, Array]]:
        """Means and variances of f by draw, a few new rows at a time."""
        if rao_blackwell and not self.conditional:
            raise ValueError("these draws hold no laws of coefficients; fit with basis='active', rao_blackwell=True.")
        if callable(new):
            pair = self._normal(new) if rao_blackwell else (self.predictor(new), np.zeros((1, 1)))
            yield pair
            return
        new = self._checked(new)
        for low in range(0, len(new), _CHUNK):
            part = new[low : low + _CHUNK]
            yield self._normal(part) if rao_blackwell else (self.predictor(part), np.zeros((1, 1)))

    def _normal(self, new: NewRows) -> tuple[Array, Array]:
        """Mean and variance of f given everything but the coefficients, by draw."""
        f, v = [], []
        for (length, at, _), (mean, root) in zip(self._pieces(), self.conditional, strict=True):
            K = new(length, at) if callable(new) else new[:, at]
            f.append(mean[0] + K @ mean[1:])
            v.append(((root[0] + K @ root[1:]) ** 2).sum(axis=1))
        return np.array(f), np.array(v)

    def _pieces(self) -> Iterator[tuple[float, Index, Array]]:
        """Length scale, active rows and coefficients of every draw."""
        lengths = self.values.get("length", np.full(self.intercept.shape, np.nan)).ravel()
        for t, length in enumerate(lengths):
            at = slice(self.offset[t], self.offset[t + 1])
            yield float(length), self.index[at], self.coef[at]

    def _checked(self, new: Array) -> Array:
        if "length" in self.values:
            raise ValueError("the length scale was drawn: give a function of it and of columns that returns these.")
        if new.ndim != 2 or new.shape[1] != self.rows:
            raise ValueError(f"the kernel matrix of new rows must have {self.rows} columns; it has shape {new.shape}.")
        return new


class Recorder:
    """Gathers expansions while a chain runs and makes one record of them."""

    def __init__(self, chains: int):
        self.kept: list[list[tuple[Expansion, dict[str, float]]]] = [[] for _ in range(chains)]

    def add(self, chain: int, expansion: Expansion, values: dict[str, float]) -> None:
        """Keep one draw."""
        self.kept[chain].append((expansion, values))

    def gathered(self) -> list[list[tuple[Expansion, dict[str, float]]]]:
        """What every chain has kept."""
        return self.kept

    def restore(self, gathered: list[list[tuple[Expansion, dict[str, float]]]]) -> None:
        """Have that again."""
        self.kept = gathered

    def draws(self, rows: int, link: Link, accepted: dict[str, float], outcome: Outcome) -> KernelDraws:
        """All that every chain has kept."""
        least = min(map(len, self.kept))
        every = [pair for chain in self.kept for pair in chain[:least]]
        shape = (len(self.kept), least)
        expansions = [expansion for expansion, _ in every]
        sizes = [len(expansion.active) for expansion in expansions]
        values = {name: np.array([each[name] for _, each in every]).reshape(shape) for name in every[0][1]}
        conditional = [(each.mean, each.root) for each in expansions if each.mean is not None and each.root is not None]
        return KernelDraws(
            rows,
            np.concatenate(([0], np.cumsum(sizes))),
            np.concatenate([expansion.active for expansion in expansions]),
            np.concatenate([expansion.coef for expansion in expansions]),
            np.array([expansion.intercept for expansion in expansions]).reshape(shape),
            values,
            link,
            conditional,
            accepted,
            replace(outcome, state=None),
        )
