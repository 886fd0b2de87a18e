"""Budget escalation after an answer: a reply that its context does not support is tried again with a larger one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from outlay.agent import Action, Attempt, Policy, Stop, Verify
from outlay.agent.ledger import Ledger, Trace

if TYPE_CHECKING:
    from outlay.agent.executor import Asked, Verifier


@dataclass(frozen=True)
class Grow:
    """Runs `policy` on the smallest context; where the verifier rejects its answer, on the next larger one."""

    policy: Policy
    verifier: str

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(getattr(self.policy, "warnings", ()))

    @property
    def verifiers(self) -> "Mapping[str, Verifier | Asked]":
        found: Mapping[str, Verifier | Asked] = getattr(self.policy, "verifiers", {})
        return found

    def fit(self, ledger: Ledger) -> Self:
        return replace(self, policy=self.policy.fit(ledger))

    def prepare(self, traces: Sequence[Trace]) -> None:
        prepare = getattr(self.policy, "prepare", None)
        if prepare:
            prepare(traces)

    def next(self, trace: Trace) -> Action:
        attempts = trace.attempts
        step = max((line.step for line in attempts), default=0)
        action = self.policy.next(_at(trace, step))
        if isinstance(action, Stop) and attempts and step + 1 < trace.query.steps:
            given = [line for line in attempts if line.step == step and line.answer == action.answer]
            judged = (given or attempts)[-1].attempt
            verdict = trace.verdict(judged, self.verifier)
            if verdict is None:
                return Verify(self.verifier, judged)
            if not verdict:
                step += 1
                action = self.policy.next(_at(trace, step))
        return replace(action, step=step) if isinstance(action, Attempt) else action


def _at(trace: Trace, step: int) -> Trace:
    """The trace as if only one step had been tried. A probe is of the first; later it counts as made, not as tried."""
    lines = [line for line in trace.lines if line.step == step]
    if step > 0:
        lines += [replace(line, attempt=0) for line in trace.lines if line.kind == "probe"]
    return replace(trace, lines=tuple(lines))
