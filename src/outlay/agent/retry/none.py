"""One attempt, whatever comes of it."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Action, Attempt, Stop
from outlay.agent.ledger import Trace
from outlay.schema import option


@dataclass(frozen=True)
class NoRetry:
    temperature: float = option(0.0, least=0)

    name: ClassVar[str] = "none"

    def next(self, trace: Trace, tier: str) -> Action:
        if trace.attempts:  # the first: with probe.reuse there are several
            answer = trace.attempts[0].answer
            return Stop(answer, solved=answer is not None)
        return Attempt(tier, self.temperature)
