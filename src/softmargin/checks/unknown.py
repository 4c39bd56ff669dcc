"""Does an unknown keep the promises that the engines rely on?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from softmargin.checks._compare import close, holds, mean_is
from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.unknown import Seen, Unknown
from softmargin.core.visits import Face, messages_at
from softmargin.rows.streams import Address

__all__ = ["check_unknown"]

_ROUNDS, _DRAWS, _APART = 6, 4000, 5
_FAR = 50.0  # log of a ratio of densities that no sum needs to tell from a larger one
_STEP = 0.05  # of the coefficients between two points whose densities are compared, in units of their own size


def check_unknown(unknown: Unknown, model: Model, *, exact: bool = False) -> None:
    """Check an unknown on a model of few rows.

    Every ``expect`` at given moments of the coefficients, a ``careful`` one too, raises the objective: the rows' bound
    under the model that the state implies, plus the unknown's part. It does not change the state that it is given, and
    the model implied has the same number of responses.

    Where ``exact``, the density of ``expect`` at known coefficients is the conditional one, so that its objective is
    their log density with the unknown integrated out. Draws s given beta must then satisfy, for beta' nearby,
    ``E p(y, beta' | s)/p(y, beta | s) = p(y, beta')/p(y, beta)``, which a wrong conditional fails.

    Parameters
    ----------
    unknown : Unknown
        The unknown to check.
    model : Model
        A model without it; what the unknown stands for is in its rows, loss or prior.
    exact : bool
        Whether the unknown's densities are not restricted to a family.

    Examples
    --------
    See ``CONTRIBUTING.md``.
    """
    rng = np.random.default_rng(0)
    q = unknown.apply(model, unknown.start(model)).size
    mean, root = 0.3 * rng.standard_normal(q), 0.1 * rng.standard_normal((q, q))
    for face in ("expect", "gaussian"):
        if model.loss.offers(face):
            _climb(unknown, model, mean, root, face)
    chain, first = _chain(unknown, model, mean), unknown.drawn(_settled(unknown, model, mean))
    state, drawn = first, []
    for k in range(_DRAWS if exact else 20):
        state, moved = unknown.draw(Address(model.streams, 0, k), model, state, chain)
        holds(unknown, "numbers of drawn states are finite", np.isfinite(list(unknown.noted(state).values())))
        if not exact:
            chain = moved
        elif k % _APART == 0:
            drawn.append(state)
    if exact:
        _compare_densities(unknown, model, mean, drawn)


def _seen(unknown: Unknown, model: Model, state: Any, mean: Array, root: Array, face: str) -> tuple[Seen, float]:
    """What an engine would tell the unknown, and the objective without the unknown's part."""
    now = unknown.apply(model, state)
    rows, sums = now.blocks.keep(messages_at, (Face(now.loss, face), mean, root))
    var = np.einsum("ij,ij->i", root, root)
    prior = now.prior.gaussian(mean, var).bound if now.prior.offers("expect") else 0.0
    return Seen(mean, root, rows, face, False), float(sums[0][0]) + prior


def _climb(unknown: Unknown, model: Model, mean: Array, root: Array, face: str) -> None:
    """Alternate with nothing: the coefficients stay, and the objective rises."""
    state, before = unknown.start(model), -math.inf
    now = unknown.apply(model, state)
    holds(unknown, "apply keeps the number of responses", len(now.y) == len(model.y))
    comparable = now.prior.offers("expect")
    for k in range(_ROUNDS):
        seen, rows = _seen(unknown, model, state, mean, root, face)
        noted = unknown.noted(state)
        new, part = unknown.expect(model, state, seen, careful=k == _ROUNDS - 1)
        holds(unknown, "expect leaves the state that it is given alone", unknown.noted(state) == noted)
        _, rows = _seen(unknown, model, new, mean, root, face)
        objective = rows + part
        holds(unknown, "the part of the objective is finite", math.isfinite(part))
        near = 1e-7 * (1.0 + abs(objective))
        what = f"expect with {face} does not lower the objective (round {k}: {before:.8g} to {objective:.8g})"
        holds(unknown, what, not comparable or objective >= before - near)
        state, before = new, objective


def _settled(unknown: Unknown, model: Model, beta: Array) -> Any:
    """The state of a fit whose coefficients are a point."""
    return _known(unknown, model, beta)[0]


def _known(unknown: Unknown, model: Model, beta: Array) -> tuple[Any, float]:
    """The unknown's density at known coefficients, and the objective there."""
    state, face = unknown.start(model), "expect" if model.loss.offers("expect") else "gaussian"
    root, part = np.zeros((len(beta), len(beta))), 0.0
    for _ in range(_ROUNDS):
        seen, _ = _seen(unknown, model, state, beta, root, face)
        state, part = unknown.expect(model, state, seen)
    return state, _seen(unknown, model, state, beta, root, face)[1] + part


def _chain(unknown: Unknown, model: Model, beta: Array) -> Chain:
    now = unknown.apply(model, unknown.drawn(unknown.start(model)))
    rows, loglik = now.predicted(beta)
    return Chain(beta, rows, now.prior.start(), beta, loglik)


def _compare_densities(unknown: Unknown, model: Model, beta: Array, drawn: list[Any]) -> None:
    """The ratio of densities at two points, averaged over draws at the first of them."""
    other = beta + _STEP * np.cos(np.arange(len(beta)))
    wanted = _known(unknown, model, other)[1] - _known(unknown, model, beta)[1]
    change = [_log_density(unknown, model, state, other, beta) - wanted for state in drawn]
    ratio = np.exp(np.minimum(change, _FAR))
    mean_is(unknown, "draws average to the ratio of densities that expect gives", ratio, 1.0)
    close(unknown, "two points are near enough to compare", float(np.std(ratio)) < 3.0, True)


def _log_density(unknown: Unknown, model: Model, state: Any, there: Array, here: Array) -> float:
    """``log p(y, there | state) - log p(y, here | state)``."""
    now, values = unknown.apply(model, state), []
    for beta in (there, here):
        value = float(now.loss.loglik(now.y, now.c, now.blocks.matvec(beta)).sum())
        values.append(value + now.prior.logpdf(now.prior.start(), beta))
    return values[0] - values[1]
