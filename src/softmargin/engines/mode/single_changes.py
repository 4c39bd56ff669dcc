"""Is there one coefficient whose change would raise the posterior density? For penalties that are not convex."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.model import Model

__all__ = ["Change", "best_change"]

_MOST = 500  # coefficients examined, those with the steepest loss first


class Change(NamedTuple):
    """A coefficient, its better value, and what the negative log density loses by it."""

    at: int
    value: float
    gain: float


def best_change(model: Model, beta: Array, f: Array, scale: float) -> Change | None:
    """The single change of a shrunk coefficient that lowers hinge plus penalty most, or None.

    Along one coefficient the hinge is convex and piecewise linear and the penalty concave on either side of zero,
    so the minimum is at zero or where a row meets the margin: n + 1 candidates, whose values come from sorted
    slopes. EM cannot find such changes: a coefficient that has reached zero stays there.
    """
    prior, y, c = model.prior, model.y, model.c
    pull = np.abs(model.blocks.rmatvec(np.where(1.0 - y * f > 0.0, 2.0 * c * y, 0.0)))
    pull[model.free] = -1.0
    best: Change | None = None
    for j in np.argsort(-pull, kind="stable")[: min(_MOST, int((~model.free).sum()))]:
        unit = np.zeros(model.size)
        unit[j] = 1.0
        z = y * model.blocks.matvec(unit)
        moving = z != 0.0
        rest = 1.0 - y * f + z * beta[j]  # margins without the coefficient: hinge(b) = 2 c'max(rest - z b, 0)
        at, loss = _kinks(rest[moving], z[moving], c[moving])
        at, loss = np.append(at, 0.0), np.append(loss, 2.0 * float(c[moving] @ np.maximum(rest[moving], 0.0)))
        value = loss + prior.concave_penalty(at, scale)
        here = 2.0 * float(c[moving] @ np.maximum(rest[moving] - z[moving] * beta[j], 0.0))
        here += float(prior.concave_penalty(beta[j : j + 1], scale)[0])
        k = int(np.argmin(value))
        gain = here - float(value[k])
        if best is None or gain > best.gain:
            best = Change(int(j), float(at[k]), gain)
    return best if best is not None and best.gain > 0.0 else None


def _kinks(rest: Array, z: Array, c: Array) -> tuple[Array, Array]:
    """Places b = rest/z in order, and ``2 c'max(rest - z b, 0)`` at each of them."""
    place = rest / z
    order = np.argsort(place, kind="stable")
    b, z, c, rest = place[order], z[order], c[order], rest[order]
    # rows with z > 0 count up to their kink, rows with z < 0 from it on
    up, down = np.where(z > 0.0, c, 0.0), np.where(z < 0.0, c, 0.0)
    level = (up * rest).sum() - np.cumsum(up * rest) + np.cumsum(down * rest)
    slope = (up * z).sum() - np.cumsum(up * z) + np.cumsum(down * z)
    return b, 2.0 * (level - slope * b)
