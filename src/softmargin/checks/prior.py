"""Does a prior keep the promises that the engines rely on?"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from softmargin.checks._compare import agree, holds, mean_is
from softmargin.core.array import Array
from softmargin.priors import Prior, PriorBase, PriorMessage

__all__ = ["check_prior"]


def check_prior(prior: Prior) -> None:
    """Check a prior bound to one free and four shrunk coefficients.

    What the prior does not offer is not checked.
    ``expect``, ``gaussian`` and ``mode`` have ``d bound/d mean = linear - precision * mean``, the first two also
    ``d bound/d var = -precision/2``; ``along`` is the change of the log density; ``stretch`` and ``stretched`` move the
    scale alone; a learned scale is drawn from ``hyperprior * p(beta | scale)``; ``expect`` is a lower bound.

    Parameters
    ----------
    prior : Prior
        The prior to check. A prior without a joint mode may refuse ``mode`` by a ValueError.

    Examples
    --------
    >>> from softmargin.checks import check_prior
    >>> from softmargin.priors import Ridge
    >>> check_prior(Ridge(scale=0.5))
    """
    bound = prior.bind(np.array([True, False, False, False, False]))
    beta, var = np.array([3e3, -1.3, 0.4, 0.9, -0.2]), np.array([1e6, 0.3, 0.1, 0.5, 0.8])
    for name in ("expect", "gaussian"):
        if not bound.offers("expect"):
            break
        face = bound.expect if name == "expect" else bound.gaussian
        message = face(beta, var)
        holds(prior, f"the precision of {name} is positive", (message.precision > 0) & (message.precision < np.inf))
        slopes = _gradient(face, 0, beta, var), _gradient(face, 1, beta, var)
        agree(prior, f"{name} has slope pull(mean) in the mean", slopes[0], message.pull(beta))
        agree(prior, f"{name} has slope -precision / 2 in the variance", slopes[1], -message.precision / 2)
    if bound.offers("expect"):
        above = bound.gaussian(beta, var).bound >= bound.expect(beta, var).bound - 1e-9
        holds(prior, "gaussian is not below expect", above)
    if bound.offers("mode"):
        with suppress(ValueError):  # the prior may say that its joint mode does not exist
            agree(prior, "mode has slope pull(beta)", _gradient(bound.mode, 0, beta), bound.mode(beta).pull(beta))
    _check_scale(prior, bound, np.where(beta > 1e3, 0.0, beta))


def _gradient(face: Callable[..., PriorMessage], k: int, *at: Array) -> Array:
    """Central finite differences of a bound in its argument number k."""
    steps = np.diag(1e-4 * np.maximum(np.abs(at[k]), 0.1))
    ends = [[face(*at[:k], at[k] + side * h, *at[k + 1 :]).bound for side in (-1.0, 1.0)] for h in steps]
    return np.array([(up - down) / (2.0 * h.sum()) for (down, up), h in zip(ends, steps, strict=True)])


def _check_scale(prior: Prior, bound: PriorBase, beta: Array) -> None:
    """Everything that moves or fixes the scale; the free coefficient is at zero."""
    state, t, grow, rng = bound.start(), 0.7, math.exp(0.7), np.random.default_rng(0)
    holds(prior, "the values of start() have a 'scale', which is recorded of every prior", "scale" in state.values)
    scale, density = state.values["scale"], bound.stretch(state)
    if bound.offers("logpdf"):
        here, along = bound.at_scale(scale), bound.along(state, beta)
        change = here.logpdf(state, grow * beta) - here.logpdf(state, beta)
        agree(prior, "along is the change of the log density along e^l beta", along(t) - along(0.0), change)
        if here.offers("mode"):
            agree(prior, "mode at a fixed scale is the log density", here.mode(beta).bound, here.logpdf(state, beta))
    if density is None and bound.at_scale(scale) is bound:  # it has no other scale
        _check_fixed(prior, bound, scale, beta, rng)
        return
    _check_fixed(prior, bound.at_scale(scale * grow), scale * grow, beta, rng)
    if density is None:
        return
    if _has_density(bound):
        along, moved = bound.along(state, beta), bound.stretched(state, t)
        moved_along, moved_density = bound.along(moved, grow * beta), bound.stretch(moved) or density
        agree(prior, "stretched multiplies the scale by e^t", moved.values["scale"], scale * grow)
        agree(prior, "stretched leaves free coefficients alone", moved.precision[0] / state.precision[0], 1.0)
        agree(prior, "the density depends on beta / scale", moved_along(-t) - moved_along(0.0), along(-t) - along(0.0))
        agree(prior, "stretch is relative to the state", moved_density(-0.2), density(t - 0.2))
    # law of log(scale) given beta, by quadrature
    grid, given = np.linspace(-15.0, 15.0, 6001), _given_scale(bound, beta)
    mass = np.array([density(x) + given(x) for x in grid])
    total = np.logaddexp.reduce(mass)
    if bound.offers("expect", "logpdf"):
        below = bound.expect(beta, 0.0 * beta).bound <= total + math.log(grid[1] - grid[0]) + 1e-6
        holds(prior, "the bound of expect is not above the log of the integral over the scale", below)
    mass = np.exp(mass - total)
    mean, drawn = float(mass @ grid), np.empty(1500)
    for k in range(len(drawn)):
        new = state
        for _ in range(8):  # an update may depend on the state it starts from
            new = bound.draw(rng, new, beta)
        drawn[k] = math.log(new.values["scale"] / scale)
    holds(prior, "drawn precision is positive and finite", (new.precision > 0) & np.isfinite(new.precision))
    mean_is(prior, "log scale is drawn with the right mean", drawn, mean)
    mean_is(prior, "log scale is drawn with the right spread", (drawn - mean) ** 2, float(mass @ (grid - mean) ** 2))


def _has_density(bound: PriorBase) -> bool:
    """Whether it says how its density changes along a ray, and not only which normal one it is at its state."""
    return bound.offers("logpdf") or type(bound).along is not PriorBase.along


def _given_scale(bound: PriorBase, beta: Array) -> Callable[[float], float]:
    """``t -> log p(beta)`` at the scale of the first state times e^t, up to a constant."""
    state, shrunk = bound.start(), int((beta != 0.0).sum())
    if bound.offers("logpdf"):
        return lambda t: bound.logpdf(bound.stretched(state, t), beta)
    if _has_density(bound):  # where the density is one of beta / scale
        along = bound.along(state, beta)
        return lambda t: along(-t) - shrunk * t
    square = float(state.precision @ beta**2)  # normal, with the precisions of the state
    return lambda t: -0.5 * square * math.exp(-2.0 * t) - shrunk * t


def _check_fixed(prior: Prior, fixed: PriorBase, scale: float, beta: Array, rng: np.random.Generator) -> None:
    """A prior whose scale is given."""
    start = fixed.start()
    holds(prior, "a fixed scale is not learned", fixed.stretch(start) is None)
    agree(prior, "at_scale keeps the given scale", start.values["scale"], scale)
    agree(prior, "at_scale keeps the given scale", fixed.draw(rng, start, beta).values["scale"], scale)
    if fixed.offers("expect"):
        agree(prior, "at_scale keeps the given scale", fixed.expect(beta, beta * beta).values["scale"], scale)
    if _has_density(fixed):
        # N(beta; 0, 1/precision) averaged over drawn precisions is the density, up to a factor free of beta
        drawn = np.array([fixed.draw(rng, start, beta).precision @ beta**2 for _ in range(2000)])
        ratio = math.exp(fixed.along(start, beta)(math.log(1.2)) - fixed.along(start, beta)(0.0))
        mean_is(prior, "drawn precisions average to the ratio of densities", np.exp(-0.5 * (1.44 - 1.0) * drawn), ratio)
