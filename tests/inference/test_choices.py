"""The rule by which tilt and rate are chosen, on tasks whose answers are made up, and its parts against definitions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from softmargin.inference.choices import Candidate, Refits, Rules, Trial, choose, entropy, refitted, tilted


class Made:
    """A task with given leave-one-out objectives and losses of refits."""

    base, tilts, even, entropy = 0.25, True, False, 0.69

    def __init__(self, objectives, gains=None, n=400, scales=None):
        self.objectives, self.gains, self.scales = objectives, gains or {}, scales or {}
        self.count, self.asked = np.ones(n), []
        noise = np.random.default_rng(0).standard_normal(n)
        self.noise = (noise - noise.mean()) / noise.std()

    def trial(self, candidate, least=0.0):
        self.asked.append(candidate)
        scale = self.scales.get(candidate, 1.0)
        return None if scale < least else Trial(self.objectives.get(candidate, 1.0), 0.1, scale, candidate)

    def refits(self, candidate, trial, rival=None):
        level = self.gains.get(candidate, 0.0)
        if level is None:
            return None
        values = np.full(len(self.noise), 0.5 - level) + (0.1 * self.noise if level else 0.0)
        return Refits(values, np.arange(len(values)), self.count)


TILTED, PLAIN, NEXT = Candidate(True, 0.25), Candidate(False, 0.25), Candidate(True, 0.5)


@pytest.mark.parametrize(("better", "taken"), [(0.0, TILTED), (0.001, PLAIN)])
def test_tilt_is_chosen_by_the_lower_leave_one_out_objective(better, taken):
    task = Made({TILTED: 0.5, PLAIN: 0.5 - better, NEXT: 0.5, Candidate(False, 0.5): 0.5})
    found = choose(task, Rules())
    assert found.candidate == taken
    assert found.trial.fit == taken


def test_a_plain_fit_whose_scale_collapses_is_dropped_whatever_its_score():
    found = choose(Made({TILTED: 0.5, PLAIN: 0.1, NEXT: 0.5}, scales={PLAIN: 0.01}), Rules())
    assert found.candidate == TILTED
    assert np.isnan(found.record.table()["score"][1])


def test_scales_below_which_a_plain_fit_is_dropped_are_those_of_its_own_rate():
    """A lower rate has a smaller scale, and that of the tilted fit at the base rate says nothing about it."""
    low = Candidate(False, 0.125)
    objectives = {TILTED: 0.5, PLAIN: 0.4, Candidate(False, 0.5): 0.45, low: 0.3, Candidate(False, 0.0625): 0.3}
    found = choose(Made(objectives, scales={TILTED: 2.0, PLAIN: 1.5, low: 0.3}), Rules(lower=(0.5, 0.25)))
    assert found.candidate == low
    assert found.least == pytest.approx(0.3 * Rules.dropped * 2.0 / 1.5)
    at_base = choose(Made({TILTED: 0.5, PLAIN: 0.4}, scales={TILTED: 2.0, PLAIN: 1.5}), Rules())
    assert at_base.least == pytest.approx(Rules.dropped * 2.0)


def test_classes_of_one_size_have_one_fit_at_the_base_rate():
    task = Made({TILTED: 0.5, NEXT: 0.5})
    task.even = True
    choose(task, Rules())
    assert PLAIN not in task.asked


@pytest.mark.parametrize(
    ("gain_left_out", "gain_refits", "taken"),
    [
        (0.004, 0.10, 0.25),  # too little for leave-one-out to open the question
        (0.100, 0.004, 0.25),  # refits: 0.004 with a standard error of 0.005
        (0.100, 0.006, 0.5),  # more than one standard error
        (0.100, None, 0.25),  # a class with a single row cannot be left out
    ],
)
def test_a_higher_rate_needs_leave_one_out_and_refits(gain_left_out, gain_refits, taken):
    task = Made({TILTED: 0.5, NEXT: 0.5 - gain_left_out, Candidate(True, 1.0): 0.5}, {NEXT: gain_refits})
    assert choose(task, Rules()).candidate.rate == taken


def test_rates_rise_step_by_step_and_the_record_says_what_was_taken():
    rates = [Candidate(True, rate) for rate in (0.5, 1.0, 2.0)]
    objectives = {TILTED: 0.6} | {rate: 0.5 - 0.1 * k for k, rate in enumerate(rates[:2])} | {rates[2]: 0.4}
    found = choose(Made(objectives, {rates[0]: 0.1, rates[1]: 0.2}), Rules())
    assert found.candidate == rates[1]
    table = found.record.table()
    assert table.loc[table["taken"], "learning_rate"].unique().tolist() == [1.0]
    assert set(table["method"]) == {"leave-one-out", "folds"}
    assert (table["seconds"] >= 0).all()
    assert table.loc[table["method"] == "folds", "standard_error"].notna().all()


@pytest.mark.parametrize(
    ("up", "down", "taken"),
    [
        (0.5003, 0.4, 0.25),  # from 0.5 to 0.25 there was next to no gain: lower rates are not asked
        (0.51, 0.4997, 0.25),  # too little
        (0.51, 0.49, 0.125),
        (0.49, 0.4, 0.25),  # a higher rate looked better, and refits did not agree
    ],
)
def test_a_lower_rate_is_taken_by_leave_one_out_where_halving_pays(up, down, taken):
    objectives = {TILTED: 0.5, NEXT: up, Candidate(True, 0.125): down, Candidate(True, 0.0625): down}
    assert choose(Made(objectives), Rules(lower=(0.5, 0.25))).candidate.rate == taken
    assert choose(Made(objectives), Rules()).candidate.rate == 0.25


def test_a_constant_fit_goes_on_to_higher_rates_only_where_the_rules_say_so():
    flat = {TILTED: 0.69, NEXT: 0.69, Candidate(True, 1.0): 0.3, Candidate(True, 2.0): 0.3}
    gains = {Candidate(True, 1.0): 0.3}
    assert choose(Made(flat, gains), Rules()).candidate == TILTED
    assert choose(Made(flat, gains), Rules(flat=0.9)).candidate.rate == 1.0


def test_tilted_weights_are_balanced_weights_times_what_rows_say_about_a_logit():
    label = np.repeat([0, 1], [30, 10])
    balanced = compute_class_weight("balanced", classes=np.array([0, 1]), y=label)[label]
    share = 0.25
    np.testing.assert_allclose(tilted(label, np.ones(40)), balanced * 4.0 * share * (1.0 - share))
    np.testing.assert_allclose(np.unique(tilted(label, np.ones(40))), [2 * 0.25, 2 * 0.75])


def test_tilted_weights_count_rows_by_their_weight_and_each_class_alike():
    label, count = np.array([0, 0, 1, 2]), np.array([3.0, 1.0, 2.0, 6.0])
    repeated = tilted(np.repeat(label, count.astype(int)), np.ones(12))
    np.testing.assert_allclose(np.repeat(tilted(label, count), count.astype(int)), repeated)
    total = np.bincount(label, count * tilted(label, count))
    np.testing.assert_allclose(total, total[0])


def test_entropy_is_the_log_loss_of_the_class_shares():
    label, count = np.array([0, 1, 1, 2]), np.array([1.0, 2.0, 1.0, 4.0])
    share = np.array([1, 3, 4]) / 8
    assert entropy(label, count) == pytest.approx(-(count @ np.log(share[label])) / 8)


def test_folds_leave_every_row_out_once_with_the_class_shares_of_all_rows():
    rng = np.random.default_rng(0)
    label, order = np.repeat([0, 1], [50, 20]), rng.random(70)

    def value(train, test):
        assert len(np.intersect1d(train.rows, test.rows)) == 0
        assert len(train.rows) + len(test.rows) == 70
        assert (train.share == 1.0).all() and (test.share == 1.0).all()
        assert (label[test.rows] == 1).sum() == 4
        return order[test.rows]

    found = refitted(label, order, np.ones(70), 5, value)
    assert sorted(found.rows) == list(range(70))
    np.testing.assert_array_equal(found.values, order[found.rows])


def groups(label, order, count, **options):
    """What every fold tests: number of the row's order, and how many observations."""
    found = []

    def value(train, test):
        seen = {}
        for row, share in zip(test.rows, test.share, strict=True):
            seen[order[row]] = seen.get(order[row], 0.0) + share * count[row]
        found.append({key: round(number, 9) for key, number in sorted(seen.items())})
        np.testing.assert_allclose(
            sum(train.share * count[train.rows]) + sum(test.share * count[test.rows]), count.sum()
        )
        return np.zeros(len(test.rows))

    refitted(label, order, count, 5, value, **options)
    return found


