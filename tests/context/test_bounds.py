from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import optima, random_instance

from outlay.context import engine, reference
from outlay.context.bounds import _linearised, _Relaxation

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_any_prices_bound_the_optimum(seed):
    """The Lagrangian function itself, at random prices and both linearisations, not only where it descends to."""
    rng = np.random.default_rng(seed)
    objective, costs, budgets = random_instance(rng, 8)
    best = optima(objective, costs, budgets)
    inst = engine.instance(objective, costs, max(budgets), 100)
    for budget, optimum in zip(budgets, best, strict=True):
        relaxation = _Relaxation(inst, budget, np.zeros(0, np.int64))
        price = (inst.weight * rng.uniform(0, 1.2, len(inst.weight))).astype(np.float32)
        for part in _linearised(inst, inst.group[rng.permutation(8)[: rng.integers(0, 5)]]):
            bound, taken = relaxation.at(price, part)
            assert bound >= optimum * (1 - 1e-5) - 1e-9
            assert inst.cost @ taken <= budget + 1e-9


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_the_online_bound_holds_at_any_set(seed):
    rng = np.random.default_rng(seed)
    objective, costs, budgets = random_instance(rng, 8)
    for budget, optimum in zip(budgets, optima(objective, costs, budgets), strict=True):
        prefix = rng.permutation(8)[: rng.integers(0, 6)].tolist()
        assert reference.online_bound(objective, costs, budget, prefix) >= optimum - 1e-9


def test_descent_tightens_the_bound_and_more_steps_never_loosen_it():
    objective, costs, budgets = random_instance(np.random.default_rng(2), 60)
    objective = replace(objective, weight=np.ones(60), diversity=0.05)
    by_steps = [
        [one.lagrangian for one in engine.solve(objective, costs, budgets, steps=steps)]
        for steps in (1, 10, 80)
    ]
    assert np.all(np.diff(np.array(by_steps), axis=0) <= 1e-6)
    assert sum(by_steps[2]) < sum(by_steps[0])


@pytest.mark.parametrize("count", [1, 40, 300])
def test_the_limit_without_a_matrix_is_above_every_coverage(count):
    rng = np.random.default_rng(count)
    rows = rng.normal(0.3, 1, (count, 12)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    weight = rng.uniform(0, 1, len(rows)).astype(np.float32)
    exact = np.maximum(rows @ rows.T, 0) @ weight
    limit = engine.coverage_limit(rows, weight)
    assert (limit >= exact).all()
    assert limit.mean() < 1.5 * exact.mean()
