"""Intervals and tests. Everything resamples examples, the unit of which another could have been drawn.

A value that is nan is undefined for its example and left out (pairs are left out whole). Nothing raises on few
values: without any, every figure is nan; one value has an estimate but no interval.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

NAN = float("nan")
CELLS = 2**21
"""Resampled values held at once: 16 MiB an array, whatever the number of examples."""


class Estimate(NamedTuple):
    """A figure with its interval; lo and hi are nan where no interval can be given."""

    value: float
    lo: float
    hi: float


class Difference(NamedTuple):
    """A paired difference with its interval and a two-sided p-value."""

    value: float
    lo: float
    hi: float
    p: float


# --- bootstrap ---------------------------------------------------------------------------------------------


def interval(
    values: Any,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    clusters: Sequence[Any] | None = None,
) -> Estimate:
    """The mean of (n,) values and its percentile bootstrap interval.

    clusters: (n,) what each example belongs to, such as its document. Whole clusters are drawn then: several
    questions on one document stand or fall together, and count as less than so many documents.
    All values equal give an interval of width 0; for a share of right answers near 0 or 1 use `clopper_pearson`.
    """
    if clusters is None:
        return _estimate(_mean, (values,), level, resamples, seed)
    return _draws(_ratio, _sums_by_cluster(values, clusters), level, resamples, seed)[0]


def share(
    values: Any,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    clusters: Sequence[Any] | None = None,
) -> Estimate:
    """The mean of right (1) or wrong (0) answers, with the interval of `interval`.

    Where all are right, or all wrong, Clopper and Pearson's over the clusters (over the values without them): resampling
    equal values would give an interval of no width.
    """
    import numpy as np

    column = np.asarray(values, float).reshape(-1)
    kept = ~np.isnan(column)
    known = column[kept]
    if known.size and known.min() == known.max() and known[0] in (0.0, 1.0):
        cases = known.size if clusters is None else len(set(np.asarray(clusters).astype(str)[kept].tolist()))
        return clopper_pearson(int(known[0]) * cases, cases, level)
    return interval(column, level, resamples, seed, clusters)


def paired_difference(
    first: Any,
    second: Any,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    clusters: Sequence[Any] | None = None,
) -> Difference:
    """Mean of first − second over examples that both runs answered, with its percentile bootstrap interval.

    clusters: see `interval`.

    p is the smallest 1 − level at which the interval does not exclude 0, at least 1/(resamples + 1): it agrees
    with the interval. For right/wrong answers prefer `mcnemar`, which is exact.
    """
    import numpy as np

    if len(first) != len(second):
        raise ValueError(f"arrays of {len(first)}, {len(second)} examples cannot be paired")
    gaps = np.asarray(first, float).reshape(-1) - np.asarray(second, float).reshape(-1)
    if clusters is None:
        estimate, draws = _draws(_mean, _together((gaps,)), level, resamples, seed)
    else:
        estimate, draws = _draws(_ratio, _sums_by_cluster(gaps, clusters), level, resamples, seed)
    if draws.size == 0:
        return Difference(*estimate, NAN)
    tail = min(np.sum(draws <= 0), np.sum(draws >= 0))
    return Difference(*estimate, min(1.0, float(2 * (tail + 1) / (draws.size + 1))))


def ratio_of_means(
    numerator: Any, denominator: Any, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """mean(numerator) / mean(denominator) over pairs, e.g. C_real and C_direct; nan where the denominator is 0."""
    return _estimate(_ratio, (numerator, denominator), level, resamples, seed)


def bootstrap(
    statistic: Callable[..., float],
    *arrays: Any,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Any statistic of per-example arrays (n, ...), resampled together along the first axis.

    For a curve's area over settings: `bootstrap(lambda c, q: aiq(c.mean(0), q.mean(0)), costs, qualities)`.
    Equal seeds and n draw the same examples, so the statistics of two policies are paired.
    """
    import numpy as np

    columns = [np.asarray(array, dtype=float) for array in arrays]
    n = len(columns[0])
    if n == 0:
        return Estimate(NAN, NAN, NAN)
    value = float(statistic(*columns))
    if n == 1:
        return Estimate(value, NAN, NAN)
    rng = np.random.default_rng(seed)
    draws = [rng.integers(n, size=n) for _ in range(resamples)]
    return percentiles(value, [statistic(*(column[draw] for column in columns)) for draw in draws], level)


def _estimate(statistic: Any, arrays: Sequence[Any], level: float, resamples: int, seed: int) -> Estimate:
    return _draws(statistic, _together(arrays), level, resamples, seed)[0]


