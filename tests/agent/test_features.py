"""Probe features at known values, and how many samples a probe needs."""

from dataclasses import astuple
from math import isnan, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.agent.ledger import Line, Query, Trace
from outlay.inflation import inflation
from outlay.inflation.features import FOUR, Features, features, identical, k_sweep, rounded_entropy

QUERY = Query("q", "How many apples are left after each of 3 boys eats half?", 0, 80)


def trace(*chains: tuple[str | None, str], attempts: tuple[Line, ...] = ()) -> Trace:
    probes = [
        Line("q", at, "probe", answer=answer, text=text, completion_tokens=len(text.split()))
        for at, (answer, text) in enumerate(chains)
    ]
    return Trace(QUERY, (*probes, *attempts))


def test_features_at_known_values() -> None:
    found = features(trace(("4", "two and two is 4"), ("4", "It is 4."), ("5", "five")))
    assert found == Features(
        cbe=pytest.approx(0.9182958, abs=1e-7),
        agreement=pytest.approx(2 / 3),
        chain_tokens=pytest.approx(3),
        prompt_tokens=80,
        diversity=pytest.approx(6 / 9),  # two and is 4 it five
        cues=5,  # how left after each half
    )
    assert all(hasattr(found, name) for name in FOUR)


def test_a_failed_call_says_nothing_and_no_probe_is_not_a_number() -> None:
    chains = [("4", "4"), ("5", "5")]
    failed = Line("q", 9, "probe", finish_reason="error", error="the server hung up")
    whole = trace(*chains)
    assert features(Trace(QUERY, (*whole.lines, failed))) == features(whole)
    found = features(Trace(QUERY))
    assert [isnan(one) for one in astuple(found)] == [True, True, True, False, True, False]


def test_a_probe_that_is_reused_has_the_same_features() -> None:
    whole = trace(("4", "4"), ("5", "5"), (None, "hm"))
    numbered = tuple(Line(**{**_row(line), "attempt": line.line + 1}) for line in whole.lines)
    assert features(Trace(QUERY, numbered)) == features(whole)


def _row(line: Line) -> dict[str, object]:
    return {name: getattr(line, name) for name in Line.__dataclass_fields__}


@given(st.lists(st.sampled_from(["1", "2", "3", "4", None]), min_size=1, max_size=10), st.randoms())
def test_equal_splits_are_ties_whatever_the_order(answers: list[str | None], random: object) -> None:
    other = list(answers)
    random.shuffle(other)  # type: ignore[attr-defined]
    assert rounded_entropy(answers) == rounded_entropy(other)


def test_identical_attempts_are_counted_within_their_tier() -> None:
    def attempt(tier: str, text: str, error: str = "") -> Line:
        return Line("q", 0, "attempt", tier, 1, text=text, error=error)

    lines = [attempt("small", "a"), attempt("small", "a"), attempt("large", "a"), attempt("small", "b")]
    assert identical(Trace(QUERY, tuple(lines))) == 1
    failed = [attempt("small", "", "hung up")] * 3
    assert identical(Trace(QUERY, tuple(failed))) == 0


def simulated(n: int, samples: int, informative: bool, seed: int = 0) -> list[Trace]:
    """Queries of known difficulty: probe answers and attempts are right with the same chance, or with unlike ones."""
    rng = np.random.default_rng(seed)
    found = []
    for at in range(n):
        p = rng.uniform(0.05, 0.95)
        probed = p if informative else 0.5
        key = f"q{at}"
        lines = [
            Line(key, k, "probe", answer="right" if rng.random() < probed else f"wrong{rng.integers(4)}")
            for k in range(samples)
        ]
        made = 1
        while rng.random() > p and made < 5:
            made += 1
        lines += [
            Line(key, samples + k, "attempt", attempt=k + 1, prompt_tokens=50, completion_tokens=50)
            for k in range(made)
        ]
        found.append(Trace(Query(key, "question", 0, 50), tuple(lines)))
    return found


def test_more_samples_foretell_better_with_more_values_and_fewer_ties() -> None:
    traces = simulated(600, 10, informative=True)
    three, five, ten = k_sweep(traces, (3, 5, 10), resamples=200)
    assert (three.k, five.k, ten.k) == (3, 5, 10) and three.queries == ten.queries == 600
    assert three.distinct == 3 and five.distinct == 7 and ten.distinct > 20
    assert three.ties > five.ties > ten.ties
    assert 0.6 < three.auroc < ten.auroc
    assert three.lo < three.auroc < three.hi


def test_a_probe_that_knows_nothing_foretells_nothing() -> None:
    (row,) = k_sweep(simulated(600, 5, informative=False), (5,), resamples=300)
    assert row.lo < 0.5 < row.hi


def test_all_rows_are_over_the_queries_that_have_the_most_samples() -> None:
    traces = simulated(30, 10, informative=True) + simulated(30, 3, informative=True, seed=1)
    assert [row.queries for row in k_sweep(traces, (3, 10), resamples=50)] == [30, 30]
    assert all(inflation(one.attempts) >= 1 for one in traces)
    (row,) = k_sweep([], (3,), resamples=50)
    assert row.queries == 0 and isnan(row.auroc) and isnan(row.ties)


def test_three_samples_take_three_values() -> None:
    splits = (("1", "1", "1"), ("1", "1", "2"), ("1", "2", "3"))
    assert [rounded_entropy(one) for one in splits] == pytest.approx([0, 0.9182958, log2(3)])
