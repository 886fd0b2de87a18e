"""What a tier's retry may see of a query: that tier's attempts, under their own numbers."""

from dataclasses import replace
from typing import Any

from outlay.agent import Action, Stop
from outlay.agent.ledger import Line, Trace


def of_tier(trace: Trace, tier: str) -> Trace:
    """The trace as if only one tier had been tried.

    Attempts keep their numbers in the whole trace, so that a `Verify` of one means the same there. A probe on another
    tier counts as made, not as tried.
    """
    kept = {line.attempt for line in trace.attempts if line.tier == tier}
    lines = [
        replace(line, attempt=0) if line.kind == "probe" and line.attempt not in kept else line
        for line in trace.lines
        if line.kind == "probe"
        or (line.attempt in kept if line.kind == "verify" or line.attempt else line.tier == tier)
    ]
    return replace(trace, lines=tuple(lines))


def tried(trace: Trace) -> list[Line]:
    """Attempts that a policy asked for, in order: a probe's samples are not its choice, reused or not."""
    return [line for line in trace.attempts if line.kind == "attempt"]


def on_tier(retry: Any, trace: Trace, tier: str) -> Action:
    """The retry's next action on a tier. Where it gives up without an answer, the vote of all tiers stands."""
    action: Action = retry.next(of_tier(trace, tier), tier)
    if isinstance(action, Stop) and action.answer is None:
        return replace(action, answer=trace.vote())
    return action
