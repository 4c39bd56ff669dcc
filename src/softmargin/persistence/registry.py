"""What a saved file may hold: names of the file, and the classes of the package that they stand for.

Nothing else is ever built. A name stays as it is once files have it; a class that moves changes its home alone. A field
that is added to a class with a default is given it when an older file lacks it; every other change of fields, and a
change of a name, is a step of ``migrations``.
"""

from __future__ import annotations

import dataclasses
import importlib
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from softmargin.storage.records import Form, Table

__all__ = ["FUNCTIONS", "HOMES", "KERNELS", "TABLE", "form_of", "name_of", "resolved"]

_PARTS = {
    "core.loop": ["Outcome"],
    "core.precision": ["Coupled", "Coupling"],
    "core.prior": ["PriorMessage", "PriorState"],
    "designs.imputed": ["Cells"],
    "designs.kernel.features": ["KernelMap"],
    "designs.kernel.inducing": ["InducingMap"],
    "designs.kernel.kernels": ["Kernel"],
    "designs.sparse": ["Implicit"],
    "designs.splines": ["Spline"],
    "designs.standardize": ["Columns"],
    "engines.kernel.draws": ["KernelDraws"],
    "engines.vi.scale_mixture": ["MixedRoot"],
    "engines.vi.stochastic": ["SVIState", "Sums"],
    "estimators.assess.export": ["FitRows"],
    "estimators._indicators": ["Indicators"],
    "estimators.formula._terms": ["Terms"],
    "estimators.formula.formula": ["Formula"],
    "estimators.kernel": ["BayesianKernelClassifier"],
    "estimators.kernel_regressor": ["BayesianKernelRegressor"],
    "estimators.path": ["Path"],
    "estimators.svc": ["BayesianSVC"],
    "estimators.svr": ["BayesianSVR"],
    "estimators.tabular.tabular": ["Column", "Tabular"],
    "inference.choices": ["Candidate", "Entry", "Record"],
    "inference.readout": ["ClassHeldOut", "HeldOut"],
    "inference.regression_readout": ["HeldOutResponses", "RegressionLeaveOneOut", "Units"],
    "inference.settings": ["Fit", "Inclusion"],
    "inference.trials": ["Chosen"],
    "loo.class_link": ["ClassLeaveOneOut", "ClassLink"],
    "loo.bend": ["Bend"],
    "loo.link": ["LeaveOneOut"],
    "losses.check": ["Check"],
    "losses.complete_hinge": ["CompleteHinge"],
    "losses.crammer_singer": ["CrammerSinger"],
    "losses.epsilon": ["EpsilonInsensitive"],
    "losses.hinge": ["Hinge"],
    "losses.logit": ["Logit"],
    "losses.noisy_hinge": ["NoisyHinge"],
    "losses.probit": ["Probit"],
    "losses.squared": ["Squared"],
    "losses.squared_hinge": ["SquaredHinge"],
    "models.classes.crammer_singer": ["CrammerSingerFit"],
    "models.classes.pairwise": ["Pairwise", "Scores"],
    "models.classes.reader": ["ClassReader"],
    "models.classes.scores": ["SumToZeroFit"],
    "models.kernel.inducing": ["KernelStream", "Seen"],
    "models.kernel.models": ["KernelBinary", "KernelExpansions"],
    "models.kernel.regression": ["KernelRegression"],
    "models.observed": ["Observed"],
    "models.random_effects.effect": ["RandomEffect", "Smooth"],
    "models.random_effects.terms": ["_Curve", "_Groups"],
    "models.reader": ["Reader"],
    "models.regression": ["Likelihood", "Regression"],
    "models.stream": ["Scored", "Stream"],
    "models.two_class": ["LinearBinary"],
    "posterior.classes": ["ClassDraws", "ClassGaussian", "ClassPoint"],
    "posterior.coefficients": ["DrawsPosterior", "GaussianPosterior", "PointPosterior", "_LeadingRoot"],
    "posterior.variance_components": ["Components"],
    "priors.bridge": ["Bridge"],
    "priors.composed.covariances": ["HalfTCovariance", "InverseWishart"],
    "priors.g_prior": ["GPrior"],
    "priors.group_lasso": ["GroupLasso"],
    "priors.horseshoe": ["Horseshoe"],
    "priors.laplace_zero": ["LaplaceZero"],
    "priors.ridge": ["Ridge"],
    "priors.scaled": ["Centred", "Scaled"],
    "priors.scales": ["FixedScale", "HalfCauchy", "HalfT", "InverseGamma"],
    "priors.spike_slab": ["SpikeSlab"],
    "solvers.arrowhead": ["ArrowGaussian", "ArrowRoot"],
    "solvers.cg._root": ["CGRoot"],
    "solvers.cg._sketch": ["RowGaussian", "Sketch"],
    "solvers.cg.solver": ["CGNormal", "Iterative"],
    "solvers.gaussian": ["Gaussian"],
    "solvers.low_rank": ["EnlargedRoot"],
    "unknowns.covariates": ["CovariateLaw"],
    "unknowns.noise": ["Noise", "NoiseLaw", "NoiseState"],
}
KERNELS = (  # of scikit-learn's Gaussian processes
    "CompoundKernel",
    "ConstantKernel",
    "DotProduct",
    "ExpSineSquared",
    "Exponentiation",
    "Matern",
    "PairwiseKernel",
    "Product",
    "RBF",
    "RationalQuadratic",
    "Sum",
    "WhiteKernel",
)
FUNCTIONS = {name: ("softmargin.engines.kernel.draws", name) for name in ("hinge_link", "logit_link", "probit_link")}
HOMES = {name.lstrip("_"): (f"softmargin.{module}", name) for module, names in _PARTS.items() for name in names} | {
    f"sklearn.{name}": ("sklearn.gaussian_process.kernels", name) for name in KERNELS
}
# cached properties whose last bits depend on how the object came about, so that they are saved with it, by their names
# in files
_COMPUTED = {"Gaussian": {"root": "row_root"}}
# fields that say where numbers are, which a file does not: loaded ones are in memory
_PLACES = ("algebra",)
_NAMES = {home: name for name, home in (HOMES | FUNCTIONS).items()}
_STATES = ("_skl", "_sklearn", "_callback", "_memory")  # of scikit-learn, and what the next fit goes on from


