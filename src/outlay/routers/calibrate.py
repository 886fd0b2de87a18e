"""The exchange rate between quality and cost that keeps a mean budget on the tune split."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from outlay.errors import ConfigError


@dataclass(frozen=True)
class Mix:
    """Two exchange rates (quality per unit of cost), of which a query takes one by the hash of its id.

    Mean cost falls in steps as the rate rises, so a budget between two steps needs both: `share` of the queries spend by
    the `dear` rate. Dekoninck et al. mix ties so; their published code uses the cheap model's share for the dear one.
    """

    dear: float
    cheap: float
    share: float
    mean_cost: float  # expected, on the tune split

    def rate(self, example_id: str) -> float:
        return self.dear if chance(example_id, "rate") < self.share else self.cheap


def calibrate(mean_cost: Callable[[float], float], budget: float, steps: int = 30) -> Mix:
    """The mix whose mean cost is the budget; all by one rate where the budget is not binding, or cannot be met.

    mean_cost: rate -> mean cost a query on the tune split, non-increasing. Bisection on the logarithm.

    Raises:
        ConfigError: a budget of nothing, of which no rate is a part.
    """
    if not budget > 0:
        raise ConfigError(
            "the budget is 0: in router.cost the cheapest tier is free, so there is nothing to weigh quality against. "
            "Use router.cost=units, or a router.cost_share above 0 where a dearer tier is not free"
        )
    dear = 1e-9 / budget  # not 0, so that of equal qualities the cheaper one is taken
    cheap, spent = dear * 1000, mean_cost(dear)
    if spent <= budget:
        return Mix(dear, dear, 1.0, spent)
    spends = mean_cost(cheap)
    while spends > budget and cheap < 1e12 / budget:
        dear, spent, cheap = cheap, spends, cheap * 1000
        spends = mean_cost(cheap)
    if spends > budget:
        return Mix(cheap, cheap, 1.0, spends)
    for _ in range(steps):
        middle = (dear * cheap) ** 0.5
        at = mean_cost(middle)
        if at > budget:
            dear, spent = middle, at
        else:
            cheap, spends = middle, at
    share = (budget - spends) / (spent - spends) if spent > spends else 0.0
    return Mix(dear, cheap, share, share * spent + (1 - share) * spends)


def chance(example_id: str, salt: str, seed: int = 0) -> float:
    """A number in [0, 1) that is the same for a query in every run and on every machine."""
    digest = hashlib.sha256(f"outlay-router:{salt}:{seed}:{example_id}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
