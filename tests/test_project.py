"""What the project promises outside of its code: the versions that it names are those that are tested."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


def test_every_python_version_that_is_named_is_tested():
    if not WORKFLOWS.is_dir():
        pytest.skip("not run from a checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [found[1] for line in project["classifiers"] if (found := re.fullmatch(r".* :: (3\.\d+)", line))]
    tested = re.search(r"python: \[(.*)\]", (WORKFLOWS / "tests.yml").read_text(encoding="utf-8"))[1]
    assert named == re.findall(r"3\.\d+", tested)
    assert project["requires-python"] == f">={named[0]}"


def test_workflows_are_well_formed():
    yaml = pytest.importorskip("yaml")
    for path in [*WORKFLOWS.glob("*.yml"), *(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]:
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), path


def test_only_the_release_of_a_tag_may_publish():
    if not WORKFLOWS.is_dir():
        pytest.skip("not run from a checkout")
    text = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
    before, publish = text.split("  publish:\n")
    assert "id-token" not in before
    assert "startsWith(github.ref, 'refs/tags/v')" in publish
    assert not re.search(r"password|secrets\.", text)
