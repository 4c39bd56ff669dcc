"""What the estimators of a numeric response share: its likelihood, its units, and what is said of its noise."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.estimators.linear import named_loss
from softmargin.exceptions import ModelWarning, warn_user
from softmargin.inference.regression_readout import Units
from softmargin.losses import EpsilonInsensitive, Loss, Squared
from softmargin.models.regression import Likelihood
from softmargin.priors.scales import HalfCauchy
from softmargin.rows.totals import totals
from softmargin.unknowns.noise import Noise

__all__ = ["LIKELIHOODS", "Responding", "numbers", "response_units"]

LIKELIHOODS = ("auto", "epsilon-insensitive", "squared")
_NOTHING = 0.01  # share of the squared error of a constant below which a model explains nothing


def numbers(y: Any) -> Array:
    """Responses as an array."""
    return np.asarray(y, dtype=np.float64)


def response_units(y: Array, count: Array, *, centred: bool = True) -> Units:
    """The mean of y, or zero, and its standard deviation around that."""
    rows, mean = totals(count, (count, y))
    centre = float(mean / rows) if centred else 0.0
    off = y - centre
    size = float(np.abs(off).max())
    spread = size * float(np.sqrt(totals((count, (off / size) ** 2))[0] / rows)) if size > 0 else 1.0
    return Units(centre, spread if spread > 1e-14 * abs(centre) else 1.0)


class Responding:
    """An estimator with the parameters ``likelihood``, ``epsilon`` and ``noise``."""

    _fitted: Any
    likelihood: str | Loss
    epsilon: float | str
    noise: float | str

    def _check_noise(self) -> None:
        """Refuse a likelihood, noise or band that cannot be."""
        if self.noise != "learn" and not (isinstance(self.noise, Real) and 0 < self.noise < np.inf):
            raise ValueError(f"noise must be a positive number or 'learn'; got {self.noise!r}.")
        if self.epsilon != "learn" and not (isinstance(self.epsilon, Real) and 0 <= self.epsilon < np.inf):
            raise ValueError(f"epsilon must be a number of at least 0 or 'learn'; got {self.epsilon!r}.")
        if (isinstance(self.likelihood, Loss) or self.likelihood == "squared") and self.epsilon != "learn":
            raise ValueError(
                f"epsilon={self.epsilon!r} is the band of the epsilon-insensitive loss by name, and "
                f"likelihood={self.likelihood!r} has its own or none: leave out one of the two."
            )
        if isinstance(self.likelihood, Loss) and not self.likelihood.offers("log_normalizer", "noise_power"):
            raise ValueError(
                f"likelihood={self.likelihood!r} is no density of y with a noise level: it needs log_normalizer, "
                "noise_cdf, log_predictive and noise_power, as Squared, EpsilonInsensitive and Check have them."
            )
        if self.likelihood == "auto" and self.epsilon == "learn" and self.noise != "learn":
            raise ValueError(
                f"noise={self.noise!r} is another thing for each loss: name it too, as in "
                "likelihood='epsilon-insensitive' or 'squared'."
            )

    def _likelihoods(self, unit: float) -> tuple[Likelihood, ...]:
        """The losses to choose from, the simpler one first, with their noise for a response of spread ``unit``."""
        prior, level = HalfCauchy(unit), None if isinstance(self.noise, str) else float(self.noise)
        plain, learned = Noise(prior, level, unit=unit), Noise(prior, level, prior, unit)
        if isinstance(self.likelihood, Loss):
            return (Likelihood(*named_loss(self.likelihood, {"squared": Squared}), plain),)
        squared = Likelihood("squared", Squared(), plain)
        if not isinstance(self.epsilon, str):
            return (Likelihood("epsilon-insensitive", EpsilonInsensitive(float(self.epsilon)), plain),)
        band = Likelihood("epsilon-insensitive", EpsilonInsensitive(0.5 * unit), learned)
        return tuple(each for each in (squared, band) if self.likelihood in ("auto", each.name))

    def _publish_noise(self, model: Any) -> None:
        """The noise of a fitted model, and how well it predicts rows without themselves."""
        losses = model.fit.held.losses
        self.noise_, self.loo_ = model.noise, model.fit.held.loo
        if losses[0].band is not None:
            self.epsilon_ = model.units.spread * float(np.mean([loss.band for loss in losses]))

    def _warn_of_model(self) -> None:
        """At most one warning: what there is to remark."""
        message = self._remark()
        if message:
            warn_user(message, ModelWarning)

    def _remark(self) -> str:
        """A sentence: that nothing was learned about the middle of y, or what the fit remarks; or nothing."""
        message: str = self._fitted.fit.remark
        losses = self._fitted.fit.held.losses
        median = abs(float(losses[0].noise_cdf(np.zeros(1), 1.0)[0]) - 0.5) < 1e-9  # f is in the middle of y
        if median and self.loo_.r2 < _NOTHING:
            message = (
                "this model predicts no better than the mean of y: rows that are left out have "
                f"{1.0 - self.loo_.r2:.2f} times the squared error of the mean of the others; look for other "
                "predictors, or more rows."
            )
        return message
