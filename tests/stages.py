"""Which cases of a long test belong to every run, and which to the second stage (``./check --slow``)."""

import pytest

LATER = pytest.mark.soak


def in_stages(cases, first=1):
    """The first cases in every run, all others in the second stage."""
    cases = list(cases)
    return [*cases[:first], *map(_later, cases[first:])]


def _later(case):
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, LATER], id=case.id)
    return pytest.param(*case, marks=LATER) if type(case) is tuple else pytest.param(case, marks=LATER)
