"""The first part of a report: what was fitted, how good it is, how sure, what matters and what to worry about."""

from __future__ import annotations

from typing import Any

import numpy as np

from softmargin.core.loss import Loss
from softmargin.core.validation import fitted
from softmargin.plots.numbers.coefficients import inclusions
from softmargin.plots.numbers.curves import roc
from softmargin.plots.numbers.outcomes import Decisions, Responses
from softmargin.report.study import WHAT, Study
from softmargin.report.text import code, number, percent, safe, sentence

__all__ = ["in_plain_words", "title"]

_KINDS = {
    "BayesianSVC": "linear classifier",
    "BayesianSVR": "linear regression",
    "BayesianKernelClassifier": "kernel classifier",
    "BayesianKernelRegressor": "kernel regression",
}
_ENGINES = {
    "vb": "by Gaussian variational inference",
    "map": "by its posterior mode, which has no uncertainty of its own",
    "meanfield": "by mean-field variational inference, which understates uncertainty",
    "gibbs": "by draws from the posterior (Gibbs sampling)",
    "hmc": "by draws from the posterior (Hamiltonian Monte Carlo)",
    "svi": "by stochastic variational inference",
}
_MANY = 4  # names that a sentence lists


def title(study: Study) -> str:
    """The name of the report."""
    kind = _KINDS.get(type(study.machine).__name__, type(study.machine).__name__)
    of = f" of {study.target}" if study.target else ""
    return f"{kind[:1].upper()}{kind[1:]}{of}"


def _fitted(study: Study) -> str:
    machine = study.machine
    kind = _KINDS.get(type(machine).__name__, type(machine).__name__)
    name = fitted(machine, "likelihood_") or machine.likelihood
    loss = type(name).__name__ if isinstance(name, Loss) else str(name)
    rows = 0 if study.left_out is None else float(machine._observed.counts.sum()) + study.rows_before
    of = f" of {code(study.target)}" if study.target else ""
    size = f" to {number(rows, 9)} rows{' in batches' if study.rows_before else ''}" if rows else ""
    text = f"A {kind}{of} was fitted{size} with {machine.n_features_in_} column{'s' * (machine.n_features_in_ != 1)}"
    text += f", {safe(_ENGINES.get(machine.inference, machine.inference))}; the loss is {code(loss)}"
    if not study.kernel:
        text += f" and the prior {code(machine.prior if isinstance(machine.prior, str) else repr(machine.prior))}"
    terms = fitted(machine, "variance_components_")
    if terms is not None:
        names = list(dict.fromkeys(str(key[0]) for key in (terms[0] if isinstance(terms, list) else terms).index))
        text += f", with effects of {_listed(names)}"
    return f"{text}."


def _listed(names: list[str]) -> str:
    shown = [code(name, 30) for name in names[:_MANY]]
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    if len(shown) == 1 or more:
        return ", ".join(shown) + more
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _good(found: Decisions | Responses | None, study: Study) -> str:
    if found is None:
        return (
            "This model does not know the responses of its rows, and none were given: there is nothing to compare with."
        )
    rows = "Of the rows that were given"
    if found is study.left_out:
        last = f"Of the {number(found.times.sum(), 9)} rows of the last batch, scored before they were learned"
        rows = last if study.rows_before else "Of rows that were left out one at a time"
    if isinstance(found, Responses):
        spread = float(
            np.sqrt(found.times @ (found.y - np.average(found.y, weights=found.times)) ** 2 / found.times.sum())
        )
        r2 = 1.0 - (found.rmse / spread) ** 2 if spread > 0 else np.nan
        return (
            f"{rows}, the typical error of a prediction is <b>{number(found.rmse)}</b>, where that of the mean of all "
            f"rows is {number(spread)}: {percent(max(r2, 0.0))} of the variance is predicted."
        )
    shares = np.bincount(found.y, found.times, found.k) / found.times.sum()
    text = (
        f"{rows}, <b>{percent(found.accuracy)}</b> are decided rightly; always deciding for "
        f"{code(found.labels[int(shares.argmax())])} would be right in {percent(float(shares.max()))}."
    )
    own = shares[shares > 0.0]
    text += f" The log loss is {number(found.log_loss)}, that of the class frequencies {number(-(own @ np.log(own)))}."
    if found.k == 2 and 0.0 < shares[1] < 1.0:
        area = roc(found.p[:, 1], found.y == 1, found.times).area
        text += (
            f" A row of {code(found.labels[1])} has a higher probability of it than a row of {code(found.labels[0])} "
            f"in {percent(area)} of such pairs (area below the ROC curve)."
        )
    return text


