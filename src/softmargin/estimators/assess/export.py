"""Draws of a fitted estimator as ArviZ InferenceData, with what is said of the rows of the fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.exceptions import DataWarning, warn_user
from softmargin.models.pointwise import GivenRows, Pointwise
from softmargin.models.random_effects.terms import Labelled
from softmargin.posterior.diagnostics import Wanted
from softmargin.posterior.inference_data import RowGroups, to_arviz
from softmargin.rows.elsewhere import Elsewhere
from softmargin.rows.memory import available
from softmargin.rows.streams import Purpose, Streams

__all__ = ["Exported", "FitRows"]

_KEPT = 20_000_000  # numbers of predictors, at most, that a fitted estimator holds on to
_LARGEST = 100_000_000  # log likelihoods, at most: more draws than fit in are thinned
_FEWEST = 400  # draws that are left, at least
_COPIES = 4  # arrays of the size of the log likelihood while it is made


class FitRows(NamedTuple):
    """Of the training rows that counted: what their classes weigh, their places where some did not, and predictors.

    ``X`` is as the fitted model takes it, or None: files of saved models have none, and many rows are not kept.
    """

    by_class: Array | None
    place: Any
    X: Any = None

    @classmethod
    def of(cls, X: Any, used: Any, by_class: Array | None = None) -> FitRows:
        """From the rows of a fit, those of them that were ``used``, and what their classes weigh."""
        place = None if used.all() else np.flatnonzero(used)
        plain = _predictors(X)
        if isinstance(plain, Elsewhere):
            return cls(by_class, place)
        entries = plain if isinstance(plain, np.ndarray) else plain.data
        return cls(by_class, place, X if entries.size <= _KEPT else None)

    def given(self, X: Any, y: Any, times: Array, place: Any) -> GivenRows:
        """Rows with what their classes weigh."""
        return GivenRows(X, y, times if self.by_class is None else times * self.by_class[y], place)


class Exported(BaseEstimator, ABC):
    """An estimator whose fit leaves ``_fitted`` and ``_seen``."""

    _fitted: Any
    _seen: FitRows | None
    _said_of_rows: Callable[..., Pointwise]  # by the kind of its response
    inference: str

    def __getstate__(self) -> Any:
        """Pickles, like saved files, have no rows of predictors: they may be large, and private."""
        state: Any = super().__getstate__()
        seen = state.get("_seen")
        return state if seen is None else state | {"_seen": seen._replace(X=None)}

    def _names(self) -> list[str]:
        """Names of the coefficients that mean something."""
        return []

    @abstractmethod
    def _new_rows(self, X: Any, groups: Any) -> Any:
        """New rows, checked."""

    @abstractmethod
    def _numbered(self, y: Any) -> Any:
        """Responses as the model has them."""

    def _entries(self) -> Any:
        """Missing entries of the training rows, where they are part of the model."""
        return None

    def to_arviz(
        self,
        X: Any = None,
        y: Any = None,
        *,
        draws: int = 1000,
        rows: bool = True,
        sample_weight: Any = None,
        groups: Any = None,
    ) -> Any:
        """Everything that was sampled as ArviZ InferenceData.

        The groups are ``posterior`` (coefficients, scale, effects of groups, missing entries, and for priors that leave
        columns out which of them were in, as ``indicator``), ``log_likelihood`` of every row, ``posterior_predictive``,
        ``observed_data``, ``constant_data`` and ``sample_stats``. Classes are numbers in the order of ``classes_``.
        Attributes of ``log_likelihood`` say whether it is a likelihood or a pseudo-likelihood, as that of the hinge is,
        and those of ``posterior`` whether the draws are those of an approximation.

        Parameters
        ----------
        X, y : array, optional
            Rows of the fit. They need not be given unless the model was loaded from a file, or the fit was large.
        draws : int, default=1000
            Draws from an approximation; a sampler's draws are all there.
        rows : bool, default=True
            Whether to say anything of the rows; ``posterior`` and ``sample_stats`` alone take little memory.
        sample_weight, groups : array, optional
            Those of the fit, where X and y are given.
        """
        check_is_fitted(self)
        streams, shape = Streams.from_random_state(self.random_state), self._fitted.chain_shape
        entries, classes = self._entries(), fitted(self, "classes_")
        seen = self._rows_of_fit(X, y, sample_weight, groups) if rows else None
        size = (0 if seen is None else len(seen.y)) + (0 if entries is None else len(entries.row))
        every = _thinning(size, shape or (1, draws))
        kept = draws if shape is not None else -(-draws // every)
        drawn = self._fitted.sampled(classes, Wanted(kept, every, None if seen is None else seen.X), streams)
        rng = streams.at(Purpose.PREDICT, iteration=2)
        if entries is not None:
            noise = rng.standard_normal((*drawn.variables["intercept"].shape[:2], len(entries.row)))
            drawn.variables["imputed"], drawn.dims["imputed"] = entries.mean + entries.sd * noise, ["entry"]
            drawn.coords["entry"] = self._entry_names(entries)
        groups_of_rows = None if seen is None else self._row_groups(drawn, seen, rng)
        return to_arviz(drawn, self._names(), self.inference, groups_of_rows, every)

    def _row_groups(self, drawn: Any, seen: GivenRows, rng: np.random.Generator) -> RowGroups:
        """What is said of the rows, with what they come with."""
        said = type(self)._said_of_rows(self._fitted, drawn, seen, rng)
        names, classes = self._names(), fitted(self, "classes_")
        X = _predictors(seen.X)
        constant: dict[str, Any] = {"weight": seen.weight}
        coords: dict[str, Any] = {"row": seen.place}
        if isinstance(X, np.ndarray) and X.shape[1] == len(names):
            constant["X"] = X
        if classes is not None:
            constant["classes"], coords["class"] = classes.astype(str), classes.tolist()
        return RowGroups(said.log_likelihood, said.replicates, seen.y, constant, coords, {"kind": said.kind})

    def _rows_of_fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> GivenRows | None:
        """The rows that were given, or those that the fit has kept."""
        if (X is None) != (y is None):
            raise ValueError(
                f"to_arviz got {'y without X' if X is None else 'X without y'}; give both, the rows of the fit."
            )
        seen, observed = fitted(self, "_seen"), fitted(self, "_observed")
        if X is None and (seen is None or seen.X is None):
            warn_user(
                "this model does not hold the rows of its fit (it was loaded from a file, fitted in batches, or its "
                "rows are many), so log_likelihood and posterior_predictive are left out; give them, to_arviz(X, y), "
                "or say rows=False.",
                DataWarning,
            )
            return None
        if X is None:
            place = np.arange(len(observed.y)) if seen.place is None else seen.place
            return seen.given(seen.X, observed.y, observed.counts, place)
        rows = self._new_rows(X, groups)
        count = _check_sample_weight(sample_weight, _predictors(rows), dtype=np.float64)
        number = self._numbered(y)
        if len(number) != len(count):
            raise ValueError(f"X has {len(count)} rows and y has {len(number)}; give one response per row.")
        return (seen or FitRows(None, None)).given(rows, number, count, np.arange(len(number)))

    def _entry_names(self, entries: Any) -> list[str]:
        """Every missing entry by its row and column."""
        names, seen = self._names(), fitted(self, "_seen")
        place = np.arange(entries.row.max() + 1) if seen is None or seen.place is None else seen.place
        return [f"{names[column]}[{place[row]}]" for row, column in zip(entries.row, entries.column, strict=True)]


def _predictors(X: Any) -> Any:
    """Rows without the labels of their groups."""
    return X.X if isinstance(X, Labelled) else X


def _thinning(size: int, shape: tuple[int, int]) -> int:
    """Of how many draws one is kept, so that ``size`` numbers of each do not take too much memory."""
    total = shape[0] * shape[1]
    most = min(_LARGEST, int(available() / (8 * _COPIES)))
    every = -(-size * total // most)
    if every <= 1:
        return 1
    if total // every < _FEWEST:
        least = min(total, _FEWEST)
        raise MemoryError(
            f"the log likelihood of {size:,} rows and entries at {least:,} draws has {size * least:,} numbers, and "
            f"{most:,} are the most; give some of the rows, to_arviz(X[:{most // least}], y[:{most // least}]), or "
            "say rows=False."
        )
    warn_user(
        f"to_arviz keeps one of {every} draws: the log likelihood of {size:,} rows and entries at {total:,} draws "
        f"would take {8e-9 * size * total:.3g} GB; give fewer rows, or say rows=False.",
        DataWarning,
    )
    return every
