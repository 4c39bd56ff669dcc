"""The replication of Luts and Ormerod (2014), sections 4.2, 4.3 and 4.5: a rehearsal, and its published section."""

import os
import signal
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import SVC

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
ROWS = [
    "4.2, figure 1: VB and MCMC",
    "the default SVM is similar",
    "n = 200, d = 10",
    "4.3, figure 2",
    "MCMC has slightly lower errors",
    "SVM 3668.70 s",
    "4.5, figure 4",
    "VB seems slightly better",
    "SVM 3109.40 s",
]
PICTURES = ["lo_simulation", "lo_toenail", "lo_acath"]


def complete(folder):
    """Every statement between the markers has an answer, every picture a file."""
    text = (folder / "replication.md").read_text(encoding="utf-8")
    marks = [f"<!-- luts_ormerod_{name}:{{}} -->" for name in ("penalty", "groups", "missing")]
    written = "".join(text.split(mark.format("begin"))[1].split(mark.format("end"))[0] for mark in marks)
    table = [line for line in written.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {4}
    for row in ROWS:
        assert any(row in line.split("|")[1] and line.split("|")[2].strip() for line in table), row
    for picture in PICTURES:
        assert f"(images/{picture}.png)" in written
        assert 1000 < (folder / "images" / f"{picture}.png").stat().st_size < 120_000


@pytest.fixture
def paper(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("replication.luts_ormerod")


def test_rehearsal_writes_its_section(tmp_path, paper):
    if not os.environ.get("SOFTMARGIN_DATA"):
        pytest.skip("set SOFTMARGIN_DATA to the folder with the real data")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper.main(["--quick", "--output", str(tmp_path)])
    complete(tmp_path)


def test_the_published_section_is_complete():
    complete(ROOT / "docs" / "evidence")


def test_differences_are_paired(paper):
    class Constant:
        def __init__(self, wrong):
            self.wrong = wrong

        def predict(self, X):
            return np.where(np.arange(len(X)) < self.wrong, -X, X)

    y = np.array([1, 1, 1, 1, -1, -1])
    tally = paper.Tally()
    for first, other in ((4, 2), (2, 1)):  # balanced errors 1/2 and 1/4, then 1/4 and 1/8
        tally.add("first", lambda wrong=first: Constant(wrong), y, y)
        tally.add("other", lambda wrong=other: Constant(wrong), y, y)
    assert tally.errors == {"first": [0.5, 0.25], "other": [0.25, 0.125]}
    assert tally.apart("first", "other") == f"+0.1875 ± {0.0625 / np.sqrt(2):.4f}"


def test_the_second_grid_is_around_the_best_of_the_first(paper):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(80) > 0.0, 1, -1)
    search = paper.searched(X, y, 0, SVC(kernel="linear"), 3)
    tried = np.asarray(search.param_grid["C"])
    centre = tried[len(tried) // 2]
    assert np.isclose(paper.GRID, centre).any()
    assert np.isclose(tried[0] * tried[-1], centre**2)
    assert search.cv_results_["split2_test_score"].shape == (len(tried),)


def test_an_interrupt_ends_a_loop_after_the_split_at_work(paper):
    before, done = signal.getsignal(signal.SIGINT), []
    for seed in paper.cut_short(10):
        if seed == 2:
            signal.raise_signal(signal.SIGINT)
        done.append(seed)
    assert done == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before
