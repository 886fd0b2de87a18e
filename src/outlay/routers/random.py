"""A tier by lot: the line between two tiers that a router must pass."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Self

from outlay.agent import Action
from outlay.agent.ledger import Ledger, Trace
from outlay.errors import ConfigError
from outlay.routers import Setting
from outlay.routers.calibrate import chance
from outlay.routers.view import on_tier
from outlay.schema import option


@dataclass(frozen=True)
class Random:
    """shares: of the queries, by tier in the generator's order; None: equal ones. By a hash of the example's id, so that
    a larger share of a tier keeps the queries that a smaller one had."""

    shares: list[float] | None = option(None, least=0)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "random"
    least_tiers: ClassVar[int] = 2

    def policy(self, setting: Setting) -> "RandomPolicy":
        tiers = [tier.name for tier in setting.tiers]
        shares = self.shares or [1.0] * len(tiers)
        if len(shares) != len(tiers) or sum(shares) <= 0:
            raise ConfigError(
                f"router.shares={shares}: one share for each of the {len(tiers)} tiers is needed ({', '.join(tiers)}), "
                "and one above 0"
            )
        edges = [edge / sum(shares) for edge in accumulate(shares)]
        return RandomPolicy(setting.retry, tuple(zip(edges, tiers, strict=True)), setting.seed)


@dataclass(frozen=True)
class RandomPolicy:
    retry: Any
    edges: tuple[tuple[float, str], ...]
    seed: int

    def fit(self, ledger: Ledger) -> Self:
        return self

    def next(self, trace: Trace) -> Action:
        drawn = chance(trace.query.id, "random", self.seed)
        tier = next((tier for edge, tier in self.edges if drawn < edge), self.edges[-1][1])
        return on_tier(self.retry, trace, tier)
