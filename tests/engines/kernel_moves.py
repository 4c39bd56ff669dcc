"""Moves of kernel expansions for the shared list: small problems, chains from the prior, and what is seen of them."""

import math

import numpy as np
from jump_problems import problem, rbf

from softmargin.engines.kernel.active_chain import ActiveChain, Law, factor
from softmargin.engines.kernel.active_set import Jumps
from softmargin.engines.kernel.coefficients import BasisCoefficients, LawOfCoefficients
from softmargin.engines.kernel.data import KernelData, LengthScale
from softmargin.engines.kernel.full import SpectralChain, SpectralCoefficients
from softmargin.engines.kernel.latents import CollapsedLatents, CopyLatents, RowLatents
from softmargin.engines.kernel.length import LengthMove
from softmargin.engines.kernel.machines import (
    LocalPrecisions,
    MachineChain,
    MachineCoefficients,
    MachineLaw,
    MachinePrior,
    NoiseLevel,
    NoisyLatents,
)
from softmargin.engines.kernel.precisions import Precisions, Stretch
from softmargin.losses import CompleteHinge, Hinge, Logit, NoisyHinge, Probit
from softmargin.priors.g_prior import GPrior
from softmargin.rows.streams import Streams

N = 3
X, Y, K, _ = problem(N, seed=3)
PRIOR = GPrior((6.0, 2.0), (5.0, 4.0), inclusion=(1.5, 2.5))
NOISY = MachinePrior((3.0, 2.0), (4.0, 2.0), 0.5)
LENGTH = LengthScale(lambda length: rbf(X, X, length), 1.5, 0.7)


def data(loss, prior=PRIOR):
    """Rows that say little, so that chains from the prior have weights alike."""
    weight = np.array([1.0, 2.0, 1.0] if loss.whole_weights else [0.3, 0.2, 0.4])
    return KernelData(K, Y, weight, loss, prior, Streams((4, 5)))


def precisions(rng):
    """eta and g from their priors."""
    (a, b), (c, d) = PRIOR.intercept, PRIOR.shrinkage
    return 2.0 * rng.gamma(a / 2.0) / b, 2.0 * rng.gamma(c / 2.0) / d


def active(model, length=None):
    """Chains from the prior, weighted by the likelihood; latents from their conditional."""

    def propose(rng):
        eta, g = precisions(rng)
        index = rng.permutation(N)[: rng.binomial(N, rng.beta(*PRIOR.inclusion))]
        here = math.nan if length is None else length.middle * math.exp(length.spread * rng.standard_normal())
        matrix = K if length is None else length.kernel(here)
        G, R = factor(matrix, index)
        x = rng.standard_normal(len(G)) / np.sqrt(np.append(eta, np.full(len(index), g)))
        f, row = x @ G, model.row if model.loss.whole_weights else np.arange(N)
        if model.loss.whole_weights:
            s = model.loss.draw(rng, Y[row], np.ones(len(row)), f[row]).b
            w, b = model.c, np.bincount(row, s, minlength=N)
        else:
            s, (w, b) = np.empty(0), model.loss.draw(rng, Y, model.c, f)
        law, counts = Law.of((G * w) @ G.T, G @ b, eta, g), np.zeros((3, 2), dtype=np.int64)
        rest = (eta, g, here, 0.0, math.nan, counts)
        chain = ActiveChain(matrix, index, G, R, law, w, b, s, x, f - x[0], *rest)
        return chain, float(model.loss.loglik(Y, model.c, f).sum())

    return propose


def spectral(model):
    def propose(rng):
        eta, g = precisions(rng)
        x = rng.standard_normal(N + 1) / np.sqrt(np.append(eta, np.full(N, g)))
        shape = model.spectrum.X @ x[1:]
        w, b = model.loss.draw(rng, Y, model.c, x[0] + shape)
        weight = float(model.loss.loglik(Y, model.c, x[0] + shape).sum())
        return SpectralChain(x, shape, w, b, eta, g, math.nan), weight

    return propose


def machine(model):
    rows, y, gram = model.copies.X, model.copies.y, model.copies.gram
    one, (a, rate), (shape, scale) = np.ones(len(y)), NOISY.precision, NOISY.noise

    def propose(rng):
        noise, lam = math.sqrt(scale / rng.gamma(shape)), np.append(NOISY.intercept, rng.gamma(a, size=N) / rate)
        x = noise * rng.standard_normal(N + 1) / np.sqrt(lam)
        f, loss = rows @ x, type(model.loss)(noise)
        w, b = loss.draw(rng, y, one, f)
        L = np.linalg.cholesky(gram + np.diag(lam))
        chain = MachineChain(x, f, b / w, lam, L, np.linalg.solve(L, rows.T @ (b / w)), noise, math.nan)
        return chain, float(loss.loglik(y, one, f).sum())

    return propose


