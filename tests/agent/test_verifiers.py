"""Verifiers: what each makes of an attempt, which read gold, what they cost, and how often they are wrong."""

from collections.abc import Callable
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest
from simulated import Simulated

from outlay.agent import Attempt, Stop, Verify, verifiers
from outlay.agent.executor import Asked, Limits, Task, Verifier, execute, scored
from outlay.agent.ledger import Ledger, Line, Query, Trace
from outlay.agent.retry.fixed import Fixed
from outlay.agent.scorer import WithScorer, fit_scorer
from outlay.agent.verifiers import content_words, grounded
from outlay.compose import checked, compose
from outlay.data import Example
from outlay.errors import ConfigError, DataError, GenerationError
from outlay.generate import Completion, Earlier, Prompt, Request, Tally
from outlay.generate.store import Store
from outlay.inflation.probes.none import NoProbe
from outlay.routers.oracle import OraclePolicy
from outlay.routers.static import StaticPolicy
from outlay.runner import _verifiers
from outlay.score.statistics import auroc, clopper_pearson
from outlay.score.verification import counts, metrics, rates


def line(text: str, answer: str | None = None, step: int = 0) -> Line:
    return Line("q", 0, "attempt", attempt=1, text=text, answer=answer, step=step)


def trace(*answers: str | None, probe: int = 0) -> Trace:
    """So many probe samples, then attempts."""
    lines = [
        Line("q", at, "probe" if at < probe else "attempt", attempt=max(0, at + 1 - probe), answer=answer)
        for at, answer in enumerate(answers)
    ]
    return Trace(Query("q", "question", 0, 10), tuple(lines))


# --- what each says ------------------------------------------------------------------------------------------


def test_gold_is_marked_as_an_oracle_and_the_others_are_not() -> None:
    parts = checked(compose(["dataset=arithmetic"]))
    known = _verifiers([Example("q", question="7 + 5", references=("12",))], [()], parts)
    verifier = known["gold"]
    assert isinstance(verifier, Verifier)
    said = [verifier.check(trace(), line(text, text or None)) for text in ("12", "13", "")]
    assert said == [1, 0, 0]
    oracles = [name for name, one in known.items() if isinstance(one, Verifier) and one.oracle]
    assert oracles == ["gold"]


def test_grounded_counts_the_content_words_of_the_context_that_was_sent() -> None:
    verifier = grounded({"q": ["Warfarin 5 mg.", "Warfarin 5 mg daily for fibrillation."]}, threshold=1.0)
    assert not verifier.oracle

    def accepts(text: str, step: int = 0) -> bool:
        return verifier.check(trace(), line(text, step=step)) >= verifier.threshold

    assert accepts("warfarin 5")
    assert not accepts("Warfarin for fibrillation")
    assert accepts("Warfarin for fibrillation", step=1)
    assert not accepts("He is on.")  # says nothing that could be checked


def test_content_words() -> None:
    assert content_words("The INR was 2.5, on Warfarin.") == {"2.5", "warfarin"}


def test_agreement_is_the_share_of_all_samples_so_far() -> None:
    check = verifiers.agreement().check
    asked = trace("a", "b", "a", "a", probe=3)
    assert check(asked, asked.attempts[0]) == 0.75
    asked = trace("a", None, "b")
    assert [check(asked, one) for one in asked.attempts] == [1 / 3, 0, 1 / 3]


def test_parse_accepts_what_could_be_read() -> None:
    check = verifiers.parsed().check
    assert check(trace(), line("12", "12")) == 1 and check(trace(), line("hm")) == 0


def test_logprob_is_the_mean_chance_of_a_token_and_says_so_where_there_is_none() -> None:
    check = verifiers.logprob().check
    assert check(trace(), replace(line("12", "12"), logprob=log(0.9))) == pytest.approx(0.9)
    assert check(trace(), replace(line("", None), error="the server hung up")) == 0
    with pytest.raises(GenerationError, match=r"tier small gives no log-probabilities.*agreement"):
        check(trace(), replace(line("12", "12"), tier="small"))


