"""Random numbers and formulas of a device, in numba-cuda's simulator: those of the processor."""

import os
import subprocess
import sys

import numpy as np
import pytest

from softmargin.rows.block import CELL
from softmargin.rows.device.numbers import CellNumbers
from softmargin.rows.streams import Purpose, Streams

pytest.importorskip("numba_cuda")

_NUMBERS = """
import numpy as np
from softmargin.rows.block import CELL
from softmargin.rows.device.libraries import HOST
from softmargin.rows.device.numbers import CellNumbers, DeviceNumbers
np.seterr(over="ignore")
where = (2**63 + 987, 123456789012345678), (7, 3 << 8 | 1), 5, CELL + 300
device, host = DeviceNumbers(HOST, *where), CellNumbers(*where)
for name in ("standard_normal", "random", "standard_normal"):
    found, wanted = getattr(device, name)(where[-1]), getattr(host, name)(where[-1])
    assert np.abs(found - wanted).max() < 1e-14, name
"""

_FORMULAS = """
import numpy as np
from softmargin.losses import Check, EpsilonInsensitive, Hinge, Logit, Probit, Squared, SquaredHinge
from softmargin.rows.device.libraries import HOST
rng, n = np.random.default_rng(0), 40
for loss in (Hinge(), SquaredHinge(), EpsilonInsensitive(0.3), Squared(), Check(0.3), Logit(), Probit()):
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    v = np.geomspace(1e-4, 1e4, n)
    rows = {"y": y, "c": rng.uniform(0.1, 2.0, n), "f": 3.0 * rng.standard_normal(n), "v": v}
    for name in ("loglik", "score", "expect", "gaussian"):
        formula = vars(type(loss))[name].__closure__[0].cell_contents.formula()
        given = [rows[each] if each in rows else getattr(loss, each) for each in formula.names]
        found = HOST.run(formula, n, given)
        wanted = getattr(loss, name)(*list(rows.values())[: 4 if len(found) == 3 else 3])
        for own, other in zip(found, wanted if len(found) > 1 else (wanted,), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-11, atol=1e-13)
"""


@pytest.mark.parametrize("what", ["numbers", "formulas"])
def test_kernels_in_the_simulator_give_what_the_processor_gives(what):
    script = {"numbers": _NUMBERS, "formulas": _FORMULAS}[what]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_cells_have_the_numbers_of_their_streams():
    streams, size = Streams.from_random_state(3), 2 * CELL + 9
    numbers = CellNumbers(streams.key, (4, 2 << 8 | int(Purpose.LATENT)), 0, size)
    normal, uniform = numbers.standard_normal(size), numbers.random(size)
    for cell, lo in enumerate(range(0, size, CELL)):
        rng, n = streams.at(Purpose.LATENT, chain=2, iteration=4, cell=cell), min(CELL, size - lo)
        np.testing.assert_array_equal(normal[lo : lo + n], rng.standard_normal(n))
        np.testing.assert_array_equal(uniform[lo : lo + n], rng.random(n))
