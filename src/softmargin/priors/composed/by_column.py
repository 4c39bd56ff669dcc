"""A prior for every column, group of columns or term of a formula: which columns are whose, and all of them joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from softmargin.core.array import Flags
from softmargin.core.prior import Prior
from softmargin.priors.composed.terms import BoundTerms, Part
from softmargin.priors.scaled import Centred
from softmargin.refusals import refused

__all__ = ["PriorByColumn"]

_WILD = "*?"


@dataclass(frozen=True)
class PriorByColumn(Prior):
    """Priors by columns: ``{"age": Ridge(0.5), "gene_*": SpikeSlab(), ...: Ridge()}``.

    A key is the name or position of a column, a pattern with ``*`` or ``?``, the name of a factor or term whose columns
    are ``name[...]``, a tuple of these, or ``...`` for all columns that are left. Names come before patterns, and an
    earlier pattern before a later one. The intercept goes with the part that can leave columns out, or with the rest.
    Each part learns a scale of its own; ``scale_`` is that of the part with the intercept.
    """

    entries: Mapping[Any, Any]  # keys as the user gave them, and prior objects

    def bind(self, free: Flags, rows: int | None = None) -> Any:  # type: ignore[override]
        """Refuse: parts need to know which coefficients are whose."""
        raise ValueError("priors by column need columns; use them in BayesianSVC, BayesianSVR or Formula.")

    @property
    def centred(self) -> bool:  # type: ignore[override]
        """Whether one of the priors has means."""
        return any(prior.centred for prior in self.entries.values())

    def in_units(self, spread: float) -> PriorByColumn:
        """The same priors of a response divided by ``spread``."""
        return PriorByColumn({key: prior.in_units(spread) for key, prior in self.entries.items()})

    @property
    def selects(self) -> bool:  # type: ignore[override]
        """Whether one of the priors can leave columns out."""
        return any(_selects(prior) for prior in self.entries.values())

    def owners(self, names: Any, count: int) -> list[Any]:
        """The key that every one of the ``count`` columns belongs to."""
        called = [str(j) for j in range(count)] if names is None else [str(name) for name in names]
        own: list[Any] = [None] * count
        for exact in (True, False):
            for key in self.entries:
                if key is not Ellipsis:
                    for one in key if isinstance(key, tuple) else (key,):
                        for j in _matched(one, called, named=names is not None, exact=exact):
                            own[j] = key if own[j] is None else own[j]
        left = [j for j in range(count) if own[j] is None]
        if left and Ellipsis not in self.entries:
            raise ValueError(
                f"{len(left)} columns have no prior, {called[left[0]]!r} first; add ...: Ridge() to the dict for the "
                "columns that are left."
            )
        return [Ellipsis if key is None else key for key in own]

    def of_columns(self, free: Flags, rows: int | None, columns: Any, names: Any) -> Any:
        """The priors on the model's coefficients, which are the intercept and the columns ``columns.keep``."""
        owners = self.owners(names, columns.n_features)
        lead = int(columns.intercept)
        whose = [owners[j] for j in columns.keep]
        used = [key for key in self.entries if key in whose] or [next(iter(self.entries))]
        chosen = [key for key in used if _selects(self.entries[key])]
        if len(chosen) > 1:
            raise ValueError(
                f"the priors of {chosen[0]!r} and {chosen[1]!r} both leave columns out, and one in a dict may: put "
                "their columns under one key, or give one of them Ridge() or Horseshoe()."
            )
        means = [key for key in used if self.entries[key].centred]
        if chosen and means:
            raise ValueError(refused("means beside point masses", key=repr(means[0]), other=repr(chosen[0])))
        first = chosen[0] if chosen else Ellipsis if Ellipsis in used else used[0]
        places = {key: [lead + i for i, owner in enumerate(whose) if owner == key] for key in used}
        places[first] = [*range(lead), *places[first]]
        parts = []
        for key in used:
            own = columns.only([j for j in range(columns.n_features) if owners[j] == key], intercept=key == first)
            called = None if names is None else [names[j] for j in range(columns.n_features) if owners[j] == key]
            where = np.array(places[key], dtype=np.intp)
            parts.append(self._part(key, where, free, rows, key == first, own, called))
        if len(parts) == 1:
            return parts[0].prior
        parts.sort(key=lambda part: len(part.labels))  # the first has no label
        return BoundTerms(tuple(parts), len(free), None)

    def _part(self, key: Any, where: Any, free: Flags, rows: int | None, first: bool, columns: Any, names: Any) -> Part:
        prior = self.entries[key]
        if _selects(prior) and len(prior.always_include):
            raise ValueError(f"the prior of {key!r} has always_include; give those columns a key of their own instead.")
        bound = (prior.prior if isinstance(prior, Centred) else prior).bind(free[where], rows)
        if isinstance(prior, Centred):
            bound = prior.around(bound, columns, names)
        if first:
            return Part((), where, slice(0, 0), bound, not free[where].all())
        if set(bound.start().values) != {"scale"} or bound.only_draws:
            raise ValueError(
                f"the prior of {key!r}, {prior!r}, learns more than a scale and may stand beside no other; use Ridge, "
                "Lasso, Bridge with a number for alpha, or Horseshoe."
            )
        label = "the rest" if key is Ellipsis else ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
        return Part((f"scale({label})",), where, slice(0, 0), bound)


def _selects(prior: Any) -> bool:
    """Whether a prior as the user states it has point masses."""
    return bool(prior.point_masses)


def _matched(key: Any, names: list[str], *, named: bool, exact: bool) -> Iterator[int]:
    """Positions of the columns that a key means, by name or, where not ``exact``, by pattern."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not -len(names) <= key < len(names):
            raise ValueError(f"prior has the column {key}, and X has {len(names)} columns.")
        if exact:
            yield int(key) % len(names)
        return
    if not isinstance(key, str):
        raise ValueError(
            f"a key of prior is a column's name or position, a pattern, a tuple of these or ...; got {key!r}."
        )
    wild = any(sign in key for sign in _WILD) and key not in names
    if wild == exact:
        return
    found = [j for j, name in enumerate(names) if (fnmatchcase(name, key) if wild else name == key)]
    found = found or [j for j, name in enumerate(names) if not wild and name.startswith(f"{key}[")]
    if not found or not named:
        such = "" if named else ", whose columns have no names: use positions, or a data frame"
        raise ValueError(f"prior has the key {key!r}, which no column of X matches{such}.")
    yield from found
