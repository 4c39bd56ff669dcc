"""Problems of rows on a device."""

from dataclasses import replace

import numpy as np

from softmargin.designs.device import DeviceDense
from softmargin.designs.standardize import Columns
from softmargin.rows.device.libraries import HOST
from softmargin.rows.device.on_device import OnDevice
from softmargin.solvers import Cholesky


def on_device(model, library=HOST, dtype=np.float64):
    """The same problem with its rows on a device."""
    design = model.blocks.design
    columns = Columns(np.arange(design.X.shape[1]), design.shift, design.scale, design.intercept, design.X.shape[1])
    sent = DeviceDense.standardized(library, library.take(design.X.astype(dtype)), columns)
    rows = OnDevice(library, sent, model.blocks.y, model.blocks.weight)
    return replace(model, blocks=rows, space=Cholesky().coordinates(sent).space)
