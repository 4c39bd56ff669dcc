"""Run the Python blocks of pages and write what they print into the text blocks behind them.

``python scripts/fill_docs.py docs/learn/*.md`` after a change that moves the figures there. A text block that follows a
Python block is replaced by what that block prints, if it prints anything; all other text is left alone.
"""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

_LINES = r"((?:(?!```).*\n)*)"  # up to the end of a block
BLOCK = re.compile(rf"(^```python\n{_LINES}```\n\n```text\n){_LINES}(```)", re.M)


def printed(code: str, page: Path) -> str:
    """What a block prints in a fresh session, without blanks at the ends of lines."""
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip().splitlines())


def filled(page: Path) -> str:
    """The page with what its blocks print today."""
    text = page.read_text(encoding="utf-8")
    return BLOCK.sub(lambda found: found[1] + (printed(found[2], page) or found[3]) + found[4], text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(filled(Path(name)), encoding="utf-8")
