"""Mixture-of-thought cascade (Yue et al. 2024): the weak tier's answer where its samples agree, else the strong tier."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from outlay.agent import Action, Attempt, Stop
from outlay.agent.ledger import Ledger, Trace
from outlay.routers import Setting, checks
from outlay.routers.explore import temperature
from outlay.routers.view import on_tier, tried
from outlay.schema import option


@dataclass(frozen=True)
class Mot:
    """k samples of the weak tier in one request; a share of votes of at least `threshold` accepts their answer.

    The paper mixes two prompts (chain and program of thought); here the samples are of one prompt. k and threshold are
    ours. An unparsable sample counts against the share. The strong tier is tried as the run's retry says.
    """

    weak: str | None = None  # None: the generator's first tier
    strong: str | None = None  # None: its last
    k: int = option(5, least=1)
    threshold: float = option(0.6, above=0, most=1)
    temperature: float | None = option(
        None, least=0
    )  # of the samples; None: the retry's, or 0.7 where that is 0
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "mot"
    least_tiers: ClassVar[int] = 2

    def policy(self, setting: Setting) -> "MotPolicy":
        drawn = temperature(setting) or 0.7 if self.temperature is None else self.temperature
        weak, strong = self.weak or setting.tiers[0].name, self.strong or setting.tiers[-1].name
        told = checks.repeats(self.k, drawn, "router.k")
        return MotPolicy(setting.retry, weak, strong, self.k, self.threshold, drawn, tuple(told))


@dataclass(frozen=True)
class MotPolicy:
    retry: Any
    weak: str
    strong: str
    k: int
    threshold: float
    temperature: float
    warnings: tuple[str, ...] = ()

    def fit(self, ledger: Ledger) -> Self:
        return self

    def next(self, trace: Trace) -> Action:
        asked = [line for line in tried(trace) if line.tier == self.weak]
        if not asked:
            return Attempt(self.weak, self.temperature, n=self.k)
        votes = Counter(line.answer for line in asked if line.answer is not None).most_common(1)
        if votes and votes[0][1] >= self.threshold * len(asked):
            return Stop(votes[0][0], solved=True)
        return on_tier(self.retry, trace, self.strong)
