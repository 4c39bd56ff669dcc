"""One file of named sections: written whole or not at all, read only where every checksum is right.

The layout, with numbers little-endian:

    12 bytes   magic
     4 bytes   version of the layout
     8 bytes   length of the directory
    32 bytes   SHA-256 of the directory
               the directory: JSON with what the file is and the name, size and SHA-256 of every section
               the sections, one after the other, as they are
    32 bytes   SHA-256 of all bytes before

Nothing is compressed, so that a reader allocates no more than the size of the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from softmargin.exceptions import SavedFileError

__all__ = ["LAYOUT", "Contents", "Section", "check", "parsed", "read", "write", "write_whole", "written"]

LAYOUT = 1
_MAGIC = b"\x89SOFTMRG\r\n\x1a\n"  # a byte above 127, and line ends that a transfer as text would change
_HEAD = struct.Struct("<12sIQ32s")
_DIGEST = 32


class Section(NamedTuple):
    """Some bytes under a name."""

    name: str
    data: Any  # bytes, or what has them: a buffer


class Contents(NamedTuple):
    """What a file holds: what it says of itself, and its sections in their order."""

    about: dict[str, Any]
    sections: tuple[Section, ...]


def check(right: bool, path: Any, what: str, advice: str = "save the model again") -> None:
    """Refuse a file in one sentence."""
    if not right:
        raise SavedFileError(f"{str(path)!r} {what}; {advice}.")


def parsed(text: bytes, path: Any, what: str) -> Any:
    """JSON with finite numbers and without repeated keys."""

    def number(word: str) -> float:
        if not math.isfinite(value := float(word)):
            raise ValueError(word)
        return value

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError("a repeated key")
        return found

    try:
        return json.loads(text.decode(), parse_float=number, parse_constant=number, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise SavedFileError(f"{str(path)!r} has {what} that cannot be read; save the model again.") from None


def written(about: Mapping[str, Any], sections: Sequence[Section]) -> list[Any]:
    """The file as a list of buffers."""
    listed = [
        {"name": section.name, "size": memoryview(section.data).nbytes, "sha256": _digest(section.data).hex()}
        for section in sections
    ]
    directory = json.dumps({**about, "sections": listed}, allow_nan=False, separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, LAYOUT, len(directory), _digest(directory))
    parts = [head, directory, *(section.data for section in sections)]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return [*parts, whole.digest()]


def write(path: Any, about: Mapping[str, Any], sections: Sequence[Section]) -> None:
    """Write sections with what is said about them into a file, which is there when it is complete."""
    write_whole(path, written(about, sections))


def write_whole(path: Any, parts: Sequence[Any]) -> None:
    """Write bytes into a file beside the place where it belongs, and move it there when it is complete."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open(beside, "xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """The new name on the disk, where folders can be synchronized: Windows has no such call."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(path: Any) -> Contents:
    """All of a file, after its checksums; declared sizes are compared with its size before anything is read."""
    with open(path, "rb") as file:
        return _read(file, os.fstat(file.fileno()).st_size, path)


def _read(file: BinaryIO, size: int, path: Any) -> Contents:
    whole = hashlib.sha256()

    def next_bytes(count: int) -> bytes:
        data = file.read(count)
        check(len(data) == count, path, "ends too early")
        whole.update(data)
        return data

    head = file.read(_HEAD.size)
    check(head[:12] == _MAGIC, path, "is not a file of softmargin.save", "give the path of such a file")
    check(len(head) == _HEAD.size, path, "ends too early")
    _, layout, length, digest = _HEAD.unpack(head)
    newer = f"has the file layout {layout}, and this softmargin reads layouts up to {LAYOUT}"
    check(1 <= layout <= LAYOUT, path, newer, "use a newer softmargin")
    whole.update(head)
    check(_HEAD.size + length + _DIGEST <= size, path, "ends too early")
    directory = next_bytes(length)
    check(_digest(directory) == digest, path, "is damaged in its directory")
    about = parsed(directory, path, "a directory")
    listed: Any = about.pop("sections", None) if isinstance(about, dict) else None
    check(isinstance(listed, list) and all(map(_is_entry, listed)), path, "has a directory of another form")
    total = _HEAD.size + length + sum(entry["size"] for entry in listed) + _DIGEST
    check(total == size, path, f"has {size:,} bytes where its directory asks for {total:,}")
    sections = []
    for entry in listed:
        data = next_bytes(entry["size"])
        check(_digest(data).hex() == entry["sha256"], path, f"is damaged in its section {entry['name'][:40]!r}")
        sections.append(Section(entry["name"], data))
    check(file.read(_DIGEST) == whole.digest(), path, "is damaged: its checksum is not that of its bytes")
    return Contents(about, tuple(sections))


def _is_entry(entry: Any) -> bool:
    """Whether a line of the directory has a name, a size and a checksum."""
    if not isinstance(entry, dict) or set(entry) != {"name", "size", "sha256"}:
        return False
    name, size, digest = entry["name"], entry["size"], entry["sha256"]
    return isinstance(name, str) and type(size) is int and size >= 0 and isinstance(digest, str)


def _digest(data: Any) -> bytes:
    return hashlib.sha256(data).digest()
