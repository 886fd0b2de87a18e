"""Up to a fixed number of attempts, one after another, until a stop rule fires."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Action
from outlay.agent.ledger import Trace
from outlay.agent.retry.stopping import CONTEXTS, Stopping, again
from outlay.schema import option


@dataclass(frozen=True)
class Fixed(Stopping):
    """context: fresh, carry (the last chain is shown), reflect (and what the model wrote about it, which is paid for)."""

    max_attempts: int = option(5, least=1)
    context: str = option("fresh", choices=CONTEXTS)
    temperature: float = option(0.7, least=0)

    name: ClassVar[str] = "fixed"

    def next(self, trace: Trace, tier: str) -> Action:
        ended = self.ended(trace, self.max_attempts - len(trace.attempts))
        return ended or again(trace, tier, self.temperature, self.context)
