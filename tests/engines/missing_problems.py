"""Problems with missing entries, and independent computations to compare with."""

import math
from dataclasses import replace

import numpy as np
from engine_problems import build, hinge_loglik, log_scale_density, normal_logpdf
from scipy.special import log_ndtr
from scipy.stats import norm

from softmargin.losses import Squared
from softmargin.priors import HalfCauchy, Ridge
from softmargin.unknowns.covariates import CovariatePrior
from softmargin.unknowns.missing import Missing
from softmargin.unknowns.noise import Noise

COVARIATES = CovariatePrior(spread=0.5, mean_scale=2.0)


def unseen(model, covariates=None, **options):
    """The model with its missing entries among the unknowns."""
    return model.with_unknowns((Missing(covariates or CovariatePrior(), **options),))


def with_holes(n=40, d=3, seed=0, share=0.3, **choices):
    """Correlated columns with cells knocked out; the first column is complete, and row 7 has nothing else left."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 1))
    X = 0.8 * common + 0.6 * rng.standard_normal((n, d))
    y = np.where(X @ np.linspace(1.0, -0.6, d) + 0.5 * rng.standard_normal(n) > 0.1, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    X[:, 1:][rng.random((n, d - 1)) < share] = np.nan
    X[7, 1:], X[8] = np.nan, 0.3
    c = choices.pop("c", np.linspace(0.4, 1.6, n))
    loss = choices.pop("loss", None)
    model = build(X, y, c=c, **choices)
    return model if loss is None else replace(model, loss=loss)


# --- one column, no intercept: everything by quadrature -------------------------------------------------------


def one_column(prior=None):
    """Six rows of one column, two of them unknown."""
    x = np.array([[0.4], [-1.1], [1.7], [np.nan], [0.2], [np.nan]])
    return build(x, [1.0, -1.0, 1.0, 1.0, -1.0, -1.0], c=[1.0, 0.5, 0.8, 1.5, 1.0, 0.7], prior=prior, intercept=False)


def normal_hinge(beta, mu, sd, y, c):
    """``log E exp(-2 c max(1 - y beta x, 0))`` and the tilted mean of x ~ N(mu, sd^2), in closed form.

    Above the margin the law is the truncated normal, below it the normal shifted by the slope of the exponent.
    """
    slope = 2.0 * c * y * beta
    safe = np.where(beta == 0.0, 1e-300, beta)
    edge = y / safe  # where y beta x = 1
    side = np.sign(y * safe)
    a, shifted = (edge - mu) / sd, mu + slope * sd * sd
    b = (edge - shifted) / sd
    over, under = log_ndtr(-side * a), log_ndtr(side * b)
    mean_over = mu + side * sd * np.exp(norm.logpdf(a) - over)
    mean_under = shifted - side * sd * np.exp(norm.logpdf(b) - under)
    under = under - 2.0 * c + slope * mu + 0.5 * (slope * sd) ** 2
    total = np.logaddexp(over, under)
    return total, np.exp(over - total) * mean_over + np.exp(under - total) * mean_under


def one_column_grid(model, scale, covariates=COVARIATES, mu_range=(-3.5, 4.5), t_range=(-4.0, 5.0)):
    """Log joint density of (beta, mu, log variance) and the data, and the mean of each unknown cell, on a grid."""
    beta = np.linspace(-4.0, 5.0, 121)[:, None, None]
    mu, t = np.linspace(*mu_range, 81)[:, None], np.linspace(*t_range, 91)
    sd, nu = np.exp(0.5 * t), covariates.degrees(1)
    x = model.blocks.design.X[:, 0]
    seen = ~np.isnan(x)
    log_p = normal_logpdf(mu, covariates.mean_scale) + 0.5 * nu * math.log(0.5 * covariates.spread)
    log_p = log_p - math.lgamma(0.5 * nu) - 0.5 * nu * t - 0.5 * covariates.spread * np.exp(-t)
    log_p = log_p + sum(normal_logpdf(value - mu, sd) for value in x[seen])
    fit = hinge_loglik(beta * x[seen], model.y[seen], model.c[seen])
    log_p = log_p + (fit + normal_logpdf(beta[..., 0], scale))[..., None]
    means = []
    for i in np.flatnonzero(~seen):
        part, mean = normal_hinge(beta, mu, sd, model.y[i], model.c[i])
        log_p = log_p + part
        means.append(mean)
    return (beta[:, 0, 0], mu[:, 0], t), log_p, means


# --- one column with normal noise of unknown level: two unknowns at once -------------------------------------

LEVEL = HalfCauchy(1.0)


def noisy_column(scale=1.2):
    """Eight responses to one column, two of its entries unknown, the noise level unknown too."""
    x = np.array([[0.4], [-1.1], [1.7], [np.nan], [0.2], [np.nan], [-0.6], [0.9]])
    y = np.array([0.5, -0.8, 1.4, 1.6, -0.3, -0.9, -0.7, 0.4])
    model = build(x, y, c=[1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0], prior=Ridge(scale=scale), intercept=False)
    return replace(model, loss=Squared(), unknowns=(Noise(LEVEL), Missing(COVARIATES)))


def noisy_column_grid(model, scale=1.2):
    """Axes (slope, mean, log variance, log level), the log joint density with the data, and the entries' means."""
    axes = (
        np.linspace(-1.5, 3.0, 46),
        np.linspace(-2.0, 2.5, 37),
        np.linspace(-3.0, 3.5, 40),
        np.linspace(-3.5, 2.5, 49),
    )
    beta, mu, t, l = np.meshgrid(*axes, indexing="ij", sparse=True)
    var, nu, noise = np.exp(t), COVARIATES.degrees(1), np.exp(2.0 * l)
    log_p = normal_logpdf(mu, COVARIATES.mean_scale) + 0.5 * nu * math.log(0.5 * COVARIATES.spread)
    log_p = log_p - math.lgamma(0.5 * nu) - 0.5 * nu * t - 0.5 * COVARIATES.spread / var
    log_p = log_p + normal_logpdf(beta, scale) + log_scale_density(LEVEL, l)
    means = []
    for x, y, c in zip(model.blocks.design.X[:, 0], model.y, model.c, strict=True):
        if np.isnan(x):  # its weight is one: the response is normal around the mean of the column
            spread = noise + beta**2 * var
            log_p = log_p + normal_logpdf(y - beta * mu, np.sqrt(spread))
            means.append(mu + beta * var / spread * (y - beta * mu))
        else:
            log_p = log_p + normal_logpdf(x - mu, np.sqrt(var)) + c * normal_logpdf(y - beta * x, np.exp(l))
    return axes, log_p, means
