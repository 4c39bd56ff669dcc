"""Losses that average over z ~ N(f, noise^2), the probit, noisy and complete hinge, against quadrature over z."""

import math

import numpy as np
import pytest
from parts import LOSSES, each
from scipy import stats
from scipy.special import log_ndtr

from softmargin.checks import loss as checks
from softmargin.losses import CompleteHinge, NoisyHinge, Probit
from softmargin.losses.formulas.normal import log_cdf

LATENT_NORMAL = {name: case for name, case in LOSSES.items() if case.loss.whole_weights}
P_LIMIT = 1e-4  # Kolmogorov-Smirnov, fixed seeds: sound draws fail one case in ten thousand
PLACES = (-40.0, -6.0, -2.5, -1.0, -0.4, 0.0, 0.7, 1.0, 1.6, 3.3, 8.0, 40.0)


def log_given(loss, t):
    """``log P(y | z)`` as a function of t = y z, straight from the definitions."""
    hinge = -2.0 * np.maximum(1.0 - t, 0.0)
    if isinstance(loss, Probit):
        return np.where(t >= 0.0, 0.0, -np.inf)
    if isinstance(loss, NoisyHinge):
        return hinge
    return hinge - np.logaddexp(hinge, -2.0 * np.maximum(1.0 + t, 0.0))


def grid(loss, t):
    """A fine grid of values of y z around t = y f, and the log of likelihood times density there.

    The peak lies between t and where the slope 4 of the log likelihood, or the cut at zero, pulls it to.
    """
    s = getattr(loss, "noise", 1.0)
    low, high = t - 10.0 * s, t + 10.0 * s + 4.0 * s * s
    if isinstance(loss, Probit):
        low = max(low, 0.0)
        high = max(high, 0.0) if t >= 0 else min(20.0, 45.0 / -t)
    z = np.union1d(np.linspace(low, high, 300_001), [k for k in (-1.0, 1.0) if low < k < high])
    return z, log_given(loss, z) - 0.5 * ((z - t) / s) ** 2 - math.log(s * math.sqrt(2.0 * math.pi))


def integral(z, log_values):
    top = log_values.max()
    return top + math.log(np.trapezoid(np.exp(log_values - top), z))


