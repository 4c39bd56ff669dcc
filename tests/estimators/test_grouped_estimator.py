"""Random effects and smooth terms through the estimator: identities, prediction, tables, combinations, errors."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from softmargin import BayesianSVC, RandomEffect, Smooth
from softmargin.priors import Bridge, HalfCauchy, HalfTCovariance, Lasso, Ridge, SpikeSlab


def data(n=240, groups=12, seed=0, slope=0.8):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.normal(40.0, 10.0, n), "dose": rng.gamma(2.0, size=n)})
    X["school"] = rng.choice([f"s{k:02d}" for k in range(groups)], n)
    level, tilt = rng.normal(size=(2, groups))
    number = X["school"].str[1:].astype(int)
    f = 0.08 * (X["age"] - 40.0) - (X["dose"] - 2.0) + 1.5 * level[number] + slope * tilt[number] * (X["dose"] - 2.0)
    y = np.where(f + rng.logistic(size=n) > 0.0, "yes", "no")
    return X, y


def short(inference, **options):
    lengths = {"draws": 60, "warmup": 30, "chains": 2} if inference in ("gibbs", "hmc") else {}
    return BayesianSVC(inference=inference, random_state=0, **lengths, **options)


DIAGONAL = RandomEffect("school", slopes=["dose"], covariance="diagonal")


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map", "gibbs", "hmc"])
@pytest.mark.parametrize("effect", ["school", DIAGONAL])
def test_predictor_is_the_sum_of_its_parts(inference, effect):
    """f = intercept + x'coef + effects of the group, everything in the units of the data."""
    X, y = data()
    model = short(inference, random_effects=[effect]).fit(X, y)
    table = model.random_effects_["school"]["mean"]
    f = X[["age", "dose"]].to_numpy() @ model.coef_[0] + model.intercept_[0]
    if effect == "school":
        f = f + table.loc[X["school"]].to_numpy()
    else:
        by_effect = table.unstack("effect").loc[X["school"]]
        f = f + by_effect["Intercept"].to_numpy() + by_effect["dose"].to_numpy() * X["dose"].to_numpy()
    np.testing.assert_allclose(model._fitted.moments(model._checked(X))[0], f, rtol=1e-8, atol=1e-8)
    assert (model.predict(X) == np.where(model.predict_proba(X)[:, 1] > 0.5, "yes", "no")).all()


@pytest.mark.parametrize("inference", ["vb", "map", "gibbs"])
def test_groups_are_short_for_a_column(inference):
    X, y = data()
    effect = RandomEffect("school")
    one = short(inference, random_effects=[effect]).fit(X, y)
    other = short(inference).fit(X[["age", "dose"]], y, groups=X["school"])
    np.testing.assert_array_equal(one.coef_, other.coef_)
    p = other.predict_proba(X[["age", "dose"]], groups=X["school"])
    np.testing.assert_array_equal(one.predict_proba(X), p)
    assert list(other.random_effects_) == ["groups"]
    assert other.score(X[["age", "dose"]], y, groups=X["school"]) == one.score(X, y)
    with pytest.warns(UserWarning, match="none came with these"):
        alone = other.predict_proba(X[["age", "dose"]])  # without groups, rows of new ones
    fresh = one.predict_proba(X.assign(school="new"))
    np.testing.assert_allclose(alone, fresh, rtol=1e-12)


def test_new_groups_use_the_population():
    X, y = data()
    model = short("vb", random_effects=["school"]).fit(X, y)
    rows = X.head(4).assign(school=["s00", "nowhere", None, "nowhere"])
    f, sd = model.decision_function(rows, return_std=True)
    mean = model._fitted.moments(model._checked(rows))[0]
    np.testing.assert_allclose(
        mean[1:], rows[["age", "dose"]].to_numpy()[1:] @ model.coef_[0] + model.intercept_[0], rtol=1e-10
    )
    assert (np.sign(f) == np.sign(model.predict_proba(rows)[:, 1] - 0.5)).all()
    known = model.decision_function(X.head(4), return_std=True)[1]
    assert (sd[1:] > known[1:]).all()
    between = model._fitted.reader.components[0].covariance[0, 0]
    direct = model._fitted.design(model._checked(rows))
    own = model._fitted.joint.root.row_quad(direct)
    np.testing.assert_allclose(sd[1:] ** 2, own[1:] + between, rtol=1e-10)


