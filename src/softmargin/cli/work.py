"""What the commands do, without what they print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine

from softmargin import BayesianSVC, BayesianSVR, compare, fit, load
from softmargin.cli.tables import read_table
from softmargin.core.validation import has_probabilities
from softmargin.estimators.path import Path as ModePath
from softmargin.estimators.tabular.tabular import Tabular
from softmargin.exceptions import DataWarning, warn_user
from softmargin.plots.numbers.outcomes import Decisions
from softmargin.report.study import Study

__all__ = [
    "by_formula",
    "compared",
    "datasets",
    "described",
    "fitted",
    "goodness",
    "judged",
    "model_of",
    "predicted",
    "rows_for",
]

_MANY = 10  # different numbers from which a response is a quantity
_EXACT = 2.0**53  # up to which floats have all whole numbers
_CLASSES = 20  # classes from which a response of hardly more rows is taken for a mistake
_LISTED = 20  # columns of numbers that are listed one by one


class _Set(NamedTuple):
    """A data set of scikit-learn: what it is for, and how it is loaded."""

    told: str
    load: Callable[..., Any]


_SETS = {
    "breast_cancer": _Set("two classes", load_breast_cancer),
    "iris": _Set("three classes", load_iris),
    "wine": _Set("three classes", load_wine),
    "diabetes": _Set("a quantity", load_diabetes),
}


def is_quantity(response: pd.Series, task: str) -> bool:
    """Whether the response is a number to be predicted, not a label."""
    if task == "auto":
        return pd.api.types.is_numeric_dtype(response) and response.nunique() > _MANY
    return task == "regress"


def fitted(
    data: pd.DataFrame, options: dict[str, Any], *, target: str, groups: list[str], weights: str, task: str
) -> Any:
    """A model of a table's columns."""
    for name in (target, *groups, *([weights] if weights else [])):
        if name not in data.columns:
            raise ValueError(f"the data have no column {name!r}; they have {', '.join(map(str, data.columns[:30]))}.")
    gone = int(data[target].isna().sum())
    if gone:
        raise ValueError(f"the response {target!r} is missing in {gone} row(s); drop these rows.")
    quantity = is_quantity(data[target], task)
    kind = BayesianSVR if quantity else BayesianSVC
    response = data[target] if quantity else _labels(data[target])
    if not quantity and response.nunique() > max(_CLASSES, len(data) / 2):
        raise ValueError(f"{target!r} has {response.nunique()} classes in {len(data)} rows; is it the response?")
    _check_counts(data, weights)
    weight = data[weights].to_numpy(dtype=float) if weights else None
    rows = data.drop(columns=[weights] if weights else [])
    return Tabular(kind(**options), target, tuple(groups)).fit(rows, response, weight)


def _check_counts(data: pd.DataFrame, weights: str) -> None:
    if weights in data.columns and not pd.api.types.is_numeric_dtype(data[weights]):
        raise ValueError(f"--weights names {weights!r}, whose values are labels; give a column of counts.")


def _labels(column: pd.Series) -> pd.Series:
    """Whole numbers as such, so that labels read as they were written."""
    if pd.api.types.is_float_dtype(column) and ((column == column.round()) & (column.abs() < _EXACT)).all():
        return column.astype(int)
    return column


def by_formula(data: pd.DataFrame, formula: str, options: dict[str, Any], weights: str, task: str) -> Any:
    """A model that is written as a formula."""
    name = formula.partition("~")[0].strip().strip("`")
    quantity = task == "regress" or (task == "auto" and name in data.columns and is_quantity(data[name], task))
    if not quantity and name in data.columns:
        data = data.assign(**{name: _labels(data[name])})
    _check_counts(data, weights)
    given = {"sample_weight": weights} if weights else {}
    return fit(formula, data, estimator=BayesianSVR if quantity else BayesianSVC, **options, **given)


def model_of(path: Path) -> Any:
    """The model in a file."""
    model = load(path)
    if isinstance(model, ModePath):
        raise ValueError(f"{str(path)!r} holds a path of modes, which no command takes; read it by softmargin.load.")
    return model


def rows_for(model: Any, path: Path, labels: Iterable[str] = ()) -> pd.DataFrame:
    """The rows of a table as a saved model takes them: columns that held labels in the fit hold labels again."""
    held = [column.name for column in vars(model).get("columns_", ()) if column.levels]
    return read_table(path, frozenset([*labels, *held]))


