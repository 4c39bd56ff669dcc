"""Small fitted models of every kind, and everything that they say of rows."""

from __future__ import annotations

import hashlib
import warnings

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import softmargin
from softmargin import (
    BayesianKernelClassifier,
    BayesianKernelRegressor,
    BayesianSVC,
    BayesianSVR,
    RandomEffect,
    Smooth,
)
from softmargin.losses import Check
from softmargin.priors import HalfCauchy, Ridge

N = 40
RUN = {"draws": 12, "warmup": 12, "chains": 2, "random_state": 0}
rng = np.random.default_rng(5)
X = rng.normal(size=(N, 3))
LABELS = np.where(X[:, 0] + rng.normal(size=N) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.5 * rng.normal(size=N), [-0.5, 0.5])
Y = X[:, 0] + 0.3 * rng.normal(size=N)
HOLES = np.where(rng.random(X.shape) < 0.1, np.nan, X)
FRAME = pd.DataFrame(X, columns=["age", "dose", "ß <b>"]).assign(clinic=rng.integers(0, 4, N))
SPARSE = sp.random(N, 12, 0.3, random_state=0, format="csr")
DATA = FRAME.rename(columns={"ß <b>": "w"}).assign(
    sick=LABELS, y=Y, kind=pd.Categorical(rng.choice(["a", "b", "c"], N)), smoker=rng.random(N) > 0.5
)


def _svc(rows, y, prior="ridge", inference="vb", **options):
    return BayesianSVC(prior, inference, **(RUN | options)).fit(rows, y), rows


def _svr(rows, y, prior="ridge", inference="vb", **options):
    return BayesianSVR(prior, inference, **(RUN | options)).fit(rows, y), rows


def _kernel(rows, y, **options):
    return BayesianKernelClassifier(**(RUN | options)).fit(rows, y), rows


def _kernel_regression(rows, y, **options):
    return BayesianKernelRegressor(**(RUN | {"length_scale": 2.0} | options)).fit(rows, y), rows


def _formula(text, **options):
    return softmargin.fit(text, DATA, **(RUN | options)), DATA


TERMS = ["clinic", Smooth("age")]
SLOPES = [RandomEffect("clinic", slopes=["age"])]
MODELS = {
    **{
        f"two classes, {name}": lambda name=name: _svc(X, LABELS, inference=name) for name in ("vb", "meanfield", "svi")
    },
    **{f"two classes, {name}": lambda name=name: _svc(X, LABELS, inference=name) for name in ("map", "gibbs", "hmc")},
    **{f"pairs, {name}": lambda name=name: _svc(X, THREE, inference=name) for name in ("vb", "map", "gibbs")},
    **{
        f"sum to zero, {name}": lambda name=name: _svc(X, THREE, inference=name, multi_class="sum-to-zero")
        for name in ("vb", "map", "gibbs")
    },
    **{
        f"crammer-singer, {name}": lambda name=name: _svc(X, THREE, inference=name, multi_class="crammer-singer")
        for name in ("map", "gibbs")
    },
    **{f"regression, {name}": lambda name=name: _svr(X, Y, inference=name) for name in ("vb", "map", "gibbs", "svi")},
    "hyperprior": lambda: _svc(X, LABELS, Ridge(hyperprior=HalfCauchy(2.0))),
    "lasso": lambda: _svc(X, LABELS, "lasso", "map"),
    "horseshoe": lambda: _svc(X, LABELS, "horseshoe", "gibbs"),
    "spike and slab": lambda: _svc(X, LABELS, "spike-slab", "gibbs"),
    "laplace and zero": lambda: _svc(X, LABELS, "laplace-zero"),
    "selection of classes": lambda: _svc(X, THREE, "spike-slab", "gibbs", multi_class="sum-to-zero"),
    "selection, regression": lambda: _svr(X, Y, "spike-slab", "gibbs"),
    "logit": lambda: _svc(X, LABELS, likelihood="logit"),
    "quantile": lambda: _svr(X, Y, likelihood=Check(0.9)),
    "weights of classes": lambda: _svc(X, LABELS, class_weight={"yes": 2.0, "no": 1.0}),
    "costs": lambda: _svc(X, LABELS, costs=pd.DataFrame([[0, 1], [5, 0]], ["no", "yes"], ["no", "yes"])),
    "generator": lambda: _svc(X, LABELS, random_state=np.random.RandomState(1)),
    "effects, vb": lambda: _svc(FRAME, LABELS, random_effects=TERMS),
    "effects, map": lambda: _svc(FRAME, LABELS, inference="map", random_effects=TERMS),
    "effects, gibbs": lambda: _svc(FRAME, LABELS, inference="gibbs", random_effects=TERMS),
    "slopes": lambda: _svc(FRAME, LABELS, random_effects=SLOPES),
    "effects of pairs": lambda: _svc(FRAME, THREE, random_effects=["clinic"]),
    "effects of classes": lambda: _svc(FRAME, THREE, random_effects=["clinic"], multi_class="sum-to-zero"),
    "effects, regression": lambda: _svr(FRAME, Y, random_effects=["clinic"]),
    "missing, vb": lambda: _svc(HOLES, LABELS),
    "missing, gibbs": lambda: _svc(HOLES, LABELS, inference="gibbs"),
    "missing, classes": lambda: _svc(HOLES, THREE, multi_class="sum-to-zero"),
    "missing, regression": lambda: _svr(HOLES, Y),
    "marks of missing": lambda: _svc(HOLES, LABELS, missing="indicator"),
    "sparse": lambda: _svc(SPARSE, LABELS),
    "conjugate gradients": lambda: _svc(SPARSE, LABELS, solver="cg"),
    "more columns than rows": lambda: _svc(SPARSE.toarray()[:8], LABELS[:8]),
    "kernel, vb": lambda: _kernel(X, LABELS, basis="full"),
    "kernel, inducing": lambda: _kernel(X, LABELS, basis="inducing", n_inducing=10),
    "kernel, batches": lambda: _kernel(X, LABELS, basis="inducing", inference="svi", n_inducing=10),
    "kernel, active": lambda: _kernel(X, LABELS, basis="active", inference="gibbs"),
    "kernel, probit": lambda: _kernel(X, LABELS, basis="full", inference="gibbs", likelihood="probit"),
    "kernel, pairs": lambda: _kernel(X, THREE, basis="full", inference="map"),
    "kernel, sparse": lambda: _kernel(SPARSE, LABELS, basis="full", inference="map"),
    **{
        f"kernel regression, {name}": lambda name=name, basis=basis: _kernel_regression(
            X, Y, inference=name, basis=basis
        )
        for name, basis in (("vb", "full"), ("map", "full"), ("gibbs", "full"), ("svi", "inducing"))
    },
    "kernel quantiles": lambda: _kernel_regression(X, Y, basis="inducing", n_inducing=10, likelihood=Check(0.7)),
    "kernel, object": lambda: _kernel(X, LABELS, kernel=ConstantKernel(2.0) * RBF(1.5), length_scale=None),
    "kernel, precomputed": lambda: _kernel(X @ X.T, LABELS, kernel="precomputed", basis="full"),
    "formula": lambda: _formula("sick['yes'] ~ age * kind + smoker + {dose > 0} + (1 | clinic)"),
    "formula, functions": lambda: _formula(
        "sick ~ scale(age) + center(w) + poly(dose, 2) + bs(age, df=4) + cr(w, df=3) + C(clinic) + np.log1p(abs(w))",
    ),
    "formula, regression": lambda: _formula("scale(y) ~ age + s(dose)", estimator=BayesianSVR),
    "path": lambda: (softmargin.path(X, LABELS, [0.01, 0.1]), None),
}


