"""Runs of the kernel samplers: singular kernels, reproducibility, interruption, and what is refused."""

import numpy as np
import pytest
from jump_problems import problem, rbf
from stages import in_stages

from softmargin.core.loop import Outcome, run
from softmargin.engines.kernel.active_chain import factor
from softmargin.engines.kernel.active_vectors import active_vectors
from softmargin.engines.kernel.data import KernelData, LengthScale
from softmargin.engines.kernel.draws import Expansion, Recorder
from softmargin.engines.kernel.jump import LIKELIHOODS, fit_active
from softmargin.priors.g_prior import GPrior
from softmargin.rows.streams import Streams

STREAMS = Streams((7, 8))


@pytest.mark.parametrize("length", in_stages([1e3, 1.0, 1e-3]))
def test_long_runs_on_singular_kernels(length):
    """Duplicated rows; a kernel that is the identity, and one that is nearly constant."""
    X, y, _, _ = problem(14, seed=1)
    X[7:] = X[:7]
    K = rbf(X, X, length)
    draws = fit_active(K, y, sweeps=3000, warmup=0, thin=3, moves=5, streams=STREAMS)
    assert draws.intercept.shape == (1, 1000)
    assert np.isfinite(draws.predictor(K)).all()
    assert np.isfinite(draws.values["g"]).all()
    assert np.ptp(draws.n_active) >= 7
    # a row and its copy are alike
    p = draws.active_probability()
    assert np.abs(p[:7].mean() - p[7:].mean()) < 0.1


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_factors_between_rebuilds(likelihood):
    """After 99 sweeps the factors that a chain carries are those from scratch."""
    _, y, K, _ = problem(40, seed=6, length=1.0)
    weight = 1.0 + (np.arange(40) % 3)
    data = KernelData(K, y, weight, LIKELIHOODS[likelihood].loss(), GPrior(), STREAMS)
    state = run(active_vectors(40, 10, likelihood == "probit"), data, max_iter=99).state[0]
    G, R = factor(K, state.active)
    assert len(state.active) > 3
    np.testing.assert_allclose(state.G, G, atol=1e-10)
    np.testing.assert_allclose(state.R, R, atol=1e-10)
    np.testing.assert_allclose(state.law.gram, (G * state.w) @ G.T, atol=1e-8)


@pytest.mark.parametrize("likelihood", list(LIKELIHOODS))
def test_duplicates_in_every_likelihood(likelihood):
    X, y, _, _ = problem(10, seed=2)
    X[5:] = X[:5]
    basis = "full" if LIKELIHOODS[likelihood].machine else "active"
    K = rbf(X, X)
    draws = fit_active(K, y, likelihood=likelihood, basis=basis, sweeps=300, warmup=10, streams=STREAMS)
    p = draws.probability(K)
    assert ((p > 0.0) & (p < 1.0)).all()
    np.testing.assert_allclose(p[:5], p[5:], atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"basis": "full"}, {"likelihood": "logit"}, {"informed": True}])
def test_the_same_seed_gives_the_same_draws(options):
    _, y, K, new = problem(12, seed=3)
    runs = [fit_active(K, y, sweeps=60, warmup=20, chains=2, streams=STREAMS, **options) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].predictor(new), runs[1].predictor(new))
    other = fit_active(K, y, sweeps=60, warmup=20, chains=2, streams=Streams((7, 9)), **options)
    assert np.abs(runs[0].predictor(new) - other.predictor(new)).max() > 0.01
    assert np.abs(np.diff(runs[0].intercept, axis=0)).min() > 0.0  # chains have streams of their own


@pytest.mark.parametrize("by", ["callback", "keyboard"])
def test_interrupted_runs_keep_their_draws(by):
    _, y, K, new = problem(12, seed=3)

    def stop(iteration, info):
        if by == "keyboard" and iteration == 45:
            raise KeyboardInterrupt
        return iteration == 45

    whole = fit_active(K, y, sweeps=100, warmup=20, thin=5, streams=STREAMS)
    part = fit_active(K, y, sweeps=100, warmup=20, thin=5, streams=STREAMS, callback=stop)
    assert part.outcome.interrupted and not part.outcome.converged
    assert whole.outcome.converged
    kept = part.intercept.shape[1]
    assert kept == 5
    np.testing.assert_array_equal(part.predictor(new), whole.predictor(new)[:kept])


