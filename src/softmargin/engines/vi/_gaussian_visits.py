"""What Gaussian variational inference asks of the rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from softmargin.core.array import Array
from softmargin.core.visits import Face, RowState

__all__ = [
    "Image",
    "Precisions",
    "between",
    "combined",
    "curvatures",
    "gradient",
    "gradient_at",
    "image",
    "line",
    "line_point",
    "refreshed",
    "scale_point",
    "sensitivity",
    "standard",
]

_LEAST = 1e-200  # curvatures below say nothing; the floor keeps their logarithms finite
_LOG_FLOOR = float(np.log(_LEAST))
_SLACK = 0.7  # how far beyond old and new an extrapolated log curvature may be
_EPSILON = float(np.finfo(float).eps)


class Precisions(NamedTuple):
    """Row precisions ``ku`` that gave a Gaussian its shape; as a message ``w, b``, without those too small to be felt.

    ``log`` has their logarithms, which are a point of the accelerated map; None where they came from elsewhere.
    """

    w: Array
    b: Array | None
    ku: Array
    log: Array | None = None


class Image(NamedTuple):
    """Log curvatures that the map gave, and by how much they differ from those that it was given."""

    image: Array
    residual: Array | None


class Line(NamedTuple):
    """Change of the predictors along a direction; linear and quadratic terms of their variances, None where fixed."""

    change: Array
    linear: Array | None
    square: Array | None

    def variance(self, v: Array, tau: float) -> Array:
        """Variances of the predictors at a point of the line, no smaller than the rounding of their terms."""
        if self.linear is None or self.square is None:
            return v
        rounding = _EPSILON * (v + abs(tau * self.linear) + tau * tau * self.square)
        return np.maximum(v + tau * (self.linear + tau * self.square), rounding)


def standard(block: Any, face: Face) -> Any:
    """Keep the messages at N(0, 1) predictors."""
    message = face(block, block.full(0.0), block.full(1.0))
    return Precisions(message.w, message.b, message.w), ()


def curvatures(block: Any, small: None, kept: RowState) -> Any:
    """Keep the curvatures of messages as precisions."""
    return Precisions(kept.w, None, kept.w), ()


def gradient(block: Any, mean: Array, kept: RowState) -> Any:
    """Sum the gradient of the rows' bound in the mean."""
    score = block.rmatvec(kept.b - kept.w * kept.f)
    return (score, block.excess_slope(kept.w, mean)) if block.entries_missing else (score,)


def gradient_at(block: Any, small: tuple[Face, Array, Any]) -> Any:
    """Keep moments and messages under coefficients of a mean and a root; sum the gradient in the mean."""
    face, mean, root = small
    f, v = block.moments(mean, root)
    message = face(block, f, v)
    state = RowState(f, v, message.w, message.b)
    return state, gradient(block, mean, state)


def line(block: Any, small: tuple[Array, Array]) -> Any:
    """Keep how predictors and their variances change along a direction from a mean."""
    mean, direction = small
    change = block.matvec(direction)
    if not block.entries_missing:
        return Line(change, None, None), ()
    square = block.excess(direction) - block.residual  # the variance is quadratic along the line
    return Line(change, block.excess(mean + direction) - block.excess(mean) - square, square), ()


def line_point(block: Any, small: tuple[Face, float], state: RowState, along: Line) -> Any:
    """Keep moments and messages at a point of the line.

    Sums: the bound, its slope and curvature along the line, and the two sums of ``scale_point`` there.
    """
    face, tau = small
    f, v = state.f + tau * along.change, along.variance(state.v, tau)
    w, b, bound = face(block, f, v)
    slope: Any = b - w * f, along.change
    square = along.change * along.change
    if along.linear is not None and along.square is not None:
        slope = slope[0] * slope[1] - 0.5 * w * (along.linear + 2.0 * tau * along.square)
        square += along.square
    sums = block.sums(bound, slope, (w, square), (b, f), (w, f * f + (v - block.residual)))
    return RowState(f, v, w, b), (sums,)


def scale_point(block: Any, small: tuple[Face, float], state: RowState) -> Any:
    """Keep moments and messages with the predictors multiplied by a number; sum the bound, ``b'f`` and ``w'(f^2 + v)``.

    The last two have the messages after and the moments before, without the variance that no coefficient carries.
    """
    face, grow = small
    own = state.v - block.residual
    f, v = grow * state.f, grow * grow * own + block.residual
    w, b, bound = face(block, f, v)
    return RowState(f, v, w, b), (block.sums(bound, (b, state.f), (w, state.f * state.f + own)),)


def refreshed(block: Any, small: tuple[Face, Array, Any], kept: RowState) -> Any:
    """Keep variances and messages where what no coefficient carries has changed; sum the bound."""
    face, mean, root = small
    v = block.row_quad(root) + block.excess(mean)
    message = face(block, kept.f, v)
    return RowState(kept.f, v, message.w, message.b), (block.sums(message.bound),)


def sensitivity(block: Any, small: tuple[Face, float], kept: RowState) -> Any:
    """Sum ``w v`` and v times the change of the curvatures w as v grows by a part of it."""
    face, nudge = small
    v = kept.v - block.residual
    moved = face(block, kept.f, v * (1.0 + nudge) + block.residual).w
    return (block.sums((kept.w, v), (v, moved - kept.w)),)


def _logs(kept: Precisions, state: RowState, t: float) -> tuple[Array, Array]:
    """Log precisions that built q, whose standard deviations were then multiplied by e^t, and those of the next q."""
    old = np.log(np.maximum(kept.ku, _LEAST)) if kept.log is None else np.maximum(kept.log, _LOG_FLOOR)
    return old - 2.0 * t, np.log(np.maximum(state.w, _LEAST))


def image(block: Any, small: tuple[float, float, bool], state: RowState, kept: Precisions, *before: Image) -> Any:
    """Keep the damped new log curvatures.

    Where they are the image of a ``pending`` point, sums the inner products of the steps between residuals and of the
    last residual, all in units of the rows' own spread.
    """
    rho, t, pending = small
    old, new = _logs(kept, state, t)
    point = old + rho * (new - old)
    if kept.log is None or not pending:
        return Image(point, None), ()
    residual = point - kept.log
    residuals: list[Any] = [*(each.residual for each in before), residual]
    rows = np.stack(residuals)
    rows *= np.sqrt(state.w * state.v)
    rows[:-1] = rows[1:] - rows[:-1]
    return Image(point, residual), (block.products(rows),)


def combined(
    block: Any, small: tuple[Array | None, float, float], state: RowState, kept: Precisions, *images: Image
) -> Any:
    """Keep precisions at a weighted sum of images, within reach of the old and the new ones.

    Rows whose part in the trace of precision times covariance is at most the last number given are not felt: those far
    from the margin cost no time.
    """
    share, t, least = small
    old, new = _logs(kept, state, t)
    log = images[-1].image
    if share is not None:
        log = share[-1] * log
        for part, each in zip(share[:-1], images[:-1], strict=True):
            log += part * each.image
    log = np.clip(log, np.minimum(old, new) - _SLACK, np.maximum(old, new) + _SLACK)
    ku = np.exp(log)
    return Precisions(np.where(ku * state.v > least, ku, 0.0), None, ku, log), ()


def between(block: Any, small: tuple[float, float], state: RowState, kept: Precisions) -> Any:
    """Keep precisions between those of q and the curvatures there."""
    rho, factor = small
    ku = ((1.0 - rho) * factor) * kept.ku + rho * state.w
    return Precisions(ku, None, ku), ()
