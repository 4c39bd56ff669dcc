"""Rows that are held apart, each block by a holder of its own, to which everything travels as bytes."""

import pickle
import weakref
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from engine_problems import build, simulated

from softmargin.losses import Hinge
from softmargin.priors import Ridge
from softmargin.rows.block import CELL, Block
from softmargin.rows.by_visits import ByVisits
from softmargin.rows.in_memory import Blocks
from softmargin.rows.summation import TreeSum

N = 19_500  # ten cells, the last one short
_numbers = count()


def ten_cells():
    """Rows, responses and weights."""
    X, y = simulated(N, 6)
    return X, y, np.random.default_rng(1).uniform(0.2, 2.0, N)


def problem(rows, *, prior=None, loss=None):
    """A model of such rows."""
    X, y, c = rows
    return replace(build(X, y, c=c, prior=prior or Ridge()), loss=loss or Hinge())


class Holder:
    """One block of rows and what visits left with it; it is spoken to in bytes, and answers in bytes."""

    def __init__(self, content):
        self.block, self.kept = Block(*pickle.loads(content)), {}

    def called(self, letter):
        kind, rules, visit, small, kept, number = pickle.loads(letter)
        if kind == "single":
            self.block.design = self.block.design.single()
            return None
        if kind == "forget":
            del self.kept[number]
            return None
        if kind == "pick":
            return pickle.dumps((self.block.design.pick(small), self.block.y[small], self.block.weight[small]))
        if kind == "fetch":
            return pickle.dumps(self.kept[number])
        if kind == "place":
            self.kept[number] = small
            return None
        with np.errstate(**rules):
            answer = visit(self.block, small, *(self.kept[each] for each in kept))
        if kind == "keep":
            self.kept[number], answer = answer
        return pickle.dumps(answer)


@dataclass(frozen=True, eq=False)
class Handle:
    """The number under which every holder has its part of the vectors."""

    number: int
    holders: tuple

    def __post_init__(self):
        weakref.finalize(self, _forget, self.number, self.holders)

    def fetch(self):
        parts = [pickle.loads(each.called(_letter("fetch", number=self.number))) for each in self.holders]
        return type(parts[0])(
            *(None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True))
        )


def _letter(kind, visit=None, small=None, kept=(), number=None):
    return pickle.dumps((kind, np.geterr(), visit, small, tuple(each.number for each in kept), number))


def _forget(number, holders):
    for each in holders:
        each.called(_letter("forget", number=number))


class Columns:
    """What is known here of columns that are elsewhere: some rows, picked."""

    def __init__(self, rows):
        self.picked, self.shape, self.intercept = rows.pick, rows.shape, True

    def offers(self, *names):
        return set(names) <= {"single", "pick"}

    def rows(self, index):
        return self.picked(index).design.rows(np.arange(len(index)))


class Distant(ByVisits):
    """The four verbs over holders; of vectors over rows, responses and weights alone are here unless fetched."""

    def __init__(self, contents, shape):
        self.contents, self.shape, self.has_residual = contents, shape, False
        self.y, self.weight = (
            np.concatenate(each) for each in zip(*(pickle.loads(c)[1:3] for c in contents), strict=True)
        )
        self.holders = tuple(Holder(each) for each in contents)
        self.passes = 0

    @classmethod
    def of(cls, blocks, n_blocks):
        """The rows of a dense design, cut into about equal runs of cells."""
        design, contents = blocks.design, []
        for group in np.array_split(np.arange(len(blocks.cells)), n_blocks):
            lo, hi = CELL * group[0], min(CELL * (group[-1] + 1), design.shape[0])
            part = design.pick(slice(lo, hi)), blocks.y[lo:hi], blocks.weight[lo:hi], 0.0, int(group[0]), 0, hi - lo
            contents.append(pickle.dumps(part))
        return cls(contents, design.shape)

    def _sent(self, letter):
        self.passes += 1
        answers = [pickle.loads(each.called(letter)) for each in self.holders]
        total = ()
        for trees in zip(*answers, strict=True):
            joined = TreeSum()
            for tree in trees:
                for node in tree.nodes:
                    joined.push(*node)
            total += joined.total()
        return total

    def sum(self, visit, small=None, *kept):
        return self._sent(_letter("sum", visit, small, kept))

    def keep(self, visit, small=None, *kept):
        number = next(_numbers)
        sums = self._sent(_letter("keep", visit, small, kept, number))
        return Handle(number, self.holders), sums

    def fetch(self, kept):
        return kept.fetch()

    def place(self, vectors):
        number, at = next(_numbers), 0
        for each in self.holders:
            part = type(vectors)(*(None if x is None else x[at : at + each.block.size] for x in vectors))
            each.called(_letter("place", small=part, number=number))
            at += each.block.size
        return Handle(number, self.holders)

    def pick(self, index):
        parts, at = [], 0
        for each in self.holders:
            own = index[(index >= at) & (index < at + each.block.size)] - at
            parts.append(pickle.loads(each.called(_letter("pick", small=own))))
            at += each.block.size
        designs, y, weight = zip(*parts, strict=True)
        design = replace(designs[0], X=np.concatenate([each.X for each in designs]))
        return Blocks(design, np.concatenate(y), np.concatenate(weight))

    @property
    def design(self):
        return Columns(self)

    def serial(self):
        return self

    def parallel(self, call, items):
        return [call(each) for each in items]

    def single(self):
        """The same holders, whose columns answer in single precision; what was kept stays where it is."""
        twin = self._twin(self.contents)
        for own in twin.holders:
            own.called(_letter("single"))
        return twin

    def _twin(self, contents):
        """Other contents of the holders, which have what was kept."""
        twin = Distant(contents, self.shape)
        for own, other in zip(twin.holders, self.holders, strict=True):
            own.kept = other.kept
        return twin

    def reweighted(self, factor):
        changed = []
        for content in self.contents:
            design, y, weight, *rest = pickle.loads(content)
            changed.append(pickle.dumps((design, y, factor * weight, *rest)))
        return self._twin(changed)
