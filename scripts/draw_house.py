"""Draw who imports whom: ``python scripts/draw_house.py`` writes ``docs/images/house.svg`` from the source.

Rooms stand in their order; a number says how many imports a room has from the one above it in that column. With
``--check`` nothing is written, and the script fails where the drawing is not that of the source.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "softmargin"
DRAWING = ROOT / "docs" / "images" / "house.svg"
ROOMS = {
    "core": "what a model is made of",
    "rows": "where the rows are, random numbers",
    "losses": "what a row says of its predictor",
    "priors": "what is known of the coefficients",
    "designs": "products with the columns",
    "solvers": "the Gaussian of the coefficients",
    "unknowns": "what else is not known",
    "engines": "init and step",
    "loo": "leave-one-out and probabilities",
    "posterior": "what is known afterwards",
    "inference": "one function for each inference",
    "models": "data in, model and reader out",
    "estimators": "scikit-learn shells",
    "plots": "pictures",
}
CELL, LEFT, TOP = 34, 320, 96


def imports() -> Counter[tuple[str, str]]:
    """How many imports each room has from each other one."""
    found: Counter[tuple[str, str]] = Counter()
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("softmargin."):
                there = str(node.module).split(".")[1]
                if here in ROOMS and there in ROOMS and here != there:
                    found[here, there] += 1
    return found


def drawing() -> str:
    """The picture: a row and a column for every room."""
    rooms, counts = list(ROOMS), imports()
    width, height = LEFT + CELL * len(rooms) + 12, TOP + CELL * len(rooms) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Rooms of softmargin and the imports between them</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for k, room in enumerate(rooms):
        x, y = LEFT + CELL * k + CELL // 2, TOP + CELL * k + 22
        lines.append(f'<text x="12" y="{y}" font-weight="bold" fill="#1f2937">{room}</text>')
        lines.append(f'<text x="100" y="{y}" fill="#6b7280">{ROOMS[room]}</text>')
        lines.append(f'<text transform="translate({x + 4},{TOP - 8}) rotate(-60)" fill="#1f2937">{room}</text>')
        lines.append(
            f'<rect x="{x - CELL // 2 + 2}" y="{y - 20}" width="{CELL - 4}" height="{CELL - 4}" fill="#d1d5db"/>'
        )
    most = max(counts.values())
    for (here, there), count in sorted(counts.items()):
        x, y = LEFT + CELL * rooms.index(there), TOP + CELL * rooms.index(here)
        shade = 0.15 + 0.85 * count / most
        box = f'x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{CELL - 4}"'
        lines.append(f'<rect {box} fill="#2563eb" fill-opacity="{shade:.2f}"/>')
        ink = "#ffffff" if shade > 0.5 else "#1f2937"
        lines.append(f'<text x="{x + CELL // 2}" y="{y + 22}" text-anchor="middle" fill="{ink}">{count}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Write the drawing, or compare it."""
    made = drawing()
    if "--check" in sys.argv:
        if not DRAWING.exists() or DRAWING.read_text(encoding="utf-8") != made:
            sys.exit("docs/images/house.svg is not that of the source: run python scripts/draw_house.py.")
        return
    DRAWING.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
