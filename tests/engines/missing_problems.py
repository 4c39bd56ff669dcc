"""Problems with missing cells, and independent computations to compare with."""

import math
from dataclasses import replace

import numpy as np
from engine_problems import build, hinge_loglik, normal_logpdf
from scipy.special import log_ndtr
from scipy.stats import norm

from softmargin.unknowns.covariates import CovariatePrior
from softmargin.unknowns.missing import Missing

COVARIATES = CovariatePrior(spread=0.5, mean_scale=2.0)


def unseen(model, covariates=None, **options):
    """The model with its missing cells among the unknowns."""
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
