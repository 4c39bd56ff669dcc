"""Leave-one-out predictors that wait until they are asked for."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse as sp

from softmargin import BayesianSVC
from softmargin.designs.sparse import Implicit
from softmargin.engines.mode.dual_descent import Descent
from softmargin.inference.mode_left_out import Deferred, deferred
from softmargin.inference.readout import BinaryReadout, HeldOut
from softmargin.losses import Hinge
from softmargin.models import build as problem
from softmargin.priors import Ridge
from softmargin.priors.penalty import Penalty
from softmargin.rows.streams import Streams


def words(n=60, p=90, seed=0):
    """Sparse rows of counts with signs that depend on some of the columns."""
    rng = np.random.default_rng(seed)
    X = sp.csr_matrix(rng.poisson(3.0 / np.arange(1, p + 1) ** 0.8, size=(n, p)).astype(float) + np.eye(n, p))
    f = X @ rng.normal(size=p)
    return X, np.where(f - np.median(f) + rng.normal(size=n) > 0.0, 1.0, -1.0)


def mode(X, y, count):
    """A model by products, its mode, and how it is read out."""
    columns = problem.kept_columns(X, count, intercept=True, standardized=True)
    options = {"prior": Ridge(scale=0.1), "loss": Hinge(), "streams": Streams.from_random_state(0)}
    parts = problem.prepare(X, y, count, count, columns, point=True, **options)
    penalty = Penalty(*parts.model.prior.penalty(0.1))
    readout = BinaryReadout(columns, None, parts.part, count)
    return readout, parts.model, Descent().at(parts.model, penalty), penalty


def test_it_is_made_once_and_from_the_rows_of_the_fit():
    X, y = words()
    count = np.random.default_rng(1).integers(1, 4, 60).astype(float)
    readout, model, point, penalty = mode(X, y, count)
    wanted = readout.of_mode(model, point, penalty)
    held = deferred(readout, model, lambda readout, model: readout.of_mode(model, point, penalty))
    X.data[:] = 0.0  # the user goes on working with the arrays
    count[:] = 7.0
    assert held.found is held.found
    np.testing.assert_array_equal(held.f, wanted.f)
    np.testing.assert_array_equal(held.v, wanted.v)
    np.testing.assert_array_equal(held.probability, wanted.probability)
    assert held.loo._replace(max_kv=0.0) == wanted.loo._replace(max_kv=0.0)


def test_copies_carry_the_answer_and_not_the_rows():
    calls = []

    def make():
        calls.append(1)
        return HeldOut(np.arange(3.0), np.zeros(3), "the link")

    held = Deferred(make)
    assert not calls
    for twin in (pickle.loads(pickle.dumps(held)), deepcopy(held)):
        assert isinstance(twin, HeldOut) and twin.loo == "the link"
        np.testing.assert_array_equal(twin.f, np.arange(3.0))
    assert len(calls) == 1


def test_a_fitted_estimator_survives_pickling_and_refitting():
    X, y = words()
    model = BayesianSVC(solver="cg", inference="map", prior=Ridge(scale=0.1), learning_rate=0.5).fit(X, y)
    p = pickle.loads(pickle.dumps(model)).predict_proba(X)
    np.testing.assert_array_equal(p, model.predict_proba(X))
    np.testing.assert_array_equal(deepcopy(model).loo_probability_, model.loo_probability_)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), p)
    dense = BayesianSVC(solver="dual", inference="map", prior=Ridge(scale=0.1), learning_rate=0.5).fit(X, y)
    np.testing.assert_allclose(p, dense.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(model.loo_probability_, dense.loo_probability_, atol=1e-4)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])


@pytest.mark.parametrize(("shape", "wanted"), [((60, 90), True), ((90, 60), False)])
def test_a_mode_alone_is_found_by_products_where_columns_outnumber_rows(shape, wanted):
    X, _ = words(*shape)
    columns = problem.kept_columns(X, np.ones(shape[0]), intercept=True, standardized=True)
    design = problem.design_for(X, columns)
    chosen = problem.coordinates_for(design, Ridge(), "auto", products=True, point=True).design
    assert isinstance(chosen, Implicit) is wanted
    assert not isinstance(problem.coordinates_for(design, Ridge(), "auto", products=True).design, Implicit)
