"""Parameters of parts by name, as scikit-learn asks for them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

__all__ = ["Parameters", "nested"]


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
        params = {name: getattr(self, name) for name in names}
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
