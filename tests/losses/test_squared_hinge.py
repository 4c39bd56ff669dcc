"""The squared hinge: closed forms against quadrature, and its mode against an independent solver."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from softmargin import BayesianSVC
from softmargin.losses import SquaredHinge
from softmargin.priors import Ridge


def test_by_hand():
    y, c = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, 0.25, 3.0, 1.0])
    f = np.array([0.0, -2.0, 0.5, -4.0])
    np.testing.assert_allclose(SquaredHinge().loglik(y, c, f), [-1.0, -2.25, -6.75, 0.0])
    np.testing.assert_allclose(SquaredHinge().score(y, c, f), [2.0, 1.5, -9.0, 0.0])


@pytest.mark.parametrize("t", [-30.0, -12.0, -5.0, -1.0, 0.0, 2.0, 9.0, 40.0])
@pytest.mark.parametrize("s", [1e-5, 1.0, 1e4])
def test_average_is_accurate_in_the_tails(t, s):
    """For u ~ N(t s, s^2), ``E max(u, 0)^k = s^k times the integral over z > -t of (t + z)^k phi(z)``."""
    y, c, f, v = np.array([-1.0]), np.array([0.7]), np.array([t * s - 1.0]), np.array([s * s])
    t = (1.0 + f[0]) / s  # as rounded
    low = max(-t, -12.0)
    moment = [
        integrate.quad(lambda x, k=k: (t + low + x) ** k * stats.norm.pdf(low + x), 0, 12 + abs(low), points=(0.3, 3))[
            0
        ]
        for k in range(3)
    ]
    w, b, bound = SquaredHinge().gaussian(y, c, f, v)
    assert bound[0] == pytest.approx(-0.7 * s * s * moment[2], rel=1e-7)
    assert w[0] == pytest.approx(1.4 * moment[0], rel=1e-7)
    assert b[0] - w[0] * f[0] == pytest.approx(-1.4 * s * moment[1], rel=1e-7, abs=1e-9 * abs(w[0] * f[0]))


def test_the_message_is_the_best_of_all_shifts():
    """No lam gives a higher bound ``-E (u + lam)^2`` than the one of ``expect``."""
    y, c, f, v = np.array([1.0, 1.0, -1.0]), np.full(3, 0.6), np.array([2.5, -0.3, 0.4]), np.array([0.5, 1.0, 0.0])
    u = 1.0 - y * f
    bounds = np.max([-0.6 * ((u + lam) ** 2 + v) for lam in np.linspace(0.0, 4.0, 4001)], axis=0)
    np.testing.assert_allclose(SquaredHinge().expect(y, c, f, v).bound, bounds, atol=1e-6)


def problem():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 3))
    return X, np.where(X @ [1.5, -1.0, 0.0] + rng.normal(size=80) > 0.3, 1, 0)


@pytest.mark.parametrize("likelihood", [SquaredHinge(), "squared-hinge"], ids=["object", "name"])
def test_the_mode_is_that_of_an_independent_solver(likelihood):
    X, label = problem()
    sign, A = 2.0 * label - 1.0, np.column_stack((np.ones(80), X))

    def objective(beta):
        u = np.maximum(1.0 - sign * (A @ beta), 0.0)
        penalty = np.array([1e-8, 4.0, 4.0, 4.0])
        return u @ u + 0.5 * penalty @ beta**2, -2.0 * A.T @ (sign * u) + penalty * beta

    wanted = optimize.minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    fit = BayesianSVC(Ridge(scale=0.5), "map", likelihood=likelihood, learning_rate=1.0, standardize=False, tol=1e-12)
    fit.fit(X, label)
    np.testing.assert_allclose(np.append(fit.intercept_, fit.coef_), wanted, atol=1e-5)


def test_variational_fit_and_draws_agree():
    """A loss without a draw of its own is sampled by its score; a sampler that needs one says so."""
    X, label = problem()
    given = {"likelihood": SquaredHinge(), "learning_rate": 1.0, "random_state": 0}
    vb = BayesianSVC(Ridge(scale=0.5), **given).fit(X, label)
    hmc = BayesianSVC(Ridge(scale=0.5), "hmc", draws=400, chains=2, **given).fit(X, label)
    table, drawn = vb.summary(), hmc.summary()
    np.testing.assert_allclose(table["mean"], drawn["mean"], atol=0.25 * drawn["sd"].max())
    np.testing.assert_allclose(table["sd"], drawn["sd"], rtol=0.2)
    with pytest.raises(TypeError, match="needs a loss with 'draw', which SquaredHinge does not have"):
        BayesianSVC(Ridge(scale=0.5), "gibbs", **given).fit(X, label)
