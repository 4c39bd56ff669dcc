"""How the rows of a run are made on a cluster, and made again when they were lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softmargin.core.array import Array

__all__ = ["Source", "decoded", "encoded"]


@dataclass(frozen=True, eq=False)
class Source:
    """Delayed arrays, and which of their rows are wanted."""

    chunks: Sequence[Any]
    parts: Sequence[tuple[int, int]]

    def made(self, client: Any) -> Any:
        """A future of the rows, anywhere: tasks bound to a worker that is lost would never be run."""
        from dask.delayed import delayed

        return client.compute(delayed(_assembled)(self.chunks, self.parts))

    def made_again(self, client: Any) -> Any:
        """The same after a worker was lost.

        The scheduler suspects tasks that were on a worker when it died, by their names, and it may neither run them
        again nor say so. So everything is done by one task that has a new name. What the user keeps on the workers has
        to be asked for by its name.
        """
        from distributed import futures_of

        if futures_of(self.chunks):
            return self.made(client)
        return client.submit(_alone, encoded((self.chunks, self.parts)), pure=False)

    def suspected(self, name: Any) -> list[Any]:
        """What the user keeps on the workers under a name."""
        from distributed import futures_of

        return [each for each in futures_of(self.chunks) if each.key == name]


def _alone(letter: bytes) -> Array:
    """The rows of a source, whose chunks are made here and one after another."""
    from dask.base import compute

    chunks, parts = decoded(letter)
    (made,) = compute(chunks, scheduler="sync")
    return _assembled(made, parts)


def _assembled(chunks: Sequence[Any], parts: Sequence[tuple[int, int]]) -> Array:
    """The rows of a run, from parts of chunks."""
    arrays = [np.asarray(chunk[lo:hi], dtype=np.float64) for chunk, (lo, hi) in zip(chunks, parts, strict=True)]
    return np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def encoded(value: Any) -> bytes:
    """As bytes that a worker can read; functions and classes of a script travel with their code."""
    from distributed.protocol.pickle import dumps

    made: bytes = dumps(value)
    return made


def decoded(content: bytes) -> Any:
    """What was encoded, here or by a worker."""
    from distributed.protocol.pickle import loads

    return loads(content)
