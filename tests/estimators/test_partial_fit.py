"""Rows that go on to arrive: ``partial_fit`` of the linear estimators against fits of all rows."""

import numpy as np
import pytest

import softmargin
from softmargin import BayesianSVC, BayesianSVR

OPTIONS = {"batch": 100, "first": 500}


def rows(n=6000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 20.0, 0.1, 1.0] + 3.0
    f = ((X - 3.0) / [1.0, 20.0, 0.1, 1.0]) @ [1.0, -0.5, 0.3, 0.0]
    return X, f + rng.logistic(size=n) > 0, f + 0.5 * rng.normal(size=n)


def streamed(model, X, y, size=1000):
    for lo in range(0, len(X), size):
        model.partial_fit(X[lo : lo + size], y[lo : lo + size])
    return model


def in_sds(model, other):
    """Largest distance between two fits, in standard deviations of the second."""
    return float(np.abs((model.summary()["mean"] - other.summary()["mean"]) / other.summary()["sd"]).max())


def test_a_stream_of_labels_ends_where_the_fit_of_all_rows_does():
    X, y, _ = rows()
    own = {"learning_rate": 0.5, "random_state": 0}
    whole = BayesianSVC(**own).fit(X, y)
    model = streamed(BayesianSVC(inference="svi", engine_options=OPTIONS, **own), X, y)
    assert in_sds(model, whole) < 0.6
    np.testing.assert_allclose(model.summary()["sd"], whole.summary()["sd"], rtol=0.05)
    assert model.scale_ == pytest.approx(whole.scale_, rel=0.1)
    assert model._fitted.stream.state.rows == 6000.0
    # each batch was scored by the rows before it: an honest score, and a link that is that of all rows
    assert model.loo_.score == pytest.approx(whole.loo_.score, abs=0.01)
    p, q = model.predict_proba(X), whole.predict_proba(X)
    assert np.abs(p - q).max() < 0.05


def test_a_stream_without_end_is_ever_surer_and_does_not_wander_off():
    X, y, _ = rows(20_000)
    model = BayesianSVC(inference="svi", engine_options=OPTIONS, random_state=0, learning_rate=0.5)
    spreads = []
    for lo in range(0, 20_000, 4000):
        model.partial_fit(X[lo : lo + 4000], y[lo : lo + 4000])
        spreads.append(model.summary()["sd"].to_numpy())
    ratio = spreads[-1] / spreads[0]  # five times the rows
    np.testing.assert_allclose(ratio, 5.0**-0.5, rtol=0.1)
    whole = BayesianSVC(learning_rate=0.5).fit(X, y)
    assert in_sds(model, whole) < 0.8


def test_a_stream_of_numbers_ends_where_the_fit_of_all_rows_does():
    X, _, y = rows()
    whole = BayesianSVR(likelihood="squared").fit(X, y)
    own = {"inference": "svi", "engine_options": OPTIONS, "random_state": 0, "likelihood": "squared"}
    model = streamed(BayesianSVR(**own), X, y)
    assert in_sds(model, whole) < 0.6
    assert model.noise_ == pytest.approx(whole.noise_, rel=0.05)
    assert model.loo_.rmse == pytest.approx(0.5, rel=0.05)
    inside = np.abs(y - model.predict(X)) < np.diff(model.predict_interval(X, level=0.9), axis=1)[:, 0] / 2
    assert 0.88 < inside.mean() < 0.92


def test_rows_are_scored_before_they_are_learned():
    X, y, _ = rows(2000)
    model = BayesianSVC(inference="svi", engine_options=OPTIONS, random_state=0, learning_rate=0.5, standardize=False)
    model.partial_fit(X[:1500], y[:1500])
    f = model._fitted._mean(X[1500:])
    model.partial_fit(X[1500:], y[1500:])
    np.testing.assert_array_equal(model._fitted.fit.held.f, f)
    assert model.loo_probability_.shape == (500, 2) and np.isfinite(model.loo_probability_).all()


def test_pairs_without_rows_in_a_batch_stay_as_they_are():
    X, _, f = rows(3000)
    y = (f > -0.5).astype(int) + (f > 0.7)
    model = BayesianSVC(inference="svi", engine_options=OPTIONS, random_state=0, learning_rate=0.5)
    model.partial_fit(X[:2000], y[:2000], classes=[0, 1, 2])
    before = [pair.fit.posterior.mean for pair in model._fitted.pairs]
    some = np.arange(2000, 3000)[y[2000:] == 0]
    model.partial_fit(X[some], y[some])
    after = [pair.fit.posterior.mean for pair in model._fitted.pairs]
    assert [bool((a == b).all()) for a, b in zip(before, after, strict=True)] == [False, False, True]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_a_saved_stream_goes_on_as_it_would_have(tmp_path):
    X, y, r = rows(3000)
    own = {"inference": "svi", "engine_options": OPTIONS, "random_state": 0}
    for model, response in [(BayesianSVC(learning_rate=0.5, **own), y), (BayesianSVR(likelihood="squared", **own), r)]:
        model.partial_fit(X[:2000], response[:2000])
        softmargin.save(model, tmp_path / "stream")
        again = softmargin.load(tmp_path / "stream").partial_fit(X[2000:], response[2000:])
        np.testing.assert_array_equal(again.coef_, model.partial_fit(X[2000:], response[2000:]).coef_)