@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_samples_have_the_moments_and_share_new_groups(inference):
    X, y = data()
    model = short(inference, random_effects=[DIAGONAL]).fit(X, y)
    rows = X.head(5).assign(school=["s03", "nowhere", "nowhere", "elsewhere", None])
    draws = model.sample(rows, 20_000, random_state=3)
    _, sd = model.decision_function(rows, return_std=True)
    if inference == "vb":
        f = model._fitted.moments(model._checked(rows))[0]
        np.testing.assert_allclose(draws.mean(axis=1), f, atol=5.0 * sd.max() / np.sqrt(20_000))
        np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.04)
    correlation = np.corrcoef(draws)
    assert correlation[1, 2] > correlation[1, 3] + 0.2
    assert correlation[1, 2] > correlation[1, 4] + 0.2


def test_gibbs_and_hmc_agree():
    X, y = data()
    options = {"random_effects": [DIAGONAL], "learning_rate": 0.5, "chains": 2, "random_state": 0}
    gibbs = BayesianSVC(inference="gibbs", draws=1000, warmup=200, **options).fit(X, y)
    hmc = BayesianSVC(inference="hmc", draws=500, warmup=100, **options).fit(X, y)
    a, b = gibbs.summary(), hmc.summary()
    error = np.hypot(a["sd"] / np.sqrt(a["ess"]), b["sd"] / np.sqrt(b["ess"]))
    assert (np.abs(a["mean"] - b["mean"]) < 4.0 * error).all()
    one, other = gibbs.variance_components_, hmc.variance_components_
    np.testing.assert_allclose(np.log(one["sd"].dropna()), np.log(other["sd"].dropna()), atol=0.15)


def test_variance_components_of_draws_are_those_in_arviz():
    X, y = data()
    model = short("gibbs", random_effects=[RandomEffect("school", slopes=["dose"])]).fit(X, y)
    drawn = model.to_arviz().posterior
    table = model.variance_components_
    assert {"sd_school", "sd_school[dose]", "corr_school[Intercept, dose]"} <= set(drawn.data_vars)
    assert float(drawn["sd_school"].mean()) == pytest.approx(table.loc[("school", "Intercept"), "sd"])
    assert float(drawn["sd_school[dose]"].mean()) == pytest.approx(table.loc[("school", "dose"), "sd"])
    assert not any(name.startswith("school") for name in drawn.data_vars)


def test_intraclass_correlation_of_a_likelihood():
    """With a genuine likelihood the latent variance is known."""
    X, y = data()
    for likelihood, latent in (("logit", np.pi**2 / 3.0), ("probit", 1.0)):
        model = short("vb", random_effects=["school"], likelihood=likelihood).fit(X, y)
        variance = model._fitted.reader.components[0].covariance[0, 0]
        found = model.variance_components_.loc[("school", "Intercept"), "intraclass"]
        assert found == pytest.approx(variance / (variance + latent))


def test_units_and_order_of_groups_do_not_matter():
    X, y = data()
    effect = RandomEffect("school", slopes=["dose"])
    one = short("vb", random_effects=[effect], learning_rate=0.5).fit(X, y)
    turned = X.assign(dose=1000.0 * X["dose"] - 5.0, school="z" + X["school"].str[::-1])
    other = short("vb", random_effects=[effect], learning_rate=0.5).fit(turned, y)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(turned), atol=1e-5)
    a, b = one.variance_components_, other.variance_components_
    assert a.loc[("school", "dose"), "sd"] == pytest.approx(1000.0 * b.loc[("school", "dose"), "sd"], rel=1e-3)


