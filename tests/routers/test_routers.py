"""Every router, end to end on tiers of known skill: its bill, its budget, what it may not beat, what it says of itself."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from known import GOLD, LADDER, Known, Ran, attempt_cost, least_cost, least_right, only, run, success

from outlay.agent.retry.fixed import Fixed
from outlay.errors import ConfigError, OutlayError
from outlay.generate.store import Store
from outlay.inflation.probes.cbe import Cbe
from outlay.routers.automix import AutoMix
from outlay.routers.cascade import Cascade
from outlay.routers.frugalgpt import FrugalGpt
from outlay.routers.hybrid import Hybrid
from outlay.routers.lagrangian import Lagrangian
from outlay.routers.mot import Mot
from outlay.routers.oracle import Oracle
from outlay.routers.random import Random
from outlay.routers.rehearse import rehearse
from outlay.routers.routellm import RouteLlm
from outlay.routers.ser import Escalation, Ser, SerX
from outlay.routers.static import Static
from outlay.score.curves import apgr

DEPLOYABLE: dict[str, Any] = {
    "static": Static(),
    "random": Random(),
    "ser": Ser(),
    "ser_index": Ser(escalate=Escalation(rule="index")),
    "ser_x": SerX(),
    "lagrangian": Lagrangian(),
    "lagrangian_knn": Lagrangian(estimator="knn"),
    "lagrangian_mean": Lagrangian(estimator="mean"),
    "frugalgpt": FrugalGpt(),
    "frugalgpt_faithful": FrugalGpt(faithful=True),
    "routellm_mf": RouteLlm(),
    "routellm_sw": RouteLlm(kind="sw"),
    "routellm_classifier": RouteLlm(kind="classifier"),
    "hybrid": Hybrid(),
    "automix": AutoMix(),
    "automix_threshold": AutoMix(rule="threshold", threshold=0.6),
    "mot": Mot(),
    "routing": Cascade(strategy="routing"),
    "cascading": Cascade(strategy="cascading"),
    "cascade_routing": Cascade(),
}
SMALL = {"fit": 90, "n": 150}


@pytest.mark.parametrize("name", DEPLOYABLE)
def test_a_router_answers_every_query_pays_its_probe_and_beats_no_bound(store: Store, name: str) -> None:
    ran = run(store, DEPLOYABLE[name], retry=Fixed(stop="vote", max_attempts=3), probe=Cbe(k=3), **SMALL)
    assert len(ran.outcomes) == SMALL["n"] and not ran.ledger.oracle
    assert sum(one.trace.tokens for one in ran.outcomes) == ran.ledger.tokens
    for one in ran.outcomes:
        assert one.stop.answer is not None and one.stop.answer in {line.answer for line in one.trace.attempts}
    probed = [bool(one.trace.probes) for one in ran.outcomes]
    without = name.startswith(("frugalgpt", "routellm", "automix", "mot", "random"))
    assert not any(probed) if without else all(probed)
    assert all(isinstance(one, str) for one in getattr(ran.policy, "warnings", ()))
    costs = [attempt_cost(tier) for tier in LADDER]
    assert ran.costs().mean() >= least_cost(success(5), costs, least_right(ran))


@pytest.mark.parametrize("name", [name for name in DEPLOYABLE if name not in ("static", "random", "mot")])
def test_a_policy_that_learns_must_be_fitted_and_decides_alike_twice(store: Store, name: str) -> None:
    ran, again = (
        run(store, DEPLOYABLE[name], retry=Fixed(stop="vote", max_attempts=3), fit=45, n=30) for _ in range(2)
    )
    assert [one.stop for one in again.outcomes] == [one.stop for one in ran.outcomes]
    fresh = DEPLOYABLE[name].policy(ran.policy.setting)
    with pytest.raises(ConfigError, match="not fitted"):
        fresh.next(replace(ran.outcomes[0].trace, lines=()))


def test_nothing_to_learn_from_names_the_tier_and_the_way_out(store: Store) -> None:
    for router in (Ser(), Lagrangian(), FrugalGpt(), RouteLlm(), AutoMix(), Cascade()):
        with pytest.raises(OutlayError, match=f"router={router.name}.*tier small.*fit_limit"):
            run(store, router, fit=0, n=1)


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize("mean_cost", [60.0, 280.0])
@pytest.mark.parametrize(
    "router",
    [
        Lagrangian(),
        Lagrangian(estimator="mean"),
        FrugalGpt(),
        AutoMix(),
        Hybrid(),
        Cascade(),
        Cascade(strategy="cascading"),
        Cascade(strategy="routing"),
    ],
    ids=lambda one: f"{one.name}-{getattr(one, 'estimator', '')}-{getattr(one, 'strategy', '')}",
)
def test_a_mean_budget_chosen_on_tune_holds_on_test(store: Store, router: Any, mean_cost: float) -> None:
    """AutoMix pays 5 checks of 21 units beside the small answer: its least is above the first budget, and it says so."""
    fit, n = 150, 240
    ran = run(store, replace(router, mean_cost=mean_cost), fit=fit, n=n)
    least = 30 + 20 + 5 if router.name == "automix" else 0
    spread = 4 * ran.costs().std() * (1 / n + 1 / fit) ** 0.5
    assert ran.costs().mean() <= max(mean_cost, least) + spread + 1e-6
    assert any("cannot be kept" in one for one in ran.policy.warnings) == (mean_cost < least)


def test_quality_rises_with_the_budget_and_passes_the_random_line(store: Store) -> None:
    (_, weak), (_, strong) = ((LADDER[name][0], attempt_cost(name)) for name in ("small", "large"))
    low, high = (float(np.mean(LADDER[name][0])) for name in ("small", "large"))
    for router in (Lagrangian(), Cascade(), FrugalGpt(samples=3)):
        points = [
            (ran.costs().mean(), ran.right.mean())
            for share in (0.1, 0.4)
            for ran in [run(store, replace(router, cost_share=share))]
        ]
        for cost, quality in points:
            line = low + (high - low) * (cost - weak) / (strong - weak)
            assert quality > line - 0.02, (router, cost, quality)
        assert max(quality for _, quality in points) > points[0][1]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("router", [RouteLlm(), RouteLlm(kind="sw"), RouteLlm(kind="classifier"), Hybrid()])
def test_strong_calls_are_the_share_that_was_asked_for_up_to_ties(
    store: Store, router: Any, share: float
) -> None:
    """Questions of three levels have three scores, so shares come in thirds; a share that ties prevent is told."""
    ran = run(store, replace(router, strong_share=share), generator=only("small", "large"), fit=150, n=150)
    given = ran.tiers.count("large") / 150
    told = any("strong_share" in one for one in ran.policy.warnings)
    assert told == (abs(given - share) > 0.1)
    if share in (0.0, 1.0):
        assert given == share
    elif given < 0.9:  # the hardest go first
        assert {
            one.trace.query.question[-1]
            for one, tier in zip(ran.outcomes, ran.tiers, strict=True)
            if tier == "large"
        } <= {"1", "2"}


def test_a_hard_budget_stops_a_query(store: Store) -> None:
    ran = run(store, Static("large"), retry=Fixed(stop="none", max_attempts=5), n=30, tokens_per_query=70)
    assert all(one.trace.tokens <= 70 for one in ran.outcomes)


# ---------------------------------------------------------------- identities


def test_apgr_of_the_random_router_is_a_half_within_its_interval(store: Store) -> None:
    """Cost and quality of each share, and their bootstrap over queries."""
    generator = only("small", "large")
    shares = np.linspace(0, 1, 11)
    runs = [run(store, Random([1 - share, share]), generator=generator) for share in shares]
    cost, right = (np.array([get(ran) for ran in runs]) for get in (Ran.costs, lambda ran: ran.right))

    def of(rows: np.ndarray) -> float:
        c, q = cost[:, rows].mean(axis=1), right[:, rows].mean(axis=1)
        return apgr(c, q, (c[0], q[0]), (c[-1], q[-1]))

    rng = np.random.default_rng(0)
    low, high = np.quantile([of(rng.integers(0, 600, 600)) for _ in range(400)], [0.005, 0.995])
    assert low < 0.5 < high and high - low < 0.25
    assert of(np.arange(600)) == pytest.approx(0.5, abs=0.06)


def test_a_larger_random_share_keeps_the_queries_of_a_smaller_one(store: Store) -> None:
    few, many = (
        run(store, Random([1 - share, share]), generator=only("small", "large"), n=200).tiers
        for share in (0.2, 0.6)
    )
    assert all(later == "large" for early, later in zip(few, many, strict=True) if early == "large")
    with pytest.raises(ConfigError, match="one share for each of the 3 tiers"):
        run(store, Random([0.5, 0.5]), n=1)


def test_the_oracle_is_right_wherever_a_tier_is_and_marked(store: Store) -> None:
    ran = run(store, Oracle(), n=200)
    assert ran.ledger.oracle
    for one in ran.outcomes:
        assert one.stop.solved == any(line.answer == "right" for line in one.trace.attempts)
        assert len(one.trace.attempts) == 3 or one.stop.solved
        assert [line.tier for line in one.trace.attempts] == list(LADDER)[: len(one.trace.attempts)]
    static = run(store, Static("large"), n=200)
    assert ran.right.mean() > static.right.mean() and ran.costs().mean() < static.costs().mean()


# ---------------------------------------------------------------- one router each


def test_ser_never_chooses_a_tier_out_of_reach_and_says_so(store: Store) -> None:
    """large costs 12 times small and U is at most 1.9 times: with 3 attempts no inflation bridges that."""
    ran = run(store, Ser(escalate=Escalation(factor=None)), retry=Fixed(stop="gold", max_attempts=3), **SMALL)
    assert set(ran.tiers) == {"small"}
    (message,) = [one for one in ran.policy.warnings if one.startswith("tier large can never")]
    assert "12.0 times" in message and "at most 3 attempts" in message


@pytest.mark.parametrize("context", ["fresh", "carry"])
def test_ser_escalates_past_factor_times_predicted_with_the_prompt_that_was_asked_for(
    store: Store, context: str
) -> None:
    escalate = Escalation(factor=1.0, context=context)
    ran = run(store, Ser(escalate=escalate), retry=Fixed(stop="gold", max_attempts=6), fit=150, n=150)
    moved = 0
    for one in ran.outcomes:
        attempts = one.trace.attempts
        first_tier = attempts[0].tier
        predicted = ran.policy.workflow.of(one.trace)[first_tier].inflation
        made = sum(line.tier == first_tier for line in attempts)
        assert made <= predicted + 1  # equal costs: inflation is the number of attempts
        for before, after in pairwise(attempts):
            if after.tier != before.tier:
                moved += 1
                assert after.context == context
                assert list(LADDER).index(after.tier) == list(LADDER).index(before.tier) + 1
            else:
                assert after.context == "fresh"
    assert moved > 10


def test_the_index_rule_leaves_a_tier_whose_failures_make_the_next_one_better(store: Store) -> None:
    """Two tiers of like price: after failures on the first the second's p/c must be the larger when it is taken."""
    ladder = {"a": ((0.9, 0.5, 0.2), 1.0), "b": ((0.95, 0.8, 0.7), 2.0)}
    escalate = Escalation(rule="index")
    ran = run(
        store,
        SerX(escalate=escalate),
        retry=Fixed(stop="gold", max_attempts=5),
        generator=Known(ladder=ladder),
        **SMALL,
    )
    moved = 0
    for one in ran.outcomes:
        tiers = [line.tier for line in one.trace.attempts]
        if tiers[0] == "a" and "b" in tiers:
            moved += 1
            a, b = ran.policy.workflow.of(one.trace).values()
            k = tiers.count("a")
            assert k == 5 or b.estimate.success / b.direct > a.estimate.after(k) / a.direct
    assert moved > 0


