"""Which loss a regression has when none is given: quick fits of both, compared by their bounds on the evidence.

Both losses are normalised densities of y with a learned noise level, so the bounds of their fits are on one scale. A
learned band enters at its best value, at the price of its prior density in spreads of y. The rule was picked among
leave-one-out densities with several handicaps, leave-one-out errors, and the evidence with the band integrated out, on
588 simulated problems and 381 splits of 52 real regressions; the differences between the first, the last and this one
are small. ``docs/regression.md`` has its figures on problems that were simulated afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from softmargin.core.loop import Outcome
from softmargin.core.model import Model
from softmargin.inference.choices import Record, mean_and_error
from softmargin.inference.regression import variational
from softmargin.inference.settings import Settings
from softmargin.models.build import Problem
from softmargin.unknowns.noise import Noise

__all__ = ["Likelihood", "LikelihoodChoice", "choose_likelihood"]


class Likelihood(NamedTuple):
    """A loss with what is known about its noise."""

    name: str
    loss: Any
    noise: Noise


class LikelihoodChoice(NamedTuple):
    """The likelihood that was taken, what was tried, and its variational fit where that is one of the model itself."""

    likelihood: Likelihood
    record: Record
    first: Outcome | None


def choose_likelihood(
    likelihoods: tuple[Likelihood, ...], model: Model, settings: Settings, ridge: Callable[[], Problem]
) -> LikelihoodChoice:
    """The likelihood with the highest bound on the evidence.

    Fits are those of the model; where its prior has point masses, or there are more columns than rows, they are made
    under a ridge prior (``ridge``) instead. A fit that is stopped by the user ends the choice.
    """
    if len(likelihoods) == 1:
        return LikelihoodChoice(likelihoods[0], Record(), None)
    if hasattr(model.prior, "gaussian") and (model.size <= len(model.y) or hasattr(model.blocks.design, "entries")):
        return _highest(likelihoods, model, settings)
    problem = ridge()
    readout = replace(settings.readout, basis=problem.coordinates.basis)
    try:
        found = _highest(likelihoods, problem.model, replace(settings, readout=readout, callback=None))
    finally:
        problem.model.blocks.close()
    if found.first is not None and found.first.interrupted:
        raise KeyboardInterrupt("interrupted while the likelihood was being chosen")
    return found._replace(first=None)


def _highest(likelihoods: tuple[Likelihood, ...], model: Model, settings: Settings) -> LikelihoodChoice:
    """Fit them in turn; of what there is when the user stops a fit, the one that came to its end."""
    record, readout = Record(), settings.readout
    logs = math.log(readout.units.spread)  # from the model's response to the units of y
    taken: tuple[Likelihood, Outcome] | None = None
    for each in likelihoods:
        begun, now = time.process_time(), replace(model, loss=each.loss)
        outcome = variational(now, settings, each.noise)
        fitted, name, bound = time.process_time(), {"likelihood": each.name}, outcome.state.objective
        record.add(name, "evidence bound", bound - float(readout.count.sum()) * logs, math.nan, fitted - begun)
        left_out = mean_and_error(readout.of_fit(now, outcome.state).log_density - logs, readout.count)
        record.add(name, "leave-one-out", *left_out, time.process_time() - fitted)  # told, not asked
        if taken is None or (bound > taken[1].state.objective and not outcome.interrupted):
            taken = each, outcome
        if outcome.interrupted:
            taken[1].interrupted, taken[1].converged = True, False
            break
    assert taken is not None
    record.taken = {"likelihood": taken[0].name}
    return LikelihoodChoice(taken[0], record, taken[1])
