"""Tables in files: CSV, TSV and Parquet, compressed or not, with the place of what is wrong in them."""

from __future__ import annotations

import csv
import gzip
import io
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

__all__ = ["read_table", "write_table"]

_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "."})
_NUMBERS = 0.9  # share of a column's values from which the others are taken for mistakes
_COMMA = re.compile(r"[+-]?\d*,?\d+([eE][+-]?\d+)?")  # a number with a decimal comma, or without any
_RATIO, _ROOM = 100, 1 << 26  # a file may unpack to this many times its size, and this many bytes


def read_table(path: Path, labels: frozenset[str] = frozenset()) -> pd.DataFrame:
    """The rows of a file: columns of numbers as floats, the others, and those of ``labels``, as text."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".parquet", ".pq")):
        return _parquet(path)
    return _delimited(path, _text(path), "\t" if name.endswith((".tsv", ".tab")) else None, labels)


def _parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow.") from None
    with open(path, "rb") as file:  # a sentence of the system where there is no such file
        try:
            return pd.read_parquet(file)
        except (OSError, ValueError) as error:
            raise ValueError(f"{str(path)!r} is no Parquet file that can be read: {error}.") from None


def _text(path: Path) -> str:
    """The letters of a file; a wrong byte has its line and column."""
    with open(path, "rb") as file:
        raw = file.read()
    if raw[:2] == b"\x1f\x8b":
        most = _RATIO * len(raw) + _ROOM
        try:
            with gzip.open(io.BytesIO(raw)) as packed:
                raw = packed.read(most + 1)
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{str(path)!r} cannot be unpacked: {error}.") from None
        if len(raw) > most:
            raise ValueError(f"{str(path)!r} unpacks to more than {_RATIO} times its size; unpack it by hand.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        _refuse(path, line, f"byte {column} is not UTF-8; save the file as UTF-8")


def _refuse(path: Path, line: int, what: str) -> NoReturn:
    raise ValueError(f"{str(path)!r}, line {line}: {what}.")


def _delimited(path: Path, text: str, delimiter: str | None, labels: frozenset[str]) -> pd.DataFrame:
    head = text.partition("\n")[0]
    if not head.strip():
        _refuse(path, 1, "there are no column names; the first line must have them")
    delimiter = delimiter or max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    begun = 1
    try:
        for row in reader:
            if row:
                rows.append(row)
                lines.append(begun)
            begun = reader.line_num + 1
    except csv.Error as error:
        _refuse(path, begun, f"{error}; check the quotes")
    names = [name.strip() for name in rows[0]]
    for number, name in enumerate(names, 1):
        if not name or names.index(name) < number - 1:
            _refuse(path, 1, f"column {number} has {'no name' if not name else f'the name {name!r} of another one'}")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(names):
            _refuse(path, line, f"{len(row)} fields where the header has {len(names)} names")
    if len(rows) == 1:
        raise ValueError(f"{str(path)!r} has column names and no rows.")
    columns = {name: [row[j].strip() for row in rows[1:]] for j, name in enumerate(names)}
    if delimiter == ";":  # which is there because the comma is taken
        columns = {name: words if name in labels else _with_points(words) for name, words in columns.items()}
    return pd.DataFrame({name: _column(path, name, words, lines[1:], labels) for name, words in columns.items()})


def _with_points(words: list[str]) -> list[str]:
    """Decimal commas as points, where nearly all words that are there are numbers with at most one comma and no point.

    Three digits behind every comma may be thousands: then words stay as they are.
    """
    there = [word for word in words if word.lower() not in _MISSING]
    behind = [word.partition(",")[2] for word in there if "," in word]
    numbers = sum(_COMMA.fullmatch(word) is not None for word in there)
    thousands = all(len(digits) == 3 for digits in behind) and not any(word.lstrip("+-")[:2] == "0," for word in there)
    if thousands or numbers < _NUMBERS * len(there):
        return words
    return [word.replace(",", ".") if _COMMA.fullmatch(word) else word for word in words]


def _column(path: Path, name: str, words: list[str], lines: list[int], labels: frozenset[str]) -> Any:
    """Numbers where nearly all words are numbers, and all of them then; text otherwise."""
    missing = np.array([word.lower() in _MISSING for word in words])
    if name in labels:
        return pd.Series([None if gone else word for word, gone in zip(words, missing, strict=True)], dtype=object)
    values = np.full(len(words), np.nan)
    wrong = []
    for j in np.flatnonzero(~missing):
        try:
            values[j] = float(words[j])
        except ValueError:
            wrong.append(int(j))
    present = int((~missing).sum())
    if not wrong:
        return values
    if len(wrong) <= (1.0 - _NUMBERS) * present:
        first = wrong[0]
        more = f", and {len(wrong) - 1} more values," if len(wrong) > 1 else ""
        _refuse(
            path,
            lines[first],
            f"the column {name!r} has {words[first]!r}{more} where {present - len(wrong)} rows have numbers; mend it, "
            f"or say --labels {name} that its values are labels",
        )
    return pd.Series([None if gone else word for word, gone in zip(words, missing, strict=True)], dtype=object)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write rows as the name of the file says."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".parquet", ".pq")):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if name.endswith((".tsv", ".tab")) else ",")