def test_a_rule_that_cannot_fire_is_told_before_anything_is_paid() -> None:
    from known import embed

    from outlay.inflation.probes.none import NoProbe
    from outlay.routers import Setting
    from outlay.schema import component

    setting = Setting(Fixed(max_attempts=2), NoProbe(), Known().tiers, embed, 10, 0)
    (message,) = Ser().policy(setting).warnings
    assert "2x rule can never fire: 2 attempts" in message
    (message,) = Lagrangian().policy(replace(setting, probe=Cbe(k=3))).warnings
    assert "CBE takes 3 values" in message
    with pytest.raises(ConfigError, match=r"escalate\.rule=paperr.*'paper'"):
        component("router", "ser", escalate={"rule": "paperr"})
    with pytest.raises(ConfigError, match="verify=gold"):
        Cascade(strategy="optimal")


def test_frugalgpt_faithful_is_full_depth_and_the_held_out_one_need_not_be(store: Store) -> None:
    faithful = run(store, FrugalGpt(faithful=True, depth=3, mean_cost=200.0), **SMALL).policy.chain
    assert len(faithful.tiers) == 3 and faithful.thresholds[-1] == 0.0
    cheap = run(store, FrugalGpt(mean_cost=31.0), **SMALL).policy.chain
    assert cheap.tiers == ("small",) and cheap.cost == 30.0


