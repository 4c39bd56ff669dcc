"""Objects as records: a list of nodes in JSON, each made of values and of nodes before it, and arrays beside it.

A value is None, a bool, an int, a finite float, a str, ``{"float": "nan"}`` or ``{"at": 3}``: the node of that number.
Nodes refer to earlier ones alone, so that they are built one after the other, and objects that are shared stay so.
Which classes may be among them says a table.
"""

from __future__ import annotations

import math
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from softmargin.exceptions import SavedFileError
from softmargin.storage._arrays import array_from, array_node, plain
from softmargin.storage._tables import is_table, table_from, table_node

__all__ = ["Form", "Records", "Table", "decoded", "encoded"]

_SIMPLE = (type(None), bool, int, str)
_RAGGED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_ROWS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
_KEYS, _BUFFER = 624, 4  # numbers that a Mersenne twister and a Philox generator have at hand
_BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


class Form(NamedTuple):
    """How an object of a class is taken apart and put together."""

    parts: Any  # from an object to a dict
    whole: Any  # from a dict to an object


class Table:
    """What may be written beside numbers, texts and arrays: nothing, unless a table of its own says so."""

    def name_of(self, thing: Any, kind: Any) -> str | None:
        """The name of an object's class, or of a function, if there is one."""
        return None

    def form_of(self, name: str) -> Form:
        """How objects of the class of that name are written."""
        raise KeyError(name)

    def function(self, name: str) -> Any:
        """The function of that name."""
        raise KeyError(name)

    def known(self, thing: Any) -> str | None:
        """The name of an object that whoever reads the records has, and that is not written."""
        return None

    def recalled(self, name: str) -> Any:
        """The object of that name."""
        raise KeyError(name)


class Records:
    """Nodes and arrays of one object, gathered while it is taken apart."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.nodes: list[dict[str, Any]] = []
        self.arrays: list[Any] = []
        self._known: dict[int, tuple[int, Any]] = {}  # the object too: another one must not get its address
        self._open: list[int] = []

    def value(self, thing: Any) -> Any:
        """The value that stands for a thing, with nodes for all that it is made of."""
        if type(thing) in _SIMPLE:
            return thing
        if type(thing) is float:
            return thing if math.isfinite(thing) else {"float": str(thing)}
        if id(thing) in self._known:
            return {"at": self._known[id(thing)][0]}
        if id(thing) in self._open:
            raise SavedFileError(f"{type(thing).__name__} contains itself, which a saved file cannot; pickle works.")
        self._open.append(id(thing))
        node = self._node(thing)
        self._open.pop()
        self.nodes.append(node)
        self._known[id(thing)] = len(self.nodes) - 1, thing
        return {"at": len(self.nodes) - 1}

    def values(self, things: Any) -> list[Any]:
        """The values of several things."""
        return [self.value(thing) for thing in things]

    def section(self, array: Any) -> int:
        """Keep an array's numbers; return which one it is."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def _node(self, thing: Any) -> dict[str, Any]:
        known, kind = self.table.known(thing), type(thing)
        if known is not None:
            return {"kind": "known", "name": known}
        if kind.__name__ in _ROWS and kind is _ROWS[kind.__name__]:
            return {"kind": kind.__name__, "items": self.values(thing)}
        if kind in (dict, MappingProxyType):
            return {"kind": "dict", "items": [self.values(pair) for pair in thing.items()]}
        if kind is slice:
            return {"kind": "slice", "items": self.values((thing.start, thing.stop, thing.step))}
        if thing is ...:
            return {"kind": "ellipsis"}
        if isinstance(thing, np.ndarray | np.generic):
            return array_node(self, thing)
        if is_table(thing):
            return table_node(self, thing)
        if kind in (np.random.Generator, np.random.RandomState):
            return _generator_node(self, thing)
        function = isinstance(thing, FunctionType)
        own = thing if function else kind
        name = self.table.name_of(thing, own)
        if name is None:
            where = f"{own.__module__}.{own.__qualname__}"
            raise SavedFileError(f"save does not know {where}; pickle and joblib save models with objects of your own.")
        if function:
            return {"kind": "function", "name": name}
        parts = self.table.form_of(name).parts(thing)
        return {"kind": "record", "class": name, "fields": {key: self.value(part) for key, part in parts.items()}}


def _generator_node(records: Records, thing: Any) -> dict[str, Any]:
    """A generator of random numbers, in its present state."""
    if isinstance(thing, np.random.RandomState):
        state: Any = thing.get_state(legacy=False)
    else:
        state = thing.bit_generator.state
    return {"kind": "generator", "legacy": isinstance(thing, np.random.RandomState), "state": records.value(state)}


