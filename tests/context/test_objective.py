import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import all_values, random_instance

from outlay.context import Unit
from outlay.context.objective import Objective, facility_weights, first_copies, log_det, problem_from_arrays
from outlay.errors import ConfigError

SEEDS = st.integers(0, 2**32 - 1)


def test_rows_get_length_one_and_a_zero_row_stays_zero():
    problem = problem_from_arrays(
        [[3.0, 4.0], [0.0, 0.0], [1e300, 1e300], [1e-300, 0.0]], [1.0, 0.0], [1, 2, 3, 4], [5]
    )
    assert problem.vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(problem.vectors, axis=1), [1, 0, 1, 1])
    assert np.allclose(problem.relevance, [0.6, 0, np.sqrt(0.5), 1])


def test_relevance_is_the_best_over_queries_and_never_negative():
    problem = problem_from_arrays([[1, 0], [0, 1], [-1, -1]], [[1, 0], [0, 2]], [1, 1, 1], [3])
    assert problem.relevance.tolist() == [1, 1, 0]


@pytest.mark.parametrize("query", [None, np.zeros((0, 2)), []])
def test_without_a_query_relevance_is_the_similarity_to_the_mean(query):
    problem = problem_from_arrays([[1, 0], [1, 0], [0, 1]], query, [1, 1, 1], [3])
    assert np.allclose(problem.relevance, [2 / 5**0.5, 2 / 5**0.5, 1 / 5**0.5])


def test_a_query_without_features_makes_nothing_relevant():
    assert problem_from_arrays([[1, 0], [0, 1]], [0, 0], [1, 1], [2]).relevance.tolist() == [0, 0]


def test_an_empty_document_is_a_problem_of_no_units():
    for empty in ([], np.zeros((0, 4))):
        problem = problem_from_arrays(empty, [1.0, 0, 0, 0], [], [8])
        assert len(problem.costs) == len(problem.relevance) == len(problem.vectors) == 0


def test_a_cost_of_zero_is_lifted_to_one():
    assert problem_from_arrays([[1.0], [1.0]], [1.0], [0, 7], [8]).costs.tolist() == [1, 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": [[1.0, np.nan], [0, 1]]}, r"vectors holds nan at \(0, 1\)"),
        ({"query": [np.inf, 0]}, r"query holds inf at \(0,\)"),
        ({"vectors": [1.0, 2.0]}, r"vectors has shape \(2,\): expected \(n, d\)"),
        ({"vectors": [["a", "b"], ["c", "d"]]}, "vectors cannot be read as an array of numbers"),
        ({"query": [1.0, 0, 0]}, r"query has shape \(1, 3\): expected \(2,\) or \(q, 2\)"),
        ({"costs": [1, 2, 3]}, r"costs has shape \(3,\): expected \(2,\)"),
        ({"costs": [1, 2.5]}, r"costs holds 2.5 at \(1,\): expected whole tokens, at least 0"),
        ({"costs": [1, -2]}, r"costs holds -2 at \(1,\)"),
        ({"budgets": [0]}, r"budgets holds 0 at \(0,\): expected whole tokens, at least 1"),
        ({"units": (Unit(((0, 1),)),)}, "units holds 1 units: expected 2"),
    ],
)
def test_bad_arrays_are_named(change, message):
    arguments = {"vectors": [[1.0, 0], [0, 1]], "query": [1.0, 0], "costs": [1, 2], "budgets": [2], **change}
    with pytest.raises(ConfigError, match=message):
        problem_from_arrays(**arguments)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_the_objective_is_monotone_and_submodular(seed):
    objective, _, _ = random_instance(np.random.default_rng(seed), 6)
    values = all_values(objective)
    for unit in range(6):
        bit = 1 << unit
        without = [mask for mask in range(64) if not mask & bit]
        gains = {mask: values[mask | bit] - values[mask] for mask in without}
        assert min(gains.values()) >= -1e-9
        for smaller in without:
            for larger in without:
                if smaller & larger == smaller:
                    assert gains[larger] <= gains[smaller] + 1e-9


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_value_is_the_definition(seed):
    objective, _, _ = random_instance(np.random.default_rng(seed), 7)
    values = all_values(objective)
    for mask in (0, 1, 0b1010101, 0b1111111):
        assert objective.value([unit for unit in range(7) if mask >> unit & 1]) == pytest.approx(
            values[mask], abs=1e-9
        )


def test_log_det_has_two_equal_forms():
    rows = np.random.default_rng(0).normal(size=(9, 4))
    expected = np.linalg.slogdet(np.eye(9) + 2.0 * rows @ rows.T)[1]
    assert log_det(rows, 2.0) == pytest.approx(expected)
    assert log_det(rows[:3], 2.0) == pytest.approx(
        np.linalg.slogdet(np.eye(3) + 2 * rows[:3] @ rows[:3].T)[1]
    )


def test_a_known_value():
    # two orthogonal units kept out of three; the third is half covered by the first
    objective = Objective(
        np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32), np.array([0.5, 0.25, 0]), np.ones(3), 0.1, 1.0
    )
    assert objective.value([0, 1]) == pytest.approx(0.75 + (1 + 1 + 0.8) + 0.1 * 2 * np.log(2))


def test_facility_weights():
    relevance = np.array([0.2, 0.6, 0.4])
    assert facility_weights(relevance, "position", 0.04).tolist() == pytest.approx(
        [0.5, np.exp(-0.04), np.exp(-0.08) * 0.75]
    )
    assert facility_weights(relevance, "uniform", 0.04).tolist() == [1, 1, 1]
    assert facility_weights(relevance, "relevant", 0.04).tolist() == [0.2, 0.6, 0.4]
    assert facility_weights(np.zeros(3), "relevant", 0.04).tolist() == [1, 1, 1]
    assert facility_weights(np.zeros(0), "position", 0.04).tolist() == []


def test_first_copies_points_at_the_earliest_identical_row():
    rows = np.array([[1, 2], [1, 3], [1, 2], [0, 0], [1, 3], [1, 2]], np.float32)
    assert first_copies(rows).tolist() == [0, 1, 0, 3, 1, 0]
