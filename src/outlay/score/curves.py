"""Cost–quality curves: the hull of what mixing settings can buy, and the figures read off it.

A point is one setting of a policy: its mean cost per query (tokens, dollars, or units: one unit for all points of
a call) and its mean quality. Points come as two equal arrays in any order; a point with a nan is left out.
Mixing two settings at random buys every point on the line between them, so a hull is attainable.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

NAN = float("nan")
SLACK = 1e-9
"""Two means of the same answers may differ in their last bits: a quality is reached when it is missed by no more."""
Point = tuple[float, float]
"""(cost, quality)."""


@dataclass(frozen=True)
class Hull:
    """The corners of a non-decreasing concave curve: cost ascending, quality non-decreasing; (k,) each."""

    cost: "np.ndarray"
    quality: "np.ndarray"

    def at(self, cost: Any) -> "np.ndarray":
        """Quality bought at a mean cost: flat beyond the dearest corner (money left over), nan below the cheapest."""
        import numpy as np

        if not self.cost.size:
            return np.full(np.shape(cost), NAN)
        return np.asarray(np.interp(cost, self.cost, self.quality, left=NAN))


def hull(cost: Any, quality: Any) -> Hull:
    """The non-decreasing convex hull (RouterBench): the least concave, non-decreasing curve over all points."""
    import numpy as np

    cost, quality = _points(cost, quality)
    corners: list[Point] = []
    for x, y in sorted(
        zip(cost.tolist(), quality.tolist(), strict=True), key=lambda point: (point[0], -point[1])
    ):
        if corners and y <= corners[-1][1]:
            continue  # dearer (or equal) and no better
        while len(corners) > 1 and _below(corners[-2], corners[-1], (x, y)):
            corners.pop()
        corners.append((x, y))
    return Hull(*(np.array([corner[axis] for corner in corners]) for axis in (0, 1)))


def aiq(
    cost: Any, quality: Any, lo: float | None = None, hi: float | None = None, floor: float = 0.0
) -> float:
    """Average improvement in quality (RouterBench): the hull's mean over [lo, hi], 1/(hi − lo) ∫ hull dc.

    Policies are comparable only over one range, so pass the same lo and hi for all (their published code divides
    by the largest cost and integrates from each router's own cheapest point). Default: the points' own range.
    Below the cheapest point nothing can be bought and quality is `floor` (ours). One cost only: its quality.
    """
    import numpy as np

    curve = hull(cost, quality)
    if not curve.cost.size:
        return NAN
    costs, _ = _points(cost, quality)
    lo, hi = costs.min() if lo is None else lo, costs.max() if hi is None else hi
    if hi <= lo:
        return float(np.nan_to_num(curve.at(lo), nan=floor)) if hi == lo else NAN
    start = min(max(lo, curve.cost[0]), hi)
    inside = curve.cost[(curve.cost > start) & (curve.cost < hi)]
    steps = np.concatenate([[start], inside, [hi]])
    area = np.trapezoid(np.nan_to_num(curve.at(steps), nan=floor), steps) if hi > start else 0.0
    return float((area + floor * (start - lo)) / (hi - lo))


def apgr(cost: Any, quality: Any, weak: Point, strong: Point) -> float:
    """Average performance gap recovered (RouteLLM): ∫ (q − q_weak)/(q_strong − q_weak) over cost from weak to strong.

    Cost is scaled to 0 at `weak` (all queries to the weak tier) and 1 at `strong`; for two tiers of flat price
    that is RouteLLM's share of strong calls, but here a probe or a long output counts too. Points in between are
    joined by lines, with the two tiers as end points; the random router has 0.5. Nan unless the strong tier is
    both dearer and better, since there is then no gap to recover.
    """
    import numpy as np

    scaled = _recovered(cost, quality, weak, strong)
    if scaled is None:
        return NAN
    share, recovered = scaled
    inside = share[(share > 0) & (share < 1)]
    steps = np.concatenate([[0.0], inside, [1.0]])
    return float(np.trapezoid(np.interp(steps, share, recovered), steps))


def cpt(cost: Any, quality: Any, weak: Point, strong: Point, recovered: float = 0.5) -> float:
    """Call-performance threshold (RouteLLM): the least scaled cost at which a share of the gap is recovered.

    The first crossing of the curve of `apgr`; interpolating cost over accuracy, as the published code does, is
    wrong where accuracy falls along the curve. Nan where `apgr` is, or where the share is never reached.
    """
    import numpy as np

    scaled = _recovered(cost, quality, weak, strong)
    if scaled is None:
        return NAN
    share, gap = scaled
    reached = np.flatnonzero(gap >= recovered)
    if not reached.size:
        return NAN
    first = int(reached[0])
    if first == 0:
        return float(share[0])
    rise = (recovered - gap[first - 1]) / (gap[first] - gap[first - 1])
    return float(share[first - 1] + rise * (share[first] - share[first - 1]))


def accuracy_at_budget(cost: Any, quality: Any, budget: float, mix: bool = True) -> float:
    """The best quality for a mean cost of at most `budget`; nan where nothing is that cheap.

    mix: over the hull, i.e. with random mixtures of two settings; else over the points alone.
    """
    cost, quality = _points(cost, quality)
    if not (cost <= budget).any():
        return NAN
    return float(hull(cost, quality).at(budget)) if mix else float(quality[cost <= budget].max())


def tokens_at_accuracy(cost: Any, quality: Any, accuracy: float, mix: bool = True) -> float:
    """The least mean cost that buys a quality of at least `accuracy`, to `SLACK`; nan where it is never reached."""
    import numpy as np

    cost, quality = _points(cost, quality)
    reached = quality >= accuracy - SLACK
    if not reached.any():
        return NAN
    if not mix:
        return float(cost[reached].min())
    curve = hull(cost, quality)  # its quality ascends strictly, so it can be read the other way round
    return float(np.interp(accuracy, curve.quality, curve.cost))


def _points(cost: Any, quality: Any) -> "tuple[np.ndarray, np.ndarray]":
    import numpy as np

    x, y = (np.asarray(array, dtype=float).reshape(-1) for array in (cost, quality))
    if x.size != y.size:
        raise ValueError(f"{x.size} costs and {y.size} qualities are not points")
    keep = ~(np.isnan(x) | np.isnan(y))
    return x[keep], y[keep]


def _below(left: Point, middle: Point, right: Point) -> bool:
    """Whether the middle point lies on or under the line between its neighbours."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])


def _recovered(cost: Any, quality: Any, weak: Point, strong: Point) -> "tuple[np.ndarray, np.ndarray] | None":
    """The curve with both tiers as end points, cost and quality scaled to 0 at weak and 1 at strong."""
    import numpy as np

    if not (strong[0] > weak[0] and strong[1] > weak[1]):
        return None
    cost, quality = _points(cost, quality)
    x = np.concatenate([[0.0], (cost - weak[0]) / (strong[0] - weak[0]), [1.0]])
    y = np.concatenate([[0.0], (quality - weak[1]) / (strong[1] - weak[1]), [1.0]])
    share, group = np.unique(x, return_inverse=True)
    best = np.full(share.size, -np.inf)
    np.maximum.at(best, group, y)  # of settings with one cost, the better
    return share, best
