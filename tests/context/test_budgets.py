"""Budgets: steps grow to the document, a rule picks one before anything is paid for, pins are kept or refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.context import Selection
from outlay.context.budgets.escalating import Escalating
from outlay.context.budgets.fixed import Fixed
from outlay.context.budgets.fraction import Fraction
from outlay.context.budgets.full import Full
from outlay.context.objective import problem_from_arrays
from outlay.context.selectors.lead import Lead
from outlay.context.selectors.rcd import Rcd
from outlay.errors import ConfigError

TEXTS = ["Allergies: penicillin.", "He was well.", "Warfarin 5 mg daily.", "No pain."]


@given(st.integers(1, 500), st.floats(1.1, 4), st.integers(1, 5000), st.integers(0, 9000))
def test_steps_rise_from_start_to_the_smaller_of_most_and_the_document(
    start: int, factor: float, most: int, length: int
) -> None:
    if start > most:
        with pytest.raises(ConfigError, match="above"):
            Escalating(start=start, most=most)
        return
    steps = Escalating(start=start, factor=factor, most=most).steps(length)
    assert list(steps) == sorted(set(steps))
    assert steps[-1] == max(1, min(most, length))
    assert steps[0] == min(start, steps[-1])


def test_the_other_budgets_have_one_step() -> None:
    assert Fixed(tokens=64).steps(10) == (64,)
    assert Fraction(fraction=0.25).steps(1000) == (250,)
    assert Fraction(fraction=0.01).steps(10) == (1,)
    assert Full().steps(1234) == (1234,) and Full().steps(0) == (1,)


def chosen(budget: Escalating, selector: object, relevance_first: float = 1.0) -> int:
    """The budget's step for four units of ten tokens, steps of 10, 20, 40."""
    vectors = [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]]
    problem = problem_from_arrays(vectors, [relevance_first, 1 - relevance_first], [10] * 4, (10, 20, 40))
    selections = selector.select(problem)  # type: ignore[attr-defined]
    (place,) = budget.chosen(problem, selections, TEXTS)
    return (10, 20, 40)[place]


def test_marginal_grows_while_the_next_step_is_worth_its_tokens() -> None:
    # relevance 1, .8, .6, 0: the second step adds .8 of the first's worth per token, the third .3
    assert chosen(Escalating(start=10, most=40, rule="marginal", threshold=0.9), Lead()) == 10
    assert chosen(Escalating(start=10, most=40, rule="marginal", threshold=0.5), Lead()) == 20
    assert chosen(Escalating(start=10, most=40, rule="marginal", threshold=0.2), Lead()) == 40


def test_a_certificate_is_of_the_whole_documents_objective() -> None:
    assert chosen(Escalating(start=10, most=40, rule="certificate", threshold=0.0), Rcd()) == 10
    assert chosen(Escalating(start=10, most=40, rule="certificate", threshold=1.0), Rcd()) == 40
    with pytest.raises(ConfigError, match="selector=rcd"):
        chosen(Escalating(start=10, most=40, rule="certificate"), Lead())


def test_concepts_must_be_in_the_context_where_the_document_has_them() -> None:
    assert chosen(Escalating(start=10, most=40, rule="concepts", concepts=["allergies"]), Lead()) == 10
    assert chosen(Escalating(start=10, most=40, rule="concepts", concepts=["anticoagulants"]), Lead()) == 40
    assert chosen(Escalating(start=10, most=40, rule="concepts", concepts=["nowhere"]), Lead()) == 10


def test_grounded_keeps_every_step_for_the_answers_to_decide() -> None:
    budget = Escalating(rule="grounded")
    selections = [Selection((0,), 10), Selection((0, 1), 20)]
    problem = problem_from_arrays([[1.0], [1.0]], [1.0], [10, 10], (10, 20))
    assert list(budget.chosen(problem, selections, TEXTS[:2])) == [0, 1]
    assert budget.verifier == "grounded" and Escalating(rule="marginal").verifier is None
    assert math.isnan(selections[0].bound)
