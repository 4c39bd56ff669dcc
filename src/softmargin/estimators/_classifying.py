"""What a fitted ``BayesianSVC`` has, and says of new rows and of its training rows without themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import check_choice
from softmargin.estimators.given.dask import computed
from softmargin.estimators.given.kinds import vector
from softmargin.inference.notices import warn_of_fits
from softmargin.inference.trials import choices_table
from softmargin.models.classes.pairwise import Pairwise, by_model
from softmargin.models.fitted import spread_of
from softmargin.models.two_class import Binary

__all__ = ["PROBABILITIES", "Classifying"]

PROBABILITIES = ["calibrated", "pseudo", "sign"]


class Classifying:
    """Decisions and probabilities of a fitted model of classes."""

    _fitted: Any
    _used: Any
    _labelled: Any
    _read: Any
    classes_: Any
    posterior_: Any
    tilt_: Any
    probability: str
    inference: str
    tol: float
    _reader: Any
    _publish_terms: Any

    def _publish(self) -> None:
        models = self._fitted.parts
        fits = [model.fit for model in models]

        def per_model(values: list[Any]) -> Any:
            return values if isinstance(self._fitted, Pairwise) else values[0]

        self.posterior_ = per_model([model.posterior for model in models])
        means = [fit.posterior.user_mean() for fit in fits]
        self.coef_ = np.concatenate([np.atleast_2d(coef) for coef, _ in means])
        self.intercept_ = np.concatenate([np.atleast_1d(intercept) for _, intercept in means])
        self.learning_rate_ = by_model(self._fitted, [model.learning_rate for model in models])
        self.tilt_ = by_model(
            self._fitted, [model.chosen is not None and model.chosen.candidate.tilt for model in models]
        )
        self.choices_ = choices_table(models, self.classes_)
        self.scale_ = by_model(self._fitted, [fit.scale for fit in fits])
        noise = models[0].loss.latent_variance if self._reader.terms else np.nan
        self._publish_terms(models, per_model, noise)
        self.trace_ = per_model([np.array(fit.outcome.trace) for fit in fits])
        self.n_iter_ = max(fit.outcome.n_iter for fit in fits)
        self.converged_ = all(fit.outcome.converged for fit in fits)
        if fits[0].gap is not None:
            self.gap_ = max(fit.gap for fit in fits if fit.gap is not None)
        chosen = [model.inclusion() for model in models]
        if chosen[0] is not None:
            self.chain_inclusion_ = by_model(self._fitted, [each.chains for each in chosen if each is not None])
            self.inclusion_ = by_model(self._fitted, [each.chains.mean(axis=0) for each in chosen if each is not None])
            self.inclusion_error_ = by_model(self._fitted, [each.error for each in chosen if each is not None])
            self.indicator_gap_ = by_model(self._fitted, [each.gap.mean(axis=0) for each in chosen if each is not None])
        warn_of_fits(fits, self.inference, self.tol)

    def _checked(self, X: Any, groups: Any = None) -> Any:
        check_choice("probability", self.probability, PROBABILITIES)
        check_is_fitted(self)
        if self.probability != "calibrated" and np.any(self.tilt_):
            raise ValueError(
                f"probability={self.probability!r} was set after a fit with tilted weights, whose boundary only the "
                f"calibrated link can place; fit again with probability={self.probability!r}."
            )
        return self._labelled(X, groups)

    def decision_function(self, X: Any, return_std: bool = False, groups: Any = None) -> Any:
        """Posterior mean of ``f = x'beta + intercept``, moved by the link: positive means the second class.

        The link moves it by ``offset_``, the further the less is known of a row; one with a curve (``loo_.bend``)
        divides it by what shrinks probabilities of such rows instead, so that rows have the order of their
        probabilities.

        With random effects a known group adds its effect; a new one, or none at all, leaves the mean alone.

        With ``return_std`` also the posterior standard deviation of what is returned. With more than two classes: an
        array (rows, classes), the centred logarithms of the probabilities; and with ``return_std``, where one model has
        a score for every class, the standard deviations of these scores, whose draws are those of ``sample``.
        """
        check_is_fitted(self)
        if not return_std:
            return self._read(X, groups, lambda rows: self._fitted.decision(rows, self.probability))
        if isinstance(self._fitted, Pairwise):
            raise ValueError(
                "decision_function(return_std=True) needs scores of the classes, and pairs of classes have none; use "
                "sample, or multi_class='sum-to-zero'."
            )
        spread_of(self.posterior_, "decision_function(return_std=True)")
        return self._read(X, groups, self._with_spread)

    def _with_spread(self, X: Any) -> tuple[Array, Array]:
        """The decision function with its standard deviation."""
        return self._fitted.decision(X, self.probability), self._fitted.spread(X, self.probability)

    @property
    def offset_(self) -> Any:
        """How far the calibrated link moves the boundary from f = 0; zero unless that clearly pays."""
        check_is_fitted(self)
        offsets = [model.offset(self.probability) for model in self._fitted.parts]
        return np.array(offsets) if isinstance(self._fitted, Pairwise) else offsets[0]

    @property
    def loo_(self) -> Any:
        """Leave-one-out log loss and error, the link's parameters, and ``max_kv``."""
        check_is_fitted(self)
        return self._fitted.loo

    @property
    def loo_probability_(self) -> Array:
        """Probabilities (n, k) of the classes of every training row, left out; NaN where its weight was zero."""
        check_is_fitted(self)
        p = np.full((len(self._used), len(self.classes_)), np.nan)
        p[self._used] = self._fitted.loo_probability
        return p

    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """Probability of each class, columns in the order of ``classes_``.

        With random effects a known group adds its effect, and a new one is averaged over what groups vary by.
        """
        p: Array = self._read(X, groups, lambda rows: self._fitted.probability(rows, self.probability))
        return p

    def predict(self, X: Any, groups: Any = None) -> Any:
        """The more probable class of each row: the argmax of ``predict_proba``."""
        check_is_fitted(self)
        if isinstance(self._fitted, Binary):  # the same to the last bit, without variances and link
            return self._read(X, groups, lambda rows: self.classes_[self._positive(rows)])
        return self._read(X, groups, lambda rows: self.classes_[self._most_probable(rows)])

    def _positive(self, X: Any) -> Any:
        return (self._fitted.decision(X, self.probability) > 0.0).astype(int)

    def _most_probable(self, X: Any) -> Any:
        return np.argmax(self._fitted.probability(X, self.probability), axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Share of rows whose class is predicted."""
        found, weight = computed(self.predict(X, groups)), vector(X, sample_weight)
        return float(accuracy_score(vector(X, y), found, sample_weight=weight))