def judged(model: Any, data: pd.DataFrame) -> dict[str, float]:
    """How well given rows are predicted, by name; nothing where they have no response or are those of the fit."""
    study = Study.of(model, data)
    study.rows()  # refuses rows without the columns of the model
    if study.y is None and study.target:
        warn_user(f"the rows have no column {study.target!r}, so they cannot be judged.", DataWarning)
    elif study.own:
        warn_user("the rows are those of the fit, which are judged by leaving each of them out.", DataWarning)
    found = study.given
    if isinstance(found, Decisions):
        return {"accuracy": found.accuracy, "log_loss": found.log_loss}
    return {} if found is None else {"error_rms": found.rmse, "covered": found.covered}


def described(data: pd.DataFrame, model: Any, weights: str = "") -> list[list[str]]:
    """Columns of the data and what the model takes them for; those that a formula does not name are left out."""
    found = []
    words = set(re.findall(r"\w+", str(vars(model).get("formula", ""))))
    known = {column.name: column for column in vars(model).get("columns_", ())}
    groups, response = vars(model).get("groups", ()), _response(model)
    for name in data.columns:
        column, missing = data[name], int(data[name].isna().sum())
        if name == response:
            classes = vars(vars(model).get("estimator_", model)).get("classes_")
            kind = "the response, a quantity" if classes is None else f"the response, {len(classes)} classes"
        elif name == weights:
            kind = "counts of the rows"
        elif words and not set(re.findall(r"\w+", str(name))) <= words:
            continue
        elif name in groups:
            kind = f"groups ({column.nunique()})"
        elif name in known and known[name].levels:
            levels = known[name].levels
            kind = f"labels ({len(levels)}), one-hot against {levels[0]!r}"
        else:
            kind = "numbers" if pd.api.types.is_numeric_dtype(column) else f"labels ({column.nunique()})"
        found.append([str(name), kind, f"{missing} missing, modelled" if missing else ""])
    return found


def gathered(columns: list[list[str]]) -> list[list[str]]:
    """The same with complete columns of numbers on one line, where there are many of them."""
    alike = [name for name, kind, more in columns if kind == "numbers" and not more]
    if len(alike) <= _LISTED:
        return columns
    line = [f"{alike[0]} ... {alike[-1]} ({len(alike)})", "numbers", ""]
    return [line, *(column for column in columns if column[0] not in set(alike))]


def _response(model: Any) -> str:
    """The column that is predicted: that of a table's model, or the left side of a formula."""
    given = vars(model)
    return str(given["target"] if "target" in given else str(given.get("formula", "")).partition("~")[0].strip())


def goodness(model: Any) -> dict[str, float]:
    """How well left-out rows are predicted, by name."""
    found = model.loo_._asdict()
    names = ("score", "error", "log_density", "rmse", "r2", "max_kv")
    return {name: float(found[name]) for name in names if name in found}


def compared(paths: list[Path]) -> pd.DataFrame:
    """Saved models by their left-out log loss."""
    if len({str(path) for path in paths}) < len(paths):
        raise ValueError("the same model is named twice; give every one once.")
    return compare({str(path): model_of(path) for path in paths})


def predicted(model: Any, data: pd.DataFrame, proba: bool) -> pd.DataFrame:
    """Predictions of rows, with probabilities of the classes or intervals."""
    if isinstance(model, Tabular):  # encoded once, with one note
        model, data = model.estimator_, model.encoded(data)
    made = pd.DataFrame({"prediction": model.predict(data)})
    if proba and has_probabilities(model):
        chances = model.predict_proba(data)
        for j, label in enumerate(model.classes_):
            made[f"P({label})"] = chances[:, j]
    elif proba:
        made["lower"], made["upper"] = np.asarray(model.predict_interval(data, 0.95)).T
    return made


def datasets(name: str = "") -> Any:
    """Names of the sets with what they are for, or the table of one."""
    if not name:
        return {each: found.told for each, found in _SETS.items()}
    if name not in _SETS:
        raise ValueError(f"there is no data set {name!r}; there are {', '.join(_SETS)}.")
    data = _SETS[name].load(as_frame=True)
    frame = data.frame.copy()
    if "target_names" in data:
        frame["target"] = np.asarray(data.target_names)[frame["target"].to_numpy()]
    return frame