@pytest.mark.parametrize("faithful", [False, True])
def test_frugalgpts_chain_is_chosen_on_tune_unless_faithful(store: Store, faithful: bool) -> None:
    """Played on what it was chosen on, the fitted policy has the quality and the cost that the search saw."""
    ran = run(store, FrugalGpt(faithful=faithful, mean_cost=100.0), fit=100, n=1)
    prices = {tier.name: tier.price for tier in Known().tiers}
    for split in ("train", "tune"):
        played = [rehearse(ran.policy.next, one, prices, "units") for one in ran.explored.traces(split)]
        found = np.mean([one.quality for one in played]), np.mean([one.cost for one in played])
        same = found == pytest.approx((ran.policy.chain.quality, ran.policy.chain.cost))
        assert same == (split == ("train" if faithful else "tune"))
    for scorer in ran.policy.scorers.values():
        assert all(one.startswith("train-") for one in scorer.fitted_on)
        assert len(scorer.fitted_on) == (45 if faithful else 100)


def test_mot_keeps_what_enough_samples_agree_on(store: Store) -> None:
    ran = run(store, Mot(k=5, threshold=0.8), n=200)
    for one in ran.outcomes:
        weak = [line.answer for line in one.trace.attempts if line.tier == "small"]
        share = max(map(weak.count, weak)) / 5
        assert len(weak) == 5 and (len(one.trace.attempts) == 5) == (share >= 0.8)
        assert sum(line.prompt_tokens for line in one.trace.lines if line.tier == "small") == 20


