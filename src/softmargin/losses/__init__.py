"""Losses: what a row says about its linear predictor, as a Gaussian message."""

from softmargin.core.loss import Loss, Message, Rows
from softmargin.losses.check import Check
from softmargin.losses.complete_hinge import CompleteHinge
from softmargin.losses.epsilon import EpsilonInsensitive
from softmargin.losses.hinge import Hinge
from softmargin.losses.logit import Logit
from softmargin.losses.noisy_hinge import NoisyHinge
from softmargin.losses.probit import Probit
from softmargin.losses.row_loss import RowLoss
from softmargin.losses.squared import Squared
from softmargin.losses.squared_hinge import SquaredHinge
from softmargin.rows.loops import scalar

__all__ = [
    "Check",
    "CompleteHinge",
    "EpsilonInsensitive",
    "Hinge",
    "Logit",
    "Loss",
    "Message",
    "NoisyHinge",
    "Probit",
    "RowLoss",
    "Rows",
    "Squared",
    "SquaredHinge",
    "scalar",
]
