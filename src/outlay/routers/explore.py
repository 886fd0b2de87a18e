"""What is run on the train and tune splits, so that a router learns from samples of every tier."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Ledger, Line, Trace
from outlay.routers import Setting
from outlay.routers.view import tried


@dataclass(frozen=True)
class Explore:
    """A probe, then `samples` attempts on every tier, one request each; with `verify`, a check of `checked`'s first.

    Samples at temperature 0 are all alike, so one is made.
    """

    tiers: Sequence[str]
    samples: int
    temperature: float
    probe: Any = None  # a probe component
    probe_tier: str = ""
    verify: str | None = None
    checked: str = ""  # the tier whose first attempt is verified

    def fit(self, ledger: Ledger) -> Self:
        return self

    def next(self, trace: Trace) -> Action:
        probe = self.probe.next(trace, self.probe_tier) if self.probe else None
        if probe:
            return probe
        done = tried(trace)
        for tier in self.tiers:
            if all(line.tier != tier for line in done):
                return Attempt(tier, self.temperature, n=self.samples if self.temperature > 0 else 1)
        if self.verify:
            first = next(line for line in done if line.tier == self.checked)
            if not trace.checked(first.attempt, self.verify):
                return Verify(self.verify, first.attempt)
        return Stop(trace.vote(), solved=False)


def explorer(setting: Setting, tiers: Sequence[str], samples: int, probes: bool = True) -> Explore:
    """The exploration of a run's tiers, sampled as its retry samples; the probe is on the first tier, or on its own."""
    probe = setting.probe if probes else None
    return Explore(tuple(tiers), samples, temperature(setting), probe, setting.tiers[0].name)


def temperature(setting: Setting) -> float:
    """Of a single attempt: the retry's."""
    return float(getattr(setting.retry, "temperature", 0.0))


def samples_of(trace: Trace, tier: str) -> list[Line]:
    """A tier's scored samples of one explored query."""
    return [
        line
        for line in tried(trace)
        if line.tier == tier and line.score is not None and line.score == line.score
    ]
