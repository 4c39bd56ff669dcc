"""All comparisons, one after another, each in a process of its own with one thread.

Every script writes its table into ``docs/evidence/benchmarks.md``; ``--quick`` prints small versions instead.
``--install`` installs the peers of ``benchmarks/peers.txt`` and ``peers_alone.txt`` at their versions into this
environment first; the columns of those that do not install are left out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
OURSELVES = ("__init__", "__main__", "common", "compare", "two_class_sets")


def names() -> list[str]:
    """The scripts; the picture, which reads the tables of the others, comes last."""
    found = (path.stem for path in HERE.glob("*.py") if path.stem not in OURSELVES)
    return sorted(found, key=lambda name: (name == "picture", name))


def install(file: str, *flags: str) -> None:
    """Install the peers in a file one by one: where one fails the others are still there."""
    for line in (HERE / file).read_text().splitlines():
        if line and not line.startswith("#"):
            command = [sys.executable, "-m", "pip", "install", *flags, line]
            if subprocess.run(command, check=False).returncode:
                print(f"{line} does not install here; its columns are left out.", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks")
    options.add_argument("only", nargs="*", metavar="NAME", help=f"some of: {', '.join(names())}")
    options.add_argument("--quick", action="store_true", help="small sizes, printed and not written")
    options.add_argument("--install", action="store_true", help="install the peers first")
    chosen = options.parse_args()
    unknown = sorted(set(chosen.only) - set(names()))
    if unknown:
        sys.exit(f"There is no comparison {unknown[0]!r}; there are {', '.join(names())}.")
    if chosen.install:
        for way in (("peers.txt",), ("peers_alone.txt", "--no-deps")):
            install(*way)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    failed = []
    for name in chosen.only or names():
        print(f"== {name}", flush=True)
        begun = time.perf_counter()
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if chosen.quick else [])]
        code = subprocess.run(command, cwd=HERE.parent, env=os.environ | threads, check=False).returncode
        print(f"== {name}: {time.perf_counter() - begun:.0f} s{'' if code == 0 else ', FAILED'}\n", flush=True)
        failed += [name] if code else []
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
