"""The simulated cluster agrees with what can be said without simulating."""

from dataclasses import replace

import pytest

from benchmarks.cluster import PLANS, Constants, exchange, simulated, solve, work

QUIET = Constants(3e10, 1e9, 1e8, 1e9, 7e9, spread=0.0, straggles=0.0, lives=1e30)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@pytest.mark.parametrize("workers", [1, 16])
def test_without_accidents_a_step_is_work_exchange_solve_and_overhead(plan, workers):
    plan = replace(plan, steps=5)
    wanted = work(plan, QUIET, workers) + exchange(plan, QUIET, workers) + solve(plan, QUIET)
    found = simulated(plan, QUIET, workers)
    assert found["step"] == pytest.approx(wanted + plan.passes * QUIET.overhead, rel=1e-9)
    assert found["failures"] == 0


def test_the_gram_matrix_is_counted_once_per_row_and_pair_of_columns():
    plan = replace(PLANS[0], rows=1000.0, columns=10.0, products=0.0)
    assert work(plan, QUIET, 1) == pytest.approx(2 * 1000 * 10 * 10 / QUIET.gram + 1000 / QUIET.formulas)


def test_late_and_lost_workers_cost_time():
    plan = replace(PLANS[0], steps=20)
    quiet = simulated(plan, QUIET, 64)["fit"]
    assert simulated(plan, replace(QUIET, straggles=0.05), 64)["fit"] > 1.5 * quiet
    lost = simulated(plan, replace(QUIET, lives=1e6), 64)
    assert lost["failures"] > 0
    assert lost["fit"] > quiet
