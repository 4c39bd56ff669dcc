"""Which engines suit a prior with point masses at zero."""

from __future__ import annotations

from typing import Any

from softmargin.engines.selection.classes import class_spike_slab
from softmargin.engines.selection.laplace_zero import laplace_zero
from softmargin.engines.selection.spike_slab import spike_slab
from softmargin.engines.vi.laplace_zero import LaplaceZeroVB

__all__ = ["has_point_masses", "selecting_sampler", "selecting_variational"]

# by the density of the coefficients that are not zero, and whether they are those of many classes
_SAMPLERS = {
    ("normal", False): spike_slab,
    ("normal", True): class_spike_slab,
    ("Laplace", False): laplace_zero,
}
_VARIATIONAL = {"Laplace": LaplaceZeroVB}


def has_point_masses(prior: Any) -> bool:
    """Whether a bound prior puts mass on zero."""
    return bool(prior.selects)


def selecting_sampler(prior: Any) -> Any:
    """The sampler that moves between models; None where the prior has no point masses."""
    if not has_point_masses(prior):
        return None
    return _SAMPLERS[prior.point_masses, prior.classes > 1]


def selecting_variational(prior: Any) -> Any:
    """Class of the variational engine that knows point masses; None where there is none."""
    return _VARIATIONAL.get(prior.point_masses)
