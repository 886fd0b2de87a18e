"""Always the same tier: the baseline of every router."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from outlay.agent import Action
from outlay.agent.ledger import Ledger, Trace
from outlay.routers import Setting
from outlay.schema import option


@dataclass(frozen=True)
class Static:
    """tier: null takes the generator's first tier. token_budget: a limit a query, probes included; see `executor.Limits`."""

    tier: str | None = None
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "static"

    def policy(self, setting: Setting) -> "StaticPolicy":
        names = [tier.name for tier in setting.tiers]
        retry = setting.retry.within(names) if hasattr(setting.retry, "within") else setting.retry
        return StaticPolicy(retry, setting.probe, self.tier or names[0])


@dataclass(frozen=True)
class StaticPolicy:
    retry: Any
    probe: Any
    tier: str

    def fit(self, ledger: Ledger) -> Self:
        return self

    def next(self, trace: Trace) -> Action:
        return self.probe.next(trace, self.tier) or self.retry.next(trace, self.tier)
