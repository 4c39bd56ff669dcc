"""The shared list of moves: a new move is tested by adding it here.

Each entry makes a move, a small model, where the prior has no density of its own proposals with their weights, and for
chains of another kind what is seen of them.
"""

import math
from dataclasses import replace

import numpy as np
from class_problems import build_classes, simulated_classes
from engine_problems import build, normal_logpdf
from kernel_moves import KERNEL_MOVES
from scipy.stats import t as student

from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.prior import PriorState
from softmargin.engines.sampling.crammer_singer import ClassByClass, ScoreModel
from softmargin.engines.sampling.hmc.hmc import Trajectories
from softmargin.engines.sampling.moves.axes import AxisMoves
from softmargin.engines.sampling.moves.coefficients import Coefficients, Predictors
from softmargin.engines.sampling.moves.interweave import Interweave, InterweaveParts
from softmargin.engines.sampling.moves.prior_variables import PriorLocals, PriorVariables
from softmargin.engines.sampling.moves.scale import ScaleMove
from softmargin.engines.sampling.moves.unknowns import DrawUnknowns
from softmargin.engines.selection.active import ActiveCoefficients, PlainScan
from softmargin.engines.selection.classes import ClassInclusion, ClassScaleMoves, VariableScan
from softmargin.engines.selection.collapsed import CollapsedScan
from softmargin.engines.selection.laplace_zero import LaplaceZeroScan
from softmargin.engines.selection.lines import LineMoves, WatchLines
from softmargin.engines.selection.tally import Count, Tally
from softmargin.engines.selection.tempering import Tempered
from softmargin.losses import Logit, Squared
from softmargin.losses.crammer_singer import CrammerSinger
from softmargin.priors import HalfT, Horseshoe, LaplaceZero, Lasso, Ridge, SpikeSlab
from softmargin.priors.composed.terms import TermPrior, Terms
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Streams
from softmargin.solvers.full import Full
from softmargin.unknowns.noise import Noise, NoiseDraw

DF = 3.0
HYPER = HalfT(1.0, df=5.0)


def rows(n, p, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0.0, 1.0, -1.0), rng.uniform(0.15, 0.5, n)


def linear(prior, n=6, loss=None):
    X, y, c = rows(n, 1)
    model = build(X, y, c=c, prior=prior, seed=5)
    return model if loss is None else replace(model, loss=loss)


def log_t(x):
    """Log density of independent t variables."""
    return student.logpdf(x, DF).sum()


def log_hyper(prior, t):
    start = prior.start()
    found = prior.stretch(start)
    return 0.0 if found is None else float(found(t))


def selecting(model, pi=0.4):
    """Indicators evenly, coefficients that are in and the log scale from t densities."""
    prior = model.prior
    laplace, candidates = prior.point_masses == "Laplace", np.flatnonzero(~prior.always)

    def propose(rng):
        gamma = prior.always.copy()
        gamma[candidates] = rng.random(len(candidates)) < 0.5
        gamma |= prior.free
        x, t = np.where(gamma, rng.standard_t(DF, len(gamma)), 0.0), float(rng.standard_t(DF))
        learned = prior.stretch(prior.start()) is not None
        scale = prior.start().values["scale"] * math.exp(t if learned else 0.0)
        unit = np.where(prior.free, 1.0, scale)
        beta = unit * x
        log_weight = np.log(unit[gamma]).sum() - log_t(x[gamma]) + (log_hyper(prior, t) - log_t(t) if learned else 0.0)
        slab = beta[gamma & ~prior.free]
        density = -np.abs(slab) / scale - math.log(2.0 * scale) if laplace else normal_logpdf(slab, scale)
        log_weight += float(np.sum(density)) + float(np.sum(-0.5 * prior.flat * beta[prior.free] ** 2))
        size = int(gamma[candidates].sum())
        log_weight += size * math.log(pi) + (len(candidates) - size) * math.log1p(-pi)
        f = model.blocks.matvec(beta)
        log_weight += float(model.loss.loglik(model.y, model.c, f).sum())
        state = prior.start()._replace(values=prior.start().values | {"scale": scale})
        state = prior.draw(rng, state, beta) if laplace and not learned else state
        if not laplace:
            state = prior.state(scale, pi, gamma)
        own = {"tally": Tally.empty(model.size), "hot": ()}
        return Chain(beta, model.placed(f), state, beta, 0.0, gamma, gamma.astype(float), own=own), log_weight

    return propose


