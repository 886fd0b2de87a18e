"""The exact bound: dynamic programming over tiers and attempts, against closed forms and against executed policies."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known import (
    GOLD,
    LADDER,
    REPLY,
    Known,
    attempt_cost,
    embed,
    least_cost,
    least_right,
    run,
    success,
    tasks,
)

from outlay.agent.executor import Limits, execute
from outlay.agent.ledger import Ledger
from outlay.agent.retry.fixed import Fixed
from outlay.generate import Tally
from outlay.generate.store import Store
from outlay.inflation.probes.none import NoProbe
from outlay.routers import Setting
from outlay.routers.calibrate import Mix
from outlay.routers.cascade import Cascade
from outlay.routers.estimates import Estimates, OnTier
from outlay.routers.features import Describer
from outlay.routers.optimal import best_plan
from outlay.routers.ser import SerX

chances = st.floats(0.01, 0.99)


@settings(max_examples=80, deadline=None)
@given(
    tiers=st.lists(st.tuples(chances, st.floats(0.1, 20)), min_size=1, max_size=3),
    attempts=st.integers(1, 3),
    rate=st.floats(0.001, 2),
)
def test_independent_boxes_are_opened_by_their_ratio_while_they_pay(
    tiers: list[tuple[float, float]], attempts: int, rate: float
) -> None:
    """Weitzman: in the order of p/c, each as long as p > rate x c. So the value has a closed form."""
    plan = best_plan([[p] * attempts for p, _ in tiers], [c for _, c in tiers], rate)
    value, left = 0.0, 1.0
    for p, c in sorted(tiers, key=lambda one: -one[0] / one[1]):
        for _ in range(attempts):
            if p > rate * c:
                value += left * (p - rate * c)
                left *= 1 - p
    assert plan.value == pytest.approx(value, abs=1e-9)
    assert plan.value == pytest.approx(plan.accuracy - rate * plan.cost, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    success=st.lists(st.lists(chances, min_size=2, max_size=2), min_size=2, max_size=2),
    costs=st.lists(st.floats(0.1, 5), min_size=2, max_size=2),
    rate=st.floats(0.001, 1),
)
def test_no_order_of_attempts_is_worth_more(
    success: list[list[float]], costs: list[float], rate: float
) -> None:
    """Every sequence of tiers, of every length, tried one by one."""
    best = 0.0
    for length in range(5):
        for order in itertools.product(range(2), repeat=length):
            if max(order.count(0), order.count(1)) > 2:
                continue
            made, left, value = [0, 0], 1.0, 0.0
            for tier in order:
                p = success[tier][made[tier]]
                value += left * (p - rate * costs[tier])
                left, made[tier] = left * (1 - p), made[tier] + 1
            best = max(best, value)
    assert best_plan(success, costs, rate).value == pytest.approx(best, abs=1e-9)


def test_the_least_cost_of_an_accuracy_by_hand() -> None:
    queries = [[[0.5], [1.0]]]  # a coin for 1, certainty for 10
    assert least_cost(queries, [1.0, 10.0], 0.5) == pytest.approx(1.0, rel=1e-6)
    assert least_cost(queries, [1.0, 10.0], 1.0) == pytest.approx(
        6.0, rel=1e-6
    )  # the coin, then what it missed
    assert least_cost(queries, [1.0, 10.0], 0.75) == pytest.approx(3.5, rel=1e-6)  # half of each
    assert least_cost([[[0.5], [0.0]]], [1.0, 10.0], 0.6) == float("inf")


@pytest.mark.parametrize("rate", [0.0005, 0.002, 0.003])
def test_the_optimal_policy_costs_what_dynamic_programming_says(store: Store, rate: float) -> None:
    """Executed with the known chances in place of estimated ones."""
    names, n = list(Known().ladder), 1500
    costs = [attempt_cost(name) for name in names]
    setting = Setting(Fixed(), NoProbe(), Known().tiers, embed, 10, 0)
    policy = Cascade(strategy="optimal", verify="gold", attempts=3).policy(setting)
    policy = replace(policy, estimates=exact(), mix=Mix(rate, rate, 1.0, 0.0))
    outcomes = execute(
        tasks(n, "test"), policy, Known(), store, Tally(), GOLD, Limits(max_new_tokens=10), 0, Ledger()
    )
    plans = [best_plan(success(3)[at % 3], costs, rate) for at in range(n)]
    spent = np.array([sum(line.cost_units for line in one.trace.lines) for one in outcomes])
    right = np.array([float(one.stop.solved) for one in outcomes])
    cost, accuracy = (np.array([getattr(plan, name) for plan in plans]) for name in ("cost", "accuracy"))
    assert abs((spent - cost).mean()) <= 4 * (spent - cost).std() / n**0.5
    assert abs((right - accuracy).mean()) <= 4 * (accuracy * (1 - accuracy)).mean() ** 0.5 / n**0.5


def exact() -> Estimates:
    """The known chances, and retries known to be independent."""
    tiers = {
        tier.name: OnTier(
            price=tier.price,
            success=lambda rows, p=LADDER[tier.name][0]: rows[:, :3] @ np.array(p),
            completion=lambda rows: np.full(len(rows), float(REPLY)),
            prompt_ratio=1.0,
            concentration=1e12,
            mean=0.0,
        )
        for tier in Known().tiers
    }
    describe = Describer(embed, False, np.zeros(2), np.ones(2))
    return Estimates(tiers, describe, "units", ())


def test_no_policy_beats_the_bound_gold_stopped_ones_included(store: Store) -> None:
    costs = [attempt_cost(name) for name in Known().ladder]
    for router, retry in (
        (Cascade(strategy="optimal", verify="gold", attempts=3), None),
        (Cascade(strategy="cascade_routing", verify="gold", attempts=3), None),
        (Cascade(strategy="cascading", attempts=2), None),
        (SerX(), Fixed(stop="gold", max_attempts=3)),
    ):
        ran = run(store, router, fit=120, n=300, **({"retry": retry} if retry else {}))
        assert ran.costs().mean() >= least_cost(success(3), costs, least_right(ran))
