"""The posterior mode: certified gap and CPU time against LIBLINEAR, skglm and libsvm; absolute values against HiGHS.

All but libsvm solve ``min 2 sum max(1 - y x'b, 0) + |b|^2 / (2 variance)`` on the same columns, without an intercept;
libsvm has one, and is compared with our fit that has one. A peer's time is that of the single fit with the loosest
tolerance whose objective is near enough to the optimum: within 1e-6, or 1e-4 where X is sparse. ">" stands before the
time of the longest fit where none was. "Fit" is what users wait for, "mode" the engine alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from benchmarks import common
from benchmarks.sparse import text
from softmargin import BayesianSVC
from softmargin.core.loop import run
from softmargin.engines.mode.dual_descent import mode_engine
from softmargin.losses import Hinge
from softmargin.models.build import kept_columns, prepare
from softmargin.priors import Lasso, Ridge
from softmargin.rows.streams import Streams

WANTED, WANTED_SPARSE = 1e-6, 1e-4  # relative suboptimality
COSTS = (0.1, 1.0, 10.0)  # C of the peers; the prior variance is half of it
SCALES = (0.01, 0.1)  # of the Laplace prior
SHORT = 0.2  # fits shorter than these seconds are repeated
LONGER = 3  # times as many iterations after a fit that was cut short
KERNEL_ROWS = 5000  # rows up to which libsvm is tried


class Peer(NamedTuple):
    """How a peer is fitted: ``make(C, tol, most)`` gives an estimator, ``used`` its iterations, ``least`` to begin."""

    make: Callable[[float, float, int], Any]
    used: Callable[[Any], int]
    least: int


def objective(X: Any, y: Any, b: Any, variance: float, intercept: float = 0.0) -> float:
    """The function that all of them minimise."""
    return float(2.0 * np.maximum(1.0 - y * (X @ b + intercept), 0.0).sum() + b @ b / (2.0 * variance))


def flat(coef: Any) -> Any:
    """Coefficients as a vector."""
    return np.asarray(coef.todense() if sparse.issparse(coef) else coef).ravel()


def peers(rows: int) -> dict[str, Peer]:
    """Those that apply to so many rows and are installed."""
    found = {
        "LIBLINEAR": Peer(
            lambda C, tol, most: LinearSVC(
                loss="hinge", dual=True, C=C, fit_intercept=False, tol=tol, max_iter=most, random_state=0
            ),
            lambda machine: int(machine.n_iter_),
            1000,
        )
    }
    try:
        import skglm
    except ImportError:
        pass
    else:
        found["skglm"] = Peer(
            lambda C, tol, most: skglm.LinearSVC(C=C, tol=tol, max_iter=most, fit_intercept=False),
            lambda machine: int(machine.n_iter_),
            20,
        )
    if rows <= KERNEL_ROWS:
        found["libsvm"] = Peer(
            lambda C, tol, most: SVC(kernel="linear", C=C, tol=tol, max_iter=most),
            lambda machine: int(machine.n_iter_[0]),
            100_000,
        )
    return found


def ours(X: Any, y: Any, C: float, intercept: bool = False) -> tuple[BayesianSVC, float]:
    """The mode as users have it, and its CPU time."""
    model = BayesianSVC(
        prior=Ridge(scale=(C / 2.0) ** 0.5), inference="map", learning_rate=1.0, fit_intercept=intercept,
        standardize=False,
    )  # fmt: skip
    model.fit(X, y)  # compile
    return common.cpu(lambda: model.fit(X, y), SHORT)


def mode_alone(X: Any, y: Any, C: float) -> float:
    """CPU seconds of the engine, without checks of the data, leave-one-out predictors and the link."""
    one = np.ones(len(y))
    columns = kept_columns(X, one, intercept=False, standardized=False)
    prior, streams = Ridge(scale=(C / 2.0) ** 0.5), Streams.from_random_state(0)
    model = prepare(X, y, one, one, columns, prior=prior, loss=Hinge(), streams=streams, point=True).model
    return common.cpu(lambda: run(mode_engine(model)(), model, max_iter=1), SHORT)[1]


def timed(peer: Peer, X: Any, y: Any, C: float, lowest: float, wanted: float, limit: float) -> tuple[bool, float]:
    """Whether the peer came near enough to the optimum, and the CPU seconds of the fit that did, or of the longest."""
    some = np.random.default_rng(0).permutation(len(y))[:200]
    peer.make(C, 1e-2, peer.least).fit(X[some], y[some])  # compile
    most, spent, longest = peer.least, 0.0, 0.0
    for tol in 10.0 ** -np.arange(0.0, 10.1):
        while True:
            machine = peer.make(C, tol, most)
            machine, seconds = common.cpu(lambda machine=machine: machine.fit(X, y))
            spent, longest = spent + seconds, max(longest, seconds)
            b, intercept = flat(machine.coef_), float(np.ravel(machine.intercept_)[0])
            if objective(X, y, b, C / 2.0, intercept) <= lowest * (1.0 + wanted):
                return True, common.cpu(lambda machine=machine: machine.fit(X, y), SHORT)[
                    1
                ] if seconds < SHORT else seconds
            if spent > 2.0 * limit:
                return False, longest
            if peer.used(machine) < most:
                break
            if LONGER * seconds > limit:
                return False, longest
            most *= LONGER
    return False, longest


def problems(quick: bool) -> dict[str, tuple[Any, Any]]:
    """Name to (columns, labels): dense ones standardized, sparse ones as they are and divided by their spread."""
    found = {
        "heart": common.table("heart"),
        "spam": common.table("spam"),
        "simulated": common.simulated(20_000, 200, 0),
    }
    found |= {"a9a": common.a9a(), "text": text()}
    if quick:
        rng = np.random.default_rng(0)
        found = {name: (X[rows], y[rows]) for name, (X, y) in found.items() for rows in [rng.permutation(len(y))[:500]]}
    chosen = {}
    for name, (X, y) in found.items():
        scaled = StandardScaler(with_mean=not sparse.issparse(X)).fit_transform(X)
        if sparse.issparse(X):
            chosen[f"{name} {X.shape[0]} x {X.shape[1]}, as it is"] = X, y
            chosen[f"{name} {X.shape[0]} x {X.shape[1]}, scaled"] = scaled, y
        else:
            chosen[f"{name} {X.shape[0]} x {X.shape[1]}"] = scaled, y
    return chosen


def squares(quick: bool, limit: float) -> str:
    """The table of the normal prior."""
    rows = []
    for name, (X, y) in problems(quick).items():
        wanted = WANTED_SPARSE if sparse.issparse(X) else WANTED
        for C in COSTS:
            model, seconds = ours(X, y, C)
            lowest = objective(X, y, flat(model.coef_), C / 2.0) * (1.0 - model.gap_)
            row = [name, f"{C:g}", model.gap_, mode_alone(X, y, C), seconds]
            for peer in ("LIBLINEAR", "skglm", "libsvm"):
                how, own = peers(len(y)).get(peer), seconds
                if how is None:
                    row += [None, None]
                    continue
                if peer == "libsvm":
                    other, own = ours(X, y, C, intercept=True)
                    value = objective(X, y, flat(other.coef_), C / 2.0, float(other.intercept_[0]))
                    reached, theirs = timed(how, X, y, C, value * (1.0 - other.gap_), wanted, limit)
                else:
                    reached, theirs = timed(how, X, y, C, lowest, wanted, limit)
                mark = "" if reached else "> "
                row += [mark + common.number(theirs), mark + common.number(theirs / own)]
            rows.append(row)
            print(*map(common.number, row), flush=True)
    columns = (
        "set", "C", "our gap", "mode, CPU s", "fit, CPU s", "LIBLINEAR, CPU s", "LIBLINEAR / ours", "skglm, CPU s",
        "skglm / ours", "libsvm, CPU s", "libsvm / ours",
    )  # fmt: skip
    return common.markdown(columns, rows)


def highs(X: Any, y: Any, scale: float, limit: float) -> tuple[float | None, float]:
    """The optimum under absolute values as a linear programme in (b+, b-, xi), and the CPU seconds."""
    n, p = X.shape
    Z = y[:, None] * X
    cost = np.concatenate((np.full(2 * p, 1.0 / scale), np.full(n, 2.0)))
    A = sparse.hstack([-sparse.csr_array(Z), sparse.csr_array(Z), -sparse.eye_array(n)], format="csr")
    answer, seconds = common.cpu(
        lambda: linprog(cost, A_ub=A, b_ub=-np.ones(n), method="highs", options={"time_limit": limit})
    )
    return (float(answer.fun) if answer.status == 0 else None), seconds


def absolute_values(quick: bool, limit: float) -> str:
    """The table of the Laplace prior."""
    rows = []
    for name, (X, y) in problems(quick).items():
        if sparse.issparse(X) or len(y) > KERNEL_ROWS:
            continue
        for scale in SCALES:
            model = BayesianSVC(
                prior=Lasso(scale=scale), inference="map", learning_rate=1.0, fit_intercept=False, standardize=False
            )
            model.fit(X, y)  # compile
            model, seconds = common.cpu(lambda model=model, X=X, y=y: model.fit(X, y), SHORT)
            b = flat(model.coef_)
            value = float(2.0 * np.maximum(1.0 - y * (X @ b), 0.0).sum() + np.abs(b).sum() / scale)
            reference, theirs = highs(X, y, scale, limit)
            mark = "> " if reference is None else ""
            difference = None if reference is None else abs(value - reference) / reference
            row = (name, f"{scale:g}", model.gap_, difference, seconds, mark + common.number(theirs), mark + common.number(theirs / seconds))  # fmt: skip  # noqa: E501
            rows.append(row)
            print(*map(common.number, row), flush=True)
    columns = ("set", "scale", "our gap", "difference to HiGHS", "fit, CPU s", "HiGHS, CPU s", "HiGHS / ours")
    return common.markdown(columns, rows)


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--limit", type=float, default=10.0, help="seconds for one fit of a peer")
    options = options.parse_args()
    limit = 1.0 if options.quick else options.limit
    common.warm_up()
    with common.one_thread():
        both = squares(options.quick, limit), absolute_values(options.quick, limit)
    common.publish("modes", "A normal prior:\n\n" + both[0] + "\n\nA Laplace prior:\n\n" + both[1], options)


if __name__ == "__main__":
    main()