def test_interruption_before_a_draw_is_an_interruption():
    _, y, K, _ = problem(12, seed=3)
    with pytest.raises(KeyboardInterrupt, match="before a draw"):
        fit_active(K, y, sweeps=100, warmup=20, streams=STREAMS, callback=lambda iteration, info: iteration == 3)


def test_chains_cut_to_what_all_have_kept():
    """An interruption may come between two chains of one sweep."""
    recorder = Recorder(2)
    for chain, value in ((0, 1.0), (1, 2.0), (0, 3.0)):
        recorder.add(chain, Expansion(value, np.array([0, 2]), np.array([value, 1.0])), {"g": value})
    draws = recorder.draws(3, LIKELIHOODS["probit"].link, {}, Outcome(None))
    np.testing.assert_array_equal(draws.intercept, [[1.0], [2.0]])
    np.testing.assert_array_equal(draws.matrix.toarray(), [[1.0, 0.0, 1.0], [2.0, 0.0, 1.0]])


@pytest.mark.parametrize("y", [[1.0], [-1.0, -1.0, -1.0]])
@pytest.mark.parametrize("likelihood", list(LIKELIHOODS))
def test_one_row_and_one_class(y, likelihood):
    basis = "full" if LIKELIHOODS[likelihood].machine else "active"
    options = {"likelihood": likelihood, "basis": basis, "sweeps": 200, "warmup": 20, "streams": STREAMS}
    p = fit_active(np.eye(len(y)), np.array(y), **options).probability(np.eye(len(y)))
    assert ((p > 0.5) == (y[0] > 0)).all()


def test_at_most_so_many_active():
    _, y, K, _ = problem(30, seed=4, length=0.5)
    draws = fit_active(K, y, max_active=3, sweeps=500, warmup=0, thin=1, streams=STREAMS)
    assert draws.n_active.max() == 3
    assert set(draws.accepted) == {"birth", "death", "swap"}
    np.testing.assert_allclose(draws.active_probability().sum(), draws.n_active.mean())
    np.testing.assert_allclose(draws.scale, draws.values["g"] ** -0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "cauchit"}, "likelihood must be one of"),
        ({"basis": "some"}, "basis must be"),
        ({"likelihood": "noisy-hinge"}, "use basis='full'"),
        ({"basis": "full", "rao_blackwell": True}, "need basis='active'"),
        ({"basis": "full", "length": LengthScale(lambda l: np.eye(5), 1.0)}, "need basis='active'"),
        ({"max_active": 6}, "between 1 and the number of rows, 5"),
        ({"max_active": 0}, "between 1 and the number of rows, 5"),
        ({"weight": np.array([1.0, 1.0, 0.5, 1.0, 1.0])}, "whole numbers"),
        ({"weight": np.zeros(5)}, "one of them positive"),
        ({"weight": np.ones(4)}, "5 entries"),
        ({"y": np.array([0.0, 1.0, 1.0, 0.0, 1.0])}, "-1 and"),
        ({"sweeps": 2, "thin": 5}, "no draw would be kept"),
    ],
)
def test_what_is_refused(options, message):
    _, y, K, _ = problem(5, seed=5)
    settings = {"y": y, "weight": None, "streams": STREAMS, "sweeps": 10} | options
    with pytest.raises(ValueError, match=message):
        fit_active(K, **settings)


@pytest.mark.parametrize("bad", [{"shrinkage": (0.0, 1.0)}, {"intercept": -1.0}, {"inclusion": (1.0, np.inf)}])
def test_priors_refuse(bad):
    with pytest.raises(ValueError, match=f"GPrior {next(iter(bad))}"):
        GPrior(**bad)


def test_new_rows_need_their_columns():
    _, y, K, _ = problem(5, seed=5)
    draws = fit_active(K, y, sweeps=10, warmup=0, streams=STREAMS)
    with pytest.raises(ValueError, match="5 columns"):
        draws.probability(np.ones((2, 4)))
    with pytest.raises(ValueError, match="rao_blackwell=True"):
        draws.moments(K, rao_blackwell=True)
