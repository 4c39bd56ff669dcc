"""Effective draws per CPU second of the samplers on one pseudo-posterior, warm-up included.

The target is ``exp(-2 sum max(1 - y x'b, 0))`` times a normal (sd 1) or Laplace (scale 1) prior on every coefficient,
the one of the constant column included; columns are standardized. NUTS is that of NumPyro, in double precision, with
the better of a diagonal and a dense mass matrix, compilation not counted; it is left out without NumPyro.
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # NUTS on one thread too
from functools import partial

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from benchmarks import common
from softmargin.core.loop import Outcome, run
from softmargin.core.model import Model
from softmargin.designs import Dense
from softmargin.engines.sampling.chains import Chains
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc.hmc import hmc
from softmargin.losses import Hinge
from softmargin.priors import Lasso, Ridge
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import arviz

PRIORS = {"normal": Ridge(scale=1.0), "Laplace": Lasso(scale=1.0)}


class Result(NamedTuple):
    """Draws (chain, draw, coefficient) and the CPU seconds they took."""

    draws: Any
    seconds: float


def sets(quick: bool) -> dict[str, tuple[Any, Any]]:
    """Name to (standardized columns behind a constant one, labels)."""
    X, y = load_breast_cancer(return_X_y=True)
    found = {
        "heart": common.table("heart"),
        "breast_cancer (scikit-learn)": (X, np.where(y > 0, 1.0, -1.0)),
        "simulated 1000 x 50": common.simulated(1000, 50, 0),
        "spam": common.table("spam"),
    }
    if quick:
        del found["spam"]
    return {
        name: (np.column_stack((np.ones(len(y)), StandardScaler().fit_transform(X))), y)
        for name, (X, y) in found.items()
    }


def sample(X: Any, y: Any, prior: Any, engine: Any, warmup: int, draws: int, seed: int) -> Result:
    """Run one of our engines."""
    free = np.zeros(X.shape[1], dtype=bool)
    model = Model(
        Blocks(Dense.plain(X), y, np.ones(len(y))), Hinge(), prior.bind(free), free, Streams((seed, 0)), Full()
    )
    engine = engine if isinstance(engine, Chains) else engine(model)
    kept = np.empty((draws, engine.chains, X.shape[1]))
    outcome = Outcome(None)

    def keep(iteration: int, info: Any) -> bool:
        if iteration > warmup:
            for k, chain in enumerate(outcome.state):
                kept[iteration - warmup - 1, k] = chain.beta
        return False

    def go() -> Outcome:
        return run(engine, model, max_iter=warmup + draws, callback=keep, outcome=outcome)

    _, seconds = common.cpu(go)
    return Result(np.swapaxes(kept, 0, 1), seconds)


def nuts(X: Any, y: Any, prior: str, dense: bool, warmup: int, draws: int, chains: int = 2) -> Result:
    """NumPyro's NUTS on the same log density, as one compiled scan a chain."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer.hmc import hmc

    jax.config.update("jax_enable_x64", True)
    signed = jnp.asarray(X * y[:, None])

    def potential(b: Any) -> Any:
        shrink = 0.5 * jnp.sum(b * b) if prior == "normal" else jnp.sum(jnp.abs(b))
        return 2.0 * jnp.sum(jnp.maximum(1.0 - signed @ b, 0.0)) + shrink

    init, kernel = hmc(potential, algo="NUTS")

    def start(seed: int) -> Any:
        place = 0.1 * np.random.default_rng(seed).standard_normal(X.shape[1])
        return init(jnp.asarray(place), num_warmup=warmup, dense_mass=dense, rng_key=jax.random.PRNGKey(seed))

    def chain(state: Any) -> Any:
        def one(state: Any, _: Any) -> Any:
            state = kernel(state)
            return state, state.z

        return jax.lax.scan(one, state, None, length=warmup + draws)[1]

    compiled = jax.jit(chain).lower(start(99)).compile()
    begun = [start(seed) for seed in range(chains)]
    found = [common.cpu(lambda state=state: np.asarray(compiled(state))) for state in begun]
    return Result(np.array([z[warmup:] for z, _ in found]), sum(seconds for _, seconds in found))


