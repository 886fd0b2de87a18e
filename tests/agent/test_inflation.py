"""CBE and inflation at known values."""

from math import isnan, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.agent.ledger import Line
from outlay.inflation import agreement, branching_entropy, inflation

answers = st.lists(st.sampled_from(["1", "2", "3", None]), min_size=1, max_size=12)


def test_three_different_answers_give_log2_3_bits_and_three_equal_ones_none() -> None:
    assert branching_entropy(["1", "2", "3"]) == pytest.approx(log2(3))
    assert branching_entropy(["7", "7", "7"]) == 0
    assert branching_entropy(["7", "7", "8"]) == pytest.approx(0.9182958)
    assert branching_entropy([None, None, "8"]) == pytest.approx(
        0.9182958
    )  # unparsable answers are one class
    assert isnan(branching_entropy([])) and isnan(agreement([]))


@given(answers)
def test_entropy_lies_between_0_and_log2_k_and_order_does_not_matter(values: list[str | None]) -> None:
    entropy = branching_entropy(values)
    assert -1e-12 <= entropy <= log2(len(values)) + 1e-12
    assert entropy == pytest.approx(branching_entropy(reversed(values)))
    assert (entropy == pytest.approx(0)) == (agreement(values) == 1)


def test_inflation_is_all_attempts_over_the_first() -> None:
    def line(prompt: int, made: int) -> Line:
        return Line("q", 0, "attempt", prompt_tokens=prompt, completion_tokens=made)

    assert inflation([line(80, 20)]) == 1
    assert inflation([line(80, 20), line(80, 70)]) == 2.5
    assert inflation([line(0, 0), line(80, 20)]) == 1  # the first call failed and cost nothing
    assert isnan(inflation([])) and isnan(inflation([line(0, 0)]))
