"""Tries on one tier, then on the next: when its attempts are spent, or cost more than was foretold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Self

from outlay.agent import Action, Attempt, Stop
from outlay.agent.ledger import Trace
from outlay.agent.retry.stopping import CONTEXTS, Stopping, again
from outlay.errors import ConfigError
from outlay.inflation import cannot_fire, inflation
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.inflation.predictor import Predictor


@dataclass(frozen=True)
class Escalate(Stopping):
    """Leaves a tier where its observed inflation passes factor x predicted (the paper's rule), or its attempts are spent.

    The stop rule goes by one tier's attempts at a time. context: between the attempts of a tier; escalation: the first
    prompt of the next, fresh as in the paper, or carry (the failed chain is shown). predicted stands for every query,
    unless `predictor` names a saved one, which needs a probe.
    """

    tiers: list[str] | None = None  # in the order of escalation; None: the generator's order
    attempts_per_tier: int = option(5, least=1)
    factor: float | None = option(2.0, above=0)  # the paper's 2; None: no such rule
    predicted: float = option(1.0, least=1)  # inflation; ours
    predictor: str | None = None  # a folder, or runs:/ID, that a predictor was saved to
    context: str = option("fresh", choices=CONTEXTS)
    escalation: str = option("fresh", choices=("fresh", "carry"))
    temperature: float = option(0.7, least=0)

    name: ClassVar[str] = "escalate"

    def __post_init__(self) -> None:
        known = (
            self.predictor is None and self.context == "fresh"
        )  # a shown chain makes later attempts dearer
        dead = dead_zone(self.predicted, self.factor, self.attempts_per_tier) if known else None
        if dead:
            raise ConfigError(f"{dead} Or set factor=null, and a tier is left when its attempts are spent")

    def within(self, tiers: Sequence[str]) -> Self:
        """The same on a generator's tiers, where the config names none."""
        return replace(self, tiers=list(tiers)) if self.tiers is None else self

    def next(self, trace: Trace, tier: str) -> Action:
        ladder = self.tiers or [tier]
        later = ladder[ladder.index(tier) :] if tier in ladder else [tier]
        last = trace.attempts[-1].tier if trace.attempts else tier
        at = last if last in later else tier
        here = trace.of_tier(at)
        left = 0 if self._passed(here, at) else self.attempts_per_tier - len(here.attempts)
        ended = self.ended(here, left)
        if ended is None:
            return again(here, at, self.temperature, self.context)
        if isinstance(ended, Stop) and (self.stop == "none" or not ended.solved):
            stronger = later[later.index(at) + 1 :]
            if stronger:
                return Attempt(stronger[0], self.temperature, self.escalation)
            if ended.answer is None:
                return replace(ended, answer=trace.last_answer())
        return ended

    def _passed(self, here: Trace, tier: str) -> bool:
        """Whether the tier's attempts cost more than foretold; never before the first."""
        if self.factor is None or not here.attempts:
            return False
        return inflation(here.attempts) > self.factor * self._foretold(here, tier)

    def _foretold(self, here: Trace, tier: str) -> float:
        if self.predictor is None:
            return self.predicted
        from outlay.inflation.features import features

        predictor = _load(self.predictor)
        return float(predictor.predict(tier, [predictor.row(features(here))])[0])


def dead_zone(predicted: float, factor: float | None, max_attempts: int) -> str | None:
    """Why the rule "observed inflation > factor x predicted" cannot fire; None where it can."""
    if factor is None or not cannot_fire(predicted, factor, max_attempts):
        return None
    return (
        f"escalation at {factor:g} x the predicted inflation of {predicted:g} needs more than {factor * predicted:g}, "
        f"and {max_attempts} attempts on a tier cost about {max_attempts} times one: it cannot fire. "
        f"Predictions below {max_attempts / factor:g} can; use a lower factor or more attempts."
    )


@lru_cache(maxsize=4)
def _load(where: str) -> "Predictor":
    from outlay.inflation.predictor import load

    return load(where)
