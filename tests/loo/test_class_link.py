"""Joint leave-one-out scores against refits, and the link of several classes."""

import numpy as np
import pytest
from class_problems import build_classes, simulated_classes
from scipy.optimize import approx_fprime
from scipy.special import softmax

from softmargin import BayesianSVC
from softmargin.core.loop import iterate, run
from softmargin.designs.classes import helmert
from softmargin.engines.mode.newton import Newton
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.scale_mixture import mix_over_scale
from softmargin.loo.class_cavity import class_scores, draw_cavities, fit_cavities, mix_cavities, mode_cavities
from softmargin.loo.class_link import ClassLink, _Problem, _some, _targets, fit_class_link, joint_cavity, matrix_cavity
from softmargin.loo.link import Link, cavity
from softmargin.priors import GroupLasso, Lasso, Ridge


def in_sample(model, mean):
    design = model.blocks.design
    return class_scores(design.base, mean, np.zeros((len(mean), 1)), design.k)[0]


def refits(X, label, prior, engine, take, *, rate=1.0, first=None):
    """Scores of every observation, or the first ones, under the fit without it."""
    k, out = int(label.max()) + 1, []
    for i in range(len(label) if first is None else first):
        keep = np.arange(len(label)) != i
        model = build_classes(X[keep], label[keep], k=k, prior=prior, c=rate)
        mean = take(run(engine, model, max_iter=200, tol=1e-10).state).reshape(k, -1)
        out.append(mean[:, 0] + mean[:, 1:] @ X[i])
    return np.array(out)


# --- joint cavities -------------------------------------------------------------------------------------------


