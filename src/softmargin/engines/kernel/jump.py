"""Bayesian generalised kernel models: one entry to all their samplers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info, Outcome, Progress, run
from softmargin.engines.kernel.active_vectors import active_vectors
from softmargin.engines.kernel.data import KernelData, LengthScale
from softmargin.engines.kernel.draws import KernelDraws, Link, Recorder, hinge_link, logit_link, probit_link
from softmargin.engines.kernel.full import all_rows
from softmargin.engines.kernel.machines import MachinePrior, kernel_machine
from softmargin.engines.sampling.chains import Chains
from softmargin.losses import CompleteHinge, Hinge, Logit, NoisyHinge, Probit
from softmargin.losses.row_loss import check_whole_weights
from softmargin.priors.g_prior import GPrior
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.streams import Streams
from softmargin.survival.watch import present

__all__ = ["BASES", "LIKELIHOODS", "fit_active"]

BASES = ("active", "full")


class _Likelihood(NamedTuple):
    """A loss, its link and what it allows."""

    loss: Callable[[], Any]
    link: Link
    collapsed: bool = False  # latents with the coefficients integrated out
    machine: bool = False  # a prior of its own, on all rows


LIKELIHOODS = {
    "probit": _Likelihood(Probit, probit_link, collapsed=True),
    "logit": _Likelihood(Logit, logit_link),
    "hinge": _Likelihood(Hinge, hinge_link),
    "noisy-hinge": _Likelihood(NoisyHinge, hinge_link, machine=True),
    "complete-hinge": _Likelihood(CompleteHinge, hinge_link, machine=True),
}


def fit_active(
    K: Array,
    y: Array,
    weight: Array | None = None,
    *,
    likelihood: str = "probit",
    basis: str = "active",
    max_active: int | None = None,
    prior: GPrior | None = None,
    machine_prior: MachinePrior | None = None,
    moves: int | None = None,
    informed: bool = False,
    length: LengthScale | None = None,
    sweeps: int = 5000,
    warmup: int = 1000,
    thin: int = 5,
    chains: int = 1,
    rao_blackwell: bool = False,
    streams: Streams,
    callback: Callable[[int, Info], bool | None] | None = None,
    verbose: int = 0,
) -> KernelDraws:
    """Draw kernel expansions given the kernel matrix K of the training rows and labels y in {-1, +1}.

    Parameters
    ----------
    K : array (n, n)
        Kernel matrix, symmetric and positive semi-definite; it may be singular.
    y, weight : arrays (n,)
        Labels and row weights (None: ones), whole numbers for all but the logit and the hinge.
    likelihood : str
        "probit", "logit", "hinge", or with ``basis="full"`` "noisy-hinge" (BSVM) and "complete-hinge" (CSVM).
    basis : str
        "active": expansions on a few rows (FBGKM with the probit); "full": on all rows (BGKM).
    max_active : int or None
        Largest number of active rows; None is n.
    prior, machine_prior : GPrior, MachinePrior or None
        Prior of the expansions; the second is that of the noisy and the complete hinge.
    moves : int or None
        Birth, death or swap proposals a sweep; None is a twentieth of n, at least 5.
    informed : bool
        Whether births choose rows by their pull on the residual.
    length : LengthScale or None
        Learn the kernel's length scale; K must be its matrix at the start. Needs ``basis="active"``.
    sweeps, warmup, thin : int
        Every ``thin``-th of ``sweeps`` sweeps after ``warmup`` is kept.
    chains : int
        Number of chains.
    rao_blackwell : bool
        Keep the normal law of the coefficients with every draw, k^2 numbers each; needs ``basis="active"``.
    streams : Streams
        Random numbers.
    callback : callable or None
        Called with (sweep, info) after every sweep; returning True stops the run, which keeps what it has.
    verbose : int
        Show progress at once.

    References
    ----------
    Zhang, Dai, Wang and Jordan (2010), Bayesian generalized kernel models, AISTATS.
    """
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=np.float64)
    _check(K, y, weight, likelihood, basis, max_active, length, rao_blackwell, sweeps // thin)
    chosen = LIKELIHOODS[likelihood]
    own: Any = (machine_prior or MachinePrior()) if chosen.machine else (prior or GPrior())
    K, y = np.ascontiguousarray(K, dtype=np.float64), np.asarray(y, dtype=np.float64)
    data = KernelData(K, y, weight, chosen.loss(), own, streams)
    if chosen.machine:
        sampler = kernel_machine(chains)
    elif basis == "full":
        sampler = all_rows(chains)
    else:
        most = len(y) if max_active is None else max_active
        times = max(5, math.ceil(len(y) / 20)) if moves is None else moves
        sampler = active_vectors(most, times, chosen.collapsed, informed, length, warmup, chains)
    with one_blas_thread():
        return _drawn(sampler, data, chosen.link, rao_blackwell, sweeps, warmup, thin, callback, verbose)


def _drawn(
    sampler: Chains,
    data: KernelData,
    link: Link,
    law: bool,
    sweeps: int,
    warmup: int,
    thin: int,
    callback: Callable[[int, Info], bool | None] | None,
    verbose: int,
) -> KernelDraws:
    """Run a sampler and keep what it draws; chains of a fit before go on."""
    since = present().behind()
    warmup = 0 if since else warmup
    recorder, current = Recorder(sampler.chains), Outcome(None)

    def keep(iteration: int, info: Info) -> bool:
        past = iteration - since - warmup
        if past > 0 and past % thin == 0:
            for k, chain in enumerate(current.state):
                recorder.add(k, chain.expansion(data, law), chain.values())
        return bool(callback and callback(iteration, info))

    total = warmup + sweeps
    model: Any = data
    watch: Any = {"progress": Progress("sweep", total, verbose), "callback": keep, "gathers": recorder}
    outcome = run(sampler, model, max_iter=total, outcome=current, main=True, since=since, **watch)
    if not recorder.kept[-1]:
        raise KeyboardInterrupt("interrupted before a draw was kept")
    outcome.converged = outcome.n_iter == since + total
    return recorder.draws(len(data.y), link, _accepted(outcome.state), outcome)


def _accepted(state: tuple[Any, ...]) -> dict[str, float]:
    """Share of accepted proposals by kind, where any are made."""
    made = [chain.proposals() for chain in state]
    tried, taken = ({kind: sum(int(each[kind][i]) for each in made) for kind in made[0]} for i in (0, 1))
    return {kind: taken[kind] / max(tried[kind], 1) for kind in tried}


def _check(
    K: Array,
    y: Array,
    weight: Array,
    likelihood: str,
    basis: str,
    max_active: int | None,
    length: LengthScale | None,
    rao_blackwell: bool,
    kept: int,
) -> None:
    """Refuse what does not go together, in one sentence each."""
    n = len(y)
    if likelihood not in LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(LIKELIHOODS)}; got {likelihood!r}.")
    if basis not in BASES:
        raise ValueError(f"basis must be 'active' or 'full' for draws; got {basis!r}.")
    chosen = LIKELIHOODS[likelihood]
    if chosen.machine and basis == "active":
        raise ValueError(f"likelihood={likelihood!r} has coefficients on all rows: use basis='full', or the hinge.")
    if basis == "full" and (length is not None or rao_blackwell):
        raise ValueError("a learned length scale and rao_blackwell need basis='active'.")
    if K.shape != (n, n) or len(weight) != n:
        raise ValueError(f"K must be {n} x {n} and weight have {n} entries; got {K.shape} and {len(weight)}.")
    if not np.isin(y, (-1.0, 1.0)).all():
        raise ValueError("y must hold -1 and +1.")
    if not (np.isfinite(weight).all() and (weight >= 0.0).all() and weight.any()):
        raise ValueError("weights must be finite and not negative, and one of them positive.")
    if max_active is not None and not 1 <= max_active <= n:
        raise ValueError(f"max_active must be between 1 and the number of rows, {n}; got {max_active}.")
    if kept < 1:
        raise ValueError("no draw would be kept: let sweeps be at least thin.")
    if chosen.machine or chosen.collapsed:
        check_whole_weights(chosen.loss(), weight)
