"""Dask arrays and data frames as X: fits are those of the same rows in memory, and predictions stay lazy."""

import os
import signal
import threading

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from softmargin import BayesianSVC, BayesianSVR
from softmargin.estimators.given import dask as given

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

N = 5000  # three cells, the last one short
CHUNKS = ((1, 2500, 7, 2492), (2, 3))
FITS = {
    "vb": {"inference": "vb"},
    "map": {"inference": "map"},
    "meanfield": {"inference": "meanfield"},
    "gibbs": {"inference": "gibbs", "draws": 6, "warmup": 2, "chains": 2},
    "hmc": {"inference": "hmc", "draws": 6, "warmup": 2, "chains": 2},
    "svi": {"inference": "svi"},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)) * np.geomspace(0.1, 30.0, 5) + np.arange(5)
    return X, X[:, 0] * 5.0 - 0.05 * X[:, 4] + rng.logistic(size=N)


def fitted(X, y, name, **options):
    return BayesianSVC(learning_rate=0.25, random_state=0, **FITS[name], **options).fit(X, y)


@pytest.fixture(scope="module")
def wanted(data):
    X, f = data
    kept = {}

    def of(name):
        if name not in kept:
            kept[name] = fitted(X, f > 0, name)
        return kept[name]

    return of


def same(found, wanted):
    np.testing.assert_array_equal(found.coef_, wanted.coef_)
    np.testing.assert_array_equal(found.intercept_, wanted.intercept_)
    np.testing.assert_array_equal(found.trace_, wanted.trace_)


@pytest.fixture(autouse=True)
def away(monkeypatch):
    """Rows stay on the workers however few they are."""
    monkeypatch.setattr(given, "_HOME", 0)


pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of short chains


@pytest.mark.parametrize("name", FITS)
def test_a_fit_on_workers_has_the_bits_of_one_in_memory(dask_client, data, wanted, name):
    X, f = data
    with dask_client.as_current():
        found = fitted(da.from_array(X, chunks=CHUNKS), da.from_array(f > 0, chunks=999), name)
    same(found, wanted(name))


def test_one_worker_with_threads_gives_the_same_bits(data, wanted):
    X, f = data
    local = {"n_workers": 1, "threads_per_worker": 3, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster):
        same(fitted(da.from_array(X, chunks=1700), f > 0, "vb"), wanted("vb"))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_workers_gives_the_same_bits(data, wanted, workers):
    X, f = data
    local = {"n_workers": workers, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster):
        for name in FITS:
            same(fitted(da.from_array(X, chunks=CHUNKS), f > 0, name), wanted(name))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["vb", "map", "gibbs", "hmc"])
def test_workers_killed_at_random_moments_change_no_bit(data, wanted, name):
    """Whatever a worker is doing then: reading rows, a visit, or being rebuilt; its nanny starts another."""
    X, f = data
    moments, done = np.random.default_rng([1, len(name)]).uniform(0.2, 2.0, 5), threading.Event()
    killed = []
    local = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}

    def kill(cluster):
        for moment in moments:
            if done.wait(moment):
                return
            known = set(cluster.scheduler.workers)  # not one that is being started: its nanny would give up
            running = [each for each in cluster.workers.values() if each.worker_address in known]
            if len(running) > 1:
                os.kill(running[0].process.pid, signal.SIGKILL)
                killed.append(moment)

    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster):
        killer = threading.Thread(target=kill, args=(cluster,))
        killer.start()
        try:
            found = fitted(da.from_array(X, chunks=CHUNKS), f > 0, name)
        finally:
            done.set()
            killer.join()
    assert killed
    same(found, wanted(name))


