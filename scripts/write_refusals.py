"""Write the table of what does not go together into docs/reference/together.md, from ``softmargin.refusals``.

    python scripts/write_refusals.py [--check]

With ``--check`` nothing is written, and the exit status says whether the page is up to date.
"""

import sys
from pathlib import Path

from softmargin.refusals import REFUSALS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "together.md"
START, END = "<!-- table -->\n", "<!-- end of table -->\n"


def table() -> str:
    """The table in Markdown; what a sentence is told in a fit stands in angle brackets."""
    lines = ["| this | with this | is refused |", "|---|---|---|"]
    for first, second, sentence in REFUSALS.values():
        said = sentence.replace("{", "&lt;").replace("}", "&gt;").replace("|", "\\|")
        lines.append(f"| {first} | {second} | {said} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, rest = text.split(START)
    return before + START + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    now = PAGE.read_text(encoding="utf-8")
    if "--check" not in sys.argv:
        PAGE.write_text(page(now), encoding="utf-8")
    elif now != page(now):
        sys.exit(f"{PAGE.name} is not that of the source: run python {Path(__file__).name}")
