"""Priors on the coefficients, and hyperpriors on their scale."""

from softmargin.core.capabilities import Parameters
from softmargin.core.prior import Prior, PriorBase, PriorMessage, PriorState
from softmargin.priors.bridge import Bridge, Lasso
from softmargin.priors.composed.covariances import HalfTCovariance, InverseWishart
from softmargin.priors.composed.terms import TermPrior, Terms
from softmargin.priors.group_lasso import GroupLasso
from softmargin.priors.horseshoe import Horseshoe
from softmargin.priors.laplace_zero import LaplaceZero
from softmargin.priors.ridge import Ridge
from softmargin.priors.scaled import Centred, Scaled
from softmargin.priors.scales import FixedScale, HalfCauchy, HalfT, InverseGamma
from softmargin.priors.spike_slab import SpikeSlab

__all__ = [
    "Bridge",
    "Centred",
    "FixedScale",
    "GroupLasso",
    "HalfCauchy",
    "HalfT",
    "HalfTCovariance",
    "Horseshoe",
    "InverseGamma",
    "InverseWishart",
    "LaplaceZero",
    "Lasso",
    "Parameters",
    "Prior",
    "PriorBase",
    "PriorMessage",
    "PriorState",
    "Ridge",
    "Scaled",
    "SpikeSlab",
    "TermPrior",
    "Terms",
]
