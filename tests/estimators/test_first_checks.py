"""Labels as positions in their classes, and columns that are left out, as the slow and obvious way has them."""

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin import BayesianSVC
from softmargin.core.validation import class_labels


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float32, np.float64, object, str])
@pytest.mark.parametrize("classes", [2, 3])
def test_labels_are_positions_in_their_classes(kind, classes):
    values = np.arange(12) % classes if kind is not bool else np.arange(12) % 2
    y = (3 * values).astype(str) if kind in (object, str) else values.astype(kind)
    y = y.astype(kind)
    wanted, where = np.unique(y, return_inverse=True)
    got, index = class_labels(y)
    assert got.dtype == wanted.dtype and got.tolist() == wanted.tolist()
    assert index.dtype == where.dtype and index.tolist() == where.tolist()


@pytest.mark.parametrize("y", [[-1.0, 1.0, -1.0], [1.0, -1.0], [5, 2, 5, 2], [-7, 0, 0]])
def test_two_numbers_in_any_order(y):
    y = np.array(y)
    got, index = class_labels(y)
    assert got.tolist() == sorted(set(y.tolist())) and (got[index] == y).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0.5, 1.5, 0.5]), "Unknown label type: continuous"),
        (np.array([0.0, 1e300, 0.0]), "Unknown label type: continuous"),
        (np.array([0.5, 1.5, 2.5]), "Unknown label type: continuous"),
        (np.array([1.0, 1.0]), "at least two classes"),
        (np.array([True, True]), "at least two classes"),
    ],
)
def test_labels_that_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        class_labels(y)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_columns_without_information_are_counted(sparse, fit_intercept):
    """Constant ones with an intercept, zero ones without; rows of no weight have no say."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 8))
    X[:, [1, 4]] = 0.0
    X[:, 6] = -2.0
    X[:5, [1, 6]] = 7.0
    y, weight = np.where(X[:, 0] > 0.0, 1, 0), np.where(np.arange(40) < 5, 0.0, 1.0)
    dropped = "3 .*: 1, 4, 6\\." if fit_intercept else "2 .*: 1, 4\\."
    model = BayesianSVC(inference="map", learning_rate=1.0, fit_intercept=fit_intercept)
    with pytest.warns(UserWarning, match=dropped):
        model.fit(sp.csr_matrix(X) if sparse else X, y, sample_weight=weight)
    assert (model.coef_[0, [1, 4]] == 0.0).all() and (model.coef_[0, 6] == 0.0) == fit_intercept


def test_marks_of_missing_values_are_no_columns_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    X[:, 2] = 1.0
    y = np.where(X[:, 0] > 0.0, 1, 0)
    X[::3, 1] = X[::4, 3] = np.nan
    with pytest.warns(UserWarning, match="1 constant column.*: 2\\."):
        BayesianSVC(inference="map", learning_rate=1.0, missing="indicator").fit(X, y)
