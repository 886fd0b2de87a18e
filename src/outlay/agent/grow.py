"""Budget escalation after an answer: a reply that its context does not support is tried again with a larger one."""

from dataclasses import dataclass, replace
from typing import Self

from outlay.agent import Action, Attempt, Policy, Stop, Verify
from outlay.agent.ledger import Ledger, Trace


@dataclass(frozen=True)
class Grow:
    """Runs `policy` on the smallest context; where the verifier rejects its answer, on the next larger one."""

    policy: Policy
    verifier: str

    def fit(self, ledger: Ledger) -> Self:
        return replace(self, policy=self.policy.fit(ledger))

    def next(self, trace: Trace) -> Action:
        attempts = trace.attempts
        step = attempts[-1].step if attempts else 0
        action = self.policy.next(_at(trace, step))
        if isinstance(action, Stop) and attempts and step + 1 < trace.query.steps:
            verdict = trace.verdict(attempts[-1].attempt, self.verifier)
            if verdict is None:
                return Verify(self.verifier)
            if not verdict:
                step += 1
                action = self.policy.next(_at(trace, step))
        return replace(action, step=step) if isinstance(action, Attempt) else action


def _at(trace: Trace, step: int) -> Trace:
    """The trace as if it had only been tried at one step; the probe was made before any."""
    return replace(
        trace, lines=tuple(line for line in trace.lines if line.kind == "probe" or line.step == step)
    )
