"""Priors on the coefficients, and hyperpriors on their scale."""

from softmargin.priors.base import BoundPrior, Prior, PriorMessage, PriorState
from softmargin.priors.bridge import Bridge, Lasso
from softmargin.priors.horseshoe import Horseshoe
from softmargin.priors.ridge import Ridge
from softmargin.priors.scales import FixedScale, HalfCauchy, InverseGamma

__all__ = [
    "BoundPrior",
    "Bridge",
    "FixedScale",
    "HalfCauchy",
    "Horseshoe",
    "InverseGamma",
    "Lasso",
    "Prior",
    "PriorMessage",
    "PriorState",
    "Ridge",
]
