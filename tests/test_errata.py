"""Numerical proofs of the corrections listed in ``docs/explanation/errata.md``.

Each test computes its target by quadrature, by an optimiser or from an exact posterior, shows that the corrected
formula hits it and, where the papers print something else, that the printed formula misses it. The library is not
imported: these are facts about the mathematics, against which the library is then written.

PS = Polson & Scott (2011), LO = Luts & Ormerod (2014), L = Liu (2020). Rows are z_i = y_i x_i, u_i = 1 - z_i'beta.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import integrate, optimize, stats
from scipy.special import expit, gamma, gammaln, kv
from sklearn.svm import LinearSVC

from benchmarks.gibbs_order import exact_moments, lasso_chains


def hinge(u):
    return np.maximum(u, 0.0)


def integral(log_density, low=-90.0, high=14.0, nodes=8001):
    """Integrate exp(log_density(x)) over x > 0 by the trapezium rule in log x."""
    t = np.linspace(low, high, nodes)
    return np.trapezoid(np.exp(log_density(np.exp(t)) + t), t)


def expectation(function, log_density):
    """E function(x) under the density on x > 0 proportional to exp(log_density)."""
    return integral(lambda x: log_density(x) + np.log(function(x))) / integral(log_density)


def box_dual(Z, c, slope, variance, sweeps=20_000):
    """Minimise slope * sum c hinge(1 - Z b) + |b|^2 / (2 variance) by exact dual coordinate ascent."""
    g, b = np.zeros(len(Z)), np.zeros(Z.shape[1])
    norms = variance * np.sum(Z**2, axis=1)
    for _ in range(sweeps):
        largest = 0.0
        for i in range(len(Z)):
            new = min(max(g[i] + (1.0 - Z[i] @ b) / norms[i], 0.0), slope * c[i])
            b += variance * (new - g[i]) * Z[i]
            largest = max(largest, abs(new - g[i]))
            g[i] = new
        if largest < 1e-14:
            break
    primal = slope * c @ hinge(1 - Z @ b) + b @ b / (2 * variance)
    assert primal - (g.sum() - b @ b / (2 * variance)) < 1e-9 * (1 + primal)
    return b, g


@pytest.fixture(scope="module")
def rows():
    """Twenty-four overlapping rows z_i = y_i x_i with three columns, and unequal weights."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((24, 3))
    y = np.where(X @ [1.0, -0.7, 0.2] + rng.standard_normal(24) > 0, 1.0, -1.0)
    return y[:, None] * X, rng.uniform(0.5, 2.0, 24)


# ---- the hinge as a mixture of normals ---------------------------------------------------------------------------


def log_row(lam, u, c):
    """Log of the augmented row with weight c: c N(u; -c lam, lam)."""
    return math.log(c) - 0.5 * np.log(2 * math.pi * lam) - (u + c * lam) ** 2 / (2 * lam)


