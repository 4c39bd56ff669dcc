"""A small writer of SVG: shapes by class, colours from the page, every text escaped."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from softmargin.core.array import Array
from softmargin.report.text import number, safe

__all__ = ["LETTER", "Axis", "Drawing", "nice", "ticks", "written"]


LETTER = 6.6  # width of a letter


def nice(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below a number."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * 0.999)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two ends."""
    span = high - low
    if not (math.isfinite(span) and span > 0.0):
        return [low]
    rough = span / max(most - 1, 1)
    step = nice(rough)
    first = math.ceil(low / step - 1e-9)
    found = [round((first + j) * step, 12) for j in range(int((high - low) / step) + 2)]
    return [value for value in found if low - 1e-9 * span <= value <= high + 1e-9 * span]


def written(values: list[float]) -> list[str]:
    """Round numbers in as many digits as it takes to tell them apart."""
    step = min((b - a for a, b in pairwise(values)), default=1.0)
    most = max(map(abs, values), default=0.0)
    if not 1e-4 <= max(most, step) < 1e6:
        return [number(value, 4) for value in values]
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{value + 0.0:.{digits}f}".replace("-", "−") for value in values]


class Axis:
    """From numbers to places between two points of a drawing; what is beyond the ends is put there."""

    def __init__(self, low: float, high: float, start: float, stop: float):
        if not high > low:
            low, high = low - 0.5, low + 0.5
        self.low, self.high, self.start, self.stop = low, high, start, stop

    def __call__(self, value: Any) -> float:
        share = (min(max(float(value), self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    @classmethod
    def upwards(cls, low: float, high: float, start: float, stop: float) -> tuple[Axis, float]:
        """An axis at the side, and the room that its numbers and its name take."""
        axis = cls(low, high, start, stop)
        return axis, 26.0 + LETTER * max((len(text) for _, text in axis.marks()), default=1)

    def marks(self, most: int = 6) -> list[tuple[float, str]]:
        """Where to write which numbers."""
        values = ticks(self.low, self.high, most)
        return list(zip(values, written(values), strict=True))


def _at(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """Shapes on a sheet of the given size; ``title`` and ``about`` are for those who cannot see it."""

    def __init__(self, width: float, height: float, title: str, about: str = ""):
        self.width, self.height, self.title, self.about = width, height, title, about
        self.parts: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self.parts.append(f'<line class="{kind}" x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}"/>')

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, hint: str = "", share: float = 1.0
    ) -> None:
        """A rectangle; ``share`` is how strong its colour is."""
        strength = f' fill-opacity="{share:.2f}"' if share < 1.0 else ""
        place = f'x="{_at(x)}" y="{_at(y)}" width="{_at(max(width, 0.0))}" height="{_at(max(height, 0.0))}"'
        self._add("rect", f'class="{kind}" {place}{strength}', hint)

    def dot(self, x: float, y: float, radius: float, kind: str, hint: str = "") -> None:
        """A circle."""
        self._add("circle", f'class="{kind}" cx="{_at(x)}" cy="{_at(y)}" r="{_at(radius)}"', hint)

    def path(self, points: list[tuple[float, float]], kind: str, *, closed: bool = False) -> None:
        """Straight lines from point to point."""
        if points:
            way = "L".join(f"{_at(x)} {_at(y)}" for x, y in points)
            self.parts.append(f'<path class="{kind}" d="M{way}{"Z" if closed else ""}"/>')

    def text(
        self,
        x: float,
        y: float,
        words: Any,
        kind: str = "",
        *,
        anchor: str = "start",
        hint: str = "",
        turn: bool = False,
    ) -> None:
        """A text, which begins, ends or has its middle at x."""
        turned = f' transform="rotate(-90 {_at(x)} {_at(y)})"' if turn else ""
        inner = f"<title>{safe(hint)}</title>" if hint else ""
        self.parts.append(
            f'<text class="{kind}" x="{_at(x)}" y="{_at(y)}" text-anchor="{anchor}"{turned}>{inner}{safe(words)}</text>'
        )

    def _add(self, shape: str, inside: str, hint: str) -> None:
        self.parts.append(
            f"<{shape} {inside}><title>{safe(hint)}</title></{shape}>" if hint else f"<{shape} {inside}/>"
        )

    def curve(self, across: Axis, up: Axis, x: Array, y: Array, kind: str) -> None:
        """A curve through points."""
        self.path([(across(a), up(b)) for a, b in zip(x, y, strict=True)], kind)

    def band(self, across: Axis, up: Axis, x: Array, low: Array, high: Array, kind: str = "band") -> None:
        """The area between two curves."""
        there = [(across(a), up(b)) for a, b in zip(x, high, strict=True)]
        back = [(across(a), up(b)) for a, b in zip(x[::-1], low[::-1], strict=True)]
        self.path([*there, *back], kind, closed=True)

    def frame(self, across: Axis, up: Axis, x: str, y: str, *, most: int = 6) -> None:
        """Grid, numbers and names of two axes."""
        for value, text in across.marks(most):
            self.line(across(value), up.start, across(value), up.stop, "grid")
            self.below(across(value), up.start + 14.0, text)
        for value, text in up.marks(most):
            self.line(across.start, up(value), across.stop, up(value), "grid")
            self.text(across.start - 5.0, up(value) + 4.0, text, "tick", anchor="end")
        self.line(across.start, up.start, across.stop, up.start, "axis")
        self.text(0.5 * (across.start + across.stop), up.start + 30.0, x, "label", anchor="middle")
        if y:
            self.text(11.0, 0.5 * (up.start + up.stop), y, "label", anchor="middle", turn=True)

    def below(self, x: float, y: float, text: str) -> None:
        """A number below an axis, moved where it would leave the sheet."""
        half = 0.5 * LETTER * len(text) + 1.0
        self.text(min(max(x, half), self.width - half), y, text, "tick", anchor="middle")

    def __str__(self) -> str:
        about = f"<desc>{safe(self.about)}</desc>" if self.about else ""
        return (
            f'<svg viewBox="0 0 {_at(self.width)} {_at(self.height)}" role="img" xmlns="http://www.w3.org/2000/svg" '
            f'aria-label="{safe(self.title)}">{about}{"".join(self.parts)}</svg>'
        )
