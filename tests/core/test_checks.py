"""The public checks pass on every part of the library and fail on parts that are broken on purpose."""

import doctest
import importlib
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from parts import DESIGNS, LOSSES, PRIORS, SOLVERS, SPACES, UNKNOWNS, each

from softmargin.checks import check_design, check_loss, check_prior, check_solver, check_unknown
from softmargin.designs import Dense
from softmargin.losses import Hinge, Loss, Message, Rows
from softmargin.losses.formulas.normal import SD_FLOOR, positive_square
from softmargin.losses.row_loss import RowLoss
from softmargin.priors import HalfCauchy, HalfT, InverseGamma, Prior, Ridge
from softmargin.priors.ridge import BoundRidge
from softmargin.solvers import Coordinates, Dual, Solver
from softmargin.unknowns.noise import Noise


@pytest.mark.parametrize("case", each(LOSSES))
def test_losses(case):
    assert check_loss(case.loss, responses=case.responses) is None


@pytest.mark.parametrize("prior", each(PRIORS))
def test_priors(prior):
    assert check_prior(prior) is None


@pytest.mark.parametrize("name", DESIGNS)
def test_designs(name):
    design = DESIGNS[name]()
    assert check_design(design, SPACES[name](design) if name in SPACES else None) is None


@pytest.mark.parametrize("solver", each(SOLVERS))
def test_solvers(solver):
    assert check_solver(solver) is None


@pytest.mark.parametrize("make", each(UNKNOWNS))
def test_unknowns(make):
    case = make()
    assert check_unknown(case.unknown, case.model, exact=case.exact) is None


def test_examples_run():
    results = [
        doctest.testmod(importlib.import_module(f"softmargin.checks.{name}"))
        for name in ("loss", "prior", "design", "moves")
    ]
    assert sum(result.attempted for result in results) >= 20 and not any(result.failed for result in results)


# ---- losses ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squared(Loss):
    """Smooth and without a latent: -c (y - f)^2 / 2, times a factor in its curvature that should be one."""

    factor: float = 1.0

    def loglik(self, y, c, f):
        return -0.5 * c * (y - f) ** 2

    def score(self, y, c, f):
        return c * (y - f)

    def expect(self, y, c, f, v):
        return Message(self.factor * c + 0 * f, c * y, -0.5 * c * ((y - f) ** 2 + v))

    gaussian = expect

    def draw(self, rng, y, c, f):
        return Rows(self.factor * c + 0 * f, c * y)


def test_a_smooth_loss_of_any_response_passes():
    check_loss(Squared(), responses=(-3.0, 0.2, 5.0))
    with pytest.raises(AssertionError, match="Squared: b - w f of expect"):
        check_loss(Squared(factor=2.0), responses=(0.2,))


class WrongScore(Hinge):
    def score(self, y, c, f):
        return -super().score(y, c, f)


class WrongExpectSign(Hinge):
    def expect(self, y, c, f, v):
        w, b, bound = super().expect(y, c, f, v)
        return Message(w, -b, bound)


class WrongExpectBound(Hinge):
    """The sign with which a bound was once published: too high."""

    def expect(self, y, c, f, v):
        w, b, bound = super().expect(y, c, f, v)
        return Message(w, b, bound + c * np.minimum(v, 1.0))


class WrongExpectSpread(Hinge):
    """Tight at v = 0, but a standard deviation stands where the variance should."""

    def expect(self, y, c, f, v):
        return super().expect(y, c, f, np.sqrt(v))


class WrongExpectWeight(Hinge):
    """w and b still fit each other at every v, but w is that of another variance."""

    def expect(self, y, c, f, v):
        w, b, bound = super().expect(y, c, f, v)
        other, _, _ = super().expect(y, c, f, 2.0 * v)
        return Message(other, b + (other - w) * f, bound)


class WrongGaussianFactor(Hinge):
    def gaussian(self, y, c, f, v):
        return Message(*(0.5 * part for part in super().gaussian(y, c, f, v)))


class WrongGaussianCurvature(Hinge):
    def gaussian(self, y, c, f, v):
        w, b, bound = super().gaussian(y, c, f, v)
        return Message(2.0 * w, b + w * f, bound)


class WrongGaussianSlope(Hinge):
    def gaussian(self, y, c, f, v):
        w, b, bound = super().gaussian(y, c, f, v)
        return Message(w, b - 2.0 * (b - w * f), bound)


class WrongWeights(Hinge):
    def loglik(self, y, c, f):
        return super().loglik(y, c * c, f)