def test_weights_are_repeated_rows():
    X, y = data(n=120, groups=6)
    weight = np.resize([1.0, 2.0, 0.0], len(X))
    once = short("vb", random_effects=["school"], learning_rate=0.5, tol=1e-10).fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    # the same columns inside: standardization counts rows by their weight
    often = short("vb", random_effects=["school"], learning_rate=0.5, tol=1e-10).fit(X.iloc[rows], y[rows])
    np.testing.assert_allclose(once.coef_, often.coef_, rtol=1e-5)
    one, other = (m.random_effects_["school"]["mean"] for m in (once, often))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_nested_and_crossed_factors():
    X, y = data(n=300)
    X = X.assign(room=np.resize(["a", "b", "c"], len(X)), year=np.resize(np.arange(7), len(X)))
    model = short("vb", random_effects=["school", RandomEffect(["school", "room"]), "year"]).fit(X, y)
    assert set(model.random_effects_) == {"school", "school:room", "year"}
    assert len(model.random_effects_["school:room"]) == X.groupby(["school", "room"]).ngroups
    assert model.random_effects_["year"].index.tolist() == list(range(7))
    assert model.variance_components_.index.get_level_values("term").tolist() == ["school", "school:room", "year"]
    assert model.score(X, y) > 0.7


def test_smooth_terms_bend():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, 400)
    X = pd.DataFrame({"x": x, "other": rng.standard_normal(400)})
    y = (2.5 * np.cos(2.0 * x) + rng.logistic(size=400) > 0).astype(int)
    line = short("vb").fit(X, y)
    curve = short("vb", random_effects=[Smooth("x")]).fit(X, y)
    assert curve.loo_.score < line.loo_.score - 0.1
    grid = pd.DataFrame({"x": np.linspace(-3.0, 3.0, 13), "other": 0.0})
    signs = np.sign(curve.decision_function(grid))
    assert (signs == np.sign(np.cos(2.0 * grid["x"]))).mean() > 0.8
    assert ("s(x)", "spline") in curve.variance_components_.index
    assert curve.random_effects_ == {}


@pytest.mark.parametrize("inference", ["vb", "meanfield", "map", "gibbs"])
def test_missing_values_beside_groups(inference):
    X, y = data()
    holes = X.copy()
    holes.loc[np.resize([True, False, False], len(X)), "age"] = np.nan
    model = short(inference, random_effects=[DIAGONAL]).fit(holes, y)
    assert len(model.imputed_) == holes["age"].isna().sum()
    assert model.imputed_["mean"].between(0.0, 80.0).all()
    p = model.predict_proba(holes.assign(school=["new", *holes["school"].tolist()[1:]]))
    assert np.isfinite(p).all()
    assert model.score(holes, y) > 0.65
    if inference != "map":
        assert model.sample(holes.head(3), 10).shape == (3, 10)


def test_missing_values_with_effects_of_no_size_are_those_without():
    X, y = data()
    X.loc[::4, "dose"] = np.nan
    tiny = RandomEffect("school", scale=1e-5)
    one = short("vb", random_effects=[tiny], learning_rate=0.5, prior=Ridge(scale=1.0)).fit(X, y)
    other = short("vb", learning_rate=0.5, prior=Ridge(scale=1.0)).fit(X[["age", "dose"]], y)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-4)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X[["age", "dose"]]), atol=1e-4)
    np.testing.assert_allclose(one.imputed_["mean"], other.imputed_["mean"], rtol=1e-4)


