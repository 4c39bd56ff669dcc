"""Losses written as scalar formulas: arguments by name, shapes, code kept on disk, and losses defined by a user."""

import doctest
import importlib
import math
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from parts import LOSSES, each

from softmargin.core.model import require
from softmargin.losses import EpsilonInsensitive, Hinge, Logit, Message, RowLoss, Rows, row_loss, scalar

USER = """
import math
from dataclasses import dataclass
from softmargin.losses import RowLoss, scalar
from helping import bend

@dataclass(frozen=True)
class Quartic(RowLoss):
    scale: float = 2.0

    @staticmethod
    def loglik(y, c, f, scale):
        return -c * bend((y - f) / scale)

    @staticmethod
    def draw(y, c, f, normal, uniform):
        return c + uniform, y + normal
"""
HELP = """
from softmargin.losses import scalar

@scalar
def bend(e):
    return {factor} * e ** 4
"""
USE = """
import numpy as np
print(Quartic().loglik(0.0, 1.0, np.array([2.0]))[0])
"""


def hits(face):
    """How often the machine code of a face was found on disk."""
    (cell,) = face.__closure__
    return cell.cell_contents.made[1].stats.cache_hits.total()


def test_the_example_of_the_base_runs():
    result = doctest.testmod(row_loss)
    assert result.attempted >= 7 and result.failed == 0


@pytest.mark.parametrize("case", each(LOSSES))
def test_any_shape_is_answered_row_by_row(case):
    """Rows that are not contiguous, arrays with two axes, and numbers for all rows."""
    f = np.linspace(-2.0, 2.0, 12)
    y, c = np.resize(case.responses, 12), np.resize([1.0, 2.0, 3.0], 12)
    wanted = case.loss.loglik(y, c, f)
    twice = [np.repeat(part, 2)[::2] for part in (y, c, f)]
    np.testing.assert_array_equal(case.loss.loglik(*twice), wanted)
    found = case.loss.loglik(*[part.reshape(3, 4) for part in (y, c, f)])
    np.testing.assert_array_equal(found, wanted.reshape(3, 4))
    np.testing.assert_array_equal(case.loss.score(y[0], 1, f), case.loss.score(np.full(12, y[0]), np.ones(12), f))
    assert case.loss.loglik(y[:0], c[:0], f[:0]).shape == (0,)


@dataclass(frozen=True)
class Shifted(RowLoss):
    """Every kind of argument: rows, two normals, a uniform, a field and a property."""

    shift: float = 0.5

    @property
    def twice(self):
        return 2 * self.shift

    @staticmethod
    def draw(uniform, normal_first, f, normal_second, twice, y, c, shift):
        return c * uniform + normal_first, y * normal_second + f * twice + shift


def test_arguments_are_found_by_their_names():
    y, c, f = np.array([1.0, -1.0, 1.0]), np.array([1.0, 2.0, 3.0]), np.array([0.3, 0.7, -5.0])
    rng = np.random.default_rng(4)
    uniform, first, second = rng.random(3), rng.standard_normal(3), rng.standard_normal(3)
    w, b = Shifted(0.25).draw(np.random.default_rng(4), y, c, f)
    np.testing.assert_allclose(w, c * uniform + first, rtol=1e-15)
    np.testing.assert_allclose(b, y * second + f * 0.5 + 0.25, rtol=1e-14)


def test_a_face_that_is_left_out_is_not_there_and_an_engine_says_so():
    class Engine:
        needs_loss = ("gaussian",)

    assert not hasattr(Shifted(), "loglik") and not Shifted().offers("draw", "gaussian") and Shifted().offers("draw")
    with pytest.raises(TypeError, match="Engine needs a loss with 'gaussian', which Shifted does not have"):
        require(Engine(), loss=Shifted(), prior=None)


@scalar
def _square(x):
    return x * x


@dataclass(frozen=True)
class Scaled(RowLoss):
    """Formulas that call a shared function, in a subclass of which one face is written for arrays."""

    slope: float = 2.0

    @staticmethod
    def loglik(y, c, f, slope):
        return -slope * c * _square(y - f)

    @staticmethod
    def score(y, c, f, slope):
        return 2.0 * slope * c * (y - f)


class Halved(Scaled):
    def score(self, y, c, f):
        return 0.5 * super().score(y, c, f)


def test_a_subclass_changes_one_face_by_a_formula_or_by_arrays():
    y, c, f = np.ones(3), np.ones(3), np.array([0.0, 0.5, 3.0])
    np.testing.assert_allclose(Halved(3.0).score(y, c, f), 3.0 * (y - f))
    np.testing.assert_allclose(Halved(3.0).loglik(y, c, f), -3.0 * (y - f) ** 2)

    @dataclass(frozen=True)
    class Other(Scaled):
        @staticmethod
        def loglik(y, c, f):
            return c * math.exp(-abs(y - f))

    np.testing.assert_allclose(Other().loglik(y, c, f), np.exp(-np.abs(y - f)))
    np.testing.assert_allclose(Other().score(y, c, f), Scaled().score(y, c, f))


