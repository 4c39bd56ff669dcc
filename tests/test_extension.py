"""A loss, a prior and an unknown that the library does not know go through every inference.

The posterior has one coefficient and one unknown of two values, so that everything can be computed directly: moments by
quadrature, the best approximations by maximising their bounds, which are written down here a second time.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import parts
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, gammaln

from softmargin import BayesianSVC
from softmargin.checks import check_loss, check_prior, check_unknown
from softmargin.core.model import Model
from softmargin.core.unknown import Unknown
from softmargin.designs import Dense, standardize
from softmargin.inference.functions import INFERENCES
from softmargin.inference.readout import BinaryReadout
from softmargin.inference.settings import Settings
from softmargin.losses import RowLoss
from softmargin.priors import Prior, PriorBase, PriorMessage, PriorState
from softmargin.rows.in_memory import Blocks
from softmargin.rows.streams import Purpose, Streams
from softmargin.solvers.full import Full

LIMIT = 4.0  # standard errors
N, DF, SCALE, WIDTH = 40, 3.0, 0.8, 0.5
ODDS = 13.5  # prior log odds at which both values of the unknown are probable: a pseudo-likelihood likes small weights


@dataclass(frozen=True)
class SmoothHinge(RowLoss):
    """``l = -(u + sqrt(width^2 + u^2))`` with ``u = 1 - y f``: the hinge with its kink rounded off."""

    width: float = WIDTH

    @staticmethod
    def derivatives(y, f, width):
        u = 1.0 - y * f
        root = math.sqrt(width * width + u * u)
        return -(u + root), y * (1.0 + u / root), width * width / root**3

    @staticmethod
    def bends(y, width):
        return (y,), 0.4 * width

    @staticmethod
    def expect(y, c, f, v, width):
        u = 1.0 - y * f
        root = math.sqrt(width * width + u * u + v)
        return c / root, y * (c / root + c), -c * (u + root)

    @staticmethod
    def draw(y, c, f, normal, uniform, width):
        mean, half = c * math.sqrt(width * width + (1.0 - y * f) ** 2), 0.5 * normal * normal
        large = mean + half + math.sqrt(half * (2.0 * mean + half))
        latent = large if uniform * (large + mean) <= large else mean * (mean / large)
        return c * c / latent, y * (c * c / latent + c)


@dataclass(frozen=True)
class StudentT(Prior):
    """Independent t densities of a given scale; free coefficients are normal with standard deviation 100."""

    df: float = DF
    scale: float = SCALE

    def bind(self, free, rows=None, *, classes=1):
        return BoundStudentT(free, self.df, self.scale)


@dataclass(frozen=True, eq=False)
class BoundStudentT(PriorBase):
    free: np.ndarray
    df: float
    scale: float

    def _local(self, square):
        """Mean of the local precisions given second moments."""
        return np.where(self.free, 1e-4, (self.df + 1.0) / (self.df * self.scale**2 + square))

    def _log_density(self, square):
        df, shrunk = self.df, square[~self.free]
        one = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * math.log(df * math.pi * self.scale**2)
        value = len(shrunk) * one - 0.5 * (df + 1.0) * np.log1p(shrunk / (df * self.scale**2)).sum()
        return float(value - 0.5 * (1e-4 * square[self.free] + math.log(2.0 * math.pi * 1e4)).sum())

    def start(self):
        return PriorState(self._local(np.zeros(len(self.free))), {"scale": self.scale})

    def expect(self, mean, var):
        square = mean * mean + var  # the bound over the local precisions is the density at the second moment
        return PriorMessage(self._local(square), self._log_density(square), {"scale": self.scale})

    gaussian = expect

    def mode(self, beta):
        return self.expect(beta, 0.0 * beta)

    def draw(self, rng, state, beta):
        shape, rate = 0.5 * (self.df + 1.0), 0.5 * (self.df * self.scale**2 + beta * beta)
        return PriorState(np.where(self.free, 1e-4, rng.gamma(shape, 1.0 / rate)), state.values)

    def logpdf(self, state, beta):
        return self._log_density(beta * beta)

    def along(self, state, beta):
        return lambda t: self._log_density((math.exp(t) * beta) ** 2)

    def at_scale(self, scale):
        return replace(self, scale=scale)


class Trusted(NamedTuple):
    """Probability that the second source counts in full."""

    share: float

    def weight(self, part):
        return self.share + (1.0 - self.share) * part


@dataclass(frozen=True)
class Trust(Unknown):
    """Whether the rows of a second source count in full or in ``part``, with given prior odds."""

    second: tuple[bool, ...]
    part: float = 0.3
    log_odds: float = ODDS

    def _rows(self, model):
        return np.array(self.second, dtype=float)

    def start(self, model):
        return Trusted(0.5)

    def drawn(self, state):
        return Trusted(float(state.share > 0.5))

    def apply(self, model, state):
        return model.with_weight(model.c * np.where(self.second, state.weight(self.part), 1.0))

    def _log_odds(self, energy):
        return (1.0 - self.part) * energy + self.log_odds

    def expect(self, model, state, seen, *, careful=False):
        rows = seen.rows.fetch()
        energy = float(seen.of(model.loss)(model.y, model.c * self._rows(model), rows.f, rows.v).bound.sum())
        share = float(expit(self._log_odds(energy)))
        if seen.mode:
            return Trusted(float(share > 0.5)), float(share > 0.5) * self.log_odds
        entropy = -sum(p * math.log(p) for p in (share, 1.0 - share) if p > 0.0)
        return Trusted(share), entropy + share * self.log_odds

    def draw(self, random, model, state, chain):
        energy = float(model.loss.loglik(model.y, model.c * self._rows(model), chain.f).sum())
        return Trusted(float(random.at(Purpose.NOISE).random() < expit(self._log_odds(energy)))), chain

    def noted(self, state):
        return {"trust": state.share}


# --- the problem, and its answers ---------------------------------------------------------------------------------


def data():
    rng = np.random.default_rng(11)
    x = rng.standard_normal(N)
    second = np.arange(N) % 3 == 0
    y = np.where(1.5 * x * np.where(second, -0.3, 1.0) + rng.logistic(size=N) > 0.0, 1.0, -1.0)
    return x, y, second


def problem():
    """The model of one column without an intercept, and the settings of its inferences."""
    x, y, second = data()
    design, free = Dense.plain(x[:, None]), np.zeros(1, dtype=bool)
    blocks = Blocks(design, y, np.full(N, 0.5))
    model = Model(blocks, SmoothHinge(), StudentT().bind(free), free, Streams.from_random_state(1), Full())
    columns = standardize(x[:, None], np.ones(N), intercept=False, power=0.0)
    readout = BinaryReadout(columns, None, np.ones(N), np.ones(N))
    return model.with_unknowns((Trust(tuple(second.tolist())),)), Settings(readout, draws=1000, warmup=100, chains=2)


def log_joint(beta, trust):
    """Of the coefficient (an array) and whether the second source counts in full."""
    x, y, second = data()
    u = 1.0 - y * np.multiply.outer(np.asarray(beta, dtype=float), x)
    weight = 0.5 * np.where(second, trust + (1.0 - trust) * 0.3, 1.0)
    fit = -(weight * (u + np.sqrt(WIDTH**2 + u * u))).sum(axis=-1)
    return fit - 0.5 * (DF + 1.0) * np.log1p(np.square(beta) / (DF * SCALE**2)) + trust * ODDS


def exact():
    """Mean and standard deviation of the coefficient, and the probability of trust."""
    grid = np.linspace(-4.0, 6.0, 4001)
    mass = np.exp(np.stack([log_joint(grid, trust) for trust in (0.0, 1.0)]))
    mass /= mass.sum()
    mean = float(mass.sum(axis=0) @ grid)
    return mean, math.sqrt(float(mass.sum(axis=0) @ (grid - mean) ** 2)), float(mass[1].sum())


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)


def average_loss(mean, sd, augmented):
    """``E l`` of every row under N(mean, sd^2), or its bound with the latents averaged out."""
    x, y, _ = data()
    if augmented:
        u = 1.0 - y * x * mean
        return -(u + np.sqrt(WIDTH**2 + u * u + (x * sd) ** 2))
    u = 1.0 - y * np.multiply.outer(mean + sd * NODES, x)
    return -(WEIGHTS / WEIGHTS.sum()) @ (u + np.sqrt(WIDTH**2 + u * u))


def best_gaussian(augmented, share=None):
    """Mean, sd and probability of trust that maximise the bound."""
    second = data()[2]

    def bound(at):
        mean, sd, q = at[0], math.exp(at[1]), expit(at[2]) if share is None else share
        weight = 0.5 * np.where(second, q + (1.0 - q) * 0.3, 1.0)
        value = float(weight @ average_loss(mean, sd, augmented)) + at[1]
        value -= 0.5 * (DF + 1.0) * math.log1p((mean**2 + sd**2) / (DF * SCALE**2))
        return value if share is not None else value + q * ODDS - q * math.log(q) - (1.0 - q) * math.log1p(-q)

    found = minimize(lambda at: -bound(at), np.array([0.5, -1.0, 0.0]), tol=1e-12, options={"gtol": 1e-8}).x
    return float(found[0]), math.exp(found[1]), float(expit(found[2]))


# --- tests --------------------------------------------------------------------------------------------------------


def test_the_checks_accept_them():
    model, _ = problem()
    check_loss(SmoothHinge())
    check_prior(StudentT())
    check_unknown(model.unknowns[0], model.with_unknowns(()), exact=True)


@pytest.mark.parametrize(("name", "augmented"), [("vb", False), ("meanfield", True)])
def test_approximations_maximise_their_bounds(name, augmented):
    model, settings = problem()
    fit = INFERENCES[name](model, replace(settings, tol=1e-13, max_iter=5000), None)
    mean, sd, share = best_gaussian(augmented)
    assert fit.posterior.mean[0] == pytest.approx(mean, abs=2e-4)
    assert float(np.abs(fit.posterior.root[0]).max()) == pytest.approx(sd, rel=2e-3)
    assert fit.unknowns[0].share == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("name", ["gibbs", "hmc"])
def test_draws_have_the_moments_of_quadrature(name):
    model, settings = problem()
    posterior = INFERENCES[name](model, settings, None).posterior
    wanted = exact()
    beta, trust = posterior.draws[..., 0], posterior.recorded["trust"]
    for drawn, value in ((beta, wanted[0]), ((beta - wanted[0]) ** 2, wanted[1] ** 2), (trust, wanted[2])):
        batches = drawn.reshape(40, -1).mean(axis=1)
        error = batches.std(ddof=1) / math.sqrt(len(batches))
        assert abs(batches.mean() - value) < LIMIT * error


def test_the_mode_is_where_the_density_is_highest():
    model, settings = problem()
    fit = INFERENCES["map"](model, settings, None)
    trust = fit.unknowns[0].share
    best = minimize_scalar(lambda b: -log_joint(b, trust), bracket=(0.0, 0.5), tol=1e-12)
    assert fit.posterior.mean[0] == pytest.approx(best.x, abs=1e-5)
    other = minimize_scalar(lambda b: -log_joint(b, 1.0 - trust), bracket=(0.0, 0.5), tol=1e-12)
    assert best.fun < other.fun


def test_batches_come_to_the_best_gaussian_at_the_learned_weights():
    model, settings = problem()
    options = {"batch": 20, "first": 40, "epochs": 400}
    fit = INFERENCES["svi"](model, replace(settings, options=options), None)
    mean, sd, _ = best_gaussian(False, share=best_gaussian(False)[2])
    assert fit.posterior.mean[0] == pytest.approx(mean, abs=0.02)
    assert float(np.abs(fit.posterior.root[0]).max()) == pytest.approx(sd, rel=0.05)


@pytest.mark.parametrize("inference", parts.INFERENCES)
def test_an_estimator_takes_the_loss_and_the_prior(inference):
    x = data()[0]
    X, y = np.column_stack((x, np.cos(3.0 * x))), np.where(x > 0.2 * np.sin(7.0 * x), "b", "a")
    model = BayesianSVC(
        StudentT(),
        inference,
        likelihood=SmoothHinge(),
        learning_rate=0.5,
        draws=50,
        warmup=50,
        chains=2,
        random_state=0,
    ).fit(X, y)
    assert np.isfinite(model.coef_).all() and model.coef_[0, 0] > 0.0 and model.score(X, y) > 0.8
