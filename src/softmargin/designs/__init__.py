"""Design matrices: a few products each, so that algorithms never ask how the columns are stored."""

from softmargin.core.design import Design
from softmargin.designs.dense import Dense
from softmargin.designs.sparse import Sparse
from softmargin.designs.standardize import Columns, design_for, standardize

__all__ = ["Columns", "Dense", "Design", "Sparse", "design_for", "standardize"]
