"""Does a shown chain contaminate the next attempt? Paired arms over the same earlier attempts of the same queries.

Source of the question: InflationAgent (arXiv 2608.13571), which shows a failed chain to 23 queries and no control text.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Line, Trace
from outlay.schema import option


@dataclass(frozen=True)
class Contaminate:
    """Fresh samples of a query are looked through for a failed chain and a right one (by gold: an oracle); then one
    more attempt is made in the arm's way. A query without the chain that its arm shows is no case, and gets no answer.

    arm: fresh (nothing is shown); failed, right (that chain, as one's own); noise (the failed chain's characters or
    words in a drawn order); other (the failed chain as someone else's); answer (the failed chain's answer alone).
    """

    arm: str = option("failed", choices=("fresh", "failed", "right", "noise", "other", "answer"))
    samples: int = option(8, least=1)  # fresh attempts that are looked through
    temperature: float = option(0.7, least=0)

    name: ClassVar[str] = "contaminate"

    def next(self, trace: Trace, tier: str) -> Action:
        attempts = trace.attempts
        if not attempts:
            return Attempt(tier, self.temperature, n=self.samples)
        first, last = attempts[: self.samples], attempts[self.samples :]
        for line in first:
            if not trace.checked(line.attempt, "gold"):
                return Verify("gold", line.attempt)
        if last:
            return Stop(last[0].answer, solved=last[0].answer is not None)
        failed = next(
            (x for x in first if x.answer is not None and not trace.verdict(x.attempt, "gold")), None
        )
        right = next((x for x in first if trace.verdict(x.attempt, "gold")), None)
        source = right if self.arm == "right" else failed
        if source is None:
            return Stop(None, solved=False)
        context, shown = ARMS[self.arm]
        return Attempt(tier, self.temperature, context, shown=shown(source))


def _shuffled(line: Line) -> str:
    """The chain's words in a drawn order, or its characters where it has no words: its length, without its sense."""
    parts = line.text.split(" ")
    between = " "
    if len(parts) < 4:
        parts, between = list(line.text), ""
    random.Random(f"{line.example_id}:{line.seed}").shuffle(parts)
    return between.join(parts)


ARMS: dict[str, tuple[str, Callable[[Line], str]]] = {
    "fresh": ("fresh", lambda line: ""),
    "failed": ("carry", lambda line: line.text),
    "right": ("carry", lambda line: line.text),
    "noise": ("carry", _shuffled),
    "other": ("other", lambda line: line.text),
    "answer": ("carry", lambda line: line.answer or ""),
}
"""How each arm's last attempt is made: the context, and what is shown of the source chain."""
