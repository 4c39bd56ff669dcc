"""Many rows: fits that work on the rows near the margin give what fits of all rows give."""

import numpy as np
import pytest

from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.core.visits import Face, Moments, messages
from softmargin.designs.dense import Dense
from softmargin.designs.standardize import design_for, standardize
from softmargin.engines.mode import active_set
from softmargin.engines.mode.interior import exact_mode
from softmargin.engines.mode.newton import Newton
from softmargin.engines.mode.screening import few_rows
from softmargin.engines.mode.smoothed_start import approach, many_rows, spread_rows, thinned
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.screened import ScreenedVI
from softmargin.losses.hinge import Hinge
from softmargin.priors import Lasso, Ridge
from softmargin.priors.penalty import Penalty
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full


def tall_model(n, p, prior, seed=0, weighted=True):
    """Correlated columns, a sparse truth and noisy labels."""
    rng = np.random.default_rng([seed, n, p])
    X = rng.standard_normal((n, p))
    X[:, 1:] += 0.7 * X[:, :-1]
    truth = np.zeros(p)
    truth[:3] = 1.0, -0.7, 0.5
    y = np.where(X @ truth + 0.6 * rng.standard_normal(n) > 0.3, 1.0, -1.0)
    c = rng.uniform(0.1, 0.5, n) if weighted else np.full(n, 0.25)
    free = np.arange(p + 1) == 0
    blocks = Blocks(design_for(X, standardize(X, np.ones(n))), y, c)
    return Model(blocks, Hinge(), prior.bind(free, n), free, Streams.from_random_state(0), Full())


@pytest.mark.parametrize("prior", [Ridge(scale=0.5), Lasso(scale=0.02)], ids=["ridge", "lasso"])
def test_mode_of_few_rows_is_the_mode_of_all(prior):
    model = tall_model(24_000, 8, prior)
    penalty = Penalty(*model.prior.penalty(prior.scale))
    found, wanted = Newton().at(model, penalty), exact_mode(model, penalty, 1e-9)
    assert found.certificate.gap <= 1e-12
    np.testing.assert_allclose(found.certificate.objective, wanted.certificate.objective, rtol=1e-12)
    np.testing.assert_allclose(found.beta, wanted.beta, atol=1e-8)
    np.testing.assert_array_equal(found.beta == 0.0, wanted.beta == 0.0)


def test_learned_scale_from_many_rows():
    model = tall_model(24_000, 5, Ridge())
    assert many_rows(model)
    states = [run(Newton(start=start), model, max_iter=50, tol=1e-9).state for start in (0.1, 1.0, 10.0)]
    for state in states:
        # the scale is the mode of its density given the coefficients, and these are the mode at that scale
        assert abs(state.wanted - state.tried) <= 1e-9
        assert state.point.certificate.gap <= 1e-12
        np.testing.assert_allclose(state.objective, states[0].objective, rtol=1e-12)


def test_approach_comes_near():
    model = tall_model(40_000, 8, Ridge(scale=0.5))
    penalty = Penalty(*model.prior.penalty(0.5))
    near, q = approach(model, penalty)
    beta, f, settled = near.beta, near.f, near.settled
    assert settled
    np.testing.assert_allclose(f, model.blocks.matvec(beta), atol=1e-9)
    wanted = Newton().at(model, penalty)
    assert np.abs(f - wanted.f).mean() < 0.02
    # the curvature is that of the expected hinge: it has the precision of the variational fit
    vi = run(GaussianVI(), model, max_iter=50, tol=1e-8).state
    np.testing.assert_allclose(np.sqrt(q.var), np.sqrt(vi.q.var), rtol=0.15)


def test_few_rows_have_the_objective_of_all_rows():
    model = tall_model(5_000, 4, Ridge(scale=1.0))
    beta = np.array([0.1, 0.8, -0.5, 0.3, 0.0])
    u = 1.0 - model.y * model.blocks.matvec(beta)
    near = np.abs(u) < 0.3
    small, index = few_rows(model, near, ~near & (u > 0.0))
    np.testing.assert_array_equal(index, np.flatnonzero(near))
    assert len(small.y) == near.sum() + 2
    for shift in (0.0, 0.01):  # no excluded row changes its side
        moved = beta + shift
        whole = model.loss.loglik(model.y, model.c, model.blocks.matvec(moved)).sum()
        part = small.loss.loglik(small.y, small.c, small.blocks.matvec(moved)).sum()
        np.testing.assert_allclose(part, whole, rtol=1e-12)


