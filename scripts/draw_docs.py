"""Draw the pictures of the tutorials: ``python scripts/draw_docs.py`` writes ``docs/images/learn_*.png``."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
from matplotlib import pyplot
from PIL import Image
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_moons
from sklearn.svm import LinearSVC

from softmargin import BayesianKernelClassifier, BayesianSVC, Smooth, plots

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_COLOURS = 64  # few make small files


def saved(figure: Any, name: str) -> None:
    """The figure as a small file."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=90)
    pyplot.close(figure)
    Image.open(drawn).convert("RGB").quantize(_COLOURS).save(IMAGES / f"learn_{name}.png", optimize=True)


def probabilities() -> None:
    """Reliability on new rows, beside a calibrated machine."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4400, 6))
    y = (rng.random(4400) < 1.0 / (1.0 + np.exp(-1.5 * X[:, 0] + X[:, 1]))).astype(int)
    models = {
        "softmargin": BayesianSVC().fit(X[:400], y[:400]),
        "CalibratedClassifierCV": CalibratedClassifierCV(LinearSVC(), cv=5).fit(X[:400], y[:400]),
    }
    saved(plots.calibration(models, X[400:], y[400:]).figure, "probabilities")


def variables() -> None:
    """Inclusion probabilities of twelve columns, three of which matter."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(300, 12)), columns=[f"x{j}" for j in range(12)])
    f = 1.5 * X["x0"] - 1.0 * X["x1"] + 0.7 * X["x2"]
    y = np.where(f + rng.logistic(size=300) > 0, "ill", "well")
    model = BayesianSVC("spike-slab", "gibbs", random_state=0).fit(X, y)
    saved(plots.inclusion(model).figure, "variables")


def curves() -> None:
    """Probabilities over the plane, near the rows and far from them."""
    X, y = make_moons(300, noise=0.25, random_state=0)
    model = BayesianKernelClassifier(random_state=0).fit(X, y)
    across, up = np.meshgrid(np.linspace(-4, 5, 120), np.linspace(-3.5, 4, 100))
    p = model.predict_proba(np.column_stack([across.ravel(), up.ravel()]))[:, 1].reshape(across.shape)
    figure, ax = pyplot.subplots(figsize=(6.0, 4.2), layout="constrained")
    shade = ax.contourf(across, up, p, levels=np.linspace(0, 1, 11), cmap="RdBu")
    ax.contour(across, up, p, levels=[0.5], colors="black", linewidths=1)
    ax.scatter(X[:, 0], X[:, 1], c=np.where(y == 1, "#08306b", "#67000d"), s=9)
    figure.colorbar(shade, ax=ax, label="probability of class 1")
    saved(figure, "curves")


def smooth() -> None:
    """A smooth term with its band."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"dose": rng.uniform(0, 1, 600), "age": rng.normal(50, 10, 600)})
    y = 2.0 * np.sin(6.0 * X["dose"]) - 0.05 * (X["age"] - 50) + rng.logistic(size=600) > 0
    bent = BayesianSVC(random_effects=Smooth("dose")).fit(X, y)
    saved(plots.SmoothDisplay.from_estimator(bent).figure_, "smooth")


def groups() -> None:
    """Effects of patients, in the order of their means."""
    rng = np.random.default_rng(1)
    patient = np.repeat(np.arange(60), 6)
    visits = pd.DataFrame({"month": np.tile(np.arange(6.0), 60), "dose": rng.uniform(0, 1, 360), "patient": patient})
    own = 1.5 * rng.standard_normal(60)
    f = 0.8 - 0.4 * visits["month"] - 1.0 * visits["dose"] + own[patient]
    model = BayesianSVC(random_effects="patient", likelihood="logit").fit(visits, f + rng.logistic(size=360) > 0)
    saved(plots.RandomEffectsDisplay.from_estimator(model, top=30).figure_, "groups")


if __name__ == "__main__":
    probabilities()
    variables()
    curves()
    smooth()
    groups()
