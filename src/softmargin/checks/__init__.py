"""Public checks: does a loss, prior, design, solver, unknown or move keep the promises that the engines rely on?

Each check returns None, or raises an AssertionError whose one sentence names the property that fails. Identities hold
to rounding; random draws are compared in units of their standard error, with one declared limit and a fixed seed.
"""

from softmargin.checks.design import check_design, check_solver
from softmargin.checks.loss import check_loss
from softmargin.checks.moves import check_move
from softmargin.checks.prior import check_prior
from softmargin.checks.unknown import check_unknown

__all__ = ["check_design", "check_loss", "check_move", "check_prior", "check_solver", "check_unknown"]