@cache
def resolved(home: tuple[str, str]) -> Any:
    """The class or function at a place of the tables; modules are imported when a file needs them."""
    return getattr(importlib.import_module(home[0]), home[1])


def name_of(thing: Any) -> str | None:
    """The name of a class or function in files, if it has one."""
    home = (thing.__module__, thing.__qualname__)
    return _NAMES[home] if home in _NAMES and resolved(home) is thing else None


@cache
def form_of(name: str) -> Form:
    """How objects of the class of that name are saved."""
    kind = resolved(HOMES[name])
    if name == "KernelDraws":
        form = _record_form(kind, {})
        return Form(form.parts, lambda parts: _with_places(form.whole(parts)))
    if name == "Terms":
        return Form(kind.remembered, kind.recalled)
    if name == "FitRows":
        return Form(lambda rows: rows._asdict(), lambda parts: _without_predictors(kind(**parts)))
    if dataclasses.is_dataclass(kind):
        return _record_form(kind, _COMPUTED.get(name, {}), _PLACES)
    if issubclass(kind, tuple):
        return Form(lambda thing: thing._asdict(), lambda parts: kind(**parts))
    if issubclass(kind, BaseEstimator):
        return Form(_attributes, lambda parts: _estimator(kind, parts))
    return Form(lambda thing: thing.get_params(deep=False), lambda parts: kind(**parts))


def _record_form(kind: Any, computed: dict[str, str], places: tuple[str, ...] = ()) -> Form:
    """The fields of a dataclass but for ``places``, and what it has ``computed``."""
    fields = [field.name for field in dataclasses.fields(kind) if field.init and field.name not in places]

    def parts(thing: Any) -> dict[str, Any]:
        known = vars(thing)
        named = {name: name for name in fields} | computed
        return {name: known[own] for name, own in named.items() if own in known}

    def whole(parts: dict[str, Any]) -> Any:
        thing = kind(**{name: value for name, value in parts.items() if name not in computed})
        vars(thing).update({own: parts[name] for name, own in computed.items() if name in parts})
        texts = {name: value for name, value in parts.items() if isinstance(value, str) and name in vars(thing)}
        if any(vars(thing)[name] != value for name, value in texts.items()):  # one name for a list of names
            raise ValueError("a text where there was none")
        return thing

    return Form(parts, whole)


def _with_places(draws: Any) -> Any:
    """Draws of expansions whose rows are there; compiled products look them up without asking."""
    offset, index = np.asarray(draws.offset), np.asarray(draws.index)
    sizes = np.diff(offset)
    right = offset[0] == 0 and (sizes >= 0).all() and offset[-1] == len(index) == len(draws.coef)
    if not right or len(sizes) != draws.intercept.size or not ((index >= 0) & (index < draws.rows)).all():
        raise ValueError("draws of rows that are not there")
    return draws


def _without_predictors(rows: Any) -> Any:
    """What is kept of the training rows; their predictors are never written, and so never read."""
    if rows.X is not None:
        raise ValueError("rows of predictors")
    return rows


def _attributes(estimator: Any) -> dict[str, Any]:
    return {name: value for name, value in estimator.__getstate__().items() if not name.startswith(_STATES)}


def _estimator(kind: Any, parts: dict[str, Any]) -> Any:
    """An estimator with its parameters and what a fit left in it: names that are no methods or other attributes."""
    parameters = set(kind._get_param_names())
    given = signature(kind).parameters.items()
    defaults = {name: value.default for name, value in given if value.default is not value.empty}
    parts = {name: defaults[name] for name in parameters & set(defaults)} | parts  # of parameters that came later
    strange = [name for name in parts if name not in parameters and not _fitted_name(kind, name)]
    if strange:
        raise ValueError(f"{kind.__name__} has other attributes than {sorted({*strange, *parameters})}")
    estimator = kind(**{name: parts[name] for name in parameters})
    vars(estimator).update(parts)
    return estimator


def _fitted_name(kind: Any, name: str) -> bool:
    marked = (name.endswith("_") or name.startswith("_")) and not name.startswith(("__", *_STATES))
    return marked and name.isidentifier() and not hasattr(kind, name)


class _Registry(Table):
    """The tables of this module."""

    def name_of(self, thing: Any, kind: Any) -> str | None:
        return name_of(kind)

    def form_of(self, name: str) -> Form:
        return form_of(name)

    def function(self, name: str) -> Any:
        return resolved(FUNCTIONS[name])


TABLE = _Registry()
