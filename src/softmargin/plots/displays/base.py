"""What all displays share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from softmargin.plots.style import frame, need_matplotlib, new_axes

__all__ = ["Display"]


class Display(ABC):
    """A picture; ``ax_`` and ``figure_`` are where it was drawn last."""

    ax_: Any
    figure_: Any

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _on(self, ax: Any, size: tuple[float, float]) -> Any:
        """The axes given, or new ones of the size."""
        self.ax_ = new_axes(self._name, ax, size)
        self.figure_ = self.ax_.figure
        return self.ax_

    def _panels(self, ax: Any, count: int, size: tuple[float, float], across: int = 1, **share: Any) -> Any:
        """As many axes as there are panels: those given, or new ones."""
        need_matplotlib(self._name)
        if ax is None:
            from matplotlib import pyplot

            down = -(-count // across)
            wide = min(across, count)
            shape: Any = {"figsize": (size[0] * wide, size[1] * down), "squeeze": False, "layout": "constrained"}
            figure, axes = pyplot.subplots(down, wide, **shape, **share)
            for spare in axes.ravel()[count:]:
                figure.delaxes(spare)
            ax = axes.ravel()[:count]
        axes = np.atleast_1d(ax).ravel()
        if len(axes) != count:
            raise ValueError(f"{self._name} needs one axes per panel: {count} panels, {len(axes)} axes.")
        for each in axes:
            frame(each)
        self.ax_, self.figure_ = axes, axes[0].figure
        return axes

    @abstractmethod
    def plot(self, ax: Any = None) -> Self:
        """Draw on ``ax``, or on new axes."""
