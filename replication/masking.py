"""A picture for the page on many classes: linear scores that sum to zero mask the class in the middle."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_iris

from benchmarks import common
from replication.common import Page, parser
from softmargin import BayesianSVC
from softmargin.plots.style import BLUE, RED, finish, frame

RATE = 3 / 8  # of the loss of the papers: 1/8 per class
COLOURS = (RED, "#666666", BLUE)


def largest_score(model: BayesianSVC, X: Any) -> Any:
    """The class with the largest posterior mean score, without the link."""
    return (X @ model.coef_.T + model.intercept_).argmax(axis=1)


def draw(page: Page) -> dict[str, float]:
    """Regions of the three classes of iris by its two petal columns; the training errors of each rule."""
    X, y = load_iris(return_X_y=True)
    X = X[:, 2:]
    papers = BayesianSVC(multi_class="sum-to-zero", learning_rate=RATE).fit(X, y)
    joint, pairs = BayesianSVC(multi_class="sum-to-zero").fit(X, y), BayesianSVC().fit(X, y)
    rules = {
        "loss of the papers, largest score": lambda rows: largest_score(papers, rows),
        "sum-to-zero, the default": joint.predict,
        "pairs": pairs.predict,
    }
    length, width = np.meshgrid(np.linspace(0.6, 7.3, 240), np.linspace(-0.1, 2.8, 160))
    rows = np.column_stack((length.ravel(), width.ravel()))
    errors = {}
    text = "Regions of setosa (red), versicolor (grey) and virginica (blue) by the two petal columns of iris"
    with page.picture("classes_masking", text, ncols=3, figsize=(9.4, 3.0), sharey=True) as axes:
        for ax, (name, rule) in zip(axes, rules.items(), strict=True):
            errors[name] = float((rule(X) != y).mean())
            region = rule(rows).reshape(length.shape)
            ax.contourf(length, width, region, levels=(-0.5, 0.5, 1.5, 2.5), colors=COLOURS, alpha=0.18)
            for r, colour in enumerate(COLOURS):
                ax.scatter(*X[y == r].T, color=colour, s=7)
            frame(ax)
            ax.set_title(f"{name}: {100 * errors[name]:.1f} % wrong", fontsize=9.5)
            finish(ax, "petal length", "petal width" if ax is axes[0] else "")
    return errors


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__).parse_args(arguments)
    with common.one_thread():
        print(draw(Page.of("masking", options)))


if __name__ == "__main__":
    main()
