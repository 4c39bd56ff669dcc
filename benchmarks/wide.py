"""More columns than rows: gene expression sets by every inference, and the two solvers on the same problem.

"LOO" is what the fit itself reports (``loo_``); "refits" leaves every row out in turn and fits anew.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import common
from softmargin import BayesianSVC
from softmargin.priors import Ridge

INFERENCES = ("vb", "map", "meanfield", "gibbs")


def sets() -> dict[str, tuple[Any, Any]]:
    """Colon tumours, and acute leukaemias (lymphoblastic against myeloid)."""
    colon, golub = common.arrays("colon"), common.arrays("golub38")
    leukaemia = np.where(golub["y"] == "AML", 1.0, -1.0)
    return {"colon": (colon["X"].astype(float), colon["y"]), "golub38": (golub["X"].astype(float), leukaemia)}


def refits(X: Any, y: Any, inference: str) -> tuple[float, float]:
    """Log loss and error of every row by a fit without it."""
    p = np.empty((len(y), 2))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        p[i] = BayesianSVC(inference=inference).fit(X[rest], y[rest]).predict_proba(X[i : i + 1])[0]
    classes = np.unique(y)
    return float(log_loss(y, p, labels=classes)), float((classes[p.argmax(axis=1)] != y).mean())


def by_inference(quick: bool) -> str:
    """Time and leave-one-out figures of every inference."""
    rows = []
    for name, (X, y) in sets().items():
        for inference in INFERENCES:
            length = {"draws": 200, "warmup": 200} if quick else {}
            model = BayesianSVC(inference=inference, random_state=0, **length)
            model, seconds = common.cpu(lambda model=model, X=X, y=y: model.fit(X, y))
            again = (None, None) if quick or inference == "gibbs" else refits(X, y, inference)
            loo = model.loo_
            rows.append(
                (
                    f"{name} {X.shape[0]} x {X.shape[1]}", inference, model.learning_rate_, model.scale_, seconds,
                    loo.score, loo.error, loo.max_kv, *again,
                )
            )  # fmt: skip
            print(*map(common.number, rows[-1]), flush=True)
    columns = (
        "set", "inference", "learning rate", "scale", "CPU s", "LOO log loss", "LOO error", "largest k v",
        "refits: log loss", "refits: error",
    )  # fmt: skip
    return common.markdown(columns, rows)


def by_solver(quick: bool) -> str:
    """Largest difference between the solvers, in units of the largest value, where both can run.

    Chains of the two solvers use other coordinates, so their draws differ and "gibbs" is left out.
    """
    rows = []
    X, y = sets()["golub38"]
    X = X[:, :: 30 if quick else 5]
    for inference in INFERENCES[:3]:
        for prior in (Ridge(scale=0.1), Ridge()):

            def fit(solver: str, inference: str = inference, prior: Ridge = prior) -> Any:
                model = BayesianSVC(prior, inference, solver=solver, learning_rate=0.25, tol=1e-9)
                return common.cpu(lambda: model.fit(X, y))

            (dual, fast), (plain, slow) = fit("dual"), fit("cholesky")
            one, other = dual.summary(), plain.summary()
            apart = [
                float((one[column] - other[column]).abs().max() / other[column].abs().max()) if column in one else None
                for column in ("mean", "sd")
            ]
            p = float(np.abs(dual.predict_proba(X) - plain.predict_proba(X)).max())
            name = f"golub38 {X.shape[0]} x {X.shape[1]}"
            rows.append((name, inference, prior.scale, *apart, p, fast, slow, slow / fast))
            print(*map(common.number, rows[-1]), flush=True)
    columns = ("set", "inference", "scale", "mean", "sd", "probability", "dual CPU s", "cholesky CPU s", "ratio")
    return common.markdown(columns, rows)


def main() -> None:
    options = common.parser(__doc__).parse_args()
    common.warm_up()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = by_inference(options.quick), by_solver(options.quick)
    between = 'Difference between `solver="dual"` and `solver="cholesky"`, relative to the largest value:'
    common.publish("wide", f"{first}\n\n{between}\n\n{second}", options)


if __name__ == "__main__":
    main()