def test_self_verify_shows_task_and_reply_and_reads_yes_or_no() -> None:
    def ask(of: Line) -> Prompt:
        return Prompt((("system", "be brief"), ("user", "2 + 2 {?}")), prefill="So", example_id=of.example_id)

    check = verifiers.self_verify(ask, replies=3)
    prompt = check.prompt(trace(), line(" it is 4", "4"))
    ((_, text),) = prompt.messages
    assert "2 + 2 {?}" in text and "So it is 4" in text and prompt.example_id == "q"
    assert [check.read(reply) for reply in ("Yes.", "**No**, it is 5", "yesterday", "")] == [1, 0, None, None]
    assert check.tier is None and check.k == 3 and check.temperature > 0
    assert verifiers.self_verify(ask).temperature == 0
    assert verifiers.judge(ask, "large").tier == "large"
    assert verifiers.reflect(ask).read("Yes, I was wrong") is None


class Judged(Simulated):
    """The large tier says Yes to right answers, and to every second wrong one."""

    def _one(self, request: Request) -> Completion:
        if request.stream != "verify":
            return super()._one(request)
        yes = "right" in request.text or request.row_seed % 2
        return Completion("Yes" if yes else "No", len(request.text), 1, "stop")


def solve(
    tmp_path: Path, retry: Fixed, n: int = 60, p: float = 0.4, **known: Asked
) -> tuple[list[Stop], Ledger]:
    def task(at: int) -> Task:
        def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
            return Prompt((("user", f"question {at}"),))

        return Task(Query(f"q{at}", f"question {at}", 0, 10), prompt, lambda reply: reply or None)

    ledger = Ledger()
    outcomes = execute(
        [task(at) for at in range(n)],
        StaticPolicy(retry, NoProbe(), "small"),
        Judged(p=p, tier_names=("small", "large")),
        Store(tmp_path / "store.sqlite"),
        Tally(),
        {"gold": Verifier(lambda _, one: float(one.answer == "right"), oracle=True), **known},
        Limits(max_new_tokens=10),
        0,
        ledger,
    )
    ledger.lines = scored(ledger.lines, lambda one: float(one.answer == "right"))
    return [one.stop for one in outcomes], ledger


# --- error rates ---------------------------------------------------------------------------------------------


def test_rates_are_what_the_stops_show(tmp_path: Path) -> None:
    judge = verifiers.judge(lambda of: Prompt((("user", "the task"),)), "large", replies=1)
    stops, ledger = solve(tmp_path, Fixed(stop="verifier", verifier="judge", max_attempts=4), judge=judge)
    (row,) = rates(counts(ledger.lines))
    accepted = [stop.answer == "right" for stop in stops if stop.solved]
    assert row.accepted_wrong == clopper_pearson(accepted.count(False), len(accepted))
    assert row.accepted_wrong.value > 0  # it does let wrong answers through
    assert row.tpr.value == 1 and row.right == accepted.count(True)
    assert 0 < row.fpr.lo < row.fpr.value < row.fpr.hi < 1 and not row.oracle
    assert row.tokens == sum(one.tokens for one in ledger.lines if one.kind == "verify") > 0
    assert {one.tier for one in ledger.lines if one.kind == "verify"} == {"large"}
    found = metrics(counts(ledger.lines))
    assert found["verifier/judge/accepted_wrong"] == row.accepted_wrong.value
    assert found["verifier/judge/checks"] == row.right + row.wrong
    assert not any(mark in name for name in found for mark in "=@[")


