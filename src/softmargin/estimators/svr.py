"""The Bayesian support vector regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import check_choice
from softmargin.estimators._callbacks import fit_tasks, managed
from softmargin.estimators._responses import LIKELIHOODS, Responding, numbers, response_units
from softmargin.estimators._streaming import StreamedNumbers
from softmargin.estimators._training import training_rows
from softmargin.estimators.fresh import fresh
from softmargin.estimators.given.dask import computed
from softmargin.estimators.given.kinds import taken, vector
from softmargin.estimators.linear import LinearMachine, check_level
from softmargin.estimators.parameters import keywords
from softmargin.estimators.parameters.keywords import explained
from softmargin.inference.functions import INFERENCES
from softmargin.inference.notices import warn_of_fits
from softmargin.inference.regression_readout import Units
from softmargin.losses import Loss
from softmargin.models.build import prior_of
from softmargin.models.fitted import spread_of
from softmargin.models.observed import Observed
from softmargin.models.pointwise import of_responses
from softmargin.models.prior_choice import Selection
from softmargin.models.regression import Regression, fit_regression
from softmargin.rows.elsewhere import told_apart
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams

__all__ = ["BayesianSVR"]


class BayesianSVR(StreamedNumbers, Responding, Selection, RegressorMixin, LinearMachine):
    """Support vector regression that learns its penalty and its noise, with intervals for coefficients and predictions.

    Errors ``e = y - f`` have the density ``exp(-2 max(|e| - epsilon, 0)/nu)/(2 epsilon + nu)``: flat within epsilon,
    exponential beyond; or they are normal. The noise level nu is learned from the normalised density, so it needs no
    tuning, and the evidence tells which of the two densities the errors have.

    Parameters
    ----------
    prior : str, prior object or dict, default="ridge"
        "ridge", "lasso", "bridge" or "horseshoe"; "spike-slab" ("gibbs") or "laplace-zero" ("gibbs" and "vb"), which
        leave columns out; or a prior object with a scale of your choice.
        A dict has priors by columns, as ``{"age": Ridge(0.5), "gene_*": "lasso", ...: "ridge"}``.
    inference : {"vb", "map", "meanfield", "gibbs", "hmc", "svi"}, default="vb"
        "vb" is the best Gaussian approximation, "map" the posterior mode, "meanfield" the approximation of Luts and
        Ormerod (2014), "gibbs" exact draws, "hmc" exact draws that follow each other with less correlation, "svi" as
        "vb" by batches of rows, at the noise that a variational fit of up to 5,000 of them has.
    likelihood : {"auto", "epsilon-insensitive", "squared"} or loss object, default="auto"
        The loss; "squared" is normal noise with standard deviation nu. "auto" fits both by "vb" and takes the
        one with the higher bound on the evidence, or "squared" where rows that are left out have a squared error that
        is smaller by more than a standard error; with a number for ``epsilon`` it is the epsilon-insensitive loss.
        A loss object, such as ``softmargin.losses.Check(0.9)`` for the quantile at 0.9, is taken as it is, its numbers
        in standard deviations of y if ``standardize``.
    epsilon : float or "learn", default="learn"
        Half width of the band in which errors cost nothing, in standard deviations of y if ``standardize``. "learn"
        fits it to the shape of the errors (zero for Laplace errors, about one standard deviation for normal ones),
        which is what makes intervals cover as they should; "vb" and "meanfield" take its best value, "map" that of
        "vb", and "gibbs" and "hmc" draw it.
    noise : float or "learn", default="learn"
        Noise level nu, in standard deviations of y if ``standardize``; a number needs a loss that is given.
    random_effects : column name, position, RandomEffect, Smooth or list of these, default=None
        Effects of groups, and smooth functions of columns.
    missing : {"model", "indicator"}, default="model"
        NaN in X: part of the model, or filled with the mean and marked by one more column each.
    fit_intercept : bool, default=True
        Whether to fit an intercept; it is not shrunk.
    standardize : bool or "auto", default="auto"
        Whether columns and y are centred and scaled inside, so that fits do not depend on units. "auto" does so with
        dense columns, and divides sparse ones by the square root of their standard deviation. Results are always
        reported in the units of the data.
    draws : int, default=1000
        Draws that "gibbs" and "hmc" keep, per chain.
    warmup : int, default=1000
        Sweeps per chain that come first and are not kept; "hmc" makes at most 100.
    chains : int, default=4
        Number of chains.
    thin : int, default=1
        Sweeps per draw that is kept.
    max_iter : int, default=500
        Most iterations of the other engines.
    tol : float, default=1e-6
        Relative change of the objective at which they stop.
    solver : {"auto", "cholesky", "dual", "cg"}, default="auto"
        "dual" works in the space the rows span and is chosen when there are more columns than rows; "cg" works with
        products of a sparse X alone and is chosen when dense matrices would be too large (ridge prior).
    engine_options : dict or None, default=None
        For "map" ``starts``, ``accelerate`` and ``smoothing``; for "meanfield" ``accelerate``; for "gibbs" and "hmc"
        ``scale_moves``.
    n_jobs : int or None, default=None
        Threads over chains or blocks of rows. Results do not depend on it.
    random_state : int, Generator, RandomState or None, default=None
        Seed of the draws.
    verbose : int, default=0
        1 shows progress at once; 0 only on a terminal and only after two seconds.
    max_time : float or None, default=None
        Seconds after which a fit ends and keeps what was computed, as Ctrl-C does.
    checkpoint : str or None, default=None
        Folder, one for each fit, in which the state of a fit is kept, so that it survives its process.
    checkpoint_every : float, default=30.0
        Seconds between two states; no more are lost.
    resume : bool, default=False
        Go on from the checkpoint, where there is one: the result is that of a fit that was never stopped.
    warm_start : bool, default=False
        Fit again from where the last fit ended: chains go on, and climbs start there.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
        Posterior mean (mode for "map") of the slopes.
    intercept_ : array of shape (1,)
        The same of the intercept.
    posterior_ : Posterior
        The posterior itself.
    scale_ : float
        Prior scale in units of y: the fixed value, the mode, or exp of the posterior mean of its logarithm.
    noise_ : float
        Noise level nu in units of y, in the same sense.
    epsilon_ : float
        Half width of the band in units of y, with the epsilon-insensitive loss; its posterior mean for "gibbs" and
        "hmc".
    likelihood_ : str
        The loss that was used.
    choices_ : DataFrame
        What was tried to choose it: evidence bound, leave-one-out log density and squared error with their standard
        errors, and seconds of each loss; empty where it was given.
    loo_ : RegressionLeaveOneOut
        How well rows are predicted without themselves, in closed form: ``rmse``, mean ``log_density``, ``r2`` against
        the mean of the other rows, and ``max_kv``, the largest share of a predictor's precision that its own row
        supplies. For "map" it is that of the variational fit.
    inclusion_ : array of shape (n_features,)
        Posterior probability that a column is in, for priors that leave columns out.
    inclusion_error_, chain_inclusion_, indicator_gap_ : arrays
        Its Monte Carlo standard error, its value for each chain, and the frequency of the indicator minus it.
    trace_ : array
        Objective, bound or mean log likelihood of each iteration.
    n_iter_, converged_
        Iterations, and whether the engine reached its tolerance (all draws for "gibbs" and "hmc").

    References
    ----------
    Polson and Scott (2011), section 2.2.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from softmargin import BayesianSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianSVR().fit(X, y)
    >>> model.predict_interval(X[:3], level=0.9).shape
    (3, 2)
    """

    @explained(keywords.SVR)
    def __init__(
        self,
        prior: Any = "ridge",
        inference: str = "vb",
        *,
        likelihood: str | Loss = "auto",
        epsilon: float | str = "learn",
        noise: float | str = "learn",
        random_effects: Any = None,
        missing: str = "model",
        fit_intercept: bool = True,
        standardize: bool | str = "auto",
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
        max_time: float | None = None,
        checkpoint: Any = None,
        checkpoint_every: float = 30.0,
        resume: bool = False,
        warm_start: bool = False,
    ):
        self.prior = prior
        self.inference = inference
        self.likelihood = likelihood
        self.epsilon = epsilon
        self.noise = noise
        self.random_effects = random_effects
        self.missing = missing
        self.fit_intercept = fit_intercept
        self.standardize = standardize
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
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.warm_start = warm_start

    @managed
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> BayesianSVR:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix, data frame, or rows in files, of shape (n, p)
            Predictors. In files: a memory map, a path to a `.npy` or `.parquet` file or a directory of the latter, an
            Arrow dataset, or a function that returns blocks of rows (or pairs of rows and responses) each time. Rows
            in Parquet name y, ``sample_weight`` and ``groups`` by their columns, and X are the others.
        y : array of shape (n,)
            Numbers.
        sample_weight : array of shape (n,), optional
            Counts of the rows: a weight of 2 equals a repeated row, a weight of 0 leaves the row out.
        groups : array of shape (n,), optional
            Group of every row: short for one random intercept, without a column of X for it. Predictions want the
            groups of their rows too, and warn where none are given.
        """
        with fresh(self), one_blas_thread():  # set once, for all that a fit does
            return self._fit(X, y, sample_weight, groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> BayesianSVR:
        prior = self._check_parameters()
        X, y, sample_weight, groups = taken(X, y, sample_weight, groups)
        rows = training_rows(self, X, y, sample_weight, groups, encode=numbers, y_numeric=True)
        self._note_training(rows)
        self._note_shared(rows, rows.counts)
        units, unit = response_units(rows.y, rows.counts, centred=self.fit_intercept), 1.0
        if not self.standardize:
            units, unit = Units(0.0, 1.0), units.spread
        likelihoods = self._likelihoods(unit)
        each, end = fit_tasks(self, X, y)
        task: dict[str, Any] = {"workers": self._workers(), "callback": each}
        recipe = self._plan(prior, likelihoods[0].loss, rows)
        data: Any = (rows.X, rows.y, rows.counts, rows.columns)
        known = told_apart(rows.X), *data[1:]
        with self._surviving(Streams.from_random_state(self.random_state), *known) as streams:
            self._fitted = fit_regression(recipe, likelihoods, units, *data, streams=streams, **task).settled()
        end()
        self._observed = Observed.of(rows.y, rows.counts, rows.counts)
        self._publish()
        return self

    def _check_parameters(self) -> Any:
        """Refuse what cannot be, before any work; return the prior."""
        self._check_run(INFERENCES, LIKELIHOODS)
        check_choice("missing", self.missing, ["model", "indicator"])
        self._check_noise()
        return prior_of(self.prior)

    _said_of_rows = staticmethod(of_responses)

    def _numbered(self, y: Any) -> Any:
        return numbers(y)

    def _publish(self) -> None:
        model: Regression = self._fitted
        found = model.fit
        self.likelihood_, self.choices_ = model.likelihood.name, model.record.table()
        self.posterior_, self.scale_ = found.posterior, found.scale
        coef, intercept = found.posterior.user_mean()
        self.coef_, self.intercept_ = coef[None, :], np.array([intercept])
        self.trace_ = np.array(found.outcome.trace)
        self.n_iter_, self.converged_ = found.outcome.n_iter, found.outcome.converged
        self._publish_noise(model)
        self._publish_terms([model], lambda values: values[0], model.noise_variance)
        chosen = model.inclusion()
        if chosen is not None:
            self.chain_inclusion_, self.inclusion_ = chosen.chains, chosen.chains.mean(axis=0)
            self.inclusion_error_, self.indicator_gap_ = chosen.error, chosen.gap.mean(axis=0)
        warn_of_fits([found], self.inference, self.tol)
        self._warn_of_model()

    def predict(self, X: Any, return_std: bool = False, groups: Any = None) -> Any:
        """Posterior mean of f at each row; with ``return_std`` also its posterior standard deviation, without noise.

        With random effects a known group adds its effect; a new one leaves the mean alone and adds to the spread.
        """
        check_is_fitted(self)
        if not return_std:
            return self._read(X, groups, lambda rows: self._fitted.predicted(rows))
        spread_of(self.posterior_, "predict(return_std=True)")
        return self._read(X, groups, self._with_spread)

    def _with_spread(self, X: Any) -> tuple[Array, Array]:
        """The posterior mean of f with its standard deviation."""
        with one_blas_thread():
            f, v = self._fitted.moments(X)
        return f, np.sqrt(v)

    def predict_interval(self, X: Any, level: float = 0.95, groups: Any = None) -> Array:
        """Interval that contains a new y with probability ``level``: array of shape (n, 2).

        It covers the noise, the uncertainty of its level, and that of f (none for "map").
        """
        check_level(level)
        found: Array = self._read(X, groups, lambda rows: self._interval(rows, level))
        return found

    def _interval(self, X: Any, level: float) -> Array:
        f, half = self._fitted.half_widths(X, level)
        return np.column_stack((f - half, f + half))

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Share of the variance of y that is predicted, R^2."""
        found, weight = computed(self.predict(X, groups=groups)), vector(X, sample_weight)
        return float(r2_score(vector(X, y), found, sample_weight=weight))
