"""Solvers: coordinates for the coefficients, and the Gaussian they have given the row messages."""

from softmargin.solvers.cg.solver import ConjugateGradients
from softmargin.solvers.cholesky import Cholesky
from softmargin.solvers.coordinates import Coordinates, Solver
from softmargin.solvers.dual import Dual
from softmargin.solvers.gaussian import Gaussian

__all__ = ["Cholesky", "ConjugateGradients", "Coordinates", "Dual", "Gaussian", "Solver"]
