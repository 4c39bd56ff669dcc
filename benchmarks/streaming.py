"""Rows by batches against all rows at once: how far the bound is from the best one, and how many passes that takes.

Standard normal columns, a logistic response, the hinge with a ridge prior of scale 1, nothing standardized or chosen.
The full-data bound is that of "vb" at convergence. Every other posterior is put into the same bound over all rows:
"svi" after one and two passes, and ``partial_fit``, which gets the rows in pieces and uses each once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.core.loop import run
from softmargin.core.model import Model
from softmargin.designs import Dense
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.engines.vi.stochastic import SVI, SVIState
from softmargin.engines.vi.stochastic_fit import SVIFit, fit_svi, full_bound
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

ROWS, COLUMNS, PIECE, SEED = 5_000_000, 50, 50_000, 0


def data(n: int, p: int) -> tuple[Any, Any]:
    """Columns, and labels -1 and 1."""
    rng = np.random.default_rng([SEED, n, p])
    truth = 2.0 * rng.standard_normal(p) / np.sqrt(p)
    X = rng.standard_normal((n, p))
    return X, np.where(X @ truth + rng.logistic(size=n) > 0.0, 1.0, -1.0)


def built(X: Any, y: Any) -> Model:
    """The model of all rows."""
    free = np.arange(1 + X.shape[1]) < 1
    blocks = Blocks(Dense.plain(X, intercept=True), y, np.ones(len(y)))
    return Model(blocks, Hinge(), Ridge(scale=1.0).bind(free), free, Streams.from_random_state(SEED), Full())


def bound_of(model: Model, state: SVIState) -> float:
    """The bound of a posterior over all rows."""
    state = state._replace(prior=model.prior.gaussian(state.q.mean, state.q.var))
    return full_bound(SVIFit(model, state, None), SVI())


def streamed(X: Any, y: Any) -> SVIState:
    """The posterior of ``partial_fit`` after all pieces."""
    machine = BayesianSVC(Ridge(scale=1.0), "svi", learning_rate=1.0, standardize=False, random_state=SEED)
    for lo in range(0, len(y), PIECE):
        machine.partial_fit(X[lo : lo + PIECE], y[lo : lo + PIECE])
    state: SVIState = machine._fitted.stream.state
    return state


def main() -> None:
    options = common.parser(__doc__).parse_args()
    n = ROWS // (25 if options.quick else 1)
    with common.one_thread():
        streamed(*data(4 * PIECE, 5))  # compiled
        X, y = data(n, COLUMNS)
        model = built(X, y)
        whole, seconds = common.cpu(lambda: run(GaussianVI(), model, max_iter=100, tol=1e-7))
        best, q = whole.trace[-1], whole.state.q
        rows = [("vb, to convergence", 2.0 * whole.n_iter, best / n, 0.0, 0.0, seconds)]
        fits = {
            "svi, one pass": (1.0, lambda: fit_svi(model, epochs=1).state),
            "svi, two passes": (2.0, lambda: fit_svi(model, epochs=2).state),
            f"partial_fit, {PIECE} rows per call": (1.0, lambda: streamed(X, y)),
        }
        for name, (passes, fit) in fits.items():
            state, seconds = common.cpu(fit)
            bound = bound_of(model, state)
            apart = float(np.abs((state.q.mean - q.mean) / np.sqrt(q.var)).max())
            rows.append((name, passes, bound / n, 100.0 * (best - bound) / abs(best), apart, seconds))
            print(rows[-1], flush=True)
    heads = ("fit", "passes", "bound per row", "short of it, %", "largest distance of a mean, sd", "CPU s")
    if options.output is None and not options.quick:
        options.output = common.PAGE.parents[1] / "how-to" / "big-data.md"
    text = f"{n} x {COLUMNS}, seed {SEED}.\n\n" + common.markdown(heads, rows)
    common.publish("streaming", text, options)


if __name__ == "__main__":
    main()