def test_gold_makes_no_mistakes_costs_nothing_and_is_an_oracle(tmp_path: Path) -> None:
    _, ledger = solve(tmp_path, Fixed(stop="gold", max_attempts=4))
    (row,) = rates(counts(ledger.lines))
    assert (row.tpr.value, row.fpr.value, row.accepted_wrong.value) == (1, 0, 0)
    assert row.oracle and row.tokens == 0


def test_counts_of_chunks_add_up_and_samples_of_one_check_count_once(tmp_path: Path) -> None:
    judge = verifiers.judge(lambda of: Prompt((("user", "the task"),)), "large", replies=3)
    retry = Fixed(stop="verifier", verifier="judge", max_attempts=3)
    _, ledger = solve(tmp_path, retry, judge=judge)
    halves = [
        [one for one in ledger.lines if (int(one.example_id[1:]) < 30) == first] for first in (True, False)
    ]
    added = counts(halves[0])
    added.update(counts(halves[1]))
    assert rates(added) == rates(counts(ledger.lines))
    checks = {(one.example_id, one.attempt) for one in ledger.lines if one.kind == "verify"}
    (row,) = rates(added)
    assert row.right + row.wrong == len(checks) * 1 < sum(one.kind == "verify" for one in ledger.lines)


def test_no_rates_where_no_answer_is_simply_right(tmp_path: Path) -> None:
    _, ledger = solve(tmp_path, Fixed(stop="gold", max_attempts=2))
    partly = scored(ledger.lines, lambda one: 0.3)
    assert rates(counts(partly)) == []


# --- the learned scorer --------------------------------------------------------------------------------------

WORDS = {"right": 0, "wrong-a": 1, "wrong-b": 2, "wrong-c": 3, "": 4}


def embed(texts: list[str]) -> np.ndarray:
    """A vector that tells answers apart, and says of a question whether it is hard."""
    rows = np.zeros((len(texts), 6))
    for row, text in zip(rows, texts, strict=True):
        question, _, answer = text.partition("\n")
        row[WORDS.get(answer, 4)] = 0.6
        row[5] = 0.8 if "hard" in question else -0.8
    return rows


def explored(n: int, split: str, seed: int, told: Callable[[bool], str] = lambda right: "x") -> list[Trace]:
    """Queries of five attempts, hard ones rarely right; the reply's text is what `told` makes of it."""
    rng = np.random.default_rng(seed)
    found = []
    for at in range(n):
        hard = bool(rng.random() < 0.5)
        lines = []
        for k in range(5):
            right = bool(rng.random() < (0.2 if hard else 0.8))
            answer = "right" if right else ("wrong-a", "wrong-b", "wrong-c")[int(rng.integers(3))]
            lines.append(
                Line(
                    f"{split}{at}",
                    k,
                    "attempt",
                    "small",
                    k + 1,
                    answer=answer,
                    text=told(right),
                    completion_tokens=10,
                    score=float(right),
                )
            )
        query = Query(f"{split}{at}", "hard one" if hard else "easy one", 0, 10, split=split)
        found.append(Trace(query, tuple(lines)))
    return found


def test_the_scorer_learns_from_question_and_agreement_what_is_right() -> None:
    fitted = fit_scorer(explored(150, "train", 1), embed, seed=0)
    pairs = [(one, sample) for one in explored(150, "test", 2) for sample in one.attempts]
    said = fitted.confidences(pairs, embed)
    right = np.array([sample.score for _, sample in pairs])
    assert said.min() >= 0 and said.max() <= 1
    assert auroc(said, right, resamples=200).lo > 0.75
    assert abs(said.mean() - right.mean()) < 0.05
    late = np.array([sample.attempt == 5 for _, sample in pairs])
    early = np.array([sample.attempt == 1 for _, sample in pairs])
    # samples that agree tell more: the fifth attempt is judged better than the first
    assert auroc(said[late], right[late]).value > auroc(said[early], right[early]).value
    assert fitted.confidence(*pairs[7], embed) == pytest.approx(said[7])


