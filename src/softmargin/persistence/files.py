"""``save`` and ``load``: fitted estimators in files."""

from __future__ import annotations

import json
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import softmargin
from softmargin.estimators.path import Path as ScalePath
from softmargin.exceptions import SavedFileError
from softmargin.persistence import migrations
from softmargin.persistence.registry import TABLE
from softmargin.storage import container
from softmargin.storage.records import decoded, encoded

__all__ = ["load", "save"]

_KIND = "model"


def save(model: Any, path: Any) -> None:
    """Write a fitted model into a file of arrays and JSON, which ``softmargin.load`` reads without running any code.

    The file is written beside its place and moved there when it is complete, so that an interruption leaves what was
    there before.

    Parameters
    ----------
    model : fitted estimator, or what ``softmargin.path`` returns
        Losses, priors and kernels must be those of softmargin (or scikit-learn's kernel objects); models with classes
        or functions of your own are for pickle and joblib.
    path : str or path
        The file; one that is there is replaced.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_breast_cancer
    >>> import softmargin
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "cancer.softmargin")
    >>> softmargin.save(softmargin.BayesianSVC().fit(X, y), path)
    >>> softmargin.load(path).predict(X[:2])
    array([0, 0])
    """
    if not isinstance(model, BaseEstimator | ScalePath):
        raise SavedFileError(f"save needs a fitted estimator of softmargin; got {type(model).__name__}.")
    if isinstance(model, BaseEstimator):
        _check_fitted(model)
    records, arrays = encoded(model, TABLE)
    text = json.dumps(records, allow_nan=False, separators=(",", ":")).encode()
    sections = [container.Section("records", text)]
    sections += [container.Section(f"array {number}", array.data) for number, array in enumerate(arrays)]
    about = {"kind": _KIND, "version": migrations.VERSION, "written_by": f"softmargin {softmargin.__version__}"}
    container.write(path, about, sections)


def _check_fitted(model: Any) -> None:
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise SavedFileError(f"this {type(model).__name__} is not fitted; fit it, then save it.") from None


def load(path: Any) -> Any:
    """The model that ``softmargin.save`` wrote.

    Only classes of softmargin's own table are built. A file that is damaged, of another kind, or of a later version is
    refused with a ``SavedFileError``. Checksums tell damage, not who wrote the file.

    Parameters
    ----------
    path : str or path
        The file.
    """
    about, sections = container.read(path)
    container.check(about.get("kind") == _KIND, path, "holds no model", "give the path of a saved model")
    version: Any = about.get("version")
    container.check(type(version) is int and version >= 1, path, "has no version")
    newer = f"has records of version {version}, and this softmargin reads versions up to {migrations.VERSION}"
    container.check(version <= migrations.VERSION, path, newer, "use a newer softmargin")
    named = ["records", *(f"array {number}" for number in range(len(sections) - 1))]
    container.check([section.name for section in sections] == named, path, "has other sections than a model")
    records = container.parsed(sections[0].data, path, "records")
    arrays, size = [section.data for section in sections[1:]], sum(len(section.data) for section in sections)
    try:
        model = decoded(migrations.migrated(records, version), arrays, size, TABLE)
    except ValueError as error:
        writer = str(about.get("written_by"))[:40]
        raise SavedFileError(
            f"{str(path)!r}, written by {writer!r}, does not hold a model that this softmargin can build: {error} is "
            f"of another form; save the model again."
        ) from error
    container.check(isinstance(model, BaseEstimator | ScalePath), path, "holds no model")
    return model