def spike(p=2, loss=None, scale="learn"):
    X, y, c = rows(6, p)
    model = build(X, y, c=c, prior=SpikeSlab(0.4, scale, intercept_scale=1.5, hyperprior=HYPER), seed=5)
    return model if loss is None else replace(model, loss=loss)


def zero():
    X, y, c = rows(6, 2)
    return build(X, y, c=c, prior=LaplaceZero(0.4, 0.8, intercept_scale=1.5), seed=5)


def with_companion(model, factor):
    """A chain and its companion, each from its own proposals."""
    cold, hot = selecting(model), selecting(model.with_weight(factor * model.c))

    def propose(rng):
        (one, a), (two, b) = cold(rng), hot(rng)
        return one.keeping(hot=(two,)), a + b

    return propose


def classes():
    X, label = simulated_classes(6, 2, 3, seed=1)
    plain = build_classes(X, label, intercept=False, seed=2)
    free = np.zeros(2, dtype=bool)
    bound = SpikeSlab(0.4, "learn", hyperprior=HYPER).bind(free)
    return Model(plain.blocks, plain.loss, bound, plain.free, plain.streams, plain.space)


def class_proposal(model, pi=0.4):
    prior, space = model.prior, model.space
    m, q = space.k - 1, len(prior.free)

    def propose(rng):
        gamma, t = rng.random(q) < 0.5, float(rng.standard_t(DF))
        scale = math.exp(t)
        theta = scale * np.where(gamma, rng.standard_t(DF, (m, q)), 0.0)
        slab = theta[:, gamma].ravel()
        log_weight = log_hyper(prior, t) - log_t(t) - log_t(slab / scale) + len(slab) * t
        log_weight += float(np.sum(normal_logpdf(slab, scale)))
        log_weight += gamma.sum() * math.log(pi) + (q - gamma.sum()) * math.log1p(-pi)
        beta = np.asarray(space.contrast.T @ theta).ravel()
        f = model.blocks.matvec(beta)
        log_weight += float(model.loss.loglik(model.y, model.c, f).sum())
        return Chain(beta, model.placed(f), prior.state(scale, pi, gamma), beta, 0.0, gamma, np.ones(q)), log_weight

    return propose


def scores():
    X, label = simulated_classes(6, 1, 3, seed=1)
    base = Blocks(build(X, np.ones(len(label)), intercept=False).blocks.design, label, np.full(len(label), 0.6))
    free = np.zeros(3, dtype=bool)
    bound, streams = Ridge(scale=0.9).bind(free, classes=3), Streams.from_random_state(3)
    return ScoreModel(base, CrammerSinger(), bound, free, streams, Full(), label=label, k=3)


def score_proposal(model):
    contrast = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    rows_ = model.blocks.design.rows(np.arange(len(model.label)))

    def propose(rng):
        theta = rng.standard_t(DF, 2)
        beta = contrast.T @ theta
        f = rows_ @ beta[None]
        log_weight = float(np.sum(normal_logpdf(theta, 0.9))) - log_t(theta)
        log_weight += float(model.loss.loglik(model.label, model.c, f).sum())
        return Chain(beta, model.placed(f), model.prior.start(), beta, 0.0), log_weight

    return propose


def noisy():
    X = rows(5, 1)[0]
    y = X[:, 0] + 0.5 * np.random.default_rng(1).standard_normal(5)
    model = build(X, y, c=np.ones(5), prior=Ridge(scale=0.8), intercept=False, seed=5)
    return replace(model, loss=Squared()).with_unknowns((Noise(HYPER),))


def noise_proposal(model):
    unknown = model.unknowns[0]

    def propose(rng):
        beta, l = rng.standard_t(DF, 1), float(rng.standard_t(DF))
        state = NoiseDraw(l, model.loss)
        now = unknown.apply(model.with_unknowns(()), state)
        f = model.blocks.matvec(beta)
        log_weight = float(now.loss.loglik(now.y, now.c, f).sum()) - unknown.log_normalizer(model, state)
        log_weight += unknown.prior.log_density(l) + float(normal_logpdf(beta[0], 0.8)) - log_t(beta) - log_t(l)
        return Chain(beta, model.placed(f), model.prior.start(), beta, 0.0, unknowns=(state,)), log_weight

    return propose


def parts():
    X, y, c = rows(6, 2)
    model = build(X, y, c=c, prior=Ridge(scale=1.0), intercept=False, seed=5)
    terms = Terms(Ridge(hyperprior=HYPER), (TermPrior(("group",), 1, hyperprior=HYPER),))
    return model.with_prior(terms.bind(np.zeros(2, dtype=bool), 6))


