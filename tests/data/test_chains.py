"""Chained arithmetic: right answers and chains, held-out questions only, no question in two splits."""

import hashlib
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.data import hash_split
from outlay.data.chains import HELD_OUT, Chains, held_out, make_question, solve, split_question
from outlay.data.draw import Draw
from outlay.errors import ConfigError, DataError
from outlay.schema import component
from outlay.score.match import matches, parse


def left_to_right(question: str) -> int:
    """The value by another way: Python's own arithmetic on a nested expression."""
    first, *rest = re.findall(r"^\d+|[-+*]\d+", question)
    expression = first
    for part in rest:
        expression = f"(({expression}){part}) % 100"
    return int(eval(expression))


QUESTIONS = st.builds(
    lambda seed, steps, operations: make_question(Draw(seed), steps, operations),
    st.text(max_size=8),
    st.integers(1, 5),
    st.sampled_from(["+-*", "+", "-", "*", "-*"]),
)


@given(QUESTIONS)
def test_the_answer_is_the_value_from_left_to_right_modulo_100(question: str) -> None:
    chain, answer = solve(question)
    assert answer == left_to_right(question)
    lines = [re.fullmatch(r"(\d+)([-+*]\d+)=(\d+)", line) for line in chain.split(";")]
    steps = [line.groups() for line in lines if line]
    assert len(steps) == len(lines) == len(split_question(question)[1])
    # Each step goes on from the result of the one before, and together they are the question.
    assert [step[0] for step in steps[1:]] == [step[2] for step in steps[:-1]]
    assert steps[0][0] + "".join(step[1] for step in steps) + "?" == question


@given(QUESTIONS)
def test_the_answer_is_read_from_the_right_chain(question: str) -> None:
    chain, answer = solve(question)
    assert parse(chain, "number") == str(answer)


def test_known_values() -> None:
    assert solve("37+8*5?") == ("37+8=45;45*5=25", 25)
    assert solve("5-9?") == ("5-9=96", 96)
    assert solve("1+2*3?") == ("1+2=3;3*3=9", 9)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 3), st.sampled_from([["+"], ["+", "*"], ["-"]])
)
def test_domains_hold(seed: int, least: int, more: int, operations: list[str]) -> None:
    most = min(5, least + more)
    data = Chains(seed=seed, count=40, split="all", min_steps=least, max_steps=most, operations=operations)
    examples = list(data.examples())
    assert len({example.question for example in examples}) == len({example.id for example in examples}) == 40
    for example in examples:
        used = [operation for operation, _ in split_question(example.question)[1]]
        assert set(used) <= set(operations)
        assert example.meta["difficulty"] == len(used) and least <= len(used) <= most
        assert matches(
            parse(example.references[0], "number"), [str(left_to_right(example.question))], "number"
        )


def test_only_held_out_questions_are_asked_and_each_is_in_one_split_whatever_the_seed() -> None:
    split_of: dict[str, str] = {}
    for seed in range(4):
        for example in component("dataset", "chains", split="all", seed=seed).examples():
            assert held_out(example.question) and example.split == hash_split(example.question)
            assert split_of.setdefault(example.question, example.split) == example.split
    assert Counter(split_of.values()).keys() == {"train", "tune", "test"}


def test_the_held_out_share_is_as_said() -> None:
    draw = Draw("share")
    asked = {make_question(draw, 3) for _ in range(4000)}
    share = sum(map(held_out, asked)) / len(asked)
    assert abs(share - HELD_OUT) < 4 * (HELD_OUT * (1 - HELD_OUT) / len(asked)) ** 0.5


def test_lengths_are_balanced() -> None:
    counts = Counter(example.meta["difficulty"] for example in Chains(split="all").examples())
    assert counts == dict.fromkeys(range(1, 6), 200)


def test_used_up_questions_are_an_error_not_a_repetition() -> None:
    with pytest.raises(DataError, match=r"dataset\.count=1000.*used up.*min_steps"):
        list(Chains(count=1000, max_steps=1, split="all").examples())


def test_the_questions_are_the_same_bytes_on_every_machine() -> None:
    lines = [f"{one.id} {one.question} = {one.references[0]}" for one in Chains(split="all").examples()]
    assert (
        hashlib.sha256("\n".join(lines).encode()).hexdigest()
        == "13f832554eb61057a501691d2d716730e4caf2baa67dd2f3a24b267fb4b037f9"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"min_steps": 4, "max_steps": 2}, r"min_steps=4 is above dataset\.max_steps=2"),
        ({"operations": []}, "operations is empty"),
        ({"operations": ["/"]}, r"operations=/.*Choices"),
        ({"max_steps": 6}, "at most 5"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        component("dataset", "chains", **options)
