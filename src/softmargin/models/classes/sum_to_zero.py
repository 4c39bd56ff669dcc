"""Many classes as one model: scores that sum to zero."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from inspect import signature
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model
from softmargin.designs.classes import Pairs, pair_weights
from softmargin.designs.standardize import Columns, design_for
from softmargin.inference.choices import Candidate, Refits, Rules, better, mean_and_error, tilted
from softmargin.inference.functions import INFERENCES
from softmargin.inference.many_rows import choice_rows
from softmargin.inference.readout import ClassReadout
from softmargin.inference.settings import Fit, Settings
from softmargin.inference.trials import Chosen, Trials, chosen_by, loss_of
from softmargin.inference.variational import fit_vb
from softmargin.loo.folds import Part, row_order
from softmargin.models.build import checked, coordinates_for, kept_columns
from softmargin.models.classes.reader import ClassReader
from softmargin.models.classes.scores import SumToZeroFit
from softmargin.models.compose import Composition, Data, as_columns, some_rows
from softmargin.models.fitted import Linear
from softmargin.models.prior_choice import always_mask
from softmargin.models.random_effects.terms import coded
from softmargin.models.two_class import Recipe
from softmargin.models.wide import RATE, SPREAD, is_wide, squared_length
from softmargin.priors.composed.terms import Terms
from softmargin.priors.ridge import Ridge
from softmargin.priors.spike_slab import SpikeSlab
from softmargin.refusals import refused
from softmargin.rows.in_memory import Blocks, one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.solvers.sum_to_zero import SumToZero
from softmargin.unknowns.class_missing import ClassMissing
from softmargin.unknowns.term_scales import TermScales

__all__ = ["OWN", "cost_table", "fit_sum_to_zero"]

# Weight of the pair of a row with its own class, where each of its other pairs has one: scores that are only pushed
# down by other classes mask a class that lies between them (Liu and Yuan 2011, whose gamma is OWN / (1 + OWN)). From
# 3 to 9 it matters little on digits, letters, iris, wine and simulated classes; 1 and 0 are worse.
OWN = 8.0
# Weight per class, loss times rate, of a row whose scores are zero at which intervals cover: 1/4 for two classes. Such
# a row has a loss of one for its other pairs together and of OWN for its own.
_COVERS = 1.0 / 8.0
# Rate per class from which higher ones are tried; on the sets above about twice the rate that covers predicts best.
_BASE = 1.0 / 32.0
# Where the prior is large beside a row's part the fit is a constant at low rates, and higher ones are tried.
_RULES = Rules(flat=0.9, steps=(2.0, 4.0, 8.0, 16.0), dropped=0.1)


def cost_table(costs: Any, k: int) -> Array | None:
    """The costs as numbers."""
    try:
        return None if costs is None else np.array(costs, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"costs must be a {k} x {k} table of numbers, one row and one column per class.") from None


def fit_sum_to_zero(
    recipe: Recipe,
    X: Any,
    label: Any,
    count: Array,
    weight: Array,
    columns: Columns,
    costs: Any,
    k: int,
    *,
    streams: Streams,
    workers: int = 1,
    callback: Callable[[int, Any], bool] | None = None,
    part: bool = False,
) -> SumToZeroFit:
    """Fit rows of k classes that count ``count`` times each and weigh ``weight``.

    ``part`` says that they are some of the data's rows.
    """
    with one_blas_thread():
        table = cost_table(costs, k)
        weights = pair_weights(label, weight, table, k)
        costless = np.flatnonzero(~(weights > 0.0).any(axis=1))
        if len(costless):
            raise ValueError(
                f"costs charges nothing for deciding on class number {costless[0]}, so that would always be best: give "
                f"column {costless[0]} a positive entry."
            )
        own_weight = OWN if recipe.chooses and table is None else 0.0
        pairs = Pairs.of(label, weight, table, k, own_weight)
        mean_cost = weights.sum(axis=0)  # what an error of a row costs on average: how it counts in the link
        data = Data(X, label, count, weight, columns)

        def built(prior: Any, solver: str) -> tuple[Composition, ClassReadout]:
            form: dict[str, Any] = {"streams": streams, "workers": workers, "part": part}
            whole = _composed(recipe, data, pairs, prior, solver, **form)
            return whole, ClassReadout(columns, whole.basis, whole.part, mean_cost, label, k)

        def weighted(model: Model, candidate: Candidate) -> Model:
            rows: Any = model.blocks.design
            own = tilted(label, count)[rows.index] if candidate.tilt else 1.0
            return model.with_weight(candidate.rate * own * model.c)

        losses: dict[Any, Array] = {}  # of folds under fits without them, each fitted once

        def loss(candidate: Candidate, whole: Fit, train: Part, test: Part, prior: Any = None) -> Array:
            key = (candidate, prior, test.rows.tobytes(), test.share.tobytes())
            if key not in losses:
                losses[key] = refitted_loss(candidate, train, test, prior)
            return losses[key]

        def refitted_loss(candidate: Candidate, train: Part, test: Part, prior: Any) -> Array:
            some, times = train.rows, count[train.rows] * train.share
            own, values = some_rows(recipe, X, some)
            held = X.at(test.rows) if recipe.effects else X[test.rows]
            kept = kept_columns(values, times, intercept=columns.intercept, standardized=recipe.standardized)
            fold = (own, label[some], times, weight[some] * train.share, kept)
            other = fit_sum_to_zero(recipe.refit(candidate, prior), *fold, costs, k, streams=streams, part=True)
            return loss_of(other.probability(held, "calibrated"), label[test.rows])

        def fitted(fit: Fit, chosen: Chosen) -> SumToZeroFit:
            parted = Linear.parted(fit, whole.reader(fit, kind=ClassReader))
            asked: dict[str, Any] = {"costs": table, "own": own_weight, "loss": recipe.loss}
            return SumToZeroFit(learning_rate=chosen.candidate.rate, chosen=chosen, **asked, **parted)

        whole, readout = built(recipe.prior, recipe.solver)
        model = whole.model
        settings = Settings(readout, callback=callback, **recipe.run)
        some = choice_rows(len(label), model.dimension)
        chosen, first, normal = recipe.decided(), None, model
        try:
            if recipe.quick and chosen is not None:
                return fitted(fit_vb(weighted(model, chosen.candidate), settings), chosen)
            if chosen is None and len(some) < len(label):
                own, _ = some_rows(recipe, X, some)
                asked: dict[str, Any] = {"inference": "vb", "prior": Ridge() if model.prior.selects else recipe.prior}
                few = (own, label[some], count[some], weight[some], columns)
                chosen = fit_sum_to_zero(replace(recipe, **asked), *few, costs, k, streams=streams, part=True).chosen
            if chosen is None:
                other, prior = readout, None
                if model.prior.selects or model.dimension > len(label):
                    prior = Ridge()  # point masses, or more columns than rows: chosen under a normal prior
                    plain, other = built(prior, "auto")
                    normal = plain.model
                quiet = settings.aside(readout=other.quick())

                def quick(candidate: Candidate, least: float) -> Any:
                    return fit_vb(weighted(normal, candidate), quiet, least=least)

                rules = replace(_RULES, steps=()) if recipe.selects else _RULES
                covers = _COVERS / (1.0 + own_weight)
                trials = Trials(
                    quick,
                    partial(loss, prior=prior),
                    label,
                    count,
                    cache(lambda: row_order(X.X if recipe.effects else X, columns, label, count)),
                    recipe.tilts,
                    base=k * (_BASE if own_weight and not recipe.selects else covers),
                    covers=k * covers,
                    rules=rules,
                )
                chosen, first, *_ = chosen_by(trials)
                rows: Any = model.blocks.design
                if is_wide(recipe, len(columns.keep), count):
                    found = _narrower(recipe, trials, chosen, first, rows.base, loss)
                    if found is not None:
                        chosen, scale = found
                        bound: Any = model.prior
                        model, first = model.with_prior(bound.at_scale(scale)), None
            infer = INFERENCES[recipe.inference]
            fit = infer(weighted(model, chosen.candidate), settings, first if normal is model else None)
            return fitted(fit, chosen)
        finally:
            normal.blocks.close()
            model.blocks.close()


def _narrower(
    recipe: Recipe, trials: Trials, chosen: Chosen, fit: Fit, base: Any, loss: Any
) -> tuple[Chosen, float] | None:
    """Rate and scale of the narrow prior of wide data, where refits of folds prefer it to what was chosen."""
    length, record = squared_length(base, trials.count), chosen.record
    if length is None or record is None:
        return None
    scale, trial = SPREAD / math.sqrt(length), trials.made(fit)
    candidate = Candidate(chosen.candidate.tilt, RATE)
    narrow = replace(trials, loss=partial(loss, prior=replace(recipe.prior, scale=scale)))
    value = {"tilt": candidate.tilt, "learning_rate": RATE, "scale": scale}
    old: Refits | None = None
    for task, tried, named in ((trials, chosen.candidate, record.taken), (narrow, candidate, value)):
        begun = time.process_time()
        new = task.refits(tried, trial, old)
        if new is None:
            return None
        if not any(entry.method == "folds" and entry.value == named for entry in record.entries):
            record.add(named, "folds", *mean_and_error(new.values, new.weight), time.process_time() - begun)
        old, worse = new, old
    if not better(new, worse, 0.0):
        return None
    record.taken = value
    return Chosen(candidate, record), scale


def _composed(
    recipe: Recipe,
    data: Data,
    pairs: Pairs,
    prior: Any,
    solver: str,
    *,
    streams: Streams,
    workers: int,
    part: bool,
) -> Composition:
    """The model of pairs (row, class)."""
    X, columns, k = data.X, data.columns, len(pairs.weight)
    terms = coded(recipe.effects, X, columns, part=part) if recipe.effects else ()
    basis, solver = None, "cholesky" if recipe.incomplete else solver
    if terms:
        parts = tuple(term.term(X) for term in terms)
        reason, way = "multi_class='sum-to-zero'", "use multi_class='pairwise'"
        base: Any = as_columns(design_for(X.X, columns), parts, terms, reason, way, copies=k - 1)
    else:
        found = coordinates_for(design_for(X, columns), prior, solver)
        base, basis = found.design, found.basis
    design: Any = pairs.design(base)
    seen = min(len(design.index), (k - 1) * len(data.response))  # scores of a row sum to zero
    free, known = design.free, sum(term.prior.size for term in terms)
    own = free.reshape(k, -1)[:, : base.shape[1] - known]
    if prior.point_masses:
        always = always_mask(prior.always_include, columns, recipe.names)
        chosen = prior.of_columns(columns) if isinstance(prior, SpikeSlab) else prior
        bound = chosen.bind(own[0], len(data.response), always=always, classes=k)
    else:
        bound = checked(prior, _of_classes(prior)(own.ravel(), seen, classes=k))
    if terms:
        whole = Terms(Ridge(), tuple(term.prior for term in terms))
        bound = whole.bind(free, seen, classes=k).with_fixed(bound)
    blocks = Blocks(design, pairs.in_order(pairs.sign), pairs.in_order(pairs.weight), workers=workers)
    unknowns: tuple[Any, ...] = (ClassMissing(weight=data.weight),) if recipe.incomplete else ()
    missing = 0 if recipe.incomplete else None
    if terms and bound.selects:
        unknowns = (*unknowns, TermScales())
    model = Model(blocks, recipe.loss, bound, free, streams, SumToZero.of(design), unknowns=unknowns, known=known)
    return Composition(model, columns, basis, np.minimum(1.0, 1.0 / data.counts), terms, missing)


def _of_classes(prior: Any) -> Any:
    """The prior's ``bind``, refused where it knows of one block of coefficients only."""
    if "classes" not in signature(prior.bind).parameters:
        raise ValueError(refused("a prior of one block", prior=type(prior).__name__))
    return prior.bind
