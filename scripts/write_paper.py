"""Write the table of figures of the paper from the tables of the evidence pages.

``python scripts/write_paper.py`` after a benchmark has been made again; no figure of that table is typed by hand.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "docs" / "paper" / "paper.md"
EVIDENCE = ROOT / "docs" / "evidence" / "benchmarks.md"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def tables(section: str) -> list[list[dict[str, str]]]:
    """The tables between the markers of a section, each a list of lines by the names of the columns."""
    text = EVIDENCE.read_text(encoding="utf-8")
    body = text.split(f"<!-- {section}:begin -->")[1].split(f"<!-- {section}:end -->")[0]
    found: list[list[dict[str, str]]] = []
    head: list[str] | None = None
    for line in body.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
            found.append([])
        elif set("".join(cells)) - set("-"):
            found[-1].append(dict(zip(head, cells, strict=True)))
    return found


def _range(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}"


def figures() -> list[tuple[str, str, str]]:
    """Statements with their figures and the comparison they come from."""
    sampling = tables("sampling")[0]
    by_sampler = {
        name: [float(row["worst, ratio to NUTS"]) for row in sampling if row["sampler"] == name]
        for name in ("hmc, 4 chains", "gibbs")
    }
    loss, error = tables("probabilities")[:2]
    mean, wrong = loss[-1], error[-1]
    peers = [name for name in mean if name not in ("set", "softmargin")]
    return [
        (
            "effective draws of the worst coefficient per CPU second, times those of NUTS",
            "; ".join(f"{name}: {_range(values)}" for name, values in by_sampler.items()),
            "`benchmarks.sampling`",
        ),
        (
            f"mean test log loss over {len(loss) - 1} sets of two classes (defaults were developed on these)",
            "; ".join(f"{name} {mean[name]}" for name in ("softmargin", *peers)),
            "`benchmarks.probabilities`",
        ),
        (
            "mean test error there, in per cent",
            "; ".join(f"{name} {wrong[name]}" for name in ("softmargin", *peers)),
            "`benchmarks.probabilities`",
        ),
        *_unseen(),
    ]


def _unseen() -> list[tuple[str, str, str]]:
    found = tables("unseen")
    if not found:
        return []
    sets = found[0]
    mean = next(row for row in sets if row["set"] == "mean")
    shown = [name for name in mean if name not in ("set", "rows x columns", "constant")]
    number = sum(1 for row in sets if row["rows x columns"])
    return [
        (
            f"mean test log loss over {number} sets of two classes that nobody tuned on",
            "; ".join(f"{name} {mean[name]}" for name in shown),
            "`benchmarks.unseen`",
        )
    ]


def page() -> str:
    """The paper with its table of figures made anew."""
    lines = ["| what | figure | made by |", "| --- | --- | --- |"]
    lines += [f"| {what} | {figure} | {source} |" for what, figure, source in figures()]
    text = PAPER.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{tail}"


if __name__ == "__main__":
    PAPER.write_text(page(), encoding="utf-8")
