"""X in files gives bitwise the fit of the same rows in memory, and says in a sentence what is wrong with a file."""

import decimal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from softmargin import BayesianSVC, BayesianSVR
from softmargin.estimators.given import files
from softmargin.rows import on_disk
from softmargin.rows.stored import tables, vectors

NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    """Rows and vectors of any size stay in files, in blocks of two cells."""
    monkeypatch.setattr(files, "_HOME", 0)
    monkeypatch.setattr(vectors, "_HOME", 8)
    monkeypatch.setattr(on_disk, "_CELLS", 2)


def problem(n=5000, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, 5)) * np.geomspace(0.1, 30.0, 5) + 5.0).astype(np.float32)
    return X, 5.0 * (X[:, 0] - 5.0) - 0.05 * X[:, 4] + rng.logistic(size=n)


def saved(X, folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def same(home, there):
    assert np.array_equal(home.coef_, there.coef_) and np.array_equal(home.intercept_, there.intercept_)
    assert np.array_equal(home.trace_, there.trace_)


@pytest.mark.parametrize(
    ("n", "parameters"),
    [
        (21_000, {"inference": "vb"}),
        (21_000, {"inference": "map"}),
        (5000, {"inference": "vb", "prior": "horseshoe", "learning_rate": 0.5}),
        (5000, {"inference": "map", "likelihood": "logit"}),
        (5000, {"inference": "meanfield"}),
        (5000, {"inference": "gibbs", "learning_rate": 0.25, "draws": 10, "warmup": 5, "chains": 2}),
        (5000, {"inference": "hmc", "learning_rate": 0.25, "draws": 10, "warmup": 5, "chains": 2}),
        (5000, {"inference": "svi", "learning_rate": 0.25}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
@pytest.mark.filterwarnings("ignore")
def test_a_file_gives_the_fit_of_the_array_to_the_last_bit(tmp_path, n, parameters):
    X, f = problem(n)
    home = BayesianSVC(**parameters, random_state=1).fit(X, f > 0)
    there = BayesianSVC(**parameters, random_state=1).fit(saved(X, tmp_path), f > 0)
    same(home, there)
    assert np.array_equal(home.predict_proba(X), there.predict_proba(tmp_path / "X.npy"))
    assert repr(home.loo_) == repr(there.loo_)


def as_map(X, folder):
    """Rows in the middle of a larger map."""
    every = np.memmap(folder / "X.dat", dtype=X.dtype, mode="w+", shape=(len(X) + 100, X.shape[1]))
    every[60:-40] = X
    return every[60:-40]


def as_table(X, folder):
    pd.DataFrame(X, columns=NAMES).to_parquet(folder / "X.parquet", row_group_size=1777)
    return folder / "X.parquet"


def as_directory(X, folder):
    (folder / "parts").mkdir()
    for number, part in enumerate(np.array_split(X, 3)):
        pd.DataFrame(part, columns=NAMES).to_parquet(folder / "parts" / f"{number}.parquet")
    return folder / "parts"


def as_dataset(X, folder):
    import pyarrow.dataset

    return pyarrow.dataset.dataset(as_table(X, folder))


def as_function(X, folder):
    return lambda: np.array_split(X, 7)


@pytest.mark.parametrize("stored", [saved, as_map, as_table, as_directory, as_dataset, as_function])
def test_every_kind_of_file_is_read_as_the_array(tmp_path, stored):
    X, f = problem(4500)
    home = BayesianSVR(likelihood="squared").fit(X, f)
    source = stored(X, tmp_path)
    there = BayesianSVR(likelihood="squared").fit(source, f)
    same(home, there)
    assert np.array_equal(home.predict(X), there.predict(source))
    assert ("feature_names_in_" in vars(there)) == (stored in (as_table, as_directory, as_dataset))


@pytest.mark.filterwarnings("ignore:the hinge")
def test_columns_of_a_table_are_responses_and_weights_by_name(tmp_path):
    X, f = problem(4500)
    table = pd.DataFrame(X, columns=NAMES).assign(
        label=np.where(f > 0, "yes", "no"), times=np.tile([0.0, 1.0, 2.0], 1500)
    )
    table.to_parquet(tmp_path / "all.parquet")
    home = BayesianSVC(learning_rate=0.25).fit(table[NAMES], table["label"], sample_weight=table["times"])
    there = BayesianSVC(learning_rate=0.25).fit(tmp_path / "all.parquet", "label", sample_weight="times")
    same(home, there)
    assert there.feature_names_in_.tolist() == NAMES and there.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(home.predict(table[NAMES]), there.predict(tmp_path / "all.parquet"))
    with pytest.raises(ValueError, match="there is no column 'size'; the columns are a, b"):
        BayesianSVC().fit(tmp_path / "all.parquet", "size")
    with pytest.raises(ValueError, match=r"'label' are of type .*string and no numbers"):
        BayesianSVR().fit(tmp_path / "all.parquet", "times")


def parts(folder, *tables):
    for number, table in enumerate(tables):
        table.to_parquet(folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize("home", [0, 10**6], ids=["large", "small"])
def test_files_of_a_directory_that_differ_are_named(tmp_path, monkeypatch, home):
    monkeypatch.setattr(files, "_HOME", home)
    X, f = problem(600)
    table = pd.DataFrame(X, columns=NAMES).assign(f=f)
    for odd, reason in [
        (table.drop(columns="b"), r"1\.parquet has no column 'b', which .*0\.parquet has; give all files the same"),
        (table.assign(z=1.0), r"0\.parquet has no column 'z', which .*1\.parquet has; give all files the same"),
        (table.assign(b="x"), r"1\.parquet has a column of another type than .*0\.parquet: .*Field b"),
    ]:
        with pytest.raises(ValueError, match=reason):
            BayesianSVR().fit(parts(tmp_path, table, odd), "f")
    (tmp_path / "1.parquet").write_text("no table")
    with pytest.raises(ValueError, match=r"1\.parquet cannot be read as Parquet"):
        BayesianSVR().fit(tmp_path, "f")


@pytest.mark.parametrize("home", [0, 10**6], ids=["large", "small"])
def test_types_of_all_files_of_a_directory_are_held(tmp_path, monkeypatch, home):
    monkeypatch.setattr(files, "_HOME", home)
    X, f = problem(1200)
    table = pd.DataFrame(X.astype(float).round(2), columns=NAMES).assign(f=f, e=np.arange(1200) % 3)
    exact = table.d.map(lambda x: decimal.Decimal(f"{x:.2f}"))
    wanted = BayesianSVR(likelihood="squared").fit(table[NAMES], f)
    table["d"] = exact
    empty, mixed = table[:0].astype(object), table[700:].astype({"e": float})[[*NAMES[::-1], "f"]]
    found = BayesianSVR(likelihood="squared").fit(parts(tmp_path, empty, table[:700], mixed), "f")
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9)
    assert found.feature_names_in_.tolist() == NAMES  # and not the index that the last file has


@pytest.mark.parametrize("home", [0, 10**6], ids=["large", "small"])
def test_names_of_folders_are_a_column(tmp_path, monkeypatch, home):
    monkeypatch.setattr(files, "_HOME", home)
    X, f = problem(1200)
    table = pd.DataFrame(X.astype(float), columns=NAMES).assign(f=f, e=np.arange(1200) // 400)
    table.to_parquet(tmp_path / "all", partition_cols=["e"])
    found = BayesianSVR(likelihood="squared").fit(tmp_path / "all", "f")
    np.testing.assert_allclose(found.coef_, BayesianSVR(likelihood="squared").fit(table[NAMES], f).coef_, rtol=1e-9)
    table.drop(columns="e").to_parquet(tmp_path / "all" / "z.parquet")
    with pytest.raises(ValueError, match=r"z\.parquet has no column 'e', which"):
        found.predict(tmp_path / "all")


@pytest.mark.filterwarnings("ignore:the hinge")
def test_pairs_of_classes_and_threads_change_no_bit(tmp_path):
    X, f = problem(5000)
    y = np.digitize(f, (-3.0, 2.0))
    home = BayesianSVC(learning_rate=0.25).fit(X, y)
    there = BayesianSVC(learning_rate=0.25).fit(
        lambda: zip(np.array_split(X, 4), np.array_split(y, 4), strict=True), None
    )
    same_traces = all(np.array_equal(a, b) for a, b in zip(home.trace_, there.trace_, strict=True))
    assert np.array_equal(home.coef_, there.coef_) and same_traces
    assert np.array_equal(home.loo_probability_, there.loo_probability_)
    two = BayesianSVC(learning_rate=0.25).fit(X, y > 0)
    same(two, BayesianSVC(learning_rate=0.25, n_jobs=2).fit(saved(X, tmp_path), y > 0))


def test_small_files_are_brought_home_where_all_features_are(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_HOME", 10**6)
    X, f = problem(400)
    X[::7, 2] = np.nan
    table = pd.DataFrame(X, columns=NAMES).assign(f=f, place=np.arange(400) % 9)
    table.to_parquet(tmp_path / "all.parquet")
    there = BayesianSVR().fit(tmp_path / "all.parquet", "f", groups="place")
    assert np.array_equal(BayesianSVR().fit(table[NAMES], f, groups=table["place"]).coef_, there.coef_)


def test_predictions_of_a_table_know_the_groups_of_its_rows(tmp_path, monkeypatch):
    X, f = problem(400)
    table = pd.DataFrame(X, columns=NAMES).assign(f=f, place=[f"p{k % 9}" for k in range(400)])
    table.to_parquet(tmp_path / "all.parquet")
    monkeypatch.setattr(files, "_HOME", 10**6)
    monkeypatch.setattr(tables, "_BATCH", 150)
    inside = BayesianSVR(random_effects="place", likelihood="squared").fit(tmp_path / "all.parquet", "f")
    wanted = inside.predict(table[[*NAMES, "place"]])
    np.testing.assert_allclose(inside.predict(tmp_path / "all.parquet"), wanted, rtol=1e-10)
    beside = BayesianSVR(likelihood="squared").fit(tmp_path / "all.parquet", "f", groups="place")
    for groups in ("place", table["place"], table["place"].tolist()):
        found = beside.predict(tmp_path / "all.parquet", groups=groups)
        np.testing.assert_allclose(found, beside.predict(table[NAMES], groups=table["place"]), rtol=1e-10)
    score = beside.score(tmp_path / "all.parquet", "f", groups="place")
    assert np.isclose(score, beside.score(table[NAMES], f, groups=table["place"]))
    with pytest.raises(ValueError, match="'f' names a column, and only X in Parquet files"):
        BayesianSVR().fit(table, "f")
    with pytest.raises(ValueError, match="one label for each of the 400 rows; got 401 labels"):
        beside.predict(tmp_path / "all.parquet", groups=[*table["place"], "p1"])
    with pytest.raises(ValueError, match=r"there is no file '.*gone\.npy'"):
        BayesianSVR().fit(X, tmp_path / "gone.npy")


def test_missing_entries_of_a_file_are_refused_with_the_name_of_their_column(tmp_path):
    X, f = problem(4500)
    X[3000, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN in column b; missing values can be part of the model where all"):
        BayesianSVR().fit(as_table(X, tmp_path), f)


def test_what_is_wrong_with_a_file_or_a_block_is_one_sentence(tmp_path):
    X, f = problem(4500)
    (tmp_path / "no.npy").write_bytes(b"nothing")
    np.save(tmp_path / "words.npy", np.array([["a"], ["b"]]))
    np.save(tmp_path / "columns.npy", np.asfortranarray(X))
    (tmp_path / "other.csv").write_text("a,b")
    np.save(tmp_path / "rowless.npy", X[:0])
    np.save(tmp_path / "columnless.npy", X[:, :0])
    for name, reason in [
        ("no.npy", "cannot be read as a .npy file"),
        ("words.npy", "give a matrix of numbers"),
        ("columns.npy", "in the order of columns"),
        ("other.csv", "must be a .npy file"),
        ("rowless.npy", r"shape \(0, 5\); give at least one row"),
        ("columnless.npy", r"shape \(4500, 0\); give at least one row"),
        ("gone.npy", r"^there is no file '.*gone\.npy': give the path of one"),
        ("gone.parquet", r"^there is no file '.*gone\.parquet': give the path of one"),
    ]:
        with pytest.raises(ValueError, match=reason):
            BayesianSVR().fit(str(tmp_path / name), f)
    blocks = [X[:2000], X[2000:, :4]]
    for given, reason in [
        (lambda: blocks, "block 1 has 4 columns where the first has 5"),
        (lambda: [X[:5], X.astype(float)], "block 1 has entries of type float64 where the first has float32"),
        (lambda: [(X, f[1:])], "block 0 has 4500 rows and 4499 responses"),
        (list, "there are no rows"),
        (lambda: None, "returned None; let it return blocks of rows"),
        (lambda: [None], "block 0 is None; give a matrix of numbers"),
        (lambda: [(X, f, f)], "block 0 is a tuple of 3 things; give a matrix of numbers"),
        (lambda: [[X, f]], "block 0 cannot be read as a matrix"),
        (lambda: [pd.DataFrame(X), X], "block 1 is an array where the first is a data frame"),
        (lambda: [pd.DataFrame(X), pd.DataFrame(X[:, :4])], "block 1 lacks the column 4"),
        (lambda: [pd.DataFrame(X[:, :4]), pd.DataFrame(X)], "block 1 has a column 4 more than the first"),
        (lambda: [pd.DataFrame({"a": ["x", "y"]})], "column a of X cannot be read as numbers"),
    ]:
        with pytest.raises(ValueError, match=reason):
            BayesianSVR().fit(given, None)


def test_an_error_of_the_users_own_arithmetic_is_not_one_of_the_fit():
    with pytest.raises(RuntimeError, match=r"the function in place of X failed with ZeroDivisionError: .*mend it"):
        BayesianSVR().fit(lambda: [1 // len(each) for each in [()]], np.zeros(3))


@pytest.mark.parametrize("home", [0, 10**6], ids=["large", "small"])
def test_blocks_that_are_data_frames_go_by_the_names_of_their_columns(monkeypatch, home):
    monkeypatch.setattr(files, "_HOME", home)
    X, f = problem(4500)
    table, turned = pd.DataFrame(X, columns=NAMES), NAMES[::-1]
    wanted = BayesianSVR(likelihood="squared").fit(table, f)
    found = BayesianSVR(likelihood="squared").fit(lambda: iter([table[:1500], table[1500:][turned]]), f)
    same(wanted, found)
    assert found.feature_names_in_.tolist() == NAMES
    blocks = [table[:2000][turned].assign(more=1.0), table[2000:]]
    np.testing.assert_allclose(found.predict(lambda: iter(blocks)), wanted.predict(table), rtol=1e-12)
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(lambda: iter([table.drop(columns="b")]))


@pytest.mark.parametrize(("change", "reason"), [("touch", "has changed while it was read"), ("cut", "has changed")])
def test_a_file_that_changes_during_a_fit_is_noticed(tmp_path, monkeypatch, change, reason):
    X, f = problem(4500)
    path = saved(X, tmp_path)

    def disturbed(iteration, info):
        if change == "touch":
            path.touch()
        else:
            path.write_bytes(path.read_bytes()[:-1000])
        return False

    model = BayesianSVR(likelihood="squared")
    monkeypatch.setattr("softmargin.estimators.svr.fit_tasks", lambda *_: (disturbed, lambda: None))
    with pytest.raises(ValueError, match=reason):
        model.fit(path, f)
    assert "coef_" not in vars(model)


def test_a_full_scratch_disk_and_an_unreadable_block_are_one_sentence(tmp_path):
    X, f = problem(4500)
    path = saved(X, tmp_path)

    def broken(*_):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.pwrite", broken)
        with pytest.raises(OSError, match=r"No space left on device.*TMPDIR"):
            BayesianSVR().fit(path, f)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.preadv", broken)
        with pytest.raises((ValueError, OSError), match="cannot be read"):
            BayesianSVR().fit(path, f)


@pytest.mark.parametrize("stored", [saved, lambda X, folder: X], ids=["file", "array"])
def test_a_fit_that_needs_more_memory_than_there_is_says_how_much_and_what_to_do(tmp_path, monkeypatch, stored):
    X, f = problem(4500)
    source = stored(X, tmp_path)
    monkeypatch.setattr("softmargin.rows.memory.available", lambda: 1e5)
    monkeypatch.setattr("softmargin.rows.memory._LITTLE", 0.0)
    with pytest.raises(
        MemoryError, match=r"4500 rows and 5 columns.* needs about 0.000\d+ GB .* 0.0001 GB are free; give"
    ):
        BayesianSVR().fit(source, f)


FIT = """
import resource, sys
import numpy as np
from softmargin import BayesianSVC
folder, inference = sys.argv[1:]
y = np.load(folder + "/y.npy")
BayesianSVC(inference=inference, random_state=0).fit(np.ones((30, 1)) * np.arange(30)[:, None], np.arange(30) % 2)
begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
BayesianSVC(inference=inference, random_state=0).fit(folder + "/X.npy", y)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun)
"""


@pytest.mark.soak
@pytest.mark.parametrize("inference", ["vb", "map"])
def test_two_million_rows_take_a_fraction_of_the_memory_that_they_would_take_as_an_array(tmp_path, inference):
    n, p = 2_000_000, 20
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(n, p))
    y = np.empty(n, dtype=bool)
    for lo in range(0, n, 100_000):
        X[lo : lo + 100_000] = rng.standard_normal((100_000, p), dtype=np.float32)
        y[lo : lo + 100_000] = X[lo : lo + 100_000, 0] + rng.logistic(size=100_000) > 0
    X.flush()
    np.save(tmp_path / "y.npy", y)
    script = [sys.executable, "-W", "ignore", "-c", FIT, str(tmp_path), inference]
    found = subprocess.run(script, check=True, capture_output=True, text=True)
    kilobytes = int(found.stdout)
    assert kilobytes * 1024 < 26 * 8 * n  # vectors over rows; the rows themselves are 20, and their standardized copy
