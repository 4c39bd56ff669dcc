"""What is chosen for a kernel machine before it is fitted: units of the columns, width, tilt and learning rate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from softmargin.core.array import Array
from softmargin.designs.kernel.kernels import Kernel
from softmargin.designs.standardize import Columns
from softmargin.engines.vi.inducing import Neighbour
from softmargin.inference.choices import Candidate, Record, Rules, choose, entropy
from softmargin.inference.settings import Fit
from softmargin.inference.trials import loss_of
from softmargin.loo.folds import Part
from softmargin.models.kernel.comparison import Comparison
from softmargin.models.kernel.folds import SEARCHED, SampledTrials, counted, ordered, refit, sampled
from softmargin.models.kernel.levels import Level, machine_of, messages_at
from softmargin.models.kernel.models import KernelBinary
from softmargin.models.kernel.search import WIDEST, Before, KernelRows, Quick, Search, Setting, quick_fit, settings_of

__all__ = ["Request", "Settled", "settle"]

# Steps by refits of three folds, and where leave-one-out does not object: a scale that runs away shows there first.
# A flat plain fit may rank well, and has no coefficients.
_RULES = Rules(steps=(2.0, 4.0), gate=0.0, folds=3, dropped=0.0)
_COMPARED = 3000  # rows, at most, that compare what those chose


class Request(NamedTuple):
    """What the user gave and what is left to choose."""

    kernel: Any
    length_scale: Any
    scaled: bool | str
    learning_rate: float | str
    tilts: bool  # whether tilted weights may be tried


class Settled(NamedTuple):
    """What was given or chosen, with a fit of it."""

    setting: Setting
    middle: float | None  # length that the search began with
    candidate: Candidate
    machine: KernelBinary
    record: Record
    rows: KernelRows  # that the fit is of
    request: Request
    level: Level | None = None  # the fit, where it is one on inducing points

    @property
    def kernel(self) -> Kernel:
        return self.setting.kernel

    @property
    def columns(self) -> Columns | None:
        return self.setting.columns

    def seen(self, rows: KernelRows) -> KernelRows:
        """The rows of the fit, in the units of ``rows``."""
        return replace(self.rows.at_candidate(self.candidate), prior=rows.prior)

    def messages(self, rows: KernelRows, base: float) -> Neighbour:
        """What all rows say at the predictors of the fit, for a fit in units of ``base`` to start from.

        Wide kernels have a second, worse optimum with a small scale, into which a fit started from nothing falls.
        """
        state = self.machine.fit.vi
        if len(self.rows.sign) == len(rows.sign) and state is not None:
            return Neighbour(state.message.w, state.message.b, self.machine.fit.scale / base)
        return messages_at(rows, self.machine, base)


def settle(rows: KernelRows, request: Request) -> Settled:
    """Units and width by leave-one-out at the lowest rate, tilt by leave-one-out there, then the rate.

    With few rows the rate is one that refits prefer. With many, some of them choose units, width and tilt, and then
    more of them the width once more, and the rate. One search for the width serves both tilts: it is made with tilted
    weights where they may be tried, since a plain fit on its way to a constant says nothing about widths.
    """
    some, record = sampled(rows, SEARCHED), Record()
    auto, likelihood = isinstance(request.learning_rate, str), rows.loss.normalised
    given = None if auto and not likelihood else Candidate(False, 1.0 if auto else float(request.learning_rate))
    first = Candidate(request.tilts, _RULES.base)
    if given is not None:  # leave-one-out flatters wide kernels at high rates of a hinge
        first = given if likelihood else Candidate(False, min(given.rate, _RULES.base))
    setting, middle, tried, before = _width(some.at_candidate(first), request, record)
    known = {} if tried is None else {first: tried}
    again = some is not rows and not setting.kernel.precomputed
    if given is None:
        rules = replace(_RULES, steps=()) if again else _RULES
        candidate, machine = _chosen(some, setting, request.tilts, known, before, record, rules)
    else:
        candidate = given
        machine = known[given] if given in known else _quick(some.at_candidate(given), setting, before)
    settled = Settled(setting, middle, candidate, machine, record, some, request)
    if again and (given is None or len(record.entries)):
        settled = _compared(rows, settled, request, first, given)
    taken = settled.candidate
    record.taken = settled.setting.value | {"tilt": taken.tilt, "learning_rate": taken.rate}
    return settled


def _compared(
    rows: KernelRows, settled: Settled, request: Request, first: Candidate, given: Candidate | None
) -> Settled:
    """What some rows chose, compared with more of them on inducing points."""
    more = sampled(rows, _COMPARED)
    comparison = Comparison(more, settled.setting, settled.record)
    at = settled.candidate if given is None else first
    if request.tilts and given is None and not at.tilt:
        best = comparison.either(settled.setting, at.rate, settled.machine)
    else:
        best = comparison.first(settled.setting, at, settled.machine)
    longest = 0.0  # a length that is given stays
    if request.length_scale == "learn" and settled.middle is not None:
        longest = settled.middle * 2.0**WIDEST
    best = comparison.wider(best, longest)
    if given is None:
        higher = comparison.higher(best, tuple(step * _RULES.base for step in _RULES.steps))
        best = higher if higher is best else comparison.wider(higher, longest)
    elif given != first:
        best = comparison.at(best.setting, given, best.level.messages)
    machine = machine_of(more.at_candidate(best.candidate), best.level)
    return Settled(best.setting, settled.middle, best.candidate, machine, settled.record, more, request, best.level)


def _quick(rows: KernelRows, setting: Setting, before: Before | None, **options: float) -> Quick:
    machine = quick_fit(rows, setting, before, **options)
    assert machine is not None
    return machine


def _width(
    rows: KernelRows, request: Request, record: Record
) -> tuple[Setting, float | None, Quick | None, Before | None]:
    """The kernel to take, the length its search began with, the fit of it if there is one, and one to start from."""
    kernel, length, scaled, *_ = request
    settings = settings_of(rows, kernel, length, scaled)
    search = Search(rows, record)
    if not isinstance(length, str) and settings[0].kernel.length is not None:
        # a kernel far from the mean distance has a second, worse optimum; fits started from the mean distance avoid it
        search.last = _quick(rows, settings_of(rows, kernel, "mean-distance", scaled)[0], None).left
    learned = length == "learn" and settings[0].kernel.length is not None
    if not learned and len(settings) == 1:
        return settings[0], settings[0].kernel.length, None, search.last
    best = min((search.at(setting, 0.0) for setting in settings), key=lambda one: one.rank)
    if learned:
        best = search.refined(search.unseen(search.climb(best), entropy(rows.label, rows.weight)))
    return best.setting.wider(best.step), best.setting.kernel.length, best.machine, best.machine.left


def _chosen(
    rows: KernelRows,
    setting: Setting,
    tilts: bool,
    known: dict[Candidate, Quick],
    before: Before | None,
    record: Record,
    rules: Rules,
) -> tuple[Candidate, Quick]:
    """Tilt and learning rate at the width found, and the quick fit with them; ``known`` are fits that were made."""
    machines = dict(known)

    def quick(candidate: Candidate, least: float) -> Fit | None:
        if candidate in known:
            return known[candidate].fit
        machine = quick_fit(rows.at_candidate(candidate), setting, before, least=least)
        if machine is None:
            return None
        machines[candidate] = machine
        return machine.fit

    def loss(candidate: Candidate, whole: Fit, train: Part, test: Part) -> Array:
        fitted = machines[candidate]
        machine = refit(rows, setting, candidate, fitted.left, fitted.fit.scale, train)
        return loss_of(machine.probability(rows.X[test.rows], "calibrated"), rows.label[test.rows])

    dealt = cache(lambda: ordered(rows, setting))
    trials = SampledTrials(quick, loss, rows.label, counted(rows), dealt, tilts, rules=rules, observed=rows.count)
    choice = choose(trials, rules)
    new = choice.record.entries[len(known) :]  # those that are known come first, and are in the record
    record.entries += [entry._replace(value=setting.value | entry.value) for entry in new]
    return choice.candidate, machines[choice.candidate]
