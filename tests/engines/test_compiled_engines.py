"""What compiled engines leave to others, so that a first fit does not wait for it to be compiled."""

import importlib
import pkgutil

import pytest

from softmargin.engines import kernel, selection
from softmargin.engines.sampling import hmc

SLOW = {"concatenate", "dot", "empty", "linalg", "ones", "solve", "zeros", "format"}  # to compile, not to run


def compiled_in(package):
    """The compiled functions that the modules of a package define, by name."""
    found = {}
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for name, value in vars(importlib.import_module(each.name)).items():
            if hasattr(value, "py_func") and value.py_func.__module__ == each.name:
                found[f"{each.name}.{name}"] = value.py_func
    return found


@pytest.mark.parametrize("package", [hmc, kernel, selection], ids=lambda package: package.__name__)
def test_compiled_functions_get_their_room_and_their_products_from_outside(package):
    functions = compiled_in(package)
    assert len(functions) > 5
    named = {name: SLOW.intersection(each.__code__.co_names) for name, each in functions.items()}
    assert not {name: words for name, words in named.items() if words}
