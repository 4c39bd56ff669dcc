"""A fit that was stopped, at any step of any of its runs, goes on as if it had not been."""

import contextlib
import errno
import itertools
import os
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import softmargin
from softmargin import BayesianKernelClassifier, BayesianKernelRegressor, BayesianSVC, BayesianSVR, load, save
from softmargin.exceptions import CheckpointWarning, SavedFileError
from softmargin.priors import Ridge
from softmargin.storage import container
from softmargin.survival import watch
from softmargin.survival.watch import Place

DRAWS = {"draws": 20, "warmup": 5, "chains": 2}


def rows(n=120):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4))
    f = X[:, 0] + 0.5 * X[:, 1]
    return X, (f + rng.logistic(size=n) > 0).astype(int), f + 0.3 * rng.normal(size=n)


def classes():
    X, y, f = rows()
    return X, y + (f > 1.0)


def incomplete():
    X, y, _ = rows()
    X = X.copy()
    X[::9, 2] = np.nan
    return X, y


FITS = {
    "vb": (lambda **k: BayesianSVC(**k), lambda: rows()[:2]),
    "map": (lambda **k: BayesianSVC(inference="map", **k), lambda: rows()[:2]),
    "meanfield": (lambda **k: BayesianSVC(inference="meanfield", learning_rate=1.0, **k), lambda: rows()[:2]),
    "gibbs": (lambda **k: BayesianSVC("lasso", "gibbs", **DRAWS, **k), lambda: rows()[:2]),
    "selection": (lambda **k: BayesianSVC("spike-slab", "gibbs", **DRAWS, **k), lambda: rows()[:2]),
    "hmc": (lambda **k: BayesianSVC(inference="hmc", **DRAWS, **k), lambda: rows()[:2]),
    "svi": (
        lambda **k: BayesianSVC(inference="svi", engine_options={"batch": 16, "first": 32, "epochs": 2}, **k),
        lambda: rows()[:2],
    ),
    "pairs": (lambda **k: BayesianSVC(inference="gibbs", n_jobs=2, learning_rate=0.5, **DRAWS, **k), classes),
    "missing": (lambda **k: BayesianSVC(inference="hmc", learning_rate=0.5, **DRAWS, **k), incomplete),
    "noise": (lambda **k: BayesianSVR(inference="gibbs", **DRAWS, **k), lambda: rows()[::2]),
    "active vectors": (
        lambda **k: BayesianKernelClassifier(basis="active", inference="gibbs", **DRAWS, **k),
        lambda: rows(60)[:2],
    ),
    "learned length": (
        lambda **k: BayesianKernelClassifier("rbf", "learn", "probit", "active", "gibbs", **DRAWS, **k),
        lambda: rows(60)[:2],
    ),
    "all rows": (
        lambda **k: BayesianKernelClassifier(likelihood="probit", basis="full", inference="gibbs", **DRAWS, **k),
        lambda: rows(60)[:2],
    ),
    "kernel machine": (
        lambda **k: BayesianKernelClassifier(likelihood="noisy-hinge", basis="full", inference="gibbs", **DRAWS, **k),
        lambda: rows(60)[:2],
    ),
    "inducing points": (lambda **k: BayesianKernelClassifier(n_inducing=20, **k), lambda: rows()[:2]),
    "kernel regression": (lambda **k: BayesianKernelRegressor(length_scale=2.0, **k), lambda: rows(60)[::2]),
}


LONGER = ("meanfield", "missing", "inducing points", "kernel regression", "learned length", "all rows")


class Stopped(Exception):
    """The process ends here."""


@pytest.fixture
def stopping(monkeypatch):
    """Lets the process end after a number of steps of runs that are written down; counts them where there is none."""
    note, steps = Place.note, {"made": 0, "last": None}

    def counted(place, saved):
        note(place, saved)
        steps["made"] += place.writes
        if steps["last"] is not None and steps["made"] >= steps["last"]:  # threads count together
            raise Stopped

    def after(last):
        steps.update(made=0, last=last)
        return steps

    monkeypatch.setattr(Place, "note", counted)
    return after


def everything(model, X):
    """All numbers of a fit."""
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_")}
    fitted.pop("choices_", None)  # with seconds
    said = model.predict_proba(X) if hasattr(model, "classes_") else model.predict_interval(X)
    return [*(fitted[name] for name in ("trace_", "n_iter_", "scale_") if name in fitted), said, repr(model.loo_)]


