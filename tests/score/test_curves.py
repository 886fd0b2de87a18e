"""Cost–quality curves: identities, a brute-force hull, and the traps of the published code."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.score.curves import accuracy_at_budget, aiq, apgr, cpt, hull, tokens_at_accuracy

NAN = float("nan")
points = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=12)


def _split(pairs: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    return [float(cost) for cost, _ in pairs], [quality / 20 for _, quality in pairs]


def _attainable(cost: list[float], quality: list[float], budget: float) -> float:
    """The best mixture of any two points for a budget, by trying all pairs."""
    best = max((q for c, q in zip(cost, quality, strict=True) if c <= budget), default=NAN)
    for c1, q1 in zip(cost, quality, strict=True):
        for c2, q2 in zip(cost, quality, strict=True):
            if c1 <= budget < c2:
                best = max(best, q1 + (q2 - q1) * (budget - c1) / (c2 - c1))
    return best


@given(points, st.integers(0, 45))
def test_the_hull_is_the_best_mixture_of_two_points(pairs: list[tuple[int, int]], budget: int) -> None:
    cost, quality = _split(pairs)
    expected = _attainable(cost, quality, budget)
    assert accuracy_at_budget(cost, quality, budget) == pytest.approx(expected, nan_ok=True)


@given(points)
def test_the_hull_is_concave_non_decreasing_and_above_every_point(pairs: list[tuple[int, int]]) -> None:
    cost, quality = _split(pairs)
    curve = hull(cost, quality)
    slopes = np.diff(curve.quality) / np.diff(curve.cost)
    assert (np.diff(curve.cost) > 0).all()
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 1e-12).all()
    assert (curve.at(cost) >= np.array(quality) - 1e-12).all()
    again = hull(curve.cost, curve.quality)
    assert (again.cost == curve.cost).all()
    shuffled = hull(cost[::-1], quality[::-1])
    assert (shuffled.quality == curve.quality).all()


@given(points, st.integers(0, 20))
def test_cost_at_accuracy_is_the_inverse_of_accuracy_at_budget(
    pairs: list[tuple[int, int]], target: int
) -> None:
    cost, quality = _split(pairs)
    for mix in (True, False):
        least = tokens_at_accuracy(cost, quality, target / 20, mix)
        if target / 20 > max(quality):
            assert math.isnan(least)
        else:
            assert accuracy_at_budget(cost, quality, least * (1 + 1e-12), mix) >= target / 20 - 1e-9
            if least > min(cost) * (1 + 1e-6):
                assert accuracy_at_budget(cost, quality, least * (1 - 1e-6), mix) < target / 20


def test_aiq_of_two_points_is_the_trapezoid() -> None:
    assert aiq([1, 3], [0.4, 0.8]) == pytest.approx(0.6)
    assert aiq([3, 1], [0.8, 0.4]) == pytest.approx(0.6)
    assert aiq([1, 2, 3], [0.4, 0.1, 0.8]) == pytest.approx(0.6)  # under the hull: no difference
    assert aiq([1, 3], [0.8, 0.4]) == pytest.approx(0.8)  # dearer and worse: the hull stays flat


def test_aiq_does_not_depend_on_where_a_router_starts() -> None:
    """The published code divides by the largest cost: a router of constant quality then depends on its cost."""
    assert aiq([50, 100], [0.7, 0.7]) == aiq([1, 100], [0.7, 0.7]) == pytest.approx(0.7)


def test_aiq_over_one_range_for_all() -> None:
    # from 0 nothing for 1, then the trapezoid for 2, then flat for 1
    assert aiq([1, 3], [0.4, 0.8], lo=0, hi=4) == pytest.approx((0 + 1.2 + 0.8) / 4)
    assert aiq([1, 3], [0.4, 0.8], lo=0, hi=4, floor=0.25) == pytest.approx((0.25 + 1.2 + 0.8) / 4)
    assert aiq([1, 3], [0.4, 0.8], lo=2, hi=3) == pytest.approx(0.7)
    assert aiq([5], [0.9], lo=0, hi=4) == 0
    assert aiq([1], [0.5]) == 0.5
    assert math.isnan(aiq([], []))
    assert math.isnan(aiq([NAN], [0.5]))


@given(points)
def test_aiq_is_the_mean_of_the_hull(pairs: list[tuple[int, int]]) -> None:
    cost, quality = _split(pairs)
    grid = np.linspace(0, 50, 20_001)
    mean = np.nan_to_num(hull(cost, quality).at((grid[1:] + grid[:-1]) / 2)).mean()
    assert aiq(cost, quality, lo=0, hi=50) == pytest.approx(mean, abs=1e-3)


WEAK, STRONG = (1.0, 0.4), (11.0, 0.9)


def test_apgr_of_the_random_router_is_a_half() -> None:
    share = np.linspace(0, 1, 11)
    assert apgr(1 + 10 * share, 0.4 + 0.5 * share, WEAK, STRONG) == pytest.approx(0.5)
    assert apgr([], [], WEAK, STRONG) == pytest.approx(0.5)  # the end points alone
    rng = np.random.default_rng(0)
    weak, strong = rng.random(4000) < 0.4, rng.random(4000) < 0.9
    order = rng.random(4000)
    quality = [np.where(order < cut, strong, weak).mean() for cut in share]
    ends = (1.0, weak.mean()), (11.0, strong.mean())
    assert apgr(1 + 10 * share, quality, *ends) == pytest.approx(0.5, abs=0.03)


def test_apgr_of_known_curves() -> None:
    assert apgr([6], [0.9], WEAK, STRONG) == pytest.approx(0.75)  # the gap closed at half the cost
    assert apgr([6], [0.4], WEAK, STRONG) == pytest.approx(0.25)
    assert apgr([6, 6], [0.4, 0.9], WEAK, STRONG) == pytest.approx(0.75)  # one cost: the better setting
    # A probe before every call makes the same decisions dearer, and the figure shows it.
    assert apgr([8], [0.9], WEAK, STRONG) < apgr([6], [0.9], WEAK, STRONG)
    # what lies beyond the strong tier's cost recovers nothing within it
    assert apgr([21], [1.0], WEAK, STRONG) == pytest.approx(0.5)


def test_without_a_gap_there_is_nothing_to_recover() -> None:
    """RouterArena's cheap model is the better one: no share of a negative gap is reported."""
    for weak, strong in (((1, 0.9), (11, 0.4)), ((11, 0.4), (1, 0.9)), ((1, 0.5), (11, 0.5))):
        assert math.isnan(apgr([6], [0.7], weak, strong))
        assert math.isnan(cpt([6], [0.7], weak, strong))


