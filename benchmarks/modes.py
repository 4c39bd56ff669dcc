"""The posterior mode: certified gap and CPU time against LinearSVC, objective against an interior-point solver.

All solve ``min 2 sum max(1 - y x'b, 0) + |b|^2 / (2 variance)`` on the same columns, without an intercept. LinearSVC's
time is that of the single fit with the loosest tolerance whose objective is within 1e-6 of the optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.priors import Ridge

WANTED = 1e-6  # relative suboptimality
VARIANCES = (0.05, 0.5, 5.0)
SHORT = 0.2  # fits shorter than these seconds are repeated


def objective(X: Any, y: Any, b: Any, variance: float) -> float:
    """The function that all of them minimise."""
    return float(2.0 * np.maximum(1.0 - y * (X @ b), 0.0).sum() + b @ b / (2.0 * variance))


def ours(X: Any, y: Any, variance: float) -> tuple[BayesianSVC, float]:
    """The mode, and its CPU time."""
    model = BayesianSVC(
        prior=Ridge(scale=variance**0.5), inference="map", learning_rate=1.0, fit_intercept=False, standardize=False
    )
    return common.cpu(lambda: model.fit(X, y), SHORT)


def linear_svc(X: Any, y: Any, variance: float, lowest: float, most: float) -> tuple[float | None, float]:
    """Suboptimality and CPU time of the first fit that is good enough; None where ``most`` seconds do not do it."""
    sweeps, found, seconds = 1000, np.inf, 0.0
    for tol in 10.0 ** -np.arange(1.0, 10.1, 0.5):
        machine = LinearSVC(
            loss="hinge", dual=True, C=2.0 * variance, fit_intercept=False, tol=tol, max_iter=sweeps, random_state=0
        )
        machine, seconds = common.cpu(lambda machine=machine: machine.fit(X, y))
        found = objective(X, y, machine.coef_[0], variance) / lowest - 1.0
        while found > WANTED and machine.n_iter_ >= sweeps:  # cut short before the tolerance was reached
            if seconds > most:
                return None, seconds
            sweeps = int(sweeps * min(4.0, max(1.5, 1.2 * most / max(seconds, 1e-3))))
            machine, seconds = common.cpu(lambda machine=machine, n=sweeps: machine.set_params(max_iter=n).fit(X, y))
            found = objective(X, y, machine.coef_[0], variance) / lowest - 1.0
        if found <= WANTED:
            return found, common.cpu(lambda machine=machine: machine.fit(X, y), SHORT)[
                1
            ] if seconds < SHORT else seconds
    return found, seconds


def clarabel_objective(X: Any, y: Any, variance: float, most: float) -> float | None:
    """The optimum by an independent solver, as a quadratic program in (b, xi); None after ``most`` seconds."""
    import clarabel

    n, p = X.shape
    eye = sparse.eye_array(n)
    P = sparse.block_diag((sparse.eye_array(p) / variance, sparse.csc_array((n, n))), format="csc")
    q = np.concatenate((np.zeros(p), np.full(n, 2.0)))
    # xi >= 1 - y x'b and xi >= 0
    A = sparse.block_array([[-sparse.diags_array(y) @ sparse.csr_array(X), -eye], [None, -eye]], format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, most, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    bounds = np.concatenate((-np.ones(n), np.zeros(n)))
    solution = clarabel.DefaultSolver(P, q, A, bounds, [clarabel.NonnegativeConeT(2 * n)], settings).solve()
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        return None
    return objective(X, y, np.asarray(solution.x)[:p], variance)


def problems(quick: bool) -> dict[str, tuple[Any, Any]]:
    """Name to (columns divided by their spread, labels)."""
    found = {"heart": common.table("heart"), "spam": common.table("spam"), "a9a": common.a9a()}
    found["simulated"] = common.simulated(20_000, 200, 0)
    if quick:
        rows = np.random.default_rng(0).permutation(2000)
        found = {name: (X[rows[rows < len(y)]], y[rows[rows < len(y)]]) for name, (X, y) in found.items()}
        found["simulated"] = tuple(part[:, :20] if part.ndim == 2 else part for part in found["simulated"])
    return {
        f"{name} {X.shape[0]} x {X.shape[1]}": (StandardScaler(with_mean=not sparse.issparse(X)).fit_transform(X), y)
        for name, (X, y) in found.items()
    }


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--limit", type=float, default=60.0, help="seconds for one solve of a peer")
    options = options.parse_args()
    limit = 3.0 if options.quick else options.limit
    common.warm_up()
    rows = []
    with common.one_thread():
        for name, (X, y) in problems(options.quick).items():
            for variance in VARIANCES:
                model, seconds = ours(X, y, variance)
                value = objective(X, y, model.coef_[0], variance)
                reference = clarabel_objective(X, y, variance, limit)
                relative = None if reference is None else abs(value - reference) / reference
                found, theirs = linear_svc(X, y, variance, value * (1.0 - model.gap_), limit)
                reached = found is not None and found <= WANTED
                mark = "" if reached else "> "
                rows.append(
                    (
                        name, f"{variance:g}", model.gap_, relative, seconds,
                        mark + common.number(theirs), mark + common.number(theirs / seconds),
                    )
                )  # fmt: skip
                print(*rows[-1], flush=True)
    columns = (
        "set", "variance", "our gap", "difference to Clarabel", "our CPU s", "LinearSVC CPU s", "ratio",
    )  # fmt: skip
    common.publish("modes", common.markdown(columns, rows), options)


if __name__ == "__main__":
    main()
