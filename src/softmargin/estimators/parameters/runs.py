"""Parameters of the run of an engine."""

from __future__ import annotations

from functools import cache
from typing import Any

from joblib import effective_n_jobs
from sklearn.base import BaseEstimator

__all__ = ["Running"]

_LENGTHS = ("draws", "warmup", "chains", "thin", "max_iter", "tol")


class Running(BaseEstimator):
    """An estimator that runs an engine."""

    verbose: int
    engine_options: dict[str, Any] | None
    n_jobs: int | None

    @classmethod
    @cache  # a signature is looked at once per class: a small fit would take a tenth of its time for it
    def _get_param_names(cls) -> list[str]:
        names: list[str] = super()._get_param_names()
        return names

    def _run_settings(self) -> dict[str, Any]:
        """Lengths, tolerances and options of the engine."""
        given = self.get_params(deep=False)
        run = {name: given[name] for name in _LENGTHS}
        return run | {"verbose": int(self.verbose), "options": dict(self.engine_options or {})}

    def _workers(self) -> int:
        """Number of threads."""
        return 1 if self.n_jobs is None else int(effective_n_jobs(self.n_jobs))