class WrongDrawFactor(Hinge):
    """Twice the latent's reciprocal, with a matching b."""

    def draw(self, rng, y, c, f):
        w, _ = super().draw(rng, y, c, f)
        return Rows(2.0 * w, y * (2.0 * w + c))


class WrongDrawShift(Hinge):
    def draw(self, rng, y, c, f):
        w, b = super().draw(rng, y, c, f)
        return Rows(w, b - 2.0 * y * c)


class WrongDrawLaw(Hinge):
    """The right mean without any randomness: only the whole law tells."""

    def draw(self, rng, y, c, f):
        w = c / np.maximum(np.abs(1.0 - y * f), 1e-10)
        return Rows(w, y * (w + c))


class WrongDrawAtTheMargin(Hinge):
    def draw(self, rng, y, c, f):
        w, b = super().draw(rng, y, c, f)
        return Rows(np.where(np.abs(1.0 - y * f) < 1e-8, np.inf, w), b)


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (WrongScore(), "score is the derivative of loglik"),
        (WrongExpectSign(), "b - w f of expect at v = 0 is the score"),
        (WrongExpectBound(), "the bound of expect is not above E loglik"),
        (WrongExpectSpread(), "the bound of expect is not above E loglik|derivative of its bound in v"),
        (WrongExpectWeight(), "-w/2 of expect is the derivative of its bound in v"),
        (WrongGaussianFactor(), "the bound of gaussian is E loglik"),
        (WrongGaussianCurvature(), "w of gaussian is -E loglik''"),
        (WrongGaussianSlope(), "b - w f of gaussian is E loglik'"),
        (WrongWeights(), "loglik is proportional to the weight"),
        (WrongDrawFactor(), "the mean of drawn w is w of expect"),
        (WrongDrawShift(), "the mean of drawn b - w f is the score"),
        (WrongDrawLaw(), "drawn messages average to the likelihood ratio"),
        (WrongDrawAtTheMargin(), "drawn w is finite"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Hinge) else "",
)
def test_broken_losses(loss, sentence):
    with pytest.raises(AssertionError, match=f"{type(loss).__name__}: .*({sentence})"):
        check_loss(loss)


# ---- priors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(Prior):
    """A prior whose bound form is of the given class."""

    kind: type
    scale: object = "learn"
    hyperprior: object = None

    def bind(self, free, rows=None, *, classes=1):
        inner = Ridge(scale=self.scale, hyperprior=self.hyperprior).bind(free)
        return self.kind(inner.free, inner.flat, inner.scale_prior, inner.mode_prior)


class WrongPrecision(BoundRidge):
    """Twice the precision that the bound implies."""

    def expect(self, mean, var):
        message = super().expect(mean, var)
        return message._replace(precision=2.0 * message.precision)


class VarianceForPrecision(BoundRidge):
    def mode(self, beta):
        message = super().mode(beta)
        return message._replace(precision=1.0 / message.precision)


class WrongVariance(BoundRidge):
    def expect(self, mean, var):
        return super().expect(mean, 2.0 * var)


class WrongBound(BoundRidge):
    """A constant of the wrong sign: derivatives do not see it, the integral does."""

    def expect(self, mean, var):
        message = super().expect(mean, var)
        return message._replace(bound=message.bound + len(mean) * math.log(2.0 * math.pi))

    gaussian = expect


class WrongGaussian(BoundRidge):
    """Looser than the bound with a latent, which cannot be: exact averages are above every bound."""

    def gaussian(self, mean, var):
        message = super().expect(mean, var)
        return message._replace(bound=message.bound - 1.0)


class WrongGaussianPull(BoundRidge):
    def gaussian(self, mean, var):
        return super().expect(mean, var)._replace(linear=mean)


class WrongAlong(BoundRidge):
    def along(self, state, beta):
        return lambda step: -super(WrongAlong, self).along(state, beta)(step)


class WrongStretch(BoundRidge):
    """The density of the scale in place of that of its logarithm."""

    def stretch(self, state):
        density = super().stretch(state)
        return density and (lambda t: density(t) - math.log(state.values["scale"]) - t)


class WrongStretched(BoundRidge):
    def stretched(self, state, t):
        return super().stretched(state, -t)


class WrongFree(BoundRidge):
    def stretched(self, state, t):
        new = super().stretched(state, t)
        return new._replace(precision=new.precision * np.where(self.free, math.exp(t), 1.0))


class WrongDraw(BoundRidge):
    """The sum of squares where half of it belongs."""

    def draw(self, rng, state, beta):
        return super().draw(rng, state, math.sqrt(2.0) * beta)


