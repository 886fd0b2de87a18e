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