def test_the_scorer_sees_neither_scores_nor_later_samples() -> None:
    fitted = fit_scorer(explored(60, "train", 1), embed, seed=0)
    (one,) = explored(1, "test", 3)
    blind = replace(one, lines=tuple(replace(sample, score=None) for sample in one.lines[:3]))
    assert fitted.confidence(blind, blind.lines[2], embed) == fitted.confidence(one, one.lines[2], embed)


def test_a_share_of_the_queries_is_kept_for_thresholds() -> None:
    traces = explored(100, "train", 1)
    fitted = fit_scorer(traces, embed, seed=0, share=0.45)
    assert len(fitted.fitted_on) == 45 < len(traces)
    assert fitted.fitted_on == fit_scorer(traces, embed, seed=0, share=0.45).fitted_on
    assert fitted.fitted_on != fit_scorer(traces, embed, seed=1, share=0.45).fitted_on


def test_one_class_gives_its_share_and_no_class_is_an_error() -> None:
    traces = explored(10, "train", 1)
    right = [replace(one, lines=tuple(replace(x, score=1.0) for x in one.lines)) for one in traces]
    fitted = fit_scorer(right, embed, seed=0)
    assert fitted.confidence(right[0], right[0].lines[0], embed) == pytest.approx(50.5 / 51)
    with pytest.raises(DataError, match="nothing to learn from"):
        fit_scorer([], embed, seed=0)


def test_a_policy_that_stops_by_the_scorer_explores_all_attempts_then_verifies() -> None:
    retry = Fixed(stop="verifier", verifier="scorer", max_attempts=3)
    policy = WithScorer(
        StaticPolicy(retry, NoProbe(), "small"), StaticPolicy(retry.exploring(), NoProbe(), "small"), embed, 0
    )
    (one,) = explored(1, "test", 3)
    assert isinstance(policy.explore().next(replace(one, lines=one.lines[:1])), Attempt)
    assert policy.verifiers == {}
    ledger = Ledger()
    for split in ("train", "tune"):
        for each in explored(60, split, 1):
            ledger.lines += each.lines
            ledger.queries[each.query.id] = each.query
    fitted = policy.fit(ledger)
    assert all(key.startswith("train") for key in fitted.scorer.fitted_on)  # type: ignore[union-attr]
    assert fitted.next(replace(one, lines=one.lines[:1])) == Verify("scorer", 1)
    told = replace(policy, policy=OraclePolicy(("small",), 2, 0.0, ("what it says of itself",)))
    assert told.warnings == ("what it says of itself",) and policy.warnings == ()
    check = fitted.verifiers["scorer"]
    assert not check.oracle and 0 < check.check(one, one.lines[0]) < 1  # type: ignore[union-attr]


# --- what cannot be run is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("retry.stop=verifier retry.verifier=judge", "judge asks another tier.*self_verify"),
        ("retry.stop=verifier retry.judge=huge", r"retry\.judge=huge"),
        ("retry.stop=verifier retry.max_attempts=2", "compares at least 3 samples.*at most 2"),
        ("retry.stop=verifier retry.verifier=agrement", "'agreement'"),
        ("retry=escalate", "there is one: smollm2"),
        ("retry=escalate retry.tiers=[smollm2,huge]", "no tier 'huge'"),
        ("retry=escalate retry.predicted=4", r"it cannot fire.*factor=null"),
    ],
)
def test_impossible_checks_are_refused_with_the_way_out(words: str, told: str) -> None:
    base = ["dataset=arithmetic", "selector=none", "retry=fixed"]
    with pytest.raises(ConfigError, match=told):
        checked(compose([*base, *words.split()]))


def test_free_text_has_nothing_to_agree_on() -> None:
    for words in ("retry=vote", "retry=adaptive", "retry=fixed retry.stop=verifier"):
        with pytest.raises(ConfigError, match="free texts never agree"):
            checked(compose(["dataset=cochrane", *words.split()]))
