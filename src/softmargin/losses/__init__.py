"""Losses: what a row says about its linear predictor, as a Gaussian message."""

from softmargin.losses.base import Loss, Message, Rows
from softmargin.losses.hinge import Hinge

__all__ = ["Hinge", "Loss", "Message", "Rows"]
