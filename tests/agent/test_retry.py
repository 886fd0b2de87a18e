"""Retries over generators with known chances: what each stops on, and what it pays for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc
from scipy.stats import binom
from simulated import Simulated

from outlay.agent import Stop
from outlay.agent.executor import Asked, Limits, Outcome, Task, Verifier, execute
from outlay.agent.ledger import Ledger, Line, Query
from outlay.agent.retry.adaptive import Adaptive, majority_chance
from outlay.agent.retry.escalate import Escalate, dead_zone
from outlay.agent.retry.fixed import Fixed
from outlay.agent.retry.stopping import decided
from outlay.agent.retry.vote import Vote
from outlay.agent.verifiers import agreement, self_verify
from outlay.errors import ConfigError
from outlay.generate import Completion, Earlier, Prompt, Request, Tally
from outlay.generate.spend import Spend
from outlay.generate.store import Store
from outlay.inflation.features import identical
from outlay.inflation.probes.cbe import Cbe
from outlay.inflation.probes.none import NoProbe
from outlay.routers import Setting
from outlay.routers.static import Static

GOLD = Verifier(lambda _, line: float(line.answer == "right"), oracle=True)


@dataclass(frozen=True)
class Drawn(Simulated):
    """Answers that nothing keeps; how many batches were asked for is counted in `waves`."""

    stored = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "waves", 0)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        object.__setattr__(self, "waves", self.waves + 1)  # type: ignore[attr-defined]
        yield from super().generate(requests, spend)


@dataclass(frozen=True)
class Scripted(Drawn):
    """Says the script's replies in turn on each tier, whatever is asked."""

    script: Mapping[str, Sequence[str]] = None  # type: ignore[assignment]

    def _one(self, request: Request) -> Completion:
        said = sum(one.tier == request.tier for one in self.asked[: self.asked.index(request)])
        text = self.script[request.tier][said]
        return Completion(text, 10, 10, "stop", logprob=-0.1)


def scripted(**script: Sequence[str]) -> Scripted:
    return Scripted(script=script, tier_names=tuple(script))


def run(
    store: Store,
    retry: object,
    generator: Simulated,
    n: int = 1,
    probe: object = NoProbe(),
    seed: int = 0,
    **verifiers: Verifier | Asked,
) -> list[Outcome]:
    def task(at: int) -> Task:
        def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
            user = f"question {at}"
            if shown.context == "fresh":
                return Prompt((("user", user),))
            return Prompt((("user", user), ("assistant", shown.chain), ("user", f"again {shown.reflection}")))

        return Task(Query(f"q{at}", f"question {at}", 0, 10), prompt, lambda reply: reply or None)

    setting = Setting(retry, probe, generator.tiers, lambda texts: np.zeros((len(texts), 2)), 10, seed)
    return execute(
        [task(at) for at in range(n)],
        Static().policy(setting),
        generator,
        store,
        Tally(),
        {"gold": GOLD, **verifiers},
        Limits(max_new_tokens=10, reuse_probe=getattr(probe, "reuse", False)),
        seed,
        Ledger(),
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "store.sqlite")


# --- fixed ---------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    p=st.floats(0.05, 0.95),
    most=st.integers(1, 8),
    fail=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 99),
)
def test_stopping_on_the_vote_never_changes_the_majority_of_all_attempts(
    store: Store, p: float, most: int, fail: float, seed: int
) -> None:
    generator = Drawn(p=p, fail=fail)
    early = run(store, Fixed(max_attempts=most), generator, n=8, seed=seed)
    late = run(store, Fixed(max_attempts=most, stop="none"), generator, n=8, seed=seed)
    for one, whole in zip(early, late, strict=True):
        assert one.stop.answer == whole.trace.vote()
        assert one.stop.solved == decided(whole.trace, 0)  # a tie is not a majority
        assert len(one.trace.attempts) <= len(whole.trace.attempts)


def test_independent_retries_until_gold_take_as_many_attempts_as_the_geometric_law_says(store: Store) -> None:
    p, most, n = 0.35, 5, 1500
    outcomes = run(store, Fixed(max_attempts=most, stop="gold"), Drawn(p=p), n=n, seed=7)
    made = [len(one.trace.attempts) for one in outcomes]
    low = high = 0.0
    for k in range(1, most + 1):  # so many queries reach their k-th attempt
        least, top = binom.interval(0.999, n, (1 - p) ** (k - 1))
        assert least <= sum(one >= k for one in made) <= top
        low, high = low + least / n, high + top / n
    expected = (1 - (1 - p) ** most) / p
    assert low <= expected <= high and low <= sum(made) / n <= high
    solved = sum(one.stop.solved for one in outcomes)
    least, top = binom.interval(0.999, n, 1 - (1 - p) ** most)
    assert least <= solved <= top


