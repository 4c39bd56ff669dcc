"""What the command line prints: tables with interval bars on a terminal, JSON for programs."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["bar", "coefficients", "facts", "kernels", "note", "plain", "print_json", "table"]

_WIDTH = 25  # letters of an interval bar
_SHOWN = 15  # coefficients
_CHANCES = ("prob_positive", "inclusion")


def console(error: bool = False) -> Any:
    """Where to print; wide where it is no terminal, so that lines are not cut."""
    from rich.console import Console

    made = Console(stderr=error, highlight=False, soft_wrap=True)
    return made if made.is_terminal else Console(stderr=error, highlight=False, width=160, soft_wrap=True)


def note(text: str) -> None:
    """A remark beside the result."""
    console(error=True).print(f"note: {text}", markup=False)


def plain(value: Any) -> Any:
    """A value that JSON has; what is not finite is null."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any) -> None:
    """One object on standard output."""
    console().print(json.dumps(plain(value), ensure_ascii=False), markup=False)


def bar(lower: float, middle: float, upper: float, least: float, most: float) -> str:
    """An interval as letters between two ends, with its middle and with zero."""
    span = (most - least) or 1.0

    def place(value: float) -> int:
        return min(_WIDTH - 1, max(0, round((value - least) / span * (_WIDTH - 1))))

    letters = [" "] * _WIDTH
    letters[place(lower) : place(upper) + 1] = "─" * (place(upper) - place(lower) + 1)
    if least <= 0.0 <= most:
        letters[place(0.0)] = "┼" if letters[place(0.0)] == "─" else "│"
    letters[place(middle)] = "●"
    return "".join(letters)


def _chance(value: float) -> str:
    """A probability, without digits that nobody can use."""
    return "<0.001" if value < 0.001 else ">0.999" if value > 0.999 else f"{value:.3f}"


def coefficients(model: Any) -> None:
    """The coefficients that are farthest from zero in units of their spread, with their intervals."""
    frame = model.summary()
    if "mean" not in frame:
        kernels(frame)
        return
    slopes = frame[frame.index.get_level_values(0) != "Intercept"]
    spread = slopes["sd"] if "sd" in slopes else pd.Series(1.0, index=slopes.index)
    order = (slopes["mean"].abs() / spread.where(spread > 0.0, 1.0)).to_numpy().argsort(kind="stable")[::-1][:_SHOWN]
    shown, whole = slopes.iloc[order], "lower" in slopes
    names = [name for name in ("mean", "sd", "lower", "upper", "prob_positive", "inclusion") if name in shown]
    rows = []
    for key, row in shown.iterrows():
        words = [
            str(key) if not isinstance(key, tuple) else " ".join(map(str, key)),
            *(_chance(row[name]) if name in _CHANCES else f"{row[name]:.4g}" for name in names),
        ]
        if whole:  # every bar on its own scale: units of columns differ
            reach = max(abs(row["lower"]), abs(row["upper"])) or 1.0
            words.append(bar(row["lower"], row["mean"], row["upper"], -reach, reach))
        rows.append(words)
    left = f", {len(slopes) - len(shown)} more in the model" if len(slopes) > len(shown) else ""
    table(f"Coefficients{left}", ["", *names, *([" 95 % interval"] if whole else [])], rows)


def kernels(frame: pd.DataFrame) -> None:
    """What was learned of a kernel, one line for each pair of classes; left-out rows are told elsewhere."""
    shown = frame[[name for name in frame.columns if not name.startswith("loo_") and name != "max_kv"]]
    rows = [[str(key), *(_value(value) for value in row)] for key, row in zip(shown.index, shown.values, strict=True)]
    if len(rows) == 1:
        facts("Kernel", dict(zip(shown.columns, rows[0][1:], strict=True)))
    else:
        table("Kernels of the pairs", ["", *shown.columns], rows)


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def facts(title: str, entries: dict[str, Any]) -> None:
    """Names and values, one per line."""
    table(title, ["", ""], [[name, str(value)] for name, value in entries.items()], header=False)


def _printable(text: str) -> str:
    """A text without letters that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def table(title: str, head: list[str], rows: list[list[str]], header: bool = True) -> None:
    """A table of texts as they are, without markup; numbers to the right, and to the left what has a blank first."""
    from rich.table import Table
    from rich.text import Text

    made = Table(title=Text(_printable(title)), title_justify="left", box=None, show_header=header, pad_edge=False)
    for number, name in enumerate(head):
        made.add_column(Text(name), justify="left" if number == 0 or not header or name.startswith(" ") else "right")
    for row in rows:
        made.add_row(*(Text(_printable(word)) for word in row))
    console().print(made)
