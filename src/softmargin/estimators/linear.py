"""What the linear estimators share: checks of their parameters and of new rows, and how a fitted model is shown."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted, validate_data

from softmargin.core.array import Array
from softmargin.core.loss import Loss
from softmargin.core.validation import IMPUTE, check_choice, check_finite, check_numeric, fitted
from softmargin.estimators._callbacks import CallbackSupport
from softmargin.estimators._indicators import Indicators
from softmargin.estimators._tables import Summary
from softmargin.estimators._training import Training, without_frame
from softmargin.estimators.assess.export import Exported, FitRows
from softmargin.estimators.given.kinds import new_rows, vector
from softmargin.estimators.parameters.parts import Composed
from softmargin.estimators.parameters.runs import Running
from softmargin.exceptions import DataWarning, warn_user
from softmargin.inference.notices import notice_of_fits
from softmargin.models.build import SOLVERS
from softmargin.models.random_effects.terms import GROUPS, separated, warn_of_groups
from softmargin.models.two_class import Recipe
from softmargin.rows.elsewhere import Streamed
from softmargin.rows.streams import Streams
from softmargin.survival.fits import Surviving, parameters_of

__all__ = ["LinearMachine", "check_level", "named_loss"]

_REFIT = f"the model was fitted to complete rows: refit with missing values in the data, or {IMPUTE}"
_LENGTHS = (("draws", 2), ("warmup", 0), ("chains", 1), ("thin", 1), ("max_iter", 1))


def check_level(level: float) -> None:
    """Refuse what is no probability."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, as in 0.95; got {level!r}.")


def named_loss(likelihood: str | Loss, known: Mapping[str, Callable[[], Loss]]) -> tuple[str, Loss]:
    """The loss that ``likelihood`` says, and its name; a loss that is given has that of its equal, or its own."""
    if not isinstance(likelihood, Loss):
        return likelihood, known[likelihood]()
    return next((name for name, make in known.items() if make() == likelihood), repr(likelihood)), likelihood


_DRAWS = ("gibbs", "hmc")
_SHARED = 2.0  # weight from which one draw for all of a row is said: at 3 standard deviations are a sixth too large


