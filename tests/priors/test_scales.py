"""Hyperpriors on the scale: fixed points, bounds, modes and draws against quadrature."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from softmargin.priors import FixedScale, HalfCauchy, HalfT, InverseGamma

P_LIMIT = 1e-4  # Kolmogorov-Smirnov, fixed seeds
LEARNED = [
    HalfT(1.0),
    HalfT(0.2, 3.0),
    HalfCauchy(1.0),
    HalfCauchy(0.3),
    HalfCauchy(5.0),
    InverseGamma(2.0, 1.0),
    InverseGamma(0.5, 3.0),
]


def log_inverse_gamma(x, a, b):
    return a * np.log(b) - math.lgamma(a) - (a + 1) * np.log(x) - b / x


@pytest.mark.parametrize("r", [0, 1, 2, 7, 100, 10_000])
@pytest.mark.parametrize("E", [1e-12, 1e-3, 1.0, 37.0, 1e9])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_half_cauchy_expectation_is_the_fixed_point(E, r, scale):
    """E 1/t = 1/(E tau + 1/scale^2) and E tau = ((r + 1)/2)/(E 1/t + E/2) hold together."""
    tau, bound = HalfCauchy(scale).expect(E, r)
    inverse_t = 1.0 / (tau + scale**-2)
    assert tau == pytest.approx(0.5 * (r + 1) / (inverse_t + 0.5 * E), rel=1e-9)
    assert tau > 0 and math.isfinite(bound)


@pytest.mark.parametrize(("E", "r", "scale"), [(3.7, 5, 1.0), (0.02, 1, 2.0), (60.0, 30, 0.3), (0.5, 12, 1.5)])
def test_half_cauchy_bound_is_direct(E, r, scale):
    """The bound equals E[log p - log q] over q(nu^2) q(t), by quadrature in two dimensions."""
    tau, bound = HalfCauchy(scale).expect(E, r)
    shape = 0.5 * (r + 1)
    rate, rate_t = shape / tau, tau + scale**-2
    s = np.exp(math.log(rate / shape) + np.linspace(-6, 60 / shape, 3000))[:, None]  # nu^2
    t = np.exp(math.log(rate_t) + np.linspace(-5, 40, 3000))[None, :]
    log_q_s, log_q_t = log_inverse_gamma(s, shape, rate), log_inverse_gamma(t, 1.0, rate_t)
    q_s, q_t = np.exp(log_q_s) * s, np.exp(log_q_t) * t  # densities of the logarithms
    q_s, q_t = q_s / q_s.sum(), q_t / q_t.sum()
    log_p = -0.5 * r * np.log(s) - 0.5 * E / s  # coefficients, without log 2 pi
    log_p = log_p + log_inverse_gamma(t, 0.5, scale**-2) - log_q_s - log_q_t
    log_p = log_p + 0.5 * np.log(1 / t) - math.lgamma(0.5) - 1.5 * np.log(s) - 1 / (t * s)  # IG(nu^2; 1/2, 1/t)
    assert bound == pytest.approx(float(q_s[:, 0] @ log_p @ q_t[0]), abs=1e-6)
    assert bound <= math.log(evidence(HalfCauchy(scale), E, r)) + 1e-9


@pytest.mark.parametrize(("E", "r", "scale", "df"), [(3.7, 5, 1.0, 4.0), (0.02, 1, 2.0, 2.5), (60.0, 30, 0.3, 7.0)])
def test_half_t_bound_is_direct(E, r, scale, df):
    """The same in the general case: nu^2 | t ~ IG(df/2, df/t), t ~ IG(1/2, 1/scale^2)."""
    prior = HalfT(scale, df)
    tau, bound = prior.expect(E, r)
    shape, other = 0.5 * (r + df), 0.5 * (df + 1.0)
    rate, rate_t = shape / tau, df * tau + scale**-2
    assert tau == pytest.approx(shape / (df * other / rate_t + 0.5 * E), rel=1e-9)
    s = np.exp(math.log(rate / shape) + np.linspace(-6, 60 / shape, 3000))[:, None]
    t = np.exp(math.log(rate_t / other) + np.linspace(-6, 40 / other, 3000))[None, :]
    log_q_s, log_q_t = log_inverse_gamma(s, shape, rate), log_inverse_gamma(t, other, rate_t)
    q_s, q_t = np.exp(log_q_s) * s, np.exp(log_q_t) * t
    q_s, q_t = q_s / q_s.sum(), q_t / q_t.sum()
    log_p = -0.5 * r * np.log(s) - 0.5 * E / s + log_inverse_gamma(t, 0.5, scale**-2) - log_q_s - log_q_t
    log_p = log_p + log_inverse_gamma(s, 0.5 * df, df / t)
    assert bound == pytest.approx(float(q_s[:, 0] @ log_p @ q_t[0]), abs=1e-6)
    assert bound <= math.log(evidence(prior, E, r)) + 1e-9


@pytest.mark.parametrize("df", [1.0, 2.5, 4.0, 30.0])
def test_half_t_density_is_that_of_scipy(df):
    prior = HalfT(0.7, df)
    for x in (-8.0, -1.0, 0.0, 0.5, 3.0, 20.0):
        wanted = math.log(2.0) + stats.t.logpdf(math.exp(x), df, scale=0.7) + x
        assert prior.log_density(x) == pytest.approx(wanted, rel=1e-10)


def test_half_cauchy_is_the_half_t_with_one_degree():
    assert HalfCauchy(0.6).expect(2.0, 5) == HalfT(0.6, 1.0).expect(2.0, 5)
    with pytest.raises(ValueError, match="positive degrees of freedom"):
        HalfT(1.0, 0.0)


def evidence(prior, E, r, moment=0):
    """Integral over log nu of hyperprior * nu^(-r - 2 moment) exp(-E/(2 nu^2))."""

    def integrand(x):
        return math.exp(prior.log_density(x) - (r + 2 * moment) * x - 0.5 * E * math.exp(-2 * x))

    centre = 0.5 * math.log(E / max(r, 1))
    return integrate.quad(integrand, -60, 60, points=[centre - 2, centre, centre + 2], limit=400, epsabs=0)[0]


@pytest.mark.parametrize(("E", "r"), [(3.7, 5), (0.02, 1), (60.0, 30)])
@pytest.mark.parametrize("prior", [InverseGamma(2.0, 1.0), InverseGamma(1.3, 0.6)])
def test_inverse_gamma_expectation_is_exact(prior, E, r):
    """Conjugate: the bound is the log evidence and E tau the posterior mean."""
    tau, bound = prior.expect(E, r)
    assert bound == pytest.approx(math.log(evidence(prior, E, r)), abs=1e-7)
    assert tau == pytest.approx(evidence(prior, E, r, moment=1) / evidence(prior, E, r), rel=1e-7)


@pytest.mark.parametrize(("E", "r"), [(3.7, 5), (0.02, 1), (60.0, 30)])
def test_inverse_gamma_mode_is_the_maximum_over_the_precision(E, r):
    prior = InverseGamma(2.5, 0.7)

    def negative(log_tau):
        x = math.exp(log_tau)
        return -(stats.gamma.logpdf(x, 2.5, scale=1 / 0.7) + 0.5 * r * log_tau - 0.5 * E * x)

    found = optimize.minimize_scalar(negative, bracket=(-3, 0, 3), tol=1e-12)
    tau, bound = prior.mode(E, r)
    assert tau == pytest.approx(math.exp(found.x), rel=1e-6)
    assert bound == pytest.approx(-found.fun, rel=1e-10)


def test_fixed_scale_is_the_normal_density():
    E, r, beta = 5.0, 2, np.array([1.0, 2.0])
    for solved in (FixedScale(0.4).expect, FixedScale(0.4).mode):
        tau, bound = solved(E, r)
        assert tau == pytest.approx(6.25)
        assert bound - 0.5 * r * math.log(2 * math.pi) == pytest.approx(stats.norm.logpdf(beta, scale=0.4).sum())
    assert FixedScale(0.4).draw(np.random.default_rng(0), E, r, 1.0) == pytest.approx(6.25)


@pytest.mark.parametrize("prior", LEARNED, ids=str)
def test_log_density_is_of_the_logarithm(prior):
    """It integrates to one over log nu and is the textbook density with its Jacobian."""
    total = integrate.quad(lambda x: math.exp(prior.log_density(x)), -80, 80, points=[-2, 0, 2], limit=400)[0]
    assert total == pytest.approx(1.0, abs=1e-7)
    nu = np.array([0.01, 0.3, 1.0, 8.0])
    if isinstance(prior, HalfT):
        wanted = math.log(2.0) + stats.t.logpdf(nu, prior.df, scale=prior.scale) + np.log(nu)
    else:
        wanted = stats.invgamma.logpdf(nu**2, prior.a, scale=prior.b) + np.log(2 * nu**2)
    np.testing.assert_allclose([prior.log_density(math.log(x)) for x in nu], wanted, rtol=1e-12)


def conditional(prior, E, r):
    """Grid of log nu and the distribution function of its law given the coefficients."""
    x = np.linspace(-12, 12, 24_001)
    log_mass = np.array([prior.log_density(t) for t in x]) - r * x - 0.5 * E * np.exp(-2 * x)
    mass = np.cumsum(np.exp(log_mass - log_mass.max()))
    return x, mass / mass[-1]


@pytest.mark.parametrize(("E", "r"), [(3.7, 5), (0.3, 1), (60.0, 40), (1e4, 12), (1e-4, 12)])
@pytest.mark.parametrize("prior", LEARNED, ids=str)
def test_draws_have_the_conditional_law_from_wherever_they_start(prior, E, r):
    rng = np.random.default_rng(3)
    x, cdf = conditional(prior, E, r)
    tau = np.array([prior.draw(rng, E, r, 1e8) for _ in range(1200)])
    assert stats.kstest(np.interp(-0.5 * np.log(tau), x, cdf), "uniform").pvalue > P_LIMIT


@pytest.mark.parametrize("prior", LEARNED, ids=str)
def test_a_wrong_factor_is_rejected(prior):
    """Negative control: E not halved, or r in place of r/2, fails the same test."""
    rng = np.random.default_rng(4)
    tau = np.array([prior.draw(rng, 60.0, 40, 0.7) for _ in range(1200)])
    for wrong in (conditional(prior, 120.0, 40), conditional(prior, 60.0, 80)):
        assert stats.kstest(np.interp(-0.5 * np.log(tau), *wrong), "uniform").pvalue < 1e-8


def test_refusals():
    with pytest.raises(ValueError, match="a > 0 and b > 0; got a=0"):
        InverseGamma(0.0, 1.0)
    with pytest.raises(ValueError, match=r"must exceed 1 and is 0\.9"):
        InverseGamma(0.4, 1.0).mode(1.0, 1)
    assert not hasattr(HalfCauchy(), "mode")


# ---- rho = nu^-kappa, as exponential-power coefficients need it ------------------------------------------------------


def power_law(prior, e, m, kappa):
    """Fine grid of log nu and the log of hyperprior * rho^m exp(-rho e) on it."""
    centre = math.log(e / m) / kappa
    x = np.linspace(min(centre, 0.0) - 12 / kappa, max(centre, 0.0) + 40, 200_001)
    return x, np.array([prior.log_density_power(t, kappa) for t in x]) - kappa * m * x - e * np.exp(-kappa * x)


POWERS = [(0.5, 2), (1.0, 2), (1.0, 6), (1.5, 5), (2.0, 40)]  # exponent, and number of coefficients


@pytest.mark.parametrize("e", [0.02, 1.0, 60.0])
@pytest.mark.parametrize(("kappa", "r"), POWERS)
@pytest.mark.parametrize("prior", [HalfCauchy(1.0), HalfCauchy(5.0), InverseGamma(2.0, 1.0)], ids=str)
def test_power_expectation_is_exact(prior, kappa, r, e):
    """E rho and the log evidence by quadrature; nothing is factorised here, so both are exact."""
    x, log_mass = power_law(prior, e, r / kappa, kappa)
    total = np.logaddexp.reduce(log_mass)
    rho, evidence = prior.expect_power(e, r / kappa, kappa)
    assert evidence == pytest.approx(total + math.log(x[1] - x[0]), abs=1e-6)
    assert rho == pytest.approx(float(np.exp(log_mass - total) @ np.exp(-kappa * x)), rel=1e-5)


def test_power_expectation_of_one_small_coefficient():
    x, log_mass = power_law(HalfCauchy(1.0), 1e-6, 1.0, 1.0)
    total = np.logaddexp.reduce(log_mass)
    assert HalfCauchy(1.0).expect_power(1e-6, 1.0, 1.0)[1] == pytest.approx(total + math.log(x[1] - x[0]), abs=1e-4)


def test_powers_of_two_are_the_normal_case():
    """kappa = 2, m = r/2 and e = E/2: the conjugate answers agree, and the factorised bound is below the evidence."""
    for prior, solved in (
        (InverseGamma(2.0, 1.0), "expect"),
        (InverseGamma(2.0, 1.0), "mode"),
        (FixedScale(0.4), "mode"),
    ):
        wanted = getattr(prior, solved)(3.7, 5)
        assert getattr(prior, f"{solved}_power")(1.85, 2.5, 2.0) == pytest.approx(wanted, rel=1e-12)
    gap = HalfCauchy(1.0).expect_power(1.85, 2.5, 2.0)[1] - HalfCauchy(1.0).expect(3.7, 5)[1]
    assert 0.0 < gap < 0.5


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
def test_power_density_is_of_the_logarithm(kappa):
    """With Gamma(a, rate b) on nu^-kappa the density of log nu integrates to one and has its Jacobian."""
    prior = InverseGamma(2.0, 1.0)
    total = integrate.quad(lambda x: math.exp(prior.log_density_power(x, kappa)), -40, 80, points=[-2, 0, 2], limit=400)
    assert total[0] == pytest.approx(1.0, abs=1e-7)
    wanted = stats.gamma.logpdf(0.3**-kappa, 2.0) + math.log(kappa * 0.3**-kappa)
    assert prior.log_density_power(math.log(0.3), kappa) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("kappa", "r"), POWERS)
@pytest.mark.parametrize("prior", [HalfCauchy(1.0), InverseGamma(2.0, 1.0)], ids=str)
def test_power_draws(prior, kappa, r):
    rng, n, m = np.random.default_rng(6), 1200, r / kappa
    x, log_mass = power_law(prior, 1.3, m, kappa)
    cdf = np.cumsum(np.exp(log_mass - log_mass.max()))
    cdf /= cdf[-1]
    start = np.exp(np.interp(rng.random(n), cdf, x))
    drawn = np.array([prior.draw_power(rng, 1.3, m, kappa, scale) for scale in start])
    assert stats.kstest(np.interp(np.log(drawn), x, cdf), "uniform").pvalue > P_LIMIT
    assert np.corrcoef(np.log(start), np.log(drawn))[0, 1] < 0.9  # it moves
    wrong = np.interp(np.log(1.5 * drawn), x, cdf)  # negative control
    assert stats.kstest(wrong, "uniform").pvalue < 1e-8


@pytest.mark.parametrize("df", [1.0, 10.0])
def test_the_precision_falls_as_one_over_the_squares_however_large_these_are(df):
    near, far = (HalfT(1.0, df).expect(E, 5) for E in (1e20, 1e300))
    assert far[0] * 1e300 == pytest.approx(near[0] * 1e20, rel=1e-9)
    assert math.isfinite(far[1])


def test_an_energy_without_bounds_is_said_to_be_one():
    with pytest.raises(FloatingPointError, match="not a finite number"):
        HalfT().expect_power(math.inf, 2.0, 1.0)


@pytest.mark.parametrize("hyper", [HalfT(0.7, 3.0), HalfCauchy(2.0), InverseGamma(2.0, 0.5)])
def test_densities_at_many_points_are_those_at_each(hyper):
    points = np.linspace(-40.0, 40.0, 33)
    points = points[points > -5.0] if isinstance(hyper, InverseGamma) else points  # its exponential overflows below
    np.testing.assert_allclose(hyper.log_densities(points), [hyper.log_density(x) for x in points.tolist()], rtol=1e-13)