def test_formulas_over_a_variable_are_told_apart():
    """Two classes of one name and one text, whose formulas see different numbers."""

    def make(factor):
        class Local(RowLoss):
            @staticmethod
            def loglik(y, c, f):
                return factor * c * f

        return Local()

    one = np.ones(2)
    assert [make(k).loglik(one, one, one)[0] for k in (2.0, 3.0, 2.0)] == [2.0, 3.0, 2.0]


def test_losses_say_what_they_are():
    assert Hinge().margin_slope == 2.0 and Logit().margin_slope == 0.0
    assert Logit().normalised and not Hinge().normalised
    assert math.isnan(Hinge().latent_variance) and EpsilonInsensitive(0.4).band == 0.4 and Hinge().band is None
    assert EpsilonInsensitive(0.4).get_params() == {"epsilon": 0.4} and Hinge().get_params() == {}


def test_losses_travel():
    loss = pickle.loads(pickle.dumps(EpsilonInsensitive(0.4)))
    one = np.ones(2)
    assert loss == EpsilonInsensitive(0.4) and isinstance(loss.expect(one, one, one, one), Message)
    assert isinstance(loss.draw(np.random.default_rng(0), one, one, one), Rows)


def test_threads_that_meet_at_a_first_call_agree():
    class Fresh(RowLoss):
        @staticmethod
        def loglik(y, c, f):
            return c * y * f

    one = np.ones(100)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, one) for found in pool.map(lambda _: Fresh().loglik(one, one, one), range(8)))


def process(folder, *arguments):
    """What another process prints, and no warning."""
    command = [sys.executable, "-W", "error::RuntimeWarning", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's module, and one that its formulas call."""
    (tmp_path / "own.py").write_text(USER)
    (tmp_path / "helping.py").write_text(HELP.format(factor=1.0))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def test_a_users_file_is_compiled_once_and_again_when_a_formula_or_what_it_calls_changes(folder):
    def fresh():
        """As a process has it that imports both modules for the first time."""
        for name in ("own", "helping"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        kind = importlib.import_module("own").Quartic
        value = kind().loglik(0.0, 1.0, np.array([2.0]))[0]
        return value, hits(kind.loglik)

    assert [fresh(), fresh()] == [(-1.0, 0), (-1.0, 1)]
    (folder / "helping.py").write_text(HELP.format(factor=3.0))
    assert [fresh(), fresh()] == [(-3.0, 0), (-3.0, 1)]
    (folder / "own.py").write_text(USER.replace("-c * bend", "-2.0 * c * bend"))
    assert fresh() == (-6.0, 0)


def test_a_loss_of_a_script_and_one_of_a_prompt_work(folder):
    (folder / "script.py").write_text(USER + USE)
    assert process(folder, "script.py") == ["-1.0"]
    assert process(folder, "-c", USER + USE) == ["-1.0"]


def test_formulas_run_where_nothing_is_compiled(folder, monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert process(folder, "-c", USER + USE) == ["-1.0"]


def test_code_of_the_librarys_losses_is_found_by_other_processes(tmp_path):
    one = np.ones(3)
    Hinge().gaussian(one, one, one, one)
    code = """
import numpy as np
from softmargin.losses import Hinge
one = np.ones(3)
Hinge().gaussian(one, one, one, one)
(cell,) = Hinge.gaussian.__closure__
print(cell.cell_contents.made[1].stats.cache_hits.total())
"""
    assert process(tmp_path, "-c", code) == ["1"]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("fixed", [False, True])
def test_multiples_of_predictors_in_one_loop_are_those_one_by_one(name, fixed):
    loss, responses = LOSSES[name].loss, LOSSES[name].responses
    rng = np.random.default_rng(0)
    y, c = np.resize(responses, 40), np.resize([1.0, 2.0], 40)
    along, rest = rng.standard_normal(40), [rng.standard_normal(40)] if fixed else []
    factors = [0.3, 1.0, 2.7, 0.0]
    found = loss.loglik_along(y, c, factors, along, *rest)
    for factor, values in zip(factors, found, strict=True):
        f = factor * along + (rest[0] if fixed else 0.0)
        np.testing.assert_allclose(values, loss.loglik(y, c, f), rtol=1e-13, atol=1e-14)
    strided = loss.loglik_along(y, c, factors, np.repeat(along, 2)[::2], *rest)  # not as the loop wants it
    np.testing.assert_allclose(np.array(strided), np.array(found), rtol=1e-13, atol=1e-14)
