"""Checks of an attempt. Each says whether it reads gold, so that its lines, and every table, are marked.

A check returns its confidence; the threshold that makes it a verdict is its own (ours), or `retry.threshold`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import TYPE_CHECKING

from outlay.agent.executor import Asked, Verifier
from outlay.agent.ledger import Line, Trace
from outlay.errors import GenerationError
from outlay.generate import Prompt

if TYPE_CHECKING:
    from outlay.agent.scorer import Embed, Scorer

VERIFIERS = ("agreement", "parse", "self_verify", "logprob", "scorer", "judge")
"""What retry.stop=verifier may go by; none of them reads gold."""
ASKED = ("self_verify", "judge")
"""Those that cost a call."""
REFLECT_TOKENS = 96  # the most that a reflection may have; ours

CORRECT = (
    "Task:\n{task}\n\nProposed answer:\n{reply}\n\n"
    "Is the proposed answer correct? Reply with one word, Yes or No."
)
"""Ours; AutoMix asks the same with worked examples."""
WRITE = (
    "This try failed. In one or two sentences, say what probably went wrong and what to do differently. "
    "Do not solve the task yet."
)
"""Ours, after Reflexion (Shinn et al. 2023)."""

Ask = Callable[[Line], Prompt]
"""An attempt -> the prompt that a fresh try would have, on the context that the attempt had."""


def grounded(contexts: Mapping[str, Sequence[str]], threshold: float) -> Verifier:
    """Whether at least `threshold` of the reply's content words stand in the context that was sent (ours).

    contexts: by example id, one for each step. A reply without content words is not grounded.
    """

    def check(_: Trace, line: Line) -> float:
        words = content_words(line.text)
        context = content_words(contexts[line.example_id][line.step])
        return len(words & context) / len(words) if words else -1.0

    return Verifier(check, oracle=False, threshold=threshold)


def agreement() -> Verifier:
    """The share of the query's samples so far, probe and attempts, that gave the attempt's answer."""

    def check(trace: Trace, line: Line) -> float:
        answers = [one.answer for one in samples(trace)]
        return answers.count(line.answer) / len(answers) if line.answer is not None else 0.0

    return Verifier(check, oracle=False, threshold=0.6)


def parsed() -> Verifier:
    """Whether an answer could be read."""
    return Verifier(lambda _, line: float(line.answer is not None), oracle=False)


def logprob() -> Verifier:
    """The geometric mean of the chances of the reply's tokens. Its scale is the model's own: set retry.threshold by it.

    Raises (when it checks):
        GenerationError: the engine gives no log-probabilities.
    """

    def check(_: Trace, line: Line) -> float:
        if line.logprob is None and not line.error:
            raise GenerationError(
                f"retry.verifier=logprob: tier {line.tier} gives no log-probabilities, or its reply was stored before they "
                "were kept (then set OUTLAY_CACHE_DIR to an empty folder). Else use retry.verifier=agreement"
            )
        return exp(line.logprob) if line.logprob is not None and line.answer is not None else 0.0

    return Verifier(check, oracle=False, threshold=0.6)


def scorer(fitted: "Scorer", embed: "Embed", threshold: float | None = None) -> Verifier:
    """What a scorer fitted on the train split makes of it; see `agent.scorer`."""

    def check(trace: Trace, line: Line) -> float:
        return fitted.confidence(trace, line, embed) if line.answer is not None else 0.0

    return Verifier(check, oracle=False, threshold=0.5 if threshold is None else threshold)


def self_verify(ask: Ask, replies: int = 1) -> Asked:
    """The tier that answered is asked whether it was right: the share of yes among its replies (AutoMix)."""
    return judge(ask, None, replies)


def judge(ask: Ask, tier: str | None, replies: int = 1) -> Asked:
    """Another tier is asked whether the attempt is right."""

    def prompt(_: Trace, line: Line) -> Prompt:
        task = ask(line)
        user = CORRECT.format(task=task.messages[-1][1], reply=f"{task.prefill}{line.text}".strip())
        return Prompt((("user", user),), example_id=task.example_id, shows="verify")

    # At temperature 0 all replies are one.
    return Asked(prompt, _yes, tier=tier, k=replies, temperature=0.0 if replies == 1 else 0.7)


def reflect(ask: Ask) -> Asked:
    """Not a check: the model writes about its failed attempt, and the next attempt is shown it. It has no verdict."""

    def prompt(_: Trace, line: Line) -> Prompt:
        task = ask(line)
        said = ("assistant", f"{task.prefill}{line.text}")
        return Prompt((*task.messages, said, ("user", WRITE)), example_id=task.example_id, shows="verify")

    return Asked(prompt, lambda _: None, max_new_tokens=REFLECT_TOKENS)


def _yes(reply: str) -> float | None:
    said = re.search(r"\b(yes|no)\b", reply, re.IGNORECASE)
    return float(said.group().lower() == "yes") if said else None


def samples(trace: Trace) -> list[Line]:
    """All that was sampled of a query: its probe and its attempts, failed calls included."""
    return [line for line in trace.lines if line.kind != "verify" and line.finish_reason != "retried"]


def content_words(text: str) -> set[str]:
    """Numbers, and words of four letters or more, in lower case."""
    return set(re.findall(r"\d+(?:\.\d+)?|[^\W\d_]{4,}", text.lower()))
