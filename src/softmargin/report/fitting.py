"""How the fit went, what was tried, and how to repeat it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd

from softmargin.core.validation import fitted
from softmargin.plots.numbers.chains import chains_of
from softmargin.plots.numbers.subject import outputs_of
from softmargin.report import charts
from softmargin.report.page import Section
from softmargin.report.study import WHAT, Study
from softmargin.report.text import code, number, safe, shortened, table

__all__ = ["choice_section", "convergence_section", "repeat_section"]

_PACKAGES = ("softmargin", "numpy", "scipy", "scikit-learn", "pandas", "numba")
_LINES = 4
_TRACES = {"map": "objective", "gibbs": "log pseudo-likelihood", "hmc": "log pseudo-likelihood"}


def convergence_section(study: Study) -> Section:
    """Whether the engine came to an end, and how it got there."""
    machine = study.machine
    traces = machine.trace_ if isinstance(machine.trace_, list) else [machine.trace_]
    names = outputs_of(machine) if len(traces) > 1 else [""]
    lines = [(name, np.asarray(trace)) for name, trace in zip(names, traces, strict=True) if len(trace) > 1][:_LINES]
    parts = []
    if lines:
        what = _TRACES.get(machine.inference, "bound")
        drawing = charts.walk("Trace", "iteration", what, lines)
        few = f" The first {len(lines)} of {len(traces)} pairs." if len(lines) < len(traces) else ""
        parts.append(charts.figure(drawing, f"The {what} of each iteration.{few}", "trace"))
    for chain in _drawn(study):
        drawing = charts.walk(
            f"Chains of {chain.name}",
            "draw",
            shortened(chain.name, 30),
            [(f"chain {k + 1}", row) for k, row in enumerate(chain.draws[:_LINES])],
        )
        parts.append(
            charts.figure(
                drawing, f"Draws of {code(chain.name)}, one line per chain: they should lie over each other.", "chains"
            )
        )
    told = "The engine reached its tolerance" if machine.converged_ else "The engine did not reach its tolerance"
    if machine.inference in ("gibbs", "hmc"):
        told = "All draws were made" if machine.converged_ else "Not all draws were made"
    rounds = "1 iteration" if machine.n_iter_ == 1 else f"{machine.n_iter_} iterations"
    text = f"<p>{told}, after {rounds}.{_figures(study)}</p>"
    return Section("Convergence", "convergence", f'{text}<div class="figures">{"".join(parts)}</div>')


def _figures(study: Study) -> str:
    machine, text = study.machine, ""
    gap = fitted(machine, "gap_")
    if gap is not None:
        text += (
            f" The mode is at most {number(gap, 2)} (relative) away from the best one: the duality gap certifies it."
        )
    if not study.kernel:
        frame = pd.DataFrame(machine.summary())
        if "r_hat" in frame:
            worst = float(np.nanmax(frame["r_hat"].to_numpy(dtype=float), initial=1.0))
            least = float(np.nanmin(frame["ess"].to_numpy(dtype=float), initial=np.inf))
            text += f" The largest R-hat is {number(worst, 4)} (1.00 is wanted, 1.05 is the limit)"
            text += f", the smallest effective number of draws {number(least)}."
    return text


def _drawn(study: Study) -> list[Any]:
    """The chains that a reader looks at first: of the coefficients farthest from zero."""
    try:
        found = chains_of(WHAT, study.model)
    except ValueError:  # no draws
        return []
    return sorted(found, key=lambda chain: -chain.distance)[:2]


def choice_section(study: Study) -> Section | None:
    """What was tried to choose what the user left open."""
    tried = fitted(study.machine, "choices_")
    if tried is None or not len(tried):
        return None
    frame = pd.DataFrame(tried)
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    rows = [[_cell(value) for value in row] for row in frame.head(30).itertuples(index=False)]
    more = f"The first 30 of {len(frame)}; all are in <code>model.choices_</code>." if len(frame) > 30 else ""
    html = table([safe(str(name)) for name in frame.columns], rows, note=more)
    return Section(
        "What was chosen", "choices", f"<p>What the parameters leave open was chosen by comparing fits.</p>{html}"
    )


def _cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.number)):
        return number(value, 4)
    return safe(shortened(value, 40))


def repeat_section(study: Study) -> Section:
    """Parameters, seed and versions."""
    machine = study.machine
    parameters = machine.get_params(deep=False)
    default = type(machine)().get_params(deep=False)
    given = {name: value for name, value in parameters.items() if repr(value) != repr(default[name])}
    if study.formula:
        given = {name: value for name, value in given.items() if name not in ("random_effects", "fit_intercept")}
    inside = ", ".join(f"{name}={shortened(repr(value), 400)}" for name, value in given.items())
    call = f"{type(machine).__name__}({inside})"
    lines = f"model = {call}.fit(X, y)"
    if study.formula:
        lines = f"model = softmargin.Formula({study.formula!r}, {call}).fit(data)"
    seed = parameters.get("random_state")
    sown = (
        f"The seed is {code(seed)}."
        if seed is not None
        else "No seed was given: draws will differ. Set <code>random_state</code>."
    )
    rows = [
        [code(name), safe(shortened(repr(value), 120)), "given" if name in given else "default"]
        for name, value in parameters.items()
    ]
    known = [[code("Python"), safe(platform.python_version())]] + [
        [code(name), safe(_version(name))] for name in _PACKAGES
    ]
    html = (
        f"<pre><code>{safe(lines)}</code></pre><p>{sown} Results do not depend on the number of threads or workers.</p>"
    )
    html += f"<h3>Parameters</h3>{table(['parameter', 'value', ''], rows)}"
    html += f"<h3>Versions of this report</h3>{table(['package', 'version'], known)}"
    return Section("How to repeat it", "repeat", html)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