@pytest.mark.parametrize("c", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("u", [-1.3, 0.0, 0.001, 0.7, 2.0])
def test_augmentation_integral(u, c):
    """PS theorem 1 holds, and with a weight it needs the factor c in front and c lam in the mean."""
    assert integral(lambda lam: log_row(lam, u, c)) == pytest.approx(math.exp(-2 * c * hinge(u)), rel=1e-8)


@pytest.mark.parametrize("u", [-0.8, 0.6])
def test_augmentation_sign(u):
    """PS proof of corollary 2: (u - lam)^2 has the same law of lam, but is not the hinge as a function of beta."""
    value = integral(lambda lam: -0.5 * np.log(2 * math.pi * lam) - (u - lam) ** 2 / (2 * lam))
    assert value == pytest.approx(math.exp(-2 * hinge(-u)), rel=1e-8)  # the hinge of the wrong side
    assert abs(value - math.exp(-2 * hinge(u))) > 0.5


@pytest.mark.parametrize("c", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("u", [-1.3, 0.2, 1.7])
def test_row_conditional(u, c):
    """PS (11) and slides: 1/lam is inverse Gaussian with mean c/|u| (not |u|) and shape c^2."""

    def conditional(lam):
        return log_row(lam, u, c)

    def inverse(lam):
        return 1 / lam

    assert expectation(inverse, conditional) == pytest.approx(c / abs(u), rel=1e-8)
    assert expectation(lambda lam: lam, conditional) == pytest.approx(abs(u) / c + 1 / c**2, rel=1e-8)
    second = expectation(lambda lam: lam**-2.0, conditional)
    assert second - (c / abs(u)) ** 2 == pytest.approx((c / abs(u)) ** 3 / c**2, rel=1e-7)  # variance mu^3 / shape
    assert abs(expectation(inverse, conditional) - abs(u)) > 0.05  # the slides' mean


def test_weights_are_repeated_rows():
    """A row of weight two is two equal rows, in value and in the Gaussian message (w, b) that it sends."""
    u = np.array([-0.7, 0.3, 1.1])
    once = np.array([integral(lambda lam, v=v: log_row(lam, v, 1.0)) for v in u])
    twice = np.array([integral(lambda lam, v=v: log_row(lam, v, 2.0)) for v in u])
    np.testing.assert_allclose(twice, once**2, rtol=1e-8)
    # Score in f of the expected message: b - w f with w = E[1/lam], b = c + w; f = 1 - u. Here it is 2 c 1(u > 0).
    for v in u:
        for c in (1.0, 2.0):
            w = expectation(lambda lam: 1 / lam, lambda lam, v=v, c=c: log_row(lam, v, c))
            assert (c + w) - w * (1 - v) == pytest.approx(2 * c * (v > 0), abs=1e-7)


# ---- scales: what the objective, the prior and its mixture mean -----------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0])
def test_objective_is_twice_the_criterion(alpha, rows):
    """PS (2), L (13): likelihood times prior is exp(-2 d(beta, 2^(1/alpha) nu)), not exp(-d(beta, nu))."""
    Z, _ = rows
    nu, sigma = 0.8, np.array([0.5, 1.0, 2.0])

    def criterion(beta, scale):
        return np.sum(hinge(1 - Z @ beta)) + np.sum(np.abs(beta / (scale * sigma)) ** alpha)

    beta, other = np.random.default_rng(0).standard_normal((2, 3))

    def log_posterior(beta):
        return -2 * np.sum(hinge(1 - Z @ beta)) - np.sum(np.abs(beta / (nu * sigma)) ** alpha)

    change = log_posterior(beta) - log_posterior(other)
    scale = 2 ** (1 / alpha) * nu
    assert change == pytest.approx(-2 * (criterion(beta, scale) - criterion(other, scale)), rel=1e-12)
    assert abs(change + criterion(beta, nu) - criterion(other, nu)) > 0.1


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5, 2.0])
def test_exponential_power_normaliser(alpha):
    """PS (5): the constant is 1 / (2 nu sigma Gamma(1 + 1/alpha)); the printed one is too large by 2 alpha sigma."""
    nu, sigma = 1.7, 0.6
    mass = 2 * integral(lambda x: -((x / (nu * sigma)) ** alpha))
    assert mass / (2 * nu * sigma * gamma(1 + 1 / alpha)) == pytest.approx(1.0, rel=1e-8)
    assert mass * alpha / (nu * gamma(1 + 1 / alpha)) == pytest.approx(2 * alpha * sigma, rel=1e-8)


def tilted_stable(alpha, z, power):
    """E[S^power exp(-z^2 S)] for the positive stable S with transform exp(-s^(alpha/2)), by Kanter's formula."""
    a = alpha / 2
    x, weight = np.polynomial.legendre.leggauss(400)
    angle = (x + 1) * math.pi / 2
    t = np.linspace(-60.0, 6.0, 1601)  # log of the exponential variable
    log_a = np.log(np.sin((1 - a) * angle)) + a / (1 - a) * np.log(np.sin(a * angle))
    log_a -= np.log(np.sin(angle)) / (1 - a)
    log_s = (1 - a) / a * (log_a[:, None] - t)
    inner = np.trapezoid(np.exp(power * log_s - z**2 * np.exp(log_s) + t - np.exp(t)), t, axis=1)
    return weight @ inner / 2


