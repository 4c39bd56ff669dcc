import numpy as np
import pytest

from softmargin.losses.crammer_singer import CrammerSinger
from softmargin.losses.hinge import Hinge


def by_definition(label, c, f):
    k = f.shape[1]
    terms = [[1.0 - (r == y) + row[r] - row[y] for r in range(k)] for y, row in zip(label, f, strict=True)]
    return -2.0 * c * np.max(terms, axis=1)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, 60), rng.uniform(0.2, 2.0, 60), 1.5 * rng.standard_normal((60, 4))


def test_loglik_is_the_definition(rows):
    label, c, f = rows
    np.testing.assert_allclose(CrammerSinger().loglik(label, c, f), by_definition(label, c, f), rtol=1e-14)


@pytest.mark.parametrize("r", range(4))
def test_it_is_a_hinge_in_the_score_of_one_class(rows, r):
    """The loss less the hinge is the same number wherever the score of the class is."""
    label, c, f = rows
    y, offset = CrammerSinger().hinge(label, f, r)
    rest = []
    for score in np.linspace(-6.0, 6.0, 25):
        moved = f.copy()
        moved[:, r] = score
        rest.append(by_definition(label, c, moved) - Hinge().loglik(y, c, score - offset))
    np.testing.assert_allclose(rest, np.broadcast_to(rest[0], (25, 60)), atol=1e-12)
    assert np.unique(y).tolist() == [-1.0, 1.0]


def test_two_classes_are_the_binary_hinge_of_the_difference():
    rng = np.random.default_rng(1)
    label, c, f = rng.integers(0, 2, 30), rng.uniform(0.2, 2.0, 30), rng.standard_normal((30, 2))
    plain = Hinge().loglik(2.0 * label - 1.0, c, f[:, 1] - f[:, 0])
    np.testing.assert_allclose(CrammerSinger().loglik(label, c, f), plain, rtol=1e-13)
