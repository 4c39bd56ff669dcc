"""The Bayesian support vector classifier."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from softmargin import diagnostics
from softmargin.designs.base import Array, Design
from softmargin.designs.standardize import design_for, standardize
from softmargin.engines.model import Model, require
from softmargin.estimators._callbacks import CallbackSupport, fit_tasks, managed
from softmargin.estimators.inference import INFERENCES, Fit, Settings, fit_vb
from softmargin.estimators.selection import Selection, always_mask
from softmargin.estimators.validation import binary_labels, check_choice, check_finite, check_numeric, row_weights
from softmargin.execution.blocks import Blocks, one_blas_thread
from softmargin.execution.streams import Purpose, Streams
from softmargin.losses.hinge import Hinge
from softmargin.posterior import DrawsPosterior, GaussianPosterior
from softmargin.priors.bridge import Bridge, Lasso
from softmargin.priors.horseshoe import Horseshoe
from softmargin.priors.laplace_zero import LaplaceZero
from softmargin.priors.ridge import Ridge
from softmargin.priors.spike_slab import SpikeSlab
from softmargin.solvers.cholesky import Cholesky
from softmargin.solvers.dual import Dual

__all__ = ["BayesianSVC"]

_PRIORS: dict[str, Any] = {
    "ridge": Ridge,
    "lasso": Lasso,
    "bridge": Bridge,
    "horseshoe": Horseshoe,
    "spike-slab": SpikeSlab,
    "laplace-zero": LaplaceZero,
}
_SOLVERS = {"cholesky": Cholesky, "dual": Dual}
_LOSSES = {"hinge": Hinge}
_RATES = (0.25, 0.5)  # candidates of learning_rate="auto"
_DISAGREE = 0.1  # range of an inclusion probability over chains that calls for a warning
_MARGIN = 0.01  # the larger one must be better by this much
_LEVEL = 5 if hasattr(CallbackSupport, "set_callbacks") else 4  # frames from a warning to the line that called fit
_TRUSTED = 0.7  # largest k v up to which the leave-one-out score may choose


class BayesianSVC(CallbackSupport, Selection, ClassifierMixin, BaseEstimator):
    """Support vector classifier that learns its penalty and says how sure it is.

    The pseudo-likelihood is ``exp(-2 c_i max(1 - y_i f_i, 0))`` with ``c_i = learning_rate * sample_weight *
    class_weight`` and ``f = x'beta + intercept``. With ``inference="map"``, ``learning_rate=1`` and
    ``Ridge(scale=s)`` the fit is that of ``LinearSVC(loss="hinge", C=2 * s**2)`` on the same columns.

    Parameters
    ----------
    prior : str or prior object, default="ridge"
        Prior of the coefficients. ``Ridge(scale=...)`` fixes the scale, ``"ridge"`` learns it.
    inference : {"vb", "map", "meanfield", "gibbs"}, default="vb"
        "vb" is the best Gaussian approximation, "map" the posterior mode with a certificate, "meanfield" the
        approximation of Luts and Ormerod (2014), "gibbs" exact draws.
    likelihood : {"hinge"}, default="hinge"
        The loss.
    learning_rate : float or "auto", default="auto"
        Weight of the pseudo-likelihood. 1 is that of the papers; "auto" picks 0.25 or 0.5 by the leave-one-out
        score, which gives better probabilities. The value used is ``learning_rate_``.
    fit_intercept : bool, default=True
        Whether to fit an intercept; it is not shrunk.
    standardize : bool, default=True
        Whether columns are centred and scaled inside, so that fits do not depend on units. Results are always
        reported on the scale of the given columns.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    probability : {"calibrated", "pseudo", "sign"}, default="calibrated"
        What ``predict_proba`` returns: a link fitted on leave-one-out predictors; the normalised pseudo-likelihood
        averaged over the posterior; or the posterior probability of the sign of f.
    draws, warmup, chains, thin : int
        Length of the chains of "gibbs": ``draws`` kept draws a chain, every ``thin``-th sweep after ``warmup``.
    max_iter : int, default=500
        Most iterations of the other engines.
    tol : float, default=1e-6
        Relative change of the objective at which they stop.
    solver : {"auto", "cholesky", "dual"}, default="auto"
        "dual" works in the space the rows span and is chosen when there are more columns than rows.
    engine_options : dict or None, default=None
        Options of the engine: for "map" ``algorithm`` ("newton" or "em") and ``starts``; for "gibbs"
        ``scale_moves``; for "meanfield" ``accelerate``.
    n_jobs : int or None, default=None
        Threads over chains or blocks of rows. Results do not depend on it.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the draws.
    verbose : int, default=0
        1 shows progress at once; 0 only on a terminal and only after two seconds.
    random_effects, missing, costs, multi_class
        Reserved for grouped data, missing values and many classes.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
        Posterior mean (mode for "map") of the slopes, on the scale of the given columns.
    intercept_ : array of shape (1,)
        The same of the intercept.
    classes_ : array of shape (2,)
        Class labels.
    posterior_ : Posterior
        The posterior itself.
    scale_ : float
        Prior scale: the fixed value, the mode, or exp of the posterior mean of its logarithm.
    learning_rate_ : float
        Learning rate used.
    offset_ : float
        Shift of the decision boundary by the calibrated link, ``loo_.b / loo_.a``; zero unless it clearly pays.
    loo_ : LeaveOneOut
        Leave-one-out log loss and error, the link's parameters, and ``max_kv``.
    inclusion_ : array of shape (n_features,)
        Posterior inclusion probabilities (priors with point masses); ``chain_inclusion_`` has them by chain.
    trace_ : array
        Objective, bound or mean log pseudo-likelihood of each iteration.
    gap_ : float
        Certified relative duality gap ("map").
    n_iter_, converged_
        Iterations, and whether the engine reached its tolerance (all draws for "gibbs").

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from softmargin import BayesianSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = BayesianSVC().fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        prior: Any = "ridge",
        inference: str = "vb",
        *,
        likelihood: str = "hinge",
        learning_rate: float | str = "auto",
        random_effects: Any = None,
        missing: str = "model",
        costs: Any = None,
        multi_class: str = "pairwise",
        fit_intercept: bool = True,
        standardize: bool = True,
        class_weight: Any = None,
        probability: str = "calibrated",
        draws: int = 1000,
        warmup: int = 1000,
        chains: int = 4,
        thin: int = 1,
        max_iter: int = 500,
        tol: float = 1e-6,
        solver: str = "auto",
        engine_options: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.prior = prior
        self.inference = inference
        self.likelihood = likelihood
        self.learning_rate = learning_rate
        self.random_effects = random_effects
        self.missing = missing
        self.costs = costs
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.class_weight = class_weight
        self.probability = probability
        self.draws = draws
        self.warmup = warmup
        self.chains = chains
        self.thin = thin
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.engine_options = engine_options
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    @managed
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianSVC:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, p)
            Predictors.
        y : array of shape (n,)
            Two labels of any type.
        sample_weight : array of shape (n,), optional
            Counts of the rows: a weight of 2 equals a repeated row, a weight of 0 leaves the row out.
        """
        before = self.__dict__.copy()
        for name in [name for name in before if name.endswith("_") and not name.startswith("_")]:
            del self.__dict__[name]  # nothing of an earlier fit survives
        try:
            return self._fit(X, y, sample_weight)
        except BaseException:  # a fit that fails leaves the estimator as it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> BayesianSVC:
        prior = self._check_parameters()
        check_numeric(X)
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, order="C", ensure_all_finite=False, ensure_min_samples=2
        )
        names = getattr(self, "feature_names_in_", None)
        check_finite(X, names)
        self.classes_, sign = binary_labels(y)
        count = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        weight = row_weights(count, sign, self.classes_, self.class_weight)
        if not (count > 0).all():
            used = count > 0
            X, sign, count, weight = X[used], sign[used], count[used], weight[used]
        columns = standardize(X, count, intercept=self.fit_intercept, active=self.standardize)
        if not len(columns.keep) and not self.fit_intercept:
            raise ValueError("all columns of X are zero and fit_intercept=False, so there is nothing to fit.")
        self._note_constant_columns(columns.keep, names)
        each, end = fit_tasks(self, X, y)
        with one_blas_thread():
            design = design_for(X, columns)
            solver = self._choose_solver(design, prior)
            coordinates = solver.coordinates(design)
            free = np.zeros(coordinates.design.shape[1], dtype=bool)
            free[: int(self.fit_intercept)] = True
            settings = Settings(
                columns,
                coordinates,
                part=np.minimum(1.0, 1.0 / count),
                weight=weight,
                draws=self.draws,
                warmup=self.warmup,
                chains=self.chains,
                thin=self.thin,
                max_iter=self.max_iter,
                tol=self.tol,
                verbose=int(self.verbose),
                callback=each,
                options=dict(self.engine_options or {}),
            )
            streams = Streams.from_random_state(self.random_state)
            blocks = Blocks(coordinates.design, sign, weight, workers=self._workers())
            model = Model(
                blocks, _LOSSES[self.likelihood](), self._bind(prior, free, columns, len(sign)), free, streams
            )
            try:
                fit = self._run(model, settings)
            finally:
                blocks.close()
        end()
        self._publish(fit)
        return self

    def _check_parameters(self) -> Any:
        """Refuse what cannot be, before any work; return the prior."""
        check_choice("inference", self.inference, list(INFERENCES))
        check_choice("likelihood", self.likelihood, list(_LOSSES))
        check_choice("solver", self.solver, ["auto", *_SOLVERS])
        check_choice("probability", self.probability, ["calibrated", "pseudo", "sign"])
        check_choice("missing", self.missing, ["model"])
        check_choice("multi_class", self.multi_class, ["pairwise"])
        if self.random_effects is not None or self.costs is not None:
            raise ValueError("random_effects and costs are not available in this version; leave them at None.")
        for name, least in (("draws", 2), ("warmup", 0), ("chains", 1), ("thin", 1), ("max_iter", 1)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}.")
        if not (isinstance(self.tol, Real) and self.tol > 0):
            raise ValueError(f"tol must be a positive number; got {self.tol!r}.")
        rate = self.learning_rate
        if rate != "auto" and not (isinstance(rate, Real) and 0 < rate < np.inf):
            raise ValueError(f"learning_rate must be a positive number or 'auto'; got {rate!r}.")
        if not isinstance(self.engine_options, (dict, type(None))):
            raise ValueError(f"engine_options must be a dict or None; got {self.engine_options!r}.")
        if isinstance(self.prior, str):
            check_choice("prior", self.prior, list(_PRIORS))
            return _PRIORS[self.prior]()
        if not hasattr(self.prior, "bind") or isinstance(self.prior, type):
            raise ValueError(f"prior must be one of {list(_PRIORS)} or a prior object; got {self.prior!r}.")
        return self.prior

    def _note_constant_columns(self, keep: Any, names: Any) -> None:
        dropped = np.setdiff1d(np.arange(self.n_features_in_), keep)
        if len(dropped):
            shown = ", ".join(str(names[j]) if names is not None else str(j) for j in dropped[:5])
            more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
            warnings.warn(
                f"{len(dropped)} constant column(s) carry no information and get the coefficient 0: {shown}{more}.",
                UserWarning,
                stacklevel=_LEVEL,
            )

    def _bind(self, prior: Any, free: Any, columns: Any, rows: int) -> Any:
        if not hasattr(prior, "always_include"):
            return prior.bind(free, rows)
        names = getattr(self, "feature_names_in_", None)
        return prior.bind(free, rows, always=always_mask(prior.always_include, columns, names))

    def _choose_solver(self, design: Design, prior: Any) -> Any:
        n, q = design.shape
        wide = q > n and getattr(prior, "isotropic", False)
        solver = _SOLVERS[("dual" if wide else "cholesky") if self.solver == "auto" else self.solver]()
        require(solver, loss=None, prior=prior)
        return solver

    def _workers(self) -> int:
        if self.n_jobs is None:
            return 1
        from joblib import effective_n_jobs

        return int(effective_n_jobs(self.n_jobs))

    def _run(self, model: Model, settings: Settings) -> Fit:
        """Settle the learning rate by leave-one-out scores of quick fits, then run the chosen inference."""
        if self.learning_rate != "auto":
            self.learning_rate_ = float(self.learning_rate)
            return INFERENCES[self.inference](model.with_weight(self.learning_rate_ * model.c), settings, None)
        quiet = replace(settings, options={}, callback=None, link_tol=1e-6)
        models = [model.with_weight(rate * model.c) for rate in _RATES]
        # a prior with point masses has no Gaussian face; the learning rate is then settled under a normal prior
        plain = None if hasattr(model.prior, "gaussian") else Ridge().bind(model.free, len(model.y))
        low, high = (fit_vb(each if plain is None else each.with_prior(plain), quiet) for each in models)
        better = high.loo.objective < low.loo.objective - _MARGIN
        chosen = int(better and high.loo.max_kv <= _TRUSTED)
        self.learning_rate_ = _RATES[chosen]
        first = (low, high)[chosen] if plain is None else None
        return INFERENCES[self.inference](models[chosen], settings, first)

    def _publish(self, fit: Fit) -> None:
        self.posterior_ = fit.posterior
        coef, intercept = fit.posterior.user_mean()
        self.coef_, self.intercept_ = coef[None, :], np.array([intercept])
        self.scale_, self.loo_ = fit.scale, fit.loo
        self.trace_ = np.array(fit.outcome.trace)
        self.n_iter_, self.converged_ = fit.outcome.n_iter, fit.outcome.converged
        if fit.gap is not None:
            self.gap_ = fit.gap
        if fit.inclusion is not None:
            lead, keep = int(self.fit_intercept), fit.posterior.columns.keep
            self.chain_inclusion_ = np.zeros((len(fit.inclusion), self.n_features_in_))
            self.chain_inclusion_[:, keep] = fit.inclusion[:, lead:]
            self.inclusion_ = self.chain_inclusion_.mean(axis=0)
        if fit.outcome.interrupted:
            warnings.warn(
                f"{self.inference} was stopped after {self.n_iter_} iterations; what was computed is kept.",
                ConvergenceWarning,
                stacklevel=_LEVEL,
            )
        elif not self.converged_:
            warnings.warn(
                f"{self.inference} did not converge: relative change {fit.outcome.change:.1e} after {self.n_iter_} "
                f"iterations, tolerance {self.tol:.0e}; raise max_iter.",
                ConvergenceWarning,
                stacklevel=_LEVEL,
            )
        elif fit.inclusion is not None and len(fit.inclusion) > 1:
            spread = np.ptp(self.chain_inclusion_, axis=0)
            if spread.max() > _DISAGREE:
                warnings.warn(
                    f"the chains disagree on inclusion probabilities by up to {spread.max():.2f} (column "
                    f"{int(spread.argmax())}); raise draws and warmup.",
                    ConvergenceWarning,
                    stacklevel=_LEVEL,
                )
        elif isinstance(fit.posterior, DrawsPosterior):
            diagnostics.warn_if_not_mixed(fit.posterior, _LEVEL + 1)

    def _new_design(self, X: Any) -> Design:
        check_is_fitted(self)
        X = validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, order="C", ensure_all_finite=False, reset=False
        )
        check_finite(X, getattr(self, "feature_names_in_", None))
        return design_for(X, self.posterior_.columns)

    def decision_function(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of ``f = x'beta + intercept`` plus ``offset_``; positive means the second class.

        With ``return_std`` also the posterior standard deviation of f.
        """
        design = self._new_design(X)
        with one_blas_thread():
            if not return_std:
                return self.posterior_.predictor(design) + self.offset_
            f, v = self._spread("decision_function(return_std=True)").moments(design)
        return f + self.offset_, np.sqrt(v)

    @property
    def offset_(self) -> float:
        """How far the calibrated link moves the boundary from f = 0; zero unless that clearly pays."""
        check_is_fitted(self)
        return self.loo_.b / self.loo_.a if self.probability == "calibrated" else 0.0

    def _spread(self, what: str) -> GaussianPosterior:
        """The posterior, where it has a spread."""
        if not isinstance(self.posterior_, GaussianPosterior):
            raise ValueError(
                f"{what} needs a posterior, and inference='map' gives a point; fit with inference='vb' or 'gibbs'."
            )
        return self.posterior_

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, columns in the order of ``classes_``."""
        design = self._new_design(X)
        with one_blas_thread():
            f, v = self.posterior_.moments(design)
        check_choice("probability", self.probability, ["calibrated", "pseudo", "sign"])
        if self.probability == "calibrated":
            positive = self.loo_.link.probability(f, v)
        elif self.probability == "pseudo":
            positive = diagnostics.pseudo_probability(f, v, self.learning_rate_)
        else:
            positive = diagnostics.sign_probability(f, v)
        return np.column_stack((1.0 - positive, positive))

    def predict(self, X: Any) -> Any:
        """The more probable class of each row: the argmax of ``predict_proba``."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def sample(self, X: Any, n: int = 100, random_state: Any = None) -> Array:
        """Posterior draws of f: array of shape (rows of X, n)."""
        design = self._new_design(X)
        seed = self.random_state if random_state is None else random_state
        with one_blas_thread():
            rng = Streams.from_random_state(seed).at(Purpose.PREDICT)
            return self._spread("sample").sample(design, rng, n)

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Coefficients on the scale of the given columns: mean, sd, interval, P(> 0), and for draws ess and r_hat."""
        check_is_fitted(self)
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, as in 0.95; got {level!r}.")
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        if isinstance(self.posterior_, GaussianPosterior):
            table = self.posterior_.table(level)
        else:
            table = {"mean": np.concatenate((self.intercept_, self.coef_[0]))}
        frame = pd.DataFrame(table, index=pd.Index(["Intercept", *names], name="feature"))
        if hasattr(self, "inclusion_"):
            frame["inclusion"] = np.concatenate(([1.0], self.inclusion_))
            frame["inclusion_range"] = np.concatenate(([0.0], np.ptp(self.chain_inclusion_, axis=0)))
        if isinstance(self.posterior_, DrawsPosterior):
            frame = frame.join(diagnostics.mixing_table(self.posterior_, frame.index))
        return frame if self.fit_intercept else frame.iloc[1:]

    def to_arviz(self, draws: int = 1000) -> Any:
        """The posterior as ArviZ InferenceData; for approximations, ``draws`` draws from them, marked as such."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        posterior = self._spread("to_arviz")
        return diagnostics.to_arviz(posterior, list(names), self.inference, draws, self.random_state)
