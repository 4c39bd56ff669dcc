"""The replication of Liu (2020): a rehearsal, its published section, and what it says about the printed algorithm."""

import os
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from softmargin.core.loop import run
from softmargin.engines.mode.newton import Newton
from softmargin.priors import Lasso

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
ROWS = [
    "section 4.2: error rate 0.48",
    "56 cases",
    "figure 3: EM",
    "figure 4: variances",
    "figure 5: ECME",
    "p = 4137 genes",
]
PICTURES = ["liu_simulation", "liu_paths", "liu_variances"]


def section(folder):
    """The table and the pictures between the markers."""
    text = (folder / "replication.md").read_text(encoding="utf-8")
    return text.split("<!-- liu:begin -->")[1].split("<!-- liu:end -->")[0]


def complete(written, folder):
    """Every statement has an answer, every picture a file."""
    table = [line for line in written.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {4}
    for row in ROWS:
        assert any(row in line.split("|")[1] and line.split("|")[2].strip() for line in table), row
    for picture in PICTURES:
        assert f"(images/{picture}.png)" in written
        assert 1000 < (folder / "images" / f"{picture}.png").stat().st_size < 120_000


@pytest.fixture
def paper(monkeypatch):
    """The module, where there are data."""
    if not os.environ.get("SOFTMARGIN_DATA"):
        pytest.skip("set SOFTMARGIN_DATA to the folder with the real data")
    monkeypatch.syspath_prepend(str(ROOT))
    return import_module("replication.liu")


def test_rehearsal_writes_its_section(tmp_path, paper):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper.main(["--quick", "--output", str(tmp_path)])
    complete(section(tmp_path), tmp_path)


def test_published_section_is_complete():
    complete(section(ROOT / "docs" / "evidence"), ROOT / "docs" / "evidence")


def test_simulated_classes_have_the_stated_probabilities(paper):
    rng = np.random.default_rng(0)
    X, y = paper.draw(rng, 60_000)
    middle = np.abs(X[:, 0] - 0.5) < 0.02
    share = np.bincount(y[middle], minlength=3) / middle.sum()
    expected = (0.97 * np.exp(-1.5), 1.0 - 0.97 * np.exp(-1.5) - np.exp(-1.225), np.exp(-1.225))
    np.testing.assert_allclose(share, expected, atol=4.0 * 0.5 / np.sqrt(middle.sum()))


def test_printed_algorithm_breaks_and_ours_reaches_the_mode(paper):
    data = paper.Leukemia(*paper.golub(logarithms=True))
    genes, y = data.largest(40), data.y[data.train]
    assert len(paper.printed(data.X[data.train][:, genes], y, 1.0, 1500)) < 1500
    model = paper.joint_model(data.standardized(genes), y, Lasso(scale=1.0))
    found = paper.followed(model, 800)
    assert np.isfinite(found.path).all()
    assert (np.diff(found.objective) > -1e-8 * (1.0 + np.abs(found.objective[1:]))).all()
    exact = run(Newton(), model, max_iter=100, tol=1e-9).state.point.beta
    np.testing.assert_allclose(found.path[-1].ravel(), exact, atol=1e-3)


def test_the_middle_class_is_masked(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT))
    masking, common = (import_module(f"replication.{name}") for name in ("masking", "common"))
    errors = masking.draw(common.Page("masking", None))
    assert errors["loss of the papers, largest score"] > 0.3
    assert max(errors["sum-to-zero, the default"], errors["pairs"]) < 0.06
    assert (ROOT / "docs" / "evidence" / "images" / "classes_masking.png").stat().st_size < 120_000
