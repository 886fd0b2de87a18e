"""What a router sees of a query: the attempts that it asked for, and a tier's retry on that tier's alone."""

from dataclasses import replace
from typing import Any

from outlay.agent import Action, Stop
from outlay.agent.ledger import Line, Trace


def tried(trace: Trace) -> list[Line]:
    """Attempts that a policy asked for, in order: a probe's samples are not its choice, reused or not."""
    return [line for line in trace.attempts if line.kind == "attempt"]


def on_tier(retry: Any, trace: Trace, tier: str) -> Action:
    """The retry's next action on a tier. Where it gives up without an answer, the vote of all tiers stands."""
    action: Action = retry.next(trace.of_tier(tier), tier)
    if isinstance(action, Stop) and action.answer is None:
        return replace(action, answer=trace.vote())
    return action
