"""The rooms of the package: who imports whom, and how large they are."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import softmargin

PACKAGE = Path(softmargin.__file__).parent
# a room imports only rooms that come before it, and itself
ROOMS = [
    "exceptions",
    "refusals",
    "storage",
    "survival",
    "core",
    "rows",
    "losses",
    "priors",
    "designs",
    "solvers",
    "unknowns",
    "checks",
    "engines",
    "loo",
    "posterior",
    "inference",
    "models",
    "estimators",
    "plots",
    "report",
    "persistence",
    "cli",
    "datasets",
]


def modules():
    """Path of every module by its name."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports(name):
    """What a module imports of the package, with the depth of indentation."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "softmargin":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module, node.col_offset


def names_in(name):
    """The names that a module uses."""
    return {node.id for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)}


def room(name):
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_rooms_above_its_own(name):
    if room(name) in ("", "__main__"):
        return
    here = ROOMS.index(room(name))
    assert [other for other, _ in imports(name) if room(other) and ROOMS.index(room(other)) > here] == []


def test_private_parts_are_imported_beside_them_alone():
    strangers = [
        (name, other)
        for name in MODULES
        for other, _ in imports(name)
        if other.rsplit(".", 1)[-1].startswith("_") and other.rsplit(".", 1)[0] != name.rsplit(".", 1)[0]
    ]
    assert strangers == []


def test_no_import_of_the_package_hides_inside_a_function():
    hidden = [(name, other) for name in MODULES for other, depth in imports(name) if depth]
    assert hidden == [("softmargin.cli", "softmargin.cli.app")]  # the commands need typer, which is optional


def test_the_import_graph_has_no_cycle():
    graph = {name: {other for other, depth in imports(name) if not depth and other != name} for name in MODULES}
    done, open_ = set(), []

    def visit(name):
        assert name not in open_, f"cycle: {' -> '.join([*open_[open_.index(name) :], name])}"
        if name not in done:
            open_.append(name)
            for other in sorted(graph[name]):
                visit(other)
            open_.pop()
            done.add(name)

    for name in sorted(graph):
        visit(name)


# where what something has may be asked for by name: the check of parts, what users give, trees and compiled functions
# of other packages, their errors, classes named in files, lazy imports and delegation
PROBES = {
    "softmargin",
    "softmargin.cli",
    "softmargin.core.capabilities",
    "softmargin.core.validation",
    "softmargin.estimators.formula._parsed",
    "softmargin.estimators.tabular.delegating",
    "softmargin.persistence.registry",
    "softmargin.rows.compiled",
    "softmargin.rows.loops",
    "softmargin.storage.records",
}


def test_what_a_part_can_do_is_declared_and_not_probed():
    probing = {name for name in MODULES if {"hasattr", "getattr"} & names_in(name)}
    assert probing == PROBES


def test_what_a_part_need_not_have_is_declared_and_no_method_is_there_to_fail():
    raised = {
        name: [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
        for name, tree in TREES.items()
    }
    failing = {name for name, errors in raised.items() if any("NotImplementedError" in ast.dump(e) for e in errors)}
    assert failing <= {"softmargin.rows.dask.rows"}


PRIVATE = "calmer|dents?|drag|eased|heated|loosened|toll|missing cells?|(one|two) (rows?|numbers?|entry) an? [a-z]+"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_reader_meets_the_words_of_the_field(name):
    """A rank-two correction is no dent, a tempered density not heated, a missing entry no cell; "per" is not "a"."""
    assert re.findall(rf"\b(?:{PRIVATE})\b", MODULES[name].read_text(encoding="utf-8")) == []


def test_the_drawing_is_that_of_the_source():
    script = PACKAGE.parents[1] / "scripts" / "draw_house.py"
    if not script.exists():
        pytest.skip("not run from a checkout")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_table_of_refusals_is_that_of_the_source():
    script = PACKAGE.parents[1] / "scripts" / "write_refusals.py"
    if not script.exists():
        pytest.skip("not run from a checkout")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_folder_holds_more_than_fifteen_modules():
    counts = {}
    for path in MODULES.values():
        if path.name != "__init__.py":
            counts[path.parent.relative_to(PACKAGE)] = counts.get(path.parent.relative_to(PACKAGE), 0) + 1
    assert {str(folder): count for folder, count in counts.items() if count > 15} == {}


def test_no_file_is_longer_than_350_lines():
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > 350} == {}
