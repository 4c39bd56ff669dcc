"""The model of the covariates against quadrature, other formulas and its own optimality."""

import math

import numpy as np
import pytest
from scipy.special import digamma, multigammaln
from scipy.stats import invwishart, multivariate_normal, norm

from softmargin.unknowns.covariates import CovariatePrior


def rows(n=12, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    S = rng.standard_normal((d, d))
    return X, S @ S.T, np.eye(d) + 0.3


def direct(prior, X, scatter, mean, around, rate, df):
    """``E log p(x, mu, Sigma) - E log q(mu, Sigma)`` for q(mu) = N(mean, around), q(Sigma) = IW(rate, df)."""
    n, d = X.shape
    nu, square = prior.degrees(d), prior.mean_scale**2
    inverse = df * np.linalg.inv(rate)
    log_det = np.linalg.slogdet(rate)[1] - d * math.log(2.0) - digamma(0.5 * (df - np.arange(d))).sum()
    residual = sum(np.outer(x - mean, x - mean) for x in X) + scatter + n * around
    value = -0.5 * (n * d * math.log(2.0 * math.pi) + n * log_det + np.trace(inverse @ residual))
    value -= 0.5 * (d * math.log(2.0 * math.pi * square) + (mean @ mean + np.trace(around)) / square)

    def expected(df, rate):
        """E log IW(Sigma; rate, df); the constant is read off the density at the identity."""
        constant = invwishart(df, rate).logpdf(np.eye(d)) + 0.5 * np.trace(rate)
        return constant - 0.5 * (df + d + 1) * log_det - 0.5 * np.trace(rate @ inverse)

    value += expected(nu, prior.width(n, d) * np.eye(d)) - expected(df, rate)
    return value + multivariate_normal(mean, around).entropy()


@pytest.mark.parametrize("prior", [CovariatePrior(), CovariatePrior(df=7.5, spread=0.8, mean_scale=1.5)])
def test_bound_is_the_bound_and_the_updates_are_optimal(prior):
    X, scatter, precision = rows()
    n, d = X.shape
    law, bound = prior.expect(X, scatter, precision)
    around = np.linalg.inv(n * precision + np.eye(d) / prior.mean_scale**2)
    df = prior.degrees(d) + n
    rate = df * np.linalg.inv(law.precision)
    assert bound == pytest.approx(direct(prior, X, scatter, law.mean, around, rate, df), rel=1e-10)
    # the covariance is the best one given the mean's density, the next mean the best given the covariance
    for other in (rate * 1.05, rate + 0.02 * np.eye(d), rate - 0.02 * np.eye(d)):
        assert direct(prior, X, scatter, law.mean, around, other, df) < bound
    for wrong in (df - 1.0, df + 1.0):
        assert direct(prior, X, scatter, law.mean, around, rate, wrong) < bound
    again, better = prior.expect(X, scatter, law.precision)
    assert better >= bound
    best = np.linalg.inv(n * law.precision + np.eye(d) / prior.mean_scale**2)
    value = direct(prior, X, scatter, again.mean, best, rate, df)
    for mean, spread in ((again.mean + 0.01, best), (again.mean, 1.1 * best), (again.mean, 0.9 * best)):
        assert direct(prior, X, scatter, mean, spread, rate, df) < value


def evidence_grid(prior, x):
    """Log joint density of (mu, log variance) and one column, on a grid."""
    mu, t = np.linspace(-6.0, 6.0, 801)[:, None], np.linspace(-9.0, 9.0, 1201)
    nu = prior.degrees(1)
    log_p = norm(0.0, prior.mean_scale).logpdf(mu) + t
    log_p = log_p + 0.5 * nu * math.log(0.5 * prior.spread) - math.lgamma(0.5 * nu)
    log_p = log_p - (0.5 * nu + 1.0) * t - 0.5 * prior.spread * np.exp(-t)
    for value in x:
        log_p = log_p + norm(mu, np.exp(0.5 * t)).logpdf(value)
    return mu, t, log_p


def test_bound_lies_below_the_evidence():
    prior, x = CovariatePrior(spread=0.5, mean_scale=2.0), rows(n=15, d=1)[0]
    precision = np.eye(1)
    for _ in range(50):
        law, bound = prior.expect(x, np.zeros((1, 1)), precision)
        precision = law.precision
    mu, t, log_p = evidence_grid(prior, x[:, 0])
    weight = np.exp(log_p - log_p.max())
    evidence = log_p.max() + math.log(weight.sum() * (mu[1, 0] - mu[0, 0]) * (t[1] - t[0]))
    assert evidence - 0.1 < bound < evidence
    weight /= weight.sum()
    assert law.mean[0] == pytest.approx(float((weight * mu).sum()), abs=1e-3)
    assert law.precision[0, 0] == pytest.approx(float((weight * np.exp(-t)).sum()), rel=0.05)


def test_draws_equal_quadrature():
    """Mean, precision and their squares of a chain that draws nothing else, within 4 standard errors."""
    prior, x = CovariatePrior(spread=0.5, mean_scale=2.0), rows(n=5, d=1)[0]
    rng, precision, kept = np.random.default_rng(3), np.eye(1), []
    for _ in range(6000):
        mean, precision = prior.draw(rng, x, precision)
        kept.append((mean[0], -math.log(precision[0, 0])))
    mu, t, log_p = evidence_grid(prior, x[:, 0])
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    draws = np.array(kept)
    for k, axis in enumerate((mu, t[None, :])):
        for power in (1, 2):
            values = draws[:, k] ** power
            batches = values.reshape(40, -1).mean(axis=1)
            error = batches.std(ddof=1) / math.sqrt(40)
            assert abs(values.mean() - float((weight * axis**power).sum())) < 4.0 * error


def test_covariances_are_drawn_from_the_inverse_wishart():
    """Entries of the precision in three columns have the mean of the Wishart given the drawn mean."""
    prior, (X, _, precision), rng = CovariatePrior(df=6.0, spread=0.7), rows(n=8), np.random.default_rng(4)
    ratios = []
    for _ in range(3000):
        mean, drawn = prior.draw(rng, X, precision)
        root = np.linalg.cholesky((X - mean).T @ (X - mean) + 0.7 * np.eye(3))
        ratios.append(root.T @ drawn @ root)
    ratios = np.array(ratios)
    error = ratios.std(axis=0) / math.sqrt(3000)
    assert np.abs((ratios.mean(axis=0) - 14.0 * np.eye(3)) / error).max() < 4.0


def test_three_degrees_of_freedom_are_too_few_for_four_columns():
    """The paper takes 3 for any number of columns: the density has no normaliser from four columns on.

    Its integral over the eigenvalues' smallest direction behaves like that of ``t^((df - d - 1)/2)`` near zero for
    the precision, which diverges for df <= d - 1.
    """
    X = rows(d=4)[0]
    with pytest.raises(ValueError, match="df above 3 for 4 columns; got 3"):
        CovariatePrior(df=3.0).expect(X, np.zeros((4, 4)), np.eye(4))
    with pytest.raises(ValueError, match="not met"):
        multigammaln(1.5, 4)
    t = np.geomspace(1e-12, 1.0, 20001)
    shares = [np.trapezoid(t ** (0.5 * (df - 4 - 1)), t) for df in (3.0, 3.5, CovariatePrior().degrees(4))]
    assert shares[0] > 25.0  # grows with the logarithm of the lower end
    assert shares[1] < 4.1
    assert shares[2] == pytest.approx(1.0, abs=1e-6)
    assert CovariatePrior(df=3.0).degrees(3) == 3.0
    assert CovariatePrior().degrees(4) == 5.0


def test_spread_follows_the_shape():
    """Fewer than two rows per column need a wider prior; a number is kept."""
    assert [CovariatePrior().width(n, 10) for n in (20, 19)] == [0.01, 1.0]
    assert CovariatePrior(spread=0.3).width(5, 10) == 0.3


@pytest.mark.parametrize("wrong", [{"spread": 0.0}, {"mean_scale": -1.0}])
def test_scales_must_be_positive(wrong):
    with pytest.raises(ValueError, match="positive spread and mean_scale"):
        CovariatePrior(**wrong)
