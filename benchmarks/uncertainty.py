"""Standard deviations of the Gaussian approximation against long chains of exact draws.

For every coefficient: sd(vb) / sd(gibbs) and |mean(vb) - mean(gibbs)| / sd(gibbs), with the default learning rate and
with that of the papers. The Monte Carlo error of the means is at most 1 / sqrt(smallest ess) standard deviations.
"""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.datasets import load_breast_cancer

from benchmarks import common
from softmargin import BayesianSVC

RATES: tuple[float | str, ...] = ("auto", 1.0)


def sets(quick: bool) -> dict[str, tuple[Any, Any]]:
    """Name to (X, y)."""
    found = {
        "heart": common.table("heart"),
        "breast_cancer (scikit-learn)": load_breast_cancer(return_X_y=True),
        "spam": common.table("spam"),
        "simulated 200 x 10": common.simulated(200, 10, 0),
    }
    if quick:
        del found["spam"]
    return found


def compare(name: str, X: Any, y: Any, rate: float | str, draws: int) -> tuple[Any, ...]:
    """One row of the table."""
    vb, seconds = common.cpu(lambda: BayesianSVC(learning_rate=rate).fit(X, y))
    chains = BayesianSVC(inference="gibbs", learning_rate=rate, draws=draws, warmup=draws // 4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # R-hat is in the table
        gibbs, spent = common.cpu(lambda: chains.fit(X, y))
    approximate, exact = vb.summary(), gibbs.summary()
    ratio = approximate["sd"] / exact["sd"]
    shift = (approximate["mean"] - exact["mean"]).abs() / exact["sd"]
    row = (
        name, str(rate), vb.learning_rate_, ratio.median(), ratio.min(), ratio.max(), shift.max(), vb.scale_,
        gibbs.scale_, int(exact["ess"].min()), f"{exact['r_hat'].max():.3f}", seconds, spent,
    )  # fmt: skip
    print(*map(common.number, row), flush=True)
    return row


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--draws", type=int, default=20_000, help="kept draws of each of four chains")
    options = options.parse_args()
    draws = 500 if options.quick else options.draws
    common.warm_up()
    with common.one_thread():
        rows = [compare(name, X, y, rate, draws) for name, (X, y) in sets(options.quick).items() for rate in RATES]
    columns = (
        "set", "learning rate", "value", "median sd ratio", "smallest", "largest", "largest shift in sd", "scale vb",
        "scale gibbs", "smallest ess", "largest R-hat", "vb CPU s", "gibbs CPU s",
    )  # fmt: skip
    common.publish("uncertainty", common.markdown(columns, rows), options)


if __name__ == "__main__":
    main()
