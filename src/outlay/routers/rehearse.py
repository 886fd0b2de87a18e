"""A policy played against recorded samples: what it would have answered and paid, without a call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from outlay.agent import Action, Attempt, Probe, Stop, Verify
from outlay.agent.ledger import Line, Trace
from outlay.agent.verifiers import agreement, logprob, parsed
from outlay.generate import Price
from outlay.routers import Setting, costs
from outlay.routers.explore import samples_of
from outlay.routers.view import on_tier

FREE = {"agreement": agreement(), "parse": parsed(), "logprob": logprob()}
"""Checks that need neither gold nor a call, made anew."""


@dataclass(frozen=True)
class Rehearsed:
    """quality: the score of the answer it stopped with. cost: of all lines, a probe's included."""

    quality: float
    cost: float
    bills: tuple[
        tuple[str, float], ...
    ]  # (tier, cost) of each attempt in order, a reused probe's samples among them

    @property
    def attempts(self) -> int:
        return len(self.bills)

    def on(self, tier: str) -> list[float]:
        """The attempts' costs on one tier."""
        return [cost for where, cost in self.bills if where == tier]

    def inflation(self, tier: str) -> float:
        """A tier's attempts over its first; 1 where none was billed."""
        paid = self.on(tier)
        return sum(paid) / paid[0] if paid and paid[0] else 1.0


def rehearse(
    decide: Callable[[Trace], Action],
    explored: Trace,
    prices: Mapping[str, Price],
    kind: str,
    threshold: float | None = None,
) -> Rehearsed:
    """Play one explored, scored query. The policy sees no score; its gold verifier reads them, as live.

    A request bills the prompt once, as live. Where the recorded samples of a tier run out, or a check was not recorded,
    the query ends with the vote so far. Prompts are the recorded ones: a longer, carried context is not priced.
    threshold: of the retry's verifier, where it has its own.
    """
    left = {line.tier: samples_of(explored, line.tier) for line in explored.attempts}
    prompts = {tier: max(line.prompt_tokens for line in lines) for tier, lines in left.items() if lines}
    recorded: dict[int, Line] = {}  # number of a played attempt -> the line it was
    trace, spent, bills = Trace(explored.query), 0.0, list[tuple[str, float]]()
    while True:
        action = decide(trace)
        if isinstance(action, Probe):
            lines = [_blind(line) for line in explored.probes]
            reused = [line for line in explored.probes if line.attempt]
            recorded |= {line.attempt: line for line in reused}
            bills += [(line.tier, costs.of_line(line, kind)) for line in reused]
            spent += sum(costs.of_line(line, kind) for line in lines)
        elif isinstance(action, Attempt):
            lines = []
            for k, line in enumerate(left.get(action.tier, [])[: action.n]):
                number = len(trace.attempts) + k + 1
                prompt = prompts[action.tier] if k == 0 else 0
                recorded[number] = line
                lines.append(
                    replace(_blind(line), attempt=number, prompt_tokens=prompt, context=action.context)
                )
                paid = costs.of_call(prices[action.tier], prompt, line.completion_tokens, kind)
                bills.append((action.tier, paid))
                spent += paid
            left[action.tier] = left.get(action.tier, [])[action.n :]
        elif (
            isinstance(action, Verify)
            and action.attempt in recorded
            and not trace.checked(action.attempt, action.kind)
        ):
            lines = _checks(action, recorded[action.attempt], explored, trace, threshold)
            spent += sum(costs.of_line(line, kind) for line in lines)
        else:
            lines = []
        if isinstance(action, Stop) or not lines:
            answer = action.answer if isinstance(action, Stop) else trace.vote()
            return Rehearsed(
                quality=_quality(answer, trace, recorded),
                cost=spent,
                bills=tuple(bills),
            )
        trace = trace.plus(replace(line, line=len(trace.lines) + k) for k, line in enumerate(lines))


def rehearse_on(tier: str, setting: Setting, explored: Trace, kind: str, probed: bool = True) -> Rehearsed:
    """Play the run's retry on one tier, after its probe, as the routers run it: what is reused counts among the attempts."""
    first = setting.tiers[0].name

    def decide(trace: Trace) -> Action:
        probe = setting.probe.next(trace, first) if probed and explored.probes else None
        return probe or on_tier(setting.retry, trace, tier)

    prices = {one.name: one.price for one in setting.tiers}
    return rehearse(decide, explored, prices, kind, getattr(setting.retry, "threshold", None))


def _blind(line: Line) -> Line:
    return replace(line, score=None)


def _checks(
    action: Verify, attempt: Line, explored: Trace, trace: Trace, threshold: float | None
) -> list[Line]:
    if action.kind == "gold" or action.kind in FREE:
        if action.kind == "gold":
            confidence, least = attempt.score or 0.0, 0.5
        else:
            free = FREE[action.kind]
            confidence = free.check(trace, trace.attempts[action.attempt - 1])
            least = free.threshold if threshold is None else threshold
        line = Line(attempt.example_id, 0, "verify", attempt.tier, action.attempt, answer=attempt.answer)
        return [
            replace(
                line,
                verifier=action.kind,
                confidence=confidence,
                verdict=confidence >= least,
                oracle=action.kind == "gold",
            )
        ]
    return [
        replace(line, attempt=action.attempt)
        for line in explored.lines
        if line.kind == "verify" and line.verifier == action.kind and line.attempt == attempt.attempt
    ]


def _quality(answer: str | None, trace: Trace, recorded: Mapping[int, Line]) -> float:
    if answer is None:
        return 0.0
    given = [line.attempt for line in trace.attempts if line.answer == answer and line.attempt in recorded]
    return recorded[given[-1]].score or 0.0 if given else 0.0
