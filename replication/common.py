"""What the replications share: the data with its names, and the page they write."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot
from PIL import Image

from benchmarks import common

DOCS = Path(__file__).parents[1] / "docs" / "evidence"
PAGE = "replication.md"
_COLOURS = 96  # of a picture: few make small files
COLUMNS = ("paper says", "we find", "note")


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every replication has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--quick", action="store_true", help="a rehearsal on few rows; printed, not written")
    options.add_argument(
        "--output", type=Path, metavar="DIR", help=f"folder of {PAGE} and images (default: docs/evidence)"
    )
    return options


def spam(quick: bool) -> tuple[pd.DataFrame, Any]:
    """The spam data: 57 columns, labels "mail" and "spam"; every eighth row of it for a rehearsal."""
    frame = pd.read_csv(common._file("spam.csv.gz"))
    y = np.where(frame.pop("y") > 0, "spam", "mail")
    step = 8 if quick else 1
    return frame.iloc[::step].reset_index(drop=True), y[::step]


@dataclass(frozen=True)
class Page:
    """One section of the page: rows of its table, pictures, remarks."""

    name: str
    folder: Path | None
    rows: list[Sequence[str]] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, options: argparse.Namespace) -> Page:
        """The section that the options ask for; a new folder gets the page's frame."""
        folder: Path | None = options.output or (None if options.quick else DOCS)
        if folder is not None:
            (folder / "images").mkdir(parents=True, exist_ok=True)
            if not (folder / PAGE).exists():
                shutil.copyfile(DOCS / PAGE, folder / PAGE)
        return cls(name, folder)

    def row(self, paper: str, ours: str, note: str = "") -> None:
        """One statement of the paper beside ours."""
        self.rows.append((paper, ours, note))
        print(paper, "|", ours, "|", note, flush=True)

    def remark(self, text: str) -> None:
        """A paragraph below the table."""
        self.remarks.append(text)

    @contextmanager
    def picture(self, name: str, text: str, **layout: Any) -> Iterator[Any]:
        """Axes to draw on; the figure is saved as ``<name>.png`` and shown with ``text``."""
        figure, axes = pyplot.subplots(layout="constrained", **layout)
        try:
            yield axes
            if self.folder is not None:
                drawn = BytesIO()
                figure.savefig(drawn, dpi=80)
                small = Image.open(drawn).convert("RGB").quantize(_COLOURS)
                small.save(self.folder / "images" / f"{name}.png", optimize=True)
            self.pictures.append(f"![{text}](images/{name}.png)\n\n*{text}*")
        finally:
            pyplot.close(figure)

    def publish(self, stamp: str | None = None) -> None:
        """Print the section and, where a folder was chosen, write it between its markers.

        The ``stamp`` says when and where it was found: by default now and here.
        """
        parts = [common.markdown(COLUMNS, self.rows), *self.remarks, *self.pictures]
        page = None if self.folder is None else self.folder / PAGE
        target = argparse.Namespace(output=page, quick=page is None)
        common.publish(self.name, "\n\n".join(parts), target, stamp)


def named(names: Any) -> str:
    """A list of column names as text."""
    return ", ".join(str(name) for name in names) or "none"


def minutes(seconds: float) -> str:
    """CPU time in words."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
