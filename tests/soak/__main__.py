"""Run random problems: ``python -m tests.soak 1234`` or ``python -m tests.soak --problems 3000 --first 0 --jobs 2``."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from soak_workers import Result, solve_all, work

_OUTCOMES = ("ok", "refused", "wrong")


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Fit random problems and judge them.")
    parser.add_argument("numbers", nargs="*", type=int, help="problems to run, by number")
    parser.add_argument("--problems", type=int, default=300, help="how many, where no numbers are given")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time that a problem may take")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def table_of(results: list[Result]) -> str:
    """Outcomes by estimator and inference, and the slowest problems."""
    cells = Counter((result.kind, result.inference, result.outcome) for result in results)
    lines = [f"{'estimator':<16}{'inference':<12}" + "".join(f"{name:>9}" for name in _OUTCOMES)]
    for kind, inference in sorted({(result.kind, result.inference) for result in results}):
        counts = "".join(f"{cells[kind, inference, name]:>9}" for name in _OUTCOMES)
        lines.append(f"{kind:<16}{inference:<12}{counts}")
    total = Counter(result.outcome for result in results)
    lines.append(f"{'all':<28}" + "".join(f"{total[name]:>9}" for name in _OUTCOMES))
    seconds = sum(result.seconds for result in results)
    slow = sorted(results, key=lambda result: -result.seconds)[:3]
    named = ", ".join(f"{result.number} ({result.seconds:.0f} s)" for result in slow)
    return "\n".join([*lines, f"{seconds:.0f} s of CPU time; slowest {named}"])


def refusals_of(results: list[Result]) -> str:
    """Sentences of refusals, numbers in them left out, with their counts."""
    said = Counter(re.sub(r"\d[\d.e+-]*", "#", one.reason)[:150] for one in results if one.outcome == "refused")
    return "\n".join(f"{count:>5}  {sentence}" for sentence, count in said.most_common())


def wrong_of(results: list[Result]) -> str:
    """Every wrong problem with how to run it again."""
    wrong = [result for result in results if result.outcome == "wrong"]
    return "\n".join(f"python -m tests.soak {one.number}  # {one.reason}\n      {one.about}" for one in wrong)


def main() -> int:
    """Run the problems, print what came out; 1 if any is wrong."""
    asked = arguments()
    if asked.work:
        work(asked.seconds)
        return 0
    numbers = asked.numbers or range(asked.first, asked.first + asked.problems)

    def each(result: Result) -> None:
        if asked.numbers:
            print(f"{result.number}: {result.outcome} in {result.seconds:.1f} s. {result.reason}\n      {result.about}")
        elif result.outcome == "wrong":
            print(f"{result.number}: {result.reason}", file=sys.stderr, flush=True)

    results = solve_all(numbers, asked.jobs, asked.seconds, each)
    if not asked.numbers:
        parts = {"": table_of(results), "refused": refusals_of(results), "wrong": wrong_of(results)}
        print("\n\n".join(f"{name}\n{text}".strip() for name, text in parts.items() if text))
    return int(any(result.outcome == "wrong" for result in results))


if __name__ == "__main__":
    sys.exit(main())
