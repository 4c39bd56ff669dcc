"""Losses written as scalar formulas of one row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loss import Loss, Message, Rows
from softmargin.losses.formulas.averages import average_formula, average_loop, derivative_loop
from softmargin.refusals import refused
from softmargin.rows.loops import RowFormula, arguments_of, at_row, elsewhere, multiples_loop, row_loop

__all__ = ["RowLoss", "check_whole_weights"]

_COPIES = 1e6  # of rows at most where weights are drawn as copies: more take seconds per sweep and gigabytes
_RECORDS: dict[str, tuple[Any, int]] = {  # what a face returns, and of how many arrays
    "loglik": (np.asarray, 1),
    "score": (np.asarray, 1),
    "expect": (Message, 3),
    "gaussian": (Message, 3),
    "draw": (Rows, 2),
}
_FLOAT, _STEP = np.dtype(np.float64), (8,)
_NONE = np.zeros(0)
_PER_ROW = ("y", "c", "f", "v")
_RANDOM: dict[str, Callable[[Any, int], Any]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "uniform": lambda rng, size: rng.random(size),
}


class RowLoss(Loss):
    """A loss whose author writes short scalar functions of one row, compiled into loops over rows.

    Each is a static method, and its arguments say what it is given: ``y``, ``c``, ``f``, ``v`` are the response,
    weight, mean and variance of the row; names that begin with ``normal`` or ``uniform`` are random numbers, one each
    per row; ``rng`` is a generator, for variates that need rejection; every other name is an attribute of the loss,
    such as a field of the dataclass, as a float. They may call functions of ``math``, and functions decorated with
    ``softmargin.losses.scalar``.

    - ``loglik(y, c, f)`` gives ``c l(y, f)`` and ``score(y, c, f)`` its derivative in f;
    - ``expect(y, c, f, v)`` gives ``(w, b, bound)``: the message with the latent averaged over its optimal density;
    - ``gaussian(y, c, f, v)`` gives ``(-E c l'', E c l' + w f, E c l)`` under f ~ N(f, v);
    - ``draw(y, c, f, normal, uniform)`` gives the message ``(w, b)`` of a latent drawn given f.

    In place of the first two and ``gaussian`` there may be ``derivatives(y, f)``, which gives ``(l, l', -l'')``, and
    ``bends(y)``, which gives a tuple of the predictors around which the loss bends and the length over which it does
    so; averages are then made by quadrature, to about 1e-11. What is left out does not exist: an engine that needs it
    says so. ``softmargin.checks.check_loss`` verifies a loss.

    Examples
    --------
    Errors of a heavy-tailed law, ``l = -sqrt(1 + (y - f)^2)``, which is a normal with an inverse Gaussian precision:

    >>> import math
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from softmargin.checks import check_loss
    >>> from softmargin.losses import RowLoss
    >>> @dataclass(frozen=True)
    ... class Hyperbolic(RowLoss):
    ...     scale: float = 1.0
    ...
    ...     @staticmethod
    ...     def derivatives(y, f, scale):
    ...         e = (y - f) / scale
    ...         root = math.sqrt(1.0 + e * e)
    ...         return -root, e / (scale * root), 1.0 / (scale * scale * root**3)
    ...
    ...     @staticmethod
    ...     def bends(y, scale):
    ...         return (y,), 0.4 * scale
    ...
    ...     @staticmethod
    ...     def expect(y, c, f, v, scale):
    ...         root = math.sqrt(1.0 + ((y - f) ** 2 + v) / scale**2)
    ...         w = c / (scale * scale * root)
    ...         return w, w * y, -c * root
    ...
    ...     @staticmethod
    ...     def draw(y, c, f, normal, uniform, scale):
    ...         mean, half = c * math.sqrt(1.0 + ((y - f) / scale) ** 2), 0.5 * normal * normal
    ...         large = mean + half + math.sqrt(half * (2.0 * mean + half))
    ...         latent = large if uniform * (large + mean) <= large else mean * (mean / large)
    ...         return c * c / (scale * scale * latent), c * c * y / (scale * scale * latent)
    >>> check_loss(Hyperbolic(2.0), responses=(0.2, -3.0))
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {name: each.__func__ for name, each in cls.__dict__.items() if isinstance(each, staticmethod)}
        for name, (record, results) in _RECORDS.items():
            if build := _builder(f"{cls.__qualname__}.{name}", name, own, results):
                formula = partial(_formula, f"{cls.__qualname__}.{name}", name, own, results)
                face = _Face(build, record, results, formula)
                setattr(cls, name, _draws(face) if name == "draw" else _averages(face))
                if name == "loglik":
                    cls.loglik_along = _multiples(face)  # type: ignore[method-assign]
            elif name == "loglik" and name in cls.__dict__:  # written for arrays
                cls.loglik_along = Loss.loglik_along  # type: ignore[method-assign]


def _builder(label: str, name: str, own: dict[str, Any], results: int) -> Callable[[], Any] | None:
    """What makes the loop of a face from the formulas that a class has, with the names of its arguments."""
    if name in own:
        return partial(_direct, label, own[name], results)
    if name in ("loglik", "score") and "derivatives" in own:
        return partial(derivative_loop, label, own["derivatives"], ("loglik", "score").index(name))
    if name == "gaussian" and "derivatives" in own and "bends" in own:
        return partial(average_loop, label, own["derivatives"], own["bends"])
    return None


def _formula(label: str, name: str, own: dict[str, Any], results: int) -> RowFormula | None:
    """The same for those who write loops of their own."""
    if name in own:
        names = arguments_of(own[name])
        per_row = _by_row(names)
        return RowFormula(
            label, names, per_row, f"_formula({at_row(names, per_row)})", {"_formula": own[name]}, results
        )
    if name in ("loglik", "score") and "derivatives" in own:
        names = arguments_of(own["derivatives"])
        call = f"c[_i] * _derivatives({at_row(names, ('y', 'f'))})[{('loglik', 'score').index(name)}]"
        return RowFormula(label, ("c", *names), ("c", "y", "f"), call, {"_derivatives": own["derivatives"]}, results)
    if name == "gaussian" and "derivatives" in own and "bends" in own:
        return average_formula(label, own["derivatives"], own["bends"])
    return None


def _by_row(names: tuple[str, ...]) -> tuple[str, ...]:
    """Which arguments have a number per row."""
    return tuple(each for each in names if each in _PER_ROW or each.startswith(tuple(_RANDOM)))


def _direct(label: str, formula: Any, results: int) -> tuple[tuple[str, ...], Any]:
    names = arguments_of(formula)
    return names, row_loop(label, formula, _by_row(names), results)


class _Face:
    """A loop over rows as a function of a loss and its rows, made when it is first called."""

    _lock = threading.Lock()

    def __init__(self, build: Callable[[], Any], record: Any, results: int, formula: Callable[[], Any]) -> None:
        self.build, self.record, self.results, self.formula = build, record, results, formula
        self.made: tuple[list[Any], Any, Any] | None = None
        self.along: tuple[list[Any], Any] | None = None
        self.kernel: RowFormula | None = None  # the formula, where others have asked for it

    def __reduce__(self) -> Any:
        return _Face, (self.build, self.record, self.results, self.formula)

    def _make(self) -> tuple[list[Any], Any, Any]:
        with self._lock:  # threads that meet here would compile it twice
            if self.made is None:
                names, loop = self.build()
                take = _arguments(names)
                pick = itemgetter(*take) if set(map(type, take)) == {int} and len(take) > 1 else None
                self.made = take, loop, pick
            return self.made

    def of_rows(self, loss: Any, rng: Any, rows: Any) -> Any:
        """The answers of the rows: arrays y, c, f and perhaps v."""
        take, loop, pick = self.made or self._make()
        shape = None
        if not _plain(rows):
            if (runner := elsewhere(rows)) is not None:
                return self._elsewhere(runner, loss, rng, rows)
            rows, shape = _flat(rows)
        size = len(rows[2])
        out = [*map(np.empty, (size,) * self.results)]
        # arguments that are rows alone, as they mostly are, are far sooner picked all at once
        loop(*(_given(take, loss, rng, rows) if pick is None else pick(rows)), *out)
        return self.record(*(out if shape is None else [each.reshape(shape) for each in out]))

    def multiples(self, loss: Any, y: Any, c: Any, factors: Any, along: Any, *fixed: Any) -> Any:
        """The answers at multiples of predictors, to which others may be added: a matrix of one row per multiple."""
        if not _plain((y, c, along, *fixed)):
            return Loss.loglik_along(loss, y, c, factors, along, *fixed)
        if self.along is None:
            with self._lock:
                self.along = self.along or self._make_along()
        take, loop = self.along
        rows, size = (y, c), len(along)
        out = np.empty((len(factors), size))
        given = [rows[at] if type(at) is int else at(loss, None, size) for at in take]
        loop(*given, along, fixed[0] if fixed else _NONE, np.array(factors, dtype=float), out)
        return out

    def _make_along(self) -> tuple[list[Any], Any]:
        formula: Any = self.formula()
        return _arguments(tuple(name for name in formula.names if name != "f")), multiples_loop(formula)

    def _elsewhere(self, runner: Any, loss: Any, rng: Any, rows: Any) -> Any:
        """The answer of rows that are on a device."""
        with self._lock:
            formula = self.kernel = self.kernel or self.formula()
        if formula is None or "rng" in formula.names:
            raise ValueError(refused("formula on a device", loss=type(loss).__name__))
        others = {name: _other(name) for name in formula.names if name not in _PER_ROW}
        size = len(rows[2])
        given = [
            rows[_PER_ROW.index(name)] if name in _PER_ROW else others[name](loss, rng, size) for name in formula.names
        ]
        found = runner(formula, size, given)
        return found[0] if self.results == 1 else self.record(*found)


def _arguments(names: tuple[str, ...]) -> list[Any]:
    """Where each argument is among the rows, or what makes it."""
    return [_PER_ROW.index(name) if name in _PER_ROW else _other(name) for name in names]


def _given(take: list[Any], loss: Any, rng: Any, rows: Any) -> list[Any]:
    """The arguments of a loop over rows y, c, f and perhaps v."""
    return [rows[at] if type(at) is int else at(loss, rng, len(rows[2])) for at in take]


def _other(name: str) -> Callable[[Any, Any, int], Any]:
    """What an argument is that is not a row's, as a function of the loss, the generator and the number of rows."""
    if name == "rng":
        return lambda loss, rng, size: rng
    for start, numbers in _RANDOM.items():
        if name.startswith(start):
            return lambda loss, rng, size: numbers(rng, size)
    field = attrgetter(name)
    return lambda loss, rng, size: float(field(loss))


def _plain(rows: Any) -> bool:
    """Whether the loops take the rows as they are: flat arrays of doubles, of one length."""
    size = rows[0].size if type(rows[0]) is np.ndarray else 0
    for each in rows:
        if type(each) is not np.ndarray or each.dtype is not _FLOAT or each.strides != _STEP or each.size != size:
            return False
    return True


def _flat(rows: Any) -> tuple[Any, tuple[int, ...]]:
    """Numbers of any kind and shape as flat arrays of one length, and the shape that they have together."""
    rows = np.broadcast_arrays(*[np.asarray(each, dtype=np.float64) for each in rows])
    return [np.array(each).ravel() for each in rows], rows[0].shape


def _averages(face: _Face) -> Callable[..., Any]:
    if face.record is Message:
        return lambda self, y, c, f, v: face.of_rows(self, None, (y, c, f, v))
    return lambda self, y, c, f: face.of_rows(self, None, (y, c, f))


def _multiples(face: _Face) -> Callable[..., Any]:
    return lambda self, y, c, factors, along, *fixed: face.multiples(self, y, c, factors, along, *fixed)


def _draws(face: _Face) -> Callable[..., Any]:
    def draw(self: RowLoss, rng: np.random.Generator, y: Array, c: Array, f: Array) -> Rows:
        if self.whole_weights:
            check_whole_weights(self, c)
        rows: Rows = face.of_rows(self, rng, (y, c, f))
        return rows

    return draw


def check_whole_weights(loss: Loss, c: Array) -> None:
    """Refuse fractional weights, and too heavy ones, where a row of weight c is drawn as c copies of it."""
    if not (c == np.floor(c)).all():
        bad = float(c[c != np.floor(c)][0])
        raise ValueError(refused("fractional weights", loss=type(loss).__name__, weight=f"{bad:g}"))
    total = float(c.sum())
    if total > _COPIES:
        given = {"loss": type(loss).__name__, "most": f"{_COPIES:.0e}", "weight": f"{total:.3g}"}
        raise ValueError(refused("heavy weights", **given))
