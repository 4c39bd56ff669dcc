"""The replications run at a small size and write their section of the page."""

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
pytest.importorskip("arviz")

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "polson_scott": (
        ["ECME finds nu = 1.353", "objective at nu = 1.353", "figure 1:", "figure 2:", "figure 3:", "figures 4 and 5:"],
        ["ps_path", "ps_inclusion", "ps_agreement", "ps_traces", "ps_wild", "ps_lasso"],
    ),
    "luts_ormerod_selection": (
        ["24 variables are almost certainly selected", "except for cs", "76 minutes", "over 10 hours"],
        ["lo_inclusion", "lo_agreement"],
    ),
}


def section(page, name):
    """What stands between the markers."""
    text = page.read_text(encoding="utf-8")
    return text.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0]


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the repository on the path, where there are data."""
    if not os.environ.get("SOFTMARGIN_DATA"):
        pytest.skip("set SOFTMARGIN_DATA to the folder with the real data")
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("name", SECTIONS)
def test_replication_writes_its_section(name, tmp_path, scripts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module(f"replication.{name}").main(["--quick", "--output", str(tmp_path)])
    rows, pictures = SECTIONS[name]
    written = section(tmp_path / "replication.md", name)
    table = [line for line in written.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {4}  # no stray bars
    for row in rows:
        assert any(line.split("|")[1].strip().find(row) >= 0 and line.split("|")[2].strip() for line in table), row
    for picture in pictures:
        assert f"(images/{picture}.png)" in written
        assert (tmp_path / "images" / f"{picture}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_paper_units_give_the_published_scale(scripts):
    """Without the factor 2 the scale is 1.124, with standardized columns 0.54: the conventions show."""
    paper = import_module("replication.polson_scott")
    data = paper.Spam(*paper.spam(False))
    model = data.model(Lasso(paper.NU))
    point = paper.mode_at(model, paper.NU)
    assert point.certificate.objective == pytest.approx(paper.OBJECTIVE, abs=2e-6)
    assert point.active[1:].sum() == 52
    hinge = np.maximum(1.0 - model.y * point.f, 0.0).sum()
    assert point.certificate.objective == pytest.approx(2.0 * hinge + np.abs(point.beta).sum() / paper.NU, abs=1e-9)
    learned = data.model(Lasso(hyperprior=paper.HYPERPRIORS["a = 1, b = 0"]))
    end = run(Newton(), learned, max_iter=100, tol=1e-9).state
    assert end.prior.values["scale"] == pytest.approx(1.3563, abs=1e-4)


@pytest.mark.parametrize("name", SECTIONS)
def test_the_published_page_has_its_pictures(name):
    page = ROOT / "docs" / "evidence" / "replication.md"
    rows, pictures = SECTIONS[name]
    written = section(page, name)
    for row in rows:
        assert row in written
    for picture in pictures:
        assert f"(images/{picture}.png)" in written
        assert (page.parent / "images" / f"{picture}.png").stat().st_size < 120_000
