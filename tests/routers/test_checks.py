"""What a router says of itself, with the numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.inflation import branching_entropy
from outlay.routers import checks
from outlay.routers.workflow import exchange_rate


@pytest.mark.parametrize(("k", "levels"), [(2, 2), (3, 3), (4, 5), (5, 7), (10, 39)])
def test_the_number_of_entropies_of_k_answers(k: int, levels: int) -> None:
    assert checks.entropy_levels(k) == levels
    assert bool(checks.few_entropies(k)) == (k <= 3)


@given(st.lists(st.sampled_from("abc"), min_size=3, max_size=3))
def test_three_answers_have_one_of_three_entropies(answers: list[str]) -> None:
    assert any(branching_entropy(answers) == pytest.approx(one, abs=1e-3) for one in (0, 0.918, 1.585))


@given(
    utility=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)),
    ratio=st.floats(1, 100),
    attempts=st.integers(1, 10),
    inflation=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_a_tier_called_out_of_reach_wins_at_no_inflation(
    utility: tuple[float, float], ratio: float, attempts: int, inflation: tuple[float, float]
) -> None:
    worth = dict(zip(("small", "large"), utility, strict=True))
    direct = {"small": 1.0, "large": ratio}
    found = checks.unreachable(worth, direct, attempts)
    small, large = (1 + share * (attempts - 1) for share in inflation)
    rates = {
        "small": exchange_rate(worth["small"], 1.0, small),
        "large": exchange_rate(worth["large"], ratio, large),
    }
    for tier in worth:
        if any(one.startswith(f"tier {tier} ") for one in found):
            assert (
                rates[tier] <= max(rates.values()) and rates[tier] <= rates[({*worth} - {tier}).pop()] + 1e-12
            )


def test_each_message_has_its_numbers() -> None:
    (message,) = checks.unreachable({"small": 0.5, "large": 0.9}, {"small": 1.0, "large": 30.0}, 6)
    assert "30.0 times one on small" in message and "below 10.8" in message and "6 attempts" in message
    assert checks.unreachable({"small": 0.5, "large": 0.9}, {"small": 1.0, "large": 10.0}, 6) == []
    (message,) = checks.dead_zone([1.0, 2.9, 3.0, 5.0], factor=2.0, attempts=6)
    assert "2 of 4 tune queries (50%)" in message and "3.00 or more" in message
    assert checks.dead_zone([1.0, 2.0], factor=2.0, attempts=6) == []
    (message,) = checks.never_fires(2.0, 2)
    assert "2 attempts" in message and checks.never_fires(2.0, 3) == []
    (message,) = checks.probe_saves(90.0, 300.0, 350.0, "units")
    assert "costs 90 units" in message and "saves 50" in message
    assert checks.probe_saves(40.0, 300.0, 350.0, "units") == []
    assert checks.probe_saves(0.0, 300.0, 200.0, "units") == []
    (message,) = checks.few_failures({"small": (3.0, 100.0), "large": (40.0, 100.0)})
    assert "tier small: 3 failures in 100" in message
    (message,) = checks.few_failures({"small": (99.0, 100.0)})
    assert "1 successes in 100" in message
    (message,) = checks.budget_missed(10.0, 30.0, "units")
    assert "10 units" in message and "costs 30" in message
    assert checks.budget_missed(30.0, 30.0, "units") == []
    (message,) = checks.not_rehearsed("judge", ("gold", "agreement"))
    assert "retry.verifier=judge" in message and checks.not_rehearsed(None, ()) == []
    assert checks.not_rehearsed("agreement", ("gold", "agreement")) == []