def test_selection_beside_groups():
    X, y = data(n=300)
    rng = np.random.default_rng(5)
    for k in range(6):
        X[f"noise{k}"] = rng.standard_normal(len(X))
    model = BayesianSVC(
        SpikeSlab(0.3), "gibbs", random_effects=["school"], draws=400, warmup=300, chains=2, random_state=0
    ).fit(X, y)
    assert model.inclusion_.shape == (8,)
    assert model.get_support().tolist() == [True, True] + [False] * 6
    assert model.coef_.shape == (1, 8)
    assert "school" in model.random_effects_
    named = SpikeSlab(0.3, scale=1.0, always_include=["noise1"])
    kept = BayesianSVC(named, "gibbs", random_effects=["school"], draws=30, warmup=20, chains=1, random_state=0)
    assert kept.fit(X, y).inclusion_[3] == 1.0


def test_many_classes_by_pairs():
    X, y = data(n=300)
    third = np.where(X["dose"] > 3.5, "lots", y)
    model = short("vb", random_effects=["school"]).fit(X, third)
    p = model.predict_proba(X.assign(school=X["school"].where(X["school"] != "s01", "new")))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert model.coef_.shape == (3, 2)
    assert [list(tables) for tables in model.random_effects_] == [["school"]] * 3
    assert model.score(X, third) > 0.6


def test_lasso_scales_and_hyperpriors():
    X, y = data()
    model = short("map", random_effects=[RandomEffect("school", scale=1.3)], prior=Lasso(scale=0.7)).fit(X, y)
    assert model.gap_ < 1e-6
    assert model.variance_components_.loc[("school", "Intercept"), "sd"] == pytest.approx(1.3)


def test_arrays_pipelines_clones_and_pickles():
    X, y = data()
    array = np.column_stack((X["age"], X["school"].str[1:].astype(float), X["dose"]))
    model = short("vb", random_effects=[1]).fit(array, y)
    assert model.coef_.shape == (1, 2)
    named = short("vb", random_effects=["school"]).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(array), named.predict_proba(X), rtol=1e-10)
    slopes = short("vb", random_effects=[RandomEffect(1, slopes=[2]), Smooth(0)]).fit(array, y)
    named_slopes = short("vb", random_effects=[RandomEffect("school", slopes=["dose"]), Smooth("age")]).fit(X, y)
    np.testing.assert_allclose(slopes.predict_proba(array), named_slopes.predict_proba(X), rtol=1e-8)
    again = pickle.loads(pickle.dumps(named))
    np.testing.assert_array_equal(again.predict_proba(X), named.predict_proba(X))
    pipeline = make_pipeline(FunctionTransformer(), clone(named))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.6


def _fit(X, y, **options):
    return short("vb", **options).fit(X, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"random_effects": ["nothing"]}, "grouping column 'nothing'.*columns"),
        ({"random_effects": [RandomEffect("school", slopes=["nothing"])]}, "column 'nothing'.*not among"),
        ({"random_effects": ["school", "school"]}, "more than once"),
        ({"random_effects": ["school", Smooth("nothing")]}, "column 'nothing'.*not among"),
        ({"random_effects": ["school"], "prior": SpikeSlab()}, "inference='gibbs'"),
        ({"random_effects": [RandomEffect("school", slopes=["dose"])], "inference": "hmc"}, "diagonal"),
    ],
)
def test_errors_say_what_to_do(options, words):
    X, y = data(n=60)
    with pytest.raises(ValueError, match=words):
        BayesianSVC(**options).fit(X, y)


