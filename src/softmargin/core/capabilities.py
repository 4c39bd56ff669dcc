"""What a part may offer, the one check that parts fit together, and parameters of parts by name.

Every kind of part has one base class (``Loss``, ``Prior`` and ``PriorBase``, ``Design``, ``Solver``, ``Space``,
``Root``, ``Unknown``), which declares all that a part of this kind may offer: methods that each part has, answers that
hold unless a part says otherwise, and methods marked ``optional``, which are there only where a part writes them.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from inspect import get_annotations
from typing import Any, ClassVar, Self, TypeVar

from softmargin.refusals import refused

__all__ = ["Parameters", "Part", "nested", "optional", "require"]

Method = TypeVar("Method")
_NOT_OFFERED = "_not_offered"


def optional(method: Method) -> Method:
    """Declare a method of a kind of part that a part need not have: it has a signature and a docstring, and no body."""
    setattr(method, _NOT_OFFERED, True)
    return method


class Part:
    """A part of a model, that says what it offers.

    What the base class of a kind declares as ``optional``, or annotates without giving it a value, is taken off it: it
    exists only in the parts that have it, and ``declared`` has its name and what is said of it.
    """

    declared: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Part not in cls.__bases__:
            return
        own = {name: (each.__doc__ or "").strip() for name, each in vars(cls).items() if hasattr(each, _NOT_OFFERED)}
        for name in own:
            delattr(cls, name)
        bare = [name for name in get_annotations(cls) if name not in vars(cls)]
        cls.declared = dict.fromkeys(bare, "") | own

    def offers(self, *names: str) -> bool:
        """Whether the part has all of these methods, or says yes to all of these questions."""
        return all(getattr(self, name, None) for name in names)


def require(consumer: Any, **parts: Any) -> None:
    """Check before the loop that the parts can do what an engine or solver declares that it needs.

    A consumer lists the names that it needs of its parts in ``needs_loss``, ``needs_prior`` and ``needs_design``.
    """
    for kind, part in parts.items():
        for name in getattr(consumer, f"needs_{kind}", ()):
            if part is None or not part.offers(name):
                names = {"consumer": type(consumer).__name__, "kind": kind, "name": name, "part": type(part).__name__}
                raise TypeError(refused("a part without what is needed", **names))


def nested(params: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Parameters of parts, ``{"prior__scale": 1}``, by the name of the part: ``{"prior": {"scale": 1}}``."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in params.items():
        part, _, own = name.partition("__")
        found.setdefault(part, {})[own] = value
    return found


class Parameters:
    """A part whose parameters are the fields of a dataclass; it does not change, so ``set_params`` gives another one.

    An estimator with such a part takes its parameters under the part's name, as in ``prior__scale``.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with ``deep`` also those of parts among them, as ``hyperprior__scale``."""
        names: list[str] = [each.name for each in fields(self) if each.init] if is_dataclass(self) else []
        params = {name: vars(self)[name] for name in names}
        if deep:
            parts = {name: value for name, value in params.items() if isinstance(value, Parameters)}
            for name, part in parts.items():
                params |= {f"{name}__{own}": value for own, value in part.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """The same part with other parameters."""
        known, part = self.get_params(deep=False), type(self).__name__
        changed: dict[str, Any] = {}
        for name, own in nested(params).items():
            if name not in known:
                raise ValueError(f"{part} has no parameter {name!r}; it has {', '.join(known) or 'none'}.")
            value = own.pop("", known[name])
            if own and not isinstance(value, Parameters):
                raise ValueError(f"{part} takes {name}__{next(iter(own))} where {name} is a part; it is {value!r}.")
            changed[name] = value.set_params(**own) if own else value
        return replace(self, **changed) if changed else self  # type: ignore[type-var]
