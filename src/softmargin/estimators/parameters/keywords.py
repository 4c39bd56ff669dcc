"""Keywords that users of other estimators bring, and what to write in their place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["KERNEL_CLASSIFIER", "KERNEL_REGRESSOR", "SVC", "SVR", "explained"]

F = TypeVar("F", bound=Callable[..., Any])

_NOTHING = "leave it out, the solvers here have no such setting"
_SHARED = {
    "shrinking": _NOTHING,
    "cache_size": _NOTHING,
    "dual": "solver='dual' works in the space of the rows, and is chosen where that is faster",
    "intercept_scaling": "the intercept is not shrunk; Ridge(intercept_scale=...) sets its standard deviation",
}
_LINEAR = _SHARED | {
    "penalty": "use prior='ridge' for 'l2' and prior='lasso' for 'l1'",
    "alpha": "the penalty is learned; prior=Ridge(scale=s) fixes it",
}
_ONE_FOR_ALL = "use multi_class='sum-to-zero' for one model of all classes, or leave it out for pairs"
_OF_KERNEL = "use BayesianKernelClassifier(kernel=...) with a kernel of sklearn.gaussian_process.kernels or a function"

SVC: Mapping[str, str] = _LINEAR | {
    "C": "the penalty is learned; prior=Ridge(scale=s) with learning_rate=1 fixes it, C being 2 * s**2",
    "loss": "use likelihood='hinge', 'logit' or 'probit'",
    "kernel": "use BayesianKernelClassifier(kernel=...)",
    "gamma": "use BayesianKernelClassifier(length_scale=l), gamma being 1 / l**2",
    "degree": _OF_KERNEL,
    "coef0": _OF_KERNEL,
    "decision_function_shape": _ONE_FOR_ALL,
    "break_ties": "leave it out, predict takes the more probable class",
}
SVR: Mapping[str, str] = _LINEAR | {
    "C": "the penalty is learned; prior=Ridge(scale=s) with noise=nu fixes it, C being 2 * s**2 / nu",
    "loss": "use likelihood='epsilon-insensitive' or 'squared'",
    "kernel": "use BayesianKernelRegressor(kernel=...)",
    "gamma": "use BayesianKernelRegressor(length_scale=l), gamma being 1 / l**2",
    **dict.fromkeys(("degree", "coef0"), _OF_KERNEL.replace("Classifier", "Regressor")),
}
_FUNCTION = "use kernel=... with an object of sklearn.gaussian_process.kernels or a function of two matrices"
KERNEL_CLASSIFIER: Mapping[str, str] = _SHARED | {
    "C": "the penalty is learned; scale=s with learning_rate=1 fixes it, C being 2 * s**2",
    "gamma": "use length_scale=l, gamma being 1 / l**2",
    "degree": _FUNCTION,
    "coef0": _FUNCTION,
    "loss": "use likelihood='hinge', 'logit' or 'probit'",
    "prior": "the prior is that of the kernel; scale=... fixes its standard deviation",
    "decision_function_shape": "leave it out, classes are fitted by pairs",
    "break_ties": SVC["break_ties"],
}
KERNEL_REGRESSOR: Mapping[str, str] = _SHARED | {
    "C": "the penalty is learned; scale=s with noise=nu fixes it, C being 2 * s**2 / nu",
    "gamma": "use length_scale=l, gamma being 1 / l**2",
    "degree": _FUNCTION,
    "coef0": _FUNCTION,
    "loss": "use likelihood='epsilon-insensitive' or 'squared'",
    "prior": "the prior is that of the kernel; scale=... fixes its standard deviation",
    "alpha": "use noise=sigma with likelihood='squared', alpha being sigma**2",
    "normalize_y": "y is standardized unless standardize=False",
    "optimizer": "length, scale and noise are learned; length_scale=l, scale=s and noise=nu fix them",
    "n_restarts_optimizer": _NOTHING,
}


def explained(instead: Mapping[str, str]) -> Callable[[F], F]:
    """Let a constructor say what to write in place of a keyword that it does not have; its signature stays."""

    def decorate(init: F) -> F:
        known = inspect.signature(init).parameters

        @functools.wraps(init)
        def wrapped(self: Any, *args: Any, **options: Any) -> None:
            for name in options:
                if name not in known and name in instead:
                    raise TypeError(f"{type(self).__name__} has no parameter {name!r}: {instead[name]}.")
            init(self, *args, **options)

        return wrapped  # type: ignore[return-value]

    return decorate
