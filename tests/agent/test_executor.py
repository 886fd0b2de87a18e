"""The executor: the sum over lines is the bill, draws are shared between policies, budgets are never passed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simulated import Simulated

from outlay.agent import Action, Attempt, Probe, Stop, Verify
from outlay.agent.executor import Asked, Limits, Outcome, Task, Verifier, execute, scored
from outlay.agent.ledger import Ledger, Line, Query, Trace, ledger_table, read_ledger
from outlay.agent.retry.fixed import Fixed
from outlay.agent.retry.none import NoRetry
from outlay.errors import ConfigError
from outlay.generate import FRESH, Completion, Earlier, Failure, Price, Prompt, Request, Tally, Tier
from outlay.generate.store import Store
from outlay.inflation.probes.cbe import Cbe
from outlay.inflation.probes.none import NoProbe
from outlay.routers.static import StaticPolicy
from outlay.score.verification import counts

GOLD = {"gold": Verifier(lambda trace, line: line.answer == "right", oracle=True)}


def tasks(n: int, length: int = 20) -> list[Task]:
    def task(at: int) -> Task:
        def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
            user = (("user", f"question {at} " + "x" * length),)
            again = (("assistant", shown.chain), ("user", "again"))
            return Prompt(user if shown == FRESH else (*user, *again))

        return Task(Query(f"q{at}", f"question {at}", 0, length), prompt, lambda reply: reply or None)

    return [task(at) for at in range(n)]


def run(
    store: Store,
    retry: object,
    probe: object = NoProbe(),
    n: int = 12,
    generator: Simulated | None = None,
    verifiers: Mapping[str, Verifier] = GOLD,
    seed: int = 0,
    **limits: object,
) -> tuple[list[Outcome], Ledger, Tally]:
    ledger, tally = Ledger(), Tally()
    outcomes = execute(
        tasks(n),
        StaticPolicy(retry, probe, "small"),
        generator or Simulated(),
        store,
        tally,
        verifiers,
        Limits(max_new_tokens=10, **limits),  # type: ignore[arg-type]
        seed,
        ledger,
    )
    return outcomes, ledger, tally


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


retries = st.builds(
    Fixed,
    max_attempts=st.integers(1, 6),
    stop=st.sampled_from(["gold", "vote", "parse", "none"]),
    context=st.sampled_from(["fresh", "carry"]),
    temperature=st.sampled_from([0.0, 0.7]),
) | st.builds(NoRetry, temperature=st.sampled_from([0.0, 0.7]))
probes = st.just(NoProbe()) | st.builds(Cbe, k=st.integers(2, 4), reuse=st.booleans())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(retry=retries, probe=probes, fail=st.sampled_from([0.0, 0.4]), seed=st.integers(0, 3))
def test_the_sum_over_lines_is_the_bill_and_nothing_is_dropped(
    tmp_path: Path, retry: object, probe: object, fail: float, seed: int
) -> None:
    store = Store(tmp_path / f"{seed}-{fail}.sqlite")
    generator = Simulated(fail=fail)
    reuse = getattr(probe, "reuse", False)
    outcomes, ledger, _ = run(store, retry, probe, generator=generator, seed=seed, reuse_probe=reuse)
    assert [outcome.trace.query.id for outcome in outcomes] == [f"q{at}" for at in range(12)]
    assert sum(outcome.trace.tokens for outcome in outcomes) == ledger.tokens
    price = generator.tiers[0].price
    assert ledger.usd == pytest.approx(
        sum(
            price.usd(line.prompt_tokens, line.cached_tokens, line.completion_tokens) for line in ledger.lines
        )
    )
    for outcome in outcomes:
        lines = [line for line in ledger.lines if line.example_id == outcome.trace.query.id]
        assert [line.line for line in lines] == list(range(len(lines)))
        assert [line.attempt for line in outcome.trace.attempts] == list(
            range(1, len(outcome.trace.attempts) + 1)
        )
        assert (
            1 <= len(outcome.trace.attempts) <= max(getattr(retry, "max_attempts", 1), getattr(probe, "k", 1))
        )
        for line in lines:
            assert (line.error != "") == (line.finish_reason == "error")
            assert line.error == "" or (line.tokens == 0 and line.answer is None)
    # a verdict that read gold marks its line, and only that
    assert all(line.oracle == (line.kind == "verify") for line in ledger.lines)
    assert ledger.oracle == (getattr(retry, "stop", "") == "gold")


def test_the_bill_is_what_the_generator_was_asked_and_answered(tmp_path: Path) -> None:
    for at, probe in enumerate((NoProbe(), Cbe(k=3))):
        generator = Simulated()
        _, ledger, _ = run(Store(tmp_path / f"{at}.sqlite"), Fixed(stop="gold"), probe, generator=generator)
        answered = [generator._one(request) for request in generator.asked]
        assert sum(line.completion_tokens for line in ledger.lines) == sum(
            one.completion_tokens for one in answered
        )
        # three samples of a probe are one request, whose prompt is billed once; every attempt is a request
        probes = {request.text for request in generator.asked if request.stream == "probe"}
        attempts = [request.text for request in generator.asked if request.stream == "attempt"]
        assert len(probes) == (12 if at else 0)
        assert sum(line.prompt_tokens for line in ledger.lines) == sum(map(len, [*probes, *attempts]))


class Scripted(Simulated):
    """Answers each sample of a prompt from a list, whatever the prompt."""

    answers: tuple[str, ...] = ()

    def _one(self, request: Request) -> Completion:
        return Completion(self.answers[request.sample], 10, 1, "stop")


def scripted(*answers: str) -> Simulated:
    made = Scripted()
    object.__setattr__(made, "answers", answers)
    return made


def test_under_reuse_the_first_right_sample_of_the_probe_stops_the_query(store: Store) -> None:
    generator = scripted("right", "wrong", "wrong2", "right")
    (outcome,), ledger, _ = run(
        store, Fixed(stop="gold"), Cbe(k=3, reuse=True), n=1, generator=generator, reuse_probe=True
    )
    assert outcome.stop == Stop("right", solved=True)
    assert [line.kind for line in ledger.lines] == ["probe", "probe", "probe", "verify"]
    (outcome,), _, _ = run(store, NoRetry(), Cbe(k=3, reuse=True), n=1, generator=generator, reuse_probe=True)
    assert outcome.stop.answer == "right"


def test_a_tie_of_more_samples_than_attempts_is_not_a_decided_vote(store: Store) -> None:
    generator = scripted("a", "b", "a", "b")
    (outcome,), _, _ = run(
        store, Fixed(max_attempts=2), Cbe(k=4, reuse=True), n=1, generator=generator, reuse_probe=True
    )
    assert outcome.stop == Stop("a", solved=False)


def test_one_request_bills_its_prompt_once(store: Store) -> None:
    _, ledger, _ = run(store, NoRetry(), Cbe(k=4), n=1)
    probe = [line for line in ledger.lines if line.kind == "probe"]
    assert [line.prompt_tokens > 0 for line in probe] == [True, False, False, False]
    assert all(line.completion_tokens > 0 for line in probe)


def test_policies_are_compared_on_the_same_draws(store: Store) -> None:
    _, few, _ = run(store, Fixed(max_attempts=2, stop="none"))
    _, many, tally = run(store, Fixed(max_attempts=5, stop="none"))
    first = {(line.example_id, line.attempt): line.text for line in few.lines}
    later = {(line.example_id, line.attempt): line.text for line in many.lines}
    assert first.items() <= later.items()
    assert (tally.hits, tally.misses) == (24, 36)


def test_the_second_time_nothing_is_generated(store: Store) -> None:
    generator = Simulated()
    run(store, Fixed(stop="gold"), Cbe(), generator=generator)
    asked = len(generator.asked)
    _, _, tally = run(store, Fixed(stop="gold"), Cbe(), generator=generator)
    assert len(generator.asked) == asked
    assert tally.misses == 0 and tally.generated_tokens == 0


def test_failed_calls_are_asked_again_next_time(store: Store) -> None:
    _, ledger, _ = run(store, NoRetry(temperature=0.7), generator=Simulated(fail=1.0))
    assert all(line.error for line in ledger.lines) and len(store) == 0
    _, ledger, _ = run(store, NoRetry(temperature=0.7), generator=Simulated(fail=0.0))
    assert not any(line.error for line in ledger.lines)


def test_probe_and_attempts_draw_from_separate_streams_unless_reused(store: Store) -> None:
    _, apart, _ = run(store, Fixed(stop="none", max_attempts=3), Cbe(k=3), n=40)
    probe = [line.text for line in apart.lines if line.kind == "probe"]
    attempts = [line.text for line in apart.lines if line.kind == "attempt"]
    assert len(attempts) == 120 and probe != attempts
    outcomes, reused, _ = run(
        store, Fixed(stop="none", max_attempts=3), Cbe(k=3, reuse=True), n=40, reuse_probe=True
    )
    assert all(line.kind == "probe" for line in reused.lines)
    assert sorted(line.text for line in reused.lines) == sorted(attempts)
    assert all(len(outcome.trace.attempts) == 3 for outcome in outcomes)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(budget=st.integers(1, 400), retry=retries, probe=probes)
def test_a_token_budget_is_never_passed(tmp_path: Path, budget: int, retry: object, probe: object) -> None:
    store = Store(tmp_path / "budget.sqlite")
    outcomes, _, _ = run(store, retry, probe, tokens_per_query=budget)
    for outcome in outcomes:
        assert outcome.trace.tokens <= budget


def test_carry_shows_the_last_chain(store: Store) -> None:
    generator = Simulated(p=0.0)
    _, ledger, _ = run(store, Fixed(stop="gold", context="carry", max_attempts=2), n=1, generator=generator)
    first = next(line for line in ledger.lines if line.attempt == 1)
    assert f"assistant: {first.text}" in generator.asked[1].text
    second = next(line for line in ledger.lines if line.attempt == 2 and line.kind == "attempt")
    assert second.context == "carry" and second.prompt_tokens > first.prompt_tokens


def test_a_prompt_that_passes_the_window_is_refused_with_both_numbers(store: Store) -> None:
    ledger = Ledger()
    outcomes = execute(
        tasks(1, length=1500),
        StaticPolicy(NoRetry(), NoProbe(), "small"),
        Simulated(),
        store,
        Tally(),
        {},
        Limits(max_new_tokens=10),
        0,
        ledger,
    )
    (line,) = ledger.lines
    assert "window of 1000" in line.error and "1517" in line.error.replace(",", "")
    assert line.tokens == 0 and outcomes[0].stop.answer is None


def test_an_unknown_verifier_is_named(store: Store) -> None:
    with pytest.raises(ConfigError, match="verifier 'gold'"):
        run(store, Fixed(stop="gold"), verifiers={})


def test_a_vote_stops_when_the_majority_cannot_change(store: Store) -> None:
    early, _, _ = run(store, Fixed(stop="vote", max_attempts=5), n=60, generator=Simulated(p=0.8))
    late, _, _ = run(store, Fixed(stop="none", max_attempts=5), n=60, generator=Simulated(p=0.8))
    assert [one.stop.answer for one in early] == [one.trace.vote() for one in late]
    assert sum(len(one.trace.attempts) for one in early) < sum(len(one.trace.attempts) for one in late)


def test_a_ledger_survives_its_file(store: Store, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    _, ledger, _ = run(store, Fixed(stop="gold"), Cbe())
    lines = scored(ledger.lines, lambda line: float(line.answer == "right"))
    pq.write_table(ledger_table(lines), tmp_path / "ledger.parquet")
    assert read_ledger(tmp_path / "ledger.parquet").lines == lines
    assert [line.score is None for line in lines] == [line.kind == "verify" for line in lines]
    assert list(Ledger([]).frame().columns) == list(Line.__dataclass_fields__)


def test_what_is_checked_is_the_attempt_that_the_answer_came_from(store: Store) -> None:
    from dataclasses import replace

    from outlay.agent.grow import Grow

    seen: list[int] = []
    accept = {"supported": Verifier(lambda trace, line: seen.append(line.attempt) is None, oracle=False)}
    (task,) = tasks(1)
    execute(
        [replace(task, query=replace(task.query, steps=2))],
        Grow(StaticPolicy(Fixed(max_attempts=3), NoProbe(), "small"), "supported"),
        scripted("a", "b", "a"),
        store,
        Tally(),
        accept,
        Limits(max_new_tokens=10),
        0,
        Ledger(),
    )
    assert seen == [3]  # the vote is a; its last attempt is the third


def test_an_unsupported_answer_is_tried_again_with_a_larger_context(store: Store) -> None:
    from dataclasses import replace

    from outlay.agent.grow import Grow

    def stepped(task: Task) -> Task:
        return replace(
            task,
            query=replace(task.query, steps=3),
            prompt=lambda shown, step, prefill: Prompt(
                (("user", task.query.id + " context" * 10 * 2**step),)
            ),
        )

    ledger = Ledger()
    accepts = {
        "supported": Verifier(lambda trace, line: line.step == 1 or line.example_id == "q0", oracle=False)
    }
    outcomes = execute(
        [stepped(task) for task in tasks(3)],
        Grow(StaticPolicy(Fixed(max_attempts=2, stop="none"), NoProbe(), "small"), "supported"),
        Simulated(),
        store,
        Tally(),
        accepts,
        Limits(max_new_tokens=10),
        0,
        ledger,
    )
    assert [[line.step for line in one.trace.attempts] for one in outcomes] == [
        [0, 0],
        [0, 0, 1, 1],
        [0, 0, 1, 1],
    ]
    grown = outcomes[1].trace.attempts
    assert grown[2].prompt_tokens > 1.5 * grown[0].prompt_tokens  # the ledger shows what the step cost
    assert [line.attempt for line in grown] == [1, 2, 3, 4]


class Stumbling(Simulated):
    """Every answer comes at the second try; the first was billed."""

    def _one(self, request: Request) -> Completion:
        failure = Failure("not JSON", prompt_tokens=len(request.text), completion_tokens=2, latency_s=0.2)
        return replace(super()._one(request), failures=(failure,))


def test_a_call_that_failed_and_was_tried_again_is_a_line_and_on_the_bill(store: Store) -> None:
    outcomes, ledger, _ = run(store, Fixed(stop="gold", max_attempts=3), generator=Stumbling())
    tried = [line for line in ledger.lines if line.finish_reason == "retried"]
    answered = [line for line in ledger.lines if line.kind == "attempt" and line.finish_reason == "stop"]
    assert len(tried) == len(answered) and all(line.error == "not JSON" and line.tokens for line in tried)
    assert ledger.tokens == sum(outcome.trace.tokens for outcome in outcomes)
    for outcome in outcomes:  # it is no attempt at an answer, and is numbered as none
        assert [line.attempt for line in outcome.trace.attempts] == [
            at + 1 for at in range(len(outcome.trace.attempts))
        ]
        assert [line.line for line in outcome.trace.lines] == list(range(len(outcome.trace.lines)))
    _, second, tally = run(store, Fixed(stop="gold", max_attempts=3), generator=Stumbling())
    assert second.lines == ledger.lines and not tally.misses  # a second run has the same ledger


@dataclass(frozen=True)
class Doubtful:
    """Attempts until a verifier that costs calls accepts one, at most three."""

    def fit(self, ledger: Ledger) -> "Doubtful":
        return self

    def next(self, trace: Trace) -> Action:
        attempts = trace.attempts
        if attempts and not trace.checked(attempts[-1].attempt, "asked"):
            return Verify("asked", attempts[-1].attempt)
        if attempts and trace.verdict(attempts[-1].attempt, "asked"):
            return Stop(attempts[-1].answer, solved=True)
        return Attempt("small", 0.7) if len(attempts) < 3 else Stop(trace.last_answer(), solved=False)


def test_a_verifier_that_asks_a_model_is_paid_for(store: Store) -> None:
    generator = Simulated(p=0.5)
    asked = Asked(
        prompt=lambda trace, line: Prompt((("user", f"Is {line.answer} right for {trace.query.id}?"),)),
        read=lambda reply: {"right": 1.0, "wrong-a": 0.0, "wrong-b": 0.0}.get(reply),
        k=3,
        temperature=0.7,
    )
    ledger = Ledger()
    outcomes = execute(
        tasks(10),
        Doubtful(),
        generator,
        store,
        Tally(),
        {"asked": asked},
        Limits(max_new_tokens=10),
        0,
        ledger,
    )
    for outcome in outcomes:
        trace = outcome.trace
        for attempt in trace.attempts:
            checks = [x for x in trace.lines if x.kind == "verify" and x.attempt == attempt.attempt]
            said = [x.confidence for x in checks if x.confidence is not None]
            assert len(checks) == 3 and all(x.verifier == "asked" and x.completion_tokens for x in checks)
            assert [x.prompt_tokens > 0 for x in checks] == [True, False, False]  # one request
            mean = sum(said) / len(said) if said else None
            assert trace.confidence(attempt.attempt, "asked") == mean
            assert trace.verdict(attempt.attempt, "asked") == (None if mean is None else mean >= 0.5)
        assert outcome.stop.solved == bool(trace.verdict(trace.attempts[-1].attempt, "asked"))
    assert not ledger.oracle and ledger.tokens == sum(outcome.trace.tokens for outcome in outcomes)


def test_the_failed_tries_of_a_check_are_on_its_own_bill(store: Store) -> None:
    """A metric is named by its verifier: a line without one had a name that the tracker refuses."""

    check = Asked(prompt=lambda trace, line: Prompt((("user", "Right?"),)), read=lambda reply: 1.0)
    ledger = Ledger()
    execute(
        tasks(4),
        Doubtful(),
        Stumbling(),
        store,
        Tally(),
        {"asked": check},
        Limits(max_new_tokens=10),
        0,
        ledger,
    )
    checks = [line for line in ledger.lines if line.kind == "verify"]
    assert {line.finish_reason for line in checks} == {"retried", "stop"}
    assert counts(checks)["asked", "tokens"] == sum(line.tokens for line in checks)
    assert {name for name, _ in counts(checks)} == {"asked"}


def test_a_chain_of_ones_choice_can_be_shown(store: Store) -> None:
    seen: list[Earlier] = []

    def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
        seen.append(shown)
        return Prompt((("user", shown.context),))

    @dataclass(frozen=True)
    class Shows:
        def fit(self, ledger: Ledger) -> "Shows":
            return self

        def next(self, trace: Trace) -> Action:
            done = len(trace.attempts)
            plan = [
                Attempt("small", 0.7),
                Attempt("small", 0.7, "carry"),
                Attempt("small", 0.7, "other", shown="x"),
            ]
            return plan[done] if done < len(plan) else Stop(None, solved=False)

    task = Task(Query("q", "", 0, 1), prompt, lambda reply: reply)
    ledger = Ledger()
    execute([task], Shows(), Simulated(p=1), store, Tally(), {}, Limits(max_new_tokens=10), 0, ledger)
    assert seen == [FRESH, Earlier("carry", "right"), Earlier("other", "x")]
    assert [line.context for line in ledger.lines] == ["fresh", "carry", "other"]


@dataclass(frozen=True)
class AsksFor:
    """Actions in turn, then a stop."""

    actions: tuple[Action, ...]

    def fit(self, ledger: Ledger) -> "AsksFor":
        return self

    def next(self, trace: Trace) -> Action:
        made = len(trace.lines)
        return self.actions[made] if made < len(self.actions) else Stop(trace.vote(), solved=True)


@pytest.mark.parametrize("action", [Attempt("smal", 0.7), Probe("smal", 2, 0.7), Verify("check", 1, "smal")])
def test_an_unknown_tier_is_named_before_its_call_is_paid_for(store: Store, action: Action) -> None:
    first = () if not isinstance(action, Verify) else (Attempt("small", 0.7),)
    generator, ledger = Simulated(), Ledger()
    with pytest.raises(ConfigError, match=r"tier 'smal'.*Did you mean 'small'"):
        execute(
            tasks(3),
            AsksFor((*first, action)),
            generator,
            store,
            Tally(),
            {"check": Asked(lambda trace, line: Prompt((("user", "?"),)), lambda reply: 1.0)},
            Limits(max_new_tokens=10),
            0,
            ledger,
        )
    assert len(generator.asked) == 3 * len(first) == len(ledger.lines)


def test_a_call_that_the_budget_did_not_allow_is_known_by_its_size(store: Store) -> None:
    """Prompts of 37 characters, replies of up to 10."""
    prompt = Simulated().count([Simulated().render(tasks(1)[0].prompt(FRESH, 0, None), "small")], "small")[0]
    least = prompt + 10
    outcomes, ledger, _ = run(store, NoRetry(), n=3, tokens_per_query=least - 1)
    assert [one.refused for one in outcomes] == [least] * 3 and not ledger.lines
    outcomes, _, _ = run(store, NoRetry(), n=3, tokens_per_query=least)
    assert [one.refused for one in outcomes] == [None] * 3 and all(one.trace.attempts for one in outcomes)


class Flaky(Simulated):
    """Each call is tried once before, in vain, and billed for it; the server's template adds five tokens."""

    def _one(self, request: Request) -> Completion:
        made = super()._one(request)
        failed = (Failure("cut off", made.prompt_tokens + 5, 4),)
        return replace(made, prompt_tokens=made.prompt_tokens + 5, failures=failed)