def test_a_pipeline_takes_a_data_frame_with_named_columns(dask_client, data):
    X, f = data
    frame = pd.DataFrame(X, columns=list("abcde")).assign(yes=f > 0, times=np.tile([0.0, 1.0, 2.0, 1.0], N // 4))
    lazy = dd.from_pandas(frame, npartitions=3)
    model = make_pipeline(
        FunctionTransformer(lambda X: X.assign(ab=X.a * X.b)), BayesianSVC(learning_rate=0.25, random_state=0)
    )
    columns = list("abcde")
    here = model.fit(frame[columns], frame.yes, bayesiansvc__sample_weight=frame.times)
    mean, p = here[-1].coef_, here.predict_proba(frame[columns])
    with dask_client.as_current():
        there = model.fit(lazy[columns], lazy.yes, bayesiansvc__sample_weight=lazy.times)
        np.testing.assert_array_equal(there[-1].coef_, mean)
        assert there[-1].feature_names_in_.tolist() == [*columns, "ab"]
        found = there.predict_proba(lazy[columns])
        assert isinstance(found, da.Array)
        np.testing.assert_allclose(found.compute(), p, rtol=1e-12)
        assert there[-1].score(lazy[columns].assign(ab=lazy.a * lazy.b), frame.yes) > 0.5
        by_name = BayesianSVC(learning_rate=0.25, random_state=0).fit(
            lazy.assign(ab=lazy.a * lazy.b)[[*columns, "ab", "yes", "times"]], "yes", sample_weight="times"
        )
        np.testing.assert_array_equal(by_name.coef_, mean)


def test_predictions_of_lazy_rows_are_lazy_on_any_scheduler(data, wanted):
    X, _ = data
    lazy, model = da.from_array(X, chunks=CHUNKS), wanted("vb")
    found = [model.predict(lazy), model.predict_proba(lazy), *model.decision_function(lazy, return_std=True)]
    assert all(isinstance(each, da.Array) for each in found)
    assert [each.shape for each in found] == [(N,), (N, 2), (N,), (N,)]
    here = [model.predict(X), model.predict_proba(X), *model.decision_function(X, return_std=True)]
    for lazily, each in zip(found, here, strict=True):
        assert lazily.dtype == each.dtype
        np.testing.assert_allclose(lazily.compute(scheduler="sync").astype(float), each.astype(float), rtol=1e-10)


@pytest.mark.parametrize("home", [0, 10**6], ids=["large", "small"])
@pytest.mark.parametrize("columns", [5, 2])
def test_rows_that_a_condition_leaves_are_fitted(dask_client, data, monkeypatch, home, columns):
    monkeypatch.setattr(given, "_HOME", home)
    X, f = data
    lazy, wanted = da.from_array(X, chunks=(1000, columns)), fitted(X[X[:, 1] > 0.5], f[X[:, 1] > 0.5] > 0, "map")
    with dask_client.as_current():
        found = fitted(lazy[lazy[:, 1] > 0.5], da.from_array(f > 0, chunks=1000)[lazy[:, 1] > 0.5], "map")
    same(found, wanted)


def test_chunks_without_rows_are_predicted(data, wanted):
    X, _ = data
    model, lazy = wanted("vb"), da.from_array(np.sort(X, axis=0), chunks=1000)
    kept = lazy[lazy[:, 0] > np.median(X[:, 0])]  # none of the first chunks
    here = np.asarray(kept.compute(scheduler="sync"))
    np.testing.assert_allclose(
        model.predict_proba(kept).compute(scheduler="sync"), model.predict_proba(here), rtol=1e-10
    )
    for lazily, each in zip(model.decision_function(kept, True), model.decision_function(here, True), strict=True):
        np.testing.assert_allclose(lazily.compute(scheduler="sync"), each, rtol=1e-10)


def test_many_classes_and_a_response_of_numbers(dask_client, data):
    X, f = data
    lazy, y = da.from_array(X, chunks=CHUNKS), np.digitize(f, (-2.0, 2.0))
    with dask_client.as_current():
        classes, numbers = fitted(lazy, y, "meanfield"), BayesianSVR(likelihood="squared").fit(lazy, f)
    np.testing.assert_array_equal(classes.coef_, fitted(X, y, "meanfield").coef_)
    np.testing.assert_array_equal(numbers.coef_, BayesianSVR(likelihood="squared").fit(X, f).coef_)


def test_few_rows_are_brought_home_where_all_features_are(data, monkeypatch):
    monkeypatch.setattr(given, "_HOME", 10**6)
    X, f = data
    X = np.where(X < -2.0, np.nan, X)
    frame = pd.DataFrame(X[:600], columns=list("abcde")).assign(yes=f[:600] > 0)
    model = BayesianSVC(learning_rate=0.25, random_state=0, missing="indicator")
    wanted = model.fit(frame.drop(columns="yes"), frame.yes).coef_
    found = model.fit(dd.from_pandas(frame, npartitions=2), "yes").coef_
    np.testing.assert_array_equal(found, wanted)


def test_predictions_of_a_data_frame_know_the_groups_of_its_rows(data, monkeypatch):
    monkeypatch.setattr(given, "_HOME", 10**6)
    X, f = data
    table = pd.DataFrame(X[:300], columns=list("abcde")).assign(f=f[:300], place=[f"p{k % 9}" for k in range(300)])
    lazy, columns = dd.from_pandas(table, npartitions=4), list("abcde")
    inside = BayesianSVR(random_effects="place", likelihood="squared").fit(lazy, "f")
    found = inside.predict(lazy).compute(scheduler="sync")
    np.testing.assert_allclose(found, inside.predict(table[[*columns, "place"]]), rtol=1e-10)
    beside = BayesianSVR(likelihood="squared").fit(lazy, "f", groups="place")
    found = beside.predict(lazy, groups="place").compute(scheduler="sync")
    np.testing.assert_allclose(found, beside.predict(table[columns], groups=table["place"]), rtol=1e-10)
    assert np.isclose(
        beside.score(lazy, "f", groups="place"), beside.score(table[columns], table["f"], groups=table["place"])
    )


def test_what_cannot_be_fitted_is_said_in_a_sentence(dask_client, data, monkeypatch):
    X, f = data
    lazy, y = da.from_array(X, chunks=CHUNKS), f > 0
    with pytest.raises(ValueError, match=r"no cluster to hold its rows: make one before fit with client"):
        BayesianSVC().fit(lazy, y)
    with dask_client.as_current():
        with pytest.raises(ValueError, match="X has no column 'yes'"):
            BayesianSVC().fit(lazy, "yes")
        with pytest.raises(ValueError, match="contains NaN in column 2"):
            BayesianSVC().fit(da.where(lazy == X[3000, 2], np.nan, lazy), y)
        with pytest.raises(ValueError, match="column b of X holds"):
            BayesianSVC().fit(dd.from_pandas(pd.DataFrame({"a": X[:, 0], "b": pd.Timestamp(0)}), npartitions=2), y)
        with pytest.raises(ValueError, match="column b of X cannot be read as numbers"):
            BayesianSVC().fit(dd.from_pandas(pd.DataFrame({"a": X[:, 0], "b": "x"}), npartitions=2), y)
        masked = da.ma.masked_greater(lazy, 3.0)
        with pytest.raises((TypeError, RuntimeError), match="X is a masked array on Dask; fill it first"):
            BayesianSVC().fit(masked, y)
        monkeypatch.setattr(given, "_HOME", 10**6)
        with pytest.raises(TypeError, match="X is a masked array on Dask; fill it first"):
            BayesianSVC().fit(masked, y)
        monkeypatch.setattr(given, "_HOME", 0)
        with pytest.raises(RuntimeError, match=r"rows 0\.\.4096 of X could not be made on a worker: no such file"):
            BayesianSVC().fit(lazy.map_blocks(_unreadable, dtype=float), y)


def _unreadable(block):
    if block.shape[0] > 1:
        raise OSError("no such file")
    return block
