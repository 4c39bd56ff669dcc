"""Rows in a file: peak resident memory of whole fits, and CPU seconds of a pass against those of a bare Gram matrix.

Standard normal columns of type float32 in a `.npy` file, a logistic response. The bare pass reads the file in the same
blocks and makes nothing but the weighted Gram matrix. A pass of a fit is all of its CPU time divided by how often it
has read the file. Every fit runs in a process of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.core import visits
from softmargin.core.visits import Messages
from softmargin.designs.standardize import as_given
from softmargin.estimators.given.files import OnDisk
from softmargin.rows.in_memory import one_blas_thread
from softmargin.rows.stored.files import FileRows

ROWS, COLUMNS, STEP = 20_000_000, 50, 200_000


class Counted(FileRows):
    """A file that counts the rows which are read in runs."""

    count = 0

    def read(self, lo: int, hi: int) -> Any:
        self.count += hi - lo
        return super().read(lo, hi)


def write(folder: Path, n: int, p: int) -> None:
    """The file of the rows and that of the responses, in blocks."""
    rng = np.random.default_rng([n, p])
    truth = (2.0 * rng.normal(size=p) / np.sqrt(p)).astype(np.float32)
    np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(n, p)).flush()
    offset = np.load(folder / "X.npy", mmap_mode="r").offset
    y = np.empty(n, dtype=np.int8)
    with (folder / "X.npy").open("r+b") as file:
        file.seek(offset)
        for lo in range(0, n, STEP):
            X = rng.standard_normal((min(STEP, n - lo), p), dtype=np.float32)
            y[lo : lo + len(X)] = X @ truth + rng.logistic(size=len(X)) > 0
            file.write(X.tobytes())
    np.save(folder / "y.npy", y)


def one(folder: Path, what: str) -> dict[str, Any]:
    """A fit, or the bare pass, in this process."""
    source, y = Counted.of_npy(folder / "X.npy"), np.load(folder / "y.npy")
    assert isinstance(source, Counted)
    X, begun = OnDisk(source), time.process_time()
    if what == "gram":
        rows = X.rows(X.design(as_given(X.shape[1])), y, np.ones(len(y)), 1)
        w = rows.place(Messages(np.random.default_rng(0).uniform(0.1, 2.0, len(y)), None))
        with one_blas_thread():
            rows.sum(visits.gram, None, w)  # compile, and bring the file into the system's memory where that has room
            begun = time.process_time()
            rows.sum(visits.gram, None, w)
        passes = 1.0
    else:
        BayesianSVC(inference=what, random_state=0).fit(X, y)
        passes = source.count / len(y)
    seconds = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"seconds": seconds, "passes": passes, "peak": peak}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--folder", type=Path, help="where the file goes; 4 GB, deleted afterwards")
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "WHAT"), help="used by the script itself")
    options = parser.parse_args()
    if options.one:
        with common.one_thread():
            print(json.dumps(one(Path(options.one[0]), options.one[1])))
        return
    n = ROWS // (100 if options.quick else 1)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        write(Path(name), n, COLUMNS)
        found = {}
        for what in ("gram", "map", "vb"):
            command = [sys.executable, "-m", "benchmarks.on_disk", "--one", name, what]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[what] = json.loads(answer.splitlines()[-1])
            print(what, found[what], flush=True)
    bare = found["gram"]["seconds"]
    rows = []
    for what, each in found.items():
        pass_ = each["seconds"] / each["passes"]
        rows.append((what, each["seconds"], each["passes"], pass_, pass_ / bare, each["peak"]))
    heads = ("what", "CPU s", "passes", "CPU s per pass", "in bare passes", "peak resident memory, GB")
    if options.output is None and not options.quick:
        options.output = common.PAGE.parents[1] / "how-to" / "big-data.md"
    text = f"{n} x {COLUMNS} numbers of type float32.\n\n" + common.markdown(heads, rows)
    common.publish("on-disk", text, options)


if __name__ == "__main__":
    main()
