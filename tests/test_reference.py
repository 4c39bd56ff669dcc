"""Every public name and method is on a page of the reference."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PUBLIC = [
    "softmargin",
    *(f"softmargin.{room}" for room in ("priors", "losses", "checks", "plots", "report", "datasets")),
]


def referenced() -> set[str]:
    """What the pages of the reference render."""
    pages = REFERENCE.glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.M)}


@pytest.mark.parametrize("module", [name for name in PUBLIC if name == "softmargin" or find_spec(name)])
def test_every_public_name_is_on_a_page_of_the_reference(module):
    rendered, source = referenced(), importlib.import_module(module)
    missing = []
    for name in source.__all__:
        thing = getattr(source, name)
        home = f"{getattr(thing, '__module__', module)}.{getattr(thing, '__qualname__', name)}"
        if name != "__version__" and not {f"{module}.{name}", home} & rendered:
            missing.append(f"::: {home}")
    assert missing == [], "add these lines to a page of docs/reference"


@pytest.mark.parametrize("name", ["BayesianKernelClassifier", "BayesianSVC", "BayesianSVR", "Formula"])
def test_every_public_method_of_an_estimator_says_what_it_does(name):
    estimator = getattr(importlib.import_module("softmargin"), name)
    methods = inspect.getmembers(estimator, lambda value: inspect.isfunction(value) or isinstance(value, property))
    assert [method for method, value in methods if not method.startswith("_") and not inspect.getdoc(value)] == []