def _sure(found: Decisions | Responses | None) -> str:
    if found is None:
        return ""
    if isinstance(found, Responses):
        width = float(np.median(found.upper - found.lower))
        return (
            f"Intervals that should hold {percent(found.level)} of the responses hold <b>{percent(found.covered)}</b>; "
            f"half of them are narrower than {number(width)}."
        )
    top = found.natural.max(axis=1)
    right = (found.natural.argmax(axis=1) == found.y) @ found.times / found.times.sum()
    mean = float(top @ found.times / found.times.sum())
    text = f"On average it gives the class that it finds most probable {percent(mean)}"
    text += f", and is right in {percent(float(right))}."
    for least in (0.95, 0.9, 0.8):
        sure = top >= least
        if sure.mean() > 0.02:
            share = found.times[sure] @ (found.natural.argmax(axis=1) == found.y)[sure] / found.times[sure].sum()
            part = float(found.times[sure].sum() / found.times.sum())
            text += (
                f" Where it says {percent(least)} or more ({percent(part)} of the rows) it is right in "
                f"<b>{percent(float(share))}</b>."
            )
            break
    doubt = float(found.times[top < 0.6].sum() / found.times.sum()) if found.k == 2 else 0.0
    return text + (f" In {percent(doubt)} of the rows it hardly knows (below 60 %)." if doubt > 0.005 else "")


def _matters(study: Study) -> str:
    machine, found = study.machine, study.coefficients()
    if study.kernel:
        lengths = np.ravel(np.array([fitted(machine, "length_scale_")], dtype=float))
        lengths = lengths[np.isfinite(lengths)]
        if not len(lengths):
            return "A kernel model has no coefficients of columns: all of them enter through the similarity of rows."
        end = f"{number(lengths.min())} to {number(lengths.max())}" if len(lengths) > 1 else number(lengths[0])
        return (
            "A kernel model has no coefficients of columns: rows that are near each other are predicted alike, where "
            f"near means a distance of about {end}."
        )
    if found is None:
        return "There are no columns beside the groups."
    text = ""
    if fitted(machine, "inclusion_") is not None:
        chosen = inclusions(WHAT, study.model)
        inside = np.flatnonzero(chosen.value.max(axis=1) > 0.5)
        order = inside[np.argsort(-chosen.value.max(axis=1)[inside], kind="stable")]
        text = f"{len(inside)} of {len(chosen.names)} columns are more probably in the model than out"
        text += f": {_listed([chosen.names[j] for j in order])}. " if len(inside) else ". "
    clearest = [int(j) for j in found.farthest(_MANY) if found.away[j].any()]
    if not clearest:
        return text + "No column's effect is clearly different from zero: every interval holds zero."
    said = [_direction(study, found, j) for j in clearest]
    clear = int(found.away.any(axis=1).sum())
    told = "are not zero" if clear > 1 else "is not zero"
    if found.lower is not None:
        told = "have intervals that leave zero out" if clear > 1 else "has an interval that leaves zero out"
    return f"{text}{clear} of {len(found.names)} columns {told}. Farthest from zero: {'; '.join(said)}."


def _direction(study: Study, found: Any, j: int) -> str:
    r = int(found.distance[j].argmax())
    up = found.mean[j, r] > 0
    classes, output = study.classes, found.outputs[r]
    if classes is None:
        return f"{code(found.names[j], 30)} (more of it, {'larger' if up else 'smaller'} responses)"
    if len(classes) == 2:
        return f"{code(found.names[j], 30)} (more of it speaks for {code(classes[int(up)], 30)})"
    if " | " in output and output not in classes:
        pair = study.machine.classes_.tolist()
        first, second = [(a, b) for n, a in enumerate(pair) for b in pair[n + 1 :]][r]
        for_, against = (second, first) if up else (first, second)
        return f"{code(found.names[j], 30)} (for {code(for_, 30)} against {code(against, 30)})"
    return f"{code(found.names[j], 30)} ({'for' if up else 'against'} {code(output, 30)})"


def in_plain_words(study: Study) -> str:
    """The answers to what a reader asks first."""
    worries = study.worries()
    entries = [
        ("What was fitted", _fitted(study)),
        ("How good it is", _good(study.outcomes, study)),
        ("How sure it is", _sure(study.outcomes)),
        ("What matters most", _matters(study)),
    ]
    if study.given is not None and study.left_out is not None:
        entries.insert(2, ("On the given rows", _good(study.given, study)))
    items = "".join(f"<dt>{head}</dt><dd>{text}</dd>" for head, text in entries if text)
    listed = "".join(f"<li>{sentence(text)}</li>" for text in worries)
    told = f'<ul class="worries">{listed}</ul>' if worries else "<p>The fit has nothing to warn of.</p>"
    return f"<dl>{items}<dt>What to worry about</dt><dd>{told}</dd></dl>"
