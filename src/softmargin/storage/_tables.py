"""Tables of pandas and sparse matrices as nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from softmargin.exceptions import SavedFileError

__all__ = ["is_table", "table_from", "table_node"]

_SPARSE = {kind.__name__: kind for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix)}
_MASKED = {"Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64", "boolean"}


def is_table(thing: Any) -> bool:
    """Whether there is a node for it here."""
    return isinstance(thing, pd.DataFrame | pd.Series | pd.Index) or bool(sp.issparse(thing))


def table_node(records: Any, thing: Any) -> dict[str, Any]:
    """A table as its columns, a sparse matrix as its three arrays."""
    if not isinstance(thing, pd.DataFrame | pd.Series | pd.Index):
        thing = thing if type(thing).__name__ in _SPARSE else thing.tocsr()
        parts = records.values((thing.data, thing.indices, thing.indptr))
        return {"kind": "sparse", "class": type(thing).__name__, "shape": list(thing.shape), "items": parts}
    if isinstance(thing, pd.MultiIndex):
        levels = [records.value(level.rename(None)) for level in thing.levels]  # their names come with the whole
        codes = [records.value(np.asarray(code)) for code in thing.codes]
        names = records.values(thing.names)
        return {"kind": "index", "form": "levels", "levels": levels, "codes": codes, "names": names}
    if isinstance(thing, pd.RangeIndex):
        ends = [thing.start, thing.stop, thing.step]
        return {"kind": "index", "form": "range", "ends": ends, "name": records.value(thing.name)}
    if isinstance(thing, pd.Index):
        return {"kind": "index", "form": "values", **_column(records, thing), "name": records.value(thing.name)}
    if isinstance(thing, pd.Series):
        name, index = records.value(thing.name), records.value(thing.index)
        return {"kind": "series", **_column(records, thing), "name": name, "index": index}
    columns = [_column(records, thing.iloc[:, j]) for j in range(thing.shape[1])]
    return {
        "kind": "frame",
        "index": records.value(thing.index),
        "names": records.value(thing.columns),
        "columns": columns,
    }


def _column(records: Any, column: Any) -> dict[str, Any]:
    """The values of a column or index, and what pandas makes of them."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        values = column.array
        made = {"categories": values.categories, "codes": np.asarray(values.codes), "ordered": bool(values.ordered)}
        return {"dtype": "category", "values": records.value(made)}
    if isinstance(dtype, np.dtype):
        return {"dtype": "numpy", "values": records.value(column.to_numpy())}
    if isinstance(dtype, pd.StringDtype):
        letters = [None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]
        return {"dtype": "text", "values": records.value(letters)}
    if str(dtype) in _MASKED:
        missing = np.asarray(column.isna())
        filled = column.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.type(0))
        return {"dtype": str(dtype), "values": records.value([filled, missing])}
    raise SavedFileError(f"save does not know columns of {dtype}; pickle and joblib do.")


def table_from(decoder: Any, kind: str, node: dict[str, Any]) -> Any:
    """The table or sparse matrix of a node."""
    if kind == "sparse":
        return _sparse(decoder, **{"class_": node.pop("class"), **node})
    if kind == "frame":
        return _frame(decoder, **node)
    if kind == "series":
        index, name = decoder.value(node.pop("index")), decoder.value(node.pop("name"))
        return pd.Series(_values(decoder, **node), index=_indexed(index), name=name)
    return _INDEXES[node.pop("form")](decoder, **node)


def _sparse(decoder: Any, class_: Any, shape: Any, items: Any) -> Any:
    made = _SPARSE[class_](tuple(decoder.values(items)), shape=tuple(shape))
    made.check_format(full_check=True)  # compiled products look up places without asking
    return made


def _frame(decoder: Any, index: Any, names: Any, columns: Any) -> pd.DataFrame:
    rows, heads = _indexed(decoder.value(index)), _indexed(decoder.value(names))
    made = [pd.Series(_values(decoder, **column), index=rows) for column in columns]
    frame = pd.concat(made, axis=1) if made else pd.DataFrame(index=rows)
    frame.columns = heads
    return frame


def _indexed(thing: Any) -> pd.Index:
    if not isinstance(thing, pd.Index):
        raise TypeError("no index")
    return thing


def _values(decoder: Any, dtype: Any, values: Any) -> Any:
    """The values of a column as pandas has them."""
    found = decoder.value(values)
    if dtype == "numpy":
        if not isinstance(found, np.ndarray) or found.ndim != 1:
            raise TypeError("no column")
        return found
    if dtype == "text":
        if type(found) is not list or not all(word is None or type(word) is str for word in found):
            raise TypeError("texts that are none")
        return pd.array(found, dtype="str")
    if dtype == "category":
        parts = dict(found)
        return pd.Categorical.from_codes(parts["codes"], parts["categories"], ordered=parts["ordered"])
    if dtype not in _MASKED:
        raise ValueError("a column of another type")
    filled, missing = found
    column = pd.array(filled, dtype=dtype)
    column[missing] = pd.NA
    return column


def _levels(decoder: Any, levels: Any, codes: Any, names: Any) -> pd.Index:
    found = decoder.values(levels)
    if any(_indexed(level).name is not None for level in found):
        raise ValueError("levels with names of their own")
    return pd.MultiIndex(found, decoder.values(codes), names=decoder.values(names))


def _range(decoder: Any, ends: Any, name: Any) -> pd.Index:
    start, stop, step = ends
    if len(range(start, stop, step)) > decoder.size:
        raise ValueError("more rows than the file can hold")
    return pd.RangeIndex(start, stop, step, name=decoder.value(name))


def _plain(decoder: Any, dtype: Any, values: Any, name: Any) -> pd.Index:
    found = _values(decoder, dtype, values)
    own = found.dtype if isinstance(found, np.ndarray) else None
    return pd.Index(found, dtype=own, name=decoder.value(name))


_INDEXES: dict[str, Any] = {"levels": _levels, "range": _range, "values": _plain}
