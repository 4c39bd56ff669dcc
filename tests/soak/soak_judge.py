"""Fits a problem and says whether what came out is right, refused in one sentence, or wrong."""

from __future__ import annotations

import traceback
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import clone, is_regressor
from sklearn.exceptions import ConvergenceWarning
from soak_problems import Problem

from softmargin.exceptions import DataWarning, ModelWarning

_MOST_WARNINGS = 3
_ALLOWED = (UserWarning, DataWarning, ModelWarning, ConvergenceWarning)
_REFUSALS = (ValueError, TypeError, NotImplementedError)
_SPEAKERS = ("/softmargin/", "/sklearn/utils/")  # whose sentences a user gets
_INTERNAL = (
    "nan to integer",
    "cannot convert float",
    "infs or nans",
    "singular",
    "positive definite",
    "broadcast",
    "division",
    "zero-size",
    "index",
    "not aligned",
    "math domain",
    "object has no attribute",
    "unexpected keyword",
    "positional argument",
    "unsupported operand",
)
_ALIKE = 0.02  # difference of probabilities, or of predictions in standard deviations of y, of two ways to one answer
_SAME = 1e-12  # the same where nothing but the number of threads differs
_ALIKE_BATCHES = 0.1  # the same where one way goes by batches


class Verdict(NamedTuple):
    """What came out: "ok", "refused" with the sentence, or "wrong" with the reason."""

    outcome: str
    reason: str = ""


class Wrong(Exception):
    """Something that no fit may do."""


def judge(problem: Problem) -> Verdict:
    """Fit the problem, ask the model everything, and compare it with its twin."""
    try:
        fitted, said = _fit(problem.model, problem.table.X, problem.table.y, problem.table.weight)
    except Wrong as wrong:
        return Verdict("wrong", str(wrong))
    except Exception as error:
        return _refusal(error)
    try:
        with warnings.catch_warnings(record=True) as later:
            warnings.simplefilter("always")
            _check_run(fitted, said)
            _check_answers(fitted, problem)
            _check_twin(fitted, problem)
        _check_warnings(later)
    except Wrong as wrong:
        return Verdict("wrong", str(wrong))
    except Exception as error:
        return Verdict("wrong", f"after the fit: {_where(error)}")
    return Verdict("ok")


def _fit(model: Any, X: Any, y: Any, weight: Any) -> tuple[Any, list[Any]]:
    """The fitted model and its warnings."""
    model = clone(model)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=weight)
    _check_warnings(said)
    return model, said


def _check_warnings(said: list[Any]) -> None:
    for one in said:
        if one.category not in _ALLOWED:
            place = one.filename.rsplit("/softmargin/", 1)[-1]
            raise Wrong(f"{one.category.__name__} leaked at {place}:{one.lineno}: {one.message}")
    if len(said) > _MOST_WARNINGS:
        raise Wrong(f"{len(said)} warnings of one fit, first {said[0].message}")


def _refusal(error: Exception) -> Verdict:
    """A sentence of the package to its user, or a mistake."""
    frames = traceback.extract_tb(error.__traceback__)
    message = str(error).strip()
    clear = (
        type(error) in _REFUSALS
        and any(speaker in frames[-1].filename for speaker in _SPEAKERS)
        and len(message.split()) > 4
        and message.rstrip().endswith((".", ")"))
        and not any(word in message.lower() for word in _INTERNAL)
    )
    return Verdict("refused", message) if clear else Verdict("wrong", _where(error))


