"""Every Python block of the documentation runs by itself, as if it were pasted into a fresh session."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(<!-- slow -->\n)?^```python\n(.*?)^```", re.S | re.M)  # slow blocks run in the second stage
EXTRAS = {
    "plots": "matplotlib",
    "to_arviz": "arviz",
    "Formula": "formulae",
    "softmargin.fit": "formulae",
    "polars": "polars",
    "dask": "distributed",
}


class Block(NamedTuple):
    """A Python block of a page."""

    page: Path
    line: int
    text: str
    slow: bool


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: found.start(2)].count("\n") + 1, found[2], bool(found[1])) for found in FENCE.finditer(text)
    ]


def cases() -> list[Any]:
    """Every block, named by its page and line."""
    return [
        pytest.param(
            block,
            id=f"{page.relative_to(ROOT).as_posix()}:{block.line}",
            marks=[pytest.mark.soak] if block.slow else [],
        )
        for page in PAGES
        if page.exists()
        for block in blocks(page)
    ]


@pytest.mark.parametrize("block", cases())
def test_a_block_runs_in_a_fresh_session(block, tmp_path, monkeypatch, capsys):
    for word, package in EXTRAS.items():
        if word in block.text:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=FutureWarning)  # other packages about themselves
        warnings.filterwarnings("default", category=DeprecationWarning, module="arviz")  # and what they call
        exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), {"__name__": "__main__"})


def test_the_readme_and_the_first_page_have_their_example():
    assert blocks(ROOT / "README.md")
    assert blocks(ROOT / "docs" / "index.md")


@pytest.mark.parametrize("kind", ["loss", "prior", "design", "solver", "unknown", "move", "engine"])
def test_how_to_add_a_part_is_shown_by_a_complete_example(kind):
    sections = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n### ")
    (section,) = [text for text in sections if re.match(rf"An? {kind}: ", text)]
    assert FENCE.search(section)