def encoded(thing: Any, table: Table) -> tuple[dict[str, Any], list[Any]]:
    """An object as nodes that JSON can hold, and its arrays."""
    records = Records(table)
    root = records.value(thing)
    return {"root": root, "nodes": records.nodes}, records.arrays


class _Decoder:
    """Builds nodes one after the other."""

    def __init__(self, sections: list[Any], size: int, table: Table):
        self.sections, self.table = sections, table
        self.size = size  # more rows than this no table can have
        self.built: list[Any] = []
        self.used: set[int] = set()
        self.taken: set[int] = set()

    def value(self, value: Any) -> Any:
        """The thing that a value stands for."""
        if type(value) in _SIMPLE or type(value) is float:
            return value
        ((key, what),) = value.items()
        if key == "float":
            return _RAGGED[what]
        if key != "at" or type(what) is not int or not 0 <= what < len(self.built):
            raise ValueError("a value that stands for nothing")
        self.used.add(what)
        return self.built[what]

    def values(self, values: Any) -> list[Any]:
        """The things that several values stand for."""
        if type(values) is not list:
            raise TypeError("values that are no list")
        return [self.value(value) for value in values]

    def section(self, number: Any) -> Any:
        """The bytes of an array, each once."""
        if type(number) is not int or not 0 <= number < len(self.sections) or number in self.taken:
            raise ValueError("an array that is not there")
        self.taken.add(number)
        return self.sections[number]

    def build(self, node: Any) -> Any:
        """The thing that a node describes."""
        node = dict(node)
        kind = node.pop("kind")
        if kind in _ROWS:
            items = self.values(*_only(node, "items"))
            return _all_of(items, _ROWS[kind](items))
        if kind == "dict":
            (items,) = _only(node, "items")
            if type(items) is not list:
                raise TypeError("entries that are no list")
            pairs = [(key, value) for key, value in map(self.values, items)]
            return _all_of(pairs, dict(pairs))
        if kind == "slice":
            start, stop, step = self.values(*_only(node, "items"))
            return slice(plain(start), plain(stop), plain(step))
        if kind == "ellipsis":
            return ...
        if kind == "generator":
            return self._generator(*_only(node, "legacy", "state"))
        if kind == "function":
            return self.table.function(_text(*_only(node, "name")))
        if kind == "known":
            return self.table.recalled(_text(*_only(node, "name")))
        if kind == "record":
            name, fields = _only(node, "class", "fields")
            parts = {key: self.value(value) for key, value in fields.items()}
            return self.table.form_of(_text(name)).whole(parts)
        made = table_from if kind in ("frame", "series", "index", "sparse") else array_from
        return made(self, kind, node)

    def _generator(self, legacy: Any, state: Any) -> Any:
        found = self.value(state)
        places = found["state"].get("pos", 0), found.get("buffer_pos", 0)  # looked up without asking
        if found["bit_generator"] not in _GENERATORS or not (0 <= places[0] <= _KEYS and 0 <= places[1] <= _BUFFER):
            raise ValueError("a generator that is not known")
        if legacy:
            made = np.random.RandomState()
            made.set_state(found)
            return made
        bits = getattr(np.random, found["bit_generator"])()
        bits.state = found
        return np.random.Generator(bits)


def _only(node: dict[str, Any], *names: str) -> tuple[Any, ...]:
    """The entries of a node, which must have these and no others."""
    if set(node) != set(names):
        raise ValueError("a node of another form")
    return tuple(node[name] for name in names)


def _all_of(items: list[Any], made: Any) -> Any:
    """A collection, which must have no fewer entries than were given."""
    if len(made) < len(items):
        raise ValueError("entries that repeat each other")
    return made


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name that is no text")
    return value


def decoded(records: Any, sections: list[Any], size: int, table: Table) -> Any:
    """The object that nodes and arrays of ``size`` bytes stand for; a ``ValueError`` says which node is none."""
    decoder = _Decoder(sections, size, table)
    place = "the records"
    try:
        root, nodes = _only(records, "root", "nodes")
        for number, node in enumerate(nodes):
            place = f"record {number}"
            decoder.built.append(decoder.build(node))
        place = "the last record"
        thing = decoder.value(root)
        if len(decoder.used) < len(nodes) or len(decoder.taken) < len(sections):
            raise ValueError("records that nothing refers to")
    except _BROKEN as error:
        raise ValueError(place) from error
    return thing