def test_what_a_stream_cannot_do_is_said():
    X, y, _ = rows(300)
    with pytest.raises(AttributeError, match="partial_fit"):
        BayesianSVC().partial_fit(X, y)
    own = {"inference": "svi", "engine_options": OPTIONS, "learning_rate": 0.5}
    with pytest.raises(ValueError, match="must have rows of every class"):
        BayesianSVC(**own).partial_fit(X, y, classes=[False, True, 2])
    with pytest.raises(ValueError, match="class_weight='balanced' needs the shares of all rows"):
        BayesianSVC(class_weight="balanced", **own).partial_fit(X, y)
    with pytest.raises(ValueError, match=r"multi_class='sum-to-zero' has no partial_fit; use multi_class='pairwise'"):
        BayesianSVC(multi_class="sum-to-zero", **own).partial_fit(X, np.arange(300) % 3)
    model = BayesianSVC(random_state=0, **own).partial_fit(X, y)
    with pytest.raises(ValueError, match="that the fit did not have"):
        model.partial_fit(X, np.full(300, 7))
    with pytest.raises(ValueError, match="one response per row"):
        model.partial_fit(X, y[:-1])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        model.partial_fit(X, y, sample_weight=np.zeros(300))
    assert model.loo_probability_.shape == (300, 2)  # what was refused has changed nothing
    assert model.partial_fit(X[:1], y[:1]).predict(X[:1]).shape == (1,)  # one row is a batch too


FIRST = {"inference": "svi", "engine_options": OPTIONS, "random_state": 0}


def test_a_batch_that_is_refused_leaves_the_model_as_it_was():
    X, y, r = rows(600)
    heavy = np.where(np.arange(300) == 0, 1e300, 1.0)
    labels = BayesianSVC(learning_rate=0.5, **FIRST).partial_fit(X[:300], y[:300])
    numbers = BayesianSVR(likelihood="squared", **FIRST).partial_fit(X[:300], r[:300])
    for model, response in ((labels, y[300:]), (numbers, r[300:])):
        before, coef = dict(vars(model)), model.coef_.copy()
        with pytest.raises(ValueError, match="orders of magnitude apart"):
            model.partial_fit(X[300:], response, sample_weight=heavy)
        with pytest.raises(ValueError, match="orders of magnitude apart"):
            model.partial_fit(X[300:] * 1e200, response)
        assert vars(model) == before and (model.coef_ == coef).all()
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="Input y contains"):
            numbers.partial_fit(X[300:], np.where(np.arange(300) == 7, bad, r[300:]))
    np.testing.assert_array_equal(numbers.coef_, coef)


def test_parameters_and_classes_that_changed_since_the_first_batch_are_refused():
    X, y, r = rows(600)
    model = BayesianSVC(learning_rate=0.5, **FIRST)
    with pytest.raises(ValueError, match=r"labels \[True\] that classes=\[False\] does not name"):
        model.partial_fit(X, y, classes=[False])
    model.partial_fit(X, y, classes=[False, True])
    for name, value in {"likelihood": "logit", "fit_intercept": False, "learning_rate": 0.7, "prior": "lasso"}.items():
        old = getattr(model, name)
        with pytest.raises(ValueError, match=f"since then {name} changed"):
            model.set_params(**{name: value}).partial_fit(X, y)
        model.set_params(**{name: old})
    with pytest.raises(ValueError, match="are not those of the first call"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    model.set_params(tol=1e-5, learning_rate=np.float64(0.5)).partial_fit(X, y, classes=[True, False])
    numbers = BayesianSVR(likelihood="squared", **FIRST).fit(X, r)
    with pytest.raises(ValueError, match="since then standardize changed"):
        numbers.set_params(standardize=False).partial_fit(X, r)


def test_every_batch_may_be_in_files(tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X, y, _ = rows(600)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.assign(y=y).to_parquet(tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", X)
    model, known = BayesianSVC(learning_rate=0.5, **FIRST), BayesianSVC(learning_rate=0.5, **FIRST)
    for _ in range(2):
        model.partial_fit(tmp_path / "x.parquet", "y", classes=[False, True])
        known.partial_fit(frame, y)
    np.testing.assert_array_equal(model.coef_, known.coef_)
    plain, same = (BayesianSVC(learning_rate=0.5, **FIRST).partial_fit(X, y) for _ in range(2))
    monkeypatch.setattr("softmargin.estimators.given.files._HOME", 0)  # files of any size come home as a batch
    plain.partial_fit(str(tmp_path / "x.npy"), y)
    np.testing.assert_array_equal(plain.coef_, same.partial_fit(X, y).coef_)
