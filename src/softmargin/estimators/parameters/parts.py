"""Parameters of the parts of an estimator, its prior and its loss, by name."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import BaseEstimator

from softmargin.core.capabilities import Parameters, nested

__all__ = ["Composed"]

_SUCH = {"prior": "Ridge()", "likelihood": "Check(0.5)"}  # parts, and an example of each


class Composed(BaseEstimator):
    """An estimator whose parts do not change: ``prior__scale`` puts another prior in the place of the one it has."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of the prior and the loss as ``prior__scale`` or ``likelihood__epsilon``."""
        own = {name: value for name, value in params.items() if name.partition("__")[0] not in _SUCH}
        super().set_params(**own)
        for name, changes in nested({name: value for name, value in params.items() if name not in own}).items():
            if "" in changes:
                super().set_params(**{name: changes.pop("")})
            if changes:
                part = self.get_params(deep=False).get(name)
                if not isinstance(part, Parameters):
                    raise ValueError(
                        f"{name}__{next(iter(changes))} is a parameter of a {name} object, and {name} is {part!r}: "
                        f"give an object, such as {_SUCH[name]}, first."
                    )
                setattr(self, name, part.set_params(**changes))
        return self