class LinearMachine(Surviving, CallbackSupport, Exported, Running, Composed):
    """Base of ``BayesianSVC`` and ``BayesianSVR``; ``_fitted`` is what a fit leaves behind."""

    _fitted: Any
    inference: str
    likelihood: str | Loss
    standardize: bool | str
    n_features_in_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def _check_run(self, inferences: Iterable[str], likelihoods: Iterable[str]) -> None:
        """Refuse parameters of the run that cannot be."""
        check_choice("inference", self.inference, list(inferences))
        if not isinstance(self.likelihood, Loss):
            check_choice("likelihood", self.likelihood, list(likelihoods))
        check_choice("solver", self.solver, ["auto", *SOLVERS])
        if not isinstance(self.standardize, (bool, np.bool_)) and self.standardize != "auto":
            raise ValueError(f"standardize must be True, False or 'auto'; got {self.standardize!r}.")
        given = vars(self)
        for name, least in _LENGTHS:
            value = given[name]
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")
        if not (isinstance(self.tol, Real) and float(self.tol) > 0):
            raise ValueError(f"tol must be a positive number; got {self.tol!r}.")
        if not isinstance(self.engine_options, (dict, type(None))):
            raise ValueError(f"engine_options must be a dict or None; got {self.engine_options!r}.")
        self._check_survival()

    def _constant_columns(self, keep: Any) -> str:
        """A sentence about columns that do not vary, or nothing."""
        varying = keep[keep < self.n_features_in_]  # marks of missing values come after the columns of X
        if len(varying) == self.n_features_in_:
            return ""
        dropped, names = np.setdiff1d(np.arange(self.n_features_in_), varying), fitted(self, "feature_names_in_")
        shown = ", ".join(str(names[j]) if names is not None else str(j) for j in dropped[:5])
        more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
        return f"{len(dropped)} constant column(s) carry no information and get the coefficient 0: {shown}{more}."

    @abstractmethod
    def _remark(self) -> str:
        """What is to be said about the model, or nothing."""

    def _worries(self) -> list[str]:
        """The sentences that a fit warns with: of its run, of the model, and of columns that do not vary."""
        check_is_fitted(self)
        fits, keep = [model.fit for model in self._fitted.parts], self._reader.columns.keep
        constant = self._constant_columns(keep) if len(self._fitted.parts) == 1 else ""  # pairs have fewer rows
        return [text for text in (notice_of_fits(fits, self.inference, self.tol), self._remark(), constant) if text]

    def smooth_effects(self, level: float = 0.95) -> dict[str, pd.DataFrame]:
        """Every smooth term by its name: values x of the column, the function there with its line, and its interval.

        The function is zero where the line is: at the mean of the column, if columns are standardized. With many
        classes the pair or class is a level of the index.
        """
        check_is_fitted(self)
        check_level(level)
        classes = fitted(self, "classes_")
        found = [model.reader.curves(model.joint, model.stretch, level, classes) for model in self._fitted.parts]
        if len(found) == 1:
            return found[0]
        pairs = [f"{a} | {b}" for a, b in combinations(np.asarray(classes).tolist(), 2)]
        names = list(dict.fromkeys(name for curves in found for name in curves))
        each = list(zip(pairs, found, strict=True))
        return {name: pd.concat({p: c[name] for p, c in each if name in c}, names=["pair"]) for name in names}

    def _note_training(self, rows: Training) -> None:
        """Keep what is asked of the training rows later."""
        self._used = rows.used
        # for batches that come later, which a fit in one piece cannot take
        self._settled = parameters_of(self) if self.inference == "svi" else {"inference": repr(self.inference)}
        self._batches, self._rows_before = 0, 0.0
        self._seen = FitRows.of(rows.X, rows.used)
        if rows.indicators is not None:
            self.indicators_ = rows.indicators
        constant = self._constant_columns(rows.columns.keep)
        if constant:
            warn_user(constant, DataWarning)

    def _note_weights(self, rows: Training, weight: Array) -> None:
        """Keep what rows of a class weigh beside how often they count."""
        by_class = np.ones(int(rows.y.max()) + 1)
        by_class[rows.y] = weight / rows.counts
        self._seen = None if self._seen is None else self._seen._replace(by_class=by_class)
        self._note_shared(rows, weight)

    def _note_shared(self, rows: Training, weight: Array) -> None:
        """Say where one draw of a row's missing entries stands for several rows."""
        if not rows.incomplete or self.inference not in _DRAWS:
            return
        X = rows.X.X if rows.effects else rows.X
        most = float(weight[np.isnan(X).any(axis=1)].max())
        if most >= _SHARED:
            warn_user(
                f"rows with missing entries weigh up to {most:.3g}, and draws share their entries: standard deviations "
                "of the coefficients come out too large; repeat such rows, or use inference='vb'.",
                DataWarning,
            )

    def _plan(self, prior: Any, loss: Any, rows: Training, **more: Any) -> Recipe:
        """What is asked for, with the training rows' own needs."""
        names = fitted(self, "feature_names_in_")
        if names is not None and rows.indicators is not None:
            names = self._names()
        own: dict[str, Any] = {"names": names, "incomplete": rows.incomplete, "effects": rows.effects}
        run = {"solver": self.solver, "run": self._run_settings(), "standardized": self.standardize}
        return Recipe(prior, loss, self.inference, **(own | run | {"learning_rate": 1.0} | more))

    def _publish_terms(self, models: Any, per_model: Any, noise: float) -> None:
        """Tables of group effects and of missing entries, where there are any."""
        if self._reader.terms:
            own = {"classes": fitted(self, "classes_")}
            tables = [model.reader.random_effects(model.joint, model.stretch, **own) for model in models]
            self.random_effects_ = per_model(tables)
            self.variance_components_ = per_model([model.reader.variance_components(noise) for model in models])
        if self._reader.law is not None and len(models) == 1:
            self.imputed_ = self._reader.imputed(np.flatnonzero(self._used), self._names())

    def _checked(self, X: Any, groups: Any = None) -> Any:
        """New rows, checked, with their groups where the model has terms."""
        check_is_fitted(self)
        return self._labelled(X, groups)

    def _read(self, X: Any, groups: Any, read: Callable[[Any], Any]) -> Any:
        """What ``read`` makes of new rows, checked, wherever they are."""
        check_is_fitted(self)
        names = fitted(self, "feature_names_in_")
        labels, groups = self._grouping(), vector(X, groups)
        X = new_rows(X, None if names is None else list(names), labels)
        if not isinstance(X, Streamed):
            return read(self._checked(X, groups))
        own = X.names

        def part(rows: Any, beside: Any = None) -> Any:
            return read(self._checked(rows if own is None else pd.DataFrame(rows, columns=own), beside))

        return X.each(part) if groups is None else X.each(part, np.asarray(groups, dtype=object))

    def _grouping(self) -> list[Any]:
        """Columns of X that say the groups of its rows."""
        keys = [key for term in self._reader.terms for key in term.effect.group]
        return [key for key in dict.fromkeys(keys) if key != GROUPS]

    def _labelled(self, X: Any, groups: Any) -> Any:
        """New rows with their groups, where the model has terms."""
        terms = self._reader.terms
        if not terms:
            if groups is not None:
                raise ValueError("groups were not part of the fit; leave them out, or fit with groups.")
            return self._validated(X)
        rows = separated(X, [term.effect for term in terms], groups)
        rows = rows._replace(X=self._validated(rows.X))
        warn_of_groups([key for term in terms for key in term.effect.group], rows)
        return rows

    @property
    def _reader(self) -> Any:
        """How the first of the fitted models sees new rows."""
        return self._fitted.parts[0].reader

    def _validated(self, X: Any) -> Any:
        check_numeric(X)
        least = min(1, self.n_features_in_)  # groups alone make a model too
        X = validate_data(
            self,
            without_frame(X),
            accept_sparse="csr",
            dtype=np.float64,
            order="C",
            ensure_all_finite=False,
            ensure_min_features=least,
            reset=False,
        )
        check_finite(X, fitted(self, "feature_names_in_"), missing=self._takes_missing, way=_REFIT)
        return X if self._marks is None else self._marks.apply(X)

    @property
    def _marks(self) -> Indicators | None:
        """Columns that mark missing entries, where the fit has them."""
        found: Indicators | None = fitted(self, "indicators_")
        return found

    @property
    def _takes_missing(self) -> bool:
        """Whether new rows may have missing values."""
        return self._marks is not None or self._reader.law is not None

    def _names(self) -> list[str]:
        given = fitted(self, "feature_names_in_")
        names = [f"x{j}" for j in range(self.n_features_in_)] if given is None else list(given)
        return names if self._marks is None else self._marks.names(names)

    def sample(self, X: Any, n: int = 100, random_state: Any = None, groups: Any = None) -> Array:
        """Posterior draws of f: array of shape (rows of X, n), with one more axis for pairs or classes, if many."""
        seed = self.random_state if random_state is None else random_state
        streams = Streams.from_random_state(seed)
        draws: Array = self._read(X, groups, lambda rows: self._fitted.sample(rows, n, streams))
        return draws

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Coefficients in the units of the data: mean, sd, interval, P(> 0), and for draws ess and r_hat.

        With priors that select, also the inclusion probability, its Monte Carlo error and its range over chains;
        P(> 0) is then that of a column which is in. With many classes the index has the pair or class as a second
        level, and a positive coefficient speaks for the second class of the pair, or for the class.
        """
        check_is_fitted(self)
        check_level(level)
        table: pd.DataFrame = self._fitted.summary(self._names(), level, fitted(self, "classes_"))
        return Summary.of(table, self._header())

    def _header(self) -> str:
        """What a summary says first."""
        return ""

    def _new_rows(self, X: Any, groups: Any) -> Any:
        return self._checked(X, groups)

    def _entries(self) -> Any:
        return self._reader.entries if len(self._fitted.parts) == 1 else None
