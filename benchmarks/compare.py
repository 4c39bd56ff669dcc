"""CPU time of another revision and of this one, task by task in one run: ``python -m benchmarks.compare REVISION``.

The source of the revision is put into a folder of its own. One process per revision fits the same tasks in turn, so
that what else the machine does falls on both; each task is run once before it is timed, and its time is the median.
``--defaults`` times ``BayesianSVC()`` on the first split of every set of ``benchmarks.two_class_sets`` instead.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
FIXED: dict[str, Any] = {"learning_rate": 0.5, "random_state": 0}
LENGTHS: dict[str, dict[str, Any]] = {
    "vb": {},
    "map": {},
    "meanfield": {},
    "gibbs": {"draws": 750, "warmup": 250, "chains": 1},
    "hmc": {"draws": 1000, "warmup": 100, "chains": 1},
}


def _file(name: str) -> Path:
    return Path(os.environ["SOFTMARGIN_DATA"]) / name


def _table(name: str) -> tuple[Any, Any]:
    frame = pd.read_csv(_file(f"{name}.csv.gz"))
    return np.ascontiguousarray(frame.iloc[:, :-1], dtype=float), frame.iloc[:, -1].to_numpy(float)


def _simulated(n: int, p: int) -> tuple[Any, Any]:
    rng = np.random.default_rng([n, p])
    X, beta = rng.standard_normal((n, p)), rng.standard_normal(p)
    return X, np.where(X @ beta + rng.logistic(size=n) > 0.0, 1.0, -1.0)


def _linear(data: Callable[[], tuple[Any, Any]], inference: str) -> Callable[[], Callable[[], Any]]:
    def prepared() -> Callable[[], Any]:
        from softmargin import BayesianSVC

        X, y = data()
        return lambda: BayesianSVC(inference=inference, **FIXED, **LENGTHS[inference]).fit(X, y)

    return prepared


def _selection() -> Callable[[], Any]:
    from softmargin import BayesianSVC

    X, y = _table("spam")
    chain = {"draws": 300, "warmup": 100, "chains": 1}
    return lambda: BayesianSVC("spike-slab", "gibbs", **FIXED, **chain).fit(X, y)


def _groups() -> Callable[[], Any]:
    from softmargin import BayesianSVC

    frame = pd.read_csv(_file("toenail.csv.gz"))
    treated, months = (frame["treatment"] == "terbinafine").to_numpy(float), frame["time"].to_numpy(float)
    X, y, patient = np.column_stack((treated, months, treated * months)), frame["y"].to_numpy(int), frame["patient"]
    return lambda: BayesianSVC(**FIXED).fit(X, y, groups=patient.to_numpy())


def _missing() -> Callable[[], Any]:
    from softmargin import BayesianSVC

    columns, _ = _table("acath")
    X, y = columns[:, :4], columns[:, 4]
    return lambda: BayesianSVC(**FIXED).fit(X, y)


def _classes() -> Callable[[], Any]:
    from sklearn.datasets import load_digits

    from softmargin import BayesianSVC

    X, y = load_digits(return_X_y=True)
    return lambda: BayesianSVC(multi_class="sum-to-zero", **FIXED).fit(X[:600], y[:600])


def _kernel() -> Callable[[], Any]:
    from softmargin import BayesianKernelClassifier

    X, y = _table("ringnorm")
    return lambda: BayesianKernelClassifier(**FIXED).fit(X[:800], y[:800])


def _sparse() -> Callable[[], Any]:
    from sklearn.datasets import load_svmlight_file

    from softmargin import BayesianSVC
    from softmargin.priors import Ridge

    X, y = load_svmlight_file(str(_file("a9a.svm.gz")), n_features=123)
    return lambda: BayesianSVC(Ridge(scale=0.3), "map", standardize=False, **FIXED).fit(X.tocsr(), y)


def _wide() -> Callable[[], Any]:
    from softmargin import BayesianSVC

    with np.load(_file("colon.npz")) as file:
        X, y = file["X"], file["y"]
    return lambda: BayesianSVC(**FIXED).fit(X, y)


def _regression() -> Callable[[], Any]:
    from sklearn.datasets import load_diabetes

    from softmargin import BayesianSVR

    X, y = load_diabetes(return_X_y=True)
    return lambda: BayesianSVR(likelihood="epsilon-insensitive", random_state=0).fit(X, y)


SETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "heart": lambda: _table("heart"),
    "spam": lambda: _table("spam"),
    "1000 x 50": lambda: _simulated(1000, 50),
}
TASKS: dict[str, Callable[[], Callable[[], Any]]] = {
    f"{name}, {inference}": _linear(data, inference) for name, data in SETS.items() for inference in LENGTHS
} | {
    "spam, spike-and-slab": _selection,
    "toenail, random effects": _groups,
    "acath, missing entries": _missing,
    "digits, sum-to-zero": _classes,
    "ringnorm, kernel": _kernel,
    "1,000,000 x 50, vb": _linear(lambda: _simulated(1_000_000, 50), "vb"),
    "1,000,000 x 50, map": _linear(lambda: _simulated(1_000_000, 50), "map"),
    "a9a, sparse map": _sparse,
    "colon, vb": _wide,
    "diabetes, regression": _regression,
}


def _default(name: str) -> Callable[[], Any]:
    from softmargin import BayesianSVC

    with np.load(Path(os.environ["SPLITS"]) / f"{name}.npz") as file:
        X, y = file["X"], file["y"]
    return lambda: BayesianSVC().fit(X, y)


def splits(folder: Path) -> list[str]:
    """First training sets of the two-class sets, written where both processes find them; their names."""
    from benchmarks.two_class_sets import SETS as sets

    for name, made in sets.items():
        X, _, y, _ = next(iter(made(1)))
        np.savez(folder / f"{name}.npz", X=X, y=y)
    return list(sets)


def work() -> None:
    """Fit the tasks that come in, one per line, and answer with their CPU seconds."""
    warnings.simplefilter("ignore")
    ready: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name, forget = json.loads(line)
        if name not in ready:
            ready.clear()  # the rows of one task at a time
            ready[name] = TASKS[name]() if name in TASKS else _default(name)
            ready[name]()
        gc.collect()
        begun = time.process_time()
        ready[name]()
        print(json.dumps(time.process_time() - begun), flush=True)
        if forget:
            ready.clear()


def extracted(revision: str, folder: Path) -> Path:
    """The package's source at a revision."""
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def worker(source: Path, folder: str) -> subprocess.Popen[str]:
    """A process that fits tasks with the package of a folder."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    env = os.environ | threads | {"PYTHONPATH": str(source), "SPLITS": folder}
    command = [sys.executable, str(Path(__file__).resolve()), "--work"]
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def seconds(process: subprocess.Popen[str], name: str, last: bool) -> float:
    """CPU time of one run of a task."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps([name, last]) + "\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.compare")
    options.add_argument("revision", nargs="?", default="HEAD", help="git revision to compare with")
    options.add_argument("--rounds", type=int, default=5, help="timed runs of a task")
    options.add_argument("--only", nargs="*", metavar="WORD", help="tasks whose name has one of these words")
    options.add_argument("--defaults", action="store_true", help="the default fit on public sets of two classes")
    options.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.work:
        work()
        return
    if "SOFTMARGIN_DATA" not in os.environ:
        sys.exit("Set the environment variable SOFTMARGIN_DATA to the folder with the data files.")
    folder = tempfile.TemporaryDirectory()
    known = splits(Path(folder.name)) if chosen.defaults else list(TASKS)
    names = [name for name in known if not chosen.only or any(word in name for word in chosen.only)]
    ratios = []
    with folder:
        sources = extracted(chosen.revision, Path(folder.name)), ROOT / "src"
        both = [worker(source, folder.name) for source in sources]
        print(f"| task | {chosen.revision}, s | now, s | ratio |\n|---|---:|---:|---:|", flush=True)
        for name in names:
            times: tuple[list[float], list[float]] = ([], [])
            for k in range(chosen.rounds):
                for process, kept in zip(both, times, strict=True):
                    kept.append(seconds(process, name, k == chosen.rounds - 1))
            before, now = (statistics.median(kept) for kept in times)
            ratios.append(now / before)
            print(f"| {name} | {before:.4f} | {now:.4f} | {ratios[-1]:.2f} |", flush=True)
        for process in both:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"| median | | | {statistics.median(ratios):.3f} |")
    print(f"| geometric mean | | | {mean:.3f} |\n| largest | | | {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