@settings(max_examples=40, deadline=None)
@given(threshold=st.floats(0.1, 1.0), most=st.integers(1, 6), p=st.floats(0, 1), seed=st.integers(0, 9))
def test_a_verifier_lets_the_first_attempt_pass_that_it_accepts_and_else_the_surest_stands(
    store: Store, threshold: float, most: int, p: float, seed: int
) -> None:
    def sureness(line: Line) -> float:
        return (line.seed % 1000) / 1000

    check = Verifier(lambda _, line: sureness(line), oracle=False, threshold=threshold)
    retry = Fixed(max_attempts=most, stop="verifier", verifier="parse")
    for one in run(store, retry, Drawn(p=p), n=8, seed=seed, parse=check):
        attempts = one.trace.attempts
        accepted = [line for line in attempts if sureness(line) >= threshold]
        if one.stop.solved:
            assert accepted == [attempts[-1]] and one.stop.answer == attempts[-1].answer
        else:
            assert not accepted and len(attempts) == most
            assert one.stop.answer == max(attempts, key=sureness).answer
        assert not any(line.oracle for line in one.trace.lines)


def test_agreement_waits_for_as_many_samples_as_it_compares(store: Store) -> None:
    retry = Fixed(max_attempts=5, stop="verifier", verifier="agreement")
    (one,) = run(store, retry, scripted(small=["a", "b", "a"]), agreement=agreement())
    assert one.stop == Stop("a", solved=True)
    kinds = [line.kind for line in one.trace.lines]
    assert kinds == ["attempt", "attempt", "attempt", "verify"]
    (one,) = run(store, retry, scripted(small=["a", "b", "c", "d", "e"]), agreement=agreement())
    assert not one.stop.solved and one.stop.answer in "abc"
    # a probe's samples are compared too, so the first attempt can pass
    script = scripted(small=["a", "a", "b", "a"])
    (one,) = run(store, retry, script, probe=Cbe(k=3), agreement=agreement())
    assert one.stop == Stop("a", solved=True) and len(one.trace.attempts) == 1


def test_a_check_that_says_nothing_accepts_nothing_and_is_not_asked_twice(store: Store) -> None:
    check = self_verify(lambda line: Prompt((("user", "the task"),)))
    retry = Fixed(max_attempts=2, stop="verifier", verifier="self_verify")
    (one,) = run(store, retry, scripted(small=["a", "hm", "b", "well"]), self_verify=check)
    assert [line.kind for line in one.trace.lines] == ["attempt", "verify", "attempt", "verify"]
    assert one.stop == Stop("a", solved=False)
    (one,) = run(store, retry, scripted(small=["a", "No.", "b", "Yes."]), self_verify=check)
    assert one.stop == Stop("b", solved=True)
    # what could not be read is not worth a call
    (one,) = run(store, retry, scripted(small=["", "b", "yes"]), self_verify=check)
    assert one.stop == Stop("b", solved=True) and one.trace.tokens == 60


def test_a_reflection_is_paid_for_and_shown(store: Store) -> None:
    generator = scripted(small=["a", "I should count again.", "right"])
    writes = Asked(lambda _, line: Prompt((("user", f"why not {line.text}"),)), lambda reply: None)
    retry = Fixed(max_attempts=3, stop="gold", context="reflect")
    (one,) = run(store, retry, generator, reflect=writes)
    kinds = [(line.kind, line.verifier, line.context) for line in one.trace.lines if not line.oracle]
    assert kinds == [
        ("attempt", "", "fresh"),
        ("verify", "reflect", "fresh"),
        ("attempt", "", "reflect"),
    ]
    assert generator.asked[1].text == "user: why not a"
    assert generator.asked[2].text.endswith("assistant: a\nuser: again I should count again.")
    assert one.stop == Stop("right", solved=True) and one.trace.tokens == 60


def test_retries_at_temperature_0_are_identical(store: Store) -> None:
    cold = run(store, Fixed(max_attempts=4, stop="none", temperature=0.0), _Greedy(), n=3)
    assert [identical(one.trace) for one in cold] == [3, 3, 3]
    failing = run(store, Fixed(max_attempts=4, stop="none"), Drawn(fail=1.0))
    assert identical(failing[0].trace) == 0


@dataclass(frozen=True)
class _Greedy(Drawn):
    def _one(self, request: Request) -> Completion:
        return super()._one(replace(request, sample=0))


