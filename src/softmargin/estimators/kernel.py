"""The Bayesian kernel classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight

from softmargin.core.validation import (
    check_choice,
    check_numeric,
    check_rate,
    fitted,
    known_labels,
    labels_given,
    row_weights,
)
from softmargin.estimators._callbacks import fit_tasks, managed
from softmargin.estimators._streaming import check_first, check_later, rows_so_far
from softmargin.estimators.assess.export import FitRows
from softmargin.estimators.fresh import by_batches, fresh, unharmed
from softmargin.estimators.kernel_machine import PROBABILITIES, WITHOUT_SCALE, ClassMachine
from softmargin.estimators.linear import named_loss
from softmargin.estimators.parameters import keywords
from softmargin.estimators.parameters.keywords import explained
from softmargin.inference.choices import entropy
from softmargin.inference.functions import INFERENCES
from softmargin.losses import CompleteHinge, Hinge, Logit, Loss, NoisyHinge, Probit
from softmargin.models.kernel.fit import KernelRecipe, fit_kernel, fit_kernel_pairs
from softmargin.models.kernel.inducing import KernelStream
from softmargin.models.observed import Observed
from softmargin.models.remarks import remark_on_models, warn_of_models
from softmargin.refusals import refused
from softmargin.rows.streams import Streams
from softmargin.survival.fits import parameters_of

__all__ = ["BayesianKernelClassifier"]

_LOSSES: dict[str, Any] = {
    "hinge": Hinge,
    "logit": Logit,
    "probit": Probit,
    "noisy-hinge": NoisyHinge,
    "complete-hinge": CompleteHinge,
}
_SMOOTH = ("hinge", "logit", "probit")
_ANY = (*_SMOOTH, "loss object")
_GOES: dict[str, dict[str, tuple[str, ...]]] = {  # basis, inference: likelihoods
    "auto": dict.fromkeys(INFERENCES, _ANY) | {"gibbs": (*_LOSSES, "loss object")},
    "full": dict.fromkeys((name for name in INFERENCES if name != "svi"), _ANY) | {"gibbs": (*_LOSSES, "loss object")},
    "active": {"gibbs": _SMOOTH},
    "inducing": {"vb": _ANY, "svi": _ANY},
}


class BayesianKernelClassifier(ClassifierMixin, ClassMachine):
    """Kernel machine that learns its scale and its width and says how sure it is.

    ``f = intercept + g``, g ~ N(0, scale^2 K) with a kernel matrix K of mean diagonal one, and a hinge, logistic or
    probit loss on f. More than two classes are fitted by pairs, each pair with its own scale and width; the attributes
    of a fit are then lists, one entry per pair.

    Parameters
    ----------
    kernel : str, object or callable, default="rbf"
        "rbf" is ``exp(-|x - z|^2 / length^2)``, without a factor 2. Any other name that scikit-learn's
        ``pairwise_kernels`` knows, "precomputed", an object of ``sklearn.gaussian_process.kernels``, or a function
        of two matrices that returns the matrix of k.
    length_scale : float, "learn", "mean-distance" or None, default="learn"
        Length of "rbf", "laplacian" and of objects with one ``length_scale``; other kernels have none. "learn" picks
        a multiple of the mean distance between training rows by the leave-one-out score, and with ``basis="active"``
        draws the length from there on; None leaves an object as it is.
    likelihood : {"hinge", "logit", "probit", "noisy-hinge", "complete-hinge"} or loss object, default="hinge"
        The loss, or one of your own (``softmargin.losses.RowLoss``). "noisy-hinge" and "complete-hinge" act on a noisy
        predictor, with a prior of their own: the Bayesian and the complete support vector machine of Mallick, Ghosh and
        Ghosh (2005); they need ``basis="full"`` and "gibbs".
    basis : {"auto", "full", "active", "inducing"}, default="auto"
        "full" has a coefficient for every training row. "active" draws which rows have one, by births, deaths and
        swaps: Zhang, Dai, Wang and Jordan (2010), with ``inference="gibbs"``; their model on all rows, with a
        weaker prior, is "full" with the probit and "gibbs". "inducing" has coefficients on a few points that cover
        the rows, and any number of rows. "auto" is "inducing" for "svi", and for "vb" with more than 200 rows (of a
        pair of classes), and "full" otherwise.
    inference : {"vb", "map", "meanfield", "gibbs", "hmc", "svi"}, default="vb"
        As in ``BayesianSVC``; "svi" fits inducing points by batches of rows and has ``partial_fit``.
    max_active : int or None, default=None
        Largest number of active rows; None is all of them.
    n_inducing : int, "auto" or None, default="auto"
        Number of inducing points, at most. "auto" (or None) doubles them from 200 on while the leave-one-out score
        gains by it, up to all rows, 1000, or what keeps a step under a second; for "svi" it is 200.
    scale : float or "learn", default="learn"
        Prior standard deviation of g, averaged over the training rows; always "learn" with "noisy-hinge" and
        "complete-hinge", whose coefficients have a scale each.
    learning_rate : float or "auto", default="auto"
        The power of the likelihood of the hinge, not a step size. "auto" starts from 0.25, with rows weighted so that
        the classes weigh the same (``tilt_``) if that predicts left-out rows better, and goes on to 0.5 and 1 where
        refits of three folds say so. Where classes hardly overlap it may be 16, with a prior scale of 1/2: the
        posterior is then near ``SVC(C=8)``. A number is taken as it is, without tilting, and so are weights that are
        given.
    standardize : bool or "auto", default="auto"
        Whether the kernel sees columns divided by their standard deviation. "auto" asks the leave-one-out score where
        the spreads of dense columns are unlike, and leaves sparse ones alone.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    probability : {"calibrated", "pseudo", "sign"}, default="calibrated"
        What ``predict_proba`` returns, as in ``BayesianSVC``.
    draws, warmup, chains, thin, max_iter, tol, engine_options, random_state, verbose
    max_time, checkpoint, checkpoint_every, resume, warm_start
        These fourteen are as in ``BayesianSVC``.
    n_jobs : int or None, default=None
        Threads over pairs of classes. Results do not depend on it.

    Attributes
    ----------
    classes_ : array of shape (k,)
        Class labels.
    length_scale_ : float or None
        Length of the kernel; where it was drawn, exp of the posterior mean of its logarithm.
    length_scale_draws_ : array of shape (chains, draws)
        Draws of the length (``basis="active"``, ``length_scale="learn"``).
    scale_ : float
        Prior scale: the fixed value, the mode, or exp of the posterior mean of its logarithm; not there for draws under
        "noisy-hinge" and "complete-hinge", whose coefficients have a scale each.
    learning_rate_ : float
        Learning rate used.
    tilt_ : bool
        Whether rows were weighted by twice the share of the other class; probabilities are of the rows as they are.
    choices_ : data frame
        All that was tried: what, by which method, its score with its standard error, CPU seconds, and what was taken.
    standardize_ : bool
        Whether columns were rescaled.
    loo_ : LeaveOneOut
        Leave-one-out log loss and error, the link's parameters, and ``max_kv``.
    loo_probability_ : array of shape (n, k)
        Class probabilities of the training rows, each left out.
    posterior_ : Posterior or KernelDraws
        The posterior in the coordinates of the kernel features, or draws of expansions.
    active_ : array of shape (n,)
        Posterior probability of each training row having a coefficient (``basis="active"``).
    n_active_ : array of shape (chains, draws)
        How many rows had one, by draw (``basis="active"``).
    trace_, n_iter_, converged_, gap_
        As in ``BayesianSVC``.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from softmargin import BayesianKernelClassifier
    >>> X, y = make_moons(100, noise=0.2, random_state=0)
    >>> model = BayesianKernelClassifier().fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    @explained(keywords.KERNEL_CLASSIFIER)
    def __init__(
        self,
        kernel: Any = "rbf",
        length_scale: float | str | None = "learn",
        likelihood: str | Loss = "hinge",
        basis: str = "auto",
        inference: str = "vb",
        *,
        max_active: int | None = None,
        n_inducing: int | str | None = "auto",
        scale: float | str = "learn",
        learning_rate: float | str = "auto",
        standardize: bool | str = "auto",
        class_weight: Any = None,
        probability: str = "calibrated",
        draws: int = 1000,
        warmup: int = 1000,
        chains: int = 4,
        thin: int = 1,
        max_iter: int = 500,
        tol: float = 1e-6,
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
        self.kernel = kernel
        self.length_scale = length_scale
        self.likelihood = likelihood
        self.basis = basis
        self.inference = inference
        self.max_active = max_active
        self.n_inducing = n_inducing
        self.scale = scale
        self.learning_rate = learning_rate
        self.standardize = standardize
        self.class_weight = class_weight
        self.probability = probability
        self.draws = draws
        self.warmup = warmup
        self.chains = chains
        self.thin = thin
        self.max_iter = max_iter
        self.tol = tol
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
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BayesianKernelClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, p)
            Predictors, or the kernel matrix (n, n) of the rows if ``kernel="precomputed"``.
        y : array of shape (n,)
            Labels of any type, two or more different ones.
        sample_weight : array of shape (n,), optional
            Counts of the rows: a weight of 2 equals a repeated row, a weight of 0 leaves the row out.
        """
        with fresh(self):
            recipe = self._recipe()
            X, y = self._training_rows(X, labels_given(y))
            self.classes_, index = self._labels(y)
            return self._fit(recipe, X, y, index, sample_weight)

    @available_if(by_batches)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> BayesianKernelClassifier:
        """Add rows to a fit by batches; the first call fits as ``fit`` does and settles kernel and inducing points.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        classes : array, optional
            All labels that will ever come; the first call must have rows of each.
        """
        before = fitted(self, "_fitted")
        if before is None or not isinstance(before.parts[0], KernelStream):
            check_first(classes, y)
            return self.fit(X, y, sample_weight)
        check_later(self, classes)
        recipe = self._recipe()
        check_numeric(X)
        with unharmed(self):
            X, y = self._rows(X, y=labels_given(y), reset=False)
            return self._fit(recipe, X, y, known_labels(y, self.classes_), sample_weight, self._fitted)

    def _fit(
        self, recipe: KernelRecipe, X: Any, y: Any, index: Any, sample_weight: Any, before: Any = None
    ) -> BayesianKernelClassifier:
        """Fit checked rows, or add them to a fit before."""
        count = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        chosen = count > 0
        used = np.flatnonzero(chosen)
        each, end = fit_tasks(self, X, y) if before is None else ((lambda iteration, info: False), (lambda: None))
        self._rows_before = 0.0 if before is None else rows_so_far(self)
        if before is None:
            self._settled = parameters_of(self)
            weight = row_weights(count, index, self.classes_, self.class_weight)
            self._by_class = np.zeros(len(self.classes_))
            self._by_class[index[used]] = weight[used] / count[used]
        X = X if len(used) == X.shape[0] else X[used]
        own, count = index[used], count[used]
        weight = count * self._by_class[own]
        task: dict[str, Any] = {"at": used, "callback": each, "before": before}
        fitted: Any
        with self._surviving(Streams.from_random_state(self.random_state), X, own, count, weight) as streams:
            task["streams"] = streams
            if len(self.classes_) > 2:
                task["workers"] = self._workers()
                fitted = fit_kernel_pairs(recipe, X, own, count, weight, len(self.classes_), **task)
            else:
                fitted = fit_kernel(recipe, X, np.where(own == 1, 1.0, -1.0), count, weight, **task)
            self._fitted = fitted.settled()
        # a fit in batches has seen more rows than these
        self._seen = FitRows.of(X, chosen, self._by_class) if before is None else None
        end()
        self.loo_probability_ = np.full((len(index), len(self.classes_)), np.nan)
        self.loo_probability_[used] = self._fitted.loo_probability
        self._observed = Observed.of(own, count, weight)
        self._publish()
        if recipe.basis == "active":
            self._publish_active(used, own, len(index))
        if before is None:
            self._entropy = entropy(own, weight)
            warn_of_models(self._fitted, self._entropy)
        return self

    def _remark(self) -> str:
        return remark_on_models(self._fitted, self._entropy)

    def _recipe(self) -> KernelRecipe:
        """Refuse what cannot be, before any work; return what is asked for."""
        self._check_run()
        check_choice("probability", self.probability, PROBABILITIES)
        self._check_combination()
        check_rate(self.learning_rate)
        likelihood, loss = self._loss()
        return KernelRecipe(
            loss=loss,
            likelihood=likelihood,
            learning_rate=self.learning_rate,
            max_active=self.max_active,
            tilts=likelihood == "hinge" and self.class_weight is None and self.probability == "calibrated",
            **self._plan(),
        )

    def _loss(self) -> tuple[str, Any]:
        """Name of the loss, and what makes it."""
        if not isinstance(self.likelihood, Loss):
            return self.likelihood, _LOSSES[self.likelihood]
        name, loss = named_loss(self.likelihood, {name: _LOSSES[name] for name in _SMOOTH})
        return name, lambda: loss

    def _check_combination(self) -> None:
        """Refuse a likelihood, basis and inference that do not go together, and say what goes."""
        check_choice("basis", self.basis, list(_GOES))
        if not isinstance(self.likelihood, Loss):
            check_choice("likelihood", self.likelihood, list(_LOSSES))
        check_choice("inference", self.inference, sorted({name for goes in _GOES.values() for name in goes}))
        name = self._loss()[0]
        kind = name if name in _LOSSES else "loss object"
        if kind not in _GOES[self.basis].get(self.inference, ()):
            known = [
                f"basis={basis!r} with inference={inference!r}"
                for basis, ways in _GOES.items()
                for inference, likelihoods in ways.items()
                if kind in likelihoods
            ]
            given: dict[str, Any] = {"likelihood": self.likelihood, "basis": self.basis, "inference": self.inference}
            given = {name: repr(value) for name, value in given.items()} | {"known": ", ".join(known)}
            raise ValueError(refused("likelihood of a kernel", **given))
        if self.likelihood in WITHOUT_SCALE and self.scale != "learn":
            raise ValueError(
                f"scale={self.scale!r} is for coefficients that share one scale, and with likelihood="
                f"{self.likelihood!r} each has its own; leave scale at 'learn'."
            )
        if self.max_active is not None and self.basis != "active":
            raise ValueError("max_active is for basis='active'; leave it at None.")
