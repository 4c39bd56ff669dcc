"""States of engines as records: objects of this package as their attributes, rows' vectors as they were fetched.

What the model has, and arrays of the first state of a run, are not written: whoever goes on makes them anew. Objects
are always written, with all that they have computed so far: whether they have may decide about last bits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from softmargin.storage.records import Form, Table

__all__ = ["States"]

_PACKAGE = "softmargin."
_KEPT = "kept"
_SIMPLE = (type(None), bool, int, float, str)


class States(Table):
    """What a state may be made of.

    Parameters
    ----------
    parts : dict
        Parts of the model by name.
    first : Any
        The first state of the run.
    handle : type
        Of vectors that are kept with the rows.
    place : function
        Leaves such vectors with the rows.
    whole : type
        Of objects in the first state that are not written either: models.
    """

    def __init__(self, parts: Mapping[str, Any], first: Any, handle: Any, place: Callable[[Any], Any], whole: Any):
        self._handle, self._place, self._whole = handle, place, whole
        self._objects = {name: part for name, part in parts.items() if part is not None}
        self._names = {id(part): name for name, part in self._objects.items()}
        for name, thing in self._inside("first", first):
            if id(thing) not in self._names:
                self._names[id(thing)], self._objects[name] = name, thing

    def _inside(self, name: str, thing: Any) -> Iterator[tuple[str, Any]]:
        """Arrays that a thing is made of, with names that are the same each time; vectors over rows do not last."""
        if id(thing) in self._names or isinstance(thing, (self._handle, *_SIMPLE)):
            return
        parts: Any = None
        if isinstance(thing, tuple | list):
            parts = enumerate(thing)
        elif isinstance(thing, Mapping):
            parts = thing.items()
        elif _ours(type(thing)) and not isinstance(thing, self._whole):
            parts = vars(thing).items()
        else:
            yield name, thing
        for key, part in parts or ():
            yield from self._inside(f"{name}.{key}", part)

    def known(self, thing: Any) -> str | None:
        return self._names.get(id(thing))

    def recalled(self, name: str) -> Any:
        return self._objects[name]

    def name_of(self, thing: Any, kind: Any) -> str | None:
        if isinstance(thing, self._handle):
            return _KEPT
        return f"{kind.__module__}:{kind.__qualname__}" if _ours(kind) else None

    def form_of(self, name: str) -> Form:
        if name == _KEPT:
            return Form(lambda kept: {"vectors": kept.fetch()}, lambda parts: self._place(parts["vectors"]))
        kind = _resolved(name)
        if not isinstance(kind, type):
            raise ValueError(f"{name} is no class")
        if issubclass(kind, tuple):
            return Form(lambda thing: thing._asdict(), lambda parts: kind(**parts))
        return Form(vars, lambda parts: _made(kind, parts))

    def function(self, name: str) -> Any:
        found = _resolved(name)
        if not isinstance(found, FunctionType):
            raise ValueError(f"{name} is no function")
        return found


def _ours(kind: Any) -> bool:
    """Whether a class or function is one of this package that has a name in its module."""
    return kind.__module__.startswith(_PACKAGE) and "." not in kind.__qualname__


def _resolved(name: str) -> Any:
    """The class or function of a name."""
    module, _, own = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{name} is not of this package")
    found = vars(importlib.import_module(module))[own]
    if found.__module__ != module:
        raise ValueError(f"{name} is not at home there")
    return found


def _made(kind: type, parts: dict[str, Any]) -> Any:
    thing: Any = object.__new__(kind)
    vars(thing).update(parts)
    return thing