def test_what_only_the_bill_shows_may_pass_a_budget_and_ends_the_query(store: Store) -> None:
    retry = Fixed(stop="none", max_attempts=5)
    outcomes, ledger, _ = run(store, retry, n=8, generator=Flaky(), tokens_per_query=70)
    assert sum(one.trace.tokens for one in outcomes) == ledger.tokens
    for one in outcomes:
        assert one.trace.tokens > 70 and len(one.trace.attempts) == 1  # passed by the first call; no second
        assert one.refused is not None


def test_a_tier_that_opens_its_replies_itself_is_shown_what_each_tier_wrote(store: Store) -> None:
    """Two ways of asking one model: a chain carried from the one to the other begins as the one began it."""
    seen: list[tuple[str | None, str | None]] = []

    def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
        seen.append((prefill, shown.prefill))
        return Prompt((("user", shown.context),), prefill=prefill or "")

    @dataclass(frozen=True)
    class TwoWays(Simulated):
        @property
        def tiers(self) -> Sequence[Tier]:
            price = Price(input=1.0, output=2.0, units=0.5)
            return (Tier("plain", price), Tier("steps", price, "Step by step."))

    steps = AsksFor((Attempt("steps", 0.7), Attempt("plain", 0.7, "carry"), Attempt("steps", 0.7, "carry")))
    task = Task(Query("q", "", 0, 1), prompt, lambda reply: reply)
    execute([task], steps, TwoWays(p=1), store, Tally(), {}, Limits(max_new_tokens=10), 0, Ledger())
    assert seen == [("Step by step.", None), (None, "Step by step."), ("Step by step.", None)]