def one(value):
    return np.full(1, float(value))


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
def test_loglik_and_score_are_integrals_over_the_latent(case):
    loss, s = case.loss, getattr(case.loss, "noise", 1.0)
    for t in PLACES:
        z, log_values = grid(loss, t)
        level = integral(z, log_values)
        mean = np.trapezoid(z * np.exp(log_values - level), z)
        for y in case.responses:
            assert loss.loglik(one(y), one(1), one(y * t))[0] == pytest.approx(level, rel=1e-8, abs=1e-9)
            assert loss.score(one(y), one(1), one(y * t))[0] == pytest.approx(y * (mean - t) / s**2, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
def test_probabilities_of_both_labels(case):
    """Probit and complete hinge are likelihoods: the two labels have total probability one."""
    f = np.linspace(-12.0, 12.0, 97)
    both = [np.exp(case.loss.loglik(np.full(97, y), np.ones(97), f)) for y in (-1.0, 1.0)]
    if isinstance(case.loss, NoisyHinge):
        assert abs(sum(both) - 1.0).max() > 0.05
    else:
        np.testing.assert_allclose(sum(both), 1.0, rtol=1e-10)


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
def test_expect(case):
    """Tight at v = 0, below E loglik, with slopes b - w f in f and -w/2 in v, and proportional to the weight."""
    loss = case.loss
    f, c, v = np.array(PLACES), np.full(len(PLACES), 1.7), np.full(len(PLACES), 0.6)
    for response in case.responses:
        y = np.full(len(f), response)
        tight, message = loss.expect(y, c, f, 0.0 * v), loss.expect(y, c, f, v)
        np.testing.assert_allclose(tight.bound, loss.loglik(y, c, f), rtol=1e-12)
        slope = (loss.expect(y, c, f + 1e-5, v).bound - loss.expect(y, c, f - 1e-5, v).bound) / 2e-5
        np.testing.assert_allclose(message.b - message.w * f, slope, rtol=1e-5, atol=1e-6)
        rise = (loss.expect(y, c, f, v + 0.1).bound - message.bound) / 0.1
        np.testing.assert_allclose(rise, -0.5 * message.w, rtol=1e-9)
        for at in (-2.5, 0.0, 1.0, 3.3):
            average = checks._quadrature(loss, response, at, 0.6)[0]
            assert loss.expect(one(response), one(1), one(at), one(0.6)).bound[0] <= average + 1e-9
        once, none = loss.expect(y, np.ones(len(f)), f, v), loss.expect(y, 0.0 * c, f, v)
        for part, single, zero in zip(message, once, none, strict=True):
            np.testing.assert_allclose(part, 1.7 * single, rtol=1e-12)
            np.testing.assert_array_equal(zero, 0.0)


@pytest.mark.parametrize("case", each({k: v for k, v in LATENT_NORMAL.items() if hasattr(v.loss, "gaussian")}))
def test_gaussian_averages_equal_quadrature(case):
    """w = -E l'', b = E l' + w f and E l, for predictors known to 1e-5 or not at all."""
    for response in case.responses:
        for f in PLACES:
            for v in (1e-10, 1e-4, 0.3, 4.0, 400.0):
                checks._check_averages(case.loss, response, f, v)


def test_the_complete_hinge_is_not_concave():
    """So it has no exact Gaussian average: the score rises somewhere left of the wrong margin."""
    f = np.linspace(-4.0, 0.0, 401)
    assert not hasattr(CompleteHinge(), "gaussian")
    assert np.diff(CompleteHinge(0.3).score(np.ones(401), np.ones(401), f)).max() > 1e-3
    for concave in (Probit(), NoisyHinge(0.3)):
        assert np.diff(concave.score(np.ones(401), np.ones(401), f)).max() < 1e-12


def latent(loss, y, f, n, seed):
    """Draws of y z from the messages of rows with weight one."""
    rows = loss.draw(np.random.default_rng(seed), np.full(n, y), np.ones(n), np.full(n, f))
    np.testing.assert_allclose(rows.w, getattr(loss, "noise", 1.0) ** -2.0, rtol=1e-12)
    return y * rows.b / rows.w


def law(loss, t):
    z, log_values = grid(loss, t)
    mass = np.exp(log_values - log_values.max())
    total = np.concatenate(([0.0], np.cumsum(0.5 * (mass[1:] + mass[:-1]) * np.diff(z))))
    return lambda x: np.interp(x, z, total / total[-1])


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
@pytest.mark.parametrize("t", [-40.0, -6.0, -1.5, 0.0, 1.0, 2.0, 40.0])
def test_latent_has_its_exact_law(case, t):
    cdf = law(case.loss, t)
    for y in case.responses:
        drawn = latent(case.loss, y, y * t, 4000, seed=3)
        assert stats.kstest(cdf(drawn), "uniform").pvalue > P_LIMIT


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
def test_a_wrong_latent_is_rejected(case):
    """Negative control: a shift of f by a third of the noise fails the same test."""
    s = getattr(case.loss, "noise", 1.0)
    drawn = latent(case.loss, 1.0, 0.3 + 0.4 * s, 4000, seed=3)
    assert stats.kstest(law(case.loss, 0.3)(drawn), "uniform").pvalue < 1e-8


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
@pytest.mark.parametrize("c", [0, 1, 3])
def test_weights_count(case, c):
    """A row of weight c has the message of c rows: score and likelihood ratio to 4 standard errors."""
    loss, n, f = case.loss, 20_000, -0.4
    s = getattr(loss, "noise", 1.0)
    y, weight, at = np.ones(n), np.full(n, float(c)), np.full(n, f)
    w, b = loss.draw(np.random.default_rng(c), y, weight, at)
    np.testing.assert_allclose(w, c / s**2)
    if c == 0:
        assert not b.any()
        return
    samples = [(b - w * f, loss.score(y, weight, at)[0])]
    for g in (f - 0.3 * s, f + 0.3 * s):
        ends = loss.loglik(y[:2], weight[:2], np.array([f, g]))
        samples.append((np.exp(-0.5 * w * (g * g - f * f) + b * (g - f)), math.exp(ends[1] - ends[0])))
    for sample, wanted in samples:
        assert abs(sample.mean() - wanted) < 4 * sample.std() / math.sqrt(n)


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
def test_fractional_weights_are_refused(case):
    with pytest.raises(ValueError, match=r"weights must be whole numbers and one is 0\.4"):
        case.loss.draw(np.random.default_rng(0), np.ones(2), np.array([1.0, 0.4]), np.zeros(2))


@pytest.mark.parametrize("case", each(LATENT_NORMAL))
def test_far_away(case):
    """Predictors of a million: everything is finite, and the far side costs what its tail says."""
    loss, f = case.loss, np.array([-1e6, -1e3, -50.0, 50.0, 1e3, 1e6])
    y, c, s = np.ones(6), np.ones(6), getattr(loss, "noise", 1.0)
    faces = [loss.loglik(y, c, f), loss.score(y, c, f), *loss.expect(y, c, f, c)]
    faces += loss.gaussian(y, c, f, c) if hasattr(loss, "gaussian") else ()
    faces += loss.draw(np.random.default_rng(0), y, c, f)
    assert all(np.isfinite(face).all() for face in faces)
    if isinstance(loss, Probit):
        np.testing.assert_allclose(loss.score(y, c, f)[:2], [1e6, 1e3], rtol=2e-6)
    else:  # z is pulled in by the slope 2 of the hinge
        np.testing.assert_allclose(loss.score(y, c, f)[:2], 2.0, rtol=1e-9)
        np.testing.assert_allclose(loss.loglik(y, c, f)[:2], 2.0 * (f[:2] - 1.0 + s * s), rtol=1e-9)


def test_log_cdf_in_both_tails():
    """Against scipy, and by the equation r' = -r (x + r) across the change of formula."""
    for x in (-1e5, -300.0, -37.0, -12.0001, -11.9999, -3.0, 0.0, 5.0, 9.0, 40.0):
        level, ratio, bend = log_cdf(x)
        assert level == pytest.approx(float(log_ndtr(x)), rel=1e-13, abs=1e-300)
        h = 1e-5 * max(abs(x), 1.0)
        assert bend == pytest.approx((log_cdf(x - h)[1] - log_cdf(x + h)[1]) / (2.0 * h), rel=1e-5, abs=1e-12)
        if x > -30:
            assert ratio == pytest.approx(stats.norm.pdf(x) / stats.norm.cdf(x), rel=1e-12)


@pytest.mark.parametrize("m", [-1e6, -1e3])
def test_truncated_normal_far_below_zero(m):
    """At a million standard deviations from its side z is exponential with mean 1/|m|, without rounding steps."""
    z = latent(Probit(), 1.0, m, 4000, seed=1)
    assert len(np.unique(z)) == 4000
    assert stats.kstest(-m * z, "expon").pvalue > P_LIMIT


@pytest.mark.parametrize("loss", [NoisyHinge, CompleteHinge])
@pytest.mark.parametrize("noise", [0.0, -1.0, np.inf, np.nan])
def test_noise_must_be_positive(loss, noise):
    with pytest.raises(ValueError, match="noise must be a positive number"):
        loss(noise)
