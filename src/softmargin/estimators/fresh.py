"""A fit that fails leaves the estimator as it was, one that ends has finite numbers, and one by batches can go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from softmargin.core.validation import fitted

__all__ = ["ADVICE", "by_batches", "check_finite_fit", "fresh", "unharmed"]

_NUMBERS = ("coef_", "intercept_", "scale_", "noise_", "epsilon_", "inclusion_")
ADVICE = (
    "weights, columns or prior scales are too many orders of magnitude apart for double precision: bring them closer "
    "together, standardize, or use another inference"
)


@contextmanager
def fresh(estimator: Any) -> Iterator[None]:
    """Take the fitted attributes away for the length of a fit, and bring them back if it raises."""
    with unharmed(estimator):
        for name in [name for name in vars(estimator) if name.endswith("_") and not name.startswith("_")]:
            del estimator.__dict__[name]
        yield


@contextmanager
def unharmed(estimator: Any) -> Iterator[None]:
    """Bring the attributes back as they were if learning raises or ends with numbers that are not finite."""
    before = estimator.__dict__.copy()
    try:
        yield
        check_finite_fit(estimator)
    except BaseException as error:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        if isinstance(error, (np.linalg.LinAlgError, ArithmeticError)):
            raise ValueError(f"the fit broke down numerically: {ADVICE}.") from error
        raise


def by_batches(estimator: Any) -> bool:
    """Whether more rows can be added to a fit."""
    if estimator.inference != "svi":
        raise AttributeError("partial_fit is for inference='svi', which fits by batches of rows.")
    return True


def check_finite_fit(estimator: Any) -> None:
    """Refuse a fit with a number that is not finite."""
    made = vars(estimator)
    parts = {name: made[name] for name in _NUMBERS if name in made}
    parts["posterior_.mean"] = fitted(fitted(estimator, "posterior_"), "mean")
    for name, value in parts.items():
        if isinstance(value, (float, np.ndarray)) and not np.isfinite(value).all():
            raise ValueError(f"the fit ended with {name} that is not finite; {ADVICE}.")
