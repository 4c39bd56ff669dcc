"""The replication of Zhang, Dai, Wang and Jordan (2010): a rehearsal, its published section, and its parts."""

import os
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
PARTS = ("bayes", "sizes", "largest", "svm", "alone", "mixing")
ROWS = [
    "FBGKM's errors of table 2",
    "FBGKM and BGKM have roughly similar errors",
    "FBGKM is more efficient",
    "10000 sweeps: BCI 688 s",
    "table 3: FBGKM and BGKM",
    "the cost of FBGKM grows",
    "table 4: the error is insensitive",
    "FBGKM's errors of table 5",
    "it slightly outperforms SVM",
    "figure 1: reasonably fast mixing",
]
PICTURE = "zhang_active"


def complete(folder):
    """Every statement between the markers has an answer, the tables have lines, the picture a file."""
    text = (folder / "replication.md").read_text(encoding="utf-8")
    marks = [f"<!-- zhang_{name}:{{}} -->" for name in PARTS]
    written = "".join(text.split(mark.format("begin"))[1].split(mark.format("end"))[0] for mark in marks)
    lines = [line for line in written.splitlines() if line.startswith("|")]
    for row in ROWS:
        assert any(row in line.split("|")[1] and line.split("|")[2].strip() for line in lines), row
    assert sum(line.startswith("| BCI | 28.15 (2.15) / ") for line in lines) == 1
    assert sum(line.startswith("| Thyroid | 4.80 (2.98) / ") for line in lines) == 1
    assert f"(images/{PICTURE}.png)" in written
    assert 1000 < (folder / "images" / f"{PICTURE}.png").stat().st_size < 120_000


@pytest.fixture
def modules(monkeypatch):
    """The script, its models and the paper's tables."""
    monkeypatch.syspath_prepend(str(ROOT))
    return [import_module(f"replication.{name}") for name in ("zhang", "zhang_models", "zhang_tables", "zhang_fits")]


@pytest.fixture
def with_data(modules):
    if not os.environ.get("SOFTMARGIN_DATA"):
        pytest.skip("set SOFTMARGIN_DATA to the folder with the real data")
    return modules


def test_rehearsal_writes_its_sections(tmp_path, with_data, capsys):
    script = with_data[0]
    assert script.main(["--quick", "--output", str(tmp_path)])
    complete(tmp_path)
    notes, page = ((tmp_path / name).read_text() for name in ("zhang_fits.csv", "replication.md"))
    capsys.readouterr()
    assert script.main(["--quick", "--output", str(tmp_path), "--only", "bayes", "--noted"])  # fits nothing
    assert "1 of" not in capsys.readouterr().out.split("|")[0]
    assert (tmp_path / "zhang_fits.csv").read_text() == notes
    assert (tmp_path / "replication.md").read_text() == page


def test_the_published_sections_are_complete():
    complete(ROOT / "docs" / "evidence")


def test_sets_have_the_sizes_of_table_1(with_data):
    _, models, tables, _ = with_data
    for name, paper in (tables.TABLE_2 | tables.TABLE_5).items():
        X, y = models.rows_of(name)
        assert set(np.unique(y)) == {0, 1}
        if name.startswith("USPS"):  # the paper takes 2000 of them
            assert len(X) == len(y) >= paper.train + paper.test == 2000
        else:
            assert len(X) == len(y) == paper.train + paper.test
    X, y = models.rows_of("NewsGroups")
    assert X.shape == (1979, 1000)
    assert np.bincount(y).tolist() == [986, 993]
    norms = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(norms[norms > 0], 1.0)


def test_partitions_are_disjoint_and_differ(modules):
    models = modules[1]
    rows = np.arange(50)
    X, new, y, truth = models.partition(rows[:, None], rows, 30, 15, 3)
    assert len(X) == 30
    assert len(new) == 15
    assert not set(y) & set(truth)
    np.testing.assert_array_equal(X[:, 0], y)
    np.testing.assert_array_equal(new[:, 0], truth)
    assert set(models.partition(rows[:, None], rows, 30, 15, 4)[2]) != set(y)


def test_the_full_model_has_the_papers_kernel(modules):
    models = modules[1]
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.standard_normal((60, 2)) + 4.0 * y[:, None]
    model = models.fitted("BGKM", X, y, 60, 100)
    distance = cdist(X, X)[np.triu_indices(60, 1)]
    assert np.isclose(model.length_scale_, distance.mean())
    assert model.posterior_.intercept.shape == (1, 10)  # every fifth of the second half
    assert (model.predict(X) != y).mean() < 0.05
    np.testing.assert_array_equal(model.predict(np.array([[-1.0, -1.0], [5.0, 5.0]])), [0, 1])
    assert models.halves(100) == {"chains": 1, "thin": 5, "warmup": 50, "draws": 10}


def test_the_verdict_names_the_sets_that_are_worse(modules):
    script, _, tables, fits = modules
    found = {
        name: fits.Tally({"FBGKM": errors}) for name, errors in {"BCI": [32.0, 32.3], "g241d": [17.0, 17.5]}.items()
    }
    assert script.verdict(found, tables.TABLE_2) == "1 of 2 sets; not on: g241d (17.25 (0.35), paper 16.30 (0.89))"


