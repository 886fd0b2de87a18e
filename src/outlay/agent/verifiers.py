"""Checks of an attempt. Each says whether it reads gold, so that its lines, and every table, are marked."""

import re
from collections.abc import Mapping, Sequence

from outlay.agent.executor import Verifier
from outlay.agent.ledger import Line, Trace
from outlay.score.match import matches


def gold(references: Mapping[str, Sequence[str]], kind: str) -> Verifier:
    """Right or wrong by the answer key: an oracle. references: by example id; kind: see `score.match`."""
    return Verifier(
        lambda _, line: float(matches(line.answer, references[line.example_id], kind)), oracle=True
    )


def grounded(contexts: Mapping[str, Sequence[str]], threshold: float) -> Verifier:
    """Whether at least `threshold` of the reply's content words stand in the context that was sent (ours).

    contexts: by example id, one for each step. A reply without content words is not grounded.
    """

    def check(_: Trace, line: Line) -> float:
        words = content_words(line.text)
        context = content_words(contexts[line.example_id][line.step])
        return len(words & context) / len(words) if words else -1.0

    return Verifier(check, oracle=False, threshold=threshold)


def content_words(text: str) -> set[str]:
    """Numbers, and words of four letters or more, in lower case."""
    return set(re.findall(r"\d+(?:\.\d+)?|[^\W\d_]{4,}", text.lower()))