def part_proposal(model):
    prior = model.prior

    def propose(rng):
        state, beta, log_weight = prior.start(), rng.standard_t(DF, 2), 0.0
        for part in prior.parts:
            t = float(rng.standard_t(DF))
            log_weight += float(part.stretch(prior.start())(t)) - log_t(t)
            state = part.stretched(state, t)
        f = model.blocks.matvec(beta)
        log_weight += float(np.sum(normal_logpdf(beta, state.precision**-0.5))) - log_t(beta)
        log_weight += float(model.loss.loglik(model.y, model.c, f).sum())
        return Chain(beta, model.placed(f), PriorState(state.precision, state.values), beta, 0.0), log_weight

    return propose


LASSO, RIDGE = Lasso(hyperprior=HYPER, intercept_scale=1.5), Ridge(hyperprior=HYPER, intercept_scale=1.5)
MOVES = {
    "coefficients, ridge": lambda: (Coefficients(), linear(RIDGE), None),
    "coefficients, lasso": lambda: (Coefficients(), linear(LASSO), None),
    "coefficients, logit": lambda: (Coefficients(), linear(RIDGE, loss=Logit()), None),
    "predictors": lambda: (Predictors(), linear(RIDGE), None),
    "scale": lambda: (ScaleMove(), linear(LASSO), None),
    "axes": lambda: (AxisMoves(), linear(LASSO), None),
    "no axes": lambda: (AxisMoves(), linear(RIDGE, loss=Logit()), None),
    "interweaving, lasso": lambda: (Interweave(), linear(LASSO), None),
    "interweaving, ridge": lambda: (Interweave(), linear(RIDGE), None),
    "interweaving of parts": lambda: (InterweaveParts(), m := parts(), part_proposal(m)),
    "prior variables": lambda: (PriorVariables(), linear(LASSO), None),
    "local variables": lambda: (PriorLocals(), linear(LASSO), None),
    "trajectories, ridge": lambda: (Trajectories(), linear(RIDGE), None),
    "trajectories, lasso": lambda: (Trajectories(), linear(LASSO), None),
    "trajectories, given": lambda: (Trajectories(integrated=False), linear(Horseshoe(hyperprior=HYPER)), None),
    "unknowns": lambda: (DrawUnknowns(), m := noisy(), noise_proposal(m)),
    "active coefficients": lambda: (ActiveCoefficients(), m := spike(), selecting(m)),
    "plain scan": lambda: (PlainScan(), m := spike(), selecting(m)),
    "collapsed scan": lambda: (CollapsedScan(), m := spike(loss=Logit()), selecting(m)),
    "flips": lambda: (LineMoves(0, flips=3, swaps=0, births=0), m := spike(), selecting(m)),
    "swaps": lambda: (LineMoves(0, flips=0, swaps=3, births=0), m := spike(), selecting(m)),
    "births": lambda: (LineMoves(0, flips=0, swaps=0, births=3), m := spike(), selecting(m)),
    "watching": lambda: (WatchLines(0), m := spike(), selecting(m)),
    "counting": lambda: (Count(0), m := spike(), selecting(m)),
    "spike and slab, scale": lambda: (ScaleMove(), m := spike(), selecting(m)),
    "spike and slab, interweaving": lambda: (Interweave(), m := spike(), selecting(m)),
    "spike and slab, prior variables": lambda: (PriorVariables(), m := spike(), selecting(m)),
    "levels": lambda: (Tempered((PriorVariables(), PlainScan()), ()), m := spike(), selecting(m)),
    "exchanges": lambda: (
        Tempered((PriorVariables(), PlainScan()), (0.5,)),
        m := spike(1, scale=0.8),
        with_companion(m, 0.5),
    ),
    "Laplace-zero scan": lambda: (LaplaceZeroScan(), m := zero(), selecting(m)),
    "Laplace-zero, scale": lambda: (ScaleMove(), m := zero(), selecting(m)),
    "class by class": lambda: (ClassByClass(), m := scores(), score_proposal(m)),
    "class scale moves": lambda: (ClassScaleMoves(), m := classes(), class_proposal(m)),
    "class inclusion": lambda: (ClassInclusion(), m := classes(), class_proposal(m)),
    "variables": lambda: (VariableScan(), m := classes(), class_proposal(m)),
    **KERNEL_MOVES,
}
