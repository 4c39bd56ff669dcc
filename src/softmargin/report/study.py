"""What a report is about: a model, its left-out rows, and rows that were given."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from softmargin.core.validation import fitted
from softmargin.estimators.formula.formula import Formula
from softmargin.estimators.given.kinds import at_home
from softmargin.estimators.kernel_machine import KernelMachine
from softmargin.estimators.tabular.tabular import Tabular
from softmargin.loo.link import CLOSED, TRUSTED
from softmargin.plots.numbers.coefficients import Coefficients, coefficients
from softmargin.plots.numbers.curves import band, reliability
from softmargin.plots.numbers.outcomes import (
    Decisions,
    Responses,
    decisions,
    left_out_decisions,
    left_out_responses,
    responses,
)
from softmargin.plots.numbers.subject import classes_of, columns_of, machine_of, response_of

__all__ = ["Study"]

WHAT = "report"
_LEVEL = 0.95
_OFF = 0.4  # share of rows outside of the calibration band from which it is told: four times what is expected


@dataclass(frozen=True, eq=False)
class Study:
    """A fitted model and the rows that a report may look at."""

    model: Any
    machine: Any
    X: Any  # rows as given, or None
    y: Any  # their responses, or None
    own: bool  # whether they are the rows of the fit
    left_out: Decisions | Responses | None
    given: Decisions | Responses | None  # of rows that are not those of the fit
    notes: tuple[str, ...]  # what predictions of the given rows warned of

    @classmethod
    def of(cls, model: Any, X: Any = None, y: Any = None) -> Study:
        """Look at a model, and at rows if there are any."""
        if X is None and y is not None:
            raise ValueError("report was given y without X: give the rows of these responses too, or leave y out.")
        if isinstance(model, Pipeline):
            check_is_fitted(model)
            X = X if X is None or len(model) == 1 else model[:-1].transform(X)
            model = model[-1]
        machine = machine_of(WHAT, model)
        X, y, _, _ = at_home(X, y, None, fitted(machine, "feature_names_in_") if machine is model else None)
        if isinstance(y, str):
            raise ValueError(f"y={y!r} must be the responses themselves, as in X[{y!r}]: only files name columns.")
        kind = classes_of(machine) is not None
        left_out: Any = left_out_decisions(WHAT, model) if kind else left_out_responses(WHAT, model, _LEVEL)
        if X is None:
            return cls(model, machine, None, None, False, left_out, None, ())
        truth = None if y is None and not _has_response(model, X) else response_of(model, X, y)
        if truth is not None and _same(machine, truth):
            return cls(model, machine, X, truth, True, left_out, None, ())
        given: Any = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if truth is not None:
                given = decisions(WHAT, model, X, y) if kind else responses(WHAT, model, X, y, _LEVEL)
        notes = tuple(dict.fromkeys(str(one.message) for one in caught))
        return cls(model, machine, X, truth, False, left_out, given, notes)

    @property
    def classes(self) -> list[str] | None:
        """Labels of the classes; None for a regression."""
        found = classes_of(self.machine)
        return None if found is None else [str(label) for label in found]

    @property
    def outcomes(self) -> Decisions | Responses | None:
        """What the figures are of: left-out rows, or given ones where there are none of those."""
        return self.given if self.left_out is None else self.left_out

    @property
    def rows_before(self) -> float:
        """Rows that were learned in batches before the one that left-out figures are of."""
        return fitted(self.machine, "_rows_before") or 0.0

    @property
    def kernel(self) -> bool:
        """Whether the model has a kernel and no coefficients of columns."""
        return isinstance(self.machine, KernelMachine)

    @property
    def target(self) -> str:
        """What the response is called."""
        if isinstance(self.model, Formula):
            return str(self.model.formula).partition("~")[0].strip()
        return str(self.model.target) if isinstance(self.model, Tabular) else ""

    @property
    def formula(self) -> str:
        """The formula, where there is one."""
        return str(self.model.formula) if isinstance(self.model, Formula) else ""

    def coefficients(self) -> Coefficients | None:
        """Coefficients with their intervals, where there are any."""
        if self.kernel or not self.machine.n_features_in_:
            return None
        return coefficients(WHAT, self.model, _LEVEL)

    def rows(self) -> Any:
        """The given rows as the estimator takes them."""
        return columns_of(self.model, self.X)

    def worries(self) -> list[str]:
        """What to worry about, in sentences."""
        found = list(self.machine._worries())
        loo = self.machine.loo_
        largest = float(loo.max_kv) if "max_kv" in loo._fields else np.nan
        if largest > TRUSTED and ("method" not in loo._fields or loo.method == CLOSED):
            found.append(
                f"single rows decide much of their own prediction (up to {100.0 * largest:.0f} %), so that scores of "
                "left-out rows are optimistic; more rows, or fewer columns, would help."
            )
        if isinstance(self.left_out, Decisions):
            few = np.bincount(self.left_out.y, self.left_out.times, self.left_out.k)
            if few.min() < 10:
                label = self.left_out.labels[int(few.argmin())]
                found.append(f"the class {label!r} has only {few.min():.0f} rows; what is said of it rests on these.")
            off = _outside(self.left_out)
            if off > _OFF:
                found.append(
                    f"the calibration curve leaves its band for {100.0 * off:.0f} % of the rows, where one in ten is "
                    "to be expected: probabilities are off in places."
                )
        effects = fitted(self.machine, "random_effects_")
        if any(effects) if isinstance(effects, list) else bool(effects):
            found.append(
                "rows are left out one at a time, so that figures are of new rows of known groups; rows of new groups "
                "are predicted less well."
            )
        return [*found, *self.notes]


def _outside(found: Decisions) -> float:
    """Share of the rows of two classes where the calibration curve is outside of its band."""
    if found.k != 2:
        return 0.0
    q = found.natural[:, 1]
    curve = reliability(q, (found.y == 1).astype(float), found.times)
    grid, low, high = band(q, found.times)
    level = np.interp(q, curve.where, curve.share)
    off = (level < np.interp(q, grid, low) - 1e-9) | (level > np.interp(q, grid, high) + 1e-9)
    return float(found.times @ off / found.times.sum())


def _has_response(model: Any, X: Any) -> bool:
    """Whether the rows hold the response that the model names."""
    if isinstance(model, Tabular):
        return model.target in X.columns
    if not isinstance(model, Formula):
        return False
    try:
        response_of(model, X, None)
    except ValueError:
        return False
    return True


def _same(machine: Any, y: Any) -> bool:
    """Whether these are the responses of the training rows."""
    seen, used = fitted(machine, "_observed"), fitted(machine, "_used")
    if seen is None:
        return False
    if used is not None and len(y) == len(used):
        y = y[used]
    classes = classes_of(machine)
    known = seen.y if classes is None else classes[seen.y]
    return len(y) == len(known) and bool(np.all(np.asarray(y) == known))
