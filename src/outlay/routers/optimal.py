"""The best that tiers and attempts can buy where a right answer is known when seen: exact dynamic programming.

A state is how many attempts on each tier have failed; each is a box that costs something and holds a right answer with
some chance (Weitzman 1979, Pandora's problem, with boxes of one tier opened in order).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Plan:
    """value = accuracy − rate x cost, of the best policy from a state on; tier: what it tries next, None to stop."""

    value: float
    accuracy: float
    cost: float
    tier: int | None


def best_plan(
    success: Sequence[Sequence[float]],
    costs: Sequence[float],
    rate: float,
    failed: Sequence[int] | None = None,
) -> Plan:
    """Maximise P(right) − rate x expected cost over all policies that stop at the first right answer.

    Args:
        success: by tier, the chance of its k-th attempt given that all before it failed (of every tier).
        costs: of one attempt on each tier. rate: what a unit of cost is worth.
        failed: attempts made so far on each tier; none by default.
    """
    chances = tuple(map(tuple, success))

    @cache
    def plan(state: tuple[int, ...]) -> Plan:
        best = Plan(0.0, 0.0, 0.0, None)
        for tier, (made, cost) in enumerate(zip(state, costs, strict=True)):
            if made == len(chances[tier]):
                continue
            p = chances[tier][made]
            then = plan((*state[:tier], made + 1, *state[tier + 1 :]))
            value = p + (1 - p) * then.value - rate * cost
            if value > best.value:
                best = Plan(value, p + (1 - p) * then.accuracy, cost + (1 - p) * then.cost, tier)
        return best

    return plan(tuple(failed) if failed else (0,) * len(chances))


def least_cost(
    queries: Sequence[Sequence[Sequence[float]]], costs: Sequence[float], accuracy: float
) -> float:
    """The least mean cost at which any policy, mixed ones too, is right on a share `accuracy` of these queries.

    queries: `success` of each, known to the policy (so it is a bound for those that must guess). By duality: the largest,
    over rates, of (accuracy − mean value) / rate. Infinite where no budget buys the accuracy.
    """

    def mean(rate: float) -> tuple[float, float]:
        plans = [best_plan(query, costs, rate) for query in queries]
        return sum(p.value for p in plans) / len(plans), sum(p.accuracy for p in plans) / len(plans)

    low, high = 1e-9 / min(costs), 1 / min(costs)
    if mean(low)[1] < accuracy - 1e-9:
        return float("inf")
    for _ in range(60):  # the rate at which the best policy's accuracy passes the one asked for
        middle = (low * high) ** 0.5
        low, high = (middle, high) if mean(middle)[1] >= accuracy else (low, middle)
    return max((accuracy - mean(rate)[0]) / rate for rate in (low, high))
