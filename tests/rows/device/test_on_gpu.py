"""Rows on a GPU: run where there is one, with CuPy and numba-cuda; everything agrees with rows in memory."""

import numpy as np
import pytest
from device_problems import on_device
from engine_problems import build, simulated

from softmargin import BayesianSVC, BayesianSVR
from softmargin.core.loop import run
from softmargin.designs.device import DeviceDense
from softmargin.designs.standardize import as_given
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.vi.fixed_point import MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import Check, EpsilonInsensitive, Hinge, Logit, Probit, Squared, SquaredHinge
from softmargin.priors import Ridge
from softmargin.rows.block import CELL
from softmargin.rows.device.libraries import library_of
from softmargin.rows.device.numbers import CellNumbers, DeviceNumbers

cupy = pytest.importorskip("cupy")
pytest.importorskip("numba_cuda")
try:
    cupy.zeros(1)
except Exception as reason:  # no driver, no device, one that is too old: whatever CuPy raises
    pytest.skip(f"there is no GPU: {reason}", allow_module_level=True)

TOLERANCE = {np.float64: 1e-9, np.float32: 3e-5}


@pytest.fixture(scope="module")
def library():
    return library_of(cupy.zeros(1))


@pytest.mark.parametrize(
    "loss", [Hinge(), SquaredHinge(), EpsilonInsensitive(0.3), Squared(), Check(0.3), Logit(), Probit()], ids=repr
)
def test_formulas_are_those_of_the_processor(library, loss):
    rng, n = np.random.default_rng(0), 100_003
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    rows = y, rng.uniform(0.1, 2.0, n), 3.0 * rng.standard_normal(n), rng.uniform(0.0, 2.0, n)
    there = tuple(map(cupy.asarray, rows))
    for name, given in (("loglik", 3), ("score", 3), ("expect", 4), ("gaussian", 4)):
        wanted, found = getattr(loss, name)(*rows[:given]), getattr(loss, name)(*there[:given])
        pairs = zip(found, wanted, strict=True) if given == 4 else [(found, wanted)]
        for own, other in pairs:
            assert isinstance(own, cupy.ndarray)
            np.testing.assert_allclose(cupy.asnumpy(own), other, rtol=1e-11, atol=1e-13)


