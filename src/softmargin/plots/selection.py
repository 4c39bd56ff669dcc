"""Which variables matter, and whether two runs agree about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.validation import fitted
from softmargin.estimators.path import Path
from softmargin.plots.style import (
    BLUE,
    GREY,
    INK,
    PALE,
    RED,
    SERIES,
    bend,
    check_coefficients,
    directions,
    effect,
    feature_names,
    finish,
    frame,
    in_frame,
    name_ends,
    need_matplotlib,
    new_axes,
    position,
    same_columns,
    spreads,
)
from softmargin.posterior.coefficients import DrawsPosterior

__all__ = ["agreement", "inclusion", "path", "traces"]

_NAMED = 6  # outlying points of an agreement picture that get their name
_APART = 0.04  # differences below this share of the axis need no name
_INCLUSION = "inclusion probability"
_STEPS = 1500  # points of a trace; more would not be seen


def inclusion(model: Any, ax: Any = None, top: int = 30, threshold: float = 0.5) -> Any:
    """Draw the ``top`` largest inclusion probabilities, coloured by the sign of the coefficient.

    The colour is the probability of a positive coefficient given that the column is in; whiskers are the range over
    chains. Faint bars stay below the threshold.

    Parameters
    ----------
    model : BayesianSVC
        A fitted model whose prior has point masses.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.
    top : int
        How many to draw.
    threshold : float
        Where the line is; 0.5 bounds the median model.

    Returns
    -------
    matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 3.
    """
    ends = directions("plots.inclusion", model)
    if fitted(model, "inclusion_") is None:
        raise ValueError(
            "plots.inclusion needs inclusion probabilities; fit with prior='spike-slab' or prior='laplace-zero'."
        )
    names = feature_names(model)
    chosen = np.argsort(-model.inclusion_, kind="stable")[:top]
    ax = new_axes("plots.inclusion", ax, (5.4, 1.1 + 0.21 * len(chosen)))
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Patch

    colours = LinearSegmentedColormap.from_list("sign", (BLUE, PALE, RED))
    positive = model.posterior_.table(0.95)["prob_positive"][1:]
    place, height = np.arange(len(chosen)), model.inclusion_[chosen]
    fill = colours(positive[chosen])
    fill[:, 3] = np.where(height > threshold, 0.9, 0.45)
    ax.barh(place, height, color=fill, edgecolor=GREY, linewidth=0.5, height=0.74, zorder=2)
    if len(model.chain_inclusion_) > 1:
        low, high = model.chain_inclusion_.min(axis=0)[chosen], model.chain_inclusion_.max(axis=0)[chosen]
        ax.errorbar(
            height, place, xerr=np.maximum((height - low, high - height), 0.0), fmt="none", ecolor=INK, elinewidth=0.9,
            capsize=1.8, capthick=0.9, zorder=3,
        )  # fmt: skip
    ax.axvline(threshold, color=INK, lw=0.8, ls="--", zorder=1.5)
    ax.set_yticks(place, [names[j] for j in chosen])
    ax.set(xlim=(0.0, 1.02), ylim=(len(chosen) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0, labelsize=8.5)
    keys = [
        Patch(facecolor=shade, edgecolor=GREY, label=text)
        for shade, text in (
            (BLUE, f"towards {ends[0]}"),
            (PALE, "either"),
            (RED, f"towards {ends[1]}"),
        )
    ]
    ax.legend(
        handles=keys, ncols=3, frameon=False, fontsize=8.5, loc="lower left", bbox_to_anchor=(-0.01, 1.0),
        borderaxespad=0.2, handlelength=1.0, handleheight=1.0, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip
    finish(ax, "posterior inclusion probability", "")
    ax.grid(visible=False, axis="y")
    return ax


def path(path: Any, ax: Any = None, top: int = 10, mark: float | None = None) -> Any:
    """Draw a path of coefficients against the prior scale, and the number of non-zero ones in a panel below.

    Coefficients are for one standard deviation of their column, on an axis that is linear near zero and logarithmic
    far from it. The ``top`` largest at the end of the path are named, in the colour of their sign; the others are grey.

    Parameters
    ----------
    path : Path
        What ``softmargin.path`` returns.
    ax : matplotlib axes or two of them, optional
        Where to draw the coefficients, and with a second one the number of non-zero ones; both are new by default.
    top : int
        How many to name.
    mark : float, optional
        A scale to mark, such as one that was learned.

    Returns
    -------
    array of matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 1.
    """
    need_matplotlib("plots.path")
    if not isinstance(path, Path):
        raise ValueError(f"plots.path draws what softmargin.path returns; got {type(path).__name__}.")
    if ax is None:
        from matplotlib import pyplot

        ratios = {"height_ratios": (3.2, 1.0)}
        ax = pyplot.subplots(2, 1, figsize=(6.2, 4.8), sharex=True, gridspec_kw=ratios, layout="constrained")[1]
    axes = np.atleast_1d(ax).ravel()
    order = np.argsort(path.scales)
    scales, size = np.asarray(path.scales)[order], np.asarray(path.size)[order]
    _lines(axes[0], scales, np.asarray(path.standardized)[order], [str(name) for name in path.feature_names], top)
    for panel in axes[1:2]:
        panel.step(scales, size, where="mid", color=INK, lw=1.3)
        panel.set_ylim(0, 1.08 * max(int(size.max()), 1))
        finish(panel, "", "non-zero")
    for each in axes:
        frame(each)
        if mark is not None:
            each.axvline(mark, color=INK, lw=0.9, ls="--", zorder=1)
    axes[-1].set_xlabel("prior scale", fontsize=9.5)
    return axes


def _lines(ax: Any, scales: Array, coefficients: Array, names: list[str], top: int) -> None:
    """The lines of a path: the ``top`` largest at its end in colour and named, the others grey."""
    end = coefficients[-1]
    chosen = np.argsort(-np.abs(end), kind="stable")[:top]
    chosen = chosen[end[chosen] != 0.0]
    ax.set_xscale("log")
    bend(ax, "y", end[chosen])
    ax.plot(scales, np.delete(coefficients, chosen, axis=1), color=GREY, lw=0.8, alpha=0.55, zorder=2)
    for j in chosen:
        ax.plot(scales, coefficients[:, j], color=RED if end[j] > 0 else BLUE, lw=1.4, zorder=3)
    ax.axhline(0.0, color=INK, lw=0.8, zorder=1)
    ax.set_xlim(scales[0], scales[-1])
    name_ends(ax, end[chosen], [names[j] for j in chosen])
    finish(ax, "", "coefficient for one sd of the column")


def traces(model: Any, features: Sequence[Any] | None = None, mode: Any = None, ax: Any = None) -> Any:
    """Draw the draws of chosen coefficients, one panel each and the chains side by side.

    Parameters
    ----------
    model : BayesianSVC
        A model fitted with ``inference="gibbs"``.
    features : sequence of str or int, optional
        Names or positions of columns; the three farthest from zero by ``|mean| / sd`` by default.
    mode : BayesianSVC, optional
        A model of the same columns, such as one fitted with ``inference="map"``, whose coefficients are drawn as lines.
    ax : matplotlib axes or sequence of them, optional
        One a feature; new ones by default.

    Returns
    -------
    array of matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 4.
    """
    directions("plots.traces", model)
    if not isinstance(model.posterior_, DrawsPosterior):
        raise ValueError(f"plots.traces needs draws, and inference={model.inference!r} has none; fit with 'gibbs'.")
    names, unit = feature_names(model), spreads(model)
    if mode is not None:
        check_coefficients("plots.traces", mode)
        same_columns(names, feature_names(mode))
    draws = _user_draws(model.posterior_) * unit
    flat = draws.reshape(-1, len(names))
    if features is None:
        distance = np.abs(flat.mean(axis=0)) / np.maximum(flat.std(axis=0), 1e-300)
        chosen = list(np.argsort(-distance, kind="stable")[:3])
    else:
        chosen = [position(feature, names) for feature in features]
    need_matplotlib("plots.traces")
    if ax is None:
        from matplotlib import pyplot

        size = (6.4, 0.5 + 1.35 * len(chosen))
        ax = pyplot.subplots(len(chosen), 1, figsize=size, sharex=True, squeeze=False, layout="constrained")[1]
    axes = np.atleast_1d(ax).ravel()
    if len(axes) != len(chosen):
        raise ValueError(f"plots.traces needs one axes a feature: {len(chosen)} features, {len(axes)} axes.")
    for each, j in zip(axes, chosen, strict=True):
        _trace(each, draws[:, :, j], names[j])
        if mode is not None:
            each.axhline(mode.coef_[0, j] * unit[j], color=RED, lw=1.3, ls="--", zorder=4, label="mode")
    if mode is not None:
        axes[0].legend(frameon=False, fontsize=8.5, loc="lower right", bbox_to_anchor=(1.0, 0.98), borderaxespad=0.1)
    finish(axes[-1], f"draw, {len(draws)} chain{'s side by side' if len(draws) > 1 else ''}", axes[-1].get_ylabel())
    return axes


def _trace(ax: Any, draws: Array, name: str) -> None:
    """Chains (chains, draws) one after the other, zero marked."""
    frame(ax)
    chains, length = draws.shape
    step = max(1, chains * length // _STEPS)
    for k in range(chains):
        at = k * length + np.arange(0, length, step)
        ax.plot(at, draws[k, ::step], color=SERIES[k % len(SERIES)][0], lw=0.7, zorder=3, rasterized=True)
        if k:
            ax.axvline(k * length, color=GREY, lw=0.8, zorder=2)
    ax.axhline(0.0, color=INK, lw=0.8, zorder=1)
    ax.set_xlim(0, chains * length)
    finish(ax, "", name)


def agreement(first: Any, second: Any = None, ax: Any = None) -> Any:
    """Draw what one fit found against what another found, column by column, with the largest difference written.

    Compared are inclusion probabilities where both have them, and coefficients for one standard deviation of the
    column otherwise. One model alone is compared with itself: each chain against the mean of all.

    Parameters
    ----------
    first, second : BayesianSVC
        Fitted models of the same columns; without ``second``, a model with several chains.
    ax : matplotlib axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib axes

    References
    ----------
    Polson and Scott (2011), figure 2.
    """
    directions("plots.agreement", first)
    names = feature_names(first)
    if second is None:
        rows, what = _by_chain(first)
        across, difference = rows.mean(axis=0), np.ptp(rows, axis=0)
        labels = (f"{what}, mean of {len(rows)} chains", f"{what}, each chain")
    else:
        both = all(fitted(model, "inclusion_") is not None for model in (first, second))
        if not both:
            check_coefficients("plots.agreement", second)
        same_columns(names, feature_names(second))
        if both:
            across, rows, what = first.inclusion_, second.inclusion_[None], _INCLUSION
        else:
            unit, what = spreads(first), effect(first)
            across, rows = first.coef_[0] * unit, second.coef_ * unit
        difference, labels = np.abs(rows[0] - across), (f"{what}, first fit", f"{what}, second fit")
    ax = new_axes("plots.agreement", ax, (4.4, 4.4))
    if what != _INCLUSION:
        bend(ax, "xy", np.concatenate((across, rows.ravel())))
    low, high = min(across.min(), rows.min()), max(across.max(), rows.max())
    room = 0.04 * (high - low if high > low else 1.0)
    ends = (low - room, high + room)
    ax.plot(ends, ends, color=INK, lw=0.8, zorder=1)
    if len(rows) > 1:
        ax.vlines(across, rows.min(axis=0), rows.max(axis=0), colors=GREY, lw=0.9, zorder=2)
    for k, row in enumerate(rows):
        colour, marker, _ = SERIES[k % len(SERIES)] if second is None else (BLUE, "o", "-")
        ax.scatter(across, row, s=24, c=colour, marker=marker, edgecolors="white", linewidths=0.5, zorder=3)
    ax.set(xlim=ends, ylim=ends, box_aspect=1)
    _name_outliers(ax, across, rows, difference, names)
    worst = int(np.argmax(difference))
    ax.set_title(f"largest difference {difference[worst]:.2g} ({names[worst]})", fontsize=9, loc="left", color=INK)
    finish(ax, *labels)
    return ax


def _name_outliers(ax: Any, across: Array, rows: Array, difference: Array, names: list[str]) -> None:
    """Write the names of the columns that differ most, where there is room for them."""
    peak = rows[np.argmax(np.abs(rows - across), axis=0), np.arange(len(across))]
    place = in_frame(ax, across, peak)
    written: list[int] = []
    for j in np.argsort(-difference, kind="stable")[:_NAMED]:
        level = abs(place[j, 1] - in_frame(ax, across[j : j + 1], across[j : j + 1])[0, 1])
        crowded = any((np.abs(place[j] - place[k]) < (0.2, 0.05)).all() for k in written)
        if level < _APART or crowded:
            continue
        written.append(int(j))
        right = place[j, 0] < 0.75
        ax.annotate(
            names[j], (across[j], peak[j]), xytext=(5 if right else -5, -3), textcoords="offset points", fontsize=8,
            ha="left" if right else "right", color=INK, zorder=4,
        )  # fmt: skip


def _by_chain(model: Any) -> tuple[Array, str]:
    """Inclusion probabilities or coefficients (chains, p) of the chains of one model."""
    if fitted(model, "inclusion_") is not None:
        rows, what = model.chain_inclusion_, _INCLUSION
    elif isinstance(model.posterior_, DrawsPosterior):
        rows, what = _user_draws(model.posterior_).mean(axis=1) * spreads(model), effect(model)
    else:
        rows, what = np.empty((0, 0)), ""
    if len(rows) < 2:
        raise ValueError("plots.agreement of one model needs chains; fit with inference='gibbs', or give two models.")
    return rows, what


def _user_draws(posterior: DrawsPosterior) -> Array:
    """Draws (chains, draws, p) of the slopes on the user's scale."""
    return posterior.columns.to_user(posterior.all_coefficients())[0]
