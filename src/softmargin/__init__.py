"""Bayesian support vector machines by data augmentation, behind the scikit-learn interface."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["BayesianSVC", "__version__"]


def __getattr__(name: str) -> Any:
    # estimators bring scikit-learn and numba with them: they are imported on first use, not with the package
    if name == "BayesianSVC":
        from softmargin.estimators.svc import BayesianSVC

        return BayesianSVC
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
