"""Bayesian support vector machines by data augmentation, behind the scikit-learn interface."""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("softmargin")
except PackageNotFoundError:  # source files on the path that were never installed
    __version__ = "0+unknown"
__all__ = [
    "BayesianKernelClassifier",
    "BayesianKernelRegressor",
    "BayesianSVC",
    "BayesianSVR",
    "Formula",
    "RandomEffect",
    "Smooth",
    "__version__",
    "compare",
    "fit",
    "load",
    "path",
    "save",
]
_HOMES = {
    "BayesianKernelClassifier": "softmargin.estimators.kernel",
    "BayesianKernelRegressor": "softmargin.estimators.kernel_regressor",
    "BayesianSVC": "softmargin.estimators.svc",
    "BayesianSVR": "softmargin.estimators.svr",
    "Formula": "softmargin.estimators.formula.formula",
    "RandomEffect": "softmargin.models.random_effects.effect",
    "Smooth": "softmargin.models.random_effects.effect",
    "compare": "softmargin.estimators.assess.compare",
    "fit": "softmargin.estimators.formula.formula",
    "load": "softmargin.persistence.files",
    "path": "softmargin.estimators.path",
    "save": "softmargin.persistence.files",
}


def __getattr__(name: str) -> Any:
    # estimators bring scikit-learn and numba with them: they are imported on first use, not with the package
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
