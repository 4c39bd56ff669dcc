"""Draws, their diagnostics and their memory in the base installation."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from softmargin import BayesianSVC, BayesianSVR
from softmargin.inference import draws as drawing

OPTIONAL = ["arviz", "matplotlib", "xarray"]
USE = """
import sys, warnings
import numpy as np
from softmargin import BayesianSVC
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
y = np.where(X[:, 0] + rng.normal(size=60) > 0, 1, -1)
for inference in ("vb", "gibbs"):
    model = BayesianSVC(inference=inference, draws=20, warmup=20, chains=2, random_state=0).fit(X, y)
    model.predict(X), model.predict_proba(X), model.summary()
print(*[name for name in OPTIONAL if name in sys.modules])
"""


def problem(n=80, p=2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)


def test_a_fit_imports_no_optional_package():
    code = f"OPTIONAL = {OPTIONAL}" + USE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_chains_that_disagree_warn_without_arviz(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    X, y = problem()
    X = np.column_stack((X, np.random.default_rng(0).standard_normal((len(X), 40))))  # one of many will disagree
    with pytest.warns(ConvergenceWarning, match="the chains disagree: the largest R-hat is"):
        model = BayesianSVC(inference="gibbs", draws=5, warmup=0, chains=4, random_state=0).fit(X, y)
    assert {"ess", "r_hat"} <= set(model.summary().columns)
    with pytest.raises(ImportError, match=r"softmargin\[arviz\]"):
        model.to_arviz()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("multi_class", ["pairwise", "sum-to-zero"])
def test_the_summary_has_the_diagnostics_of_arviz(multi_class):
    arviz = pytest.importorskip("arviz")
    X, y = problem(60)
    labels = y if multi_class == "pairwise" else np.digitize(X[:, 1] + 0.5 * y, [-0.5, 0.5])
    model = BayesianSVC(inference="gibbs", draws=60, warmup=20, chains=3, multi_class=multi_class, random_state=0)
    table = model.fit(X, labels).summary()
    drawn = model.to_arviz()["posterior"]
    size, r_hat = arviz.ess(drawn)["coef"].to_numpy(), arviz.rhat(drawn)["coef"].to_numpy()
    slopes = table.loc[["x0", "x1"]]
    if multi_class == "sum-to-zero":
        slopes = slopes.swaplevel().loc[list(model.classes_)]
    np.testing.assert_allclose(slopes["ess"], size.ravel(), rtol=1e-8)
    np.testing.assert_allclose(slopes["r_hat"], r_hat.ravel(), rtol=1e-8)


@pytest.mark.parametrize("machine", [BayesianSVC, BayesianSVR])
def test_draws_that_do_not_fit_into_memory_are_refused_before_the_first(machine, monkeypatch):
    monkeypatch.setattr(drawing, "available", lambda: 1e4)
    monkeypatch.setattr(drawing, "run", lambda *_, **__: pytest.fail("the run began"))
    X, y = problem()
    wanted = r"1,000 draws of 4 chains of 3 coefficients take 0\.000192 GB, and 1e-05 GB are free: .*draws=100, thin=10"
    with pytest.raises(MemoryError, match=wanted):
        machine(inference="gibbs", random_state=0).fit(X, y)
