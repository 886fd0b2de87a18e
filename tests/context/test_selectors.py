"""One contract for every selector, then what each of them promises."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.context import Unit
from outlay.context.objective import problem_from_arrays
from outlay.context.packing import fill
from outlay.context.pins import STARTER, pinned, with_pins
from outlay.context.selectors.full import Full
from outlay.context.selectors.graphcluster import GraphCluster, communities
from outlay.context.selectors.hierarchical import Hierarchical
from outlay.context.selectors.lead import Lead
from outlay.context.selectors.mmr import Mmr
from outlay.context.selectors.none import Nothing
from outlay.context.selectors.rcd import Rcd
from outlay.context.selectors.routed import Routed
from outlay.context.selectors.shuffled import Shuffled
from outlay.context.selectors.sliding import Sliding
from outlay.errors import ConfigError, OutlayError

SELECTORS = {
    "lead": Lead(),
    "shuffled": Shuffled(),
    "sliding": Sliding(),
    "hierarchical": Hierarchical(),
    "hierarchical_wide": Hierarchical(radius=3, headers=False),
    "graphcluster": GraphCluster(),
    "graphcluster_relevant": GraphCluster(neighbours=2, representative="relevant"),
    "mmr": Mmr(),
    "mmr_convex": Mmr(form="convex", weight=0.7),
    "mmr_per_token": Mmr(per_token=True),
    "rcd": Rcd(),
    "rcd_lagrangian": Rcd(bound="lagrangian", weights="position"),
    "rcd_guess": Rcd(guess=1, guess_top=5),
    "rcd_torch": Rcd(engine="torch"),
    "routed": Routed(low=10, high=40),
    "none": Nothing(),
}
SEEDS = st.integers(0, 2**32 - 1)
EVERY = pytest.mark.parametrize("name", SELECTORS)
FILLING = [name for name in SELECTORS if name not in ("none", "sliding")]


def random_problem(seed, count=None, budgets=(1, 7, 25, 60, 10_000)):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 30)) if count is None else count
    vectors = rng.normal(0.2, 1, (count, 6))
    vectors[rng.random(count) < 0.1] = 0
    headers = [None if place % 5 == 0 else place - place % 5 for place in range(count)]
    units = [Unit(((10 * place, 10 * place + 10),), header) for place, header in enumerate(headers)]
    return problem_from_arrays(
        vectors, rng.normal(size=6), rng.integers(1, 30, count), budgets, units, seed=3
    )


@EVERY
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_the_contract(name, seed):
    problem = random_problem(seed)
    found = SELECTORS[name].select(problem)
    assert len(found) == len(problem.budgets)
    for budget, one in zip(problem.budgets, found, strict=True):
        assert list(one.indices) == sorted(set(one.indices))
        assert sorted(one.order) == list(one.indices)
        assert all(0 <= unit < len(problem.costs) for unit in one.indices)
        assert one.tokens == problem.costs[list(one.indices)].sum()
        assert one.tokens <= budget
        assert math.isnan(one.bound) or one.value <= one.bound
    assert [one.order for one in SELECTORS[name].select(problem)] == [one.order for one in found]


@pytest.mark.parametrize("name", FILLING)
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_no_unit_that_fits_is_left_out(name, seed):
    problem = random_problem(seed)
    for budget, one in zip(problem.budgets, SELECTORS[name].select(problem), strict=True):
        left_out = np.delete(problem.costs, list(one.indices))
        assert one.tokens + left_out.min(initial=10**9) > budget


@EVERY
def test_an_empty_document_gives_an_empty_context(name):
    problem = problem_from_arrays(np.zeros((0, 4)), np.ones(4), [], [5, 10])
    assert [one.indices for one in SELECTORS[name].select(problem)] == [(), ()]


@EVERY
def test_no_budgets_give_no_selections(name):
    assert SELECTORS[name].select(replace(random_problem(1, 8), budgets=())) == []


@EVERY
def test_one_unit_is_kept_where_it_fits(name):
    problem = problem_from_arrays([[1.0, 2.0]], [1.0, 1.0], [5], [4, 5])
    kept = [one.indices for one in SELECTORS[name].select(problem)]
    assert kept == ([(), ()] if name == "none" else [(), (0,)])


@EVERY
def test_a_unit_larger_than_the_budget_is_skipped(name):
    problem = problem_from_arrays(np.eye(3), np.ones(3), [50, 3, 3], [10])
    assert SELECTORS[name].select(problem)[0].indices == (() if name == "none" else (1, 2))


@EVERY
def test_identical_units_are_kept_in_document_order(name):
    problem = problem_from_arrays(np.ones((40, 7)) / 3, np.ones(7), np.full(40, 4), [4, 30])
    kept = [one.indices for one in SELECTORS[name].select(problem)]
    if name == "none":
        assert kept == [(), ()]
    elif name == "shuffled":
        assert [len(one) for one in kept] == [1, 7]
    else:
        assert kept == [(0,), tuple(range(7))]


@EVERY
def test_units_without_features_are_a_document_like_any_other(name):
    problem = problem_from_arrays(np.zeros((5, 3)), np.zeros(3), [2, 2, 2, 2, 2], [6])
    assert len(SELECTORS[name].select(problem)[0].indices) == (0 if name == "none" else 3)


@EVERY
def test_an_oracle_is_marked(name):
    assert SELECTORS[name].oracle is False


def test_full_keeps_everything_under_any_budget():
    problem = random_problem(4, 12)
    for one in Full().select(problem):
        assert one.indices == tuple(range(12))
        assert one.tokens == problem.costs.sum()


def test_fill_skips_and_goes_on():
    assert fill([2, 0, 2, 1, 3], [5, 9, 3, 1], 9) == [2, 0, 3]


def test_shuffled_follows_the_seed():
    problem = problem_from_arrays(np.ones((50, 2)), np.ones(2), np.ones(50), [20])
    orders = {seed: Shuffled().select(replace(problem, seed=seed))[0].order for seed in range(4)}
    assert orders[1] == Shuffled().select(replace(problem, seed=1))[0].order
    assert len(set(orders.values())) == 4


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_sliding_finds_the_best_run_of_all(seed):
    problem = random_problem(seed, budgets=(5, 20, 60))
    count = len(problem.costs)
    for budget, one in zip(problem.budgets, Sliding().select(problem), strict=True):
        runs = [
            problem.relevance[start:end].sum()
            for start, end in combinations(range(count + 1), 2)
            if problem.costs[start:end].sum() <= budget
        ]
        assert one.value == pytest.approx(max(runs, default=0.0), abs=1e-9)
        assert np.all(np.diff(one.indices) == 1)


def test_hierarchical_brings_the_header_and_the_neighbours():
    header, body = Unit(((0, 5),)), [Unit(((5 + at, 6 + at),), header=0) for at in range(9)]
    relevance = np.eye(10)[6] + 0.01
    vectors = np.stack([relevance, np.sqrt(1 - np.minimum(relevance, 1) ** 2)], axis=1)
    problem = problem_from_arrays(vectors, [1, 0], np.ones(10), [2, 4], [header, *body])
    small, large = Hierarchical().select(problem)
    assert small.order == (6, 0)
    assert large.order == (6, 0, 5, 7)
    assert Hierarchical(headers=False).select(problem)[0].order == (6, 5)
    assert Hierarchical(radius=0, headers=False).select(problem)[0].order == (6, 0)


def test_graphcluster_takes_one_of_each_topic_first():
    rng = np.random.default_rng(0)
    topics = np.repeat(np.eye(8)[:4], 12, axis=0)
    problem = problem_from_arrays(
        topics + 0.05 * rng.normal(size=topics.shape), np.eye(8)[2], np.ones(48), [4, 8]
    )
    four, eight = GraphCluster().select(problem)
    assert sorted(unit // 12 for unit in four.order) == [0, 1, 2, 3]
    assert four.order[0] // 12 == 2
    assert sorted(unit // 12 for unit in eight.order) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_communities_partition_the_units_and_keep_copies_together():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 5))
    rows[25:] = rows[:15]
    vectors = problem_from_arrays(rows, None, np.ones(40), [5]).vectors
    found = communities(vectors, neighbours=4, resolution=1.0, seed=0)
    assert sorted(unit for members in found for unit in members) == list(range(40))
    home = {int(unit): place for place, members in enumerate(found) for unit in members}
    assert all(home[unit] == home[unit - 25] for unit in range(25, 40))


def published_mmr(problem, budget, weight, form):
    """The two forms written out, over the full matrix."""
    cosines = problem.vectors @ problem.vectors.T
    order: list[int] = []
    while True:
        left = budget - problem.costs[order].sum()
        scores = {}
        for unit in range(len(problem.costs)):
            if unit in order or problem.costs[unit] > left:
                continue
            near = cosines[unit, order].max() if order else 0.0
            relevance = problem.relevance[unit]
            scores[unit] = (
                relevance - weight * near if form == "penalty" else weight * relevance - (1 - weight) * near
            )
        if not scores:
            return tuple(order)
        order.append(max(scores, key=scores.__getitem__))


@given(SEEDS, st.sampled_from(["penalty", "convex"]), st.floats(0.1, 0.9))
@settings(max_examples=40, deadline=None)
def test_mmr_is_the_published_formula(seed, form, weight):
    problem = random_problem(seed, 15, (20, 70))
    vectors = np.random.default_rng(seed).normal(
        size=(15, 6)
    )  # no copies or zeros: no ties that rounding could break
    problem = problem_from_arrays(vectors, np.ones(6), problem.costs, (20, 70))
    for budget, one in zip(problem.budgets, Mmr(weight=weight, form=form).select(problem), strict=True):
        assert one.order == published_mmr(problem, budget, weight, form)


def test_mmr_per_token_prefers_the_cheaper_of_equals():
    problem = problem_from_arrays(np.eye(2), [1, 1], [9, 3], [9])
    assert Mmr().select(problem)[0].order == (0,)
    assert Mmr(per_token=True).select(problem)[0].order == (1,)


TEXTS = [
    "Patient was seen.",
    "Allergies: penicillin.",
    "Warfarin held on admission.",
    "Lasix 40 mg daily.",
    "She denies chest pain.",
    "Follow up in clinic.",
]


def test_the_starter_patterns_find_what_they_name():
    found = {name: pinned(TEXTS, [name]) for name in STARTER}
    assert found == {"allergies": (1,), "anticoagulants": (2,), "doses": (3,), "negated_findings": (4,)}
    assert pinned(TEXTS, STARTER) == (1, 2, 3, 4)
    assert pinned(TEXTS, [r"follow.up"]) == (5,)
    with pytest.raises(
        ConfigError, match=r"selector\.pin: 'dos\(es' is no regular expression .* Did you mean 'doses'\?"
    ):
        pinned(TEXTS, ["dos(es"])


@EVERY
@given(seed=SEEDS)
@settings(max_examples=15, deadline=None)
def test_pinned_units_are_kept_and_the_rest_of_the_budget_is_spent(name, seed):
    problem = random_problem(seed, 20)
    pins = [3, 11, 15]
    needed = int(problem.costs[pins].sum())
    problem = replace(problem, budgets=(needed, needed + 30, needed + 90))
    selector = SELECTORS[name]
    for budget, one in zip(problem.budgets, with_pins(selector, problem, pins), strict=True):
        assert set(pins) <= set(one.indices)
        assert one.tokens == problem.costs[list(one.indices)].sum() <= budget
        assert one.info["pinned"] == 3
        assert math.isnan(one.bound) or one.value <= one.bound
        if name in FILLING:
            assert one.tokens + np.delete(problem.costs, list(one.indices)).min() > budget


def test_pins_beyond_the_budget_are_an_error_or_best_effort():
    problem = problem_from_arrays(np.eye(4), np.ones(4), [10, 6, 5, 2], [12, 30])
    with pytest.raises(
        OutlayError, match=r"selector\.pin: the 3 pinned units take 21 tokens, and the budget is 12\..*21"
    ):
        with_pins(Lead(), problem, [0, 1, 2])
    small, large = with_pins(Lead(), problem, [0, 1, 2], best_effort=True)
    assert (small.indices, small.info["pinned"]) == ((0, 3), 1)
    assert (large.indices, large.info["pinned"]) == ((0, 1, 2, 3), 3)


def test_no_pins_change_nothing_but_the_count():
    problem = random_problem(8, 20)
    for plain, none_pinned in zip(Rcd().select(problem), with_pins(Rcd(), problem, []), strict=True):
        assert none_pinned == replace(plain, info={**plain.info, "pinned": 0.0})


def test_full_keeps_everything_whatever_is_pinned():
    problem = problem_from_arrays(np.eye(3), np.ones(3), [4, 4, 4], [8])
    assert with_pins(Full(), problem, [2])[0].indices == (0, 1, 2)
