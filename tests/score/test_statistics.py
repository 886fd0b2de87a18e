"""Intervals and tests: known values, the libraries' values, and what happens at the edges."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import brier_score_loss, roc_auc_score

from outlay.score.curves import aiq
from outlay.score.statistics import (
    CELLS,
    Estimate,
    auroc,
    bootstrap,
    brier,
    calibration_error,
    clopper_pearson,
    discordant,
    holm,
    interval,
    mcnemar,
    mcnemar_pairs,
    mcnemar_power,
    paired_difference,
    pearson,
    percentiles,
    ratio_of_means,
    share,
    spearman,
)

NAN = float("nan")
RNG = np.random.default_rng(7)
X = RNG.normal(size=400)
Y = X + RNG.normal(size=400)
PAIRED = [paired_difference, ratio_of_means, auroc, pearson, spearman, brier, calibration_error]


def test_the_interval_agrees_with_scipy() -> None:
    ours = interval(X, resamples=9999)
    theirs = stats.bootstrap((X,), np.mean, n_resamples=9999, method="percentile", rng=1).confidence_interval
    assert ours.value == pytest.approx(X.mean())
    assert (ours.lo, ours.hi) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(1).exponential(size=(400, 80))
    covered = np.mean([lo <= 1 <= hi for _, lo, hi in (interval(row, resamples=300) for row in draws)])
    assert 0.88 <= covered <= 0.97


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(0, 5))
@settings(max_examples=40)
def test_an_interval_lies_within_the_values_and_repeats(values: list[float], seed: int) -> None:
    estimate = interval(values, resamples=50, seed=seed)
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - slack <= estimate.lo <= estimate.hi <= max(values) + slack
    assert estimate == interval(values, resamples=50, seed=seed)
    wider = interval(values, level=0.99, resamples=50, seed=seed)
    assert wider.lo <= estimate.lo
    assert estimate.hi <= wider.hi


def test_more_values_than_fit_in_one_chunk() -> None:
    values = np.arange(CELLS // 2, dtype=float)
    value, lo, hi = interval(values, resamples=5)
    error = values.std() / math.sqrt(values.size)
    assert value - 5 * error < lo < hi < value + 5 * error


@pytest.mark.parametrize("function", PAIRED)
def test_no_example_one_example_and_none_defined(function) -> None:
    assert all(math.isnan(value) for value in function([], []))
    assert all(math.isnan(value) for value in function([NAN, NAN], [1, 0]))
    one = function([0.5], [1])
    assert all(math.isnan(value) for value in one[1:])
    with pytest.raises(ValueError, match="cannot be paired"):
        function([1, 0], [1])


def test_a_mean_of_no_example_one_example_and_none_defined() -> None:
    assert all(math.isnan(value) for value in interval([]))
    assert all(math.isnan(value) for value in interval([NAN]))
    value, lo, hi = interval([0.25])
    assert value == 0.25
    assert math.isnan(lo)
    assert math.isnan(hi)
    assert interval([1, 1, NAN, 1]) == Estimate(1, 1, 1)


def test_a_pair_with_a_gap_is_left_out_whole() -> None:
    with_gap = paired_difference([1, NAN, 0, 1], [0, 1, 0, NAN])
    assert with_gap == paired_difference([1, 0], [0, 0])


def test_a_paired_difference_is_narrower_than_two_intervals() -> None:
    difference = paired_difference(Y, X)
    assert difference.value == pytest.approx((Y - X).mean())
    apart = interval(Y).hi - interval(Y).lo + interval(X).hi - interval(X).lo
    assert difference.hi - difference.lo < apart


def test_the_p_value_agrees_with_the_interval() -> None:
    shifted = paired_difference(X + 0.5, X + 0.01 * Y)
    assert shifted.lo > 0
    assert shifted.p < 0.05
    assert paired_difference(X, X) == (0, 0, 0, 1)


def test_the_p_value_is_uniform_without_a_difference() -> None:
    rng = np.random.default_rng(3)
    p = [paired_difference(rng.normal(size=60), rng.normal(size=60), resamples=400).p for _ in range(300)]
    assert 0.02 <= np.mean(np.array(p) < 0.05) <= 0.09


def test_a_ratio_of_means_is_not_a_mean_of_ratios() -> None:
    estimate = ratio_of_means([10, 1], [1, 1])
    assert estimate.value == 5.5
    assert ratio_of_means([4, 4], [4, 1]).value == pytest.approx(8 / 5)
    assert math.isnan(ratio_of_means([1, 2], [0, 0]).value)


def test_any_statistic_of_a_curve_can_be_resampled() -> None:
    rng = np.random.default_rng(0)
    costs = np.array([1.0, 3.0]) * np.ones((200, 2))
    qualities = (rng.random((200, 2)) < [0.3, 0.8]).astype(float)
    area = bootstrap(lambda c, q: aiq(c.mean(0), q.mean(0)), costs, qualities, resamples=200)
    assert area.value == pytest.approx(qualities.mean())
    assert area.lo < area.value < area.hi
    by_rows = bootstrap(lambda x: float(x.mean()), X, resamples=200)
    assert by_rows[1:] == pytest.approx(interval(X, resamples=200)[1:], abs=0.03)
    assert all(math.isnan(value) for value in bootstrap(np.mean, []))


# --- prediction


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=40))
@settings(max_examples=60)
def test_auroc_is_scikit_learns_with_ties(pairs: list[tuple[int, bool]]) -> None:
    scores, outcomes = map(list, zip(*pairs, strict=True))
    estimate = auroc(scores, outcomes, resamples=50)
    if len(set(outcomes)) == 1:
        assert all(math.isnan(value) for value in estimate)
    else:
        assert estimate.value == pytest.approx(roc_auc_score(outcomes, scores), abs=1e-12)
        assert 0 <= estimate.lo <= estimate.hi <= 1


def test_auroc_of_known_orders() -> None:
    assert auroc([1, 2, 3, 4], [0, 0, 1, 1]).value == 1
    assert auroc([4, 3, 2, 1], [0, 0, 1, 1]).value == 0
    assert auroc([5, 5, 5, 5], [0, 0, 1, 1]).value == 0.5
    assert auroc([0, 0.918, 0.918, 1.585], [0, 0, 1, 1]).value == 0.875


def test_correlations_are_scipys() -> None:
    assert pearson(X, Y).value == pytest.approx(stats.pearsonr(X, Y).statistic, abs=1e-12)
    assert spearman(X, Y).value == pytest.approx(stats.spearmanr(X, Y).statistic, abs=1e-12)
    tied = np.round(X)
    assert spearman(tied, Y).value == pytest.approx(stats.spearmanr(tied, Y).statistic, abs=1e-12)
    low, high = stats.pearsonr(X, Y).confidence_interval()
    assert pearson(X, Y)[1:] == pytest.approx((low, high), abs=0.03)
    assert math.isnan(pearson(np.full(9, 0.1), X[:9]).value)
    assert math.isnan(spearman([1, 1], [1, 2]).value)
    assert pearson([1, 2], [2, 4]).value == pytest.approx(1)


def test_brier_is_scikit_learns() -> None:
    p, y = RNG.random(200), RNG.random(200) < 0.3
    assert brier(p, y).value == pytest.approx(brier_score_loss(y, p))
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        brier([1.5], [1])


def test_calibration_error() -> None:
    assert calibration_error([0.5] * 4, [1, 0, 1, 0]).value == 0
    assert calibration_error([1.0] * 4, [1, 0, 1, 0]).value == 0.5  # the last bin is closed
    assert calibration_error([0.0, 0.0, 0.95, 0.95], [0, 0, 1, 0]).value == pytest.approx(0.225)
    p = np.random.default_rng(2).random(20_000)
    y = np.random.default_rng(3).random(20_000) < p
    assert calibration_error(p, y, resamples=20).value < 0.02
    assert calibration_error(p, ~y, resamples=20).value == pytest.approx(0.5, abs=0.02)


# --- counts


def test_the_papers_own_figures() -> None:
    assert mcnemar(8, 0) == 0.0078125
    share, lo, hi = clopper_pearson(8, 23)
    assert share == 8 / 23
    assert (round(lo, 3), round(hi, 3)) == (0.164, 0.573)


def test_exact_tests_at_the_edges() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(3, 3) == 1
    assert mcnemar(2, 9) == mcnemar(9, 2)
    assert clopper_pearson(0, 10).lo == 0
    assert clopper_pearson(10, 10).hi == 1
    share, lo, hi = clopper_pearson(0, 0)
    assert math.isnan(share)
    assert (lo, hi) == (0, 1)


def test_discordant_pairs() -> None:
    assert discordant([1, 1, 0, 0, 1], [0, 1, 1, 0, 0]) == (2, 1)
    assert discordant([True, NAN], [False, 1]) == (1, 0)
    assert discordant([], []) == (0, 0)


def test_power_is_the_share_of_significant_draws() -> None:
    rng = np.random.default_rng(0)
    n, loss, gain = 60, 0.25, 0.08
    draws = rng.multinomial(n, [loss, gain, 1 - loss - gain], size=4000)
    significant = np.mean([mcnemar(a, b) < 0.05 for a, b, _ in draws])
    assert mcnemar_power(n, loss, gain) == pytest.approx(significant, abs=0.03)


def test_power_by_hand() -> None:
    # All six of six pairs change one way: 2 · 2^-6 = 0.03 is significant; five of five, 0.06, is not.
    assert mcnemar_power(6, 1, 0) == pytest.approx(1)
    assert mcnemar_power(5, 1, 0) == 0
    assert mcnemar_power(100, 0, 0) == mcnemar_power(0, 0.2, 0.1) == 0
    assert mcnemar_power(200, 0.1, 0.1) <= 0.05
    assert mcnemar_pairs(1, 0) == 6
    with pytest.raises(ValueError, match="chances"):
        mcnemar_power(10, 0.8, 0.8)


def test_pairs_for_a_power() -> None:
    n = mcnemar_pairs(0.3, 0.1)
    assert n is not None
    assert mcnemar_power(n, 0.3, 0.1) >= 0.8 > mcnemar_power(n - 1, 0.3, 0.1)
    assert mcnemar_pairs(0.1, 0.1, most=1000) is None


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == pytest.approx([1, 1])
    adjusted = holm([0.02, NAN, 0.02])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert holm([]).size == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_raw_and_bonferroni_and_keeps_order(p: list[float]) -> None:
    raw, adjusted = np.array(p), holm(p)
    assert (adjusted >= raw).all()
    assert (adjusted <= np.minimum(1, raw * len(p)) + 1e-15).all()
    order = np.argsort(raw, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()


def test_a_paired_difference_of_clusters_is_wider_and_agrees_with_its_p_value() -> None:
    from outlay.score.statistics import paired_difference

    first = np.repeat(np.arange(20) % 2, 5).astype(float)
    documents = [at // 5 for at in range(100)]
    loose, clustered = (
        paired_difference(first, np.full(100, 0.3), clusters=groups) for groups in (None, documents)
    )
    assert clustered.value == pytest.approx(loose.value)
    assert clustered.hi - clustered.lo > 1.8 * (loose.hi - loose.lo)
    assert (clustered.p < 0.05) == (clustered.lo > 0) and loose.p <= clustered.p


def test_an_interval_reaches_to_infinity_where_its_draws_do() -> None:
    """A price of what was bought in 90 % of the resamples only."""
    draws = [*range(1, 91), *[math.inf] * 10]
    low, high = percentiles(5.0, draws)[1:]
    assert high == math.inf and 1 <= low <= 4
    assert percentiles(math.inf, [math.inf] * 100)[1:] == (math.inf, math.inf)
    assert percentiles(5.0, [NAN, 1.0, 1.0])[1:] == (1.0, 1.0)
    rare = percentiles(5.0, [*range(1, 1000), math.inf])
    assert math.isfinite(rare.hi)


def test_a_share_of_all_or_nothing_has_an_interval() -> None:
    assert share([1.0] * 20) == clopper_pearson(20, 20)
    assert share([0.0] * 20, clusters=["a"] * 10 + ["b"] * 10) == clopper_pearson(0, 2)
    mixed = [1.0, 0.0, 1.0, NAN] * 5
    assert share(mixed) == interval(mixed)
    assert share([0.5] * 9) == interval([0.5] * 9)  # no answer that is right or wrong
    assert math.isnan(share([]).value)