def test_bad_groups_and_columns():
    X, y = data(n=60)
    with pytest.raises(ValueError, match="missing in 1 row"):
        _fit(X.assign(school=[None, *X["school"][1:]]), y, random_effects=["school"])
    with pytest.raises(ValueError, match="one label for each of the 60 rows"):
        short("vb").fit(X[["age", "dose"]], y, groups=["a"])
    with pytest.raises(ValueError, match="constant"), pytest.warns(UserWarning, match="constant column"):
        _fit(X.assign(dose=1.0), y, random_effects=[RandomEffect("school", slopes=["dose"])])
    with pytest.raises(ValueError, match=r"'dose'.*missing values"):
        _fit(X.assign(dose=[np.nan, *X["dose"][1:]]), y, random_effects=[DIAGONAL])
    with pytest.raises(ValueError, match="4 distinct"):
        _fit(X.assign(dose=np.resize([0.0, 1.0], 60)), y, random_effects=["school", Smooth("dose")])
    model = _fit(X, y, random_effects=["school"])
    with pytest.raises(ValueError, match="grouping column 'school'"):
        model.predict(X[["age", "dose"]])
    plain = short("vb").fit(X[["age", "dose"]], y)
    with pytest.raises(ValueError, match="groups were not part"):
        plain.predict(X[["age", "dose"]], groups=X["school"])
    with pytest.raises(ValueError, match="pairwise"):
        short("map", random_effects=["school"], multi_class="crammer-singer").fit(X, np.resize(["a", "b", "c"], 60))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomEffect("g", covariance="odd"), "covariance"),
        (lambda: RandomEffect("g", intercept=False), "slopes"),
        (lambda: RandomEffect(()), "name of the column"),
        (lambda: RandomEffect("g", scale=-1.0), "scale"),
        (lambda: Smooth("x", knots=0), "knots"),
        (lambda: Smooth("x", scale="odd"), "scale"),
    ],
)
def test_specifications_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_group_with_one_row_and_one_group():
    X, y = data(n=80)
    X.loc[0, "school"] = "lonely"
    model = short("vb", random_effects=["school"]).fit(X, y)
    assert np.isfinite(model.random_effects_["school"].loc["lonely"]).all()
    single = short("vb", random_effects=["school"]).fit(X.assign(school="all"), y)
    assert np.isfinite(single.predict_proba(X)).all()


@pytest.mark.parametrize("likelihood", ["hinge", "logit"])
def test_probability_of_a_new_group_is_the_average_over_groups(likelihood):
    """What groups vary by counts in full, however the link weighs what is not known."""
    X, y = data(n=400, groups=40, seed=2)
    model = short("vb", random_effects=["school"], likelihood=likelihood).fit(X, y)
    rows, link = X.head(8).assign(school="new"), model.loo_
    fitted = model._fitted
    f, v, between = fitted.reader.moments(fitted.joint, model._checked(rows))
    assert (between > 0.0).all()
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    shifts = f[:, None] + np.sqrt(between)[:, None] * node
    spread = np.sqrt(1.0 + link.lam * np.pi / 8.0 * link.a**2 * v)
    average = (1.0 / (1.0 + np.exp(-(link.a * shifts + link.b) / spread[:, None]))) @ weight / weight.sum()
    np.testing.assert_allclose(model.predict_proba(rows)[:, 1], average, atol=0.012)  # the link's own approximation


@pytest.mark.soak
def test_effects_have_the_spread_of_their_draws():
    X, y = data()
    model = short("vb", random_effects=[RandomEffect("school", slopes=["dose"]), Smooth("age", knots=4)]).fit(X, y)
    mixed = model._fitted
    draws = mixed.joint.coordinate_draws(np.random.default_rng(0), 20_000)[:, 3 : 3 + 24].reshape(-1, 12, 2)
    wanted = (draws @ mixed.reader.terms[0].turn().T).std(axis=0)
    np.testing.assert_allclose(model.random_effects_["school"]["sd"].to_numpy().reshape(12, 2), wanted, rtol=0.03)


def test_names_of_columns_may_be_numbers_and_words_of_ours():
    X, y = data()
    numbers = X.rename(columns={"school": 1, "age": 2, "dose": 3})
    effect = [RandomEffect("school", slopes=["age"])]
    one = short("vb", random_effects=effect).fit(X, y)
    other = short("vb", random_effects=[RandomEffect(1, slopes=[2])]).fit(numbers, y)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(numbers), rtol=1e-10)
    drawn = short("gibbs", random_effects=["chains"]).fit(X.rename(columns={"school": "chains"}), y)
    usual = short("gibbs", random_effects=["school"]).fit(X, y)
    pd.testing.assert_series_equal(
        drawn.variance_components_["sd"], usual.variance_components_["sd"], check_index=False
    )