def effective(values: Any) -> float:
    """Bulk effective number of draws of (chain, draw)."""
    return float(arviz.ess(np.ascontiguousarray(values)))


def rates(result: Result) -> tuple[float, float, float]:
    """Effective draws a second: of the worst and the median coefficient, and of the length of all."""
    each = [effective(result.draws[..., j]) for j in range(result.draws.shape[-1])]
    length = effective(np.linalg.norm(result.draws, axis=-1))
    return min(each) / result.seconds, float(np.median(each)) / result.seconds, length / result.seconds


def difference(result: Result, reference: Result) -> tuple[float, float]:
    """Largest difference of means in standard errors, and largest relative difference of standard deviations."""
    z, spread = [], []
    for j in range(result.draws.shape[-1]):
        a, b = result.draws[..., j], reference.draws[..., j]
        z.append(abs(a.mean() - b.mean()) / np.hypot(a.std() / effective(a) ** 0.5, b.std() / effective(b) ** 0.5))
        spread.append(abs(np.log(a.std() / b.std())))
    return max(z), max(spread)


def compare(name: str, X: Any, y: Any, prior: str, size: float, masses: tuple[bool, ...]) -> list[tuple[Any, ...]]:
    """The rows of one set and prior."""
    large = 0.25 if len(y) > 2000 else 1.0
    some = int(2000 * size * large)
    found = {}
    for chains, draws in ((4, 2 * some), (16, some)):
        found[f"hmc, {chains} chains"] = sample(
            X, y, PRIORS[prior], partial(hmc, chains=chains), 50, draws, seed=chains
        )
    found["gibbs"] = sample(X, y, PRIORS[prior], gibbs(chains=4), some // 5, some, seed=1)
    found["gibbs, plain"] = sample(X, y, PRIORS[prior], gibbs(chains=4, scale_moves=False), some // 5, some, seed=2)
    peer = 0.0
    reference = found["gibbs"]
    if find_spec("numpyro") is not None:
        peers = [nuts(X, y, prior, dense, some // 2, 2 * some) for dense in masses]
        reference = max(peers, key=lambda result: rates(result)[0])
        found["NUTS"] = reference
        peer = rates(reference)[0]
    rows = []
    for sampler, result in found.items():
        worst, median, length = rates(result)
        z, spread = (None, None) if result is reference else difference(result, reference)
        ratio = worst / peer if peer else None
        rows.append((name, prior, sampler, result.seconds, worst, median, length, ratio, z, spread))
        print(*map(common.number, rows[-1]), flush=True)
    return rows


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--dense", action="store_true", help="leave out NUTS with a diagonal mass matrix")
    options.add_argument("--only", help="part of the name of the sets to run")
    options = options.parse_args()
    size = 0.1 if options.quick else 1.0
    chosen = {name: data for name, data in sets(options.quick).items() if (options.only or "") in name}
    masses = (True,) if options.dense else (False, True)
    rows: list[tuple[Any, ...]] = []
    with common.one_thread():
        X, y = common.simulated(60, 3, 0)
        for prior in PRIORS.values():  # compile
            for engine in (partial(hmc, chains=1), gibbs(chains=1)):
                sample(X, y, prior, engine, 1, 10, 0)
        for name, (X, y) in chosen.items():
            for prior in PRIORS:
                rows += compare(name, X, y, prior, size, masses)
    columns = (
        "set", "prior", "sampler", "CPU s", "worst coefficient / s", "median / s", "length / s",
        "worst, ratio to NUTS", "largest z of means", "largest log ratio of sds",
    )  # fmt: skip
    common.publish("sampling", common.markdown(columns, rows), options)


if __name__ == "__main__":
    main()
