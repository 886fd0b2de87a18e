"""What routers choose by, against the chances that the samples were drawn with."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import LADDER, Known, attempt_cost, embed, run, tasks

from outlay.agent.ledger import Ledger, Trace
from outlay.generate.store import Store
from outlay.routers.estimates import ESTIMATORS, Estimate, fit_estimates
from outlay.routers.ser import Ser


@pytest.fixture(scope="module")
def explored(store: Store) -> Ledger:
    return run(store, Ser(), fit=240, n=1).explored


def fit(ledger: Ledger, estimator: str) -> list[dict[str, Estimate]]:
    """One for each level."""
    found = fit_estimates(ledger, Known().tiers, embed, estimator, "units", "ser")
    return found.all([Trace(task.query) for task in tasks(3, "test")])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_chances_and_costs_are_those_of_the_tiers(explored: Ledger, estimator: str) -> None:
    """80 queries of 5 samples a level: a standard error of at most 0.025."""
    for level, by_tier in enumerate(fit(explored, estimator)):
        assert list(by_tier) == list(LADDER)
        for tier, one in by_tier.items():
            chances = LADDER[tier][0]
            known = float(np.mean(chances)) if estimator == "mean" else chances[level]
            # twenty neighbours of one level have 100 samples: a standard error of 0.05
            assert one.success == pytest.approx(known, abs=0.15 if estimator == "knn" else 0.08)
            assert one.cost == pytest.approx(attempt_cost(tier))


def test_independent_retries_are_told_from_repeated_ones(explored: Ledger) -> None:
    first: dict[tuple[str, str], float | None] = {}
    repeated = []
    for line in explored.lines:
        score = first.setdefault((line.example_id, line.tier), line.score)
        repeated.append(replace(line, score=score))
    (apart, *_), (alike, *_) = fit(explored, "logistic"), fit(Ledger(repeated, explored.queries), "logistic")
    for tier in LADDER:
        assert apart[tier].concentration > 10 > 2 > alike[tier].concentration


def test_a_belief_after_attempts_by_hand() -> None:
    """Beta(1, 1): after one failure 1/3, after one success 2/3, after both 1/2."""
    belief = Estimate(0.5, 1.0, 2.0)
    assert belief.after(1) == pytest.approx(1 / 3)
    assert belief.after(0, 1) == pytest.approx(2 / 3)
    assert belief.after(1, 1) == pytest.approx(1 / 2)


@given(p=st.floats(0.01, 0.99), strength=st.floats(0.1, 100), failures=st.integers(0, 20))
def test_each_failure_lowers_a_belief(p: float, strength: float, failures: int) -> None:
    belief = Estimate(p, 1.0, strength)
    assert belief.after(0) == pytest.approx(p)
    assert belief.after(failures + 1) < belief.after(failures)
