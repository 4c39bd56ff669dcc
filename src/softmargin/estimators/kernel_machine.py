"""What a kernel estimator checks and shows, apart from its parameters."""

from __future__ import annotations

import os
from abc import abstractmethod
from itertools import combinations
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from softmargin.core.array import Array
from softmargin.core.validation import (
    IMPUTE,
    check_choice,
    check_finite,
    check_mask,
    check_names,
    check_numeric,
    fitted,
    known_labels,
    labels_given,
)
from softmargin.estimators._callbacks import CallbackSupport
from softmargin.estimators.assess.export import Exported
from softmargin.estimators.parameters.parts import Composed
from softmargin.estimators.parameters.runs import Running
from softmargin.inference.notices import notice_of_fits, warn_of_fits
from softmargin.inference.trials import choices_table
from softmargin.models.classes.pairwise import Pairwise, by_model
from softmargin.models.fitted import spread_of
from softmargin.models.kernel.search import kernel_prior
from softmargin.models.pointwise import of_labels
from softmargin.refusals import refused
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.survival.fits import Surviving

__all__ = ["PROBABILITIES", "WITHOUT_SCALE", "ClassMachine", "KernelMachine"]

WITHOUT_SCALE = ("noisy-hinge", "complete-hinge")  # likelihoods whose coefficients have a scale each

_LENGTHS = (("draws", 2), ("warmup", 0), ("chains", 1), ("thin", 1), ("max_iter", 1))
PROBABILITIES = ["calibrated", "pseudo", "sign"]


def _interval(lengths: Array | None) -> dict[str, float]:
    """The middle 95 % of the draws of a length."""
    if lengths is None:
        return {}
    lower, upper = np.quantile(lengths, (0.025, 0.975)).tolist()
    return {"length_lower": lower, "length_upper": upper}


class KernelMachine(Surviving, CallbackSupport, Exported, Running, Composed):
    """Base of the kernel estimators; ``_fitted`` is what a fit leaves behind."""

    _fitted: Any
    kernel: Any
    basis: str
    inference: str
    standardize: bool | str

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = bool(self._sparse)
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def _sparse(self) -> str | bool:
        """Sparse rows are for named kernels: objects and functions get arrays."""
        return False if callable(self.kernel) or self._precomputed else "csr"

    def _check_run(self) -> None:
        """Refuse lengths, tolerances and options of a run that cannot be."""
        given = self.get_params(deep=False)
        for name, least in _LENGTHS:
            value = given[name]
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")
        if not (isinstance(self.tol, Real) and float(self.tol) > 0):
            raise ValueError(f"tol must be a positive number; got {self.tol!r}.")
        if not isinstance(self.engine_options, (dict, type(None))):
            raise ValueError(f"engine_options must be a dict or None; got {self.engine_options!r}.")
        self._check_survival()
        if not (isinstance(self.standardize, bool | np.bool_) or self.standardize == "auto"):
            raise ValueError(f"standardize must be True, False or 'auto'; got {self.standardize!r}.")
        points = self._points
        if points is not None and (not isinstance(points, (int, np.integer)) or isinstance(points, bool)):
            raise ValueError(f"n_inducing must be a whole number or 'auto'; got {points!r}.")
        if points is not None and self.basis not in ("auto", "inducing"):
            raise ValueError("n_inducing is for basis='inducing'; leave it at 'auto'.")
        kernel_prior(self.scale)  # says what is wrong with a scale

    @property
    def _points(self) -> Any:
        """Number of inducing points, where it is given."""
        return None if isinstance(self.n_inducing, str) and self.n_inducing == "auto" else self.n_inducing

    def _plan(self) -> dict[str, Any]:
        """What is asked for, whatever the response."""
        given = self.get_params(deep=False)
        own = {name: given[name] for name in ("kernel", "length_scale", "scale", "basis", "inference")}
        return own | {"scaled": self.standardize, "n_inducing": self._points, "run": self._run_settings()}

    def _rows(self, X: Any, **options: Any) -> Any:
        """Rows as the kernel takes them, with y if it is among the options."""
        if isinstance(X, str | os.PathLike):
            raise ValueError(refused("kernels of files", path=repr(os.fspath(X))))
        check_mask(X)
        checked = validate_data(
            self, X, accept_sparse=self._sparse, dtype=np.float64, order="C", ensure_all_finite=False, **options
        )
        rows, names = checked[0] if isinstance(checked, tuple) else checked, fitted(self, "feature_names_in_")
        check_finite(rows, names, way=f"kernel machines take no missing values: {IMPUTE}")
        return checked

    def _training_rows(self, X: Any, y: Any, **options: Any) -> Any:
        """Rows and responses of a fit, checked."""
        if not self._precomputed:
            check_names(X)
        check_numeric(X)
        X, y = self._rows(X, y=y, ensure_min_samples=2, **options)
        if self._precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(f"a precomputed kernel matrix must be square in fit; got shape {X.shape}.")
        return X, y

    def _checked(self, X: Any) -> Any:
        """New rows, checked."""
        check_is_fitted(self)
        return self._rows(X, reset=False)

    @abstractmethod
    def _remark(self) -> str:
        """What is to be said about the model, or nothing."""

    def _worries(self) -> list[str]:
        """The sentences that a fit warns with: of its run, and of the model."""
        check_is_fitted(self)
        notice = notice_of_fits([model.fit for model in self._fitted.parts], self.inference, self.tol)
        return [text for text in (notice, self._remark()) if text]

    def sample(self, X: Any, n: int = 100, random_state: Any = None) -> Array:
        """Posterior draws of f: array of shape (rows of X, n), with one more axis for pairs if there are many."""
        X = self._checked(X)
        seed = self.random_state if random_state is None else random_state
        draws: Array = self._fitted.sample(X, n, Streams.from_random_state(seed))
        return draws

    def _new_rows(self, X: Any, groups: Any) -> Any:
        if groups is not None:
            raise ValueError("groups are not part of kernel machines; leave them out.")
        return self._checked(X)