@pytest.mark.parametrize("prior", [Ridge(), Ridge(scale=0.3), Lasso()], ids=["learned", "fixed", "lasso"])
def test_screened_fit_equals_the_fit_of_all_rows(prior):
    model = tall_model(24_000, 6, prior)
    found = run(ScreenedVI(1e-10), model, max_iter=20, tol=1e-10)
    wanted = run(GaussianVI(), model, max_iter=100, tol=1e-12).state
    state = found.state.whole
    assert found.converged
    np.testing.assert_allclose(state.bound, wanted.bound, rtol=1e-9)
    sd = np.sqrt(wanted.q.var)
    np.testing.assert_allclose(state.q.mean, wanted.q.mean, atol=2e-3 * sd.min())
    np.testing.assert_allclose(np.sqrt(state.q.var), sd, rtol=1e-3)
    np.testing.assert_allclose(state.f, model.blocks.matvec(state.q.mean), atol=1e-12)
    np.testing.assert_allclose(state.v, model.blocks.row_quad(state.q.root), rtol=1e-12)
    assert len(found.state.small.y) < 0.8 * len(model.y)


def test_screening_recovers_from_a_start_that_is_far_off():
    model = tall_model(20_000, 3, Ridge(scale=0.5))
    engine = ScreenedVI(1e-10)
    start = engine.init(model)
    far = start.whole.q.with_mean(start.whole.q.mean + np.array([0.3, -0.4, 0.2, 0.1]))
    moments = model.blocks.place(Moments(model.blocks.matvec(far.mean), start.whole.v))
    rows, ((data,),) = model.blocks.keep(messages, Face(model.loss, "gaussian"), moments)
    lost = start._replace(whole=GaussianVI().known(model, far, rows, float(data)))
    found = run(engine, model, max_iter=20, tol=1e-12, state=lost)
    wanted = run(GaussianVI(), model, max_iter=100, tol=1e-12).state
    assert (np.diff(found.trace) >= -1e-9 * abs(wanted.bound)).all()
    np.testing.assert_allclose(found.state.whole.bound, wanted.bound, rtol=1e-9)


def test_subsample_is_spread_and_weighs_as_much():
    index = spread_rows(100_000, 1_000)
    assert (np.diff(index) > 0).all()
    assert len(index) == 1_000
    assert np.diff(index).max() < 300
    for period in (2, 7, 10, 24):  # no period of the rows is favoured
        assert np.bincount(index % period, minlength=period).min() > 0.8 * 1_000 / period
    model = tall_model(5_000, 3, Ridge(), weighted=False)
    np.testing.assert_allclose(thinned(model, 500).c.sum(), model.c.sum(), rtol=1e-12)
    assert thinned(model, 5_000) is model


def test_rows_of_weight_zero_take_no_part_in_the_gram():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((700, 30))
    w, b = rng.uniform(0.0, 2.0, 700) * (rng.random(700) < 0.3), rng.standard_normal(700) * (rng.random(700) < 0.6)
    shift, scale = rng.standard_normal(30), rng.uniform(0.5, 2.0, 30)
    Z = np.column_stack((np.ones(700), (X - shift) * scale))
    A, c = Dense(X, shift, scale).gram(w[50:650], b[50:650], 50, 650)
    np.testing.assert_allclose(A, (Z[50:650].T * w[50:650]) @ Z[50:650], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(c, Z[50:650].T @ b[50:650], rtol=1e-12, atol=1e-12)


def test_triangular_roots_are_multiplied_in_panels():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 249))
    full = rng.standard_normal((250, 250))
    Z = np.column_stack((np.ones(300), X))
    for root in (full, np.triu(full), np.tril(full), full[:, :7]):
        root = np.ascontiguousarray(root)
        wanted = ((Z @ root) ** 2).sum(axis=1)
        np.testing.assert_allclose(Dense.plain(X, intercept=True).row_quad(root), wanted, rtol=1e-12)


def test_leave_one_out_from_what_margin_rows_leave_free():
    model = tall_model(1_200, 12, Ridge(scale=0.5), weighted=False)
    penalty = Penalty(*model.prior.penalty(0.5))
    point = Newton().at(model, penalty)
    found = active_set.leave_one_out(model, point, penalty, np.ones(len(model.y)))
    # rows inside the margin move by the squared distance, in the prior's metric, from the span of the margin rows
    metric = 1.0 / np.sqrt(np.maximum(penalty.precision, 1e-4 * penalty.precision.max()))
    rows = model.blocks.design.rows(slice(None)) * metric
    assert 2 * point.margin.sum() > model.size
    inside = np.flatnonzero(~point.margin & (point.g > 0.0))
    weights = np.linalg.lstsq(rows[point.margin].T, rows[inside].T, rcond=None)[0]
    distance = ((rows[inside] - weights.T @ rows[point.margin]) ** 2).sum(axis=1)
    wanted = point.f[inside] - model.y[inside] * point.g[inside] * distance
    np.testing.assert_allclose(found[inside], wanted, atol=1e-9)
    assert np.abs(wanted - point.f[inside]).max() > 0.01
