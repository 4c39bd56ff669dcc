"""The Bayesian support vector classifier."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassifierMixin

from softmargin.core.validation import (
    check_choice,
    check_rate,
    class_labels,
    costs_by_label,
    known_labels,
    labels_given,
    row_weights,
)
from softmargin.designs.classes import pair_weights
from softmargin.estimators._callbacks import fit_tasks, managed
from softmargin.estimators._classifying import PROBABILITIES, Classifying
from softmargin.estimators._streaming import StreamedLabels
from softmargin.estimators._tables import header_of
from softmargin.estimators._training import Training, training_rows
from softmargin.estimators.fresh import fresh
from softmargin.estimators.given.kinds import taken
from softmargin.estimators.linear import LinearMachine, named_loss
from softmargin.estimators.parameters import keywords
from softmargin.estimators.parameters.keywords import explained
from softmargin.inference.choices import entropy
from softmargin.inference.functions import INFERENCES
from softmargin.losses import Hinge, Logit, Loss, Probit, SquaredHinge
from softmargin.models.build import prior_of
from softmargin.models.classes.schemes import SCHEMES, fit_classes
from softmargin.models.classes.sum_to_zero import cost_table
from softmargin.models.observed import Observed
from softmargin.models.pointwise import of_labels
from softmargin.models.prior_choice import Selection
from softmargin.models.remarks import remark_on_models, warn_of_models
from softmargin.models.two_class import Recipe
from softmargin.rows.elsewhere import told_apart
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams

__all__ = ["BayesianSVC"]

_SIGNAL = 0.98  # share of the entropy of the class shares above which the hinge's evidence for a column is not trusted
_LOSSES: dict[str, Any] = {"hinge": Hinge, "squared-hinge": SquaredHinge, "logit": Logit, "probit": Probit}


class BayesianSVC(StreamedLabels, Classifying, Selection, ClassifierMixin, LinearMachine):
    """Support vector classifier that learns its penalty and says how sure it is.

    The pseudo-likelihood is ``exp(-2 c_i max(1 - y_i f_i, 0))`` with ``c_i = learning_rate * sample_weight *
    class_weight`` and ``f = x'beta + intercept``. With ``inference="map"``, ``learning_rate=1`` and
    ``Ridge(scale=s)`` the fit is that of ``LinearSVC(loss="hinge", C=2 * s**2)`` on the same columns.

    Parameters
    ----------
    prior : str, prior object or dict, default="ridge"
        Prior of the coefficients. ``Ridge(scale=...)`` fixes the scale, ``"ridge"`` learns it.
        A dict has priors by columns, as ``{"age": Ridge(0.5), "gene_*": "lasso", ...: "ridge"}``.
    inference : {"vb", "map", "meanfield", "gibbs", "hmc", "svi"}, default="vb"
        "vb" is the best Gaussian approximation, "map" the posterior mode with a certificate, "meanfield" the
        approximation of Luts and Ormerod (2014), "gibbs" exact draws, "hmc" exact draws in much less time, "svi" as
        "vb" by batches of rows, for rows that need not fit into memory (a memory-mapped array).
    likelihood : {"hinge", "squared-hinge", "logit", "probit"} or loss object, default="hinge"
        The loss, or one of your own (``softmargin.losses.RowLoss``). "logit" and "probit" are genuine likelihoods:
        logistic and probit regression with these priors. "squared-hinge" has no "gibbs".
    learning_rate : float or "auto", default="auto"
        The power of the likelihood, ``posterior = prior * likelihood**learning_rate``: how much a row counts against
        the prior. It is not a step size. 1 is the pseudo-likelihood of the papers; "auto" starts from 0.25, with rows
        as they are or tilted towards the rarer class, and takes another rate where rows left out are clearly
        predicted better (from k/32 on for k classes whose scores sum to zero). What was used is ``learning_rate_`` and
        ``tilt_``, what was tried ``choices_``.
    fit_intercept : bool, default=True
        Whether to fit an intercept; it is not shrunk.
    standardize : bool or "auto", default="auto"
        Whether columns are centred and scaled inside, so that fits do not depend on units. "auto" does so with dense
        columns, and divides sparse ones by the square root of their standard deviation. Results are always reported
        on the scale of the given columns.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    probability : {"calibrated", "pseudo", "sign"}, default="calibrated"
        What ``predict_proba`` returns: a link fitted on leave-one-out predictors; the normalised pseudo-likelihood
        averaged over the posterior; or the posterior probability of the sign of f.
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
        Options of the engine: for "map" ``algorithm`` ("newton", "em" or "anneal") and ``starts``; for "gibbs"
        ``scale_moves`` and ``temperature``; for "meanfield" ``accelerate``.
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
    multi_class : {"pairwise", "sum-to-zero", "crammer-singer"}, default="pairwise"
        What more than two classes become: a model for every pair, or one model whose class scores sum to zero (where
        the rate is chosen and no ``costs`` are given, with a term for the row's own class);
        "crammer-singer" counts the worst rival alone ("map" and "gibbs", ridge prior).
    costs : array or DataFrame of shape (k, k), or None, default=None
        ``costs[j, r]`` is the cost of deciding for class r where j is true; for two classes or "sum-to-zero". A data
        frame has the class labels as its index and columns, in any order.
    missing : {"model", "indicator"}, default="model"
        What NaN in X are. "model": unknowns; the columns get a joint normal model, and missing entries are averaged
        over (or drawn). "indicator": filled by the mean of the column and marked in a further column, which then has
        a coefficient of its own.
    random_effects : column name, RandomEffect, Smooth, list of them, or None, default=None
        Effects of groups and smooth functions. A name is a grouping column of X with an effect of its own for every
        group; such a column is taken out of X and is no predictor.

    Attributes
    ----------
    coef_ : array of shape (1, n_features)
        Posterior mean (mode for "map") of the slopes, on the scale of the given columns; with many classes one row per
        pair, or per class for "sum-to-zero".
    intercept_ : array of shape (1,)
        The same of the intercept.
    classes_ : array of shape (k,)
        Class labels.
    posterior_ : Posterior
        The posterior itself.

        With a model for every pair of many classes, numbers and arrays below have the pairs as their first dimension,
        in the order of the rows of ``coef_``; what has a length of its own is a list with one for each pair:
        ``posterior_``, ``trace_``, ``random_effects_`` and ``variance_components_``.
    scale_ : float
        Prior scale: the fixed value, that of the variational fit ("map"), or exp of the mean of its logarithm.
    learning_rate_ : float
        Learning rate used.
    tilt_ : bool
        Whether rows were weighted by twice the share of the other class; probabilities are of the rows as they are.
    choices_ : DataFrame
        All that was tried: what, how it was judged, its score with its standard error, its cost, and what was taken.
    offset_ : float
        Shift of the decision boundary by the calibrated link, at a row without variance; zero unless it clearly pays.
    random_effects_ : dict of DataFrame
        For every grouping factor the effects of its groups, in the units of the data, with their intervals.
    variance_components_ : DataFrame
        Standard deviations and correlations of these effects, with intervals and the intraclass correlation.
    imputed_ : DataFrame
        Missing entries of the training rows with their mean and standard deviation (two classes, where X has NaN).
    loo_ : LeaveOneOut
        Leave-one-out log loss and error, the link's parameters, and ``max_kv``.
    inclusion_ : array of shape (n_features,)
        Posterior inclusion probabilities (priors with point masses); ``chain_inclusion_`` has them by chain,
        ``inclusion_error_`` their Monte Carlo standard error, and ``indicator_gap_`` how often a column was in minus
        the average of its conditional probabilities, which should be small beside its own Monte Carlo error.
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

    @explained(keywords.SVC)
    def __init__(
        self,
        prior: Any = "ridge",
        inference: str = "vb",
        *,
        likelihood: str | Loss = "hinge",
        learning_rate: float | str = "auto",
        random_effects: Any = None,
        missing: str = "model",
        costs: Any = None,
        multi_class: str = "pairwise",
        fit_intercept: bool = True,
        standardize: bool | str = "auto",
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
        max_time: float | None = None,
        checkpoint: Any = None,
        checkpoint_every: float = 30.0,
        resume: bool = False,
        warm_start: bool = False,
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
        self.max_time = max_time
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.warm_start = warm_start

    @managed
    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> BayesianSVC:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix, data frame, or rows in files, of shape (n, p)
            Predictors. In files: a memory map, a path to a `.npy` or `.parquet` file or a directory of the latter, an
            Arrow dataset, or a function that returns blocks of rows (or pairs of rows and responses) each time. Rows
            in Parquet name y, ``sample_weight`` and ``groups`` by their columns, and X are the others.
        y : array of shape (n,)
            Labels of any type, two or more different ones.
        sample_weight : array of shape (n,), optional
            Counts of the rows: a weight of 2 equals a repeated row, a weight of 0 leaves the row out.
        groups : array of shape (n,), optional
            Group of every row: short for one random intercept, without a column of X for it. Predictions want the
            groups of their rows too, and warn where none are given.
        """
        with fresh(self), one_blas_thread():  # set once, for all that a fit does
            return self._fit(X, y, sample_weight, groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> BayesianSVC:
        prior = self._check_parameters()
        X, y, sample_weight, groups = taken(X, y, sample_weight, groups)
        rows = training_rows(self, X, labels_given(y), sample_weight, groups, encode=self._encoded)
        self._note_training(rows)
        weight = row_weights(rows.counts, rows.y, self.classes_, self.class_weight)
        self._note_weights(rows, weight)
        each, end = fit_tasks(self, X, y)
        task: dict[str, Any] = {"workers": self._workers(), "callback": each}
        costs = costs_by_label(self.costs, self.classes_)
        form: Any = {"scheme": self.multi_class, "costs": costs, "standardized": self.standardize}
        data: Any = (rows.X, rows.y, rows.counts, weight, rows.columns, len(self.classes_))
        known = told_apart(rows.X), *data[1:]
        with self._surviving(Streams.from_random_state(self.random_state), *known) as streams:
            self._fitted = fit_classes(self._recipe(prior, rows), *data, streams=streams, **(form | task)).settled()
        end()
        self._publish()
        self._entropy = entropy(rows.y, weight)
        if costs is not None:  # what an error of a row costs on average is how it counts in the link
            weight = pair_weights(rows.y, weight, cost_table(costs, len(self.classes_)), len(self.classes_)).sum(axis=0)
        self._observed = Observed.of(rows.y, rows.counts, weight)
        warn_of_models(self._fitted, self._entropy)
        return self

    _said_of_rows = staticmethod(of_labels)

    def _numbered(self, y: Any) -> Any:
        return known_labels(labels_given(y), self.classes_)

    def _encoded(self, y: Any) -> Any:
        self.classes_, index = class_labels(y)
        return index

    def _header(self) -> str:
        return header_of(self._fitted, named_loss(self.likelihood, _LOSSES)[0], self._entropy, self.probability)

    def _remark(self) -> str:
        return remark_on_models(self._fitted, self._entropy)

    def _says_nothing(self) -> bool:
        return named_loss(self.likelihood, _LOSSES)[0] == "hinge" and bool(self.loo_.score > _SIGNAL * self._entropy)

    def _recipe(self, prior: Any, rows: Training) -> Recipe:
        ours = self.class_weight is None and self.costs is None  # given weights are the user's decision
        tilts = ours and self.fit_intercept and self.probability == "calibrated"
        _, loss = named_loss(self.likelihood, _LOSSES)
        return self._plan(prior, loss, rows, learning_rate=self.learning_rate, tilts=tilts)

    def _check_parameters(self) -> Any:
        """Refuse what cannot be, before any work; return the prior."""
        self._check_run(INFERENCES, _LOSSES)
        check_choice("probability", self.probability, PROBABILITIES)
        check_choice("missing", self.missing, ["model", "indicator"])
        check_choice("multi_class", self.multi_class, SCHEMES)
        check_rate(self.learning_rate)
        return prior_of(self.prior)