class ClassMachine(KernelMachine):
    """Base of ``BayesianKernelClassifier``."""

    classes_: Any
    probability: str
    _said_of_rows = staticmethod(of_labels)

    def _numbered(self, y: Any) -> Any:
        return known_labels(labels_given(y), self.classes_)

    def _labels(self, y: Any) -> tuple[Any, Any]:
        check_classification_targets(y)
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes in y; got 1 class ({classes.tolist()[0]!r}): add "
                "rows of another class."
            )
        return classes, index

    def _publish(self) -> None:
        models = self._fitted.parts
        fits = [model.fit for model in models]

        def per_model(values: list[Any]) -> Any:
            return values if isinstance(self._fitted, Pairwise) else values[0]

        self.posterior_ = per_model([fit.posterior for fit in fits])
        self.length_scale_ = by_model(self._fitted, [model.length for model in models])
        if models[0].lengths is not None:
            self.length_scale_draws_ = by_model(self._fitted, [model.lengths for model in models])
        self.standardize_ = by_model(self._fitted, [model.rescaled for model in models])
        self.learning_rate_ = by_model(self._fitted, [model.learning_rate for model in models])
        self.tilt_ = by_model(
            self._fitted, [model.chosen is not None and model.chosen.candidate.tilt for model in models]
        )
        self.choices_ = choices_table(models, self.classes_)
        if self.likelihood not in WITHOUT_SCALE:
            self.scale_ = by_model(self._fitted, [fit.scale for fit in fits])
        self.loo_ = self._fitted.loo
        self.trace_ = per_model([np.array(fit.outcome.trace) for fit in fits])
        self.n_iter_ = max(fit.outcome.n_iter for fit in fits)
        self.converged_ = all(fit.outcome.converged for fit in fits)
        if fits[0].gap is not None:
            self.gap_ = max(fit.gap for fit in fits if fit.gap is not None)
        warn_of_fits(fits, self.inference, self.tol)

    def _publish_active(self, used: Any, index: Any, n: int) -> None:
        """Probabilities of the training rows, one row per pair if there are many, and the number of active ones."""
        active = []
        for (i, j), model in zip(combinations(range(len(self.classes_)), 2), self._fitted.parts, strict=True):
            row = np.full(n, np.nan)
            row[used[(index == i) | (index == j)]] = model.active
            active.append(row)
        counts = [model.expansions.n_active for model in self._fitted.parts]
        two = len(self.classes_) == 2
        self.active_ = active[0] if two else np.array(active)
        self.n_active_ = counts[0] if two else counts

    def _checked(self, X: Any) -> Any:
        """New rows, checked."""
        check_is_fitted(self)
        check_choice("probability", self.probability, PROBABILITIES)
        return super()._checked(X)

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of f plus the offset of the link; positive means the second class.

        With ``return_std`` also the posterior standard deviation of f. With more than two classes: an array
        (rows, classes), the centred logarithms of the probabilities.
        """
        X = self._checked(X)
        if not return_std:
            return self._fitted.decision(X, self.probability)
        if len(self.classes_) > 2:
            raise ValueError("decision_function(return_std=True) is for two classes; use predict_proba or sample.")
        spread_of(self._fitted, "decision_function(return_std=True)")
        with one_blas_thread():
            _, v = self._fitted.moments(X)
        return self._fitted.decision(X, self.probability), np.sqrt(v)

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, columns in the order of ``classes_``."""
        X = self._checked(X)
        p: Array = self._fitted.probability(X, self.probability)
        return p

    def predict(self, X: Any) -> Any:
        """The more probable class of each row: the argmax of ``predict_proba``."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def summary(self) -> pd.DataFrame:
        """What was learned, one row per model: lengths, scales, learning rates, leave-one-out log loss and error.

        A length that was drawn comes with the middle 95 % of its draws. Models without one scale have no such column.
        """
        check_is_fitted(self)
        labels = self.classes_.tolist()
        pairs = [f"{a} | {b}" for a, b in combinations(labels, 2)]
        rows = [
            {
                "length_scale": model.length,
                **_interval(model.lengths),
                "scale": model.fit.scale,
                "learning_rate": model.learning_rate,
                "tilt": model.chosen is not None and model.chosen.candidate.tilt,
                "standardized": model.rescaled,
                "loo_score": model.loo.score,
                "loo_error": model.loo.error,
                "max_kv": model.loo.max_kv,
            }
            for model in self._fitted.parts
        ]
        table = pd.DataFrame(rows, index=pd.Index(pairs, name="pair"))
        return table.drop(columns="scale") if self.likelihood in WITHOUT_SCALE else table
