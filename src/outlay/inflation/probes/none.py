"""No probe."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Probe
from outlay.agent.ledger import Trace


@dataclass(frozen=True)
class NoProbe:
    name: ClassVar[str] = "none"

    def next(self, trace: Trace, tier: str) -> Probe | None:
        return None
