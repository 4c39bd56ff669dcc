"""The contract of scikit-learn for BayesianKernelClassifier."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from softmargin import BayesianKernelClassifier, BayesianKernelRegressor

REASONS = {
    "check_decision_proba_consistency": "probabilities integrate the posterior variance of f, which differs between "
    "rows, so two rows with nearly equal f may have their probabilities in the other order",
}


@parametrize_with_checks(
    [BayesianKernelClassifier(length_scale="mean-distance")], expected_failed_checks=lambda estimator: REASONS
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("machine", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_a_path_is_refused_in_a_sentence(machine):
    with pytest.raises(ValueError, match=r"kernel models take rows in memory, and X='rows.npy' is a path"):
        machine().fit("rows.npy", [0, 1])