def fitted(name):
    """A model, and rows that it takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[name]()


def said(model, rows):
    """A digest of the bits of everything that a model says, by what was asked."""
    asked = {
        "predict": lambda: model.predict(rows),
        "predict_proba": lambda: model.predict_proba(rows),
        "decision_function": lambda: model.decision_function(rows, return_std=True),
        "decision": lambda: model.decision_function(rows),
        "predict with std": lambda: model.predict(rows, return_std=True),
        "sample": lambda: model.sample(rows, 3, random_state=1),
        "summary": lambda: model.summary(),
        "to_arviz": lambda: dict(model.to_arviz()["posterior"].data_vars),
        "attributes": lambda: {name: value for name, value in vars(model).items() if not name.startswith("_")},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: digest(_answer(ask)) for name, ask in asked.items()}


def _answer(ask):
    """An answer, or why there is none: both must come back."""
    try:
        return ask()
    except (AttributeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def digest(thing):
    """A text that is the same for the same bits."""
    found = hashlib.sha256()
    _feed(thing, found)
    return found.hexdigest()[:16]


def _feed(thing, into):
    into.update(type(thing).__name__.encode())
    if isinstance(thing, np.ndarray | np.generic):
        whole = np.asarray(thing)
        into.update(f"{whole.dtype} {whole.shape}".encode())
        into.update(repr(whole.tolist()).encode() if whole.dtype == object else np.ascontiguousarray(whole).tobytes())
    elif isinstance(thing, pd.DataFrame):
        into.update(f"{list(thing.dtypes)} {thing.index.names} {list(thing.index)} {list(thing.columns)}".encode())
        for j in range(thing.shape[1]):
            _feed(np.asarray(thing.iloc[:, j]), into)
    elif isinstance(thing, dict):
        _feed(list(thing.items()), into)
    elif isinstance(thing, list | tuple):
        for part in thing:
            _feed(part, into)
    elif isinstance(thing, np.random.RandomState):
        _feed(thing.get_state(), into)
    elif type(thing).__module__.startswith("softmargin.posterior"):
        _feed([getattr(thing, name, None) for name in ("mean", "draws")], into)
    elif hasattr(thing, "values") and hasattr(thing, "dims"):  # of xarray
        _feed(np.asarray(thing.values), into)
    elif sp.issparse(thing):
        _feed([thing.data, thing.indices, thing.indptr], into)
    elif hasattr(thing, "__dataclass_fields__") or isinstance(thing, softmargin.BayesianSVC | softmargin.BayesianSVR):
        _feed({name: value for name, value in vars(thing).items() if not name.startswith("_")}, into)
    elif callable(thing) and hasattr(thing, "__qualname__"):
        into.update(thing.__qualname__.encode())
    else:
        into.update(repr(thing).encode())
