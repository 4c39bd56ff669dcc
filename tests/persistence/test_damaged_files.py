"""Files that are damaged, foreign, from the future or made to harm are refused in one sentence, or read as they are."""

import collections
import json
import os
import struct
import tracemalloc

import numpy as np
import pytest
from damage import assembled, damaged, judged, parts_of
from saved_models import X, fitted

import softmargin
from softmargin.exceptions import SavedFileError
from softmargin.storage import container

KINDS = ("two classes, vb", "effects, gibbs", "kernel, active", "formula, functions", "missing, gibbs", "pairs, map")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Paths of some models with rows for each."""
    folder, found = tmp_path_factory.mktemp("saved"), []
    for number, name in enumerate(KINDS):
        model, rows = fitted(name)
        softmargin.save(model, folder / str(number))
        softmargin.load(folder / str(number))  # what is imported for it is imported now
        found.append((folder / str(number), rows))
    return found


@pytest.fixture
def small(saved):
    return saved[0][0]


def refused(path, match):
    with pytest.raises(SavedFileError, match=match) as caught:
        softmargin.load(path)
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".")


def run(saved, tmp_path, seeds):
    """How many damaged files were refused and read; the rest is wrong."""
    counts, place = collections.Counter(), tmp_path / "damaged"
    for seed in seeds:
        path, rows = saved[seed % len(saved)]
        data, what = damaged(np.random.default_rng(seed), path)
        place.write_bytes(data)
        verdict = judged(place, rows)
        assert verdict in ("refused", "read"), (seed, what, verdict)
        counts[what, verdict] += 1
    return counts


def test_damaged_files_are_refused_or_read_as_they_are(saved, tmp_path):
    counts = run(saved, tmp_path, range(300))
    raw = ("a bit", "truncated", "spliced")
    assert not any(counts[what, "read"] for what in raw)
    assert sum(counts[what, "refused"] for what in raw) > 50
    assert counts["records", "refused"] > 50 and sum(count for (_, how), count in counts.items() if how == "read") > 5


@pytest.mark.soak
def test_very_many_damaged_files_are_refused_or_read_as_they_are(saved, tmp_path):
    assert sum(run(saved, tmp_path, range(1000, 21_000)).values()) == 20_000


def test_every_truncation_of_a_file_is_refused(small, tmp_path):
    whole = small.read_bytes()
    for length in {*range(200), *range(200, len(whole), 97)}:
        (tmp_path / "short").write_bytes(whole[:length])
        refused(tmp_path / "short", "ends too early|is not a file of softmargin.save|bytes where its directory")


def test_a_changed_byte_is_found_and_named(small, tmp_path):
    whole = bytearray(small.read_bytes())
    places = {30: "in its directory", 100: "in its directory", len(whole) - 40: "in its section 'array", -1: "checksum"}
    for at, where in places.items():
        changed = bytearray(whole)
        changed[at] ^= 64
        (tmp_path / "changed").write_bytes(changed)
        refused(tmp_path / "changed", where)


def test_foreign_files_are_refused(tmp_path):
    for data in (b"", b"\x80\x04pickle", b"PK\x03\x04zip", b"x" * 1000):
        (tmp_path / "foreign").write_bytes(data)
        refused(tmp_path / "foreign", "is not a file of softmargin.save")
    with pytest.raises(FileNotFoundError):
        softmargin.load(tmp_path / "not there")


def test_files_of_the_future_are_refused(small, tmp_path):
    about, records, arrays = parts_of(small)
    (tmp_path / "later").write_bytes(assembled(about | {"version": 99}, records, arrays))
    refused(
        tmp_path / "later", "records of version 99, and this softmargin reads versions up to .*use a newer softmargin"
    )
    whole = bytearray(small.read_bytes())
    whole[12:16] = struct.pack("<I", 7)
    (tmp_path / "later").write_bytes(whole)
    refused(tmp_path / "later", "file layout 7, .*use a newer softmargin")
    (tmp_path / "other").write_bytes(assembled(about | {"kind": "checkpoint"}, records, arrays))
    refused(tmp_path / "other", "holds no model")


def test_rows_of_predictors_and_estimators_without_a_parameter_are_refused(saved, tmp_path):
    """A file never has the former; what has no default is not made up."""
    for name, kind, change in (
        ("two classes, vb", "FitRows", lambda fields: fields.update(X=-1)),
        ("formula, functions", "Formula", lambda fields: fields.pop("formula")),
    ):
        about, records, arrays = parts_of(saved[KINDS.index(name)][0])
        number = next(k for k, node in enumerate(records["nodes"]) if node.get("class") == kind)
        change(records["nodes"][number]["fields"])
        (tmp_path / "other").write_bytes(assembled(about, records, arrays))
        refused(tmp_path / "other", f"record {number} is of another form")


def test_sizes_that_are_declared_and_not_there_allocate_nothing(small, tmp_path):
    """Shapes, widths of letters, ranges and sections beyond the size of the file."""
    about, records, arrays = parts_of(small)
    number = next(k for k, node in enumerate(records["nodes"]) if node["kind"] == "array" and node["dtype"] == "<f8")
    at = number, records["nodes"][number]["section"]
    text = json.dumps(records)
    for change in (
        {"shape": [10**12]},
        {"shape": [10**6, 10**6]},
        {"shape": [2**62, 4]},
        {"dtype": "<U100000000", "shape": [10]},
        {"dtype": "|V8"},
        {"dtype": "|O"},
        {"shape": [-1]},
    ):
        other = json.loads(text)
        other["nodes"][at[0]] |= change
        (tmp_path / "huge").write_bytes(assembled(about, other, arrays))
        tracemalloc.start()
        refused(tmp_path / "huge", f"record {at[0]} is of another form")
        assert tracemalloc.get_traced_memory()[1] < 50e6
        tracemalloc.stop()
    whole = bytearray(small.read_bytes())
    whole[16:24] = struct.pack("<Q", 2**60)  # length of the directory
    (tmp_path / "huge").write_bytes(whole)
    refused(tmp_path / "huge", "ends too early")
    other = json.loads(text)
    other["nodes"].append({"kind": "index", "form": "range", "ends": [0, 10**15, 1], "name": None})
    (tmp_path / "huge").write_bytes(assembled(about, other, arrays))
    refused(tmp_path / "huge", "of another form")


def test_nested_and_irregular_json_is_refused(small, tmp_path):
    about, _, arrays = parts_of(small)
    for text in (
        b"[" * 100_000,
        b'{"root": NaN, "nodes": []}',
        b'{"root": 1, "root": 2}',
        b"\xff",
        b"9" * 5000,
        b"1e999",
    ):
        (tmp_path / "odd").write_bytes(assembled(about, text, arrays))
        refused(tmp_path / "odd", "records that cannot be read|of another form")


@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "Path.unlink", "pathlib.Path", "subprocess.Popen"])
def test_classes_that_are_not_in_the_table_are_never_built(small, tmp_path, name):
    about, records, arrays = parts_of(small)
    for node in (
        {"kind": "record", "class": name, "fields": {}},
        {"kind": "function", "name": name},
        {"kind": name},
    ):
        records["nodes"][0] = node
        (tmp_path / "evil").write_bytes(assembled(about, records, arrays))
        refused(tmp_path / "evil", "record 0 is of another form")
        assert judged(tmp_path / "evil", X) == "refused"


def test_a_write_that_fails_leaves_the_file_before(small, tmp_path, monkeypatch):
    model = softmargin.load(small)
    path = tmp_path / "model"
    path.write_bytes(b"before")

    def broken(handle):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="no space"):
        softmargin.save(model, path)
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["model"]


def test_a_container_holds_records_of_any_kind(tmp_path):
    numbers = np.arange(6.0)
    container.write(tmp_path / "run", {"kind": "checkpoint"}, [container.Section("state", numbers.data)])
    about, sections = container.read(tmp_path / "run")
    assert about == {"kind": "checkpoint"} and sections[0].name == "state"
    np.testing.assert_array_equal(np.frombuffer(sections[0].data), numbers)
