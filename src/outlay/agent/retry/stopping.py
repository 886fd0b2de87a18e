"""When tries end: the stop rules, and how the next try is asked. Every retry is made of these."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from outlay.agent import Attempt, Stop, Verify
from outlay.agent.ledger import Line, Trace
from outlay.agent.verifiers import ASKED, VERIFIERS, samples
from outlay.schema import option

CONTEXTS = ("fresh", "carry", "reflect")


@dataclass(frozen=True)
class Stopping:
    """The options of a stop rule.

    stop: gold (an oracle: what the paper measured), vote (the majority can no longer change), verifier, parse (an answer
    could be read), none (all attempts are made).
    """

    stop: str = option("vote", choices=("gold", "vote", "verifier", "parse", "none"))
    verifier: str = option("agreement", choices=VERIFIERS)  # of stop=verifier
    threshold: float | None = option(None, least=0, most=1)  # the least confidence; None: the verifier's own
    verifier_samples: int = option(3, least=1)  # agreement: the least compared; self_verify, judge: replies
    judge: str | None = None  # the tier of verifier=judge; None: the generator's last

    @property
    def asks(self) -> str | None:
        """The verifier that it stops by, if any."""
        return {"gold": "gold", "verifier": self.verifier}.get(self.stop)

    def ended(self, trace: Trace, left: int) -> Verify | Stop | None:
        """What ends a query with `left` attempts to go, or what must be asked before; None: try again."""
        return RULES[self.stop](self, trace, max(0, left))  # a reused probe may be of more

    def exploring(self) -> Self:
        """The same without a stop: what a verifier learns from."""
        return replace(self, stop="none")


def again(trace: Trace, tier: str, temperature: float, context: str, n: int = 1) -> Attempt | Verify:
    """The next try; under `reflect`, first what is written about the last one."""
    attempts = trace.attempts
    if not attempts:
        return Attempt(tier, temperature, n=n)
    if context == "reflect" and not trace.checked(attempts[-1].attempt, "reflect"):
        return Verify("reflect", attempts[-1].attempt)
    return Attempt(tier, temperature, context, n)


def tops(trace: Trace) -> tuple[int, int]:
    """How many attempts gave the most frequent answer, and the next; answers that could not be read do not count."""
    counts = Counter(line.answer for line in trace.attempts if line.answer is not None)
    first, second = ([count for _, count in counts.most_common(2)] + [0, 0])[:2]
    return first, second


def decided(trace: Trace, left: int) -> bool:
    """Whether no answer could still reach the leader; so the vote is that of all attempts, for fewer."""
    first, second = tops(trace)
    return first > second + left


def _gold(rule: Stopping, trace: Trace, left: int) -> Verify | Stop | None:
    return _accepted(trace, trace.attempts, "gold") or _given_up(left, trace.last_answer())


def _verifier(rule: Stopping, trace: Trace, left: int) -> Verify | Stop | None:
    judged = trace.attempts
    if rule.verifier in ASKED:  # an answer that could not be read is not worth a call
        judged = [line for line in judged if line.answer is not None]
    if rule.verifier == "agreement" and len(samples(trace)) < rule.verifier_samples:
        judged = []  # one sample always agrees with itself
    best = max(judged, key=lambda line: trace.confidence(line.attempt, rule.verifier) or 0.0, default=None)
    return _accepted(trace, judged, rule.verifier) or _given_up(left, best.answer if best else None)


def _vote(rule: Stopping, trace: Trace, left: int) -> Stop | None:
    return Stop(trace.vote(), solved=True) if decided(trace, left) else _given_up(left, trace.vote())


def _parse(rule: Stopping, trace: Trace, left: int) -> Stop | None:
    for line in trace.attempts:
        if line.answer is not None:
            return Stop(line.answer, solved=True)
    return _given_up(left, None)


def _none(rule: Stopping, trace: Trace, left: int) -> Stop | None:
    answer = trace.last_answer()
    return Stop(answer, solved=answer is not None) if left == 0 else None


RULES: dict[str, Callable[[Stopping, Trace, int], Verify | Stop | None]] = {
    "gold": _gold,
    "vote": _vote,
    "verifier": _verifier,
    "parse": _parse,
    "none": _none,
}


def _accepted(trace: Trace, attempts: list[Line], verifier: str) -> Verify | Stop | None:
    """The first attempt that the verifier accepts; a probe's samples, or several of one request, are taken in order."""
    for line in attempts:
        if not trace.checked(line.attempt, verifier):
            return Verify(verifier, line.attempt)
        if trace.verdict(line.attempt, verifier):
            return Stop(line.answer, solved=True)
    return None


def _given_up(left: int, answer: str | None) -> Stop | None:
    return Stop(answer, solved=False) if left == 0 else None
