"""Selecting variables for all classes: the scan against enumeration, the sampler against exact evidences."""

import itertools
import math

import numpy as np
import pytest
from class_problems import build_classes, simulated_classes
from scipy.stats import norm, qmc

from softmargin.core.loop import iterate, run
from softmargin.core.model import Model
from softmargin.designs.classes import helmert
from softmargin.engines.selection._classes_compiled import log_odds, scan_variables
from softmargin.engines.selection._scan_compiled import sweep
from softmargin.engines.selection.classes import _joint, class_spike_slab
from softmargin.priors import InverseGamma, SpikeSlab


def build_selection(X, label, prior, *, intercept=True, seed=0):
    """A model of pairs whose prior is bound to the variables."""
    plain = build_classes(X, label, intercept=intercept, seed=seed)
    free = np.zeros(plain.size // plain.space.k, dtype=bool)
    free[: int(intercept)] = True
    return Model(plain.blocks, plain.loss, prior.bind(free), plain.free, plain.streams, plain.space)


def log_evidence(A, r, inside, precision, m):
    """``sum log d/2 - log|A_gamma|/2 + r'A^-1 r/2`` of a set of variables, by dense algebra."""
    at = np.repeat(inside, m)
    if not at.any():
        return 0.0
    part, right = A[np.ix_(at, at)], r[at]
    return 0.5 * (
        m * np.log(precision[inside]).sum() - np.linalg.slogdet(part)[1] + right @ np.linalg.solve(part, right)
    )


def joint_problem(seed=0, q=4, k=4):
    rng = np.random.default_rng(seed)
    X, label = simulated_classes(25, q, k, seed=seed)
    model = build_classes(X, label, intercept=False)
    w = rng.exponential(size=len(model.y))
    precision = rng.uniform(0.5, 3.0, q)
    return model, w, precision, _joint(model.space, *model.blocks.gram(w, -1.0 - w), precision)


def test_joint_precision_equals_the_definition():
    model, w, precision, (A, r) = joint_problem()
    Z, k, q = model.blocks.design.rows(np.arange(len(model.y))), 4, 4
    T = np.kron(helmert(k).T, np.eye(q))
    full = T.T @ ((Z.T * w) @ Z + np.diag(np.tile(precision, k))) @ T
    order = np.arange(3 * q).reshape(3, q).T.ravel()  # variable by variable
    np.testing.assert_allclose(A, full[np.ix_(order, order)], atol=1e-9)
    np.testing.assert_allclose(r, (T.T @ Z.T @ (-1.0 - w))[order], atol=1e-9)


def test_log_odds_equal_enumeration():
    _, _, precision, (A, r) = joint_problem()
    m, q = 3, 4
    for bits in itertools.product([False, True], repeat=q):
        inside = np.array(bits)
        G = np.block([[A, r[:, None]], [r[None, :], np.zeros((1, 1))]])
        for j in np.flatnonzero(inside):
            for a in range(m):
                sweep(G, j * m + a, 1.0)
        for j in range(q):
            yes, no = inside.copy(), inside.copy()
            yes[j], no[j] = True, False
            wanted = log_evidence(A, r, yes, precision, m) - log_evidence(A, r, no, precision, m)
            got = log_odds(G, j * m, m, bool(inside[j]), precision[j], np.empty((m + 1, m)))
            assert got == pytest.approx(wanted, abs=1e-9)


def test_scan_leaves_the_matrix_swept_on_the_new_set():
    _, _, precision, (A, r) = joint_problem(seed=2)
    m, q = 3, 4
    G = np.block([[A, r[:, None]], [r[None, :], np.zeros((1, 1))]])
    gamma, out, rng = np.zeros(q, dtype=bool), np.empty(q), np.random.default_rng(0)
    always = np.array([True, False, False, False])
    gamma[0] = True
    for a in range(m):
        sweep(G, a, 1.0)
    for _ in range(5):
        order, uniform, room = rng.permutation(q), rng.random(q), np.empty((m + 1, m))
        scan_variables(G, m, gamma, always, precision, np.full(q, -1.0), order, uniform, out, room)
    fresh = np.block([[A, r[:, None]], [r[None, :], np.zeros((1, 1))]])
    for j in np.flatnonzero(gamma):
        for a in range(m):
            sweep(fresh, j * m + a, 1.0)
    np.testing.assert_allclose(G, fresh, atol=1e-8)
    assert gamma[0] and out[0] == 1.0


def exact_inclusion(X, label, scale, pi):
    """Inclusion probabilities of two variables over three classes: evidences as prior averages at a Sobol net."""
    A = helmert(3)

    def evidence(inside):
        m = 2 * sum(inside)
        if m == 0:
            points = np.zeros((1, 0))
        else:
            net = qmc.Sobol(m, rng=np.random.default_rng(0)).random(2**16)
            points = scale * norm.ppf(np.clip(net, 1e-12, 1.0 - 1e-12))
        theta = np.zeros((len(points), 2, 2))
        theta[:, np.flatnonzero(inside)] = points.reshape(len(points), -1, 2)
        total = np.zeros(len(points))
        for x, own in zip(X, label, strict=True):
            f = np.einsum("pjs,j->ps", theta, x) @ A
            for r in set(range(3)) - {int(own)}:
                total -= 2.0 * np.maximum(f[:, r] + 0.5, 0.0)
        return float(np.exp(total).mean())

    mass = {
        inside: evidence(inside) * pi ** sum(inside) * (1.0 - pi) ** (2 - sum(inside))
        for inside in itertools.product([0, 1], repeat=2)
    }
    total = sum(mass.values())
    return np.array([sum(v for key, v in mass.items() if key[j]) / total for j in range(2)])


def test_inclusion_equals_exact_evidences():
    rng = np.random.default_rng(3)
    label = np.repeat(np.arange(3), [4, 3, 3])
    X = np.column_stack((np.array([-0.6, 0.0, 0.6])[label] + rng.standard_normal(10), rng.standard_normal(10)))
    exact = exact_inclusion(X, label, 1.0, 0.4)
    model = build_selection(X, label, SpikeSlab(0.4, scale=1.0), intercept=False, seed=4)
    engine, drawn, used = class_spike_slab(chains=1), [], []
    for k, state, _ in iterate(engine, model, max_iter=6000):
        if k > 300:
            drawn.append(state[0].gamma.astype(float))
            used.append(state[0].inclusion)
    for sample in (np.array(drawn), np.array(used)):
        batches = np.array([b.mean(axis=0) for b in np.array_split(sample, 30)])
        z = (batches.mean(axis=0) - exact) / (batches.std(axis=0, ddof=1) / math.sqrt(30))
        assert np.abs(z).max() < 4.0
    assert 0.05 < exact.min() < exact.max() < 0.95  # neither variable is certain
    wrong = exact_inclusion(X, label, 0.5, 0.4)  # the test sees another slab
    assert np.abs((batches.mean(axis=0) - wrong) / (batches.std(axis=0, ddof=1) / math.sqrt(30))).max() > 8.0


def test_coefficients_of_excluded_variables_are_zero_and_sums_vanish():
    X, label = simulated_classes(40, 6, 3, seed=1)
    model = build_selection(X, label, SpikeSlab("learn", hyperprior=InverseGamma(2.0, 1.0), always_include=[1]))
    for _, state, _ in iterate(class_spike_slab(chains=3), model, max_iter=30):
        for chain in state:
            beta = chain.beta.reshape(3, -1)
            np.testing.assert_allclose(beta.sum(axis=0), 0.0, atol=1e-10)
            assert not beta[:, ~chain.gamma].any()
            assert chain.gamma[0] and chain.gamma[2]
            np.testing.assert_allclose(chain.f, model.blocks.matvec(chain.beta), atol=1e-9)
            assert 0.0 < chain.prior.values["inclusion"] < 1.0


def test_signal_is_found():
    rng = np.random.default_rng(6)
    label = rng.integers(0, 3, 150)
    X = rng.standard_normal((150, 6))
    X[:, 0] += 2.0 * np.array([-1.0, 0.0, 1.0])[label]
    X[:, 1] += 2.0 * np.array([1.0, -2.0, 1.0])[label]
    model = build_selection(X, label, SpikeSlab(0.2, scale=1.0), seed=1)
    chains = [state for k, state, _ in iterate(class_spike_slab(chains=2), model, max_iter=200) if k > 50]
    inclusion = np.mean([[chain.inclusion for chain in state] for state in chains], axis=(0, 1))
    assert inclusion[1:3].min() > 0.95
    assert inclusion[3:].max() < 0.4


def test_chains_do_not_depend_on_threads():
    X, label = simulated_classes(30, 3, 3, seed=1)
    one = build_selection(X, label, SpikeSlab(0.5), seed=7)
    two = build_selection(X, label, SpikeSlab(0.5), seed=7)
    a, b = (run(class_spike_slab(chains=2), model, max_iter=5).state for model in (one, two))
    np.testing.assert_array_equal(a[1].beta, b[1].beta)


def test_too_many_dimensions_are_refused():
    X, label = simulated_classes(6, 1600, 3, seed=1)
    model = build_selection(X, label, SpikeSlab(0.5))
    with pytest.raises(ValueError, match="fewer columns"):
        class_spike_slab().init(model)
