"""Factors of a precision matrix on a device; vectors of one number per coefficient come and go as NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.rows.device.libraries import Library

__all__ = ["DeviceAlgebra"]


@dataclass(frozen=True, eq=False)
class DeviceAlgebra:
    """What a Gaussian asks of its linear algebra, for matrices that are on a device."""

    library: Library

    def shifted(self, A: Any, diagonal: Array) -> Any:
        """A, on the device, with something added to its diagonal, in place."""
        A = self.library.vector(A)
        A.reshape(-1)[:: len(diagonal) + 1] += self.library.vector(diagonal)
        return A

    def diagonal(self, A: Any) -> Array:
        """The diagonal, home."""
        return np.array(self.library.home(A.diagonal()))

    def factor(self, A: Any, unit: Array, jitter: float) -> Any:
        """Lower triangular factor of a matrix scaled to a unit diagonal; an error where it is not positive definite."""
        xp, s = self.library.xp, self.library.vector(unit)
        scaled = (A * s) * s[:, None]
        if jitter:
            scaled.reshape(-1)[:: len(unit) + 1] = 1.0 + jitter * len(unit)
        return self.library.cholesky(xp.ascontiguousarray(scaled))

    def solve(self, factor: Any, rhs: Array) -> Array:
        """``(L L')^-1 rhs``."""
        half = self.library.triangular(factor, self.library.vector(rhs))
        return np.array(self.library.home(self.library.triangular(factor, half, transposed=True)))

    def back(self, factor: Any, z: Array) -> Array:
        """``L'^-1 z``."""
        return np.array(self.library.home(self.library.triangular(factor, self.library.vector(z), transposed=True)))

    def times(self, factor: Any, x: Array) -> Array:
        """``L' x``."""
        return np.array(self.library.home(factor.T @ self.library.vector(x)))

    def root(self, factor: Any, unit: Array) -> Any:
        """Upper triangular ``S^-1 L'^-1``, on the device."""
        xp = self.library.xp
        inverse = self.library.triangular(factor, xp.eye(len(unit)))
        return xp.ascontiguousarray(inverse.T * self.library.vector(unit)[:, None])

    def row_squares(self, root: Any) -> Array:
        """Sums of the squares of each row, home."""
        return np.array(self.library.home(self.library.square_sums(root)))

    def home(self, root: Any) -> Array:
        """A matrix, home."""
        return np.array(self.library.home(root))
