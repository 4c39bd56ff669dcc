"""The page about warnings has every warning of the package, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import softmargin

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "warnings.md"
SOURCES = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(softmargin.__file__).parent.rglob("*.py")]
CALLS = {"warn", "warn_user"}


def text_of(node: ast.expr) -> str:
    """A string as it is written, with ... for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join("..." if isinstance(part, ast.FormattedValue) else text_of(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def texts() -> str:
    """All strings of the package."""
    return "\n".join(
        text_of(node) for tree in SOURCES for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.Constant))
    )


def warned() -> list[str]:
    """The sentences that are warned of where they are written."""
    calls = [node for tree in SOURCES for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    named = [call for call in calls if (getattr(call.func, "attr", None) or getattr(call.func, "id", "")) in CALLS]
    return [sentence for call in named if (sentence := text_of(call.args[0]))]


def sentences() -> list[str]:
    """The first column of the tables of sentences."""
    return re.findall(r"^\| \*(.*?)\*(?: \(.*?\))? \|", PAGE.read_text(encoding="utf-8"), re.M)


def test_the_page_quotes_the_source():
    written, quoted = texts(), sentences()
    assert len(quoted) > 15
    pieces = [piece.strip(" ;:,.") for sentence in quoted for piece in sentence.split("...")]
    assert [piece for piece in pieces if piece and piece not in written] == []


def test_every_sentence_of_a_warning_is_on_the_page():
    shown = " ".join(sentences())
    openings = [next(part for part in sentence.split("...") if len(part) > 8).strip()[:25] for sentence in warned()]
    assert len(openings) > 5
    assert [opening for opening in openings if opening not in shown] == []
