"""K sampled chains, whose answers' entropy (CBE) foretells retries. The probe is paid for."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Probe
from outlay.agent.ledger import Trace
from outlay.schema import option


@dataclass(frozen=True)
class Cbe:
    """K = 3 and temperature 0.7 are our defaults; the paper's digests name neither for certain."""

    k: int = option(3, least=2)
    temperature: float = option(0.7, above=0)
    tier: str | None = None  # null: the tier that answers
    reuse: bool = False  # its samples serve as the first attempts

    name: ClassVar[str] = "cbe"

    def next(self, trace: Trace, tier: str) -> Probe | None:
        return None if trace.probes else Probe(self.tier or tier, self.k, self.temperature)