def test_cpt_is_the_first_crossing() -> None:
    assert cpt([], [], WEAK, STRONG, 0.5) == pytest.approx(0.5)
    assert cpt([6], [0.9], WEAK, STRONG, 0.8) == pytest.approx(0.4)
    # accuracy falls after 20 % and recovers: interpolating over accuracy would answer with the last crossing
    assert cpt([3, 6, 9], [0.8, 0.5, 0.7], WEAK, STRONG, 0.4) == pytest.approx(0.1)
    assert cpt([1], [0.9], WEAK, STRONG, 0.5) == 0  # as good as strong at the weak tier's cost
    assert math.isnan(cpt([], [], WEAK, STRONG, 1.2))


def test_budgets_and_targets_out_of_reach_are_undefined() -> None:
    assert math.isnan(accuracy_at_budget([2, 3], [0.5, 0.6], 1))
    assert math.isnan(tokens_at_accuracy([2, 3], [0.5, 0.6], 0.7))
    assert accuracy_at_budget([2, 3], [0.5, 0.6], 99) == 0.6
    assert accuracy_at_budget([2, 3], [0.5, 0.6], 2.5) == pytest.approx(0.55)
    assert accuracy_at_budget([2, 3], [0.5, 0.6], 2.5, mix=False) == 0.5
    assert tokens_at_accuracy([2, 3], [0.5, 0.6], 0.55, mix=False) == 3
    assert math.isnan(accuracy_at_budget([], [], 1))


def test_a_target_missed_in_its_last_bit_is_reached() -> None:
    """The same answers summed in another order."""
    assert 0.1 + 0.2 > 0.3
    for mix in (True, False):
        assert tokens_at_accuracy([2, 3], [0.2, 0.3], 0.1 + 0.2, mix) == 3
        assert math.isnan(tokens_at_accuracy([2, 3], [0.2, 0.3], 0.3 + 1e-6, mix))


def test_points_must_pair() -> None:
    with pytest.raises(ValueError, match="not points"):
        hull([1, 2], [0.5])
    assert accuracy_at_budget([1, NAN], [0.5, 0.9], 5) == 0.5
