"""Random problems by number: a table, an estimator with random parameters, and at times a twin to compare with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics.pairwise import rbf_kernel
from soak_tables import (
    Table,
    as_given,
    chance,
    columns,
    decades,
    grouped,
    labels,
    pick,
    responses,
    sizes,
    sparse,
    weights,
    with_missing,
)

from softmargin import BayesianKernelClassifier, BayesianSVC, BayesianSVR, RandomEffect, Smooth
from softmargin.priors import (
    Bridge,
    GroupLasso,
    HalfCauchy,
    Horseshoe,
    InverseGamma,
    LaplaceZero,
    Lasso,
    Ridge,
    SpikeSlab,
)

_SEED = 20240  # of the series of problems
_INFERENCES = {"vb": 2.0, "map": 1.5, "meanfield": 1.0, "gibbs": 1.5, "hmc": 1.5, "svi": 1.0}


class Problem(NamedTuple):
    """One fit, judged on its own and, if it has a ``twin``, against another one."""

    number: int
    kind: str
    model: Any
    table: Table
    twin: str | None

    @property
    def about(self) -> str:
        """What it is in one line."""
        rows, width = self.table.X.shape
        model = " ".join(repr(self.model).split())
        twin = f", twin {self.twin}" if self.twin else ""
        return f"{model} on {rows} x {width} ({self.table.about}){twin}"


def problem_of(number: int) -> Problem:
    """The problem with this number, always the same."""
    rng = np.random.default_rng([_SEED, number])
    kind = pick(rng, **{name: share for name, (share, _) in _KINDS.items()})
    model, table = _KINDS[kind][1](rng)
    return Problem(number, kind, model, table, _twin(rng, kind, model, table))


def _lengths(rng) -> dict[str, Any]:
    """Short chains, few or many iterations, and a seed."""
    return {
        "draws": int(rng.integers(4, 60)),
        "warmup": int(rng.integers(0, 60)),
        "chains": int(rng.integers(1, 4)),
        "thin": 2 if chance(rng, 0.1) else 1,
        "max_iter": int(rng.choice([3, 50, 500, 500, 500])),
        "random_state": int(rng.integers(1000)),
    }


def _hyperprior(rng, inference: str) -> Any:
    kind = pick(rng, none=4, cauchy=0.05 if inference == "map" else 1, gamma=1)
    if kind == "cauchy":
        return HalfCauchy(decades(rng, -2, 2))
    return InverseGamma(decades(rng, -1, 1), decades(rng, -2, 2)) if kind == "gamma" else None


def _prior(rng, inference: str, *, joint: bool = False) -> Any:
    """A prior that the inference knows in most cases, with its scale learned or anywhere in many decades."""
    shares = {"ridge": 3.0, "lasso": 1.0, "bridge": 1.0, "horseshoe": 0.1 if inference == "map" else 1.0}
    if inference == "svi" and chance(rng, 0.8):
        shares = {"ridge": 1.0}
    if inference == "gibbs":
        shares |= {"spike": 1.5, "laplace": 1.0}
    if inference == "vb":
        shares |= {"laplace": 0.7}
    if joint:
        shares |= {"group": 1.0}
    if chance(rng, 0.03):
        shares |= {"spike": 1.0, "laplace": 1.0, "group": 1.0}
    kind = pick(rng, **shares)
    scale: Any = "learn" if chance(rng, 0.6) else decades(rng, -6, 6)
    rest = {"scale": scale, "hyperprior": _hyperprior(rng, inference)}
    if chance(rng, 0.1):
        rest["intercept_scale"] = decades(rng, -2, 6)
    if kind in ("spike", "laplace"):
        inclusion = {"inclusion": rng.choice([0.5, 0.05, 0.9]).item()} if chance(rng, 0.7) else {"inclusion": "learn"}
        return SpikeSlab(**inclusion, **rest) if kind == "spike" else LaplaceZero(**inclusion, **rest)
    if kind == "bridge":
        learn = inference == "gibbs" and not joint and chance(rng, 0.3)
        return Bridge("learn" if learn else float(rng.choice([0.3, 0.5, 1.0, 1.5, 2.0])), **rest)
    return {"ridge": Ridge, "lasso": Lasso, "horseshoe": Horseshoe, "group": GroupLasso}[kind](**rest)


def _options(rng, inference: str, prior: Any, likelihood: str) -> dict[str, Any] | None:
    """Options of the engine, in a part of the problems."""
    if (
        chance(rng, 0.7)
        or isinstance(prior, (SpikeSlab, LaplaceZero))
        or (inference == "map" and likelihood != "hinge")
    ):
        return None
    if inference == "map":
        return {"algorithm": pick(rng, newton=1, em=1, anneal=0.5)}
    if inference == "svi":
        return {"batch": int(rng.integers(2, 64)), "epochs": int(rng.integers(1, 4))}
    if inference == "gibbs":
        return {"scale_moves": False} if chance(rng, 0.5) else {"temperature": decades(rng, -1, 1)}
    return {"hmc": {"scale_moves": False}, "meanfield": {"accelerate": False}}.get(inference)


def _rate(rng) -> Any:
    return "auto" if chance(rng, 0.6) else decades(rng, -3, 2)


def _classifier(rng, inference: str, **given: Any) -> dict[str, Any]:
    """Parameters of a linear classifier."""
    prior = _prior(rng, inference, joint=given.get("multi_class") == "sum-to-zero")
    likelihood = pick(rng, hinge=2, logit=1, probit=0.7) if not given.get("multi_class") else "hinge"
    return _lengths(rng) | {
        "inference": inference,
        "prior": prior,
        "learning_rate": _rate(rng),
        "likelihood": likelihood,
        "fit_intercept": not chance(rng, 0.15),
        "standardize": not chance(rng, 0.35),
        "class_weight": "balanced" if chance(rng, 0.15) else None,
        "probability": pick(rng, calibrated=3, pseudo=1, sign=0.0 if inference == "map" else 1),
        "engine_options": _options(rng, inference, prior, likelihood),
        "solver": pick(rng, auto=6, cholesky=1, dual=0.5 * isinstance(prior, Ridge)),
        **given,
    }


def _labelled(rng, k: int, likelihood: str, **limits: int) -> tuple[Any, Any, Any, str]:
    """Plain rows with labels and weights; whole ones, in most cases, for likelihoods that draw copies of a row."""
    n, p = sizes(rng, **limits)
    X, about = columns(rng, max(n, k), p)
    y = labels(rng, X, k)
    weight, weighed = weights(rng, y, whole=likelihood not in ("hinge", "logit") and chance(rng, 0.9))
    return X, y, weight, f"{about}; weights {weighed}"


def _new(rng, X) -> Any:
    """New rows: some of the old ones, and old ones moved."""
    rows = rng.integers(len(X), size=6)
    moved = X[rows] * (1.0 + 0.5 * rng.normal(size=(6, X.shape[1])))
    return np.concatenate((X[:20], moved))


def _svc_two(rng) -> tuple[Any, Table]:
    model = BayesianSVC(**_classifier(rng, pick(rng, **_INFERENCES)))
    X, y, weight, about = _labelled(rng, 2, model.likelihood)
    if chance(rng, 0.1):
        model.set_params(costs=[[0.0, 1.0], [decades(rng, -2, 2), 0.0]])
    X, new = as_given(rng, X, _new(rng, X))
    return model, Table(X, y, weight, new, about)


def _svc_pairs(rng) -> tuple[Any, Table]:
    k = int(rng.integers(3, 7))
    model = BayesianSVC(**_classifier(rng, pick(rng, **_INFERENCES)))
    X, y, weight, about = _labelled(rng, k, model.likelihood, most_rows=300, most_columns=40)
    return model, Table(X, y, weight, _new(rng, X), f"{about}; {k} classes")


def _sum_to_zero(rng) -> tuple[Any, Table]:
    k = int(rng.integers(3, 7))
    X, y, weight, about = _labelled(rng, k, "hinge", most_rows=250, most_columns=30)
    inference = pick(rng, **(_INFERENCES | {"svi": 0.05, "hmc": 0.05}))
    model = BayesianSVC(**_classifier(rng, inference, multi_class="sum-to-zero"))
    if chance(rng, 0.15):
        costs = rng.uniform(0.1, 3.0, (len(np.unique(y)),) * 2)
        model.set_params(costs=costs * (1.0 - np.eye(len(costs))))
    return model, Table(X, y, weight, _new(rng, X), f"{about}; {k} classes")


def _crammer_singer(rng) -> tuple[Any, Table]:
    k = int(rng.integers(3, 7))
    X, y, weight, about = _labelled(rng, k, "hinge", most_rows=300, most_columns=20)
    parameters = _classifier(rng, pick(rng, map=1, gibbs=1), multi_class="crammer-singer", engine_options=None)
    parameters["prior"] = Ridge(scale=parameters["prior"].scale, hyperprior=parameters["prior"].hyperprior)
    return BayesianSVC(**parameters), Table(X, y, weight, _new(rng, X), f"{about}; {k} classes")


def _svr(rng) -> tuple[Any, Table]:
    n, p = sizes(rng)
    X, about = columns(rng, n, p)
    y = responses(rng, X)
    weight, weighed = weights(rng, y, classes=False)
    inference = pick(rng, **{name: share for name, share in _INFERENCES.items() if name != "svi"})
    options = {"gibbs": {"scale_moves": False}, "hmc": {"scale_moves": False}, "meanfield": {"accelerate": False}}
    prior = _prior(rng, inference)
    model = BayesianSVR(
        **_lengths(rng),
        prior=prior,
        inference=inference,
        likelihood=pick(rng, **{"epsilon-insensitive": 2, "squared": 1}),
        epsilon="learn" if chance(rng, 0.7) else rng.choice([0.0, 0.1, 1.0, 10.0]).item(),
        noise="learn" if chance(rng, 0.7) else decades(rng, -3, 3),
        fit_intercept=not chance(rng, 0.15),
        standardize=not chance(rng, 0.35),
        solver=pick(rng, auto=6, cholesky=1, dual=0.5 * isinstance(prior, Ridge)),
        engine_options=options.get(inference) if chance(rng, 0.15) else None,
    )
    given, new = (sparse(rng, X), _new(rng, X)) if chance(rng, 0.15) else as_given(rng, X, _new(rng, X))
    return model, Table(given, y, weight, new, f"{about}; weights {weighed}")


def _missing(rng) -> tuple[Any, Table]:
    inference = pick(rng, **(_INFERENCES | {"svi": 0.1, "hmc": 0.1}))
    model = BayesianSVC(**_classifier(rng, inference), missing=pick(rng, model=3, indicator=1))
    k = 2 if chance(rng, 0.8) else 3
    X, y, weight, about = _labelled(rng, k, model.likelihood, most_rows=200, most_columns=20)
    X, share = with_missing(rng, X)
    if chance(rng, 0.5):
        X[:, 0] = rng.normal(size=len(X))
    if weight is not None:  # a column needs an observed entry in a row that counts
        weight = np.where(weight > 0, weight, 1.0)
    X, new = as_given(rng, X, _new(rng, X))
    return model, Table(X, y, weight, new, f"{about}; {share:.0%} missing")


def _groups(rng) -> tuple[Any, Table]:
    parameters = _classifier(rng, pick(rng, **(_INFERENCES | {"svi": 0.1})))
    k = 2 if chance(rng, 0.8) else 3
    X, y, weight, about = _labelled(rng, k, parameters["likelihood"], most_rows=200, most_columns=10)
    extra = int(rng.integers(1, 3))
    frame = grouped(rng, X, extra)
    effects: list[Any] = []
    for number in range(extra):
        slopes = ["v0"] if chance(rng, 0.3) else []
        scale: Any = "learn" if chance(rng, 0.8) else decades(rng, -3, 3)
        form = {"covariance": pick(rng, full=1, diagonal=1), "scale": scale}
        effects.append(RandomEffect(f"g{number}", slopes, **form))
    if chance(rng, 0.25):
        effects.append(Smooth("v0", knots=int(rng.integers(4, 20))))
    if chance(rng, 0.2) and parameters["inference"] != "hmc":
        holes = rng.random((len(X), X.shape[1])) < 0.1
        holes[:, 0] = holes[0] = False
        frame.iloc[:, : X.shape[1]] = frame.iloc[:, : X.shape[1]].mask(holes)
        about += "; 10% missing"
    new = pd.concat((frame[:15], frame[-5:].assign(g0="new")), ignore_index=True)
    return BayesianSVC(**parameters, random_effects=effects), Table(frame, y, weight, new, about)


def _sparse(rng) -> tuple[Any, Table]:
    k = 2 if chance(rng, 0.8) else 3
    parameters = _classifier(rng, pick(rng, **_INFERENCES))
    X, y, weight, about = _labelled(rng, k, parameters["likelihood"], most_columns=200)
    if chance(rng, 0.4 if parameters["inference"] not in ("hmc", "svi") else 0.05):
        parameters |= {"solver": "cg", "prior": Ridge(scale=parameters["prior"].scale)}
    given = sparse(rng, X)
    return BayesianSVC(**parameters), Table(given, y, weight, given.tocsr()[:20], about)


def _kernel(rng) -> tuple[Any, Table]:
    k = 2 if chance(rng, 0.8) else int(rng.integers(3, 5))
    basis = pick(rng, auto=1, full=2, active=1.5, inducing=1)
    inferences = {"active": {"gibbs": 1.0}, "inducing": {"vb": 1.0, "svi": 1.0}}
    inference = pick(rng, **inferences.get(basis, _INFERENCES | ({"svi": 0.0} if basis == "full" else {})))
    shares = {"hinge": 2.0, "logit": 1.0, "probit": 1.0}
    if inference == "gibbs" and basis in ("auto", "full"):
        shares |= {"noisy-hinge": 1.5, "complete-hinge": 1.5}
    likelihood = pick(rng, **shares)
    X, y, weight, about = _labelled(rng, k, likelihood, most_rows=200, most_columns=15)
    own = 0.0 if basis == "inducing" or inference == "svi" else 0.5
    kernel = pick(rng, rbf=4, laplacian=1, linear=0.7, polynomial=0.4, precomputed=own)
    length: Any = pick(rng, **{"learn": 2, "mean-distance": 1, "number": 1})
    if kernel not in ("rbf", "laplacian"):
        length = None if chance(rng, 0.8) else length
    given: Any
    given, new = as_given(rng, X, _new(rng, X))
    if kernel == "precomputed":
        unit = np.abs(X).max(axis=0, initial=1e-8)
        given, new = rbf_kernel(X / unit), rbf_kernel(np.asarray(new) / unit, X / unit)
    elif chance(rng, 0.1):
        given, new = sparse(rng, X), sparse(rng, np.asarray(new))
    model = BayesianKernelClassifier(
        kernel,
        decades(rng, -4, 4) if length == "number" else length,
        likelihood,
        basis,
        inference,
        **_lengths(rng),
        max_active=int(rng.integers(1, len(X) // k + 1)) if basis == "active" and chance(rng, 0.3) else None,
        n_inducing=int(rng.integers(1, 40)) if basis == "inducing" and chance(rng, 0.5) else None,
        scale="learn" if chance(rng, 0.7) else decades(rng, -4, 4),
        learning_rate=_rate(rng),
        standardize=[True, False, "auto"][rng.integers(3)],
        class_weight="balanced" if chance(rng, 0.15) else None,
        probability=pick(rng, calibrated=3, pseudo=1, sign=0.0 if inference == "map" else 1),
    )
    return model, Table(given, y, weight, new, f"{about}; {k} classes")


_KINDS: dict[str, tuple[float, Any]] = {
    "two classes": (3.0, _svc_two),
    "pairs": (1.5, _svc_pairs),
    "sum-to-zero": (1.2, _sum_to_zero),
    "crammer-singer": (0.7, _crammer_singer),
    "regression": (2.5, _svr),
    "missing": (1.5, _missing),
    "groups": (1.5, _groups),
    "sparse": (1.0, _sparse),
    "kernel": (2.5, _kernel),
}
_SURE = ("vb", "map", "meanfield")


def _twin(rng, kind: str, model: Any, table: Table) -> str | None:
    """With what a fit is compared: one answer by two ways, for fits that have one answer."""
    wanted = pick(rng, none=3, repeated=1, permuted=1, dense=1, batches=1, jobs=0.4)
    sure = model.inference in _SURE and model.max_iter >= 500 and not model.engine_options
    sure = sure and kind not in ("kernel", "groups") and isinstance(model.prior, Ridge)
    allowed = {
        "jobs": True,
        "repeated": sure and table.weight is None,
        "permuted": sure and table.X.shape[1] > 1,
        "dense": sure and kind == "sparse" and model.solver != "cg",
        "batches": sure and model.inference == "vb" and kind == "two classes" and _plain(table),
    }
    return wanted if allowed.get(wanted) else None


def _plain(table: Table) -> bool:
    """Whether batches of rows are alike: many rows of plain columns that count the same."""
    return table.weight is None and len(table.y) > 100 and table.about.startswith("plain")