def test_cavity_is_the_quotient_of_gaussians():
    """Precision minus the observation's own part, in the contrast coordinates where the covariance has full rank."""
    rng = np.random.default_rng(0)
    n, k = 6, 4
    A = helmert(k)
    root = rng.standard_normal((n, k - 1, k - 1)) * 0.3
    S = root @ root.transpose(0, 2, 1)
    z = rng.standard_normal((n, k - 1))
    curvature, slope = rng.exponential(size=(n, k)) * 0.3, rng.standard_normal((n, k))
    part = rng.uniform(0.3, 1.0, n)
    f, V = z @ A, np.einsum("sr,isu,ut->irt", A, S, A)
    f_out, V_out, share = joint_cavity(f, V, curvature, slope, part)
    largest = 0.0
    for i in range(n):
        own = A @ np.diag(part[i] * curvature[i]) @ A.T
        precision = np.linalg.inv(S[i]) - own
        linear = np.linalg.inv(S[i]) @ z[i] - part[i] * A @ slope[i] - own @ z[i]
        wanted = np.linalg.solve(precision, linear)
        np.testing.assert_allclose(A @ f_out[i], wanted, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(A @ V_out[i] @ A.T, np.linalg.inv(precision), rtol=1e-8)
        largest = max(largest, float(np.linalg.eigvals(S[i] @ own).real.max()))
    assert share == pytest.approx(largest, rel=1e-9)


def test_two_classes_equal_the_binary_cavity():
    rng = np.random.default_rng(1)
    f, v, w, slope = (
        rng.standard_normal(5),
        rng.exponential(size=5),
        rng.exponential(size=5) * 0.2,
        rng.standard_normal(5),
    )
    part = np.full(5, 0.7)
    f_out, v_out, share = cavity(f, v, w, slope + w * f, part)
    # the binary predictor is the score of class 1; its row bears on one of the two scores
    both, V = np.column_stack((-f, f)), v[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    zero = np.zeros(5)
    got, V_got, joint = joint_cavity(both, V, np.column_stack((zero, w)), np.column_stack((zero, slope)), part)
    np.testing.assert_allclose(got[:, 1], f_out, rtol=1e-12)
    np.testing.assert_allclose(V_got[:, 1, 1], v_out, rtol=1e-12)
    assert joint == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize(("engine", "share"), [(GaussianVI(), 0.25), (MeanField(), 0.5)], ids=["vb", "meanfield"])
def test_fit_cavities_are_close_to_refits(engine, share):
    """The correction removes most of the difference between scores with and without the observation.

    Mean-field variances are too small, and its correction with them.
    """
    X, label = simulated_classes(30, 2, 3, seed=4)
    prior = Ridge(scale=0.7)
    model = build_classes(X, label, prior=prior, c=0.25)
    state = run(engine, model, max_iter=300, tol=1e-10).state
    out = fit_cavities(model, state.q, state.f, state.message, np.ones(30))
    brute = refits(X, label, prior, engine, lambda s: s.q.mean, rate=0.25)
    naive = in_sample(model, state.q.mean)
    assert np.sqrt(((out.mean - brute) ** 2).mean()) < share * np.sqrt(((naive - brute) ** 2).mean())
    np.testing.assert_allclose(out.mean.sum(axis=1), 0.0, atol=1e-10)
    np.testing.assert_allclose(out.covariance.sum(axis=2), 0.0, atol=1e-10)
    assert 0.0 < out.max_kv < 0.7


def test_draw_cavities_agree_with_the_gaussian_fit():
    X, label = simulated_classes(30, 2, 3, seed=4)
    model = build_classes(X, label, prior=Ridge(scale=0.7), c=0.25, seed=5)
    state = run(GaussianVI(), model, max_iter=300, tol=1e-10).state
    fit = fit_cavities(model, state.q, state.f, state.message, np.ones(30))
    chain = [s[0].beta for k, s, _ in iterate(gibbs(chains=1), model, max_iter=2200) if k > 200]
    drawn = draw_cavities(model, np.array(chain), np.ones(len(chain)), np.ones(30))
    spread = np.sqrt(np.einsum("irr->ir", fit.covariance))
    assert np.abs((drawn.mean - fit.mean) / spread).max() < 0.35
    ratio = np.einsum("irr->ir", drawn.covariance) / spread**2
    assert 0.7 < ratio.min() < ratio.max() < 2.0
    assert 0.9 < ratio.mean() < 1.3  # variational variances are somewhat too small


@pytest.mark.parametrize(
    ("prior", "share"),
    [(Ridge(scale=0.3), 0.6), (Lasso(scale=0.2), 0.85), (GroupLasso(scale=0.2), 0.7)],
    ids=["ridge", "lasso", "group"],
)
def test_mode_cavities_are_closer_to_refits(prior, share):
    X, label = simulated_classes(80, 4, 3, seed=1)
    model = build_classes(X, label, prior=prior)
    state = run(Newton(), model, max_iter=50).state
    out = mode_cavities(model, state.point, state.penalty, np.ones(80)).mean[:30]
    brute = refits(X, label, prior, Newton(), lambda s: s.point.beta, first=30)
    naive = in_sample(model, state.point.beta)[:30]
    assert np.sqrt(((out - brute) ** 2).mean()) < share * np.sqrt(((naive - brute) ** 2).mean())
    # an observation whose rows the mode does not need changes nothing
    idle = np.ones(80, dtype=bool)
    idle[model.blocks.design.index[state.point.g > 1e-9]] = False
    idle = np.flatnonzero(idle[:30])
    assert len(idle)
    np.testing.assert_allclose(out[idle], naive[idle], atol=1e-7)
    np.testing.assert_allclose(naive[idle], brute[idle], atol=1e-6)


def test_mixture_moments():
    rng = np.random.default_rng(2)
    X, label = simulated_classes(12, 2, 3, seed=1)
    parts = []
    for scale in (0.3, 1.0):
        model = build_classes(X, label, prior=Ridge(scale=scale), c=0.25)
        state = run(GaussianVI(), model, max_iter=100, tol=1e-8).state
        parts.append(fit_cavities(model, state.q, state.f, state.message, np.ones(12)))
    weights = np.array([0.3, 0.7])
    mixed = mix_cavities(weights, parts)
    draws = [rng.multivariate_normal(p.mean[3], p.covariance[3], 40_000, method="svd") for p in parts]
    second = sum(w * (d.T @ d) / len(d) for w, d in zip(weights, draws, strict=True))
    wanted = mixed.covariance[3] + np.outer(mixed.mean[3], mixed.mean[3])
    np.testing.assert_allclose(second, wanted, atol=0.03 * np.abs(wanted).max())


def test_mixture_over_a_learned_scale():
    """Every component's cavities, weighted; the mixture is wider than the fit at the learned scale."""
    X, label = simulated_classes(40, 3, 3, seed=2)
    model = build_classes(X, label, prior=Ridge(), c=0.25)
    fit = run(GaussianVI(), model, max_iter=200, tol=1e-10).state
    part = np.ones(40)
    mixture = mix_over_scale(model, fit)
    parts = [fit_cavities(model, s.q, s.f, s.message, part) for s in mixture.states]
    mixed = mix_cavities(mixture.weights, parts)
    alone = fit_cavities(model, fit.q, fit.f, fit.message, part)
    ratio = np.einsum("irr->ir", mixed.covariance) / np.einsum("irr->ir", alone.covariance)
    assert len(parts) == len(mixture.scales) > 3
    assert 1.0 < ratio.mean() < 2.0
    np.testing.assert_allclose(mixture.mean.reshape(3, -1).sum(axis=0), 0.0, atol=1e-10)


# --- the link -------------------------------------------------------------------------------------------------


def scores(n=150, k=3, seed=0):
    """Scores whose middle class is masked, with covariances of unlike size."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, k, n)
    t = np.linspace(-1.5, 1.5, k)[label] + 0.5 * rng.standard_normal(n)
    raw = np.column_stack([-t, *(0.1 * np.cos((r + 1.0) * t) for r in range(k - 2)), t])
    f = raw - raw.mean(axis=1, keepdims=True)
    root = rng.standard_normal((n, k, k)) * rng.uniform(0.05, 0.6, n)[:, None, None]
    root -= root.mean(axis=1, keepdims=True)
    return label, f, root @ root.transpose(0, 2, 1)


def test_two_classes_equal_the_binary_link():
    rng = np.random.default_rng(3)
    f, v = rng.standard_normal(9), rng.exponential(size=9)
    a, b, lam = 1.7, 0.4, 0.6
    # slope 2 M and offset: logit_1 - logit_0 = -sqrt(2) (M z + o) with z = -sqrt(2) f
    link = ClassLink(np.array([[0.5 * a]]), np.array([-b / np.sqrt(2.0)]), lam)
    both, V = np.column_stack((-f, f)), v[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
    np.testing.assert_allclose(link.probability(both, V)[:, 1], Link(a, b, lam).probability(f, v), rtol=1e-12)


@pytest.mark.parametrize("log_slope", [0.1, 3.0])  # below and above where slopes are steep
@pytest.mark.parametrize("smooth", [False, True])
def test_gradient_equals_finite_differences(smooth, log_slope):
    label, f, V = scores(40, 4)
    A = helmert(4)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 40)
    contrast = np.einsum("sr,irt,ut->isu", A, V, A)
    problem = _Problem(f @ A.T, contrast, _targets(label, weight, 4, smooth), weight, A)
    x = 0.3 * np.random.default_rng(2).standard_normal(problem.size)
    x[0] = log_slope
    assert (np.exp(log_slope) > 4.0 * problem.unit) == (log_slope > 1.0)
    numeric = approx_fprime(x, lambda at: problem.value(at)[0], 1e-7)
    np.testing.assert_allclose(problem.value(x)[1], numeric, rtol=1e-4, atol=1e-4)


def test_slopes_stay_where_variances_alone_would_let_them_go():
    """Rows of which as much is known as their variance says: the likelihood tells slope and lam apart by nothing."""
    rng = np.random.default_rng(0)
    k, n = 3, 400
    spread = np.exp(rng.normal(0.0, 0.3, n))
    f = rng.standard_normal((n, k)) * spread[:, None]
    f -= f.mean(axis=1, keepdims=True)
    logits = 3.0 * f / spread[:, None]
    label = np.array([rng.choice(k, p=row) for row in softmax(logits, axis=1)])
    V = (spread**2)[:, None, None] * (np.eye(k) - 1.0 / k)
    link = fit_class_link(label, f, V, np.ones(n), 0.1).link
    size = np.sqrt((f @ helmert(k).T * (f @ helmert(k).T)).mean())
    assert 4.0 < np.trace(link.M) / 2.0 * size < 4.0 * np.exp(6 * 0.25)  # 6 of its standard deviations


def test_fit_beats_every_simpler_link():
    label, f, V = scores()
    found = fit_class_link(label, f, V, np.ones(len(label)), 0.1)
    P = found.link.probability(f, V)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    own = -np.log(P[np.arange(len(label)), label]).mean()
    assert found.score == pytest.approx(own, rel=1e-12)
    assert found.error == pytest.approx((P.argmax(axis=1) != label).mean())
    plain = min(
        -np.log(ClassLink(a * np.eye(2), np.zeros(2), 1.0).probability(f, V)[np.arange(len(label)), label]).mean()
        for a in np.geomspace(0.1, 50.0, 60)
    )
    assert found.score < plain - 0.05  # the free matrix sees the masked class


@pytest.mark.parametrize("k", [3, 4])
def test_order_of_classes_does_not_matter(k):
    label, f, V = scores(k=k)
    order = np.random.default_rng(5).permutation(k)
    place = np.argsort(order)
    one = fit_class_link(label, f, V, np.ones(len(label)), 0.0)
    f2, V2 = f[:, order], V[:, order][:, :, order]
    two = fit_class_link(place[label], f2, V2, np.ones(len(label)), 0.0)
    P, Q = one.link.probability(f, V), two.link.probability(f2, V2)
    np.testing.assert_allclose(Q, P[:, order], atol=2e-5)
    np.testing.assert_array_equal(order[Q.argmax(axis=1)], P.argmax(axis=1))


def test_rotating_the_contrast_changes_nothing():
    """Another orthonormal contrast turns (z, M, o) and leaves value and probabilities as they are."""
    label, f, V = scores(60, 4)
    A = helmert(4)
    R = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    weight = np.ones(60)
    value = []
    rng = np.random.default_rng(4)
    E, o = rng.standard_normal((3, 3)), rng.standard_normal(3)
    for contrast, turn in ((A, np.eye(3)), (R @ A, R)):
        Vz = np.einsum("sr,irt,ut->isu", contrast, V, contrast)
        problem = _Problem(f @ contrast.T, Vz, _targets(label, weight, 4, False), weight, contrast)
        x = np.concatenate(([0.2], (turn @ E @ turn.T).ravel(), turn @ o, [0.5]))
        value.append(problem.value(x)[0])
    assert value[0] == pytest.approx(value[1], rel=1e-12)


def test_separated_scores_stay_finite():
    label = np.repeat([0, 1, 2], 10)
    f = 3.0 * (np.eye(3)[label] - 1.0 / 3.0)
    for smooth in (False, True):
        found = fit_class_link(label, f, np.zeros((30, 3, 3)), np.ones(30), 0.0, smooth=smooth)
        P = found.link.probability(f, np.zeros((30, 3, 3)))
        assert np.isfinite(P).all() and found.error == 0.0
        if smooth:
            assert P.max() < 0.95


def masked_with(n, extra, seed=0):
    """Scores of three classes whose middle one is masked, and ``extra`` rows of a fourth class."""
    label, f, _ = scores(n=n, k=3, seed=seed)
    f = np.column_stack((f, np.full(n, f.min())))
    rare = np.tile([-1.0, -1.0, -1.0, 3.0], (extra, 1)) + 0.1 * np.random.default_rng(1).standard_normal((extra, 4))
    f = np.vstack((f, rare))
    return np.append(label, np.full(extra, 3)), f - f.mean(axis=1, keepdims=True), np.zeros((n + extra, 4, 4))


@pytest.mark.parametrize("extra", [1, 2, 8])
def test_a_class_of_few_rows_does_not_keep_the_link_from_being_free(extra):
    """A single row of a class cannot be left out; the others still say that the middle class is masked."""
    label, f, V = masked_with(150, extra)
    found = fit_class_link(label, f, V, np.ones(len(label)), 0.1)
    M = found.link.M
    assert np.abs(M - M.trace() / 3.0 * np.eye(3)).max() > 0.1 * abs(M.trace())
    assert found.error < 0.2


def test_folds_of_many_rows_do_not_depend_on_the_order_of_classes_and_keep_rare_ones():
    label, f, _ = masked_with(3000, 8)
    own = f[np.arange(len(label)), label]
    one = _some(label, own, 1000)
    two = _some(3 - label, own, 1000)
    np.testing.assert_array_equal(one, two)
    assert (label[one] == 3).sum() == 8 and 700 < len(one) < 1300


@pytest.mark.parametrize("seed", range(4))
def test_scores_that_flatter_must_also_gain_likelihood(seed):
    """Where rows shape their own scores a gain in folds alone does not free the link."""
    label, f, V = scores(n=16, seed=seed)
    plain = []
    for share in (0.1, 0.9):
        M = fit_class_link(label, f, V, np.ones(16), share).link.M
        plain.append(bool(np.abs(M - M[0, 0] * np.eye(2)).max() < 1e-12))
    assert plain == [False, True]


@pytest.mark.parametrize(("n", "p", "signal"), [(45, 60, 0.7), (24, 40, 0.7), (60, 5, 0.0)])
@pytest.mark.parametrize("inference", ["vb", "map"])
def test_without_signal_the_link_does_not_turn_the_scores_round(n, p, signal, inference):
    """Scores that leave a row out point away from its class; a free matrix must not learn that."""
    rng = np.random.default_rng(0)
    label = np.arange(n) % 3
    X = rng.normal(size=(n, p))
    X[:, 0] += signal * label
    model = BayesianSVC(inference=inference, multi_class="sum-to-zero").fit(X, label)
    M = model.loo_.link.M
    slopes = np.linalg.eigvalsh(0.5 * (M + M.T))
    assert slopes[0] > -0.4 * slopes[-1]
    assert model.loo_.error > 0.35  # what is not known is not claimed
    f, _ = model._fitted.moments(X)
    assert (model.predict(X) == f.argmax(axis=1)).mean() > 0.5


def test_a_shared_curvature_is_taken_out_as_a_matrix():
    """``V_- = (V^-1 - W)^-1`` and ``f_- = f - V_- slope`` by inverses, W part of a k x k matrix."""
    rng = np.random.default_rng(8)
    f, slope, part = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), rng.uniform(0.3, 1.0, 6)
    root = rng.normal(size=(6, 3, 3))
    V = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(3)
    h = rng.uniform(0.1, 1.0, (6, 3)) * 0.1
    W = np.eye(3) * h[:, None, :] - h[:, :, None] * h[:, None, :] / h.sum(axis=1)[:, None, None]
    mean, covariance, share = matrix_cavity(f, V, W, slope, part)
    exact = np.linalg.inv(np.linalg.inv(V) - part[:, None, None] * W)
    np.testing.assert_allclose(covariance, exact, rtol=1e-9)
    np.testing.assert_allclose(mean, f - np.einsum("irs,is->ir", exact, part[:, None] * slope), rtol=1e-9)
    assert share == pytest.approx(np.linalg.eigvals(part[:, None, None] * W @ V).real.max(), rel=1e-9)
    diagonal = joint_cavity(f, V, h, slope, part)
    for one, other in zip(diagonal, matrix_cavity(f, V, np.eye(3) * h[:, None, :], slope, part), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
