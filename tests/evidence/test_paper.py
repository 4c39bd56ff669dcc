"""The figures of the paper are those of the benchmark tables."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("write_paper", ROOT / "scripts" / "write_paper.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_paper_is_that_of_the_evidence(script):
    assert script.PAPER.read_text(encoding="utf-8") == script.page()  # else: python scripts/write_paper.py


def test_every_reference_is_in_the_bibliography(script):
    import re

    keys = set(re.findall(r"@(\w+\d{4}\w+)", script.PAPER.read_text(encoding="utf-8")))
    known = set(re.findall(r"@\w+\{(\w+),", (script.PAPER.parent / "paper.bib").read_text(encoding="utf-8")))
    assert keys <= known
    assert len(keys) > 5