def equal(one, other):
    def flat(value):
        return np.concatenate([np.ravel(part) for part in value]) if isinstance(value, list) else value

    return all(np.array_equal(flat(a), flat(b)) for a, b in zip(one, other, strict=True))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in LONGER)) for name in FITS])
def test_a_fit_that_goes_on_is_bitwise_one_that_was_never_stopped(name, tmp_path, stopping):
    make, data = FITS[name]
    X, y = data()
    counted = stopping(None)
    whole = make(random_state=1, checkpoint=str(tmp_path / "whole")).fit(X, y)
    steps = counted["made"]
    plain = everything(make(random_state=1).fit(X, y), X)
    assert equal(everything(whole, X), plain)  # writing changes nothing
    folder = str(tmp_path / "stopped")
    for last in (steps // 3, steps - 1):
        stopping(last)
        with pytest.raises(Stopped):
            make(random_state=1, checkpoint=folder, checkpoint_every=1e-6).fit(X, y)
        stopping(None)
        again = make(random_state=1, checkpoint=folder, checkpoint_every=1e-6, resume=True).fit(X, y)
        assert equal(everything(again, X), plain)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_whose_time_was_over_goes_on_wherever_that_was(tmp_path, monkeypatch):
    """Also among the runs that one number is averaged over: those that followed were of another fit."""
    X, y, _ = rows()
    plain = everything(BayesianSVC(random_state=1).fit(X, y), X)
    check, looks = watch.TimeLimit.check, {"made": 0}

    def over(limit, last):
        looks["made"] += 1
        if looks["made"] == last:
            limit.over = True
            raise watch.OutOfTime("the time is over")

    for last in range(3, 40):
        own = {"random_state": 1, "checkpoint": str(tmp_path / str(last)), "checkpoint_every": 1e-6}
        looks["made"] = 0
        monkeypatch.setattr(watch.TimeLimit, "check", lambda limit, last=last: over(limit, last))
        with contextlib.suppress(TimeoutError):  # there was nothing to keep yet
            BayesianSVC(max_time=1e9, **own).fit(X, y)
        monkeypatch.setattr(watch.TimeLimit, "check", check)
        assert equal(everything(BayesianSVC(resume=True, **own).fit(X, y), X), plain)
        if looks["made"] < last:
            break
    assert 10 < last < 39, "at every look at the clock"


def test_a_fit_that_is_stopped_twice_goes_on_twice(tmp_path, stopping):
    make, data = FITS["hmc"]
    X, y = data()
    plain = everything(make(random_state=1).fit(X, y), X)
    own = {"random_state": 1, "checkpoint": str(tmp_path), "checkpoint_every": 1e-6, "resume": True}  # from the start
    for last in (15, 8):
        stopping(last)
        with pytest.raises(Stopped):
            make(**own).fit(X, y)
    stopping(None)
    assert equal(everything(make(**own).fit(X, y), X), plain)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_without_a_seed_goes_on_with_the_same_random_numbers(tmp_path, stopping):
    make, data = FITS["gibbs"]
    X, y = data()
    own = {"checkpoint": str(tmp_path), "checkpoint_every": 1e-6}
    whole = make(**own).fit(X, y)
    assert equal(everything(make(resume=True, **own).fit(X, y), X), everything(whole, X))


# --- the end of the time --------------------------------------------------------------------------------------


@pytest.fixture
def ticking(monkeypatch):
    """A clock by which every look at it takes a second."""
    seconds = itertools.count()
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))


def test_max_time_keeps_what_was_computed_and_says_so(ticking):
    X, y, _ = rows()
    own = {"inference": "gibbs", "learning_rate": 1.0, "draws": 1000, "warmup": 2, "chains": 1, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"gibbs was stopped after \d+ iterations \(max_time=50 seconds"):
        short = BayesianSVC(max_time=50, **own).fit(X, y)
    kept = short.n_iter_ - 2
    assert 2 <= kept < 100 and not short.converged_
    long = BayesianSVC(**(own | {"draws": kept})).fit(X, y)
    np.testing.assert_array_equal(short.posterior_.draws, long.posterior_.draws)


