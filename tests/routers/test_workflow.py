"""The exchange rate and its identity; a rehearsed retry is the executed one; rates that keep a budget."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known import LADDER, Known, attempt_cost, embed, run

from outlay.agent.ledger import Ledger, Line, Query, Trace
from outlay.agent.retry.fixed import Fixed
from outlay.agent.retry.none import NoRetry
from outlay.agent.retry.vote import Vote
from outlay.errors import ConfigError
from outlay.generate.store import Store
from outlay.inflation import inflation
from outlay.inflation.probes.cbe import Cbe
from outlay.inflation.probes.none import NoProbe
from outlay.routers import Setting
from outlay.routers.automix import AutoMix
from outlay.routers.calibrate import Mix, calibrate, chance
from outlay.routers.cascade import Cascade
from outlay.routers.features import numbers
from outlay.routers.hybrid import Hybrid
from outlay.routers.lagrangian import Lagrangian
from outlay.routers.mot import Mot
from outlay.routers.oracle import Oracle
from outlay.routers.rehearse import rehearse, rehearse_on
from outlay.routers.routellm import RouteLlm
from outlay.routers.ser import Ser, SerX
from outlay.routers.static import Static
from outlay.routers.view import on_tier
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


def test_a_budget_of_nothing_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"budget is 0.*router\.cost=units"):
        calibrate(lambda _: 0.0, 0.0)


FREE = replace(Known(), ladder={"small": LADDER["small"], "large": LADDER["large"]}, free=True)


@pytest.mark.parametrize("router", [Lagrangian(cost="usd"), Cascade(cost="usd"), AutoMix(cost="usd")])
def test_free_tiers_are_no_division_by_zero(store: Store, router: Any) -> None:
    with pytest.raises(ConfigError, match=r"router\.cost=units"):
        run(store, router, generator=FREE, fit=30, n=1)


# ---------------------------------------------------------------- a probe that is reused

REUSED = Cbe(k=3, reuse=True)


@pytest.mark.parametrize(
    "retry",
    [
        Fixed(stop="gold"),
        Fixed(stop="vote"),
        Fixed(stop="none", max_attempts=4),
        Vote(max_attempts=5),
        NoRetry(0.7),
    ],
    ids=str,
)
def test_what_is_still_to_be_paid_after_a_reused_probe_is_what_is_billed(store: Store, retry: Any) -> None:
    """On the probe's tier its samples are attempts; on another tier they are not."""
    ran = run(store, SerX(), retry=retry, probe=REUSED, fit=150, n=300, reuse_probe=True)
    for tier in ("small", "large"):
        on_tier = _Always(tier, retry)
        live = run(store, on_tier, retry=retry, probe=REUSED, n=300, reuse_probe=True)
        probed = [sum(line.cost_units for line in one.trace.probes) for one in live.outcomes]
        traces = [Trace(one.trace.query, tuple(one.trace.probes)) for one in live.outcomes]
        expected = [ran.policy.workflow.of(one)[tier] for one in traces]
        further = live.costs() - np.array(probed)
        assert np.mean([one.cost for one in expected]) == pytest.approx(further.mean(), rel=0.15, abs=0.5)
        assert [one.paid for one in expected] == (probed if tier == "small" else [0.0] * 300)
        observed = [inflation(one.trace.of_tier(tier).attempts) for one in live.outcomes]
        assert np.mean([one.inflation for one in expected]) == pytest.approx(np.mean(observed), rel=0.15)