# Not scipy.stats.bootstrap: one nan resample (a single class, a constant column) makes its interval nan, and
# its batch is a number of resamples where memory asks for a number of cells. The tests compare the two.
def _draws(
    statistic: Any, arrays: Sequence["np.ndarray"], level: float, resamples: int, seed: int
) -> "tuple[Estimate, np.ndarray]":
    """The estimate and the bootstrap draws of a statistic over the last axis of (…, n) arrays."""
    import numpy as np

    n = arrays[0].size
    if n == 0:
        return Estimate(NAN, NAN, NAN), np.empty(0)
    value = float(statistic(*arrays))
    if n == 1:
        return Estimate(value, NAN, NAN), np.empty(0)
    rng = np.random.default_rng(seed)
    rows = max(1, CELLS // n)
    draws = np.empty(resamples)
    for start in range(0, resamples, rows):
        index = rng.integers(
            n, size=(min(rows, resamples - start), n), dtype=np.int32 if n < 2**31 else np.int64
        )
        draws[start : start + rows] = statistic(*(array[index] for array in arrays))
    return percentiles(value, draws, level), draws


def percentiles(value: float, draws: Any, level: float = 0.95) -> Estimate:
    """A figure with the percentile interval of its draws; those that are nan are left out.

    A draw may be infinite (a price of what was never bought), and so may an end: between a finite draw and an infinite
    one there is nothing to interpolate, and the outer one is taken.
    """
    import numpy as np

    draws = np.asarray(draws, dtype=float)
    draws = draws[~np.isnan(draws)]
    if draws.size == 0:
        return Estimate(value, NAN, NAN)
    if np.isinf(draws).any():
        lo = np.quantile(draws, (1 - level) / 2, method="lower")
        hi = np.quantile(draws, (1 + level) / 2, method="higher")
    else:
        lo, hi = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(lo), float(hi))


def _together(arrays: Sequence[Any]) -> "list[np.ndarray]":
    """Equal-length float vectors without the examples for which any is nan."""
    import numpy as np

    columns = [np.asarray(array, dtype=float).reshape(-1) for array in arrays]
    if len({column.size for column in columns}) > 1:
        raise ValueError(f"arrays of {', '.join(str(c.size) for c in columns)} examples cannot be paired")
    keep = ~np.isnan(np.stack(columns)).any(axis=0)
    return [column[keep] for column in columns]


def _sums_by_cluster(values: Any, clusters: Sequence[Any]) -> "list[np.ndarray]":
    """(c,) sums and counts of the values in each cluster; nan is left out."""
    import numpy as np

    column = np.asarray(values, float).reshape(-1)
    keep = ~np.isnan(column)
    _, place = np.unique(np.asarray(clusters).astype(str)[keep], return_inverse=True)
    return [np.bincount(place, weights=column[keep]), np.bincount(place).astype(float)]


def _mean(values: "np.ndarray") -> Any:
    return values.mean(axis=-1)


def _ratio(numerator: "np.ndarray", denominator: "np.ndarray") -> Any:
    return _divide(numerator.mean(axis=-1), denominator.mean(axis=-1))


def _divide(numerator: Any, denominator: Any) -> Any:
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator == 0, NAN, numerator / denominator)


# --- prediction --------------------------------------------------------------------------------------------


