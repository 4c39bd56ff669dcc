"""What parts may offer is declared once, and one check before the loop compares it with what is needed."""

import importlib
import pkgutil

import numpy as np
import pytest

import softmargin.engines
from softmargin.core.capabilities import Part, optional, require
from softmargin.core.design import Design
from softmargin.core.loss import Loss
from softmargin.core.prior import Prior, PriorBase
from softmargin.core.space import Root, Space
from softmargin.core.unknown import Unknown
from softmargin.designs import Dense
from softmargin.losses import Hinge, Probit
from softmargin.priors import Horseshoe, Ridge, SpikeSlab
from softmargin.solvers import Dual

KINDS = {"loss": Loss, "prior": PriorBase, "design": Design}


def engines():
    """Every class of the engines that says what it needs."""
    for found in pkgutil.walk_packages(softmargin.engines.__path__, "softmargin.engines."):
        module = importlib.import_module(found.name)
        for each in vars(module).values():
            if isinstance(each, type) and each.__module__ == found.name:
                yield each


def test_a_part_offers_what_it_writes_and_not_what_its_kind_alone_declares():
    class Kind(Part):
        given: int
        known = True

        @optional
        def ability(self):
            """What it would do."""
            raise NotImplementedError

    class Able(Kind):
        def ability(self):
            return 1

    assert Kind.declared == {"given": "", "ability": "What it would do."}
    assert Able().offers("ability", "known") and not Kind().offers("ability") and not Able().offers("given", "ability")
    with pytest.raises(AttributeError):
        _ = Kind().ability


@pytest.mark.parametrize("engine", sorted(set(engines()), key=repr), ids=lambda engine: engine.__name__)
def test_what_an_engine_needs_is_declared_by_the_kind_of_part(engine):
    for kind, base in KINDS.items():
        needs = vars(engine).get(f"needs_{kind}", ())
        for name in () if isinstance(needs, property) else needs:
            assert name in base.declared or name in dir(base), f"{engine.__name__} needs {name} of a {kind}"


def test_the_check_names_both_parts_what_is_missing_and_the_way_out():
    free = np.zeros(2, dtype=bool)
    with pytest.raises(TypeError, match=r"^Dual needs a prior with 'isotropic', which Horseshoe does not have; choose"):
        require(Dual(), prior=Horseshoe())
    require(Dual(), prior=Ridge())
    with pytest.raises(TypeError, match="needs a prior with 'expect', which BoundSpikeSlab does not have"):
        require(softmargin.engines.vi.gaussian.GaussianVI(), loss=Hinge(), prior=SpikeSlab().bind(free))


def test_parts_of_the_library_say_what_they_lack():
    free = np.zeros(2, dtype=bool)
    assert Hinge().offers("loglik", "score", "expect", "gaussian", "draw", "pieces", "margin_slope")
    assert not Probit().offers("pieces") and not Probit().offers("margin_slope") and Probit().offers("gaussian")
    assert Ridge().bind(free).offers("mode", "penalty", "tempered", "isotropic")
    assert not Horseshoe().bind(free).offers("mode") and not Horseshoe().bind(free).offers("has_mode")
    assert Dense.plain(np.ones((2, 2))).offers("single", "pick", "moments") and not Dense.plain(np.ones((2, 2))).whole


@pytest.mark.parametrize("kind", [Loss, PriorBase, Prior, Design, Space, Root, Unknown])
def test_every_kind_says_what_each_ability_is(kind):
    assert all(kind.declared[name] for name in kind.declared if name not in kind.__annotations__)
