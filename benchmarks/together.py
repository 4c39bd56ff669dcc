"""Everything together: random intercepts and slopes, 30 % of the cells missing, 5 true columns among 50.

800 rows in 40 groups. Columns are correlated through three common factors; the five true coefficients are 2 or -2 on
standardized columns, the random intercepts have sd 1.5 and the random slopes (of a complete column) sd 1; labels are
logistic. Exact draws under a lasso and a horseshoe prior with the logistic likelihood, whose scale is that of the
truth, and under point masses with the hinge, whose scale is its own. A column is selected where its 95 % interval
excludes zero, or its inclusion probability is above one half.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import common
from softmargin import BayesianSVC, RandomEffect
from softmargin.priors import Horseshoe, Lasso, SpikeSlab

CASES: list[tuple[str, Any, str]] = [
    ("lasso", Lasso(), "logit"),
    ("horseshoe", Horseshoe(), "logit"),
    ("spike and slab", SpikeSlab(0.1), "hinge"),
]


def simulated(seed: int, n: int = 800, groups: int = 40, p: int = 50) -> tuple[pd.DataFrame, Any]:
    """The data, with the groups in column ``g`` and the column of the random slopes in ``t``."""
    rng = np.random.default_rng(seed)
    g, t = rng.integers(0, groups, n), rng.standard_normal(n)
    loadings = rng.standard_normal((p, 3))
    X = rng.standard_normal((n, p)) + 0.5 * (rng.standard_normal((n, 3)) @ loadings.T)
    X /= X.std(axis=0)
    beta = np.zeros(p)
    beta[:5] = 2.0, -2.0, 2.0, -2.0, 2.0
    level, slope = 1.5 * rng.standard_normal(groups), rng.standard_normal(groups)
    f = X @ beta + 0.5 * t + level[g] + slope[g] * t
    y = (f + rng.logistic(size=n) > 0.0).astype(int)
    X[rng.random(X.shape) < 0.3] = np.nan
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(p)]).assign(t=t, g=g), y


def selected(model: BayesianSVC, columns: list[str]) -> list[str]:
    """The columns that the fit calls part of the model."""
    if hasattr(model, "inclusion_"):
        return [name for name, value in zip(columns, model.inclusion_, strict=True) if value > 0.5]
    table = model.summary().drop("Intercept")
    return table.index[(table["lower"] > 0.0) | (table["upper"] < 0.0)].tolist()


def main() -> None:
    options = common.parser(__doc__).parse_args()
    rows = []
    for seed in range(1 if options.quick else 2):
        data, y = simulated(seed, **({"n": 200, "groups": 10} if options.quick else {}))
        names = [name for name in data.columns if name != "g"]
        for label, prior, likelihood in CASES:
            lengths = {"draws": 50 if options.quick else 1000, "warmup": 50 if options.quick else 500, "chains": 2}
            effect = RandomEffect("g", slopes=["t"], covariance="diagonal")
            model = BayesianSVC(
                prior, "gibbs", likelihood=likelihood, random_effects=[effect], random_state=seed, **lengths
            )
            with common.one_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _, seconds = common.cpu(lambda model=model, data=data, y=y: model.fit(data, y))
            chosen, table = selected(model, names), model.variance_components_
            true = [name for name in chosen if name in names[:5]]
            wrong = [name for name in chosen if name not in (*names[:5], "t")]
            sds = [
                f"{row['sd']:.2f} ({row['lower']:.2f}, {row['upper']:.2f})"
                for row in (table.loc[("g", effect)] for effect in ("Intercept", "t"))
            ]
            rows.append((seed, label, likelihood, f"{len(true)} of 5", len(wrong), *sds, seconds))
    header = (
        "seed",
        "prior",
        "likelihood",
        "true found",
        "false",
        "sd of intercepts (1.5)",
        "sd of slopes (1)",
        "CPU s",
    )
    common.publish("together", common.markdown(header, rows), options)


if __name__ == "__main__":
    main()
