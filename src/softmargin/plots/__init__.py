"""Pictures of a fitted model: coefficients, reliability, predictions, terms, and which variables matter."""

from softmargin.plots import functions
from softmargin.plots.displays.chains import AgreementDisplay, TracesDisplay
from softmargin.plots.displays.coefficients import CoefficientsDisplay, InclusionDisplay
from softmargin.plots.displays.decisions import ConfusionDisplay, MarginsDisplay
from softmargin.plots.displays.path import PathDisplay
from softmargin.plots.displays.probabilities import CalibrationDisplay, ProbabilitiesDisplay
from softmargin.plots.displays.surfaces import BoundaryDisplay, IntervalsDisplay
from softmargin.plots.displays.terms import RandomEffectsDisplay, SmoothDisplay
from softmargin.plots.functions import *  # noqa: F403

__all__ = [
    "AgreementDisplay",
    "BoundaryDisplay",
    "CalibrationDisplay",
    "CoefficientsDisplay",
    "ConfusionDisplay",
    "InclusionDisplay",
    "IntervalsDisplay",
    "MarginsDisplay",
    "PathDisplay",
    "ProbabilitiesDisplay",
    "RandomEffectsDisplay",
    "SmoothDisplay",
    "TracesDisplay",
]
__all__ += functions.__all__
