"""How well rows are predicted: probabilities, decisions, responses, and the rows that decide."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import costs_by_label, fitted
from softmargin.plots.numbers.curves import class_band, precision_recall, reliability, roc
from softmargin.plots.numbers.outcomes import Decisions, Responses
from softmargin.report import charts
from softmargin.report.page import Section
from softmargin.report.study import Study
from softmargin.report.text import code, number, percent, table

__all__ = ["predictions", "rows"]

_CLASSES = 6  # curves in one figure
_LISTED = 10  # rows of a table of rows
_FIELDS = 30  # classes of a confusion matrix


def predictions(study: Study) -> list[Section]:
    """Figures of left-out rows, and of given ones."""
    found = []
    which = "rows of the last batch, scored before they were learned," if study.rows_before else "left-out rows"
    pairs = (
        (f"How well {which} are predicted", "left-out", study.left_out),
        ("How well the given rows are predicted", "given", study.given),
    )
    for heading, anchor, outcomes in pairs:
        if isinstance(outcomes, Decisions):
            found.append(Section(heading, anchor, _decisions(study, outcomes)))
        elif isinstance(outcomes, Responses):
            found.append(Section(heading, anchor, _responses(outcomes)))
    return found


def _shown(found: Decisions) -> list[int]:
    """The classes that get a curve: the second of two, or the most frequent ones."""
    size = np.bincount(found.y, found.times, found.k)
    if found.k == 2:
        return [1]
    return sorted(np.argsort(-size, kind="stable")[:_CLASSES].tolist())


def _decisions(study: Study, found: Decisions) -> str:
    both = [r for r in _shown(found) if 0.0 < float((found.y == r).mean()) < 1.0]
    parts = [_calibration(found, both)] if both else []
    parts += [_ranking(found, both, "roc"), _ranking(found, both, "precision-recall")] if both else []
    parts.append(_confusion(study, found))
    left = (
        f"<p class='note'>Curves of {len(both)} of {found.k} classes, the most frequent ones.</p>"
        if len(both) < found.k - (found.k == 2)
        else ""
    )
    return f'<div class="figures">{"".join(parts)}</div>{left}'


def _calibration(found: Decisions, shown: list[int]) -> str:
    q = found.natural
    lines, sizes = [], []
    if found.k > 2:
        flat = reliability(
            q.ravel(), (found.y[:, None] == np.arange(found.k)).ravel().astype(float), np.repeat(found.times, found.k)
        )
        lines, sizes = [("all classes", flat.where, flat.share)], [np.zeros(0)]
    for r in shown:
        each = reliability(q[:, r], (found.y == r).astype(float), found.times)
        lines.append((found.labels[r], each.where, each.share))
        sizes.append(each.n / each.n.sum())
    shade = class_band(q, found.times, pooled=found.k > 2)
    name = code(found.labels[shown[0]]) if found.k == 2 else "a class"
    drawing = charts.curves(
        "Calibration", "predicted probability", "share that occurred", lines, diagonal=True, band=shade, sizes=sizes
    )
    inside = "The band holds 90 % of such curves if every probability is right."
    weighed = (
        ""
        if np.ptp(found.by_class) == 0.0
        else " Weights of classes and costs are taken back, so that shares are those of the data."
    )
    return charts.figure(
        drawing, f"Calibration: how often {name} occurs where it has probability p. {inside}{weighed}", "calibration"
    )


def _ranking(found: Decisions, shown: list[int], kind: str) -> str:
    make = roc if kind == "roc" else precision_recall
    curves = [(found.labels[r], make(found.p[:, r], found.y == r, found.times)) for r in shown]
    lines = [(f"{name} ({curve.area:.3f})", curve.x, curve.y) for name, curve in curves]
    areas = f"Area {curves[0][1].area:.3f}." if len(curves) == 1 else "Areas in brackets."
    if kind == "roc":
        drawing = charts.curves("ROC curve", "false alarms", "found", lines, diagonal=True)
        text = "ROC curve: share of the class that is found against the share of the others that raise a false alarm"
    else:
        drawing = charts.curves("Precision and recall", "found (recall)", "right (precision)", lines)
        text = "Precision and recall: share of alarms that are right against the share of the class that is found"
    whose = f", for {code(found.labels[shown[0]])}" if found.k == 2 else ""
    return charts.figure(drawing, f"{text}{whose}. {areas}", kind)


def _confusion(study: Study, found: Decisions) -> str:
    counts = found.confusion()
    wrong = counts.sum() - np.trace(counts)
    text = f"Decisions for the more probable class: {number(wrong, 9)} of {number(counts.sum(), 9)} are wrong."
    costs = costs_by_label(fitted(study.machine, "costs"), study.machine.classes_)
    if costs is not None:
        total = float((counts * np.asarray(costs, dtype=float)).sum())
        text += f" At the chosen costs they cost {number(total, 4)} in all, {number(total / counts.sum())} per row."
    errors = counts.sum(axis=0) + counts.sum(axis=1) - 2.0 * np.diag(counts)
    shown = np.sort(np.argsort(-errors, kind="stable")[:_FIELDS])
    if len(shown) < found.k:
        text += f" Shown are the {len(shown)} of {found.k} classes with most errors."
    labels = [found.labels[r] for r in shown]
    return charts.figure(charts.matrix("Confusion matrix", labels, counts[np.ix_(shown, shown)]), text, "confusion")


def _responses(found: Responses) -> str:
    inside = (found.y >= found.lower) & (found.y <= found.upper)
    order = np.argsort(found.f, kind="stable")
    drawn = charts.scatter(
        "Observed against predicted", "predicted", "observed", found.f[order], found.y[order], low=found.lower[order],
        high=found.upper[order], inside=inside[order], diagonal=True,
    )  # fmt: skip
    held = f"{percent(found.covered)} of them hold the response"
    text = f"Observed against predicted, with {percent(found.level)} intervals; {held}."
    error = charts.histogram(
        "Errors", "observed minus predicted", [("errors", found.y - found.f, found.times)], marks=(0.0,)
    )
    parts = [charts.figure(drawn, text, "predicted"), charts.figure(error, "Errors of the predictions.", "errors")]
    parts.append(_coverage(found))
    return f'<div class="figures">{"".join(parts)}</div>'


def _coverage(found: Responses) -> str:
    """Errors in units of the half width of the interval: where they lie if the intervals are right at every level."""
    half = np.maximum(0.5 * (found.upper - found.lower), 1e-300)
    ratio = np.sort(np.abs(found.y - found.f) / half)
    share = (np.arange(len(ratio)) + 0.5) / len(ratio)
    keep = np.unique(np.linspace(0, len(ratio) - 1, min(len(ratio), 200)).astype(int))
    end = max(1.6, min(float(ratio[-1]), 3.0))
    drawing = charts.curves(
        "Errors beside their intervals", "error in half widths of the interval", "share of rows",
        [("", ratio[keep], share[keep])], square=False, ranges=((0.0, end), (0.0, 1.0)), level=found.level,
    )  # fmt: skip
    return charts.figure(
        drawing,
        f"Rows whose error is at most so many half widths of their interval: {percent(found.level)} is wanted at 1.",
        "coverage",
    )


def rows(study: Study) -> Section | None:
    """Margins, and the rows that decide most."""
    found = study.left_out
    parts = []
    if isinstance(found, Decisions):
        parts.append(_margins(study, found))
    moved = _influence(study)
    if moved is not None:
        parts.append(_most_moved(study, *moved))
    active = fitted(study.machine, "active_")
    if active is not None:
        parts.append(_active(np.atleast_2d(active)))
    html = "".join(parts)
    return Section("The rows that decide", "rows", html) if html else None


def _margins(study: Study, found: Decisions) -> str:
    two = found.k == 2
    what = "margin: f towards the true class" if two else "log odds of the true class against the next"
    each = [(found.labels[r], found.margin[found.y == r], found.times[found.y == r]) for r in _all_shown(found)]
    drawing = charts.histogram("Margins", what, each, marks=(0.0, 1.0) if two else (0.0,))
    wrong = float(found.times[found.margin < 0.0].sum() / found.times.sum())
    which = "by class" if len(each) == found.k else f"of the {len(each)} most frequent classes"
    whose = "rows of the last batch" if study.rows_before else "left-out rows"
    text = f"Margins of {whose}, {which}. Below 0 the decision is wrong ({percent(wrong)})"
    if two:
        near = float(found.times[found.margin < 1.0].sum() / found.times.sum())
        hinge = study.machine.likelihood == "hinge"
        held = "are the support rows, which hold the boundary where it is" if hinge else "are near the boundary"
        text += f"; rows below 1 ({percent(near)}) {held}"
    order = np.argsort(found.own, kind="stable")[:_LISTED]
    lines = [
        [
            number(found.rows[i], 9),
            code(found.labels[found.y[i]], 30),
            code(found.labels[found.chosen[i]], 30),
            f"{found.own[i]:.2g}",
            number(found.margin[i]),
        ]
        for i in order
    ]
    head = ["row", "class", "decided", "P(its class)", "margin"]
    listed = table(
        head,
        lines,
        note="The rows that surprise most: look for wrong labels among them first. Rows are counted from 0.",
    )
    return f'<div class="figures">{charts.figure(drawing, text + ".", "margins")}<div>{listed}</div></div>'


def _all_shown(found: Decisions) -> list[int]:
    return [0, 1] if found.k == 2 else _shown(found)


def _influence(study: Study) -> tuple[Array, str] | None:
    """How much each training row moves its own prediction, where the rows are given."""
    if not study.own or study.left_out is None:
        return None
    if isinstance(study.left_out, Decisions):
        p = np.asarray(study.model.predict_proba(study.X))[study.left_out.rows]
        return p[np.arange(len(p)), study.left_out.y] - study.left_out.own, "gain of P(its class)"
    used = fitted(study.machine, "_used")
    f = np.asarray(study.model.predict(study.X))
    f = f if used is None or len(f) == len(study.left_out.f) else f[used]
    return (f - study.left_out.f, "change of the prediction") if len(f) == len(study.left_out.f) else None


def _most_moved(study: Study, change: Array, what: str) -> str:
    order = np.argsort(-np.abs(change), kind="stable")[:_LISTED]
    found: Any = study.left_out
    places = found.rows if isinstance(found, Decisions) else np.arange(len(change))
    names = [f"row {places[i]}" for i in order]
    drawing = charts.forest("Influence of rows", names, change[order], what)
    return charts.figure(
        drawing,
        "Influence: what the prediction of a row gains from the row itself.",
        "influence",
    )


def _active(active: Array) -> str:
    share = np.sort(np.nanmax(active, axis=0))[::-1]
    share = share[np.isfinite(share)]
    x = np.arange(1.0, len(share) + 1.0)
    drawing = charts.curves(
        "Active rows", "rows, the most active first", "probability of being active", [("", x, share)], square=False,
        ranges=((1.0, max(float(len(share)), 2.0)), (0.0, 1.0)),
    )  # fmt: skip
    return charts.figure(
        drawing, f"Active rows: {number(share.sum())} of {len(share)} have a coefficient on average.", "active"
    )
