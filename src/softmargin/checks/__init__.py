"""Public checks: does a loss, prior, design, solver or move keep the promises that the engines rely on?

Each check returns None, or raises an AssertionError whose one sentence names the property that fails. Identities hold
to rounding; random draws are compared in units of their standard error, with one declared limit and a fixed seed.
"""

from __future__ import annotations

from softmargin.checks.moves import check_move
from softmargin.checks.parts import check_design, check_loss, check_prior, check_solver

__all__ = ["check_design", "check_loss", "check_move", "check_prior", "check_solver"]