def auroc(scores: Any, outcomes: Any, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """P(score of a positive > score of a negative), ties half; outcomes are 0 or 1. Nan with one class only.

    By mid-ranks (scipy), which resample in one array operation; the value equals scikit-learn's roc_auc_score.
    """
    return _estimate(_auroc, (scores, outcomes), level, resamples, seed)


def pearson(x: Any, y: Any, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Pearson's correlation; nan where a column is constant. Equals scipy.stats.pearsonr."""
    return _estimate(_pearson, (x, y), level, resamples, seed)


def spearman(x: Any, y: Any, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Spearman's rank correlation, ties by mid-ranks; nan where a column is constant. Equals scipy.stats.spearmanr."""
    return _estimate(_spearman, (x, y), level, resamples, seed)


def brier(
    probabilities: Any, outcomes: Any, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Mean squared distance of probabilities to 0/1 outcomes; equals scikit-learn's brier_score_loss."""
    p, y = _probabilities(probabilities, outcomes)
    return interval((p - y) ** 2, level, resamples, seed)


def calibration_error(
    probabilities: Any,
    outcomes: Any,
    bins: int = 10,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Expected calibration error (Guo et al. 2017) over equal-width bins, the last closed at 1.

    Biased upward on few examples, in the resamples more than in the value: read lo and hi with that in mind.
    """
    import numpy as np

    p, y = _probabilities(probabilities, outcomes)
    which = np.minimum((p * bins).astype(np.int64), bins - 1)

    def error(bin_of: "np.ndarray", gap: "np.ndarray") -> Any:
        rows = bin_of.reshape(-1, bin_of.shape[-1])
        offset = np.arange(len(rows))[:, None] * bins
        total = np.bincount((rows + offset).astype(np.int64).ravel(), gap.ravel(), minlength=len(rows) * bins)
        return np.abs(total.reshape(-1, bins)).sum(axis=1).reshape(bin_of.shape[:-1]) / bin_of.shape[-1]

    return _draws(error, (which, p - y), level, resamples, seed)[0]


def _probabilities(probabilities: Any, outcomes: Any) -> "list[np.ndarray]":
    pairs = _together((probabilities, outcomes))
    if pairs[0].size and (pairs[0].min() < 0 or pairs[0].max() > 1):
        raise ValueError("probabilities must lie in [0, 1]")
    return pairs


def _auroc(scores: "np.ndarray", outcomes: "np.ndarray") -> Any:
    from scipy.stats import rankdata

    ranks = rankdata(scores, axis=-1)
    positive = outcomes > 0
    n1 = positive.sum(axis=-1)
    n0 = positive.shape[-1] - n1
    return _divide((ranks * positive).sum(axis=-1) - n1 * (n1 + 1) / 2, n1 * n0)


def _pearson(x: "np.ndarray", y: "np.ndarray") -> Any:
    import numpy as np

    def centred(values: "np.ndarray") -> "np.ndarray":
        # A constant column's mean may differ from it in the last bit, so it is recognised by its range.
        deviation = values - values.mean(axis=-1, keepdims=True)
        return np.where(np.ptp(values, axis=-1, keepdims=True) == 0, 0.0, deviation)

    dx, dy = centred(x), centred(y)
    scale = np.sqrt((dx**2).sum(axis=-1)) * np.sqrt((dy**2).sum(axis=-1))
    return np.clip(_divide((dx * dy).sum(axis=-1), scale), -1, 1)


def _spearman(x: "np.ndarray", y: "np.ndarray") -> Any:
    from scipy.stats import rankdata

    return _pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


# --- counts ------------------------------------------------------------------------------------------------


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """A share with its exact binomial interval (scipy's binomtest); n = 0 gives nan in [0, 1]."""
    from scipy.stats import binomtest

    if n == 0:
        return Estimate(NAN, 0.0, 1.0)
    bounds = binomtest(int(successes), int(n)).proportion_ci(level, method="exact")
    return Estimate(successes / n, float(bounds.low), float(bounds.high))


def discordant(first: Any, second: Any) -> tuple[int, int]:
    """Over right/wrong pairs: (right then wrong, wrong then right)."""
    before, after = (column > 0 for column in _together((first, second)))
    return int((before & ~after).sum()), int((~before & after).sum())


def mcnemar(losses: int, gains: int) -> float:
    """Exact two-sided McNemar p-value of discordant pairs (scipy's binomtest at ½); 1 without any."""
    from scipy.stats import binomtest

    n = int(losses) + int(gains)
    return float(binomtest(int(losses), n).pvalue) if n else 1.0


def mcnemar_power(n: int, loss: float, gain: float, alpha: float = 0.05) -> float:
    """Chance that the exact McNemar test on n pairs is significant, given P(right→wrong) and P(wrong→right).

    Exact: summed over the number of discordant pairs and their split.
    """
    import numpy as np
    from scipy.stats import binom

    if loss < 0 or gain < 0 or loss + gain > 1:
        raise ValueError(f"loss={loss} and gain={gain} must be chances that sum to at most 1")
    if n <= 0 or loss + gain == 0:
        return 0.0
    pairs = np.arange(n + 1)
    edge = binom.ppf(alpha / 2, pairs, 0.5)  # the most pairs on the rarer side that still reject
    edge = np.where(binom.cdf(edge, pairs, 0.5) > alpha / 2, edge - 1, edge)
    share = loss / (loss + gain)
    reject = binom.cdf(edge, pairs, share) + binom.sf(pairs - edge - 1, pairs, share)
    return float(np.sum(binom.pmf(pairs, n, loss + gain) * np.where(edge < 0, 0.0, reject)))


def mcnemar_pairs(
    loss: float, gain: float, power: float = 0.8, alpha: float = 0.05, most: int = 100_000
) -> int | None:
    """About the fewest pairs that reach a power (its saw-tooth makes neighbours differ by a few); None above `most`."""
    low, high = 0, 8
    while mcnemar_power(high, loss, gain, alpha) < power:
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mcnemar_power(middle, loss, gain, alpha) >= power else (middle, high)
    return high


def holm(p_values: Any) -> "np.ndarray":
    """Holm's step-down adjusted p-values, in the given order; nan (a test not made) stays nan and does not count.

    scipy has only the false discovery rate.
    """
    import numpy as np

    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, NAN)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    scaled = p[order] * np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return adjusted