@pytest.mark.parametrize("z", [0.4, 1.0, 2.3])
@pytest.mark.parametrize("alpha", [0.6, 1.0, 1.5, 1.9, 1.99])
def test_mixing_precision_mean(alpha, z):
    """PS corollary 4: E[1/omega | beta] = alpha z^(alpha - 2), with 1/omega = 2 S."""
    assert tilted_stable(alpha, z, 0) == pytest.approx(math.exp(-(z**alpha)), rel=1e-5)
    mean = 2 * tilted_stable(alpha, z, 1) / tilted_stable(alpha, z, 0)
    assert mean == pytest.approx(alpha * z ** (alpha - 2), rel=1e-4)


def test_ridge_limit_of_exponential_power():
    """PS 2.2 and 3.1, L 2.2: at alpha = 2 the mixing variable is 1/2, not 1; so nu_EP = sqrt(2) nu_Gauss."""
    beta, nu = np.array([0.2, 0.4, 2.4]), 1.3
    density = np.exp(-((beta / nu) ** 2)) / (2 * nu * gamma(1.5))
    np.testing.assert_allclose(stats.norm.pdf(beta, scale=nu * math.sqrt(0.5)), density, rtol=1e-12)
    assert np.all(np.abs(stats.norm.pdf(beta, scale=nu) / density - 1) > 0.2)
    assert 2 * tilted_stable(1.999, 1.0, 1) / tilted_stable(1.999, 1.0, 0) == pytest.approx(2.0, abs=5e-3)


def test_stable_argument():
    """PS theorem 2 at alpha = 1: omega^(-3/2) St(1/(2 omega)) is exponential with mean 2; St(1/omega) has mean 4."""

    def log_levy(s):  # positive stable of index 1/2, transform exp(-sqrt(s))
        return -math.log(2 * math.sqrt(math.pi)) - 1.5 * np.log(s) - 1 / (4 * s)

    def corrected(omega):
        return -1.5 * np.log(omega) + log_levy(1 / (2 * omega))

    def printed(omega):
        return -1.5 * np.log(omega) + log_levy(1 / omega)

    assert expectation(lambda omega: omega, corrected) == pytest.approx(2.0, rel=1e-8)
    assert expectation(lambda omega: omega, printed) == pytest.approx(4.0, rel=1e-8)


@pytest.mark.parametrize("nu", [0.5, 2.0])
def test_prior_scale_direction(nu):
    """PS and L, hierarchical form: beta = nu sqrt(omega) sigma eps; with 1/nu the prior would be Laplace(1/nu)."""
    beta = 0.7

    def mixture(scale):
        return integral(
            lambda w: -0.5 * np.log(2 * math.pi * scale**2 * w) - beta**2 / (2 * scale**2 * w) - w / 2 - math.log(2)
        )

    assert mixture(nu) == pytest.approx(stats.laplace.pdf(beta, scale=nu), rel=1e-8)
    assert mixture(1 / nu) != pytest.approx(stats.laplace.pdf(beta, scale=nu), rel=0.05)


@pytest.mark.parametrize(
    ("slope", "quadratic", "cost"),
    [
        pytest.param(2.0, lambda s: 1 / (2 * s**2), lambda s: 2 * s**2, id="normal-sd"),
        pytest.param(2.0, lambda s: 1 / s**2, lambda s: s**2, id="exponential-power"),
        pytest.param(1.0, lambda s: 1 / s**2, lambda s: s**2 / 2, id="PS-criterion"),
    ],
)
def test_ridge_scale_and_cost(slope, quadratic, cost, rows):
    """slope * H + quadratic * |b|^2 has the minimiser of liblinear's |b|^2 / 2 + C H, one C per convention."""
    Z, _ = rows
    s = 0.7
    b, _ = box_dual(Z, np.ones(len(Z)), slope, 1 / (2 * quadratic(s)))
    y = np.where(np.arange(len(Z)) % 2 == 0, 1, -1)
    model = LinearSVC(loss="hinge", C=cost(s), fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0)
    np.testing.assert_allclose(model.fit(y[:, None] * Z, y).coef_[0], b, atol=1e-5)
    wrong = LinearSVC(loss="hinge", C=2 * cost(s), fit_intercept=False, tol=1e-10, max_iter=10**6, random_state=0)
    assert np.max(np.abs(wrong.fit(y[:, None] * Z, y).coef_[0] - b)) > 1e-3


