"""Values, arrays and tables come back as they were; what is not known is refused when it is saved."""

import json
import math
from dataclasses import dataclass, is_dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from saved_models import LABELS, X, Y, fitted, said
from sklearn.base import BaseEstimator

import softmargin
from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR
from softmargin.exceptions import SavedFileError
from softmargin.losses import Hinge
from softmargin.persistence import migrations, registry
from softmargin.priors import Ridge
from softmargin.solvers.gaussian import Gaussian
from softmargin.storage.records import decoded, encoded

FILES = sorted((Path(__file__).parent / "files").glob("*.softmargin"))


def there_and_back(thing):
    records, arrays = encoded(thing, registry.TABLE)
    text, data = json.dumps(records, allow_nan=False), [array.tobytes() for array in arrays]
    return decoded(json.loads(text), data, len(text) + sum(map(len, data)), registry.TABLE)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        2**80,
        0.1,
        -0.0,
        math.inf,
        -math.inf,
        "ß\n\x00\ud800",
        [1, [2.5, None]],
        (1, ("a",)),
        {"a": 1, 2: "b", None: [], (1, 2): 3.0},
        {1, 2},
        frozenset({"a"}),
        slice(1, None, 2),
        ...,
        Hinge(),
        Ridge(scale=2.0),
    ],
)
def test_plain_values_come_back(value):
    found = there_and_back(value)
    assert found == value and type(found) is type(value)
    assert math.copysign(1, found) == math.copysign(1, value) if isinstance(value, float) else True


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.array(2.5),
        np.array([True, False]),
        np.array([1, 2], dtype=np.int8),
        np.array([1.5, np.nan], dtype=np.float32),
        np.array([1 + 2j]),
        np.array(["a", "long", ""]),
        np.array([b"x", b"yy"]),
        np.array(["2020-01-01", "NaT"], dtype="datetime64[s]"),
        np.array(["a", 1, None, 2.5], dtype=object),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(24.0).reshape(2, 3, 4)[:, ::2],
        np.array([1.0, 2.0], dtype=">f8"),
    ],
    ids=str,
)
def test_arrays_come_back_in_their_order(array):
    found = there_and_back(array)
    assert found.dtype == array.dtype.newbyteorder("<") and found.flags.writeable
    np.testing.assert_array_equal(found, array)
    assert found.flags.f_contiguous == array.flags.f_contiguous or not array.flags.contiguous


def test_numbers_of_numpy_keep_their_type():
    for value in (np.float64(0.1), np.int32(3), np.bool_(True), np.float32(0.1), np.str_("a")):
        found = there_and_back([value])[0]
        assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, np.nan], "d": [True, False]}),
        pd.DataFrame({"a": [1.0, 2.0]}, index=pd.MultiIndex.from_product([["u"], [1, 2]], names=["g", None])),
        pd.DataFrame([[1, "a"], [2, 3]], columns=[0, "x"], dtype=object),
        pd.DataFrame({"k": pd.Categorical(["b", "a", None], ["b", "a"], ordered=True)}),
        pd.DataFrame({"k": pd.array([1, None], dtype="Int64"), "l": pd.array([True, None], dtype="boolean")}),
        pd.DataFrame([[1, 2]], columns=["same", "same"]),
        pd.DataFrame(index=[3, 4]),
    ],
    ids=range(7),
)
def test_tables_come_back(table):
    pd.testing.assert_frame_equal(there_and_back(table), table)
    pd.testing.assert_index_equal(there_and_back(table.index), table.index)
    if table.shape[1]:
        pd.testing.assert_series_equal(there_and_back(table.iloc[:, 0]), table.iloc[:, 0])


def test_sparse_matrices_and_generators_come_back():
    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array):
        matrix = kind(sp.random(5, 4, 0.5, random_state=0))
        found = there_and_back(matrix)
        assert type(found) is kind
        np.testing.assert_array_equal(found.toarray(), matrix.toarray())
    for random in (np.random.default_rng(3), np.random.RandomState(3), np.random.Generator(np.random.Philox(3))):
        random.random(7)
        found = there_and_back(random)
        assert found.random() == random.random()


def test_what_is_shared_stays_shared_and_what_contains_itself_is_refused():
    part = np.ones(3)
    one, other = there_and_back((part, [part]))
    assert one is other[0]
    round_about = []
    round_about.append(round_about)
    with pytest.raises(SavedFileError, match="contains itself"):
        encoded(round_about, registry.TABLE)


@dataclass(frozen=True)
class OwnLoss(Hinge):
    """A loss of a user."""


@dataclass(frozen=True)
class OwnPrior(Ridge):
    """A prior of a user."""


