"""The exchange rate and its identity; a rehearsed retry is the executed one; rates that keep a budget."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known import Known, attempt_cost, run

from outlay.agent.retry.fixed import Fixed
from outlay.agent.retry.none import NoRetry
from outlay.agent.retry.vote import Vote
from outlay.generate.store import Store
from outlay.routers.calibrate import Mix, calibrate, chance
from outlay.routers.rehearse import rehearse
from outlay.routers.ser import Ser, SerX
from outlay.routers.static import Static
from outlay.routers.workflow import exchange_rate, expected_attempts, solved_within


@settings(max_examples=300, deadline=None)
@given(p=st.floats(0.001, 1.0), cost=st.floats(0.01, 1e6), attempts=st.integers(1, 20))
def test_with_independent_retries_and_a_gold_stop_ser_is_p_over_c(
    p: float, cost: float, attempts: int
) -> None:
    rate = exchange_rate(solved_within(p, attempts), cost, expected_attempts(p, attempts))
    assert rate == pytest.approx(p / cost, rel=1e-9)


def test_expected_attempts_by_hand() -> None:
    assert expected_attempts(0.5, 2) == pytest.approx(1.5)
    assert expected_attempts(1.0, 5) == 1.0
    assert expected_attempts(0.0, 5) == 5.0
    assert exchange_rate(0.5, 0.0, 2.0) == float("inf")


def test_under_a_gold_stop_ser_x_chooses_by_p_over_c(store: Store) -> None:
    ran = run(store, SerX(), retry=Fixed(stop="gold", max_attempts=4), n=60)
    for outcome in ran.outcomes:
        expected = ran.policy.workflow.of(outcome.trace)
        naive = {tier: one.estimate.success / one.direct for tier, one in expected.items()}
        assert ran.policy.choice(outcome.trace) == max(naive, key=naive.__getitem__)


@pytest.mark.parametrize(
    "retry",
    [
        NoRetry(temperature=0.7),
        Fixed(stop="gold", max_attempts=4),
        Fixed(stop="vote", max_attempts=5),
        Fixed(stop="none", max_attempts=3),
        Vote(max_attempts=4),
    ],
    ids=str,
)
def test_a_rehearsed_retry_is_the_executed_one(store: Store, retry: Any) -> None:
    """The samples that exploration asks for in one request are those that attempts ask for one by one."""
    ran = run(store, Ser(), retry=retry, fit=60, n=1)
    prices = {tier.name: tier.price for tier in Known().tiers}
    for tier in prices:
        rehearsed = [
            rehearse(lambda trace, tier=tier: retry.next(trace, tier), one, prices, "units")
            for one in ran.explored.traces("train")
        ]
        live = run(store, Static(tier), retry=retry, n=60, split="train")
        assert [one.quality for one in rehearsed] == live.right.tolist()
        assert [one.cost for one in rehearsed] == pytest.approx(live.costs().tolist())
        assert [one.attempts for one in rehearsed] == [len(one.trace.attempts) for one in live.outcomes]


@settings(max_examples=100, deadline=None)
@given(
    spends=st.lists(st.floats(0.1, 100), min_size=1, max_size=5),
    rates=st.lists(st.floats(1e-6, 10), min_size=4, max_size=4),
    where=st.floats(0, 1),
)
def test_a_mix_of_two_rates_keeps_a_budget_between_the_steps(
    spends: list[float], rates: list[float], where: float
) -> None:
    spends, rates = sorted(spends, reverse=True), sorted(rates)[: len(spends) - 1]

    def mean_cost(rate: float) -> float:
        return spends[sum(rate >= one for one in rates)]

    budget = spends[-1] + where * (spends[0] - spends[-1])
    mix = calibrate(mean_cost, budget)
    assert 0 <= mix.share <= 1 and mix.dear <= mix.cheap
    bought = mix.share * mean_cost(mix.dear) + (1 - mix.share) * mean_cost(mix.cheap)
    assert bought == pytest.approx(budget, rel=1e-6)
    assert mix.mean_cost == pytest.approx(budget, rel=1e-6)


def test_a_budget_that_cannot_be_kept_or_does_not_bind_takes_one_rate() -> None:
    assert calibrate(lambda _: 5.0, 1.0).mean_cost == 5.0
    assert calibrate(lambda _: 5.0, 9.0).mean_cost == 5.0


def test_the_share_of_the_dear_rate_is_that_of_the_queries() -> None:
    mix = Mix(1.0, 2.0, 0.3, 0.0)
    dear = np.mean([mix.rate(f"q{at}") == 1.0 for at in range(4000)])
    assert dear == pytest.approx(0.3, abs=0.03)
    drawn = sorted(chance(f"q{at}", "x") for at in range(1000))
    assert max(b - a for a, b in pairwise(drawn)) < 0.02


def test_an_attempt_costs_what_its_estimate_says(store: Store) -> None:
    ran = run(store, Ser(), n=9)
    for outcome in ran.outcomes:
        for tier, one in ran.policy.workflow.estimates.of(outcome.trace).items():
            assert one.cost == pytest.approx(attempt_cost(tier))


@pytest.mark.parametrize(
    "retry", [Fixed(stop="vote"), Fixed(stop="gold"), Fixed(stop="none")], ids=lambda one: one.stop
)
def test_what_a_tier_will_cost_and_buy_is_what_it_does(store: Store, retry: Fixed) -> None:
    ran = run(store, SerX(), retry=retry, fit=150, n=300)
    for tier in ("small", "large"):
        train, test = (
            run(store, Static(tier), retry=retry, n=n, split=split)
            for split, n in (("train", 150), ("test", 300))
        )
        expected = [ran.policy.workflow.of(one.trace)[tier] for one in ran.outcomes]
        assert np.mean([one.cost for one in expected]) == pytest.approx(test.costs().mean(), rel=0.1)
        assert expected[0].utility == pytest.approx(train.right.mean())  # U(m), measured on train