def lasso_machine(X, y, slope, rate, intercept=True):
    """Minimise slope * sum hinge + sum rate |b| as a linear programme; the intercept is free."""
    n, p = X.shape
    cost = np.concatenate([rate, rate, [0.0, 0.0], np.full(n, slope)])
    free = np.ones((n, 1)) if intercept else np.zeros((n, 1))
    design = y[:, None] * np.hstack([X, -X, free, -free])
    result = optimize.linprog(cost, A_ub=-np.hstack([design, np.eye(n)]), b_ub=-np.ones(n), method="highs")
    assert result.success
    return result.x[:p] - result.x[p : 2 * p]


@pytest.fixture(scope="module")
def labelled():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 2)) * [1.4, 0.8]
    return X, np.where(X @ [1.0, -1.0] + rng.standard_normal(40) > 0, 1.0, -1.0)


def test_lasso_rate(labelled):
    """PS section 5: in the form sum hinge + lam |b|_1 the rate is 1/(2 nu), not 1/nu."""
    X, y = labelled
    nu = 0.15
    ours = lasso_machine(X, y, 2.0, np.full(2, 1 / nu))
    np.testing.assert_allclose(lasso_machine(X, y, 1.0, np.full(2, 1 / (2 * nu))), ours, atol=1e-7)
    assert np.max(np.abs(lasso_machine(X, y, 1.0, np.full(2, 1 / nu)) - ours)) > 0.05


def test_penalty_units(labelled):
    """PS (1), L (1): penalising |beta_j / sd_j| makes the fit depend on units; |beta_j sd_j| does not."""
    X, y = labelled

    def standardised(units, power):
        scaled = X * [units, 1.0]
        sd = scaled.std(axis=0)
        return lasso_machine(scaled, y, 2.0, sd**power / 0.12) * sd

    for units in (10.0, 1000.0):
        np.testing.assert_allclose(standardised(units, 1.0), standardised(1.0, 1.0), atol=1e-6)
    assert np.max(np.abs(standardised(10.0, -1.0) - standardised(1.0, -1.0))) > 0.1


# ---- modes: EM, restricted least squares, the scale ------------------------------------------------------------------


def test_em_reaches_the_support_vector_machine(rows):
    """PS (14) with weights: w = c/|u|, right side Z'(c + w); monotone, and its limit closes the duality gap."""
    Z, c = rows
    variance = 0.2
    exact, g = box_dual(Z, c, 2.0, variance)
    assert np.sum((g > 1e-8) & (g < 2 * c - 1e-8)) == 1  # not a vertex: every term of the step matters

    def objective(b):
        return 2 * c @ hinge(1 - Z @ b) + b @ b / (2 * variance)

    b = np.linalg.solve(np.eye(3) + Z.T @ Z, 2 * Z.T @ np.ones(len(Z)))
    trace = [objective(b)]
    for _ in range(3000):
        w = c / np.sqrt((1 - Z @ b) ** 2 + 1e-14)
        b = np.linalg.solve(np.eye(3) / variance + Z.T @ (w[:, None] * Z), Z.T @ (c + w))
        trace.append(objective(b))
    assert np.max(np.diff(trace)) < 1e-7
    assert trace[-1] - objective(exact) < 1e-5
    np.testing.assert_allclose(b, exact, atol=1e-3)