def crossed(**parts):
    """Functions of every part, and products of those of two parts."""
    names = list(parts)
    found = {(name,): [*parts[name], *parts[name] ** 2] for name in names}
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            found[one, other] = list(np.outer(parts[one], parts[other]).ravel())
    return found


def seen(chain):
    """What an expansion on active rows, or on all, is seen by."""
    square, w, b = chain.x[1:] @ chain.x[1:], chain.w, chain.b
    scale, beta = (
        np.tanh(np.log([chain.g, chain.eta])),
        np.array([math.tanh(chain.x[0]), math.tanh(square), square > 0]),
    )
    parts = {"scale": scale, "beta": beta, "f": np.tanh(chain.f), "latents": np.tanh([*b, *np.log(w)])}
    if isinstance(chain, ActiveChain):
        parts["gamma"] = np.isin(np.arange(N), chain.active).astype(float)
        if not math.isnan(chain.length):
            parts["unknowns"] = np.tanh([math.log(chain.length)])
    found, units = crossed(**parts), [chain.g * square, chain.eta * chain.x[0] ** 2]
    found["scale", "beta"] += list(np.tanh(units))
    found["f", "latents"] += list(np.tanh((b - w * chain.f) ** 2 / w))
    return found


def seen_machine(chain):
    scale, local, latents = np.tanh([math.log(chain.noise)]), np.tanh(np.log(chain.lam[1:])), np.tanh(chain.z)
    found = crossed(scale=scale, local=local, latents=latents, beta=np.tanh(chain.x), f=np.tanh(chain.f))
    found["scale", "local", "beta"] = list(np.tanh(chain.lam * (chain.x / chain.noise) ** 2))
    found["scale", "latents", "f"] = list(np.tanh(((chain.z - chain.f) / chain.noise) ** 2))
    return found


def on_active(move, loss, length=None):
    return lambda: (move, m := data(loss), active(m, length), seen)


def on_all(move, loss):
    return lambda: (move, m := data(loss), spectral(m), seen)


def on_machine(move, loss):
    return lambda: (move, m := data(loss, NOISY), machine(m), seen_machine)


KERNEL_MOVES = {
    "row latents, hinge": on_active(RowLatents(), Hinge()),
    "copy latents": on_active(CopyLatents(), Probit()),
    "collapsed latents": on_active(CollapsedLatents(), Probit()),
    "law, probit": on_active(LawOfCoefficients(same_weights=True), Probit()),
    "law, hinge": on_active(LawOfCoefficients(), Hinge()),
    "length, probit": on_active(LengthMove(LENGTH), Probit(), LENGTH),
    "length, logit": on_active(LengthMove(LENGTH), Logit(), LENGTH),
    "jumps, probit": on_active(Jumps(N, 2), Probit()),
    "jumps, hinge": on_active(Jumps(N, 2), Hinge()),
    "jumps, informed": on_active(Jumps(N, 2, informed=True), Logit()),
    "basis coefficients": on_active(BasisCoefficients(), Hinge()),
    "precisions": on_active(Precisions(), Logit()),
    "stretch": on_active(Stretch(), Hinge()),
    "row latents, all rows": on_all(RowLatents(), Logit()),
    "spectral coefficients": on_all(SpectralCoefficients(), Hinge()),
    "spectral coefficients, equal weights": lambda: (
        SpectralCoefficients(),
        m := KernelData(K, Y, np.ones(N), Probit(), PRIOR, Streams((4, 5))),
        spectral(m),
        seen,
    ),
    "precisions, all rows": on_all(Precisions(), Logit()),
    "stretch, all rows": on_all(Stretch(), Probit()),
    "noisy latents": on_machine(NoisyLatents(), NoisyHinge()),
    "law of a machine": on_machine(MachineLaw(), NoisyHinge()),
    "noise level": on_machine(NoiseLevel(), CompleteHinge()),
    "machine coefficients": on_machine(MachineCoefficients(), NoisyHinge()),
    "local precisions": on_machine(LocalPrecisions(), CompleteHinge()),
}