# --- vote ----------------------------------------------------------------------------------------------------


def test_a_vote_is_one_wave_whose_prompt_is_billed_once(store: Store) -> None:
    generator = Drawn(p=0.5)
    outcomes = run(store, Vote(max_attempts=5), generator, n=30)
    assert generator.waves == 1 and len(generator.asked) == 150  # type: ignore[attr-defined]
    whole = run(store, Fixed(max_attempts=5, stop="none"), Drawn(p=0.5), n=30)
    for one, other in zip(outcomes, whole, strict=True):
        assert [line.text for line in one.trace.attempts] == [line.text for line in other.trace.attempts]
        assert [line.prompt_tokens > 0 for line in one.trace.attempts] == [True] + [False] * 4
        assert one.stop == Stop(other.trace.vote(), solved=decided(other.trace, 0))


def test_ties_go_to_the_earlier_answer(store: Store) -> None:
    (one,) = run(store, Vote(max_attempts=4), scripted(small=["b", "a", "a", "b"]))
    assert one.stop == Stop("b", solved=False)
    (one,) = run(store, Vote(max_attempts=2), Drawn(fail=1.0))
    assert one.stop == Stop(None, solved=False)


@settings(max_examples=30, deadline=None)
@given(
    retry=st.builds(Vote, max_attempts=st.integers(1, 7))
    | st.builds(
        Adaptive,
        rule=st.sampled_from(["beta", "window"]),
        max_attempts=st.integers(1, 9),
        window=st.integers(2, 4),
    ),
    k=st.integers(2, 5),
    p=st.floats(0.05, 0.95),
)
def test_a_probe_that_is_reused_is_among_the_attempts(store: Store, retry: object, k: int, p: float) -> None:
    generator = Drawn(p=p)
    most: int = retry.max_attempts  # type: ignore[attr-defined]
    apart = run(store, Fixed(max_attempts=max(most, k), stop="none"), Drawn(p=p), n=6)
    for one, whole in zip(run(store, retry, generator, n=6, probe=Cbe(k=k, reuse=True)), apart, strict=True):
        attempts = one.trace.attempts
        assert k <= len(attempts) <= max(most, k)
        assert [line.kind for line in attempts[:k]] == ["probe"] * k
        assert [line.attempt for line in attempts] == list(range(1, len(attempts) + 1))
        # the same stream as without a probe: no draw is paid for twice, and none is skipped
        assert [line.text for line in attempts] == [line.text for line in whole.trace.attempts][
            : len(attempts)
        ]
        assert one.stop.answer == one.trace.vote()
    requests = [(one.text, one.sample) for one in generator.asked]
    assert len(requests) == len(set(requests))


# --- adaptive ------------------------------------------------------------------------------------------------


@given(first=st.integers(0, 60), second=st.integers(0, 60))
def test_the_beta_rule_is_the_incomplete_beta_function(first: int, second: int) -> None:
    chance = majority_chance(first, second)
    assert chance == pytest.approx(1 - betainc(first + 1, second + 1, 0.5), abs=1e-12)
    assert majority_chance(second, first) == pytest.approx(1 - chance, abs=1e-12)


def test_four_in_agreement_are_enough_at_95_percent_and_three_are_not() -> None:
    assert majority_chance(3, 0) == 0.9375 and majority_chance(4, 0) == 0.96875


@settings(max_examples=40, deadline=None)
@given(
    p=st.floats(0.05, 0.95),
    most=st.integers(1, 12),
    confidence=st.sampled_from([0.8, 0.95, 0.99]),
    seed=st.integers(0, 9),
)
def test_the_beta_rule_stops_where_one_sample_at_a_time_would(
    store: Store, p: float, most: int, confidence: float, seed: int
) -> None:
    retry = Adaptive(confidence=confidence, max_attempts=most)
    outcomes = run(store, retry, Drawn(p=p), n=6, seed=seed)
    whole = run(store, Fixed(max_attempts=most, stop="none"), Drawn(p=p), n=6, seed=seed)
    for one, every in zip(outcomes, whole, strict=True):
        answers = [line.answer for line in every.trace.attempts]
        clear = [n for n in range(1, most + 1) if _chance(answers[:n]) >= confidence]
        assert len(one.trace.attempts) == (clear[0] if clear else most)
        assert one.stop.solved == bool(clear)
        assert one.stop.answer == one.trace.vote()


def _chance(answers: Sequence[str | None]) -> float:
    top = [count for _, count in Counter(filter(None, answers)).most_common(2)] + [0, 0]
    return majority_chance(top[0], top[1])