def test_max_time_before_anything_is_computed_is_an_error_in_one_sentence():
    X, y, _ = rows()
    with pytest.raises(TimeoutError, match=r"max_time=1e-09 seconds were over before .*raise max_time"):
        BayesianSVC(inference="gibbs", max_time=1e-9).fit(X, y)


def test_a_fit_that_ran_out_of_time_goes_on_from_its_checkpoint(tmp_path, ticking):
    X, y, _ = rows()
    own = {"inference": "gibbs", "learning_rate": 1.0, "draws": 300, "warmup": 2, "chains": 1, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="was stopped"):
        BayesianSVC(max_time=50, checkpoint=str(tmp_path), **own).fit(X, y)
    assert len(list(tmp_path.glob("run*"))) == 2  # its preparation and itself; none that reads so few draws
    again = BayesianSVC(checkpoint=str(tmp_path), resume=True, **own).fit(X, y)
    np.testing.assert_array_equal(again.posterior_.draws, BayesianSVC(**own).fit(X, y).posterior_.draws)


# --- what is refused ------------------------------------------------------------------------------------------


def test_the_checkpoint_of_another_fit_is_refused_and_left_alone(tmp_path):
    X, y, _ = rows()
    own = {"checkpoint": str(tmp_path), "checkpoint_every": 1e-6}
    BayesianSVC(**own).fit(X, y)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for model, data, what in [
        (BayesianSVC(resume=True, **own), (X + 1e-9, y), "the data differ"),
        (BayesianSVC(resume=True, max_iter=7, **own), (X, y), "max_iter differ"),
        (BayesianSVR(resume=True, **own), (X, y.astype(float)), "estimator, the data, "),
    ]:
        with pytest.raises(SavedFileError, match=rf"has the checkpoint of another fit \({what}.*resume=False"):
            model.fit(*data)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert BayesianSVC(resume=True, n_jobs=2, verbose=0, max_time=60.0, **own).fit(X, y).converged_


@pytest.mark.parametrize("keep", [0, 10, 200, -1])
def test_a_truncated_checkpoint_is_refused_in_one_sentence(tmp_path, keep):
    X, y, _ = rows()
    BayesianSVC(checkpoint=str(tmp_path), checkpoint_every=1e-6).fit(X, y)
    path = sorted(tmp_path.glob("run*"))[0]
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        SavedFileError, match=r"run.*; delete it to make that part of the fit again, or fit with resume"
    ):
        BayesianSVC(checkpoint=str(tmp_path), resume=True).fit(X, y)
    path.unlink()
    again = BayesianSVC(checkpoint=str(tmp_path), resume=True).fit(X, y)
    np.testing.assert_array_equal(again.coef_, BayesianSVC().fit(X, y).coef_)


def test_a_checkpoint_builds_nothing_that_is_not_of_this_package(tmp_path):
    X, y, _ = rows()
    BayesianSVC(checkpoint=str(tmp_path), checkpoint_every=1e-6).fit(X, y)
    path = sorted(tmp_path.glob("run*"))[0]
    about, sections = container.read(path)
    text = bytes(sections[0].data).replace(b"softmargin.engines.vi.gaussian:VIState", b"subprocess:Popen")
    assert text != sections[0].data
    container.write(path, about, [container.Section("records", text), *sections[1:]])
    with pytest.raises(SavedFileError, match="holds a state of another form"):
        BayesianSVC(checkpoint=str(tmp_path), resume=True).fit(X, y)


def test_parameters_that_cannot_be_are_refused():
    X, y, _ = rows()
    for wrong, what in [
        ({"max_time": 0.0}, "max_time must be a positive number of seconds; got 0.0"),
        ({"max_time": "5"}, "max_time must be a positive number"),
        ({"checkpoint_every": -1.0}, "checkpoint_every must be a positive number"),
        ({"checkpoint": 3}, "checkpoint must be the path of a folder; got 3"),
        ({"resume": True}, "resume=True goes on from a checkpoint: give its folder"),
    ]:
        for estimator in (BayesianSVC, BayesianSVR, BayesianKernelClassifier, BayesianKernelRegressor):
            with pytest.raises(ValueError, match=what):
                estimator(**wrong).fit(X, y)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    X, y, _ = rows()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="cannot be used as a folder"):
        BayesianSVC(checkpoint=str(tmp_path / "file")).fit(X, y)
    assert (tmp_path / "file").read_text() == "mine"


