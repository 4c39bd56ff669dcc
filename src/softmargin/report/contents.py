"""What a model holds: its data, coefficients, terms and missing entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from softmargin.core.validation import fitted, is_frame
from softmargin.plots.numbers.coefficients import inclusions
from softmargin.plots.numbers.outcomes import Decisions, Responses
from softmargin.plots.numbers.subject import names_of
from softmargin.plots.numbers.terms import group_effects, smooth_effects
from softmargin.report import charts
from softmargin.report.page import Section
from softmargin.report.study import WHAT, Study
from softmargin.report.text import code, number, percent, safe, table

__all__ = ["coefficient_section", "data_section", "inclusion_section", "missing_section", "term_section"]

_FOREST, _TABLE, _GROUPS, _COLUMNS, _OUTPUTS = 25, 100, 40, 60, 6


def data_section(study: Study) -> Section:
    """Rows, classes or responses, and columns."""
    parts, outcomes = [], study.left_out
    batch = " of the last batch" if study.rows_before else ""
    if isinstance(outcomes, Decisions):
        size: Any = np.bincount(outcomes.y, outcomes.times, outcomes.k)
        shown = np.sort(np.argsort(-size, kind="stable")[:_GROUPS])
        drawing = charts.bars("Classes", [outcomes.labels[r] for r in shown], size[shown], "rows")
        few = f" The {len(shown)} most frequent of {outcomes.k} classes." if len(shown) < outcomes.k else ""
        parts.append(
            charts.figure(drawing, f"Rows of each class{batch}; {number(size.sum(), 9)} in all.{few}", "classes")
        )
    elif isinstance(outcomes, Responses):
        drawing = charts.histogram(
            "Responses", safe(study.target or "response"), [("rows", outcomes.y, outcomes.times)]
        )
        text = f"Responses of the {number(outcomes.times.sum(), 9)} rows{batch}."
        parts.append(charts.figure(drawing, text, "responses"))
    whose = "" if study.X is None else f"the rows{batch or ' of the fit'}" if study.own else "the rows that were given"
    table_ = _columns(study)
    note = f"<h3>Columns{' of ' + whose if whose else ''}</h3>{table_}" if table_ else ""
    return Section("The data", "data", f'<div class="figures">{"".join(parts)}</div>{note}')


def _columns(study: Study) -> str:
    if study.X is not None:
        return _described(study.X)
    if study.kernel or len(study.machine._fitted.parts) > 1 or not study.machine.standardize:
        return ""
    columns, names = study.machine._reader.columns, names_of(study.machine)
    place = {int(j): at for at, j in enumerate(columns.keep)}
    rows = []
    for j in range(min(columns.n_features, _COLUMNS)):
        if j in place and columns.shift[place[j]] != 0.0:
            at = place[j]
            rows.append([code(names[j], 40), number(columns.shift[at], 4), number(1.0 / columns.scale[at], 4)])
        elif j not in place:
            rows.append([code(names[j], 40), "constant", "0"])
    if not rows:
        return ""
    more = f"{columns.n_features - len(rows)} more columns are not listed." if columns.n_features > len(rows) else ""
    return table(["column", "mean", "sd"], rows, note=more)


def _described(X: Any) -> str:
    if sp.issparse(X):
        sparse: Any = X
        n, p = sparse.shape
        filled = sparse.count_nonzero() / max(n * p, 1)
        return f"<p>A sparse matrix of {n} rows and {p} columns, {percent(filled)} of it not zero.</p>"
    frame = _frame(X)
    rows = []
    for name in list(frame.columns)[:_COLUMNS]:
        column = frame[name]
        gone = int(column.isna().sum())
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            values = column.to_numpy(dtype=float, na_value=np.nan)
            values = values[np.isfinite(values)]
            middle = (
                [number(v, 4) for v in (values.min(), np.median(values), values.mean(), values.std(), values.max())]
                if len(values)
                else ["–"] * 5
            )
            rows.append([code(name, 40), "numbers", *middle, number(gone, 9)])
        else:
            rows.append([code(name, 40), f"{column.nunique()} labels", *["–"] * 5, number(gone, 9)])
    more = f"{frame.shape[1] - len(rows)} more columns are not listed." if frame.shape[1] > len(rows) else ""
    return table(["column", "holds", "smallest", "median", "mean", "sd", "largest", "missing"], rows, note=more)


def _frame(X: Any) -> pd.DataFrame:
    """Rows of any kind as a data frame of pandas."""
    if isinstance(X, pd.DataFrame):
        return X
    if is_frame(X):
        return pd.DataFrame({str(name): np.asarray(X[name]) for name in X.columns})
    plain = np.asarray(X)
    return pd.DataFrame(plain, columns=[f"x{j}" for j in range(plain.shape[1])])


def coefficient_section(study: Study) -> Section | None:
    """Coefficients with intervals: a figure of the farthest ones, and a table in the units of the data."""
    found = study.coefficients()
    if found is None:
        return None
    chosen = found.farthest(_FOREST)
    shown = min(len(found.outputs), _OUTPUTS)
    lead = found.distance[chosen].argmax(axis=1)
    chosen = chosen[np.argsort(-found.mean[chosen, lead], kind="stable")]
    ends = [None if end is None else end[chosen][:, :shown] for end in (found.lower, found.upper)]
    names = [found.names[j] for j in chosen]
    unit = "sd" if study.machine.standardize else "unit"
    drawing = charts.forest(
        "Coefficients", names, found.mean[chosen][:, :shown], f"change of f for one {unit} of the column",
        lower=ends[0], upper=ends[1], outputs=found.outputs[:shown],
    )  # fmt: skip
    classes = study.classes
    if classes is None:
        way = "Right of zero, more of the column means larger responses."
    elif len(classes) == 2:
        way = f"Right of zero, more of the column speaks for {code(classes[1])}; left of it, for {code(classes[0])}."
    else:
        way = "Right of zero, more of the column speaks for the class, or for the second of the pair."
    held = "Filled: the 95 % interval leaves zero out." if found.lower is not None else "A mode has no intervals."
    few = (
        f" The {len(names)} of {len(found.names)} columns that are farthest from zero in units of their sd."
        if len(names) < len(found.names)
        else ""
    )
    some = f" The first {shown} of {len(found.outputs)} pairs or classes." if shown < len(found.outputs) else ""
    picture = charts.figure(drawing, f"{way} {held}{few}{some}", "coefficients")
    return Section("Coefficients", "coefficients", f'<div class="figures">{picture}<div>{_summary(study)}</div></div>')


_HEADS = {
    "prob_positive": "P(> 0)",
    "inclusion": "P(in)",
    "inclusion_error": "its error",
    "inclusion_range": "over chains",
    "r_hat": "R-hat",
}


def _summary(study: Study) -> str:
    frame = pd.DataFrame(study.machine.summary())
    rows = []
    for key, values in zip(frame.index[:_TABLE], frame.to_numpy(dtype=float)[:_TABLE], strict=True):
        name = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
        rows.append([code(name, 40), *(_told(head, value) for head, value in zip(frame.columns, values, strict=True))])
    more = f" {len(frame) - len(rows)} more rows are in <code>model.summary()</code>." if len(frame) > len(rows) else ""
    head = ["column", *(safe(_HEADS.get(str(name), str(name))) for name in frame.columns)]
    return table(head, rows, note=f"In the units of the data.{more}")


def _told(head: str, value: float) -> str:
    """A number of a summary; probabilities in three decimals."""
    return f"{value:.3f}" if head in ("prob_positive", "inclusion") else number(value)


def inclusion_section(study: Study) -> Section | None:
    """Inclusion probabilities, for priors that leave columns out."""
    if study.kernel or fitted(study.machine, "inclusion_") is None:
        return None
    found = inclusions(WHAT, study.model)
    chosen, top = found.largest(30), found.value.max(axis=1)
    lead = found.value[chosen].argmax(axis=1)
    low, high = found.low[chosen, lead], found.high[chosen, lead]
    names = [
        found.names[j] + (f", {found.outputs[r]}" if len(found.outputs) > 1 else "")
        for j, r in zip(chosen, lead, strict=True)
    ]
    kinds = ["bar" if top[j] > 0.5 else "faint" for j in chosen]
    drawing = charts.bars(
        "Inclusion", names, top[chosen], "inclusion probability", low=low, high=high, mark=0.5, most=1.0, kinds=kinds
    )
    inside = f"{int((top > 0.5).sum())} of {len(top)} columns are above one half."
    text = f"Probability that a column is in the model; lines are the range over chains. {inside}"
    more = (
        " With pairs of classes, the pair in which a column has its largest probability."
        if len(found.outputs) > 1
        else ""
    )
    return Section("Which columns are in", "inclusion", charts.figure(drawing, text + more, "inclusion"))


def term_section(study: Study) -> Section | None:
    """Smooth functions and effects of groups."""
    if study.kernel:
        return None
    machine, parts = study.machine, []
    if machine.smooth_effects():
        for curve in smooth_effects(WHAT, study.model, 0.95)[:_OUTPUTS]:
            shade = None if curve.lower is None or curve.upper is None else (curve.x, curve.lower, curve.upper)
            both = np.concatenate([curve.mean, *((shade[1], shade[2]) if shade else ())])
            room = 0.05 * (float(np.ptp(both)) or 1.0)
            reach = (float(both.min()) - room, float(both.max()) + room)
            drawing = charts.curves(
                f"Smooth term {curve.title}", curve.column, "change of f", [("", curve.x, curve.mean)], square=False,
                band=shade, ranges=((float(curve.x[0]), float(curve.x[-1])), reach), level=0.0,
            )  # fmt: skip
            held = " with its 95 % band" if shade else ""
            parts.append(charts.figure(drawing, f"Smooth term {code(curve.title)}{held}.", "smooth"))
    effects = fitted(machine, "random_effects_")
    if any(effects) if isinstance(effects, list) else bool(effects):
        for panel in group_effects(WHAT, study.model)[:_OUTPUTS]:
            at = panel.ends(_GROUPS)[::-1]
            ends = [None if end is None else end[at] for end in (panel.lower, panel.upper)]
            names = [panel.groups[i] for i in at]
            about = f"Groups of {panel.title}"
            drawing = charts.forest(about, names, panel.mean[at], "effect on f", lower=ends[0], upper=ends[1])
            few = f" The {len(at)} at both ends of {len(panel.groups)}." if len(at) < len(panel.groups) else ""
            parts.append(
                charts.figure(
                    drawing, f"Effects of the groups of {code(panel.title)}, with 95 % intervals.{few}", "groups"
                )
            )
    if not parts:
        return None
    components = fitted(machine, "variance_components_")
    each = components if isinstance(components, list) else [components]
    tables = "".join(_components(frame) for frame in each[:1] if frame is not None)
    which = "<p class='note'>Those of the first pair of classes.</p>" if len(each) > 1 else ""
    return Section("Groups and smooth terms", "terms", f'<div class="figures">{"".join(parts)}</div>{tables}{which}')


def _components(frame: pd.DataFrame) -> str:
    rows = [
        [code(", ".join(map(str, key)), 40), *(number(v) for v in values)]
        for key, values in zip(frame.index, frame.to_numpy(dtype=float), strict=True)
    ]
    return "<h3>How much they vary</h3>" + table(["term", *(safe(str(name)) for name in frame.columns)], rows)


def missing_section(study: Study) -> Section | None:
    """Missing entries and what the model makes of them."""
    imputed = fitted(study.machine, "imputed_")
    if imputed is None or not len(imputed):
        return None
    size = imputed["feature"].value_counts()
    shown = size.head(30)
    drawing = charts.bars(
        "Missing entries", [str(name) for name in shown.index], shown.to_numpy(dtype=float), "missing entries"
    )
    text = f"{len(imputed)} entries of {imputed['row'].nunique()} rows are missing and part of the model."
    rows = [
        [number(row, 9), code(name, 30), number(mean, 4), number(sd)]
        for row, name, mean, sd in imputed[["row", "feature", "mean", "sd"]].head(15).itertuples(index=False)
    ]
    more = f"The first 15 of {len(imputed)}; all are in <code>model.imputed_</code>." if len(imputed) > 15 else ""
    listed = table(["row", "column", "mean", "sd"], rows, note=more)
    html = f'<div class="figures">{charts.figure(drawing, text, "missing")}<div>{listed}</div></div>'
    return Section("Missing entries", "missing", html)
