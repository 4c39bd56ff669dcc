"""Rows on a device, with NumPy in its place: a step of an engine is that of rows in memory, to rounding."""

from dataclasses import replace

import numpy as np
import pytest
from engine_problems import build, simulated

from softmargin.core.loop import run
from softmargin.designs.device import DeviceDense
from softmargin.designs.standardize import Columns
from softmargin.engines.vi.fixed_point import EM, MeanField
from softmargin.engines.vi.gaussian import GaussianVI
from softmargin.losses import EpsilonInsensitive, Hinge, Squared
from softmargin.priors import Lasso, Ridge
from softmargin.rows.device.algebra import DeviceAlgebra
from softmargin.rows.device.libraries import HOST
from softmargin.rows.device.on_device import OnDevice
from softmargin.solvers.full import Full

N = 5000  # three cells, the last one short


def on_device(model, library=HOST, dtype=np.float64):
    """The same problem with its rows on a device."""
    design = model.blocks.design
    columns = Columns(np.arange(design.X.shape[1]), design.shift, design.scale, design.intercept, design.X.shape[1])
    sent = DeviceDense.standardized(library, library.take(design.X.astype(dtype)), columns)
    rows = OnDevice(library, sent, model.blocks.y, model.blocks.weight)
    return replace(model, blocks=rows, space=Full(algebra=DeviceAlgebra(library)))


def problem(prior, loss=None):
    X, y = simulated(N, 7)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, N)
    return replace(build(X, y, c=weight, prior=prior), loss=loss or Hinge())


CASES = {
    "vb": (GaussianVI(), Ridge(), None),
    "vb of regression, lasso": (GaussianVI(), Lasso(), EpsilonInsensitive(0.3)),
    "meanfield": (MeanField(), Ridge(), None),
    "meanfield of squares": (MeanField(), Ridge(), Squared()),
    "map": (EM(smoothing=0.03), Ridge(scale=0.7), None),  # sharper kinks amplify last bits
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_rows_in_memory(name):
    engine, prior, loss = CASES[name]
    here = problem(prior, loss)
    there = on_device(here)
    for steps in (1, 3):
        wanted, found = run(engine, here, max_iter=steps).state, run(engine, there, max_iter=steps).state
        np.testing.assert_allclose(found.q.mean, wanted.q.mean, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.objective, wanted.objective, rtol=1e-11)
        if name != "map":
            np.testing.assert_allclose(found.q.root, wanted.q.root, rtol=1e-8, atol=1e-11)
        for own, other in zip(found.rows.fetch(), wanted.rows.fetch(), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-9)
