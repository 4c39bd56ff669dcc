"""What is known of the variation between groups: draws of the covariance of their effects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from softmargin.core.array import Array

__all__ = ["DRAWS", "Components", "from_grid"]

DRAWS = 2000  # of an approximation


def from_grid(rng: np.random.Generator, scales: Array, weights: Array) -> Array:
    """Draws of a scale known on a grid that is uniform in its logarithm."""
    logs = np.log(scales)
    order = np.argsort(logs)
    spacing = float(np.diff(logs[order]).mean()) if len(logs) > 1 else 0.0
    at = rng.choice(len(logs), size=DRAWS, p=weights)
    return np.asarray(np.exp(logs[at] + spacing * rng.uniform(-0.5, 0.5, size=DRAWS)))


@dataclass(frozen=True, eq=False)
class Components:
    """Draws of the covariance of one term's effects, in the units of the model.

    ``turn`` leads from a group's effects in those units to those in the units of the data.
    """

    name: str
    effects: tuple[str, ...]
    turn: Array
    draws: Array  # (draws, effects, effects)
    chains: int | None = None  # where they come from a sampler

    @property
    def covariance(self) -> Array:
        """The mean."""
        return np.asarray(self.draws.mean(axis=0))

    @property
    def level_variance(self) -> float:
        """Variance of the level between groups, where slope columns have their mean."""
        return float(self.covariance[0, 0]) if self.effects[0] == "Intercept" else 0.0

    @property
    def fixed(self) -> bool:
        """Whether it is a point."""
        return len(self.draws) == 1

    def _entries(self) -> dict[tuple[str, str], Array]:
        """Standard deviations and correlations in the units of the data, draw by draw."""
        S = self.turn @ self.draws @ self.turn.T
        sd = np.sqrt(np.einsum("kaa->ka", S))
        found = {(name, name): sd[:, a] for a, name in enumerate(self.effects)}
        for a, first in enumerate(self.effects):
            for b in range(a + 1, len(self.effects)):
                found[first, self.effects[b]] = S[:, a, b] / (sd[:, a] * sd[:, b])
        return found

    def table(self, level: float) -> pd.DataFrame:
        """Mean and interval of every standard deviation and correlation."""
        tail, rows = 0.5 * (1.0 - level), {}
        for (first, other), values in self._entries().items():
            name = first if first == other else f"corr({first}, {other})"
            lower, upper = np.quantile(values, (tail, 1.0 - tail)) if not self.fixed else (np.nan, np.nan)
            rows[name] = {"sd": float(values.mean()), "lower": float(lower), "upper": float(upper)}
        frame = pd.DataFrame.from_dict(rows, orient="index")
        correlation = frame.index.str.startswith("corr(")
        frame.insert(1, "correlation", np.where(correlation, frame["sd"], np.nan))
        frame.loc[correlation, "sd"] = np.nan
        return frame

    def named_draws(self, draws: int, every: int = 1) -> dict[str, Array]:
        """The same draws by name and (chain, draw); of an approximation, ``draws``, of a sampler, one of ``every``."""
        named = {}
        at = np.arange(draws) * len(self.draws) // draws if self.chains is None else slice(None)
        for (first, other), values in self._entries().items():
            own = self.name if first == "Intercept" else f"{self.name}[{first}]"
            name = f"sd_{own}" if first == other else f"corr_{self.name}[{first}, {other}]"
            named[name] = values[at].reshape(self.chains or 1, -1)[:, :: 1 if self.chains is None else every]
        return named

    def new_groups(self, rng: np.random.Generator, groups: int, n: int) -> Array:
        """Draws (groups, n, effects) of the effects of groups that were not seen, each draw with its own covariance."""
        roots = np.linalg.cholesky(self.draws[rng.integers(len(self.draws), size=n)])
        noise = rng.standard_normal((groups, n, self.draws.shape[-1]))
        return np.asarray(np.einsum("nab,gnb->gna", roots, noise))
