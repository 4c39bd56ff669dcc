"""Problems in child processes: compiled code that does not return is killed, and the next problem gets a new child."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

_WALL_SECONDS = 1800.0  # after which a child that sleeps is killed too
_MEMORY = 12 * 2**30  # bytes of address space of a child
_TRIES = 2  # the first run of a problem may be the one that compiles; what it compiled is kept


class Result(NamedTuple):
    """What came out of one problem."""

    number: int
    kind: str
    inference: str
    outcome: str
    reason: str
    seconds: float
    about: str


def work(limit: float) -> None:
    """The child: read numbers, write results, one line each; end where a problem takes longer than the limit."""
    from soak_judge import judge
    from soak_problems import problem_of

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a fit prints is no answer
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    faulthandler.register(signal.SIGPROF, chain=True)  # tells where it was, then ends the process
    for line in sys.stdin:
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        problem = problem_of(int(line))
        named = {"kind": problem.kind, "inference": problem.model.inference, "about": problem.about}
        print(json.dumps(named), file=answers, flush=True)
        verdict = judge(problem)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        found = named | verdict._asdict() | {"number": problem.number, "seconds": time.process_time() - start}
        print(json.dumps(found), file=answers, flush=True)


class _Child:
    """A process that works on one problem at a time."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        command = [sys.executable, str(Path(__file__).parent), "--work", "--seconds", str(limit)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, env=os.environ | one, text=True, bufsize=1, **pipes)
        self.last: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            self.last = [*self.last[-40:], line.strip()]

    def solve(self, number: int) -> Result:
        """The result of a problem; that of a process which had to be ended is "late" or "died"."""
        timer = threading.Timer(_WALL_SECONDS, self.process.kill)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(f"{number}\n")  # type: ignore[union-attr]
            named, answer = (self.process.stdout.readline() for _ in range(2))  # type: ignore[union-attr]
        finally:
            timer.cancel()
        if answer:
            return Result(**json.loads(answer))
        known = json.loads(named) if named else {"kind": "?", "inference": "?", "about": "?"}
        code = self.close()
        late = code in (-signal.SIGPROF, -signal.SIGKILL)
        where = next((line for line in self.last if "/softmargin/" in line), "")
        place = where.rsplit("/softmargin/", 1)[-1].replace('", line ', ":")
        reason = f"over {self.limit:.0f} s of CPU time" if late else f"the process died with code {code}"
        ended = {"outcome": "late" if late else "died", "reason": f"{reason} at {place}", "seconds": self.limit}
        return Result(number, **ended, **known)

    def close(self) -> int:
        self.process.stdin.close()  # type: ignore[union-attr]
        try:
            code = self.process.wait(timeout=20.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.reader.join(timeout=5.0)
        return code


def solve_all(numbers: Iterable[int], jobs: int, limit: float, each: Callable[[Result], None]) -> list[Result]:
    """Results of the problems by ``jobs`` children, in the order of their numbers; ``each`` sees them as they come.

    No problem may take more than ``limit`` seconds of CPU time.
    """
    left, lock, found = iter(numbers), threading.Lock(), []

    def go_on() -> None:
        child = _Child(limit)
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                break
            for _ in range(_TRIES):
                result = child.solve(number)
                if result.outcome not in ("late", "died"):
                    break
                child = _Child(limit)
            if result.outcome in ("late", "died"):
                result = result._replace(outcome="wrong")
            with lock:
                found.append(result)
                each(result)
        child.close()

    threads = [threading.Thread(target=go_on) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found)
