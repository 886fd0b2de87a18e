"""Samples until the majority is clear enough; the rules of Adaptive-Consistency and of early-stopping self-consistency."""

from dataclasses import dataclass
from math import comb
from typing import ClassVar

from outlay.agent import Action, Stop
from outlay.agent.ledger import Trace
from outlay.agent.retry.stopping import again, tops
from outlay.schema import option


@dataclass(frozen=True)
class Adaptive:
    """rule: beta (the leader's share is above one half with `confidence`; Aggarwal et al. 2023) or window (`window`
    samples in a row agree; Li et al. 2024).

    As many samples are asked in one request as the rule needs at least, so none is made that it could have spared.
    """

    rule: str = option("beta", choices=("beta", "window"))
    confidence: float = option(0.95, above=0.5, most=1)  # of beta; the paper's
    window: int = option(3, least=2)  # ours; the paper's 5 to 10 are of up to 64 samples
    max_attempts: int = option(10, least=1)
    first: int | None = option(None, least=1)  # asked in the first request; None: what the rule needs
    temperature: float = option(0.7, above=0)

    name: ClassVar[str] = "adaptive"

    def next(self, trace: Trace, tier: str) -> Action:
        made = len(trace.attempts)
        left = self.max_attempts - made
        clear = self._beta(trace) if self.rule == "beta" else self._window(trace)
        if clear or left <= 0:
            return Stop(trace.vote(), solved=clear)
        needed = self._beta_needs(trace) if self.rule == "beta" else self.window - made % self.window
        if made == 0 and self.first is not None:
            needed = self.first
        return again(trace, tier, self.temperature, "fresh", n=min(needed, left))

    def _beta(self, trace: Trace) -> bool:
        first, second = tops(trace)
        return majority_chance(first, second) >= self.confidence

    def _beta_needs(self, trace: Trace) -> int:
        """The fewest further samples after which the rule could fire: all of them for the leader."""
        first, second = tops(trace)
        return next(
            (
                more
                for more in range(1, self.max_attempts)
                if majority_chance(first + more, second) >= self.confidence
            ),
            self.max_attempts,
        )

    def _window(self, trace: Trace) -> bool:
        """Windows do not overlap, as in the paper, which asks for one at a time."""
        answers = [line.answer for line in trace.attempts]
        windows = (answers[at : at + self.window] for at in range(0, len(answers), self.window))
        return any(len(one) == self.window and one[0] is not None and len(set(one)) == 1 for one in windows)


def majority_chance(first: int, second: int) -> float:
    """P(share of the leader > 1/2) under Beta(first + 1, second + 1), exactly.

    For whole numbers the incomplete beta function at 1/2 is a sum of binomials: 1 - I_1/2(a + 1, b + 1) is the chance of
    more than b heads in a + b + 1 throws. Source: Adaptive-Consistency (Aggarwal et al. 2023), its Beta rule.
    """
    throws = first + second + 1
    return sum(comb(throws, heads) for heads in range(second + 1, throws + 1)) / 2**throws
