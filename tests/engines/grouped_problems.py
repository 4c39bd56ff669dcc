"""Models with random effects, and the same models written out densely."""

from dataclasses import replace

import numpy as np

from softmargin.core.model import Model
from softmargin.designs import Dense
from softmargin.designs.grouped import Grouped, GroupTerm
from softmargin.designs.splines import Spline
from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.priors.composed.terms import TermPrior, Terms
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.arrowhead import Arrowhead
from softmargin.solvers.full import Full

KINDS = ["intercept", "slopes", "full", "crossed", "nested", "smooth"]


def grouped_model(kind, *, n=220, hyperprior=None, scale="learn", fixed=None, seed=0, n_blocks=None, workers=1):
    """Two columns, an intercept, and the named random effects; one group has a single row."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    inner, other = rng.integers(0, 24, n), rng.integers(0, 5, n)
    inner[0] = 24
    outer, lines = inner // 5, np.column_stack((np.ones(n), X[:, 0]))
    f = 0.4 + X @ [1.0, -0.5] + rng.standard_normal(25)[inner] + 0.7 * rng.standard_normal(25)[inner] * X[:, 0]
    y = np.where(f + rng.logistic(size=n) > 0.0, 1.0, -1.0)

    def prior(*labels, groups, full=False):
        return TermPrior(labels, groups, scale=scale, hyperprior=hyperprior, full=full)

    spline = Spline.of(X[:, 1], inner_knots=4)
    columns = np.column_stack((X, spline.columns(X[:, 1]))) if kind == "smooth" else X
    one, two = (GroupTerm.intercept(inner, 25), prior("g", groups=25)), prior("g", "g:x", groups=25)
    pairs = {
        "intercept": [one],
        "slopes": [(GroupTerm(inner, 25, lines), two)],
        "full": [(GroupTerm(inner, 25, lines), prior("g", "g:x", groups=25, full=True))],
        "crossed": [(GroupTerm.intercept(other, 5), prior("h", groups=5)), (GroupTerm(inner, 25, lines), two)],
        "nested": [one, (GroupTerm.intercept(outer, 5), prior("h", groups=5))],
        "smooth": [one],
    }[kind]
    design = Grouped(Dense.plain(np.ascontiguousarray(columns), intercept=True), tuple(term for term, _ in pairs))
    terms = [own for _, own in pairs]
    if kind == "smooth":
        terms.insert(0, prior("smooth", groups=columns.shape[1] - 2))
    free = np.arange(design.shape[1]) == 0
    bound = Terms(Ridge() if fixed is None else fixed, tuple(terms)).bind(free, n)
    weight = rng.uniform(0.5, 1.5, n)
    blocks = Blocks(design, y, weight, n_blocks=n_blocks, workers=workers)
    return Model(blocks, Hinge(), bound, free, Streams.from_random_state(seed), Arrowhead(bound.coupling))


def written_out(model):
    """The same model with every column stored."""
    C = model.blocks.design.rows(np.arange(len(model.y)))
    return replace(model, blocks=Blocks(Dense.plain(C), model.y, model.c), space=Full())