def test_groups_of_another_fit_are_refused():
    X, y = data(n=80)
    model = short("vb", random_effects=["school"]).fit(X, y)
    with pytest.raises(ValueError, match="groups were not part"):
        model.predict(X, groups=X["school"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomEffect("g", ["x"], hyperprior=HalfCauchy(1.0)), "HalfTCovariance or InverseWishart"),
        (lambda: RandomEffect("g", hyperprior=HalfTCovariance()), "HalfT, HalfCauchy or InverseGamma"),
        (lambda: Smooth("g", hyperprior="half-t"), "HalfT, HalfCauchy or InverseGamma"),
    ],
)
def test_hyperpriors_are_checked(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("holes", [False, True])
def test_priors_without_a_mode(holes):
    X, y = data(n=80)
    if holes:
        X.loc[:5, "age"] = np.nan
    with pytest.raises(ValueError, match="use inference='vb' or 'gibbs'"):
        BayesianSVC("horseshoe", "map", random_effects=["school"], learning_rate=0.5).fit(X, y)
    with pytest.raises(ValueError, match="inference='gibbs'"):
        BayesianSVC("spike-slab", "meanfield", random_effects=["school"], learning_rate=0.5).fit(X, y)


def test_a_mode_of_a_penalty_that_is_not_convex():
    """Bridge beside groups: no change of one coefficient or effect raises the density."""
    X, y = data(n=80)
    prior = Bridge(alpha=0.7, scale=0.5)
    model = BayesianSVC(prior, "map", random_effects=[RandomEffect("school", scale=0.8)], learning_rate=0.5)
    model.fit(X, y)
    fitted, sign = model._fitted, np.where(y == "yes", 1.0, -1.0)
    design = fitted.design(model._checked(X))

    def density(beta):
        penalty = (np.abs(beta[1:3]) / 0.5) ** 0.7
        normal = 0.5 * (beta[0] / 1e4) ** 2 + 0.5 * ((beta[3:] / 0.8) ** 2).sum()
        return -np.maximum(1.0 - sign * design.matvec(beta), 0.0).sum() - penalty.sum() - normal

    best, top = fitted.joint.mean, density(fitted.joint.mean)
    for j in range(len(best)):
        for step in (-0.1, -1e-2, 1e-2, 0.1):
            assert density(best + step * (np.arange(len(best)) == j)) < top + 1e-6


def test_hinge_does_not_say_how_large_its_noise_is():
    X, y = data()
    table = short("vb", random_effects=["school", Smooth("age")]).fit(X, y).variance_components_
    assert table["intraclass"].isna().all()
    logit = short("vb", random_effects=["school", Smooth("age")], likelihood="logit").fit(X, y).variance_components_
    assert 0.0 < logit.loc[("school", "Intercept"), "intraclass"] < 1.0
    assert np.isnan(logit.loc[("s(age)", "spline"), "intraclass"])


@pytest.mark.parametrize("effect", ["school", RandomEffect("school", slopes=["dose"])])
def test_mode_without_a_row_is_less_sure_of_it(effect):
    """Left out, a row's own predictor moves away from its response, as in refits without it."""
    X, y = data()
    model = short("map", random_effects=[effect], learning_rate=0.5).fit(X, y)
    sign = np.where(y == "yes", 1.0, -1.0)
    held, f = model._fitted.fit.held.f, model.decision_function(X) - model.offset_
    assert (sign * (f - held)).mean() > 0.05
    refits = []
    for i in range(0, 240, 12):
        rest = np.arange(240) != i
        again = short("map", random_effects=[effect], learning_rate=0.5).fit(X[rest], y[rest])
        refits.append(float((again.decision_function(X[~rest]) - again.offset_)[0]))
    ours = np.abs(held[::12] - refits).mean()
    assert ours < np.abs(f[::12] - refits).mean()
