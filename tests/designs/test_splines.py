"""O'Sullivan splines: the penalty by another quadrature, straight lines, units, extrapolation."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from softmargin.designs.splines import Spline, middle_share

X = np.sort(np.random.default_rng(3).gamma(2.0, 1.0, 150))


def test_squared_length_is_the_roughness():
    """``|u|^2`` is the integral of f''^2 up to one factor, the same for every u; f'' by differences."""
    spline = Spline.of(X, inner_knots=6)
    rng, step = np.random.default_rng(1), 1e-4

    def bent(x, u):
        at = np.array([x - step, x, x + step])
        return float(np.diff(spline.columns(at) @ u, 2)[0]) / step**2

    ratios = []
    for _ in range(3):
        u = rng.standard_normal(spline.turn.shape[1])
        edges = np.unique(spline.knots)
        pieces = [quad(lambda x, u=u: bent(x, u) ** 2, lo + 2e-4, hi - 2e-4)[0] for lo, hi in pairwise(edges)]
        ratios.append(sum(pieces) / float(u @ u))
    assert np.ptp(ratios) < 0.01 * np.mean(ratios)


def test_spans_every_cubic_spline_with_the_straight_lines():
    spline = Spline.of(X, inner_knots=6)
    everything = np.column_stack((np.ones_like(X), X, spline.columns(X)))
    assert np.linalg.matrix_rank(everything) == 10  # six inner knots and four
    curve = X**3 - 2.0 * X**2
    fitted = everything @ np.linalg.lstsq(everything, curve, rcond=None)[0]
    assert np.abs(fitted - curve).max() < 1e-8 * np.abs(curve).max()


def test_columns_are_centred_and_do_not_depend_on_units():
    spline, other = Spline.of(X), Spline.of(1000.0 * X - 7.0)
    Z, same = spline.columns(X), other.columns(1000.0 * X - 7.0)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    assert (Z**2).sum(axis=1).mean() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(same @ same.T, Z @ Z.T, atol=1e-6)


def test_straight_beyond_the_end_points():
    spline = Spline.of(X)
    for side in (X[0] - np.arange(3.0), X[-1] + np.arange(3.0)):
        Z = spline.columns(side)
        np.testing.assert_allclose(Z[2] - Z[1], Z[1] - Z[0], atol=1e-10)
    near = spline.columns(np.array([X[-1] - 1e-6, X[-1] + 1e-6]))
    np.testing.assert_allclose(near[0], near[1], atol=1e-4)


def test_few_distinct_values():
    few = Spline.of(np.repeat([0.0, 1.0, 2.0, 5.0], 10))
    assert few.columns([0.5]).shape == (1, 4)
    with pytest.raises(ValueError, match="at least 4 distinct"):
        Spline.of(np.repeat([0.0, 1.0, 2.0], 10))


def test_values_whose_bends_cannot_be_told_from_straight_lines_are_refused():
    normal = np.random.default_rng(0).standard_normal(400)
    skewed = np.exp(2.0 * normal)
    everything = np.column_stack((np.ones(400), skewed / skewed.max(), Spline.of(skewed).columns(skewed)))
    assert np.linalg.matrix_rank(everything) == 24
    with pytest.raises(ValueError, match=r"half of them take \de-05 of their range; use their logarithm"):
        Spline.of(np.exp(4.0 * normal))


def test_share_of_the_middle_half():
    assert middle_share(np.repeat(np.arange(101.0), 3)) == pytest.approx(0.5)
    assert middle_share(np.array([0.0, 1.0, 2.0, 3.0, 400.0])) == pytest.approx(2.0 / 400.0)
