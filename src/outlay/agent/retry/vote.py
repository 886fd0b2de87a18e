"""Self-consistency: several samples in one request, and the majority's answer (Wang et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Action, Stop
from outlay.agent.ledger import Trace
from outlay.agent.retry.stopping import again, decided
from outlay.schema import option


@dataclass(frozen=True)
class Vote:
    """One wave, and one prompt billed: a probe's samples that are used again count among the attempts."""

    max_attempts: int = option(5, least=1)
    temperature: float = option(0.7, above=0)

    name: ClassVar[str] = "vote"

    def next(self, trace: Trace, tier: str) -> Action:
        left = self.max_attempts - len(trace.attempts)
        if left > 0 and not decided(trace, left):
            return again(trace, tier, self.temperature, "fresh", n=left)
        return Stop(trace.vote(), solved=decided(trace, max(0, left)))
