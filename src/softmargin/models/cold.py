"""A cold posterior beside the learned one, for classes that hardly overlap.

Where a plane separates the rows, a learned scale is far above the margin of the hinge, which then asks for no more than
the right signs: f is a compromise of all planes that give them, and columns that have nothing to do with the classes
are in it. At a high rate and under a narrow prior the posterior is near its mode, a support vector machine with cost
``2 * rate * scale**2``, whose plane is the one with the widest margin. Which of the two predicts better is a question
for rows left out. Its link keeps a doubt that every label may be wrong: a margin that all rows keep says nothing of
how often labels are.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

from softmargin.core.model import Model
from softmargin.inference.choices import Candidate, Refits, better, mean_and_error
from softmargin.inference.settings import Fit
from softmargin.inference.trials import Apart, Chosen, Decision, Trials, quick_fit
from softmargin.models.wide import learns_scale, squared_length

__all__ = ["RATE", "SPREAD", "WRONG", "Cold", "colder"]

# Cost 8 for rows of length one: rows of clean classes are separated, with a margin of two prior standard deviations.
# Half and twice this spread of a row's predictor gain less on 88 sets.
RATE, SPREAD = 16.0, 0.5
# Share of the entropy from which classes overlap too much: up to 0.5 the folds seldom prefer the cold posterior, and
# asking them is then half the time of the fit.
_CLEAN = 0.1
WRONG = 0.5  # labels that may be wrong though none is seen to be, by Jeffreys' rule


class Cold(NamedTuple):
    """The cold posterior where it was taken: its quick fit, its scale, and its fits without some of the rows."""

    decision: Decision
    scale: float
    parts: Apart

    def model(self, usual: Model) -> Model:
        """The model under the narrow prior."""
        prior: Any = usual.prior
        return usual.with_prior(prior.at_scale(self.scale))


def colder(recipe: Any, trials: Trials, decision: Decision, usual: Apart) -> Cold | None:
    """The cold posterior, where left-out rows prefer it to the one that was decided on.

    It is not tried where weights or the scale are given, for a mode, nor for batches, which fit the link anew.
    """
    best: Fit = decision.fit
    free = recipe.tilts and learns_scale(recipe) and recipe.inference != "svi"
    clean = free and best.loo.score < _CLEAN * trials.entropy
    length = squared_length(usual.model.blocks.design, trials.count) if clean else None
    if length is None:
        return None
    scale, prior = SPREAD / math.sqrt(length), usual.model.prior
    settings = replace(usual.settings, readout=replace(usual.settings.readout, wrong=WRONG))
    parts = Apart(usual.model.with_prior(prior.at_scale(scale)), settings)
    own = replace(trials, quick=lambda candidate, least: quick_fit(parts.model, settings, candidate), loss=parts.loss)

    chosen = decision.chosen
    record, candidate = chosen.record, Candidate(chosen.candidate.tilt, RATE)
    assert record is not None
    value = {"tilt": candidate.tilt, "learning_rate": RATE, "scale": scale}

    def noted(method: str, score: float, error: float, begun: float) -> None:
        record.add(value, method, score, error, time.process_time() - begun)

    begun = time.process_time()
    trial = own.trial(candidate)
    assert trial is not None
    noted("leave-one-out", trial.fit.loo.score, math.nan, begun)
    if trial.fit.loo.score >= best.loo.score:  # which flatters a higher rate, and even so objects
        return None
    old: Refits | None = trials.refits(chosen.candidate, trials.made(best))
    begun = time.process_time()
    new = None if old is None else own.refits(candidate, trial, old)
    if new is not None:
        noted("folds", *mean_and_error(new.values, new.weight), begun)
    if not better(new, old, trials.rules.errors):
        return None
    record.taken = value
    return Cold(Decision(Chosen(candidate, record, math.sqrt(RATE / trials.covers)), trial.fit), scale, parts)
