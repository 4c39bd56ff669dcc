"""Every ablation runs, and says what it is known to say."""

import os
import warnings

import pytest

pytest.importorskip("arviz")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not os.environ.get("SOFTMARGIN_DATA"), reason="needs the data of the papers"),
]


@pytest.fixture(scope="module")
def tables():
    from benchmarks.ablations import PARTS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: part(True) for name, part in PARTS.items()}


def test_every_line_has_all_columns(tables):
    for _, head, lines in tables.values():
        assert lines
        assert {len(line) for line in lines} == {len(head)}


def test_mean_field_underestimates_standard_deviations_and_the_gaussian_does_not(tables):
    median = {line[1]: float(line[3]) for line in tables["approximations"][2]}
    assert median["meanfield"] < 0.75
    assert 0.9 < median["vb"] < 1.05


def test_chains_of_spike_and_slab_from_different_starts_agree(tables):
    apart = {line[1]: float(line[4]) for line in tables["selection"][2]}
    assert apart["all moves"] < 0.5
    assert apart["births and deaths in place of flips"] < 2.0


def test_plain_em_ends_above_the_minimum(tables):
    off = {(line[1], line[2]): line[5] for line in tables["modes"][2]}
    for prior in {key[0] for key in off}:
        assert off[prior, "newton, at most 500"] < 1e-10
        assert off[prior, "plain EM, at most 500"] > 1e-10


def test_the_printed_order_has_another_limit(tables):
    valid, printed = (float(line[-1]) for line in tables["order"][2])
    assert valid < 4 and printed > 10
