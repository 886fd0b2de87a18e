import math
from dataclasses import replace

import numpy as np
import pytest
from instances import optima, random_instance, random_vectors

from outlay.context import Problem, engine, reference
from outlay.context.objective import problem_from_arrays
from outlay.context.selectors.rcd import Rcd, select_batch
from outlay.errors import ConfigError, OutlayError

BUDGETS = [64, 128, 256, 512, 1024, 2048]
GUARANTEE = {0: 0.5, 1: 0.617, 2: 1 - 1 / math.e}


def a_problem(seed: int, count: int, budgets=(40, 90, 200), width: int = 16) -> Problem:
    rng = np.random.default_rng(seed)
    vectors = random_vectors(rng, count, width)
    costs = np.maximum(1, rng.lognormal(2, 0.6, count).round()).astype(int)
    return problem_from_arrays(vectors, vectors[:2].sum(axis=0) + 0.1, costs, budgets)


@pytest.mark.parametrize("block", range(4))
def test_a_thousand_optima(block):
    """Every guarantee, and no bound under the optimum, against every subset of small documents."""
    rng = np.random.default_rng(block)
    shares: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for trial in range(260):
        count = 12 if trial % 40 == 0 else int(rng.integers(2, 10))
        objective, costs, budgets = random_instance(rng, count)
        best = optima(objective, costs, budgets)
        for guess, guarantee in GUARANTEE.items():
            solutions = engine.solve(objective, costs, budgets, guess=guess, steps=20)
            for found, optimum, budget in zip(solutions, best, budgets, strict=True):
                assert costs[found.order].sum() <= budget
                assert len(set(found.order)) == len(found.order)
                assert found.value == pytest.approx(objective.value(found.order), rel=1e-5, abs=1e-6)
                assert found.value >= guarantee * optimum - 1e-6
                assert found.online >= optimum * (1 - 1e-5) - 1e-9
                assert found.lagrangian >= optimum * (1 - 1e-5) - 1e-9
                shares[guess].append(found.value / optimum if optimum > 0 else 1.0)
    means = [float(np.mean(shares[guess])) for guess in (0, 1, 2)]
    assert means == sorted(means)
    assert means[0] > 0.98


@pytest.mark.parametrize("seed", range(60))
def test_the_compiled_engine_equals_the_plain_reference(seed):
    objective, costs, budgets = random_instance(np.random.default_rng(seed), 5 + seed % 20)
    compiled = engine.solve(objective, costs, budgets)
    on_demand = engine.solve(objective, costs, budgets, dense_limit=1)
    for plain, fast, rowwise in zip(
        reference.solve(objective, costs, budgets), compiled, on_demand, strict=True
    ):
        assert fast.value == pytest.approx(plain.value, rel=1e-5, abs=1e-6)
        assert rowwise.value == pytest.approx(plain.value, rel=1e-5, abs=1e-6)
        assert fast.order == plain.order or fast.value == pytest.approx(plain.value, rel=1e-6)
        assert fast.online >= plain.value * (1 - 1e-5)


@pytest.mark.parametrize("guess", [0, 1])
def test_one_pass_equals_a_run_per_budget(guess):
    for seed in range(12):
        problem = a_problem(seed, 30, (11, 23, 40, 64, 90, 150))
        rcd = Rcd(guess=guess)
        alone = [rcd.select(replace(problem, budgets=(budget,)))[0] for budget in problem.budgets]
        for swept, single in zip(rcd.select(problem), alone, strict=True):
            assert (swept.indices, swept.order, swept.value) == (single.indices, single.order, single.value)


def test_more_budget_is_never_worse_and_the_order_of_budgets_is_free():
    problem = a_problem(3, 200, (512, 64, 128, 64, 1024))
    found = Rcd().select(problem)
    by_budget = sorted(zip(problem.budgets, (one.value for one in found), strict=True))
    assert [value for _, value in by_budget] == sorted(value for _, value in by_budget)
    assert found[1] == found[3]


def test_what_still_fits_is_kept():
    problem = a_problem(5, 120, (60, 200, 500))
    for budget, found in zip(problem.budgets, Rcd().select(problem), strict=True):
        left_out = np.delete(problem.costs, found.indices)
        assert found.tokens <= budget < found.tokens + left_out.min()


@pytest.mark.parametrize("bound", ["online", "lagrangian"])
def test_every_selection_is_certified(bound):
    problem = a_problem(7, 150, (50, 200, 600))
    for found in Rcd(bound=bound).select(problem):
        assert 0.8 < found.optimality <= 1
        assert found.bound <= found.info["online_bound"]
        assert found.info["marginal"] > 0


def test_the_lagrangian_bound_is_the_tighter_one():
    problem = a_problem(8, 200, (60, 150, 400))
    online, lagrangian = Rcd().select(problem), Rcd(bound="lagrangian").select(problem)
    for loose, tight in zip(online, lagrangian, strict=True):
        assert loose.indices == tight.indices
        assert loose.optimality < tight.optimality
        assert tight.optimality > 0.95


def test_no_bound_is_asked_for():
    (found,) = Rcd(bound="none").select(a_problem(1, 40, (60,)))
    assert found.value > 0
    assert math.isnan(found.bound)
    assert math.isnan(found.optimality)


def test_a_budget_for_the_whole_document_keeps_it_and_is_optimal():
    problem = a_problem(2, 25, (10**6,))
    (found,) = Rcd().select(problem)
    assert found.indices == tuple(range(25))
    assert found.optimality == 1


def test_one_large_unit_beats_the_small_ones():
    # density greedy alone takes the small unit, and the large one no longer fits: 1 % of the optimum
    vectors = np.eye(2)
    problem = problem_from_arrays(vectors, [0.0200, 1.0], [1, 100], [100])
    (found,) = Rcd(relevance=1, coverage=0, diversity=0).select(problem)
    assert found.indices == (1,)


