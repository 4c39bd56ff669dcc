"""The best Gaussian where rows weigh up to 1e9 and a sharp prior has no curvature, against a general optimiser."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from engine_problems import build
from scipy import optimize

from softmargin.core.loop import run
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.priors import Lasso, Ridge


def minus_bound(model, x, mean, log_sd):
    """Minus the bound of N(mean, sd^2) on the only coefficient."""
    m, v = np.array([mean]), np.array([math.exp(2.0 * log_sd)])
    rows = model.loss.gaussian(model.y, model.c, x * m, x * x * v).bound.sum()
    return -(rows + model.prior.gaussian(m, v).bound + log_sd + 0.5 * math.log(2.0 * math.pi * math.e))


@pytest.mark.parametrize("prior", [Lasso(scale=0.02), Ridge(scale=0.02)], ids=["lasso", "ridge"])
@pytest.mark.parametrize("seed", [1, 7, 8, 9])
def test_rows_of_very_different_weights_end_at_the_best_bound_without_a_warning(prior, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_cauchy(20)
    y = np.where(x + rng.normal(size=20) > 0.0, 1.0, -1.0)
    model = build(x[:, None], y, c=10.0 ** rng.uniform(-9, 9, 20), prior=prior, intercept=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(GaussianVI(), model, max_iter=500, tol=1e-10)
    q = found.state.q
    start = (q.mean[0], 0.5 * math.log(q.var[0]))
    options = {"xatol": 1e-12, "fatol": 1e-12, "maxiter": 2000}
    best = optimize.minimize(lambda z: minus_bound(model, x, *z), start, method="Nelder-Mead", options=options).fun
    assert found.converged
    assert -found.state.bound <= best + 1e-6 * abs(best)
