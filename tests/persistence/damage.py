"""Files with one thing wrong, and a judge of what loading makes of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
import warnings

import numpy as np

import softmargin
from softmargin.exceptions import SavedFileError
from softmargin.persistence.migrations import VERSION
from softmargin.persistence.registry import TABLE
from softmargin.storage import container
from softmargin.storage.records import encoded

VALUES = [None, True, -1, 0, 3, 2**31, 2**63, 2**70, 0.5, -1e308, "", "nan", "os.system", "BayesianSVC", "__class__"]
VALUES += [[], {}, [1], {"at": 0}, {"at": 10**9}, {"at": -1}, {"float": "nan"}, {"float": "x"}, "x" * 1000]
KINDS = ["list", "tuple", "dict", "set", "array", "objects", "scalar", "frame", "index", "sparse", "record", "function"]
_WATCHED = ("exec", "compile", "os.", "subprocess", "socket", "ctypes", "pickle", "import", "shutil", "marshal")
_seen: list[str] = []
_watched_thread: int | None = None  # what other threads do meanwhile (a cluster's watch of its files, say) is not ours


def _hook(event, arguments):
    if _watched_thread == threading.get_ident() and event.startswith(_WATCHED):
        _seen.append(f"{event} {arguments!r:.80}")


sys.addaudithook(_hook)


@contextlib.contextmanager
def watched():
    """A list of what was run or imported meanwhile."""
    global _watched_thread
    _seen.clear()
    _watched_thread = threading.get_ident()
    try:
        yield _seen
    finally:
        _watched_thread = None


def parts_of(path):
    """What a file says of itself, its records, and the bytes of its arrays."""
    about, sections = container.read(path)
    return about, json.loads(sections[0].data), [section.data for section in sections[1:]]


def assembled(about, records, arrays):
    """The bytes of a file whose checksums are right."""
    text = json.dumps(records).encode() if not isinstance(records, bytes) else records
    sections = [container.Section("records", text)]
    sections += [container.Section(f"array {number}", data) for number, data in enumerate(arrays)]
    return b"".join(map(bytes, container.written(about, sections)))


def damaged(random, path):
    """The bytes of a file with one thing wrong, and what it was."""
    whole = path.read_bytes()
    way = random.integers(10)
    at, other = sorted(random.integers(0, len(whole), 2).tolist())
    if way == 0:
        changed = bytearray(whole)
        changed[at] ^= 1 << random.integers(8)
        return bytes(changed), "a bit"
    if way == 1:
        return whole[:at], "truncated"
    if way == 2:
        return whole[:at] + whole[other:], "spliced"
    about, records, arrays = parts_of(path)
    if way == 3 and arrays:
        number = int(random.integers(len(arrays)))
        changed = bytearray(arrays[number])
        for _ in range(3 if changed else 0):
            changed[random.integers(len(changed))] = random.integers(256)
        arrays[number] = bytes(changed[: random.integers(len(changed) + 1)] if random.random() < 0.3 else changed)
        return assembled(about, records, arrays), "numbers"
    if way == 4:
        about[random.choice(["kind", "version", "written_by", "more"])] = random.choice(np.array(VALUES, dtype=object))
        return assembled(about, records, arrays), "the directory"
    return assembled(about, _edited(random, records), arrays), "records"


def _edited(random, records):
    """Records with one entry somewhere replaced, taken away, doubled or moved."""
    nodes = records["nodes"]
    place = nodes[random.integers(len(nodes))]
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = keys[random.integers(len(keys))]
        inner = place[key]
        if isinstance(inner, dict | list) and inner and random.random() < 0.8:
            place = inner
            continue
        way = random.integers(6)
        if way == 0:
            del place[key]
        elif way == 1 and isinstance(place, list):
            place.insert(key, inner)
        elif way == 2:
            place[key] = {"at": int(random.integers(len(nodes)))}
        elif way == 3 and key == "kind":
            place[key] = KINDS[random.integers(len(KINDS))]
        else:
            place[key] = VALUES[random.integers(len(VALUES))]
        break
    if random.random() < 0.05:
        nodes.insert(0, {"kind": "record", "class": "os.system", "fields": {"command": "true"}})
    return records


def tree(records, arrays):
    """One digest of records, whatever the order of their nodes and of what is in sets."""
    found = []

    def value(thing):
        if isinstance(thing, dict) and "at" in thing:
            return found[thing["at"]]
        if isinstance(thing, dict):
            return {key: value(part) for key, part in thing.items()}
        return [value(part) for part in thing] if isinstance(thing, list) else thing

    for node in records["nodes"]:
        node = dict(node)
        if "section" in node:
            node["section"] = hashlib.sha256(bytes(arrays[node["section"]])).hexdigest()
        seen = value(node)
        if node["kind"] in ("set", "frozenset"):
            seen["items"] = sorted(map(json.dumps, seen["items"]))
        found.append(hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest())
    return value(records["root"])


def judged(path, rows):
    """Why loading a file was wrong, or "refused" or "read"; anything but our own exception comes out of here."""
    with watched() as ran:
        try:
            model = softmargin.load(path)
        except SavedFileError as error:
            return f"ran {ran}" if ran else "several lines" if "\n" in str(error) else "refused"
    if ran:
        return f"ran {ran}"
    about, records, arrays = parts_of(path)
    again, numbers = encoded(model, TABLE)
    fields = sum(len(node.get("fields", ())) for node in records["nodes"])
    if sum(len(node.get("fields", ())) for node in again["nodes"]) == fields:  # none was filled by its default
        same = tree(records, arrays) == tree(again, [array.tobytes() for array in numbers])
        if not same or about["version"] != VERSION:
            return "read as something else"
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")  # numbers may be any: a method may refuse them, and must not crash
        model.predict(rows)
    return "read"
