"""The only loop: stopping, callbacks, interruption, progress."""

import itertools
import re
import sys
from typing import NamedTuple

import pytest

from softmargin.core import loop
from softmargin.core.loop import Info, Outcome, Progress, Standstill, iterate, run


class Countdown:
    """Objective 1, 2, 3, ...; the change halves at every step; done or interrupted at a given iteration."""

    def __init__(self, *, done_at=None, interrupted_at=None, fails_at=None):
        self.done_at, self.interrupted_at, self.fails_at = done_at, interrupted_at, fails_at
        self.seen = []

    def init(self, model):
        if self.interrupted_at == 0:
            raise KeyboardInterrupt
        return 0

    def step(self, model, state, iteration):
        self.seen.append((model, state, iteration))
        new = state + 1
        if new == self.interrupted_at:
            raise KeyboardInterrupt
        if new == self.fails_at:
            raise FloatingPointError("no")
        return new, Info(float(new), 0.5**new, new == self.done_at)


class Recorder:
    """Stands in for the progress line."""

    def __init__(self):
        self.calls, self.closed = [], 0

    def __call__(self, done, info):
        self.calls.append((done, info))

    def close(self):
        self.closed += 1


# --- stopping -------------------------------------------------------------------------------------------------


def test_stops_at_the_limit():
    engine = Countdown()
    outcome = run(engine, "model", max_iter=5)
    assert (outcome.n_iter, outcome.state, outcome.converged, outcome.interrupted) == (5, 5, False, False)
    assert outcome.trace == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert outcome.change == 0.5**5
    # steps get the model, the state before them and their number from zero on
    assert engine.seen == [("model", k, k) for k in range(5)]


@pytest.mark.parametrize(("tol", "expected"), [(0.3, 2), (0.25, 2), (0.2499, 3), (0.5, 1)])
def test_stops_at_the_tolerance(tol, expected):
    """The first change at or below the tolerance ends the run, that step included."""
    outcome = run(Countdown(), None, max_iter=50, tol=tol)
    assert (outcome.n_iter, outcome.converged) == (expected, True)
    assert len(outcome.trace) == expected
    assert outcome.change <= tol


def test_stops_when_the_engine_is_done():
    outcome = run(Countdown(done_at=3), None, max_iter=50)
    assert (outcome.n_iter, outcome.state, outcome.converged) == (3, 3, True)


def test_convergence_in_the_last_allowed_step_counts():
    assert run(Countdown(), None, max_iter=2, tol=0.25).converged
    assert not run(Countdown(), None, max_iter=1, tol=0.25).converged


def test_starts_from_a_given_state():
    engine = Countdown(interrupted_at=0)  # its init would raise
    outcome = run(engine, None, max_iter=2, state=10)
    assert outcome.state == 12
    assert engine.seen[0] == (None, 10, 0)


def test_no_iteration_keeps_the_start():
    outcome = run(Countdown(), None, max_iter=0, state=4)
    assert (outcome.state, outcome.n_iter, outcome.trace, outcome.converged) == (4, 0, [], False)


def test_iterate_yields_every_step():
    steps = list(iterate(Countdown(), None, max_iter=9, tol=0.2))
    assert [(number, state) for number, state, _ in steps] == [(1, 1), (2, 2), (3, 3)]
    assert [info.done for _, _, info in steps] == [False, False, True]


def test_iterate_is_lazy():
    engine = Countdown()
    steps = iterate(engine, None, max_iter=1000)
    assert len(list(itertools.islice(steps, 3))) == 3
    assert len(engine.seen) == 3


# --- callbacks ------------------------------------------------------------------------------------------------


def test_callback_stops_and_keeps_the_state():
    calls = []

    def callback(iteration, info):
        calls.append((iteration, info.objective, info.done))
        return iteration == 3

    outcome = run(Countdown(), None, max_iter=50, callback=callback)
    assert calls == [(1, 1.0, False), (2, 2.0, False), (3, 3.0, False)]
    assert (outcome.n_iter, outcome.state, outcome.interrupted, outcome.converged) == (3, 3, True, False)
    assert outcome.trace == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("answer", [None, False, 0])
def test_callback_that_says_nothing_changes_nothing(answer):
    outcome = run(Countdown(), None, max_iter=4, callback=lambda iteration, info: answer)
    assert (outcome.n_iter, outcome.interrupted) == (4, False)


def test_callback_stop_at_convergence_is_no_interruption():
    outcome = run(Countdown(), None, max_iter=50, tol=0.25, callback=lambda iteration, info: info.done)
    assert (outcome.n_iter, outcome.converged, outcome.interrupted) == (2, True, False)


