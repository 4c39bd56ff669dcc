"""Random numbers keyed by what they are for, not by when they are asked for."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Address", "Purpose", "Streams"]

_local = threading.local()
_AT_START = {"bit_generator": "Philox", "buffer": (0, 0, 0, 0), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}


def _spread(seed: Any) -> Any:
    """Four words of a seed, or of the machine's own entropy."""
    return np.random.SeedSequence(seed).generate_state(4, np.uint32).astype(np.uint64)


_words = lru_cache(maxsize=64)(_spread)  # of a number: the same seed comes again in fits that are compared


class Purpose(IntEnum):
    """What a stream of random numbers is used for."""

    START = 0
    LATENT = 1
    COEFFICIENTS = 2
    PRIOR = 3
    MOVES = 4
    PREDICT = 5
    CAVITY = 6
    MISSING = 7
    COVARIATES = 8
    NOISE = 9
    TERMS = 10


@dataclass(frozen=True)
class Streams:
    """Counter-based generators addressed by (seed, chain, iteration, purpose, cell).

    The Philox counter holds the address and the key holds the seed, so every address names a disjoint stretch
    of 2**64 numbers. The same address gives the same numbers whatever was drawn before, by whom, and in which
    order: results do not depend on the number of jobs, blocks or restarts.
    """

    key: tuple[int, int]

    @classmethod
    def from_random_state(cls, random_state: int | np.random.Generator | np.random.RandomState | None) -> Streams:
        """Build the streams from what scikit-learn calls ``random_state``."""
        if isinstance(random_state, np.random.Generator):
            words = random_state.integers(0, 2**32, size=4, dtype=np.uint64)
        elif isinstance(random_state, np.random.RandomState):
            words = random_state.randint(0, 2**32, size=4, dtype=np.uint64)
        else:
            words = _words(random_state) if type(random_state) is int else _spread(random_state)
        return cls((int(words[0]) << 32 | int(words[1]), int(words[2]) << 32 | int(words[3])))

    def child(self, number: int) -> Streams:
        """Streams of their own for one of several problems."""
        words = np.random.SeedSequence([*self.key, number]).generate_state(2, np.uint64)
        return Streams((int(words[0]), int(words[1])))

    def at(self, purpose: Purpose, *, chain: int = 0, iteration: int = 0, cell: int = 0) -> np.random.Generator:
        """Return the generator of one address.

        A thread has one generator per purpose, moved to the address asked for: it is good until the same thread
        asks for another address of the same purpose.
        """
        generators = _local.__dict__.setdefault("generators", {})
        generator: np.random.Generator | None = generators.get(purpose)
        if generator is None:
            generator = generators[purpose] = np.random.Generator(np.random.Philox(0))
        # the lowest counter word is left to the generator: it counts the numbers drawn at this address
        counter = 0, cell, iteration, chain << 8 | int(purpose)
        generator.bit_generator.state = _AT_START | {"state": {"counter": counter, "key": self.key}}
        return generator


class Address(NamedTuple):
    """The streams of one chain in one iteration."""

    streams: Any
    chain: int
    iteration: int
    rng: Any = None  # one generator that the moves of a sweep share in turn

    def at(self, purpose: Purpose, cell: int = 0) -> np.random.Generator:
        """The generator of a purpose and cell there."""
        return self.streams.at(purpose, chain=self.chain, iteration=self.iteration, cell=cell)
