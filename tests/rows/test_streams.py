"""Random numbers depend on their address alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from softmargin.rows.streams import Purpose, Streams

ADDRESSES = [
    {"purpose": Purpose.LATENT},
    {"purpose": Purpose.PRIOR},
    {"purpose": Purpose.LATENT, "chain": 1},
    {"purpose": Purpose.LATENT, "iteration": 1},
    {"purpose": Purpose.LATENT, "cell": 1},
    {"purpose": Purpose.LATENT, "chain": 2, "iteration": 3, "cell": 4},
    {"purpose": Purpose.LATENT, "chain": 3, "iteration": 2, "cell": 4},
    {"purpose": Purpose.LATENT, "chain": 4, "iteration": 3, "cell": 2},
]


def numbers(streams, address, n=8):
    address = dict(address)
    return streams.at(address.pop("purpose"), **address).random(n)


def test_same_address_same_numbers_in_any_order():
    streams = Streams.from_random_state(5)
    forward = [numbers(streams, address) for address in ADDRESSES]
    backward = [numbers(Streams.from_random_state(5), address) for address in reversed(ADDRESSES)][::-1]
    assert np.array_equal(forward, backward)


def test_numbers_are_those_of_a_fresh_philox():
    """An address is a Philox counter, whatever a generator of the same thread did before."""
    streams = Streams((2**63 + 5, 17))
    for k in range(4):
        used = streams.at(Purpose.MOVES, chain=k)  # leaves half a word and half a block behind
        used.integers(0, 2**32, size=2 * k + 1, dtype=np.uint32)
        rng = streams.at(Purpose.MOVES, chain=3, iteration=k, cell=2)
        key, counter = np.array(streams.key, dtype=np.uint64), [0, 2, k, 3 << 8 | int(Purpose.MOVES)]
        fresh = np.random.Generator(np.random.Philox(key=key, counter=counter))
        halves = [generator.integers(0, 2**32, size=5, dtype=np.uint32) for generator in (rng, fresh)]
        assert np.array_equal(*halves)
        assert np.array_equal(rng.standard_normal(9), fresh.standard_normal(9))


def test_purposes_do_not_disturb_each_other():
    streams = Streams.from_random_state(6)
    alone = streams.at(Purpose.PRIOR).random(10)
    rng = streams.at(Purpose.PRIOR)
    first = rng.random(4)
    streams.at(Purpose.LATENT, cell=3).random(7)
    assert np.array_equal(np.concatenate((first, rng.random(6))), alone)


def test_threads_do_not_disturb_each_other():
    streams = Streams.from_random_state(7)
    wanted = [streams.at(Purpose.LATENT, cell=k).random(5000) for k in range(16)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda k: streams.at(Purpose.LATENT, cell=k).random(5000), range(16)))
    assert np.array_equal(got, wanted)


def test_different_addresses_share_no_numbers():
    drawn = np.concatenate([numbers(Streams.from_random_state(5), address, 2000) for address in ADDRESSES])
    assert len(np.unique(drawn)) == len(drawn)


def test_purposes_are_distinct():
    assert len({int(purpose) for purpose in Purpose}) == len(Purpose)
    assert max(Purpose) < 256  # the chain begins at bit 8 of the counter word


def test_neighbouring_addresses_are_independent():
    """First number of 2000 consecutive cells, iterations and chains: uniform, and uncorrelated with the next."""
    streams = Streams.from_random_state(1)
    for what in ("cell", "iteration", "chain"):
        first = np.array([streams.at(Purpose.LATENT, **{what: k}).random() for k in range(2000)])
        assert stats.kstest(first, "uniform").pvalue > 1e-4
        assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 4.5 / np.sqrt(2000)


def test_long_draws_do_not_run_into_the_next_cell():
    streams = Streams.from_random_state(2)
    here = streams.at(Purpose.LATENT, cell=7).random(50_000)
    for neighbour in ({"cell": 8}, {"cell": 7, "iteration": 1}):
        assert not np.isin(streams.at(Purpose.LATENT, **neighbour).random(100), here).any()


@pytest.mark.parametrize("make", [lambda: 3, lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)])
def test_seeds_of_every_kind(make):
    a, b = Streams.from_random_state(make()), Streams.from_random_state(make())
    assert a == b
    assert a != Streams.from_random_state(4)
    assert all(0 <= word < 2**64 for word in a.key)


def test_a_generator_moves_on_and_none_is_fresh():
    rng = np.random.default_rng(3)
    assert Streams.from_random_state(rng) != Streams.from_random_state(rng)
    assert Streams.from_random_state(None) != Streams.from_random_state(None)


def test_largest_key():
    streams = Streams((2**64 - 1, 2**64 - 2))
    assert not np.array_equal(streams.at(Purpose.START).random(4), Streams((0, 0)).at(Purpose.START).random(4))
