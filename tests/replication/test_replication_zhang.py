"""The replication of Zhang, Dai, Wang and Jordan (2010): a rehearsal, its published section, and its parts."""

import os
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
PARTS = ("bayes", "sizes", "svm", "mixing")
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
    return [import_module(f"replication.{name}") for name in ("zhang", "zhang_models", "zhang_tables")]


@pytest.fixture
def with_data(modules):
    if not os.environ.get("SOFTMARGIN_DATA"):
        pytest.skip("set SOFTMARGIN_DATA to the folder with the real data")
    return modules


def test_rehearsal_writes_its_sections(tmp_path, with_data):
    with_data[0].main(["--quick", "--output", str(tmp_path)])
    complete(tmp_path)


def test_the_published_sections_are_complete():
    complete(ROOT / "docs" / "evidence")


def test_sets_have_the_sizes_of_table_1(with_data):
    _, models, tables = with_data
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
    script, models, tables = modules
    found = {
        name: models.Tally({"FBGKM": errors}) for name, errors in {"BCI": [32.0, 32.3], "g241d": [17.0, 17.5]}.items()
    }
    assert script.verdict(found, tables.TABLE_2) == "1 of 2 sets; not on: g241d (17.25 (0.35), paper 16.30 (0.89))"