def _where(error: Exception) -> str:
    """An exception with the last line of the package that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/softmargin/" in frame.filename]
    place = f"{own[-1].filename.rsplit('/softmargin/', 1)[-1]}:{own[-1].lineno}" if own else "outside the package"
    return f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:150]}"


def _finite(what: str, values: Any) -> Any:
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        raise Wrong(f"{what} has {np.count_nonzero(~np.isfinite(values))} of {values.size} values that are not finite")
    return values


def _check_run(fitted: Any, said: list[Any]) -> None:
    """The state that the run says it ended in."""
    warned = any(issubclass(one.category, ConvergenceWarning) for one in said)
    if not fitted.converged_ and not warned:
        raise Wrong("converged_ is False without a ConvergenceWarning")
    traces = fitted.trace_ if isinstance(fitted.trace_, list) else [fitted.trace_]
    for trace in traces:
        if len(trace):
            _finite("the end of trace_", trace[-1])
    for name in ("scale_", "learning_rate_", "coef_", "intercept_", "noise_", "epsilon_", "inclusion_"):
        if hasattr(fitted, name):
            _finite(name, getattr(fitted, name))


def _check_answers(fitted: Any, problem: Problem) -> None:
    """Everything that a model can be asked."""
    X, y, table = problem.table.new, problem.table.y, fitted.summary()
    for name in table.columns.intersection(["mean", "sd", "lower", "upper", "scale", "inclusion", "loo_score"]):
        _finite(f"summary()[{name!r}]", table[name])
    if is_regressor(fitted):
        return _check_regression(fitted, X, problem)
    p = _finite("predict_proba", fitted.predict_proba(X))
    if (p < 0).any() or np.abs(p.sum(axis=1) - 1.0).max() > 1e-9:
        raise Wrong(f"rows of predict_proba sum to 1 within {np.abs(p.sum(axis=1) - 1.0).max():.1e} only")
    _finite("decision_function", fitted.decision_function(X))
    predicted = fitted.predict(X)
    other = predicted != fitted.classes_[p.argmax(axis=1)]
    if getattr(fitted, "costs", None) is None and other.any():
        near = np.sort(p[other], axis=1)[:, -2:]
        raise Wrong(f"predict is not the argmax of predict_proba in {other.sum()} rows, such as {near[0].tolist()}")
    score = float(_finite("score", fitted.score(problem.table.X, y)))
    if not 0.0 <= score <= 1.0:
        raise Wrong(f"score is {score}")
    _finite("loo_.score", fitted.loo_.score)
    if problem.model.inference != "map":
        _finite("sample", fitted.sample(X, 3, random_state=0))
    return None


def _check_regression(fitted: Any, X: Any, problem: Problem) -> None:
    f = _finite("predict", fitted.predict(X))
    interval = _finite("predict_interval", fitted.predict_interval(X, level=0.8))
    if (interval[:, 0] > f).any() or (interval[:, 1] < f).any():
        raise Wrong("predict is outside predict_interval")
    _finite("score", fitted.score(problem.table.X, problem.table.y))
    if problem.model.inference != "map":
        _, sd = fitted.predict(X, return_std=True)
        _finite("the standard deviation of predict", sd)
        _finite("sample", fitted.sample(X, 3, random_state=0))


def _rows(X: Any, order: Any) -> Any:
    return X.iloc[order] if isinstance(X, pd.DataFrame) else (X.tocsr() if sp.issparse(X) else X)[order]


def _turned(X: Any) -> Any:
    """X with its columns in the opposite order."""
    if isinstance(X, pd.DataFrame):
        return X.iloc[:, ::-1]
    return X.tocsc()[:, ::-1].tocsr() if sp.issparse(X) else X[:, ::-1]


def _check_twin(fitted: Any, problem: Problem) -> None:
    """Two ways to one answer agree, where both say that they arrived."""
    X, y, weight, new, _ = problem.table
    if problem.twin is None:
        return
    model, limit = clone(problem.model), _ALIKE
    if problem.twin == "repeated":
        fitted, _ = _fit(model, X, y, np.full(len(y), 2.0))
        twice = np.repeat(np.arange(len(y)), 2)
        X, y, weight = _rows(X, twice), y[twice], None
    elif problem.twin == "permuted":
        X = _turned(X)
    elif problem.twin == "dense":
        X = X.toarray()
    elif problem.twin == "jobs":
        model, limit = model.set_params(n_jobs=2), _SAME
    else:
        model, limit = model.set_params(inference="svi"), _ALIKE_BATCHES
    other, _ = _fit(model, X, y, weight)
    if problem.twin != "jobs" and not (fitted.converged_ and other.converged_):
        return
    after = _turned(new) if problem.twin == "permuted" else new
    if is_regressor(fitted):
        apart = np.abs(fitted.predict(new) - other.predict(after)).max() / max(float(np.std(y)), 1e-300)
    else:
        apart = np.abs(fitted.predict_proba(new) - other.predict_proba(after)).max()
    if not apart < limit:
        raise Wrong(f"the twin {problem.twin!r} is {apart:.2g} apart, limit {limit}")
