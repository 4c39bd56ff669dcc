"""Does a move of a sampler leave the posterior invariant?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.model import Model
from softmargin.core.move import PARTS, Move
from softmargin.rows.streams import Address, Purpose

__all__ = ["Observed", "Proposal", "check_move"]

Proposal = Callable[[np.random.Generator], tuple[Any, float]]
Observed = dict[tuple[str, ...], list[float]]  # bounded functions, by the parts of a chain that they are functions of

_DRAWS, _Z_LIMIT = 3000, 5.0  # chains, and standard errors: a sound move fails one statistic in two million seeds
_LEAST = 100.0  # effective number of chains below which nothing can be said
_DF = 3.0  # degrees of freedom of the proposals: heavy tails keep the weights bounded
_LATER = 1_000_000  # iteration at which moves are made: no warm-up lasts so long


def check_move(
    move: Move,
    model: Any,
    *,
    propose: Proposal | None = None,
    observe: Callable[[Any], Observed] | None = None,
    draws: int = _DRAWS,
) -> None:
    """Check that a move leaves the posterior of a small model invariant, and that what it does not renew is stale.

    Chains x are drawn from a density q and weighted by posterior/q; each is moved once. If the move is invariant, then
    ``E w (g(x') - g(x)) = 0`` for every function g of what the move does not declare stale; bounded functions of the
    coefficients, the scale, the local variables and the indicators are compared with zero in standard errors.

    Parameters
    ----------
    move : Move
        The move to check.
    model : Model
        A model with one or two coefficients, whose prior can evaluate its density.
    propose : callable or None
        ``propose(rng)`` gives a chain and the logarithm of its weight, for models of another kind.
    observe : callable or None
        ``observe(chain)`` gives bounded functions of a chain, for chains of another kind:
        ``{("beta", "scale"): [...]}`` are those of coefficients and scale, not compared where one of them is stale.
    draws : int
        Number of chains.

    Examples
    --------
    >>> import numpy as np
    >>> from softmargin.checks import check_move
    >>> from softmargin.core.model import Model
    >>> from softmargin.designs import Dense
    >>> from softmargin.engines.sampling.moves.scale import ScaleMove
    >>> from softmargin.losses import Hinge
    >>> from softmargin.priors import Lasso
    >>> from softmargin.rows.in_memory import Blocks
    >>> from softmargin.rows.streams import Streams
    >>> from softmargin.solvers.full import Full
    >>> x, y = np.array([[0.5], [-1.0], [0.8], [0.3]]), np.array([1.0, -1.0, 1.0, -1.0])
    >>> free, streams = np.array([False]), Streams.from_random_state(0)
    >>> model = Model(Blocks(Dense.plain(x), y, np.ones(4)), Hinge(), Lasso().bind(free), free, streams, Full())
    >>> check_move(ScaleMove(), model)
    """
    rng = np.random.default_rng(0)
    found = [(propose or _proposal(model))(rng) for _ in range(draws)]
    log_weight = np.array([value for _, value in found])
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    effective = 1.0 / float(weight @ weight)
    if not effective >= _LEAST:
        raise ValueError(f"{effective:.0f} effective chains are too few for this model; give propose, or more draws.")
    before = _prepared(move, model, [chain for chain, _ in found])
    after = _moved(move, model, before)
    seen = observe or (lambda chain: _observed(model, chain))
    parts = [each for each in seen(before[0]) if not move.stale.intersection(each)]
    names = [each for each, values in seen(before[0]).items() if each in parts for _ in values]

    def compared(chain: Any) -> list[float]:
        found = seen(chain)
        return [value for each in parts for value in found[each]]

    change = np.array([compared(b) for b in after]) - np.array([compared(a) for a in before])
    error = np.sqrt(weight**2 @ change**2)
    z = np.divide(weight @ change, error, out=np.zeros_like(error), where=error > 0.0)
    worst = int(np.argmax(np.abs(z)))
    if not np.abs(z[worst]) <= _Z_LIMIT:
        what = " and ".join(PARTS[part] for part in names[worst])
        raise AssertionError(
            f"{type(move).__name__}: the mean of a function of {what} changes by {z[worst]:.1f} standard errors, so "
            "the move does not leave the posterior invariant, or leaves something stale that it does not declare."
        )
    if observe is None and "f" not in move.stale:
        for chain in after[:20]:
            _same_predictors(move, model, chain)


def _same_predictors(move: Move, model: Model, chain: Chain) -> None:
    if model.unknowns or chain.f.ndim > 1:
        return
    if not np.allclose(chain.f, model.blocks.matvec(chain.beta), rtol=1e-8, atol=1e-8):
        raise AssertionError(f"{type(move).__name__}: the predictors are not those of the coefficients.")


def _prepared(move: Move, model: Any, chains: list[Any]) -> list[Any]:
    """All chains with what the move keeps in them, made once for all of them where they are moved one by one."""
    if move.together:
        return list(move.prepare(model, tuple(chains)))
    first = move.prepare(model, tuple(chains[:1]))[0]
    if first is chains[0]:
        return chains
    return [chain._replace(own={**first.own, **chain.own}) for chain in chains]


def _moved(move: Move, model: Any, chains: list[Any]) -> list[Any]:
    if move.together:
        return list(move(Address(model.streams, 0, _LATER), model, tuple(chains)))
    out = []
    for k, chain in enumerate(chains):
        rng = model.streams.at(Purpose.MOVES, chain=k, iteration=_LATER)
        out.append(move(Address(model.streams, k, _LATER, rng), model, chain))
    return out


def _proposal(model: Model) -> Proposal:
    """Log scale and coefficients in its units from t densities, local variables from their conditional."""
    prior: Any = model.prior
    start = prior.start()
    log_hyper = prior.stretch(start)

    def propose(rng: np.random.Generator) -> tuple[Chain, float]:
        state, log_weight = start, 0.0
        if log_hyper is not None:
            t = float(rng.standard_t(_DF))
            state = prior.stretched(start, t)
            log_weight += float(log_hyper(t)) - float(_log_t(np.array([t]))[0])
        unit = np.where(model.free, 1.0, state.values["scale"])
        x = rng.standard_t(_DF, model.size)
        beta = unit * x
        log_weight -= float((_log_t(x) - np.log(unit)).sum())
        rows, loglik = model.predicted(beta)
        log_weight += loglik + float(prior.logpdf(state, beta))
        local = prior.at_scale(state.values["scale"]).draw(rng, state, beta)
        state = state._replace(precision=local.precision)
        return Chain(beta, rows, state, beta, loglik), log_weight

    return propose


def _log_t(x: Array) -> Array:
    """Log density of a t variable up to a constant."""
    return np.asarray(-0.5 * (_DF + 1.0) * np.log1p(x * x / _DF))


def _observed(model: Model, chain: Chain) -> Observed:
    """Bounded functions of the parts of a chain."""
    beta, l = np.tanh(chain.beta), math.tanh(math.log(chain.prior.values["scale"]))
    found: Observed = {("beta",): [*beta, *beta**2, float(beta[0] * beta[-1])]}
    found |= {("scale",): [l, l * l], ("scale", "beta"): [*(l * beta**2)]}
    if chain.gamma is None:
        precision = chain.prior.precision
        size = np.tanh(0.5 * np.log(precision * chain.beta**2))
        found |= {("local",): [*np.tanh(np.log(precision))], ("local", "beta"): [*size, *size**2]}
    else:
        found["gamma",] = [*chain.gamma.astype(float)]
    known = zip(model.unknowns, chain.unknowns, strict=True)
    numbers = [value for unknown, state in known for value in unknown.noted(state).values()]
    return found | {("unknowns",): [math.tanh(math.log(value)) for value in numbers]}