@pytest.mark.parametrize("mean_cost", [130.0, 250.0])
def test_a_mean_budget_under_reuse_is_spent_not_saved(store: Store, mean_cost: float) -> None:
    """The tune split's expectation is the bill: counted twice, the probe would leave a part of the budget lying."""
    retry = Fixed(stop="vote", max_attempts=3)
    ran = run(
        store,
        Lagrangian(mean_cost=mean_cost),
        retry=retry,
        probe=REUSED,
        fit=240,
        n=400,
        reuse_probe=True,
    )
    spread = 4 * ran.costs().std() * (1 / 240 + 1 / 400) ** 0.5
    prices = {tier.name: tier.price for tier in Known().tiers}
    spent = [rehearse(ran.policy.next, one, prices, "units").cost for one in ran.explored.traces("tune")]
    assert np.mean(spent) == pytest.approx(mean_cost, rel=0.12)
    assert ran.costs().mean() <= mean_cost + spread


def test_a_reused_probe_is_rehearsed_as_it_is_billed(store: Store) -> None:
    retry = Fixed(stop="vote", max_attempts=5)
    ran = run(store, SerX(), retry=retry, probe=REUSED, fit=60, n=1, reuse_probe=True)
    for tier in ("small", "large"):
        live = run(
            store, _Always(tier, retry), retry=retry, probe=REUSED, n=60, split="train", reuse_probe=True
        )
        played = [rehearse_on(tier, ran.policy.setting, one, "units") for one in ran.explored.traces("train")]
        assert [one.cost for one in played] == pytest.approx(live.costs().tolist())
        assert [one.quality for one in played] == live.right.tolist()
        assert [one.inflation(tier) for one in played] == pytest.approx(
            [inflation(one.trace.of_tier(tier).attempts) for one in live.outcomes]
        )


@dataclass(frozen=True)
class _Always:
    """A probe on the first tier, then the retry on this one."""

    tier: str
    retry: Any

    def policy(self, setting: Setting) -> "_Always":
        return self

    def fit(self, ledger: Ledger) -> "_Always":
        return self

    def next(self, trace: Trace) -> Any:
        return REUSED.next(trace, "small") or on_tier(self.retry, trace, self.tier)


# ---------------------------------------------------------------- attempts that repeat


def test_at_temperature_0_a_cascade_has_one_attempt_a_tier_and_says_why(store: Store) -> None:
    ran = run(store, Cascade(attempts=2), retry=NoRetry(), fit=60, n=60)
    for one in ran.outcomes:
        tiers = [line.tier for line in one.trace.attempts]
        assert len(tiers) == len(set(tiers))
    (told,) = [one for one in ran.policy.warnings if "router.attempts=2" in one]
    assert "temperature 0" in told and "retry.temperature=0.7" in told
    warm = run(store, Cascade(attempts=2), retry=NoRetry(0.7), fit=60, n=60)
    assert not any("router.attempts" in one for one in warm.policy.warnings)


@pytest.mark.parametrize(
    ("router", "option"),
    [
        (Oracle(attempts=3), "router.attempts=3"),
        (Mot(k=5, temperature=0.0), "router.k=5"),
        (Ser(), "retry.max_attempts=4"),
        (Lagrangian(), "retry.max_attempts=4"),
        (Hybrid(), "retry.max_attempts=4"),
        (RouteLlm(), "retry.max_attempts=4"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_other_routers_warn_of_attempts_that_repeat(router: Any, option: str) -> None:
    def told(retry: Any) -> bool:
        setting = Setting(retry, NoProbe(), Known().tiers, embed, 10, 0)
        return any(option in one and "word for word" in one for one in router.policy(setting).warnings)

    assert told(Fixed(max_attempts=4, temperature=0.0))
    if option.startswith("retry"):
        assert not told(Fixed(max_attempts=4)) and not told(Fixed(max_attempts=1, temperature=0.0))
        assert not told(Fixed(max_attempts=4, temperature=0.0, context="carry"))  # the prompt differs


def test_the_order_of_a_probes_answers_changes_no_feature() -> None:
    def row(*answers: str) -> list[float]:
        lines = [Line("q", at, "probe", answer=answer) for at, answer in enumerate(answers)]
        return numbers(Trace(Query("q", "?", 0, 1), tuple(lines)))

    assert row(*"aaabbcc") == row(*"ccbbaaa") == row(*"bacacab")
