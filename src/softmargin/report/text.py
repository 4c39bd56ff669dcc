"""Text and numbers as a page shows them: every letter escaped, every number short."""

from __future__ import annotations

import math
from html import escape
from typing import Any

__all__ = ["code", "number", "percent", "safe", "sentence", "shortened", "table"]

_HIDDEN = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # change the order of letters


def safe(text: Any) -> str:
    """A text for a page: markup escaped, letters that are not shown or that change the order of others replaced."""
    return escape("".join(_shown(letter) for letter in str(text)), quote=True)


def _shown(letter: str) -> str:
    if letter.isspace():
        return " "
    return letter if letter.isprintable() and letter not in _HIDDEN else "\ufffd"


def shortened(text: Any, length: int) -> str:
    """So much of a text, not yet escaped."""
    text = str(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def number(value: Any, digits: int = 3) -> str:
    """A number in a few digits, with a minus sign that lines up."""
    value = float(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == round(value) and abs(value) < 1e6:
        text = f"{value:.0f}"
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent; one that is not all is never shown as all."""
    if not math.isfinite(share):
        return "–"
    value = 100.0 * share
    text = f"{value:.1f}" if value < 10.0 or value > 90.0 else f"{value:.0f}"
    if share < 1.0 and float(text) >= 100.0:
        return "over 99.9\u00a0%"
    return f"{text.removesuffix('.0')}\u00a0%"


def code(text: Any, length: int = 60) -> str:
    """The name of a column, class or parameter."""
    return f"<code>{safe(shortened(text, length))}</code>"


def sentence(text: str) -> str:
    """A sentence of the library, with a capital letter first."""
    return safe(text[:1].upper() + text[1:])


def table(head: list[str], rows: list[list[str]], *, note: str = "") -> str:
    """A table of texts that are escaped already; the first column is that of the names."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for row in rows:
        first, rest = f'<th scope="row">{row[0]}</th>', "".join(f"<td>{cell}</td>" for cell in row[1:])
        lines.append(f"<tr>{first}{rest}</tr>")
    below = f'<p class="note">{note}</p>' if note else ""
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
        f"</div>{below}"
    )