class WrongCount(BoundRidge):
    """The free coefficient counted among the shrunk ones."""

    def draw(self, rng, state, beta):
        none = np.zeros_like(self.free)
        return BoundRidge(none, self.flat, self.scale_prior, self.mode_prior).draw(rng, state, beta)


class WrongLocal(BoundRidge):
    """The variance in place of the precision, in draws alone."""

    def draw(self, rng, state, beta):
        new = super().draw(rng, state, beta)
        return new._replace(precision=np.where(self.free, new.precision, 1.0 / new.precision))


class WrongFixing(BoundRidge):
    def at_scale(self, scale):
        return super().at_scale(scale**2)


class StillLearning(BoundRidge):
    def at_scale(self, scale):
        return replace(super().at_scale(scale), scale_prior=self.scale_prior)


@pytest.mark.parametrize("hyperprior", [HalfCauchy(1.5), InverseGamma(2.0, 1.0)], ids=str)
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (WrongPrecision, "expect has slope pull\\(mean\\) in the mean"),
        (WrongVariance, "expect has slope -precision / 2 in the variance"),
        (WrongGaussian, "gaussian is not below expect"),
        (WrongGaussianPull, "gaussian has slope pull\\(mean\\) in the mean"),
        (WrongLocal, "drawn precisions average to the ratio of densities"),
        (WrongBound, "not above the log of the integral"),
        (WrongAlong, "along is the change of the log density"),
        (WrongStretch, "log scale is drawn with the right mean"),
        (WrongStretched, "stretched multiplies the scale"),
        (WrongFree, "stretched leaves free coefficients alone"),
        (WrongDraw, "log scale is drawn with the right mean"),
        (WrongCount, "log scale is drawn with the right mean"),
        (WrongFixing, "at_scale keeps the given scale"),
        (StillLearning, "a fixed scale is not learned"),
    ],
)
def test_broken_priors(kind, sentence, hyperprior):
    with pytest.raises(AssertionError, match=f"Broken: .*({sentence})"):
        check_prior(Broken(kind, hyperprior=hyperprior))


def test_broken_mode():
    with pytest.raises(AssertionError, match="Broken: mode has slope pull"):
        check_prior(Broken(VarianceForPrecision, scale=0.5))


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (WrongPrecision, "in the mean"),
        (WrongVariance, "in the variance"),
        (WrongAlong, "along"),
        (WrongFixing, "along|at_scale keeps|mode at a fixed scale"),
    ],
)
def test_broken_fixed_priors(kind, sentence):
    with pytest.raises(AssertionError, match=f"Broken: .*({sentence})"):
        check_prior(Broken(kind, scale=0.5))


def test_the_unbroken_one_passes():
    check_prior(Broken(BoundRidge, hyperprior=InverseGamma(2.0, 1.0)))


# ---- designs ---------------------------------------------------------------------------------------------------------


def spoil(method, change):
    """A dense design whose one method has its answer changed."""

    def spoilt(self, *args, **kwargs):
        return change(getattr(Dense, method)(self, *args, **kwargs))

    return type(f"Wrong_{method}", (Dense,), {method: spoilt})


@pytest.mark.parametrize("change", [np.negative, lambda x: 2.0 * x, lambda x: x + 1e-6], ids=["sign", "2", "shift"])
@pytest.mark.parametrize("method", ["matvec", "rmatvec", "row_quad", "outer", "matmat", "rmatmat", "norms"])
def test_broken_designs(method, change):
    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(AssertionError, match=rf"Wrong_{method}: .*{method}"):
        check_design(spoil(method, change)(X, np.zeros(3), np.ones(3), True))


@pytest.mark.parametrize("entry", [0, 1])
def test_broken_gram(entry):
    def change(answer):
        return tuple(2.0 * part if k == entry else part for k, part in enumerate(answer))

    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(AssertionError, match=("the matrix of gram", "the vector of gram")[entry]):
        check_design(spoil("gram", change)(X, np.zeros(3), np.ones(3), False))


def test_broken_ranges():
    """Right over all rows, wrong over some."""

    class Forgetful(Dense):
        def gram(self, w, b, lo=0, hi=None):
            return super().gram(np.resize(w, len(self.X)), np.resize(b, len(self.X)))

    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(AssertionError, match="the matrix of gram over rows 0 to 4"):
        check_design(Forgetful(X, np.zeros(3), np.ones(3), True))


def test_broken_intercept_and_rows():
    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(AssertionError, match="the intercept is a column of ones"):
        check_design(spoil("rows", lambda rows: 2.0 * rows)(X, np.zeros(3), np.ones(3), True))
    with pytest.raises(AssertionError, match="rows are those asked for"):
        check_design(spoil("rows", lambda rows: rows if len(rows) == 12 else rows[::-1])(X, X[0], np.ones(3), True))