def test_streams_are_those_of_the_processor(library):
    where = (2**63 + 987, 123456789012345678), (7, 3 << 8 | 1), 5, 300 * CELL + 77
    device, host = DeviceNumbers(library, *where), CellNumbers(*where)
    for name in ("standard_normal", "random", "standard_normal", "random"):
        found = cupy.asnumpy(getattr(device, name)(where[-1]))
        np.testing.assert_allclose(found, getattr(host, name)(where[-1]), rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", [5, 70, 100, 126, 300, 700])
def test_products_are_those_of_numpy(library, p, dtype):
    rng, n = np.random.default_rng(p), 10_001
    X = rng.standard_normal((n, p)).astype(dtype)
    columns = as_given(p)._replace(intercept=True)
    design = DeviceDense.standardized(library, cupy.asarray(X), columns)
    Z = np.column_stack((np.ones(n), X)).astype(float)
    w, b, beta = rng.random(n), rng.standard_normal(n), rng.standard_normal(p + 1)
    close = {"rtol": 0.0, "atol": TOLERANCE[dtype] * np.sqrt(n)}
    A, c = design.gram(cupy.asarray(w), cupy.asarray(b))
    np.testing.assert_allclose(cupy.asnumpy(A), (Z.T * w) @ Z, **close)
    np.testing.assert_allclose(c, Z.T @ b, **close)
    np.testing.assert_allclose(cupy.asnumpy(design.matvec(beta)), Z @ beta, atol=1e3 * TOLERANCE[dtype])
    for root in (np.triu(rng.standard_normal((p + 1, p + 1))), rng.standard_normal((p + 1, p + 1))):
        f, v = design.moments(beta, cupy.asarray(root))
        np.testing.assert_allclose(cupy.asnumpy(f), Z @ beta, atol=1e3 * TOLERANCE[dtype])
        np.testing.assert_allclose(cupy.asnumpy(v), ((Z @ root) ** 2).sum(axis=1), rtol=100.0 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["vb", "meanfield", "gibbs"])
def test_a_step_is_that_of_rows_in_memory(library, name, dtype):
    engine = {"vb": GaussianVI(), "meanfield": MeanField(), "gibbs": gibbs(2, scale_moves=False)}[name]
    X, y = simulated(4500, 20 if dtype is np.float64 else 90)  # home, the larger one begins in single precision
    here = build(X.astype(dtype).astype(float), y, c=np.full(len(y), 0.5), prior=Ridge(scale=0.5))
    there = on_device(here, library, dtype)
    if name != "gibbs":
        wanted, found = run(engine, here, max_iter=1).state, run(engine, there, max_iter=1).state
        pairs = [(found.q.mean, wanted.q.mean), (found.q.root, wanted.q.root)]
    else:  # the first sweep; the next one amplifies last bits of rows at their kinks
        wanted, found = engine.init(here), engine.init(there)
        pairs = [(own.beta, other.beta) for own, other in zip(found, wanted, strict=True)]
    for own, other in pairs:
        np.testing.assert_allclose(own, other, rtol=0.0, atol=100.0 * TOLERANCE[dtype] * np.abs(other).max())


def test_posteriors_agree_in_distribution():
    X, y = simulated(4000, 8)
    options = {"inference": "gibbs", "learning_rate": 0.25, "draws": 500, "warmup": 100, "chains": 4}
    home = BayesianSVC(random_state=1, **options).fit(X, y).summary()
    there = BayesianSVC(random_state=2, **options).fit(cupy.asarray(X), cupy.asarray(y)).summary()
    error = np.hypot(home["sd"] / np.sqrt(home["ess"]), there["sd"] / np.sqrt(there["ess"]))
    assert (np.abs(home["mean"] - there["mean"]) / error).max() < 4.0


@pytest.mark.parametrize("kind", ["cupy", "torch"])
def test_estimators_take_arrays_of_a_device_and_give_them_back(kind):
    X, y = simulated(5000, 6)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        there, home, array = torch.from_numpy(X).cuda(), lambda x: x.cpu().numpy(), torch.Tensor
    else:
        there, home, array = cupy.asarray(X), cupy.asnumpy, cupy.ndarray
    for inference in ("vb", "map", "meanfield"):
        here = BayesianSVC(inference=inference).fit(X, y)
        model = BayesianSVC(inference=inference).fit(there, y)
        assert isinstance(model.coef_, np.ndarray)
        np.testing.assert_allclose(model.coef_, here.coef_, atol=1e-6)
        for name in ("predict_proba", "decision_function", "predict"):
            found = getattr(model, name)(there)
            assert isinstance(found, array)
            np.testing.assert_allclose(home(found), getattr(here, name)(X), atol=1e-5)
    f = X[:, 0] - 0.5 * X[:, 1] + np.random.default_rng(0).laplace(size=len(X))
    here, model = BayesianSVR().fit(X, f), BayesianSVR().fit(there, f)
    np.testing.assert_allclose(home(model.predict(there)), here.predict(X), atol=1e-5)


@pytest.mark.parametrize("inference", ["vb", "map"])
def test_many_rows_are_fitted_as_at_home(inference):
    X, y = simulated(60_000, 5)
    home = BayesianSVC(inference=inference).fit(X, y)
    there = BayesianSVC(inference=inference).fit(cupy.asarray(X), y)
    np.testing.assert_allclose(there.coef_, home.coef_, atol=2e-4)  # of "vb" at home by parts of the rows


def test_a_loss_that_is_drawn_by_rejection_says_so():
    X, y = simulated(3000, 4)
    assert BayesianSVC(likelihood="logit").fit(cupy.asarray(X), y).converged_
    with pytest.raises(ValueError, match="is not done on a GPU"):
        BayesianSVC(likelihood="logit", inference="gibbs", draws=10).fit(cupy.asarray(X), y)