@pytest.mark.parametrize(
    "model",
    [
        lambda: BayesianSVC(likelihood=OwnLoss(), learning_rate=0.5).fit(X, LABELS),
        lambda: BayesianSVR(OwnPrior(1.0)).fit(X, Y),
        lambda: BayesianKernelClassifier(kernel=lambda a, b: a @ b.T + 1.0).fit(X, LABELS),
    ],
    ids=["loss", "prior", "kernel"],
)
def test_objects_of_the_user_are_refused_when_they_are_saved(model, tmp_path):
    with pytest.raises(SavedFileError, match=r"save does not know .*; pickle and joblib save models with objects"):
        softmargin.save(model(), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_what_is_no_fitted_model_is_refused(tmp_path):
    with pytest.raises(SavedFileError, match="this BayesianSVC is not fitted; fit it, then save it"):
        softmargin.save(BayesianSVC(), tmp_path / "m")
    with pytest.raises(SavedFileError, match="save needs a fitted estimator of softmargin; got dict"):
        softmargin.save({}, tmp_path / "m")


@pytest.mark.parametrize("name", sorted(registry.HOMES))
def test_every_name_of_the_table_is_a_record_or_an_estimator(name):
    kind = registry.resolved(registry.HOMES[name])
    assert registry.name_of(kind) == name
    assert is_dataclass(kind) or issubclass(kind, tuple | BaseEstimator) or name.startswith("sklearn.")


def test_fields_that_came_later_get_their_defaults_and_strange_ones_are_refused():
    records, arrays = encoded(Ridge(scale=2.0), registry.TABLE)
    del records["nodes"][0]["fields"]["intercept_scale"]
    assert decoded(records, arrays, 100, registry.TABLE) == Ridge(scale=2.0)
    for change in ({"fields": {"scale": 2.0, "strange": 1}}, {"fields": {"scale": -1.0}}):
        with pytest.raises(ValueError, match="record 0"):
            decoded({"root": {"at": 0}, "nodes": [records["nodes"][0] | change]}, [], 100, registry.TABLE)


def test_an_earlier_version_goes_through_every_step(monkeypatch, tmp_path):
    """A file of version 1 is read by a version 3 that calls a class and a field by other names."""
    model, rows = fitted("two classes, vb")
    monkeypatch.setattr(migrations, "VERSION", 1)
    softmargin.save(model, tmp_path / "m")
    renamed = dict(registry.HOMES)
    renamed["RenamedFit"] = renamed.pop("Fit")
    monkeypatch.setattr(registry, "HOMES", renamed)
    registry.form_of.cache_clear()
    monkeypatch.setattr(migrations, "VERSION", 3)

    def classes(records):
        nodes = [node | {"class": "RenamedFit"} if node.get("class") == "Fit" else node for node in records["nodes"]]
        return records | {"nodes": nodes}

    monkeypatch.setattr(migrations, "STEPS", {1: classes, 2: lambda records: records})
    assert said(softmargin.load(tmp_path / "m"), rows) == said(model, rows)
    registry.form_of.cache_clear()


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_files_of_earlier_versions_load_and_predict_what_they_did(path):
    """Frozen files; a change of a class that they hold needs a default, or a step in ``migrations``."""
    expected = json.loads(path.with_suffix(".json").read_text())
    rows = pd.DataFrame(expected["rows"])
    rows = rows.to_numpy() if expected["plain"] else rows
    model = softmargin.load(path)
    answer = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
    np.testing.assert_allclose(answer, expected["answer"], rtol=1e-9, atol=1e-12)
    assert len(model.summary()) == expected["coefficients"] if "coefficients" in expected else True


def test_there_is_a_frozen_file_of_every_version():
    versions = {int(path.stem.split("-")[0].removeprefix("v")) for path in FILES}
    assert versions == set(range(1, migrations.VERSION + 1))


def test_every_step_of_the_migrations_is_there():
    assert set(migrations.STEPS) == set(range(1, migrations.VERSION))


def test_a_gaussian_is_saved_without_where_its_numbers_are(tmp_path):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), rng.integers(0, 6, 60)
    model = softmargin.BayesianSVC(likelihood="logit").fit(X, X[:, 0] > 0.3 * rng.normal(size=60), groups=groups)
    softmargin.save(model, tmp_path / "model")
    loaded = softmargin.load(tmp_path / "model")
    here = model.predict_proba(X, groups=groups)
    np.testing.assert_array_equal(loaded.predict_proba(X, groups=groups), here)


def test_a_gaussian_whose_root_was_stretched_has_the_same_variances_when_it_comes_back():
    """The last bits of a root depend on whether it was made from the factor or stretched with it."""
    A = np.array([[2.0, 0.3, 0.1], [0.3, 1.7, -0.2], [0.1, -0.2, 0.9]])
    for t in (0.1, 0.37, -1.3, 2.2):
        q = Gaussian.from_precision(A, np.ones(3))
        assert q.var.all()
        q = q.dilated(t)
        np.testing.assert_array_equal(there_and_back(q).var, q.var)
        np.testing.assert_array_equal(there_and_back(q).root, q.root)