# ---- solvers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spoilt(Solver):
    """The dual solver with its coordinates changed."""

    change: object

    def coordinates(self, design):
        return self.change(Dual().coordinates(design))


class WrongUnseen(Coordinates):
    def unseen(self):
        return 2.0 * super().unseen()


class WrongLift(Coordinates):
    def lift_root(self, root):
        return 2.0 * super().lift_root(root)


class WrongOutside(Coordinates):
    def features(self, design, lo=0, hi=None):
        seen, outside = super().features(design, lo, hi)
        return seen, 0.0 * outside


def scaled(c):
    """Twice the basis and twice the features: the same predictor, another prior."""
    return c._replace(basis=2.0 * c.basis, design=Dense.plain(2.0 * c.design.X, intercept=bool(c.lead)))


def shorter(c):
    """One direction that rows see forgotten."""
    return c._replace(basis=c.basis[:, :-1], design=Dense.plain(c.design.X[:, :-1], intercept=bool(c.lead)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c._replace(basis=-c.basis), "the predictor in working coordinates is X beta"),
        (lambda c: c._replace(basis=2.0 * c.basis), "the predictor in working coordinates is X beta"),
        (scaled, "the basis is orthonormal"),
        (shorter, "the mean of the coefficients|the predictor|the covariance"),
        (lambda c: WrongUnseen(*c), "unseen is the share outside the basis"),
        (lambda c: WrongLift(*c), "the covariance of the coefficients"),
        (lambda c: WrongOutside(*c), "predictive variance"),
    ],
    ids=["sign", "factor", "scaled", "shorter", "unseen", "lift", "outside"],
)
def test_broken_solvers(change, sentence):
    with pytest.raises(AssertionError, match=f"Spoilt: .*({sentence})"):
        check_solver(Spoilt(change))


# ---- unknowns --------------------------------------------------------------------------------------------------------


class WrongObjective(Noise):
    """A part of the wrong sign."""

    def expect(self, model, state, seen, *, careful=False):
        new, part = super().expect(model, state, seen, careful=careful)
        return new, -part


class WrongLevel(Noise):
    """Drawn as if there were twice as many rows."""

    def draw(self, random, model, state, chain):
        twice = model.with_weight(2.0 * model.c)
        return super().draw(random, twice, state, chain)


class WrongPower(Noise):
    """The level in place of the weight that it implies."""

    def apply(self, model, state):
        return replace(model.with_weight(model.c / state.weight), loss=state.loss)


class Endless(Noise):
    def draw(self, random, model, state, chain):
        new, chain = super().draw(random, model, state, chain)
        return new._replace(log_level=math.nan), chain


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (WrongObjective, "draws average to the ratio|does not lower the objective"),
        (WrongLevel, "draws average to the ratio of densities that expect gives"),
        (WrongPower, "draws average to the ratio|does not lower the objective"),
        (Endless, "numbers of drawn states are finite"),
    ],
)
def test_broken_unknowns(kind, sentence):
    model = UNKNOWNS["noise-squared"]().model
    with pytest.raises(AssertionError, match=f"{kind.__name__}: .*({sentence})"):
        check_unknown(kind(HalfT(1.0)), model, exact=True)


@dataclass(frozen=True)
class HuberisedHinge(RowLoss):
    """A hinge with a parabola in place of its corner; the slope bends at both ends of it, 0.4 apart."""

    @staticmethod
    def loglik(y: float, c: float, f: float) -> float:
        u = 1.0 - y * f
        return -2.0 * c * (max(u, 0.0) ** 2 - max(u - 0.4, 0.0) ** 2) / 0.8

    @staticmethod
    def score(y: float, c: float, f: float) -> float:
        u = 1.0 - y * f
        return 2.0 * c * y * (max(u, 0.0) - max(u - 0.4, 0.0)) / 0.4

    @staticmethod
    def gaussian(y: float, c: float, f: float, v: float) -> tuple[float, float, float]:
        s = max(math.sqrt(v), SD_FLOOR)
        square, mean, share = positive_square(1.0 - y * f, s)
        other, far, beyond = positive_square(0.6 - y * f, s)
        w = 2.0 * c * (share - beyond) / 0.4
        return w, 2.0 * c * y * (mean - far) / 0.4 + w * f, -2.0 * c * (square - other) / 0.8


def test_slopes_that_bend_at_two_places_near_each_other_are_averaged_exactly():
    check_loss(HuberisedHinge())
