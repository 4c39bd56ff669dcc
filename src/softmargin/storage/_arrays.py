"""Arrays and numbers of NumPy as nodes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from softmargin.exceptions import SavedFileError

__all__ = ["array_from", "array_node", "plain"]

_TYPES = re.compile(r"\|b1|[|<][iu](1|2|4|8)|<f(2|4|8)|<c(8|16)|<[Mm]8(\[\w+\])?|\|S\d+|<U\d+")
_LAST_LETTER = 0x10FFFF


def plain(value: Any) -> Any:
    """A number as it is, None, or a refusal."""
    if value is not None and type(value) is not int:
        raise TypeError("no whole number")
    return value


def array_node(records: Any, thing: Any) -> dict[str, Any]:
    """An array, its numbers in a section of their own; one of objects has values instead."""
    if isinstance(thing, np.generic):
        return {"kind": "scalar", "array": records.value(np.array(thing))}
    if type(thing) is not np.ndarray:  # memory maps, matrices: their numbers
        thing = np.array(thing, subok=False)
    if thing.dtype == object:
        return {"kind": "objects", "shape": list(thing.shape), "items": records.values(thing.ravel().tolist())}
    kept = thing.astype(thing.dtype.newbyteorder("<"), copy=False)
    if not _TYPES.fullmatch(kept.dtype.str):
        raise SavedFileError(f"save does not know arrays of {thing.dtype}; pickle and joblib do.")
    order = "F" if kept.flags.f_contiguous and not kept.flags.c_contiguous else "C"
    number = records.section(np.ascontiguousarray(kept.T if order == "F" else kept))
    return {"kind": "array", "dtype": kept.dtype.str, "shape": list(kept.shape), "order": order, "section": number}


def array_from(decoder: Any, kind: Any, node: dict[str, Any]) -> Any:
    """The array or number of a node."""
    if kind == "scalar":
        (value,) = (decoder.value(node.pop("array")),)
        if node or not isinstance(value, np.ndarray) or value.shape != ():
            raise ValueError("a number of another form")
        return value[()]
    shape = _shape(node.pop("shape"))
    if kind == "objects":
        items = decoder.values(node.pop("items"))
        if node or len(items) != math.prod(shape):
            raise ValueError("objects of another shape")
        made = np.empty(len(items), dtype=object)
        made[:] = items
        return made.reshape(shape)
    if kind != "array" or set(node) != {"dtype", "order", "section"} or node["order"] not in ("C", "F"):
        raise ValueError("a node of another kind")
    if not _TYPES.fullmatch(node["dtype"]):
        raise ValueError("numbers of another type")
    dtype, data = np.dtype(node["dtype"]), decoder.section(node["section"])
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("an array of another size")
    _check_bytes(dtype, data)
    flat = np.frombuffer(data, dtype=dtype).copy() if len(data) else np.empty(math.prod(shape), dtype=dtype)
    return flat.reshape(shape, order=node["order"])


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is not list or not all(type(length) is int and length >= 0 for length in value):
        raise ValueError("a shape that is none")
    return tuple(value)


def _check_bytes(dtype: Any, data: Any) -> None:
    """Refuse bytes that are no truth values or letters; every number is one."""
    if dtype.kind == "b" and len(data) and np.frombuffer(data, np.uint8).max() > 1:
        raise ValueError("truth values that are none")
    if dtype.kind == "U" and len(data) and np.frombuffer(data, "<u4").max() > _LAST_LETTER:
        raise ValueError("letters that are none")
