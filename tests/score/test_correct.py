"""One rule grades lines, verdicts and predictions; each scorer differs from ours where it says so."""

import math

import pytest

from outlay.agent.ledger import Line
from outlay.errors import ConfigError
from outlay.score.correct import SCORERS, Grader
from outlay.score.match import parse


def line(text: str, kind: str) -> Line:
    return Line("q", 0, "attempt", attempt=1, text=text, answer=parse(text, kind))


CASES = {  # reply, gold, kind -> right by outlay, strict, f1, contains
    ("The Bears.", "the bears", "span"): (1, 0, 1, 1),
    ("the bears", "The Bears", "span"): (1, 1, 1, 1),
    ("George Halas, who coached the Bears", "the bears", "span"): (0, 0, 0, 1),
    ("Chicago Bears", "the Bears", "span"): (0, 0, 1, 1),
    ("So it costs $18.00.", "18", "number"): (1, 1, 1, 1),
    ("So it costs 18 dollars, not 20. The answer is 20", "18", "number"): (0, 0, 0, 1),
    ("", "18", "number"): (0, 0, 0, 0),
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_scorer_is_what_it_says(case: tuple[str, str, str]) -> None:
    text, gold, kind = case
    graded = [
        Grader(name, kind, {"q": [gold]})(line(text, kind)) for name in ("outlay", "strict", "f1", "contains")
    ]
    assert graded == list(CASES[case])


def test_strict_compares_what_the_pattern_names() -> None:
    steps = line("Thought: hm.\nAction: Finish[The Bears]", "span")
    assert Grader("strict", "span", {"q": ["The Bears"]}, pattern=r"Finish\[(.*)\]")(steps) == 1
    assert Grader("strict", "span", {"q": ["The Bears"]})(steps) == 0


def test_every_scorer_has_a_rule() -> None:
    for name in SCORERS:
        assert Grader(name, "number", {"q": ["1"]}, lambda _: 1.0)(line("1", "number")) == 1


def test_recorded_takes_the_flag_and_no_gold() -> None:
    flags = {"right by the log": 1.0, "half": 0.5}
    grade = Grader("recorded", "number", {"q": ()}, lambda one: flags.get(one.text))
    assert grade(line("right by the log", "number")) == 1 and grade(line("half", "number")) == 0.5
    assert grade.knows("q")
    assert grade(Line("q", 0, "attempt", error="not recorded: …")) == 0  # a failed call is wrong
    with pytest.raises(ConfigError, match=r"example q was right on tier big.*scorer=outlay"):
        grade(Line("q", 0, "attempt", tier="big", text="unknown"))


def test_without_gold_a_score_is_unknown_and_a_verdict_impossible() -> None:
    grade = Grader("outlay", "number", {"q": ()})
    assert math.isnan(grade(line("1", "number"))) and not grade.knows("q")
    with pytest.raises(ConfigError, match=r"example q has no gold answer.*metrics\.scorer=recorded"):
        grade.verdict(line("1", "number"))


def test_free_text_is_scored_by_token_f1() -> None:
    assert Grader("outlay", "text", {"q": ["x b c d"]})(line("b c d e", "text")) == 0.75


def test_contains_finds_a_number_within_a_written_step() -> None:
    from outlay.score.correct import RULES

    line = Line("q", 0, "attempt", answer="93", text="2-9=93")
    assert RULES["contains"](line, ["93"], "number") and not RULES["contains"](line, ["3"], "number")
