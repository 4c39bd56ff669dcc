"""Checks of losses, priors, designs and solvers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from softmargin.core.array import Array
from softmargin.designs import Dense, Design, Sparse
from softmargin.losses import Loss
from softmargin.priors import BoundPrior, Prior, PriorMessage
from softmargin.solvers import Coordinates, Gaussian

__all__ = ["check_design", "check_loss", "check_prior", "check_solver"]

_DRAWS, _Z_LIMIT = 20_000, 5.0  # standard errors: a sound sampler fails one statistic in two million seeds
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 9.5  # standard deviations after which a Gaussian average is cut


class _Solver(Protocol):
    def coordinates(self, design: Design) -> Coordinates: ...


def _holds(part: Any, what: str, condition: Any) -> None:
    if not np.all(condition):
        raise AssertionError(f"{type(part).__name__}: {what}.")


def _close(part: Any, what: str, got: Any, wanted: Any, tolerance: Any = None) -> None:
    """Demand ``|got - wanted| <= tolerance``, by default 1e-9 of the largest; not-a-number never passes."""
    got, wanted = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    tolerance = 1e-9 * (1.0 + np.abs(wanted).max()) if tolerance is None else tolerance
    _holds(part, f"{what}: the shape is {got.shape}, wanted {wanted.shape}", got.shape == wanted.shape)
    excess = np.abs(got - wanted) - tolerance
    if not np.all(excess <= 0.0):
        k = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
        _holds(part, f"{what}: got {got.flat[k]:.10g}, wanted {wanted.flat[k]:.10g} (entry {k})", False)


def _agree(part: Any, what: str, got: Any, wanted: Any) -> None:
    """Equality up to the error of a finite difference."""
    _close(part, what, got, wanted, 1e-5 * np.abs(wanted) + 1e-8)


def _mean_is(part: Any, what: str, sample: Array, wanted: float) -> None:
    """Demand a sample mean within the declared number of standard errors."""
    limit = _Z_LIMIT * float(sample.std()) / math.sqrt(len(sample))
    _close(part, what, sample.mean(), wanted, limit + 1e-9 * (1.0 + abs(wanted)))


def check_loss(loss: Loss, *, responses: Sequence[float] = (-1.0, 1.0)) -> None:
    """Check a loss against its own ``loglik``.

    The message of ``expect`` is tight at v = 0 and a lower bound elsewhere, ``gaussian`` equals quadrature, both have
    ``d bound/df = b - w f`` and ``d bound/dv = -w/2``, weights act as counts, and draws of the latent satisfy
    ``E exp(-w (g^2 - f^2)/2 + b (g - f)) = exp(l(g) - l(f))``, which determines their law.

    A face that the loss does not have is not checked; where draws need whole weights, those are drawn.

    Parameters
    ----------
    loss : Loss
        The loss to check; it has ``loglik`` and ``score``.
    responses : sequence of float
        Values of the response to check it at.

    Examples
    --------
    >>> from softmargin.checks import check_loss
    >>> from softmargin.losses import Hinge
    >>> check_loss(Hinge())
    """
    for response in responses:
        kinks = _kinks(loss, response, -12.0, 12.0)
        places = np.concatenate(([-6.0, -2.5, -0.4, 0.0, 0.7, 3.3, 40.0], kinks, kinks - 0.3, kinks + 0.3))
        smooth = np.array([f for f in places if np.all(np.abs(f - kinks) > 0.02)])
        y, one, step = np.full(len(smooth), response), np.ones(len(smooth)), 1e-5
        slope = (loss.loglik(y, one, smooth + step) - loss.loglik(y, one, smooth - step)) / (2.0 * step)
        _agree(loss, "score is the derivative of loglik", loss.score(y, one, smooth), slope)
        if loss.offers("expect"):
            tight = loss.expect(y, one, smooth, 0.0 * one)
            _close(loss, "the bound of expect at v = 0 is loglik", tight.bound, loss.loglik(y, one, smooth))
            _agree(loss, "b - w f of expect at v = 0 is the score", tight.b - tight.w * smooth, slope)
        for f, v in product(places, (1e-10, 1e-4, 0.3, 4.0, 1e4)):
            _check_averages(loss, response, float(f), v)
        for (name, rest), times in product((("loglik", 0), ("score", 0), ("gaussian", 1), ("expect", 1)), (0.0, 2.0)):
            if not loss.offers(name):
                continue
            given = (smooth, 0.3 * one)[: 1 + rest]
            got, once = (np.asarray(getattr(loss, name)(y, c, *given)) for c in (times * one, one))
            _close(loss, f"{name} is proportional to the weight", got, times * once, 1e-12 * (1.0 + np.abs(once)))
        if loss.offers("draw"):
            _check_draws(loss, np.random.default_rng(0), response, kinks)


def _kinks(loss: Loss, response: float, lo: float, hi: float) -> Array:
    """Where the score changes most between lo and hi: jumps if there are any, else places worth resolving."""
    x, y, one = np.linspace(lo, hi, 2001), np.full(2001, response), np.ones(2001)
    score = loss.score(y, one, x)
    change, found = np.abs(np.diff(score)), []
    for k in np.argsort(-change)[:3]:
        left, right = x[k : k + 2]
        for _ in range(60):
            middle = 0.5 * (left + right)
            a, m, b = loss.score(y[:3], one[:3], np.array([left, middle, right]))
            left, right = (left, middle) if abs(m - a) > abs(b - m) else (middle, right)
        found += [right] if change[k] > 1e-3 * (1.0 + np.abs(score).max()) else []
    return np.array(found, dtype=float)


def _bend(loss: Loss, response: float, lo: float, hi: float) -> Array:
    """Where the score is least a straight line between lo and hi, which may be a jump of its own derivative."""
    x = np.linspace(lo, hi, 2001)
    score = loss.score(np.full(2001, response), np.ones(2001), x)
    k = int(np.argmax(np.abs(np.diff(score, 2))))
    left, right = x[k], x[k + 2]
    for _ in range(45):
        at = np.linspace(left, right, 5)
        s = loss.score(np.full(5, response), np.ones(5), at)
        first = abs(s[0] - 2.0 * s[1] + s[2]) >= abs(s[2] - 2.0 * s[3] + s[4])
        left, right = (left, at[2]) if first else (at[2], right)
    return np.array([left])


def _quadrature(loss: Loss, response: float, f: float, v: float) -> tuple[float, float, float, float]:
    """``E l`` under N(f, v) and its derivatives in f and v, from loglik alone, and the largest ``|l|`` met."""
    s = math.sqrt(v)
    ends = f - _REACH * s, f + _REACH * s
    jumps = (np.concatenate((_kinks(loss, response, *ends), _bend(loss, response, *ends))) - f) / s
    graded = 2.0 * _REACH * 0.5 ** np.arange(18)
    edges = [np.linspace(-_REACH, _REACH, 39), jumps] + [k + side * graded for k in jumps for side in (-1.0, 1.0)]
    edge = np.unique(np.clip(np.concatenate(edges), -_REACH, _REACH))
    half = 0.5 * np.diff(edge)[:, None]
    z = (edge[:-1, None] + half * (1.0 + _NODES)).ravel()
    mass = (half * _WEIGHTS).ravel() * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    at = np.append(f + s * z, f)
    level = loss.loglik(np.full(len(at), response), np.ones(len(at)), at)
    rise = level[:-1] - level[-1]
    # d/df E l = E[l z]/s and d/dv E l = E[l (z^2 - 1)]/(2 v), by parts
    slope, curve = float(mass @ (rise * z)) / s, float(mass @ (rise * (z * z - 1.0))) / (2.0 * v)
    return float(level[-1] + mass @ rise), slope, curve, float(np.abs(level).max())


def _check_averages(loss: Loss, response: float, f: float, v: float) -> None:
    """Both Gaussian faces of the loss at one N(f, v)."""
    average, slope, curve, largest = _quadrature(loss, response, f, v)
    size, rounding = 1e-9 * (1.0 + largest), 1e-14 * (1.0 + largest)
    if loss.offers("gaussian"):
        w, b, bound = (x[0] for x in loss.gaussian(np.full(1, response), np.ones(1), np.full(1, f), np.full(1, v)))
        _close(loss, "the bound of gaussian is E loglik", bound, average, size)
        near = 1e-7 * (1.0 + abs(slope)) + rounding / math.sqrt(v)
        _close(loss, "b - w f of gaussian is E loglik'", b - w * f, slope, near)
        _close(loss, "w of gaussian is -E loglik''", w, -2.0 * curve, 1e-7 * (1.0 + abs(curve)) + rounding / v)
    if not loss.offers("expect"):
        return
    h, k = 1e-4 * min(math.sqrt(v), 1.0), 1e-4 * v  # a loss may bend within a length of one
    at, spread = f + np.array([-h, h, 0, 0, 0]), v + np.array([0, 0, -k, k, 0])
    W, B, L = loss.expect(np.full(5, response), np.ones(5), at, spread)
    _holds(loss, "w of expect is finite and not negative, b is finite", np.isfinite(W) & (W >= 0) & np.isfinite(B))
    _holds(loss, "the bound of expect is not above E loglik", L[4] <= average + size)
    if v > 1e-2:  # the latent density is optimal, so the bound moves only through f and v themselves
        slope, what = B[4] - W[4] * f, "of expect is the derivative of its bound in"
        near = 1e-5 * (1.0 + abs(slope)) + rounding / h
        _close(loss, f"b - w f {what} f", (L[1] - L[0]) / (2.0 * h), slope, near)
        _close(loss, f"-w/2 {what} v", (L[3] - L[2]) / (2.0 * k), -0.5 * W[4], 1e-5 * W[4] + rounding / k)


def _check_draws(loss: Loss, rng: np.random.Generator, response: float, kinks: Array) -> None:
    """Moments and the exponential identity of the latent's law, and finite draws everywhere."""
    places = [f for f in (-2.2, -0.3, 0.3, 2.2) if np.all(np.abs(f - kinks) > 0.5)]
    for weight, f in product((1.0, 2.0, 3.0) if loss.whole_weights else (0.4, 1.0, 2.5), places):
        y, c, at = np.full(_DRAWS, response), np.full(_DRAWS, weight), np.full(_DRAWS, f)
        w, b = loss.draw(rng, y, c, at)
        where = f"at y = {response:g}, f = {f:g} and weight {weight:g}"
        if loss.offers("expect"):
            mean = loss.expect(y[:1], c[:1], at[:1], np.zeros(1)).w[0]
            _mean_is(loss, f"the mean of drawn w is w of expect {where}", w, mean)
        _mean_is(
            loss, f"the mean of drawn b - w f is the score {where}", b - w * f, loss.score(y[:1], c[:1], at[:1])[0]
        )
        here, down, up = loss.loglik(y[:3], c[:3], np.array([f, f - 0.2, f + 0.2]))
        for g, there in ((f - 0.2, down), (f + 0.2, up)):
            ratio = np.exp(-0.5 * w * (g * g - f * f) + b * (g - f))
            _mean_is(loss, f"drawn messages average to the likelihood ratio {where}", ratio, math.exp(there - here))
    away = 10.0 ** np.arange(-16.0, 9.0)
    at = np.repeat(np.add.outer(np.append(kinks, 0.0), np.concatenate(([0.0], away, -away))).ravel(), 50)
    w, b = loss.draw(rng, np.full(len(at), response), np.ones(len(at)), at)
    _holds(loss, "drawn w is finite and not negative, b is finite", np.isfinite(w) & (w >= 0) & np.isfinite(b))