def test_support_vectors_and_the_margin(rows):
    """PS 3.1: support vectors have y f <= 1; those strictly inside carry 2 c; none need lie where f = 0."""
    Z, c = rows
    b, g = box_dual(Z, c, 2.0, 0.9)
    margin = Z @ b
    on = (g > 1e-8) & (g < 2 * c - 1e-8)
    assert on.any()
    np.testing.assert_allclose(margin[on], 1.0, atol=1e-8)
    np.testing.assert_allclose(g[margin < 1 - 1e-8], 2 * c[margin < 1 - 1e-8], atol=1e-10)
    np.testing.assert_allclose(g[margin > 1 + 1e-8], 0.0, atol=1e-10)
    assert np.sum(margin < 1 - 1e-8) > 0
    assert np.min(np.abs(margin[on])) > 0.9


def test_restricted_least_squares_inverse():
    """PS (15), L (10): the inverse is in terms of G = B^-1 and of X_s alone."""
    rng = np.random.default_rng(3)
    Xs, other = rng.standard_normal((2, 2, 4))  # as many rows left as pinned, so that the printed product exists
    B = np.diag(rng.uniform(0.5, 2.0, 4)) + other.T @ other
    system = np.block([[B, Xs.T], [Xs, np.zeros((2, 2))]])

    def blocks(corner, F, right, outer, inner):
        return np.block([[corner + corner @ outer.T @ F @ inner @ corner, -right @ F], [-F @ right.T, F]])

    G = np.linalg.inv(B)
    F = -np.linalg.inv(Xs @ G @ Xs.T)
    np.testing.assert_allclose(blocks(G, F, G @ Xs.T, Xs, Xs), np.linalg.inv(system), atol=1e-12)
    printed = -np.linalg.inv(Xs @ B @ Xs.T)
    for inner in (other, Xs):  # PS, then L
        wrong = blocks(B, printed, B @ Xs.T, other, inner)
        assert np.max(np.abs(wrong - np.linalg.inv(system))) > 0.1


