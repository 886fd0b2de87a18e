"""The cheapest tier that is right, by the answer key: a bound that no table calls deployable."""

from dataclasses import dataclass
from typing import ClassVar, Self

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Ledger, Trace
from outlay.routers import Setting, checks, costs
from outlay.routers.explore import temperature
from outlay.schema import option


@dataclass(frozen=True)
class Oracle:
    """Tries tiers from the cheapest price a token on, until gold says right.

    attempts: on each tier, in turn. The ledger bills every tier that was tried; RouterBench's oracle, which knows which
    tier will be right, pays for that one alone.
    """

    cost: str = option("units", choices=costs.KINDS)
    attempts: int = option(1, least=1)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "oracle"
    reads_gold: ClassVar[bool] = True

    def policy(self, setting: Setting) -> "OraclePolicy":
        order = sorted(setting.tiers, key=lambda tier: costs.of_call(tier.price, 1, 1, self.cost))
        drawn = temperature(setting)
        told = checks.repeats(self.attempts, drawn, "router.attempts")
        return OraclePolicy(tuple(costs.names(order)), self.attempts, drawn, tuple(told))


@dataclass(frozen=True)
class OraclePolicy:
    tiers: tuple[str, ...]  # cheapest first
    attempts: int
    temperature: float
    warnings: tuple[str, ...] = ()

    def fit(self, ledger: Ledger) -> Self:
        return self

    def next(self, trace: Trace) -> Action:
        done = trace.attempts
        for line in done:
            if not trace.checked(line.attempt, "gold"):
                return Verify("gold", line.attempt)
            if trace.verdict(line.attempt, "gold"):
                return Stop(line.answer, solved=True)
        for tier in self.tiers:
            if sum(line.tier == tier for line in done) < self.attempts:
                return Attempt(tier, self.temperature)
        return Stop(trace.last_answer(), solved=False)