# --- a disk that is full --------------------------------------------------------------------------------------


def test_a_full_disk_is_one_warning_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    X, y, _ = rows()
    own = {"checkpoint": str(tmp_path), "checkpoint_every": 1e-6, "random_state": 0}
    fsync, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) > 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = BayesianSVC(**own).fit(X, y)
    said = [str(each.message) for each in caught if issubclass(each.category, CheckpointWarning)]
    assert len(said) == 1 and "No space left on device" in said[0] and "is intact" in said[0]
    np.testing.assert_array_equal(model.coef_, BayesianSVC(random_state=0).fit(X, y).coef_)
    assert not list(tmp_path.glob(".*"))  # nothing that was begun is left behind
    monkeypatch.setattr(os, "fsync", fsync)
    again = BayesianSVC(resume=True, **own).fit(X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)


# --- saved models ---------------------------------------------------------------------------------------------


def test_a_model_with_checkpoints_and_a_warm_start_is_saved_and_loaded(tmp_path):
    X, y, _ = rows()
    own = {"checkpoint": str(tmp_path / "runs"), "max_time": 60.0, "warm_start": True}
    model = BayesianSVC(**own).fit(X, y)
    softmargin.save(model, tmp_path / "model")
    again = softmargin.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    again.fit(X, y)


def _small(**options):
    own = {"inference": "gibbs", "draws": 10, "warmup": 5, "chains": 1, "learning_rate": 0.5, "random_state": 0}
    return BayesianSVC(**(own | {"checkpoint_every": 1e-3} | options))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_saved_models_beside_a_checkpoint_are_not_touched(tmp_path):
    X, y, _ = rows()
    model = BayesianSVC().fit(X, y)
    for name in ("mine.softmargin", "run-1.softmargin", "fit.softmargin", ".mine.softmargin.0.part"):
        save(model, tmp_path / name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    _small(checkpoint=tmp_path).fit(X, y)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".checkpoint"}
    assert load(tmp_path / "mine.softmargin").predict(X).tolist() == model.predict(X).tolist()


def test_an_empty_text_is_no_folder():
    with pytest.raises(ValueError, match="checkpoint must be the path of a folder; got ''"):
        BayesianSVC(checkpoint="").fit(*rows()[:2])


class _Plain(Ridge):
    """A prior of the user's, which does not say what it is."""

    __repr__ = object.__repr__


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("what", ["column names", "class labels", "prior", "costs"])
def test_labels_and_parts_that_changed_are_noticed(tmp_path, what):
    """The numbers are the same, and what they mean is not."""
    X, y, _ = rows()
    names, labels, prior = list("abcd"), np.array(["no", "yes"]), _Plain(0.5)
    costs = pd.DataFrame([[0.0, 1.0], [3.0, 0.0]], index=["no", "yes"], columns=["no", "yes"])
    first = _small(checkpoint=tmp_path, prior=prior, costs=costs)
    first.fit(pd.DataFrame(X, columns=names), labels[y])
    if what == "column names":
        names = list("badc")
    elif what == "class labels":
        labels = np.array(["a", "b"])
        costs = costs.set_axis(["a", "b"], axis=0).set_axis(["a", "b"], axis=1)
    elif what == "prior":
        prior = _Plain(0.6)
    else:
        costs = costs[["yes", "no"]].set_axis(["no", "yes"], axis=1)[["yes", "no"]]
    again = _small(checkpoint=tmp_path, prior=prior, costs=costs, resume=True)
    with pytest.raises(SavedFileError, match=f"has the checkpoint of another fit .*{what}.* differ"):
        again.fit(pd.DataFrame(X, columns=names), labels[y])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_goes_on_does_not_resume_the_one_before_it(tmp_path):
    """Warm start with a folder: the second fit has the next draws, not the first ones again."""
    X, y, _ = rows()
    model = _small(checkpoint=tmp_path, resume=True, warm_start=True)
    first, second = (model.fit(X, y).posterior_.draws for _ in range(2))
    whole = _small(draws=20).fit(X, y).posterior_.draws
    np.testing.assert_array_equal(np.concatenate((first, second), axis=1), whole)
    with pytest.raises(SavedFileError, match="the number of fits before differ"):
        _small(checkpoint=tmp_path, resume=True).fit(X, y)