def test_release_of_pinned_rows():
    """PS 3.2: a row pinned to the margin with -psi outside [0, 2c] must be released, or the limit is not the mode."""
    Z = np.array([[1.0]] + [[0.2]] * 6)
    c, variance = np.ones(7), 100.0
    b = np.array([1.0])  # the first row sits on the margin, where its EM weight is infinite
    for _ in range(50):
        w = 1 / np.abs(1 - Z[1:] @ b)
        A = np.eye(1) / variance + Z[1:].T @ (w[:, None] * Z[1:])
        system = np.block([[A, Z[:1].T], [Z[:1], np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.concatenate([Z[1:].T @ (1 + w), [1.0]]))
        b, psi = solution[:1], solution[1]
    exact, g = box_dual(Z, c, 2.0, variance)

    def objective(b):
        return 2 * np.sum(hinge(1 - Z @ b)) + b @ b / (2 * variance)

    assert b[0] == pytest.approx(1.0)
    assert not 0 <= -psi <= 2
    assert objective(b) > objective(exact) + 5
    assert 0 <= g[0] <= 2


@pytest.mark.parametrize(
    ("to_rate", "shift"),
    [
        pytest.param(lambda t, alpha: np.exp(t), lambda alpha: -1.0, id="rate"),
        pytest.param(lambda t, alpha: np.exp(-t), lambda alpha: 1.0, id="nu^alpha"),
        pytest.param(lambda t, alpha: np.exp(-alpha * t), lambda alpha: 1 / alpha, id="nu"),
    ],
)
@pytest.mark.parametrize("alpha", [1.0, 1.6, 2.0])
def test_scale_step_direction(alpha, to_rate, shift):
    """PS CME step: nu^alpha = (b + S) / (k/alpha + a - 1); the shape depends on what is maximised over."""
    beta, a, b = np.array([0.3, -1.2, 0.8, 0.1]), 2.0, 0.7
    k, S = len(beta), np.sum(np.abs(beta) ** alpha)

    def log_joint(rate):  # prior of beta given nu = rate^(-1/alpha), times Gamma(a, b) on the rate
        nu = rate ** (-1 / alpha)
        prior = stats.gennorm.logpdf(beta, alpha, scale=nu).sum()
        return prior + stats.gamma.logpdf(rate, a, scale=1 / b)

    # t is the logarithm of the variable maximised over; |d rate / d variable| is the Jacobian of its density.
    def loss(t):
        step = 1e-5
        derivative = abs(to_rate(t + step, alpha) - to_rate(t - step, alpha)) / (math.exp(t) * 2 * step)
        return -(log_joint(to_rate(t, alpha)) + math.log(derivative))

    best = optimize.minimize_scalar(loss, bounds=(-6, 6), method="bounded", options={"xatol": 1e-10}).x
    mode = (k / alpha + a + shift(alpha)) / (b + S)
    assert to_rate(best, alpha) == pytest.approx(mode, rel=1e-3)
    assert to_rate(best, alpha) != pytest.approx(1 / mode, rel=0.05)  # the printed direction


def test_joint_mode_degenerates_without_a_rate(rows):
    """PS 3.3: with b = 0, or a half-Cauchy scale, beta = 0 is a mode of infinite density; Gamma(2, 1) removes it."""
    Z, c = rows
    k, shrink = 3, 10.0 ** -np.arange(0, 141, 20)
    direction = np.array([0.8, -0.6, 0.2])

    def profile(b, a=2.0):  # minus the log joint, maximised over the rate, at t * direction
        values = []
        for t in shrink:
            S = t**2 * direction @ direction / 2
            values.append(2 * c @ hinge(1 - Z @ (t * direction)) + (k / 2 + a - 1) * math.log(b + S))
        return np.array(values)

    assert np.all(np.diff(profile(0.0)) < -100) and profile(0.0)[-1] < -1000
    assert profile(1.0)[-1] == pytest.approx(2 * c.sum())  # finite at zero
    assert profile(1.0).min() < profile(1.0)[-1] - 1  # and the interior is better

    def half_cauchy(nu):
        return stats.norm.logpdf(np.zeros(k), scale=nu).sum() + stats.halfcauchy.logpdf(nu)

    heights = np.array([half_cauchy(nu) for nu in 10.0 ** -np.arange(0, 60, 10)])
    assert np.all(np.diff(heights) > 60)


# ---- sampling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1, 2])
def test_scale_conditional(power):
    """PS step 4, L (21): Gamma(a + k/power, b + sum over scaled coefficients), for Laplace and normal priors."""
    beta, sigma, a, b = np.array([0.4, -1.1, 0.6]), np.array([0.3, 1.0, 2.5]), 2.0, 1.5
    rate = np.array([0.2, 0.9, 3.0])
    law = {1: stats.laplace, 2: stats.norm}[power]
    joint = np.array([law.logpdf(beta, scale=sigma * r ** (-1 / power)).sum() for r in rate])
    joint = joint + stats.gamma.logpdf(rate, a, scale=1 / b)

    def spread(shape, total):
        return np.ptp(joint - stats.gamma.logpdf(rate, shape, scale=1 / (b + total)))

    scaled = np.sum(np.abs(beta / sigma) ** power) / power
    assert spread(a + 3 / power, scaled) < 1e-12
    assert spread(a + 3 / power, np.sum(np.abs(beta) ** power) / power) > 0.5  # PS: sigma left out
    assert spread(a + 3 / power - 1, scaled) > 0.5  # L: one too few


@pytest.mark.slow
def test_gibbs_order():
    """PS steps 3-4, L steps 3-5: the scale is drawn before omega; the printed order has another limit."""
    exact = exact_moments()
    mean, error = lasso_chains(True, seed=1)
    assert np.max(np.abs(mean - exact) / error) < 4
    mean, error = lasso_chains(False, seed=2)
    assert np.min(np.abs(mean - exact) / error) > 6


# ---- mean field ------------------------------------------------------------------------------------------------------


def printed_bound(X, y, alpha, mu, Sigma, chi):
    """LO, bound of algorithm 1 as printed."""
    n, p = X.shape
    return (
        p / 2 - n + n * math.log(2) - n / 2 * math.log(2 * math.pi) + p / 2 * math.log(4 * alpha)
        + np.linalg.slogdet(Sigma)[1] / 2 - 2 * alpha * (mu @ mu + np.trace(Sigma)) + y @ X @ mu
        + np.sum(np.log(chi)) / 4 + np.sum(np.log(kv(0.5, np.sqrt(chi))))
    )  # fmt: skip


def direct_bound(X, y, alpha, mu, Sigma, chi):
    """E_q[log p(y, a, beta) - log q(a) - log q(beta)] by quadrature over beta (two columns) and each a."""
    x, weight = hermegauss(20)
    weight = weight / weight.sum()
    first, second = np.meshgrid(x, x, indexing="ij")
    beta = mu + np.stack([first.ravel(), second.ravel()], axis=1) @ np.linalg.cholesky(Sigma).T
    weights = np.outer(weight, weight).ravel()
    q, prior = stats.multivariate_normal(mu, Sigma), stats.multivariate_normal(np.zeros(2), np.eye(2) / (4 * alpha))
    value = weights @ (prior.logpdf(beta) - q.logpdf(beta))
    t = np.linspace(-25, 7, 1601)
    a = np.exp(t)
    for row, label, chi_i in zip(X, y, chi, strict=True):
        log_q = -0.5 * np.log(a) - (chi_i / a + a) / 2
        log_q -= math.log(np.trapezoid(np.exp(log_q + t), t))
        margin = label * beta @ row
        log_p = -0.5 * np.log(2 * math.pi * a) - (1 + a - margin[:, None]) ** 2 / (2 * a)
        value += np.trapezoid(np.exp(log_q + t) * (weights @ log_p - log_q), t)
    return value


@pytest.fixture(scope="module")
def cycle():
    """Two cycles of LO algorithm 1 and the coefficient update of a third; the bound after the two cycles."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((14, 2))
    y = np.where(X @ [1.0, -1.0] + rng.standard_normal(14) > 0, 1.0, -1.0)
    alpha, w, bounds = 0.3, np.ones(14), []
    for _ in range(3):
        Sigma = np.linalg.inv(X.T @ (w[:, None] * X) + 4 * alpha * np.eye(2))
        mu = Sigma @ X.T @ ((1 + w) * y)
        stale = 1 / w**2  # the chi that q(a) still has
        chi = (1 - y * (X @ mu)) ** 2 + np.einsum("ij,jk,ik->i", X, Sigma, X)
        w = chi**-0.5
        bounds.append(direct_bound(X, y, alpha, mu, Sigma, chi))
    return (X, y, alpha, mu, Sigma), chi, stale, bounds[-2]


def test_mean_field_bound_at_the_end_of_a_cycle(cycle):
    """LO bound of algorithm 1: right once q(a) follows the coefficients, and without any Bessel function."""
    state, chi, _, _ = cycle
    X, y, alpha, mu, Sigma = state
    value = direct_bound(*state, chi)
    assert printed_bound(*state, chi) == pytest.approx(value, abs=1e-8)
    kl = 0.5 * (4 * alpha * (np.trace(Sigma) + mu @ mu) - 2 - 2 * math.log(4 * alpha) - np.linalg.slogdet(Sigma)[1])
    assert np.sum(y * (X @ mu) - 1 - np.sqrt(chi)) - kl == pytest.approx(value, abs=1e-8)
    assert kv(0.5, 800.0) == 0.0  # why the closed form is needed
    mass = integrate.dblquad(
        lambda s, r: math.exp(-2 * hinge(1 - y * (X @ [r, s])).sum() - 2 * alpha * (r * r + s * s)), -9, 9, -9, 9
    )[0]
    assert value < math.log(mass * 4 * alpha / (2 * math.pi))  # a lower bound of the log evidence


def test_mean_field_bound_in_mid_cycle(cycle):
    """LO, all bounds: before q(a) is refreshed the printed form is not the bound; the general row is."""
    state, chi, stale, previous = cycle
    X, y, alpha, mu, Sigma = state
    value = direct_bound(*state, stale)
    assert printed_bound(*state, stale) < value - 0.03
    assert printed_bound(*state, stale) < previous - 0.03 < previous < value  # a decrease that did not happen
    kl = 0.5 * (4 * alpha * (np.trace(Sigma) + mu @ mu) - 2 - 2 * math.log(4 * alpha) - np.linalg.slogdet(Sigma)[1])
    general = y * (X @ mu) - 1 - (np.sqrt(stale) + chi / np.sqrt(stale)) / 2
    assert general.sum() - kl == pytest.approx(value, abs=1e-8)


def test_same_mode_other_posterior(labelled):
    """LO (2) against 2.3: exp(-J) with variance 1/(2 alpha), exp(-2J) with 1/(4 alpha): one mode, two spreads."""
    X, y = labelled
    z, alpha = y * X[:, 0], 1.0  # the mode is not at a kink
    grid = np.linspace(-6, 6, 240_001)
    criterion = sum(hinge(1 - grid * row) for row in z)
    spreads, modes = [], []
    for power in (1, 2):
        log_density = -power * criterion + stats.norm.logpdf(grid, scale=math.sqrt(1 / (2 * power * alpha)))
        density = np.exp(log_density - log_density.max())
        density /= density.sum()
        modes.append(grid[density.argmax()])
        spreads.append(math.sqrt(density @ grid**2 - (density @ grid) ** 2))
    assert modes[0] == pytest.approx(modes[1], abs=1e-4)
    assert spreads[0] > 1.2 * spreads[1]


# ---- probabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [0.25, 1.0, 3.0])
def test_pseudo_probability(c):
    """PS section 2: L(y)/(L(y) + L(-y)) is a logistic in 4 c f inside the margin and 2 c (f + sign f) outside."""
    f = np.linspace(-3, 3, 61)
    plus, minus = np.exp(-2 * c * hinge(1 - f)), np.exp(-2 * c * hinge(1 + f))
    probability = plus / (plus + minus)
    closed = expit(np.where(np.abs(f) <= 1, 4 * c * f, 2 * c * (f + np.sign(f))))
    np.testing.assert_allclose(probability, closed, rtol=1e-12)
    np.testing.assert_allclose(probability + probability[::-1], 1.0, rtol=1e-12)  # the two labels share the mass
    assert plus[30] + minus[30] == pytest.approx(2 * math.exp(-2 * c))  # L alone does not sum to one


def test_sign_probability_is_not_a_class_probability():
    """The share of the posterior with f > 0 says how sure the sign is, not how often the label occurs."""
    m, s = 0.1, 0.05
    mean = integrate.quad(lambda f: expit(4 * f) * stats.norm.pdf(f, m, s), m - 10 * s, m + 10 * s)[0]
    assert mean == pytest.approx(expit(4 * m / math.sqrt(1 + 2 * math.pi * s**2)), abs=0.015)
    assert stats.norm.cdf(m / s) - mean > 0.25


def test_inverse_gamma_part_of_the_bound():
    """LO 3.1: the inverse-gamma part of the bound of algorithm 2 equals its direct expectation."""
    A, B, m, E = 1.3, 0.6, 5, 3.7
    shape, rate = A + m / 2, B + E / 2
    precision, log_precision = shape / rate, stats.gamma(shape, scale=1 / rate).expect(np.log)
    direct = A * math.log(B) - gammaln(A) + (A - 1) * log_precision - B * precision  # prior of 1/sigma^2
    direct += m / 2 * log_precision - E * precision / 2 + stats.gamma(shape, scale=1 / rate).entropy()
    closed = A * math.log(B) - gammaln(A) - shape * math.log(rate) + gammaln(shape)
    assert closed == pytest.approx(direct, abs=1e-7)


def test_every_correction_names_its_proof():
    """The page of errata and this file name the same tests."""
    page = (Path(__file__).parents[1] / "docs" / "explanation" / "errata.md").read_text(encoding="utf-8")
    named = set(re.findall(r"tests/test_errata\.py::(test_\w+)", page))
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_every_correction_names_its_proof"}