@pytest.fixture
def counted(modules, monkeypatch):
    """The module of the notes; what it fits is a list, and costs nothing."""
    fits, made = modules[3], []

    def run(fit):
        made.append(fit)
        return fits.Note(10.0 + fit.partition, 1.5, 0.25, 3, "2026-01-01", "a processor, a version")

    monkeypatch.setattr(fits, "run", run)
    return fits, made


def test_a_noted_fit_is_not_made_again(tmp_path, counted):
    fits, made = counted
    path = tmp_path / fits.FILE
    wanted = [fits.Fit.of("BCI", (30, 10), seed, "FBGKM", 100, 5) for seed in range(3)]
    first = fits.Notes(path)
    first.complete(wanted[:2])
    second = fits.Notes(path)
    assert [fit in second for fit in wanted] == [True, True, False]
    second.complete(wanted)
    assert made == wanted
    assert not second.missing
    assert [fits.Notes(path)[fit].error for fit in wanted] == [10.0, 11.0, 12.0]
    assert len(path.read_text().splitlines()) == 5  # a place, the names of the columns, three fits
    assert second.stamp(wanted) == "2026-01-01, a processor, a version."
    anew = fits.Notes(path, again=True)
    anew.complete(wanted[:1])
    anew.complete(wanted[:1])  # another table with the same fit
    assert made == [*wanted, wanted[0]]
    assert len(fits.Notes(path).known) == 3


def test_a_note_of_other_settings_is_not_used(tmp_path, counted, monkeypatch):
    fits, made = counted
    path = tmp_path / fits.FILE
    fit = fits.Fit.of("BCI", (30, 10), 0, "FBGKM", 100, 5)
    others = [fits.Fit.of("BCI", (30, 10), 0, "FBGKM", 200, 5), fits.Fit.of("BCI", (30, 10), 0, "FBGKM", 100, 6)]
    fits.Notes(path).complete([fit])
    assert not any(other in fits.Notes(path) for other in others)
    models = import_module("replication.zhang_models")
    monkeypatch.setitem(models.CHAIN, "learning_rate", 0.5)
    models.settings.cache_clear()
    changed = fits.Fit.of("BCI", (30, 10), 0, "FBGKM", 100, 5)
    models.settings.cache_clear()
    assert changed[:-1] == fit[:-1]
    assert changed not in fits.Notes(path)
    fits.Notes(path).complete([changed])
    assert made == [fit, changed]
    assert list(fits.Notes(path).known) == [changed]  # in place of the old one


def test_fits_identify_what_matters_to_their_method(modules):
    fits = modules[3]
    one, other = (fits.Fit.of("BCI", (30, 10), 0, "BGKM", 100, most) for most in (5, 6))
    assert one == other  # all rows are active
    tuned = fits.Fit.of("BCI", (30, 10), 0, "tuned SVC", 100, 5)
    assert tuned == fits.Fit.of("BCI", (30, 10), 0, "tuned SVC", 200, 6)
    digests = {modules[1].settings("BCI", method).digest for method in (*modules[1].BAYES, "tuned SVC")}
    assert len(digests) == 5


def test_partitions_that_are_not_complete_are_left_out(tmp_path, counted, monkeypatch):
    fits, made = counted
    script = import_module("replication.zhang")
    tables = {"BCI": script.TABLE_2["BCI"]}
    notes, plan = fits.Notes(tmp_path / fits.FILE), script.Plan(splits=3)
    with pytest.raises(script.NothingComplete):
        script.tallied(plan, fits.Notes(jobs=0), tables, ("FBGKM", "BGKM"))
    monkeypatch.setattr(fits, "cut_short", lambda most: range(min(most, 5)))  # an interrupt in the third partition
    found, used = script.tallied(plan, notes, tables, ("FBGKM", "BGKM"))
    assert len(made) == 5
    assert len(notes.missing) == 1
    assert found["BCI"].splits == 2
    assert found["BCI"].errors["BGKM"] == [10.0, 11.0]
    assert len(used) == 4


def test_most_active_rows_enter_a_chain_where_they_are_reached(modules):
    models = modules[1]
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.standard_normal((80, 2)) + 2.0 * y[:, None]
    every = {"chains": 1, "warmup": 0, "draws": 200, "thin": 1}
    few, more, most = (models.fbgkm(allowed, **every).fit(X, y) for allowed in (15, 60, 80))
    highest = more.n_active_.max()
    assert 15 < highest < 60
    np.testing.assert_array_equal(more.n_active_, most.n_active_)
    np.testing.assert_array_equal(more.decision_function(X), most.decision_function(X))
    reached = int(np.argmax(more.n_active_[0] >= 15))
    np.testing.assert_array_equal(few.n_active_[0, :reached], more.n_active_[0, :reached])
    assert few.n_active_.max() <= 15


def test_fits_at_a_time_are_those_one_by_one(with_data, tmp_path):
    fits = with_data[3]
    wanted = [fits.Fit.of("Thyroid", (40, 75), seed, "BGKM", 60, 40) for seed in range(2)]
    one, two = fits.Notes(), fits.Notes(tmp_path / fits.FILE, jobs=2)
    one.complete(wanted)
    two.complete(wanted)
    assert [one[fit].error for fit in wanted] == [two[fit].error for fit in wanted]