def check_prior(prior: Prior) -> None:
    """Check a prior bound to one free and four shrunk coefficients.

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
    for name, face in (("expect", bound.expect), ("gaussian", bound.gaussian)):
        message = face(beta, var)
        _holds(prior, f"the precision of {name} is positive", (message.precision > 0) & (message.precision < np.inf))
        slopes = _gradient(face, 0, beta, var), _gradient(face, 1, beta, var)
        _agree(prior, f"{name} has slope pull(mean) in the mean", slopes[0], message.pull(beta))
        _agree(prior, f"{name} has slope -precision / 2 in the variance", slopes[1], -message.precision / 2)
    _holds(prior, "gaussian is not below expect", message.bound >= bound.expect(beta, var).bound - 1e-9)
    if bound.mode is not None:
        with suppress(ValueError):  # the prior may say that its joint mode does not exist
            _agree(prior, "mode has slope pull(beta)", _gradient(bound.mode, 0, beta), bound.mode(beta).pull(beta))
    _check_scale(prior, bound, np.where(beta > 1e3, 0.0, beta))


def _gradient(face: Callable[..., PriorMessage], k: int, *at: Array) -> Array:
    """Central finite differences of a bound in its argument number k."""
    steps = np.diag(1e-4 * np.maximum(np.abs(at[k]), 0.1))
    ends = [[face(*at[:k], at[k] + side * h, *at[k + 1 :]).bound for side in (-1.0, 1.0)] for h in steps]
    return np.array([(up - down) / (2.0 * h.sum()) for (down, up), h in zip(ends, steps, strict=True)])


def _check_scale(prior: Prior, bound: BoundPrior, beta: Array) -> None:
    """Everything that moves or fixes the scale; the free coefficient is at zero."""
    state, t, grow, rng = bound.start(), 0.7, math.exp(0.7), np.random.default_rng(0)
    scale = state.values["scale"]
    here, along, density = bound.at_scale(scale), bound.along(state, beta), bound.stretch(state)
    change = here.logpdf(state, grow * beta) - here.logpdf(state, beta)
    _agree(prior, "along is the change of the log density along e^l beta", along(t) - along(0.0), change)
    if here.mode is not None:
        _agree(prior, "mode at a fixed scale is the log density", here.mode(beta).bound, here.logpdf(state, beta))
    fixed, start = bound.at_scale(scale * grow), bound.at_scale(scale * grow).start()
    _holds(prior, "a fixed scale is not learned", fixed.stretch(start) is None)
    for kept in (start, fixed.draw(rng, start, beta), fixed.expect(beta, beta * beta)):
        _agree(prior, "at_scale keeps the given scale", kept.values["scale"], scale * grow)
    # N(beta; 0, 1/precision) averaged over drawn precisions is the density, up to a factor free of beta
    drawn = np.array([fixed.draw(rng, start, beta).precision @ beta**2 for _ in range(2000)])
    ratio = math.exp(fixed.along(start, beta)(math.log(1.2)) - fixed.along(start, beta)(0.0))
    _mean_is(prior, "drawn precisions average to the ratio of densities", np.exp(-0.5 * (1.44 - 1.0) * drawn), ratio)
    if density is None:
        return
    moved = bound.stretched(state, t)
    moved_along, moved_density = bound.along(moved, grow * beta), bound.stretch(moved) or density
    _agree(prior, "stretched multiplies the scale by e^t", moved.values["scale"], scale * grow)
    _agree(prior, "stretched leaves free coefficients alone", moved.precision[0] / state.precision[0], 1.0)
    _agree(prior, "the density depends on beta / scale", moved_along(-t) - moved_along(0.0), along(-t) - along(0.0))
    _agree(prior, "stretch is relative to the state", moved_density(-0.2), density(t - 0.2))
    # law of log(scale) given beta, by quadrature
    grid = np.linspace(-15.0, 15.0, 6001)
    mass = np.array([density(x) + bound.logpdf(bound.stretched(state, x), beta) for x in grid])
    total = np.logaddexp.reduce(mass)
    below = bound.expect(beta, 0.0 * beta).bound <= total + math.log(grid[1] - grid[0]) + 1e-6
    _holds(prior, "the bound of expect is not above the log of the integral over the scale", below)
    mass = np.exp(mass - total)
    mean, drawn = float(mass @ grid), np.empty(1500)
    for k in range(len(drawn)):
        new = state
        for _ in range(8):  # an update may depend on the state it starts from
            new = bound.draw(rng, new, beta)
        drawn[k] = math.log(new.values["scale"] / scale)
    _holds(prior, "drawn precision is positive and finite", (new.precision > 0) & np.isfinite(new.precision))
    _mean_is(prior, "log scale is drawn with the right mean", drawn, mean)
    _mean_is(prior, "log scale is drawn with the right spread", (drawn - mean) ** 2, float(mass @ (grid - mean) ** 2))


def check_design(design: Design) -> None:
    """Check every product of a design against the plain array of its rows, whole and by ranges of rows.

    Parameters
    ----------
    design : Design
        The design; its rows are copied once.

    Examples
    --------
    >>> import numpy as np
    >>> from softmargin.checks import check_design
    >>> from softmargin.designs import Dense
    >>> check_design(Dense.plain(np.arange(12.0).reshape(4, 3), intercept=True))
    """
    (n, q), lead, rng = design.shape, int(design.intercept), np.random.default_rng(0)
    X = design.rows(np.arange(n))
    _close(design, "rows has the shape of the design", X.shape, (n, q), 0.0)
    _close(design, "the intercept is a column of ones in front", X[:, :lead], np.ones((n, lead)), 0.0)
    w, b, beta, root = rng.exponential(size=n), rng.normal(size=n), rng.normal(size=q), rng.normal(size=(q, 3))
    S, both = X[:, lead:], np.stack((w, b), axis=1)

    def same(what: str, got: Any, left: Array, right: Array) -> None:
        size = np.abs(left) @ np.abs(right)  # what rounding errors are proportional to
        _close(design, what, got, left @ right, 1e-9 * (size + np.max(size)))

    for lo, hi in ((0, None), (0, n // 3), (n // 3, n - 1), (n - 1, n)) if n > 3 else ((0, None),):
        part, slopes, at = X[lo:hi], S[lo:hi], slice(lo, hi)
        where = f"over rows {lo} to {n if hi is None else hi}"
        same(f"matvec {where}", design.matvec(beta, lo, hi), part, beta)
        same(f"rmatvec {where}", design.rmatvec(b[at], lo, hi), part.T, b[at])
        gram, linear = design.gram(w[at], b[at], lo, hi)
        same(f"the matrix of gram {where}", gram, part.T * w[at], part)
        same(f"the vector of gram {where}", linear, part.T, b[at])
        same(f"matmat {where}", design.matmat(root[lead:], lo, hi), slopes, root[lead:])
        lengths, size = np.sum((part @ root) ** 2, axis=1), np.sum((np.abs(part) @ np.abs(root)) ** 2, axis=1)
        _close(design, f"row_quad {where}", design.row_quad(root, lo, hi), lengths, 1e-9 * size)
        if hasattr(design, "moments"):
            f, v = design.moments(beta, root, lo, hi)
            same(f"the means of moments {where}", f, part, beta)
            _close(design, f"the variances of moments {where}", v, lengths, 1e-9 * size)
        squares = np.sum(slopes**2, axis=1)
        _close(design, f"norms {where}", design.norms(lo, hi), squares, 1e-9 * (squares + squares.max()))
    same("outer", design.outer(), S, S.T)
    same("rmatmat", design.rmatmat(both), S.T, both)
    _close(design, "rows are those asked for", design.rows(np.arange(n)[::-2]), X[::-2], 0.0)


def check_solver(solver: _Solver) -> None:
    """Check a solver's coordinates and the Gaussian they give against a dense solve in the coefficients.

    Covers more rows than columns and fewer, with and without intercept, repeated rows and sparse columns: mean and
    covariance of the coefficients, ``log |A|`` and predictive variances, directions that no row sees included.

    Parameters
    ----------
    solver : object with ``coordinates(design)``
        The solver to check, under a normal prior with one precision for all slopes.

    Examples
    --------
    >>> from softmargin.checks import check_solver
    >>> from softmargin.solvers import Dual
    >>> check_solver(Dual())
    """
    rng = np.random.default_rng(0)
    for n, p, intercept in ((30, 5, False), (30, 5, True), (8, 20, False), (8, 20, True)):
        X = rng.normal(size=(n, p))
        thin = sp.csr_matrix(np.where(rng.random((n, p)) < 0.4, X, 0.0))
        _check_coordinates(solver, Dense.plain(X, intercept=intercept), rng)
        _check_coordinates(solver, Dense.plain(np.vstack((X[::2], X[::2])), intercept=intercept), rng)
        _check_coordinates(solver, Dense(X, X.mean(axis=0), 1.0 / X.std(axis=0), intercept), rng)
        _check_coordinates(solver, Sparse(thin, np.full(p, 0.1), np.full(p, 1.7), intercept), rng)


def _check_coordinates(solver: _Solver, design: Design, rng: np.random.Generator) -> None:
    """One design: random row messages, one precision tau for the slopes, another for the intercept."""
    tau, lead, (n, q), coordinates = 1.7, int(design.intercept), design.shape, solver.coordinates(design)
    X, basis, features, outside = design.rows(np.arange(n)), coordinates.basis, coordinates.design, np.zeros((q, q))
    r = features.shape[1]
    z, w, b = rng.normal(size=r), rng.exponential(size=n), rng.normal(size=n)
    _close(solver, "the predictor in working coordinates is X beta", features.matvec(z), X @ coordinates.mean(z))
    prior = np.concatenate((np.full(lead, 0.05), np.full(q - lead, tau)))
    A, (gram, linear) = (X.T * w) @ X + np.diag(prior), features.gram(w, b)
    covariance = np.linalg.inv(A)
    found = Gaussian.from_precision(gram + np.diag(prior[:r]), linear)
    root = coordinates.lift_root(found.root)
    new = Dense.plain(rng.normal(size=(3, q - lead)), intercept=design.intercept)
    rows, variance = new.rows(np.arange(3)), new.row_quad(root)
    if basis is not None:
        _close(solver, "the basis is orthonormal", basis.T @ basis, np.eye(r - lead))
        outside[lead:, lead:] = np.eye(q - lead) - basis @ basis.T
        _close(solver, "unseen is the share outside the basis", coordinates.unseen(), outside.diagonal())
        seen, beyond = coordinates.features(new)
        variance = seen.row_quad(found.root) + beyond / tau
    _close(solver, "the mean of the coefficients is right", coordinates.mean(found.mean), covariance @ X.T @ b)
    _close(solver, "the covariance of the coefficients is right", root @ root.T + outside / tau, covariance)
    _close(solver, "log |A| is right", found.logdet + (q - r) * math.log(tau), np.linalg.slogdet(A)[1])
    _close(solver, "predictive variance is right", variance, np.einsum("ij,jk,ik->i", rows, covariance, rows))