def test_ten_thousand_identical_units_are_taken_in_document_order():
    problem = problem_from_arrays(np.ones((10_000, 8)), np.ones(8), np.full(10_000, 16), BUDGETS)
    for budget, found in zip(BUDGETS, Rcd(bound="lagrangian").select(problem), strict=True):
        assert found.order == tuple(range(budget // 16))
        assert 0.99 < found.optimality <= 1


def test_copies_with_different_costs_prefer_the_cheaper():
    problem = problem_from_arrays(np.ones((4, 3)), np.ones(3), [5, 2, 5, 2], [4])
    assert Rcd().select(problem)[0].order == (1, 3)


def test_units_without_features_fill_the_budget_in_document_order():
    problem = problem_from_arrays(np.zeros((6, 3)), np.zeros(3), [2, 9, 2, 2, 2, 2], [7])
    (found,) = Rcd().select(problem)
    assert found.order == (0, 2, 3)
    assert found.value == 0
    assert math.isnan(found.optimality)


def test_a_document_beyond_the_dense_limit_gives_the_same():
    problem = a_problem(11, 300, (100, 400, 900))
    dense, sparse = Rcd().select(problem), Rcd(dense_limit=50, bound="lagrangian").select(problem)
    for one, other in zip(dense, sparse, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-5)
        assert other.bound == other.info["online_bound"] >= one.value


def test_a_factor_that_cannot_fit_says_what_would():
    objective, costs, _ = random_instance(np.random.default_rng(0), 9)
    objective = replace(objective, diversity=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "FACTOR_LIMIT", 100)
        with pytest.raises(OutlayError, match=r"Set selector\.diversity=0"):
            engine.solve(objective, costs, [int(costs.sum()) - 1])


def test_units_kept_beforehand_are_part_of_the_set():
    problem = a_problem(13, 60, (80, 160))
    rcd = Rcd(bound="lagrangian")
    for free, given in zip(rcd.select(problem), rcd.select_given(problem, [50, 51]), strict=True):
        assert {50, 51} <= set(given.indices)
        assert given.order[:2] == (50, 51)
        assert given.value == pytest.approx(rcd.objective(problem).value(given.indices), rel=1e-5)
        assert given.value <= given.bound
        assert given.value <= free.bound
    with pytest.raises(OutlayError, match="2 units kept take"):
        rcd.select_given(replace(problem, budgets=(1,)), [50, 51])


def test_bounds_hold_for_sets_that_contain_units():
    rng = np.random.default_rng(4)
    for _ in range(80):
        objective, costs, budgets = random_instance(rng, 8)
        kept = [int(rng.integers(0, 8))]
        budgets = [budget + int(costs[kept].sum()) for budget in budgets]
        reward = objective.reward.copy()
        reward[kept] += 1e6  # forces the optimum to contain the unit
        best = optima(replace(objective, reward=reward), costs, budgets)
        for found, optimum in zip(engine.solve(objective, costs, budgets, kept, steps=20), best, strict=True):
            optimum -= 1e6
            assert min(found.online, found.lagrangian) >= optimum * (1 - 1e-5) - 1e-5
            assert found.value <= optimum + 1e-5


@pytest.mark.parametrize("seed", range(6))
def test_torch_gives_the_same_within_tolerance(seed):
    problems = [a_problem(seed * 10 + place, 20 + 15 * place, (30, 60, 120)) for place in range(4)]
    batch = select_batch(Rcd(engine="torch"), problems)
    for problem, together in zip(problems, batch, strict=True):
        for one, other in zip(Rcd().select(problem), together, strict=True):
            assert other.tokens <= max(problem.budgets)
            assert other.value == pytest.approx(one.value, rel=2e-3)
            assert one.value <= other.bound * (1 + 1e-6)
            assert other.optimality <= 1


def test_torch_takes_copies_in_document_order():
    problem = problem_from_arrays(np.ones((50, 3)), np.ones(3), np.full(50, 4), [20])
    assert Rcd(engine="torch").select(problem)[0].order == (0, 1, 2, 3, 4)


def test_torch_continues_from_units_kept():
    problem = a_problem(21, 40, (90,))
    (one,), (other,) = Rcd().select_given(problem, [7]), Rcd(engine="torch").select_given(problem, [7])
    assert other.order[0] == 7
    assert other.value == pytest.approx(one.value, rel=2e-3)


def test_numpy_engine_is_the_reference():
    problem = a_problem(22, 25, (30, 60))
    for one, other in zip(Rcd().select(problem), Rcd(engine="numpy").select(problem), strict=True):
        assert other.value == pytest.approx(one.value, rel=1e-5)
        assert other.optimality <= 1


def test_impossible_options_are_refused():
    with pytest.raises(ConfigError, match="bound=lagrangian: engine=torch has none"):
        Rcd(engine="torch", bound="lagrangian")
    with pytest.raises(ConfigError, match="guess=1: engine=torch does not guess"):
        Rcd(engine="torch", guess=1)


def test_fewer_guesses_are_no_better_than_all():
    rng = np.random.default_rng(9)
    for _ in range(40):
        objective, costs, budgets = random_instance(rng, 9)
        everything = engine.solve(objective, costs, budgets, guess=2)
        some = engine.solve(objective, costs, budgets, guess=2, guess_top=3)
        none = engine.solve(objective, costs, budgets)
        for most, fewer, least in zip(everything, some, none, strict=True):
            assert most.value >= fewer.value * (1 - 1e-6) >= least.value * (1 - 1e-6) ** 2
