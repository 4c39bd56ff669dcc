"""Priors on the coefficients, and hyperpriors on their scale."""

from softmargin.priors.base import BoundPrior, Prior, PriorMessage, PriorState
from softmargin.priors.ridge import Ridge
from softmargin.priors.scales import FixedScale, HalfCauchy, InverseGamma

__all__ = ["BoundPrior", "FixedScale", "HalfCauchy", "InverseGamma", "Prior", "PriorMessage", "PriorState", "Ridge"]
