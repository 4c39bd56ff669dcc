"""What the comparisons share: data, one thread, CPU time, tables."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "benchmarks.md"
RAETSCH = ("ringnorm", "waveform", "twonorm", "banana", "breast_cancer", "titanic", "heart")

T = TypeVar("T")
Split = tuple[Any, Any, Any, Any]  # X_train, X_test, y_train, y_test


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every comparison has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument(
        "--quick", action="store_true", help="small sizes; printed, not written unless --output is given"
    )
    options.add_argument(
        "--output", type=Path, metavar="FILE", help=f"page to write the table into (default: {PAGE.name})"
    )
    return options


# Data


def _file(name: str) -> Path:
    folder = os.environ.get("SOFTMARGIN_DATA")
    if not folder:
        sys.exit("Set the environment variable SOFTMARGIN_DATA to the folder with the data files.")
    path = Path(folder) / name
    if not path.exists():
        sys.exit(f"SOFTMARGIN_DATA has no file {name}.")
    return path


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns and -1/+1 labels of ``<name>.csv.gz``."""
    frame = pd.read_csv(_file(f"{name}.csv.gz"))
    return np.ascontiguousarray(frame.iloc[:, :-1], dtype=float), frame.iloc[:, -1].to_numpy(float)


def arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of ``<name>.npz``."""
    with np.load(_file(f"{name}.npz")) as file:
        return {key: file[key] for key in file.files}


def sparse_rows(name: str, columns: int | None = None) -> tuple[Any, np.ndarray]:
    """A set of sparse rows, with short indices: LIBLINEAR takes no others."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(_file(f"{name}.svm.gz")), n_features=columns)
    X = X.tocsr()
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, y


def a9a() -> tuple[Any, np.ndarray]:
    """The sparse adult data."""
    return sparse_rows("a9a", 123)


def simulated(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Luts and Ormerod, section 4.2: intercept and slopes N(0, 1), columns N(0, 1), logistic labels."""
    rng = np.random.default_rng([seed, n, d])
    intercept, slopes = rng.standard_normal(), rng.standard_normal(d)
    X = rng.standard_normal((n, d))
    p = 1.0 / (1.0 + np.exp(-(intercept + X @ slopes)))
    return X, np.where(rng.random(n) < p, 1.0, -1.0)


def raetsch(name: str, most: int) -> Iterator[Split]:
    """The given splits of a set, the listed rows to train and the others to test; then random ones of that size."""
    X, y = table(name)
    given = arrays("raetsch_splits")[name]
    for number in range(most):
        if number < len(given):
            train = given[number]
        else:
            train = np.sort(np.random.default_rng(number).permutation(len(y))[: given.shape[1]])
        test = np.setdiff1d(np.arange(len(y)), train)
        yield X[train], X[test], y[train], y[test]


def random_splits(X: Any, y: Any, most: int, train: float = 2 / 3) -> Iterator[Split]:
    """Stratified random splits."""
    for seed in range(most):
        X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=train, stratify=y, random_state=seed)
        yield X_train, X_test, y_train, y_test


def standard_error(d: np.ndarray, train: float, test: float) -> float:
    """Of a mean difference over random splits, whose training rows overlap (Nadeau and Bengio's correction)."""
    return float(np.sqrt((1.0 / len(d) + test / train) * d.var(ddof=1)))


# Time


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for linear algebra and OpenMP, for us and for the peers; their convergence warnings silenced."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", message=".*constant column")
        yield


def cpu(function: Callable[[], T], least: float = 0.0) -> tuple[T, float]:
    """The answer of a call and its CPU seconds: the mean of calls repeated until they took ``least`` seconds in all.

    Garbage is collected before and not during the calls, as by ``timeit``: what one method leaves behind must not be
    another's to clear.
    """
    gc.collect()
    gc.disable()
    try:
        calls, begun = 0, time.process_time()
        while True:
            answer = function()
            calls += 1
            total = time.process_time() - begun
            if total >= least:
                return answer, total / calls
    finally:
        gc.enable()


def warm_up() -> None:
    """Compile every engine on a few rows, dense and sparse, so that compilation is not timed."""
    from scipy.sparse import csr_array

    from softmargin import BayesianSVC

    X, y = simulated(60, 3, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for inference in ("vb", "map", "meanfield", "gibbs"):
            for columns in (X, csr_array(X)):
                BayesianSVC(inference=inference, draws=10, warmup=0, chains=1).fit(columns, y)


# Results


def where() -> str:
    """Processor and versions."""
    import scipy
    import sklearn

    import softmargin

    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    versions = f"softmargin {softmargin.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
    versions += f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    return f"{processor}, one thread, {versions}"


def machine() -> str:
    """Date, processor and versions, as one line."""
    return f"{datetime.now(UTC):%Y-%m-%d}, {where()}."


def number(value: Any) -> str:
    """A number as it stands in a table: three digits, nothing for what is missing."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "-"
    if isinstance(value, (float, np.floating)):
        return f"{value:.1e}" if value != 0 and abs(value) < 1e-3 else f"{value:.3g}"
    return str(value)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *([number(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def publish(name: str, text: str, options: argparse.Namespace, stamp: str | None = None) -> None:
    """Print a result and put it between ``<!-- name:begin -->`` and ``<!-- name:end -->`` of the page.

    The ``stamp`` below it says when and where it was found: by default now and here.
    """
    text = f"{text}\n\n{stamp or machine()}"
    print(text)
    page = options.output or (None if options.quick else PAGE)
    if page is None:
        return
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    content = page.read_text(encoding="utf-8")
    if content.count(begin) != 1 or content.count(end) != 1 or content.index(begin) > content.index(end):
        sys.exit(f"{page.name} needs the two lines {begin} and {end}, once each and in this order.")
    head, rest = content.split(begin)
    tail = rest.split(end)[1]
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", encoding="utf-8")
