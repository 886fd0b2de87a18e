"""Up to a fixed number of attempts, one after another, until a stop rule fires."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Trace
from outlay.schema import option


@dataclass(frozen=True)
class Fixed:
    """stop: gold (an oracle: what the paper measured), vote (the majority can no longer change), parse (an answer
    could be read), none (all attempts are made). context: fresh, or carry (the last chain is shown)."""

    max_attempts: int = option(5, least=1)
    stop: str = option("vote", choices=("gold", "vote", "parse", "none"))
    context: str = option("fresh", choices=("fresh", "carry"))
    temperature: float = option(0.7, least=0)

    name: ClassVar[str] = "fixed"

    def next(self, trace: Trace, tier: str) -> Action:
        attempts = trace.attempts
        for (
            attempt
        ) in attempts:  # in order: a probe's samples, or several of one request, may be attempts too
            if self.stop == "parse" and attempt.answer is not None:
                return Stop(attempt.answer, solved=True)
            if self.stop == "gold":
                verdict = trace.verdict(attempt.attempt, "gold")
                if verdict is None:
                    return Verify("gold", attempt.attempt)
                if verdict:
                    return Stop(attempt.answer, solved=True)
        left = max(0, self.max_attempts - len(attempts))
        if self.stop == "vote" and attempts and _decided(trace, left):
            return Stop(trace.vote(), solved=True)
        if left == 0:
            answer = trace.vote() if self.stop == "vote" else trace.last_answer()
            return Stop(answer, solved=self.stop == "none" and answer is not None)
        return Attempt(tier, self.temperature, self.context if attempts else "fresh")


def _decided(trace: Trace, left: int) -> bool:
    """Whether no answer could still overtake the leader; so the vote is that of all attempts, for fewer."""
    counts = [
        count for _, count in Counter(line.answer for line in trace.attempts if line.answer).most_common(2)
    ]
    if not counts:
        return False
    runner_up = counts[1] if len(counts) > 1 else 0
    return counts[0] > runner_up + left