def test_folds_do_not_depend_on_the_order_of_the_rows():
    rng = np.random.default_rng(1)
    label, order, turn = np.repeat([0, 1], [23, 17]), rng.random(40), rng.permutation(40)
    assert groups(label, order, np.ones(40)) == groups(label[turn], order[turn], np.ones(40))


@pytest.mark.parametrize("together", [False, True])
def test_a_row_that_counts_three_times_is_dealt_out_as_three_copies(together):
    rng = np.random.default_rng(2)
    label, order, count = np.repeat([0, 1], [12, 9]), rng.random(21), rng.integers(1, 5, 21)
    again = np.repeat(np.arange(21), count)
    copies = groups(label[again], order[again], np.ones(len(again)), together=together)
    assert groups(label, order, count.astype(float), together=together) == copies


def test_a_class_of_one_row_has_no_folds():
    nothing = refitted(np.array([0, 0, 0, 1]), np.arange(4.0), np.ones(4), 5, lambda train, test: np.zeros(1))
    assert nothing is None


@pytest.mark.parametrize(("better", "folds"), [(-0.1, 3), (0.1, 5)])
def test_refits_end_early_only_where_most_folds_prefer_the_rival(better, folds):
    label, asked = np.arange(100) % 2, []

    def value(train, test):
        asked.append(test.rows)
        return np.full(len(test.rows), 0.5 - better)

    def rivals(train, test):
        return np.full(len(test.rows), 0.5)

    rival = refitted(label, np.arange(100.0), np.ones(100), 5, rivals)
    found = refitted(label, np.arange(100.0), np.ones(100), 5, value, rival=rival)
    assert len(asked) == folds
    np.testing.assert_array_equal(found.rows, np.concatenate(asked))
    np.testing.assert_array_equal(found.rows, rival.rows[: len(found.rows)])


def test_a_rate_whose_refits_ended_early_is_not_taken():
    class Ended(Made):
        def refits(self, candidate, trial, rival=None):
            found = super().refits(candidate, trial)
            return found if rival is None else Refits(*(part[:240] for part in found))

    objectives = {TILTED: 0.6, PLAIN: 0.65, NEXT: 0.5}
    assert choose(Made(objectives, {NEXT: 0.1}), Rules()).candidate == NEXT
    assert choose(Ended(objectives, {NEXT: 0.1}), Rules()).candidate == TILTED
