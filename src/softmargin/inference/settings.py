"""What an inference is told and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.loop import Info, Outcome, Progress, run
from softmargin.core.model import Model, require
from softmargin.designs.standardize import Columns
from softmargin.engines.vi.gaussian import VIState

__all__ = [
    "BATCHES",
    "Fit",
    "Inclusion",
    "Settings",
    "best_of",
    "needs_no_draws",
    "options_of",
    "rough",
    "run_engine",
]

_STEPS, _ROUGH = 40, 1e-4  # limits of a fit that is only a means to something else
BATCHES = 20  # consecutive parts of a chain behind a Monte Carlo error


@dataclass(frozen=True)
class Settings:
    """What the user asked for, resolved."""

    readout: Any  # how results become a posterior; see ``readout.Readout``
    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    thin: int = 1
    max_iter: int = 500
    tol: float = 1e-6
    verbose: int = 0
    callback: Callable[[int, Info], bool] | None = None
    main: bool = True  # whether this is the fit asked for, whose runs the next fit may go on from
    options: dict[str, Any] = field(default_factory=dict)

    def aside(self, **changes: Any) -> Settings:
        """For a fit that is only a means to the one asked for: its own options, no progress and no callback."""
        return replace(self, **({"options": {}, "callback": None, "verbose": 0, "main": False} | changes))

    def progress(self, label: str, total: int | None) -> Progress:
        """The progress line of one run."""
        return Progress(label, total, self.verbose)


class Inclusion(NamedTuple):
    """Inclusion probabilities of the model's coefficients."""

    chains: Array  # (chains, coefficients), averages of conditional probabilities
    error: Array  # Monte Carlo standard error of their average over chains
    gap: Array  # (chains, coefficients), frequency of the indicator minus the above

    @classmethod
    def from_batches(cls, sums: Array, kept: int, planned: int, indicator: Array) -> Inclusion:
        """From sums (chains, batches, coefficients) over consecutive draws, and the frequency of the indicators."""
        counts = np.bincount(np.arange(kept) * BATCHES // planned, minlength=BATCHES)
        means = (sums[:, counts > 0] / counts[counts > 0, None]).reshape(-1, sums.shape[-1])
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.full(sums.shape[-1], np.nan)
        chains = sums.sum(axis=1) / kept
        return cls(chains, error, indicator - chains)

    def by_column(self, columns: Columns) -> Inclusion:
        """The same of the columns of X; zero for constant ones."""

        def spread(values: Array) -> Array:
            full = np.zeros((*values.shape[:-1], columns.n_features))
            full[..., columns.keep] = values[..., int(columns.intercept) :]
            return full

        return Inclusion(*(spread(part) for part in self))


class Fit(NamedTuple):
    """A posterior with the leave-one-out summary of its training rows."""

    posterior: Any
    held: Any  # leave-one-out predictors of the training rows, with the link fitted on them
    scale: float
    outcome: Outcome
    gap: float | None = None
    vi: VIState | None = None
    inclusion: Inclusion | None = None
    notice: str = ""  # what the user should know about the run
    remark: str = ""  # and about the model
    unknowns: tuple[Any, ...] = ()  # what is known of the unknowns: their densities, or averages of their draws
    values: Any = None  # numbers of the prior by name, or draws of them

    @property
    def loo(self) -> Any:
        """Leave-one-out scores and the link."""
        return self.held.loo

    def settled(self) -> Fit:
        """What a fitted model needs of it: engines and unknowns have no more steps to make, and their states go."""
        return self._replace(outcome=replace(self.outcome, state=None), vi=None, unknowns=())


def rough(settings: Settings) -> Settings:
    """Settings of a fit that is only a means to something else."""
    limits = {"max_iter": min(settings.max_iter, _STEPS), "tol": max(settings.tol, _ROUGH)}
    return settings.aside(**limits)


def options_of(settings: Settings, *known: str) -> dict[str, Any]:
    unknown = set(settings.options) - set(known)
    if unknown:
        raise ValueError(f"unknown engine_options {sorted(unknown)}; this inference knows {sorted(known)}.")
    return settings.options


def run_engine(engine: Any, model: Model, settings: Settings, label: str, **kwargs: Any) -> Outcome:
    """Run an engine under the settings; the run of a fit before, if there is one to go on from, is its start."""
    require(engine, loss=model.loss, prior=model.prior)
    watch: Any = {"progress": settings.progress(label, kwargs["max_iter"]), "callback": settings.callback}
    return run(engine, model, main=settings.main, **watch, **kwargs)


def best_of(attempt: Callable[[Any], Outcome], starts: Any) -> Outcome:
    """The run with the highest objective; an interrupted one ends the attempts."""
    runs: list[Outcome] = []
    for start in starts:
        runs.append(attempt(start))
        if runs[-1].interrupted:
            break
    best = max(runs, key=lambda found: found.state.objective)
    best.interrupted = runs[-1].interrupted
    best.converged = best.converged and not best.interrupted
    return best


def needs_no_draws(model: Model) -> None:
    reason = model.prior.only_draws
    if reason:
        raise ValueError(reason)
