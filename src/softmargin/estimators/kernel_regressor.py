"""The Bayesian kernel regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from softmargin.core.array import Array
from softmargin.core.validation import check_choice, fitted
from softmargin.estimators._callbacks import fit_tasks, managed
from softmargin.estimators._responses import LIKELIHOODS, Responding, numbers, response_units
from softmargin.estimators.assess.export import FitRows
from softmargin.estimators.fresh import fresh
from softmargin.estimators.kernel_machine import KernelMachine
from softmargin.estimators.linear import check_level
from softmargin.estimators.parameters import keywords
from softmargin.estimators.parameters.keywords import explained
from softmargin.inference.functions import INFERENCES
from softmargin.inference.notices import warn_of_fits
from softmargin.inference.regression_readout import Units
from softmargin.losses import Loss
from softmargin.models.fitted import spread_of
from softmargin.models.kernel.plan import Plan
from softmargin.models.kernel.regression import KernelRegression, fit_kernel_regression
from softmargin.models.observed import Observed
from softmargin.models.pointwise import of_responses
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams

__all__ = ["BayesianKernelRegressor"]

_GOES = {  # basis: inferences
    "auto": tuple(INFERENCES),
    "full": tuple(name for name in INFERENCES if name != "svi"),
    "inducing": ("vb", "svi"),
}


class BayesianKernelRegressor(Responding, RegressorMixin, KernelMachine):
    """Kernel regression that learns its width, its scale and its noise, with intervals for predictions.

    ``f = intercept + g``, g ~ N(0, scale^2 K) with a kernel matrix K of mean diagonal one, and errors ``y - f`` that
    have the densities of ``BayesianSVR``: normal, or flat within a band and exponential beyond. With the squared loss
    it is Gaussian process regression.

    Parameters
    ----------
    kernel : str, object or callable, default="rbf"
        "rbf" is ``exp(-|x - z|^2 / length^2)``, without a factor 2. Any other name that scikit-learn's
        ``pairwise_kernels`` knows, "precomputed", an object of ``sklearn.gaussian_process.kernels``, or a function
        of two matrices that returns the matrix of k.
    length_scale : float, "learn", "mean-distance" or None, default="learn"
        Length of "rbf", "laplacian" and of objects with one ``length_scale``; other kernels have none. "learn" picks
        a multiple of the mean distance between training rows by the evidence; None leaves an object as it is.
    likelihood : {"auto", "epsilon-insensitive", "squared"} or loss object, default="auto"
        The loss, as in ``BayesianSVR``: "auto" takes the one with the higher bound on the evidence, unless it
        predicts rows that are left out worse, and ``softmargin.losses.Check(0.9)`` is the quantile at 0.9.
    basis : {"auto", "full", "inducing"}, default="auto"
        "full" has a coefficient for every training row. "inducing" has coefficients on a few points that cover the
        rows, and any number of rows. "auto" is "inducing" for "svi", and for "vb" with more than 200 rows, and "full"
        otherwise.
    inference : {"vb", "map", "meanfield", "gibbs", "hmc", "svi"}, default="vb"
        As in ``BayesianSVR``; "svi" fits inducing points by batches of rows, at the noise that a variational fit of up
        to 5,000 of them has.
    epsilon, noise : float or "learn", default="learn"
        Half width of the band and noise level, as in ``BayesianSVR``, in standard deviations of y unless
        ``standardize=False``.
    n_inducing : int, "auto" or None, default="auto"
        Number of inducing points, at most. "auto" (or None) doubles them from 200 on while rows that are left out are
        predicted better by it, up to all rows, 1000, or what keeps a step under a second; for "svi" it is 200.
    scale : float or "learn", default="learn"
        Prior standard deviation of g, averaged over the training rows, in standard deviations of y unless
        ``standardize=False``.
    standardize : bool or "auto", default="auto"
        Whether the kernel sees columns divided by their standard deviation. "auto" asks the evidence where the spreads
        of dense columns are unlike, and leaves sparse ones alone. False leaves the units of y alone too.
    draws, warmup, chains, thin, max_iter, tol, engine_options, random_state, verbose
    max_time, checkpoint, checkpoint_every, resume, warm_start
        These fourteen are as in ``BayesianSVR``.

    Attributes
    ----------
    length_scale_ : float or None
        Length of the kernel.
    scale_, noise_ : float
        Prior scale and noise level in units of y: the fixed value, the mode, or exp of the posterior mean of its
        logarithm.
    epsilon_ : float
        Half width of the band in units of y, with the epsilon-insensitive loss.
    likelihood_ : str
        The loss that was used.
    standardize_ : bool
        Whether columns were rescaled.
    choices_ : data frame
        All that was tried: what, by which method, its score with its standard error, CPU seconds, and what was taken.
    loo_ : RegressionLeaveOneOut
        How well rows are predicted without themselves, as in ``BayesianSVR``.
    posterior_ : Posterior
        The posterior in the coordinates of the kernel features.
    trace_, n_iter_, converged_
        As in ``BayesianSVR``.

    References
    ----------
    Rasmussen and Williams (2006), chapter 2.

    Examples
    --------
    >>> import numpy as np
    >>> from softmargin import BayesianKernelRegressor
    >>> X = np.linspace(-3.0, 3.0, 60)[:, None]
    >>> y = np.sinc(X.ravel()) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> model = BayesianKernelRegressor().fit(X, y)
    >>> model.predict_interval(X[:2], level=0.9).shape
    (2, 2)
    """

    @explained(keywords.KERNEL_REGRESSOR)
    def __init__(
        self,
        kernel: Any = "rbf",
        length_scale: float | str | None = "learn",
        likelihood: str | Loss = "auto",
        basis: str = "auto",
        inference: str = "vb",
        *,
        epsilon: float | str = "learn",
        noise: float | str = "learn",
        n_inducing: int | str | None = "auto",
        scale: float | str = "learn",
        standardize: bool | str = "auto",
        draws: int = 1000,
        warmup: int = 1000,
        chains: int = 4,
        thin: int = 1,
        max_iter: int = 500,
        tol: float = 1e-6,
        engine_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
        max_time: float | None = None,
        checkpoint: Any = None,
        checkpoint_every: float = 30.0,
        resume: bool = False,
        warm_start: bool = False,
    ):
        self.kernel = kernel
        self.length_scale = length_scale
        self.likelihood = likelihood
        self.basis = basis
        self.inference = inference
        self.epsilon = epsilon
        self.noise = noise
        self.n_inducing = n_inducing
        self.scale = scale
        self.standardize = standardize
        self.draws = draws
        self.warmup = warmup
        self.chains = chains
        self.thin = thin
        self.max_iter = max_iter
        self.tol = tol
        self.engine_options = engine_options
        self.random_state = random_state
        self.verbose = verbose
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.warm_start = warm_start

    @managed
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianKernelRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, p)
            Predictors, or the kernel matrix (n, n) of the rows if ``kernel="precomputed"``.
        y : array of shape (n,)
            Numbers.
        sample_weight : array of shape (n,), optional
            Counts of the rows: a weight of 2 equals a repeated row, a weight of 0 leaves the row out.
        """
        with fresh(self):
            plan = self._checked_plan()
            X, y = self._training_rows(X, y, y_numeric=True)
            count = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            chosen = count > 0
            used = np.flatnonzero(chosen)
            rows = X if len(used) == X.shape[0] else X[used]
            y, count = numbers(y)[used], count[used]
            units, unit = response_units(y, count), 1.0
            if not self.standardize:
                units, unit = Units(units.centre, 1.0), units.spread
            each, end = fit_tasks(self, X, y)
            likelihoods = self._likelihoods(unit)
            with self._surviving(Streams.from_random_state(self.random_state), rows, y, count) as streams:
                task: dict[str, Any] = {"streams": streams, "callback": each, "at": used, "unit": unit}
                self._fitted: KernelRegression = fit_kernel_regression(
                    plan, likelihoods, units, rows, y, count, **task
                ).settled()
            self._seen = FitRows.of(rows, chosen)
            end()
            self._observed = Observed.of(y, count, count)
            self._publish()
            return self

    _said_of_rows = staticmethod(of_responses)

    def _numbered(self, y: Any) -> Any:
        return numbers(y)

    def _checked_plan(self) -> Plan:
        """Refuse what cannot be, before any work; return what is asked for."""
        self._check_run()
        check_choice("basis", self.basis, list(_GOES))
        check_choice("inference", self.inference, list(INFERENCES))
        if self.inference not in _GOES[self.basis]:
            known = " or ".join(repr(name) for name in _GOES[self.basis])
            raise ValueError(
                f"basis={self.basis!r} goes with inference={known}, not {self.inference!r}; use basis='auto'."
            )
        if not isinstance(self.likelihood, Loss):
            check_choice("likelihood", self.likelihood, list(LIKELIHOODS))
        self._check_noise()
        return Plan(**self._plan())

    def _publish(self) -> None:
        model = self._fitted
        found = model.fit
        self.likelihood_, self.choices_ = model.likelihood.name, model.record.table()
        self.posterior_, self.scale_, self.length_scale_ = found.posterior, found.scale, model.length
        self.standardize_ = model.rescaled
        self.trace_ = np.array(found.outcome.trace)
        self.n_iter_, self.converged_ = found.outcome.n_iter, found.outcome.converged
        self._publish_noise(model)
        warn_of_fits([found], self.inference, self.tol)
        self._warn_of_model()

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of f at each row; with ``return_std`` also its posterior standard deviation, without noise."""
        X = self._checked(X)
        if not return_std:
            return self._fitted.predicted(X)
        spread_of(self._fitted, "predict(return_std=True)")
        with one_blas_thread():
            f, v = self._fitted.moments(X)
        return f, np.sqrt(v)

    def predict_interval(self, X: Any, level: float = 0.95) -> Array:
        """Interval that contains a new y with probability ``level``: array of shape (n, 2).

        It covers the noise, the uncertainty of its level, and that of f (none for "map").
        """
        check_level(level)
        f, half = self._fitted.half_widths(self._checked(X), level)
        return np.column_stack((f - half, f + half))

    def summary(self) -> pd.DataFrame:
        """What was learned, in one row: length, scale, noise and band, likelihood, and how rows are predicted."""
        check_is_fitted(self)
        band = {} if fitted(self, "epsilon_") is None else {"epsilon": self.epsilon_}
        learned = {"length_scale": self.length_scale_, "scale": self.scale_, "noise": self.noise_} | band
        told = {"likelihood": self.likelihood_, "standardized": self.standardize_}
        scores = {f"loo_{name}": value for name, value in self.loo_._asdict().items() if name != "max_kv"}
        return pd.DataFrame([learned | told | scores | {"max_kv": self.loo_.max_kv}])
