"""Pictures of a fitted model: coefficients, reliability, predictions, and which variables matter."""

from softmargin.plots.fits import calibration, coefficients, demo_figure, probabilities
from softmargin.plots.selection import agreement, inclusion, path, traces

__all__ = [
    "agreement",
    "calibration",
    "coefficients",
    "demo_figure",
    "inclusion",
    "path",
    "probabilities",
    "traces",
]
