"""Simulated annealing: the sampler on the posterior raised to a growing power."""

from __future__ import annotations

from dataclasses import dataclass, replace

from softmargin.core.chain import Chain
from softmargin.core.loop import Info
from softmargin.core.model import Model
from softmargin.engines.sampling.gibbs import gibbs

__all__ = ["Annealing", "tempered"]


def tempered(model: Model, scale: float, temperature: float) -> Model:
    """The problem whose posterior is that of ``model`` at a fixed scale, raised to the power 1/temperature.

    Row weights and the logarithm of the prior are divided by the temperature; nothing else changes.
    """
    prior = model.prior.tempered(scale, temperature)
    return model.with_weight(model.c / temperature).with_prior(prior)


@dataclass(frozen=True)
class Annealing:
    """Gibbs sweeps at temperatures that fall geometrically from 1 to ``cold``.

    A learned scale is kept at its conditional mode, as in ECME: only the coefficients are random. The chains end near
    modes, the better the longer they run; for a convex problem there is nothing to gain.

    Parameters
    ----------
    chains : int
        Number of chains.
    sweeps : int
        Sweeps from the first to the last temperature.
    cold : float
        Last temperature.
    """

    chains: int = 4
    sweeps: int = 500
    cold: float = 0.01
    needs_loss = ("draw", "loglik")
    needs_prior = ("draw", "along", "stretch", "tempered", "mode")

    def __post_init__(self) -> None:
        if not (self.sweeps >= 1 and self.chains >= 1 and 0 < self.cold <= 1):
            raise ValueError(
                f"annealing needs sweeps >= 1, chains >= 1 and cold in (0, 1]; got {self.sweeps}, {self.chains} and "
                f"{self.cold}."
            )

    def init(self, model: Model) -> tuple[Chain, ...]:
        """Chains of the posterior itself, at the start of its scale."""
        return gibbs(self.chains).init(tempered(model, model.prior.start().values["scale"], 1.0))

    def step(self, model: Model, state: tuple[Chain, ...], iteration: int) -> tuple[tuple[Chain, ...], Info]:
        """One sweep of every chain at the next temperature."""
        temperature = self.cold ** (iteration / max(self.sweeps - 1, 1))
        learned = model.prior.stretch(model.prior.start()) is not None
        serial, engine = model.serial(), gibbs(self.chains)
        # unlike a mode, draws fill the directions that no row sees, and these tell the scale as the others do
        drawn = replace(model.prior, rows=None) if learned else model.prior  # type: ignore[type-var]

        def sweep(k: int) -> Chain:
            chain = state[k]
            scale = (drawn.mode(chain.beta) if learned else model.prior.start()).values["scale"]
            hot = tempered(serial, scale, temperature)
            return engine.sweep(hot, chain._replace(prior=hot.prior.start()), k, iteration + 1)

        new = tuple(model.blocks.parallel(sweep, range(self.chains)))
        best = max(temperature * chain.loglik for chain in new)
        return new, Info(best, float("inf"), iteration + 1 >= self.sweeps)
