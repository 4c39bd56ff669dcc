"""The mode with a learned scale: at the scale of the variational fit, and nowhere near the joint mode's collapse."""

from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin import BayesianSVC
from softmargin.inference.settings import Fit, run_engine
from softmargin.priors import HalfCauchy, InverseGamma, Lasso, Ridge


def wide_text(n=200, p=600, seed=0):
    """Rows of unit length with few entries, more columns than rows: the shape of texts."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, p)) < 0.1) * rng.gamma(1.0, size=(n, p))
    beta = rng.standard_normal(p)
    y = np.where(X @ beta > np.median(X @ beta), 1.0, -1.0)
    return X / np.linalg.norm(X, axis=1)[:, None], y


def vb_scale(prior, X, y, **options):
    """Where the variational fit has the scale, before its spread is mixed in."""
    with patch.object(Fit, "settled", lambda fit: fit):  # keeps the state of the engine
        return BayesianSVC(prior, "vb", **options).fit(X, y)._fitted.fit.vi.prior.values["scale"]


@pytest.mark.parametrize(
    "prior", [Ridge(), Ridge(hyperprior=HalfCauchy(1.0)), Ridge(hyperprior=InverseGamma(2.0, 1.0))]
)
@pytest.mark.parametrize("shape", [(80, 5), (30, 60)])
def test_the_mode_is_that_at_the_scale_of_the_variational_fit(prior, shape):
    rng = np.random.default_rng(1)
    X = rng.standard_normal(shape)
    y = np.where(X[:, 0] + 0.7 * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
    scale = vb_scale(prior, X, y, learning_rate=1.0, tol=1e-10)
    model = BayesianSVC(prior, "map", learning_rate=1.0, tol=1e-11).fit(X, y)
    given = BayesianSVC(Ridge(scale), "map", learning_rate=1.0).fit(X, y)
    assert model.scale_ == pytest.approx(scale, rel=1e-6)
    np.testing.assert_allclose(model.coef_, given.coef_, rtol=1e-5, atol=1e-7)
    assert model.gap_ <= 1e-8


def test_the_scale_is_settled_before_the_whole_fit_would_be():
    X, y = wide_text()
    options = {"learning_rate": 1.0, "standardize": False}
    with patch("softmargin.inference.evidence.run_engine", wraps=run_engine) as settling:
        model = BayesianSVC("ridge", "map", **options).fit(X, y)
    assert settling.call_count == 1 and settling.call_args.kwargs["tol"] > model.tol
    tight = vb_scale("ridge", X, y, tol=1e-10, **options)
    assert model.scale_ == pytest.approx(tight, rel=0.01)


@pytest.mark.parametrize("likelihood", ["hinge", "logit"])
def test_more_columns_than_rows_do_not_take_the_mode_to_zero(likelihood):
    """The joint mode of coefficients and scale is useless here, and has to be asked for."""
    X, y = wide_text()
    options = {"learning_rate": 1.0, "standardize": False, "likelihood": likelihood}
    model = BayesianSVC("ridge", "map", **options).fit(X, y)
    joint = BayesianSVC("ridge", "map", engine_options={"starts": (0.1, 1.0)}, **options).fit(X, y)
    assert np.mean(model.predict(X) == y) == 1.0
    assert joint.scale_ < 0.2 * model.scale_


def test_absolute_values_learn_a_scale_that_predicts():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 100))
    y = np.where(X[:, :3].sum(axis=1) + 0.3 * rng.standard_normal(60) > 0, 1.0, -1.0)
    model = BayesianSVC(Lasso(), "map", learning_rate=1.0).fit(X, y)
    assert np.mean(model.predict(X) == y) > 0.95


def test_few_rows_of_a_sparse_design_are_those_of_the_dense_one():
    """Rows picked near the margin stay sparse, and the mode is the same."""
    rng = np.random.default_rng(3)
    X = (rng.random((9000, 40)) < 0.05) * rng.gamma(1.0, size=(9000, 40))
    y = np.where(X @ rng.standard_normal(40) + 0.5 * rng.standard_normal(9000) > 0.0, 1.0, -1.0)
    dense, sparse = (BayesianSVC(Ridge(0.5), "map", learning_rate=1.0).fit(each, y) for each in (X, sp.csr_matrix(X)))
    assert sparse.gap_ <= 1e-8
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-7)
