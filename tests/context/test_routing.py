from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.context.objective import problem_from_arrays
from outlay.context.routing import PHI, RHO
from outlay.context.selectors.mmr import Mmr
from outlay.context.selectors.rcd import Rcd
from outlay.context.selectors.routed import Routed

SEEDS = st.integers(0, 2**32 - 1)


def with_relevance(relevance, costs=None):
    """A problem whose relevance is given."""
    relevance = np.asarray(relevance, float)
    vectors = np.stack([relevance, np.sqrt(1 - relevance**2)], axis=1)
    return problem_from_arrays(vectors, [1, 0], np.ones(len(relevance)) if costs is None else costs, [10])


def random_problem(seed, count=20):
    rng = np.random.default_rng(seed)
    return problem_from_arrays(
        rng.normal(size=(count, 5)), rng.normal(size=5), rng.integers(1, 30, count), [30]
    )


@pytest.mark.parametrize("measure", PHI)
def test_phi_is_high_where_relevance_is_at_the_start(measure):
    front = with_relevance(np.linspace(0.9, 0.05, 40))
    back = with_relevance(np.linspace(0.05, 0.9, 40))
    flat = with_relevance(np.full(40, 0.5))
    phi = PHI[measure]
    assert phi(front) > 0.15 > abs(phi(flat)) >= 0 > phi(back)
    assert phi(flat) == pytest.approx(0, abs=1e-6)


def test_phi_area_of_known_curves():
    assert PHI["area"](with_relevance([1, 0, 0, 0])) == pytest.approx(0.75)
    assert PHI["area"](with_relevance([0, 0, 0, 1])) == pytest.approx(-0.75)
    # position is counted in tokens: a long irrelevant unit behind pushes the mass to the front
    assert PHI["area"](with_relevance([1, 0], costs=[1, 99])) == pytest.approx(0.99)


@pytest.mark.parametrize("measure", RHO)
def test_rho_grows_with_copies(measure):
    rng = np.random.default_rng(0)
    distinct = np.eye(30)
    some = np.concatenate([np.eye(30)[:15], np.eye(30)[:15]])
    same = np.tile(rng.normal(size=30), (30, 1))
    low, middle, high = (
        RHO[measure](problem_from_arrays(rows, rows[0], np.ones(30), [10])) for rows in (distinct, some, same)
    )
    assert low == pytest.approx(0, abs=1e-5)
    assert low < middle < high
    assert high == pytest.approx(1, abs=1e-5)


def test_rho_nearest_of_half_copies_is_the_share_of_units_seen_before():
    rows = np.concatenate([np.eye(10), np.eye(10)])
    assert RHO["nearest"](problem_from_arrays(rows, rows[0], np.ones(20), [5])) == pytest.approx(10 / 19)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_measures_stay_in_their_range(seed):
    problem = random_problem(seed)
    for phi in PHI.values():
        assert -1 <= phi(problem) <= 1
    for rho in RHO.values():
        assert 0 <= rho(problem) <= 1


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.ones((1, 3)), np.zeros((4, 3))])
def test_measures_of_degenerate_documents_are_zero_or_one(rows):
    problem = problem_from_arrays(rows, np.ones(3), np.ones(len(rows)), [5])
    for phi in PHI.values():
        assert abs(phi(problem)) < 1
    for rho in RHO.values():
        assert rho(problem) in (0.0, 1.0)


def test_the_route_follows_the_budget():
    problem = replace(random_problem(1, 60), budgets=(50, 700, 4000, 60))
    found = Routed(front=0, redundant=0, low=100, high=1000).select(problem)
    assert [one.choice for one in found] == ["lead", "mmr", "rcd", "lead"]
    assert found[1] == replace(Mmr().select(problem)[1], choice="mmr", info=found[1].info)
    assert found[2].value == Rcd().select(problem)[2].value
    assert {"phi", "rho"} <= set(found[0].info)


def test_a_front_loaded_document_stays_with_lead_and_a_redundant_one_goes_to_rcd():
    front = replace(with_relevance(np.linspace(0.95, 0.01, 60) ** 4), budgets=(180,))
    back = replace(front, relevance=front.relevance[::-1].copy())
    assert Routed().select(front)[0].choice == "lead"
    assert Routed().select(back)[0].choice != "lead"
    copies = problem_from_arrays(np.ones((80, 40)), np.ones(40), np.full(80, 10), [700])
    distinct = problem_from_arrays(np.eye(80), np.ones(80), np.full(80, 10), [700])
    assert Routed().select(copies)[0].choice == "rcd"
    assert Routed().select(distinct)[0].choice == "mmr"


def test_relative_thresholds_scale_with_the_document():
    short = problem_from_arrays(
        np.eye(20), np.ones(20), np.full(20, 10), [100]
    )  # 200 tokens: a tenth of 2,000
    plain, relative = Routed(front=0, redundant=0), Routed(front=0, redundant=0, relative=True)
    assert plain.select(short)[0].choice == "lead"
    assert relative.select(short)[0].choice == "mmr"
