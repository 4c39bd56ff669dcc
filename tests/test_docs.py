"""Every Python block of the documentation runs, page by page, in the order of the page."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if page.exists() and "```python" in page.read_text(encoding="utf-8")
)
NEEDS = {
    "quickstart.md": "arviz",
    "probabilities.md": "matplotlib",
    "priors.md": "matplotlib",
    "formulas.md": "formulae",
}


def blocks(page):
    """Line number and text of every Python block."""
    text = page.read_text(encoding="utf-8")
    return [(text[: m.start()].count("\n") + 2, m.group(1)) for m in re.finditer(r"```python\n(.*?)```", text, re.S)]


@pytest.fixture
def names():
    """What a page may use without having made it."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    return {
        "X": X, "y": y, "X_train": X_train, "X_test": X_test, "y_train": y_train, "y_test": y_test,
        "counts": np.ones(len(y)), "X_sparse": csr_array(X.to_numpy()),
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, names, tmp_path, monkeypatch, capsys):
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for line, text in blocks(page):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("default", category=FutureWarning)  # other packages about themselves
            exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)


def test_the_readme_has_its_example():
    assert any(page.name == "README.md" for page in PAGES)