def test_callback_sees_the_present_state():
    outcome = Outcome(None)
    seen = []

    def callback(iteration, info):
        seen.append((outcome.state, outcome.n_iter, outcome.trace[-1]))

    assert run(Countdown(), None, max_iter=3, callback=callback, outcome=outcome) is outcome
    assert seen == [(1, 1, 1.0), (2, 2, 2.0), (3, 3, 3.0)]


# --- interruption ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2, 4])
def test_interruption_keeps_what_was_computed(at):
    recorder = Recorder()
    outcome = run(Countdown(interrupted_at=at), None, max_iter=50, progress=recorder)
    assert (outcome.n_iter, outcome.state) == (at - 1, at - 1)
    assert outcome.interrupted
    assert not outcome.converged
    assert outcome.trace == [float(k) for k in range(1, at)]
    assert recorder.closed == 1


def test_interruption_in_a_callback_keeps_the_step():
    def callback(iteration, info):
        if iteration == 2:
            raise KeyboardInterrupt

    outcome = run(Countdown(), None, max_iter=50, callback=callback)
    assert (outcome.n_iter, outcome.state, outcome.interrupted) == (2, 2, True)


@pytest.mark.parametrize("at", [0, 1])
def test_interruption_before_the_first_result_is_passed_on(at):
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        run(Countdown(interrupted_at=at), None, max_iter=50, progress=recorder)
    assert recorder.closed == 1


def test_other_errors_are_not_swallowed():
    recorder = Recorder()
    with pytest.raises(FloatingPointError):
        run(Countdown(fails_at=3), None, max_iter=50, progress=recorder)
    assert recorder.closed == 1
    assert len(recorder.calls) == 2


# --- progress -------------------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(loop.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_progress_is_told_of_every_step():
    recorder = Recorder()
    run(Countdown(), None, max_iter=4, progress=recorder)
    assert [done for done, _ in recorder.calls] == [1, 2, 3, 4]
    assert [info.objective for _, info in recorder.calls] == [1.0, 2.0, 3.0, 4.0]
    assert recorder.closed == 1


def test_verbose_prints_at_once(capsys):
    run(Countdown(), None, max_iter=40, progress=Progress("gibbs", 40, 1))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("\rgibbs: 1/40, objective 1")
    assert err.endswith("\n")


def test_silent_without_a_terminal(capsys, clock):
    progress = Progress("vb", 10)
    for k in range(1, 11):
        clock.now += 10.0
        progress(k, Info(1.0, 1.0))
    progress.close()
    assert capsys.readouterr() == ("", "")


def test_terminal_is_told_after_two_seconds(capsys, clock, monkeypatch):
    progress = Progress("vb", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    clock.now += 1.9
    progress(1, Info(1.0, 1.0))
    assert capsys.readouterr().err == ""
    clock.now += 0.2
    progress(2, Info(-12.5, 1.0))
    assert capsys.readouterr().err.strip() == "vb: 2, objective -12.5, 2 s"
    progress.close()
    assert capsys.readouterr().err == "\n"


def test_short_runs_print_nothing_on_a_terminal(capsys, clock, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    run(Countdown(), None, max_iter=30, progress=Progress("map", 30))
    assert capsys.readouterr() == ("", "")


def test_progress_is_throttled(capsys, clock):
    """At most four lines a second, however fast the steps are."""
    progress = Progress("em", 1000, 1)
    for k in range(1, 1001):
        clock.now += 0.01
        progress(k, Info(float(k), 1.0))
    progress.close()
    lines = re.findall(r"em: (\d+)/1000", capsys.readouterr().err)
    assert 30 <= len(lines) <= 41
    assert lines[0] == "1"


def test_closing_twice_ends_the_line_once(capsys):
    progress = Progress("em", 2, 1)
    progress(1, Info(1.0, 1.0))
    progress.close()
    progress.close()
    assert capsys.readouterr().err.count("\n") == 1


# --- rounding -------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A state of the engine below."""

    number: int
    objective: float


class Wandering:
    """Rises for ten steps, and wanders below the height of the tenth from then on."""

    def init(self, model):
        return Point(0, 0.0)

    def step(self, model, state, iteration):
        number = state.number + 1
        new = Point(number, float(number) if number <= 10 else 9.0 - number % 3)
        return new, Info(new.objective, abs(new.objective - state.objective))


def test_an_ascent_that_wanders_ends_at_its_highest_state_and_says_so():
    still = Standstill(5)
    found = still.settle(run(Wandering(), None, max_iter=500, tol=1e-12, enough=still))
    assert found.n_iter == 15 and found.state == Point(10, 10.0) and not found.converged
    assert "has not risen in the last 5 of 15 iterations" in found.reason and found.reason.endswith(".")


def test_an_ascent_that_ends_by_itself_stays_as_it_is():
    still = Standstill(5)
    found = still.settle(run(Wandering(), None, max_iter=8, enough=still))
    assert found.n_iter == 8 and found.state == Point(8, 8.0) and not found.reason
