"""The report of a fitted model as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softmargin.report.contents import (
    coefficient_section,
    data_section,
    inclusion_section,
    missing_section,
    term_section,
)
from softmargin.report.fitting import choice_section, convergence_section, repeat_section
from softmargin.report.page import page
from softmargin.report.quality import predictions, rows
from softmargin.report.study import Study
from softmargin.report.text import safe
from softmargin.report.words import in_plain_words, title
from softmargin.storage.container import write_whole

__all__ = ["Report", "report"]


class Report:
    """A page about a fitted model; notebooks show it.

    Attributes
    ----------
    html : str
        The whole page: one file that needs nothing else.
    """

    def __init__(self, html: str):
        self.html = html

    def save(self, path: Any) -> Path:
        """Write the page to a file, which is there when it is complete, and return its path."""
        place = Path(path)
        write_whole(place, [self.html.encode("utf-8")])
        return place

    def _repr_html_(self) -> str:
        frame = "width:100%;height:640px;border:1px solid #8888"
        return f'<iframe sandbox srcdoc="{safe(self.html)}" style="{frame}"></iframe>'

    def __repr__(self) -> str:
        return f"Report of {len(self.html) / 1024.0:.0f} kB; .save(path) writes it, .html is the page."


def report(model: Any, X: Any = None, y: Any = None) -> Report:
    """Make a page about a fitted model: in plain words first, then figures and tables.

    Without rows the figures of how well it predicts are those of its training rows, each left out. Rows that are given
    are judged too; if they are the rows of the fit, they add what each of them does to its own prediction.

    Parameters
    ----------
    model : estimator
        Any fitted model of this library: classifiers, regressions, kernel models, formulas; of a pipeline that ends
        with one, the columns are those that its last step sees.
    X : array, sparse matrix, data frame or path, optional
        Rows to look at, as ``predict`` takes them; those in files are read into memory.
    y : array, path or name, optional
        Their responses, or the column of a Parquet file that holds them; a formula finds them in X.

    Returns
    -------
    Report
        With ``html``, ``save(path)``, and a view for notebooks.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from softmargin import BayesianSVC
    >>> from softmargin.report import report
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> page = report(BayesianSVC().fit(X, y))
    >>> page.html.startswith("<!DOCTYPE html>")
    True
    """
    study = Study.of(model, X, y)
    found = [
        data_section(study),
        coefficient_section(study),
        inclusion_section(study),
        *predictions(study),
        rows(study),
        term_section(study),
        missing_section(study),
        convergence_section(study),
        choice_section(study),
        repeat_section(study),
    ]
    lead = (
        f"<code>{safe(study.formula)}</code>"
        if study.formula
        else f"A report of <code>{type(study.machine).__name__}</code>"
    )
    foot = "Made by softmargin. This page is one file: it fetches nothing and runs no script."
    return Report(page(title(study), lead, in_plain_words(study), [each for each in found if each is not None], foot))
