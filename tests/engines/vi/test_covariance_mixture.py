"""Covariances of group effects in logarithms, their densities, and intervals beside those of exact draws."""

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianSVC, RandomEffect
from softmargin.engines.vi.covariance_mixture import _differences, _from_logs, _log_volume, _to_logs
from softmargin.priors.composed.covariances import HalfTCovariance, InverseWishart


def covariance(s, seed=0):
    A = np.random.default_rng(seed).standard_normal((s, s + 2))
    return A @ A.T


@pytest.mark.parametrize("s", [1, 2, 3])
def test_logarithms_and_their_volume(s):
    S = covariance(s)
    x = _to_logs(S)
    np.testing.assert_allclose(_from_logs(x, s), S, rtol=1e-12)
    lower = np.tril_indices(s)

    def log_volume(x):
        h = 1e-6
        columns = [(_from_logs(x + h * e, s) - _from_logs(x - h * e, s))[lower] / (2.0 * h) for e in np.eye(len(x))]
        return np.linalg.slogdet(np.array(columns))[1]

    other = x + np.random.default_rng(1).normal(scale=0.5, size=len(x))
    difference = log_volume(other) - log_volume(x)
    assert _log_volume(other, s) - _log_volume(x, s) == pytest.approx(difference, abs=1e-6)


@pytest.mark.parametrize("prior", [HalfTCovariance(0.7, 3.0), InverseWishart(5.0, covariance(2, 4))])
def test_density_agrees_with_its_stretch(prior):
    """Along e^2t S the density in t has the volume e^(s(s + 1) t)."""
    S = covariance(2)
    along = prior.stretch(np.linalg.inv(S))
    for t in (-0.8, 0.3, 1.1):
        direct = prior.log_density(np.exp(2.0 * t) * S) - prior.log_density(S) + 6.0 * t
        assert along(t) - along(0.0) == pytest.approx(direct, rel=1e-10)


def test_half_t_has_half_t_standard_deviations():
    """The marginal density of one standard deviation, by summing over the rest."""
    prior = HalfTCovariance(0.8, 2.0)
    logs = np.linspace(-7.0, 7.0, 141)
    slopes = np.tan(np.linspace(-1.5, 1.5, 121))

    def marginal(sd):
        total = 0.0
        for b in logs:
            for r in np.tanh(slopes):
                other = np.exp(b)
                S = np.array([[sd**2, r * sd * other], [r * sd * other, other**2]])
                # volume: S12 = r sd other, S22 = other^2, and r = tanh(tan(angle))
                total += np.exp(prior.log_density(S)) * sd * other**3 * (1.0 - r**2) * (1.0 + np.arctanh(r) ** 2)
        return total * 2.0 * sd

    ratio = marginal(0.4) / marginal(1.5)
    t = [(1.0 + (sd / 0.8) ** 2 / 2.0) ** -1.5 for sd in (0.4, 1.5)]
    assert ratio == pytest.approx(t[0] / t[1], rel=0.01)


def test_differences_of_a_quadratic():
    A = covariance(3)
    gradient, hessian = _differences(lambda x: float(-0.5 * x @ A @ x + x.sum()), np.array([0.3, -0.2, 0.1]))
    np.testing.assert_allclose(gradient, 1.0 - A @ [0.3, -0.2, 0.1], atol=1e-9)
    np.testing.assert_allclose(hessian, -A, atol=1e-8)


@pytest.mark.soak
def test_intervals_are_those_of_exact_draws():
    rng = np.random.default_rng(1)
    g, x = np.repeat(np.arange(60), 8), 2.0 * rng.standard_normal(480)
    level, slope = 1.5 * rng.standard_normal(60), 0.6 * rng.standard_normal(60)
    y = (0.5 * x + level[g] + slope[g] * x + rng.logistic(size=480) > 0.0).astype(int)
    X = pd.DataFrame({"x": x, "g": g})
    options = {"random_effects": [RandomEffect("g", ["x"])], "likelihood": "logit"}
    vb = BayesianSVC(**options).fit(X, y)
    gibbs = BayesianSVC(inference="gibbs", draws=800, warmup=200, chains=2, random_state=0, **options).fit(X, y)
    a, b = vb.variance_components_, gibbs.variance_components_
    for effect in ("Intercept", "x"):
        one, other = (np.log(table.loc[("g", effect), ["lower", "upper"]].to_numpy(float)) for table in (a, b))
        np.testing.assert_allclose(one, other, atol=0.25)
    width = {name: np.ptp(t.loc[("g", "corr(Intercept, x)"), ["lower", "upper"]]) for name, t in (("a", a), ("b", b))}
    assert width["a"] == pytest.approx(width["b"], rel=0.35)
    sds = vb.random_effects_["g"]["sd"].to_numpy() / gibbs.random_effects_["g"]["sd"].to_numpy()
    assert 0.9 < np.median(sds) < 1.1