def test_automix_pays_for_its_checks_and_asks_the_large_tier_where_they_doubt(store: Store) -> None:
    ran = run(store, AutoMix(rule="threshold", threshold=0.6), n=200)
    for one in ran.outcomes:
        checks = [line for line in one.trace.lines if line.kind == "verify"]
        assert len(checks) == GOLD["self_verify"].k and sum(line.tokens for line in checks) > 0  # type: ignore[union-attr]
        assert (len(one.trace.attempts) == 2) == (one.trace.confidence(1, "self_verify") < 0.6)  # type: ignore[operator]


def test_automix_believes_a_check_as_far_as_it_was_right_on_train(store: Store) -> None:
    """The large tier is asked after a check that doubts, kept from one that trusts; a check of coin tosses tells nothing."""
    ran = run(store, AutoMix(), n=200)
    assert ran.policy.gain[0] > 0.3 > ran.policy.gain[-1]
    said = [one.trace.confidence(1, "self_verify") or 0.0 for one in ran.outcomes]
    asked = [len(one.trace.attempts) == 2 for one in ran.outcomes]
    doubted, trusted = (
        np.mean([yes for yes, one in zip(asked, said, strict=True) if (one < 0.5) == low])
        for low in (True, False)
    )
    assert doubted > trusted + 0.5
    blind = run(store, AutoMix(), generator=Known(trust=0.5), n=200)
    assert ran.right.mean() > blind.right.mean()


def test_cascade_judges_answers_by_who_agrees(store: Store) -> None:
    """Without gold, more attempts are better than one, and the tier with more skill wins a disagreement."""
    ran = run(store, Cascade(cost_share=1.0), fit=150, n=300)
    once = run(store, Static("large"), n=300)
    assert ran.right.mean() > once.right.mean() - 0.01
    for one in ran.outcomes:
        answers = [line.answer for line in one.trace.attempts]
        if len(set(answers)) == 1:
            assert one.stop.answer == answers[0]


# ---------------------------------------------------------------- configs


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["router=ser"], "router=ser chooses between tiers.*has one"),
        (["router=automix", "+router.verifier_sample=3"], "verifier_sample"),
        (["router=ser", "router.escalate.rule=papre"], "rule=papre"),
        (["router=cascade", "router.strategy=optimal"], "verify=gold"),
    ],
)
def test_what_cannot_run_is_refused_with_the_way_out(overrides: list[str], message: str) -> None:
    from omegaconf import OmegaConf

    from outlay import schema
    from outlay.compose import compose

    config = compose(["dataset=arithmetic", *overrides])
    with pytest.raises(ConfigError, match=message):
        schema.build(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