def test_the_window_rule_stops_on_agreement_in_a_row(store: Store) -> None:
    retry = Adaptive(rule="window", window=3, max_attempts=9)
    generator = scripted(small=["a", "a", "b", "b", "b", "b"])
    (one,) = run(store, retry, generator)
    assert one.stop == Stop("b", solved=True) and generator.waves == 2  # type: ignore[attr-defined]
    (one,) = run(store, retry, scripted(small=["", "", "", *"abcabc"]))
    assert one.stop == Stop("a", solved=False)  # three replies without an answer agree on nothing


def test_the_first_request_may_be_set(store: Store) -> None:
    generator = scripted(small=["a"] * 6)
    run(store, Adaptive(first=6), generator)
    assert generator.waves == 1 and len(generator.asked) == 6  # type: ignore[attr-defined]


# --- escalate ------------------------------------------------------------------------------------------------


def tiers_of(outcome: Outcome) -> list[str]:
    return [line.tier for line in outcome.trace.attempts]


def test_a_tier_is_left_when_its_attempts_are_spent(store: Store) -> None:
    retry = Escalate(stop="gold", attempts_per_tier=2, factor=None)
    (one,) = run(store, retry, scripted(small=["a", "b"], large=["c", "right"]))
    assert tiers_of(one) == ["small", "small", "large", "large"]
    assert one.stop == Stop("right", solved=True)
    (one,) = run(store, retry, scripted(small=["a", "b"], large=["", ""]))
    assert one.stop == Stop("b", solved=False)  # the last answer there is
    (one,) = run(
        store, Escalate(stop="none", attempts_per_tier=1, factor=None), scripted(small="a", large="b")
    )
    assert tiers_of(one) == ["small", "large"] and one.stop == Stop("b", solved=True)


def test_a_tier_is_left_when_it_costs_more_than_factor_times_what_was_foretold(store: Store) -> None:
    script = {"small": ["a", "b", "c", "d", "e"], "large": ["right"]}
    for predicted, made in ((1.0, 3), (1.4, 3), (1.5, 4), (2.4, 5)):  # 20 tokens an attempt
        (one,) = run(store, Escalate(stop="gold", predicted=predicted), scripted(**script))
        assert tiers_of(one) == ["small"] * made + ["large"]
        assert one.stop == Stop("right", solved=True)


def test_the_next_tier_starts_fresh_or_is_shown_the_failed_chain(store: Store) -> None:
    for escalation, text in (
        ("fresh", "user: question 0"),
        ("carry", "user: question 0\nassistant: a\nuser: again "),
    ):
        generator = scripted(small=["a"], large=["right"])
        retry = Escalate(stop="gold", attempts_per_tier=1, factor=None, escalation=escalation)
        (one,) = run(store, retry, generator)
        assert generator.asked[1].text == text
        assert [line.context for line in one.trace.attempts] == ["fresh", escalation]


def test_the_vote_of_a_tier_is_its_own(store: Store) -> None:
    retry = Escalate(stop="vote", attempts_per_tier=3, factor=None)
    (one,) = run(store, retry, scripted(small=["a", "b", "c"], large=["b", "d", "d"]))
    assert tiers_of(one) == ["small"] * 3 + ["large"] * 3
    assert one.stop == Stop("d", solved=True)
    (one,) = run(store, retry, scripted(small=["a", "a"], large=[]))
    assert one.stop == Stop("a", solved=True)


def test_tiers_that_are_named_stand_and_others_are_the_generators() -> None:
    assert Escalate(tiers=["b", "a"]).within(["a", "b"]).tiers == ["b", "a"]
    assert Escalate().within(["a", "b"]).tiers == ["a", "b"]


@given(predicted=st.floats(1, 8), factor=st.floats(0.5, 4), most=st.integers(1, 8))
def test_the_rule_is_dead_exactly_where_equal_attempts_never_fire_it(
    predicted: float, factor: float, most: int
) -> None:
    fires = any(made > factor * predicted for made in range(1, most + 1))
    assert (dead_zone(predicted, factor, most) is None) == fires


def test_a_dead_rule_is_refused_with_its_numbers_and_the_way_out() -> None:
    with pytest.raises(
        ConfigError, match=r"2 x the predicted inflation of 3 needs more than 6, and 5 .*factor=null"
    ):
        Escalate(predicted=3.0)
    Escalate(predicted=3.0, factor=None)
    Escalate(predicted=3.0, context="carry")  # there attempts do not cost alike
