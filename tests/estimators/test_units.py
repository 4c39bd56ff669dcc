"""Units, zeros and signs of the columns say nothing: neither about coefficients nor about which rows make a fold."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from softmargin import BayesianSVC


def _rates(rng):
    X, y = load_breast_cancer(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(X))[:60]
    return X[some], y[some], {}


def _link(rng):
    X, y = load_digits(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(X))[:400]
    return X[some], y[some] == 8, {}


def _wide(rng):
    X = rng.standard_normal((40, 600)) + 0.5
    return X, X[:, :20].sum(axis=1) > 10.0, {}


def _scores(rng):
    X, y = load_digits(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(X))[:90]
    return X[some], y[some] % 3, {"multi_class": "sum-to-zero"}


@pytest.mark.parametrize("case", [_rates, _link, _wide, _scores])
@pytest.mark.filterwarnings("ignore::softmargin.exceptions.DataWarning", "ignore::softmargin.exceptions.ModelWarning")
def test_probabilities_do_not_change_with_units_zeros_and_signs(case):
    rng = np.random.default_rng(5)
    X, y, how = case(rng)
    factor = np.exp(rng.normal(0.0, 2.0, X.shape[1])) * rng.choice([-1.0, 1.0], X.shape[1])
    other = X * factor + rng.normal(size=X.shape[1]) * np.abs(factor) * X.std(axis=0)
    first, second = (BayesianSVC(**how).fit(Z, y) for Z in (X, other))
    assert "folds" in set(first.choices_["method"])
    assert first.choices_["taken"].tolist() == second.choices_["taken"].tolist()
    np.testing.assert_allclose(second.predict_proba(other), first.predict_proba(X), atol=1e-6)
