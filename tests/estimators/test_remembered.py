"""What a fitted model remembers of its rows and of its fit, and its smooth terms."""

import warnings

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR, Smooth, load, save

RNG = np.random.default_rng(3)
X = pd.DataFrame(RNG.normal(size=(90, 2)), columns=["a", "b"])
Z = np.sin(2.0 * X["a"]).to_numpy() + 0.3 * RNG.normal(size=90)
THREE = np.digitize(Z, [-0.4, 0.4])
SHORT = {"draws": 20, "warmup": 20, "chains": 2, "random_state": 0}


@pytest.mark.parametrize("inference", ["vb", "map", "gibbs"])
def test_a_smooth_term_is_the_difference_of_predictions(inference):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSVR(inference=inference, random_effects=Smooth("a", knots=5), **SHORT).fit(X, Z)
    curve = model.smooth_effects()["s(a)"]
    f = model.predict(pd.DataFrame({"a": curve["x"], "b": 0.0}))
    constant = f - curve["mean"]
    assert np.ptp(constant) < 1e-12
    if inference == "map":
        assert list(curve) == ["x", "mean"]
    else:
        assert (curve["lower"] < curve["upper"]).all() and (curve["sd"] > 0).all()


def test_the_band_of_a_smooth_term_is_that_of_its_draws():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianSVR(inference="gibbs", random_effects=Smooth("a", knots=5), **SHORT).fit(X, Z)
    curve, term, columns = model.smooth_effects()["s(a)"], model._reader.terms[0], model._reader.columns
    line = (curve["x"].to_numpy()[:, None] - columns.shift[:1]) * columns.scale[:1]
    draws = model._fitted.joint.draws.reshape(-1, 3 + 7)
    drawn = draws[:, [1, *range(3, 10)]] @ np.hstack((line, term.spline.columns(curve["x"]))).T
    np.testing.assert_allclose(curve["lower"], np.quantile(drawn, 0.025, axis=0))
    np.testing.assert_allclose(curve["sd"], drawn.std(axis=0), rtol=0.05)  # those are moments, with less noise


@pytest.mark.parametrize("scheme", ["pairwise", "sum-to-zero"])
def test_smooth_terms_of_many_classes_name_the_pair_or_class(scheme):
    model = BayesianSVC(learning_rate=0.5, random_effects=Smooth("a", knots=4), multi_class=scheme).fit(X, THREE)
    curve = model.smooth_effects()["s(a)"]
    assert curve.index.names[0] == ("pair" if scheme == "pairwise" else "class")
    assert curve.index.get_level_values(0).nunique() == 3
    if scheme == "sum-to-zero":
        np.testing.assert_allclose(curve["mean"].to_numpy().reshape(3, -1).sum(axis=0), 0.0, atol=1e-9)


def test_a_model_repeats_what_its_fit_warned_of():
    constant = X.assign(nothing=1.0)
    with pytest.warns(UserWarning, match=".") as caught:
        model = BayesianSVC(max_iter=1, learning_rate=0.5).fit(constant, Z > 0)
    assert set(model._worries()) == {str(one.message) for one in caught}
    assert any("constant column" in text for text in model._worries())
    assert any("did not converge" in text for text in model._worries())


def test_the_training_responses_are_kept_and_saved(tmp_path):
    labels = np.array(["no", "yes"])[(Z > 0).astype(int)]
    weight = np.r_[0.0, 2.0, np.ones(88)]
    model = BayesianSVC(costs=[[0, 1], [4, 0]]).fit(X, labels, sample_weight=weight)
    seen = model._observed
    assert (model.classes_[seen.y] == labels[1:]).all() and seen.y.dtype == np.uint8
    np.testing.assert_array_equal(seen.counts, weight[1:])
    np.testing.assert_allclose(seen.weights / seen.counts, np.where(labels[1:] == "yes", 4.0, 1.0))
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")._observed
    np.testing.assert_array_equal(again.y, seen.y)
    np.testing.assert_array_equal(BayesianSVR(noise=1.0, likelihood="squared").fit(X, Z)._observed.y, Z)
    kernel = BayesianKernelClassifier(length_scale=1.0, learning_rate=0.5).fit(X, THREE)
    np.testing.assert_array_equal(kernel._observed.y, THREE)
