"""The only loop: stopping, progress, callbacks and interruption live here, mathematics does not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from softmargin.core.model import Model
from softmargin.core.rows import Kept
from softmargin.storage.records import Table
from softmargin.survival.states import States
from softmargin.survival.watch import Last, OutOfTime, Place, Saved, present

__all__ = ["Engine", "Gathers", "Info", "Outcome", "Progress", "Standstill", "iterate", "relative", "run"]

_LARGEST = 1e6  # bound from which a change is no longer measured by it: heavy rows would hide a change that matters
_ROUNDING = 1e-15  # relative change of a bound that says nothing


class Info(NamedTuple):
    """What a step reports: the objective, how far the step still moved, whether the engine is done."""

    objective: float
    change: float
    done: bool = False


def relative(gain: float, bound: float) -> float:
    """Size of a change of a bound in units of the bound, or of the largest unit that lets every change be seen."""
    size = abs(bound)
    return 0.0 if abs(gain) <= _ROUNDING * size else abs(gain) / (1.0 + min(size, _LARGEST))


class Engine(Protocol):
    """A step is a function of (model, state, iteration); the state is a small immutable record."""

    def init(self, model: Model) -> Any:
        """The first state."""

    def step(self, model: Model, state: Any, iteration: int) -> tuple[Any, Info]:
        """The next state and what to report."""


@dataclass
class Outcome:
    """What a run leaves behind."""

    state: Any
    trace: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False
    change: float = float("inf")
    reason: str = ""  # why it did not converge and what to do, where more rounds alone would not help


class Standstill:
    """The highest of the states of a run, which has ``enough`` where none of some further steps is higher.

    An ascent that falls has come to the rounding of its sums, and would wander about there.
    """

    def __init__(self, patience: int) -> None:
        self.patience, self.since = patience, 0
        self.best: Any = None

    def __call__(self, state: Any) -> bool:
        """Whether so many steps in a row were no higher."""
        higher = self.best is None or state.objective > self.best.objective
        self.best, self.since = (state, 0) if higher else (self.best, self.since + 1)
        return self.since >= self.patience

    def settle(self, outcome: Outcome) -> Outcome:
        """The outcome of the run, at the highest state and with a reason if it was ended here."""
        if self.since >= self.patience and not outcome.converged:
            outcome.state = self.best
            outcome.reason = (
                f"the objective has not risen in the last {self.since} of {outcome.n_iter} iterations, because "
                "rounding hides what is left to gain; give smaller sample weights or a smaller prior scale."
            )
        return outcome


class Progress:
    """One line on standard error: after two seconds on a terminal, at once and everywhere when ``verbose``."""

    def __init__(self, label: str, total: int | None, verbose: int = 0):
        self.label, self.total, self.verbose = label, total, verbose
        self.begun = self.shown = time.monotonic()
        self.open = False

    def __call__(self, done: int, info: Info) -> None:
        """Show where the run stands, at most a few times a second."""
        now = time.monotonic()
        waiting = 2.0 if not self.verbose else 0.0
        if now - self.begun < waiting or (self.open and now - self.shown < 0.25):
            return
        if not self.verbose and not sys.stderr.isatty():
            return
        self.shown, self.open = now, True
        of = f"/{self.total}" if self.total else ""
        spent = now - self.begun
        left = f", at most {spent / done * (self.total - done):.0f} s left" if self.total else ""
        sys.stderr.write(f"\r{self.label}: {done}{of}, objective {info.objective:.6g}, {spent:.0f} s{left} ")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self.open:
            sys.stderr.write("\n")
            self.open = False


class Gathers(Protocol):
    """What gathers something over the steps of a run, and must be there again where the run goes on."""

    def gathered(self) -> Any:
        """All that it has, in arrays, numbers and records."""

    def restore(self, gathered: Any) -> None:
        """Have that again."""


def iterate(
    engine: Engine, model: Model, *, max_iter: int, tol: float = 0.0, state: Any = None, first: int = 0
) -> Iterator[tuple[int, Any, Info]]:
    """Yield (iteration, state, info) until the engine is done, the change is below ``tol``, or ``max_iter``.

    ``first`` is the number of iterations that have led to ``state``.
    """
    state = engine.init(model) if state is None else state
    for iteration in range(first, max_iter):
        state, info = engine.step(model, state, iteration)
        stop = info.done or info.change <= tol
        yield iteration + 1, state, info._replace(done=stop)
        if stop:
            return


def run(
    engine: Engine,
    model: Model,
    *,
    max_iter: int,
    tol: float = 0.0,
    state: Any = None,
    since: int = 0,
    main: bool = False,
    progress: Progress | None = None,
    callback: Callable[[int, Info], bool | None] | None = None,
    enough: Callable[[Any], bool] | None = None,
    gathers: Gathers | None = None,
    outcome: Outcome | None = None,
    inner: bool = False,
) -> Outcome:
    """Run an engine to its end; Ctrl-C, a time limit or a callback that returns True stops it and keeps what there is.

    ``outcome`` is filled as the run goes, so that a callback which holds it sees the present state. An ``inner`` run
    leaves Ctrl-C to the run around it. ``enough`` says of a state that no more steps are wanted. ``since`` counts the
    iterations that have led to ``state``, to which ``max_iter`` are added. Where the fit has checkpoints, the run goes
    on from the last one, with what ``gathers`` had. A ``main`` run is one that the fit was asked for: where the fit
    before is to be continued, it starts from the end of that one's.
    """
    outcome = Outcome(state) if outcome is None else outcome
    outcome.n_iter = since
    watch = present()
    place, (name, last) = watch.enter(), watch.go_on() if main else ("", None)

    def saved(ended: bool = False) -> Saved:
        gathered = None if gathers is None else gathers.gathered()
        return Saved(dict(vars(outcome)), gathered, ended or outcome.converged)

    try:
        first = engine.init(model) if state is None else state
        keeps = _table(model, None if state is not None else first) if main and watch.remembers else Table()
        state = first if last is None else last.state(keeps)
        found = place.found(_table(model, first)) if place.writes else None
        if found is not None:
            vars(outcome).update(found.outcome, interrupted=False, reason="")
            if gathers is not None:
                gathers.restore(found.gathered)
            state = outcome.state
        if found is None or not found.ended:
            _steps(engine, model, place, outcome, saved, state, since + max_iter, tol, progress, callback, enough)
            if not outcome.interrupted:
                place.close(lambda: saved(ended=True))
    except KeyboardInterrupt as stop:
        if inner or outcome.n_iter == since:
            place.forsake()
            raise
        outcome.interrupted = True
        if isinstance(stop, OutOfTime):  # between two steps, where Ctrl-C need not be
            outcome.reason = f" ({stop})"
            place.close(saved)
    finally:
        if outcome.interrupted:
            place.forsake()
        if progress is not None:
            progress.close()
    if main and watch.remembers:
        watch.remember(name, Last.of(outcome.state, outcome.n_iter, keeps))
    return outcome


def _steps(
    engine: Engine,
    model: Model,
    place: Place,
    outcome: Outcome,
    saved: Callable[[], Saved],
    state: Any,
    last: int,
    tol: float,
    progress: Progress | None,
    callback: Callable[[int, Info], bool | None] | None,
    enough: Callable[[Any], bool] | None,
) -> None:
    """The steps that are still to be made."""
    with place.stepping():
        steps = iterate(engine, model, max_iter=last, tol=tol, state=state, first=outcome.n_iter)
        for iteration, current, info in steps:
            outcome.state, outcome.n_iter, outcome.change = current, iteration, info.change
            outcome.converged = info.done
            outcome.trace.append(info.objective)
            if progress is not None:
                progress(iteration, info)
            if callback is not None and callback(iteration, info):
                outcome.interrupted = not outcome.converged
                break
            if enough is not None and enough(current):
                break
            place.note(saved)


def _table(model: Any, first: Any) -> Table:
    """What states of a run on a model are made of, of which ``first`` is the first."""
    parts, place = {"model": model}, _nowhere
    if isinstance(model, Model):
        rows = model.blocks
        own = {"rows": rows, "design": rows.design, "y": rows.y, "weight": rows.weight, "streams": model.streams}
        parts |= own | {"loss": model.loss, "prior": model.prior, "free": model.free, "space": model.space}
        place = rows.place
    return States(parts, first, Kept, place, Model)


def _nowhere(vectors: Any) -> Any:
    raise ValueError("this model has no rows to leave vectors with")
