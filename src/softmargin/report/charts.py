"""The kinds of figures of a report; each is a drawing narrow enough for a phone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.report.svg import Axis, Drawing, nice
from softmargin.report.text import number, shortened

__all__ = ["bars", "curves", "figure", "forest", "histogram", "matrix", "scatter", "walk"]

WIDTH, _LINE = 360.0, 18.0
_NAMED, _WIDE = 18, 7.4  # letters of a name beside a row, and the width of one


def figure(drawing: Drawing, caption: str, kind: str = "") -> str:
    """A drawing with a sentence below it, escaped already; ``kind`` names it for tests and styles."""
    return f'<figure class="{kind}">{drawing}<figcaption>{caption}</figcaption></figure>'


def _gutter(names: Sequence[str]) -> float:
    """Room for names at the left."""
    return 12.0 + _WIDE * min(_NAMED, max((len(name) for name in names), default=4))


def _rows(drawing: Drawing, names: Sequence[str], left: float, top: float, height: float) -> None:
    for place, name in enumerate(names):
        y = top + (place + 0.5) * height + 4.0
        drawing.text(
            left - 6.0, y, shortened(name, _NAMED), "name", anchor="end", hint=name if len(name) > _NAMED else ""
        )


def _bottom(drawing: Drawing, across: Axis, top: float, bottom: float) -> None:
    """Grid and numbers of an axis below rows."""
    for value, text in across.marks(7):
        drawing.line(across(value), top, across(value), bottom, "grid")
        drawing.below(across(value), bottom + 14.0, text)


def _reach(*values: Any) -> tuple[float, float]:
    """The range of finite numbers, with zero, and a little room."""
    flat = np.concatenate([np.ravel(value) for value in values if value is not None] + [np.zeros(1)])
    flat = flat[np.isfinite(flat)]
    low, high = float(flat.min()), float(flat.max())
    room = 0.04 * (high - low if high > low else 1.0)
    return low - room * (low < 0.0), high + room * (high > 0.0)


def forest(
    title: str, names: Sequence[str], mean: Array, x: str, *, lower: Array | None = None, upper: Array | None = None,
    outputs: Sequence[str] = ("",),
) -> Drawing:  # fmt: skip
    """Means (rows, outputs) with their intervals, one line per row; filled where the interval leaves zero out."""
    mean = np.atleast_2d(np.asarray(mean).T).T
    many = mean.shape[1]
    height = max(_LINE, 9.0 * many + 4.0)
    left, top = _gutter(names), 6.0 + (15.0 * ((many + 1) // 2) + 6.0 if many > 1 else 0.0)
    bottom = top + height * len(names)
    drawing = Drawing(WIDTH, bottom + 40.0, title, f"{len(names)} rows with intervals.")
    if many > 1:
        legend(drawing, outputs, left - 40.0)
    ends = (lower, upper)
    across = Axis(*_reach(mean, *ends), left, WIDTH - 10.0)
    _bottom(drawing, across, top, bottom)
    drawing.line(across(0.0), top, across(0.0), bottom, "zero")
    drawing.text(0.5 * (left + WIDTH - 10.0), bottom + 31.0, x, "label", anchor="middle")
    _rows(drawing, names, left, top, height)
    for place in range(len(names)):
        for r in range(many):
            y = top + (place + (r + 0.5) / many) * height if many > 1 else top + (place + 0.5) * height
            kind = f"s{r % 6}" if many > 1 else ("pos" if mean[place, 0] > 0 else "neg")
            hint, away = f"{names[place]}: {number(mean[place, r])}", True
            if lower is None:
                drawing.line(across(0.0), y, across(mean[place, r]), y, f"interval {kind}")
            if lower is not None and upper is not None:
                low, high = np.atleast_2d(lower.T).T[place, r], np.atleast_2d(upper.T).T[place, r]
                drawing.line(across(low), y, across(high), y, f"interval {kind}")
                away = bool(low > 0.0 or high < 0.0)
                hint += f" ({number(low)} to {number(high)})"
            drawing.dot(
                across(mean[place, r]), y, 3.6 if many == 1 else 3.0, f"point {kind}{'' if away else ' open'}", hint
            )
    return drawing


def legend(drawing: Drawing, outputs: Sequence[str], left: float, top: float = 12.0) -> None:
    """Colours of several outputs, two per line."""
    for r, name in enumerate(outputs):
        x, y = max(left, 8.0) + 160.0 * (r % 2), top + 15.0 * (r // 2)
        drawing.dot(x, y - 4.0, 4.0, f"point s{r % 6}")
        drawing.text(x + 9.0, y, shortened(name, 19), "name", hint=name)


def bars(
    title: str, names: Sequence[str], value: Array, x: str, *, low: Array | None = None, high: Array | None = None,
    mark: float | None = None, most: float | None = None, kinds: Sequence[str] = (),
) -> Drawing:  # fmt: skip
    """Horizontal bars with the range of each, and a line at ``mark``."""
    left, top = _gutter(names), 8.0
    bottom = top + _LINE * len(names)
    drawing = Drawing(WIDTH, bottom + 40.0, title, f"{len(names)} bars.")
    end = float(np.max(value, initial=0.0)) if most is None else most
    across = Axis(0.0, end or 1.0, left, WIDTH - 14.0)
    _bottom(drawing, across, top, bottom)
    drawing.text(0.5 * (left + WIDTH - 14.0), bottom + 31.0, x, "label", anchor="middle")
    _rows(drawing, names, left, top, _LINE)
    for place, amount in enumerate(value):
        y, kind = top + place * _LINE, kinds[place] if kinds else "bar"
        hint = f"{names[place]}: {number(amount)}"
        drawing.rect(left, y + 3.0, across(amount) - left, _LINE - 6.0, kind, hint)
        if low is not None and high is not None and high[place] > low[place]:
            drawing.line(across(low[place]), y + 0.5 * _LINE, across(high[place]), y + 0.5 * _LINE, "whisker")
    if mark is not None:
        drawing.line(across(mark), top, across(mark), bottom, "mark")
    return drawing


def curves(
    title: str, x: str, y: str, lines: Sequence[tuple[str, Array, Array]], *, square: bool = True,
    diagonal: bool = False, band: tuple[Array, Array, Array] | None = None, sizes: Sequence[Array] = (),
    ranges: tuple[tuple[float, float], tuple[float, float]] | None = None, level: float | None = None,
    names: bool = True,
) -> Drawing:  # fmt: skip
    """Curves with a legend, a band, the diagonal and a level line."""
    many = len(lines) > 1 and names
    top = 10.0 + (15.0 * ((len(lines) + 1) // 2) + 4.0 if many else 0.0)
    height = WIDTH - 66.0 if square else 190.0
    drawing = Drawing(WIDTH, top + height + 38.0, title)
    if many:
        legend(drawing, [name for name, _, _ in lines], 40.0)
    xs, ys = ((0.0, 1.0), (0.0, 1.0)) if ranges is None else ranges
    up, left = Axis.upwards(*ys, top + height, top)
    across = Axis(*xs, left, WIDTH - 14.0)
    drawing.frame(across, up, x, y, most=6)
    if diagonal:
        drawing.line(across.start, up.start, across.stop, up.stop, "zero")
    if level is not None:
        drawing.line(across.start, up(level), across.stop, up(level), "zero")
    if band is not None:
        drawing.band(across, up, *band)
    for r, (name, a, b) in enumerate(lines):
        kind = f"s{r % 6}" if many else "s0"
        drawing.curve(across, up, a, b, f"curve {kind}")
        for place, size in enumerate(sizes[r] if sizes else ()):
            hint = (
                f"{name}: {number(a[place])}, {number(b[place])}" if name else f"{number(a[place])}, {number(b[place])}"
            )
            drawing.dot(across(a[place]), up(b[place]), 2.0 + 4.0 * float(np.sqrt(size)), f"point {kind}", hint)
    return drawing


def histogram(
    title: str, x: str, values: Sequence[tuple[str, Array, Array]], *, marks: Sequence[float] = ()
) -> Drawing:
    """Counts of numbers in bins, one colour per name, stacked; numbers far out are in the last bins."""
    pooled = np.concatenate([each for _, each, _ in values])
    low, high = (float(end) for end in np.quantile(pooled, (0.005, 0.995)))
    low, high = min(low, *marks) if marks else low, max(high, *marks) if marks else high
    wide = nice((high - low if high > low else 1.0) / 36.0)
    edges = wide * np.arange(np.floor(low / wide), np.ceil(high / wide) + 1.5)  # zero is an edge
    counts = [np.histogram(np.clip(each, edges[0], edges[-1]), edges, weights=w)[0] for _, each, w in values]
    many = len(values) > 1
    top, height = 10.0 + (15.0 * ((len(values) + 1) // 2) + 4.0 if many else 0.0), 180.0
    drawing = Drawing(WIDTH, top + height + 38.0, title)
    if many:
        legend(drawing, [name for name, _, _ in values], 40.0)
    most = float(np.sum(counts, axis=0).max(initial=1.0))
    up, left = Axis.upwards(0.0, 1.05 * most, top + height, top)
    across = Axis(edges[0], edges[-1], left, WIDTH - 14.0)
    drawing.frame(across, up, x, "rows", most=6)
    base = np.zeros(len(edges) - 1)
    for r, count in enumerate(counts):
        for j in np.flatnonzero(count):
            a, b = across(edges[j]), across(edges[j + 1])
            hint = f"{number(edges[j])} to {number(edges[j + 1])}: {number(count[j])} rows"
            drawing.rect(
                a + 0.5,
                up(base[j] + count[j]),
                b - a - 1.0,
                up(base[j]) - up(base[j] + count[j]),
                f"fill s{r % 6}",
                hint,
            )
        base += count
    for mark in marks:
        drawing.line(across(mark), up.start, across(mark), up.stop, "mark")
    return drawing


def matrix(title: str, labels: Sequence[str], counts: Array) -> Drawing:
    """Counts (true, decided) as shaded fields; the share is of the true class."""
    k = len(labels)
    left, top = min(_gutter(labels), 12.0 + 12.0 * _WIDE) + 12.0, 44.0
    side = (WIDTH - left - 8.0) / k
    tall = min(side, 90.0)
    drawing = Drawing(WIDTH, top + tall * k + 10.0, title)
    drawing.text(left + 0.5 * side * k, 13.0, "decided", "label", anchor="middle")
    drawing.text(11.0, top + 0.5 * tall * k, "true", "label", anchor="middle", turn=True)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
    letters = max(2, int(side / _WIDE))
    for j, name in enumerate(labels):
        drawing.text(left + (j + 0.5) * side, 34.0, shortened(name, letters), "name", anchor="middle", hint=name)
        drawing.text(left - 6.0, top + (j + 0.5) * tall + 4.0, shortened(name, 12), "name", anchor="end", hint=name)
        for r in range(k):
            x, y, kind = left + r * side, top + j * tall, "right" if j == r else "wrong"
            hint = f"{labels[j]} decided as {labels[r]}: {number(counts[j, r])} ({100.0 * share[j, r]:.1f} %)"
            drawing.rect(
                x + 1.0, y + 1.0, side - 2.0, tall - 2.0, f"field {kind}", hint, 0.06 + 0.5 * float(share[j, r])
            )
            if k <= 8:
                drawing.text(
                    x + 0.5 * side,
                    y + 0.5 * tall + (0.0 if tall > 34.0 else 4.0),
                    number(counts[j, r], 6),
                    "count",
                    anchor="middle",
                )
            if tall > 34.0 and k <= 5:
                drawing.text(
                    x + 0.5 * side, y + 0.5 * tall + 15.0, f"{100.0 * share[j, r]:.1f} %", "share", anchor="middle"
                )
    return drawing


def scatter(
    title: str, x: str, y: str, a: Array, b: Array, *, low: Array | None = None, high: Array | None = None,
    inside: Any = None, diagonal: bool = False, most: int = 400,
) -> Drawing:  # fmt: skip
    """Points, with vertical intervals where there are ends; of very many an even choice."""
    chosen = np.unique(np.linspace(0, len(a) - 1, min(len(a), most)).astype(int))
    height = 250.0
    drawing = Drawing(WIDTH, height + 48.0, title)
    ends = [end for end in (low, high) if end is not None]
    up, left = Axis.upwards(*_range(np.concatenate((b, *ends))), height + 10.0, 10.0)
    across = Axis(*_range(a), left, WIDTH - 14.0)
    drawing.frame(across, up, x, y)
    if diagonal:
        first, last = max(across.low, up.low), min(across.high, up.high)
        drawing.line(across(first), up(first), across(last), up(last), "zero")
    for i in chosen:
        kind = "s0" if inside is None or inside[i] else "s1"
        if low is not None and high is not None:
            drawing.line(across(a[i]), up(low[i]), across(a[i]), up(high[i]), f"interval thin {kind}")
        drawing.dot(across(a[i]), up(b[i]), 2.2, f"point {kind}")
    return drawing


def _range(values: Array) -> tuple[float, float]:
    flat = values[np.isfinite(values)]
    low, high = float(flat.min()), float(flat.max())
    room = 0.03 * (high - low if high > low else 1.0)
    return low - room, high + room


def walk(title: str, x: str, y: str, lines: Sequence[tuple[str, Array]]) -> Drawing:
    """Numbers one after the other, one line per name."""
    shown = []
    for name, values in lines:
        at = np.unique(np.linspace(0, len(values) - 1, min(len(values), 300)).astype(int))
        kept = at[np.isfinite(np.asarray(values, dtype=float)[at])]
        shown.append((name, kept + 1.0, np.asarray(values, dtype=float)[kept]))
    every = np.concatenate([b for _, _, b in shown])
    longest = max(float(a.max(initial=2.0)) for _, a, _ in shown)
    return curves(title, x, y, shown, square=False, ranges=((1.0, longest), _range(every)), names=len(lines) <= 4)
