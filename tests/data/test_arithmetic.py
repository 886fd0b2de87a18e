"""Sums and reasoning-gym's number tasks: right answers, graded, no question twice, the same on every machine."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.data import hash_split
from outlay.data.arithmetic import GYM, Arithmetic
from outlay.errors import ConfigError
from outlay.schema import component
from outlay.score.match import matches, parse


def _value(question: str) -> int:
    total, sign = 0, 1
    for word in question.split():
        if word in "+-":
            sign = 1 if word == "+" else -1
        else:
            total += sign * int(word)
    return total


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(0, 4), st.integers(1, 3), st.booleans())
def test_answers_are_right_and_domains_hold(
    seed: int, least: int, more: int, digits: int, negative: bool
) -> None:
    data = Arithmetic(
        seed=seed,
        count=40,
        split="all",
        min_terms=least,
        max_terms=least + more,
        digits=digits,
        negative=negative,
    )
    for example in data.examples():
        terms = example.question.split()[::2]
        assert example.references == (str(_value(example.question)),)
        assert example.meta["difficulty"] == len(terms) and least <= len(terms) <= least + more
        assert all(1 <= int(term) < 10**digits for term in terms)
        assert negative or _value(example.question) >= 0


def test_difficulties_are_balanced_and_no_question_comes_twice() -> None:
    examples = list(Arithmetic(split="all").examples())
    assert Counter(example.meta["difficulty"] for example in examples) == {2: 100, 3: 100, 4: 100, 5: 100}
    assert len({example.question for example in examples}) == 400


def test_when_short_sums_run_out_questions_repeat_instead_of_hanging() -> None:
    examples = list(Arithmetic(split="all", count=400, max_terms=2).examples())
    assert len(examples) == 400
    assert len({example.question for example in examples}) >= 120  # of the 126 with a result of 0 or more


def test_the_first_sums_are_the_same_bytes_on_every_machine() -> None:
    def digest(seed: int) -> str:
        lines = [
            f"{one.id} {one.question} = {one.references[0]}"
            for one in Arithmetic(seed=seed, split="all").examples()
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    assert digest(0) == "75f8a081506bf861b0edf87b9dd76fc0b8e79bf05af241b0070eff7e1b490fc0"
    assert digest(1) != digest(0)


@pytest.mark.parametrize("task", sorted(GYM))
def test_reasoning_gym_tasks_have_distinct_questions_and_number_answers(task: str) -> None:
    data = component("dataset", "arithmetic", task=task, count=30, split="all", seed=3)
    examples = list(data.examples())
    assert len({example.question for example in examples}) == len(examples) == 30
    assert data.prompt is not Arithmetic.prompt and not data.prompt.prefill
    for example in examples:
        assert example.id.startswith(f"{task}-") and example.split == hash_split(example.id)
        assert matches(parse(example.references[0], "number"), example.references, "number")
        assert 2 <= example.meta["difficulty"] <= 5
    assert examples == list(
        component("dataset", "arithmetic", task=task, count=30, split="all", seed=3).examples()
    )


@pytest.mark.parametrize("split", ["train", "tune", "test", "all"])
def test_split_and_limit(split: str) -> None:
    every = list(component("dataset", "arithmetic", split=split).examples())
    assert every and all(split in ("all", example.split) for example in every)
    assert list(component("dataset", "arithmetic", split=split, limit=7).examples()) == every[:7]


def test_a_range_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset.min_terms=5 is above dataset.max_terms=3"):
        Arithmetic(min_terms=5, max_terms=3)
