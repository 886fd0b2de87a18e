"""Checks of an attempt. Each says whether it reads gold, so that its lines, and every table, are marked."""

import re
from collections.abc import Mapping, Sequence

from outlay.agent.executor import Verifier
from outlay.agent.ledger import Line
from outlay.score.match import matches


def gold(references: Mapping[str, Sequence[str]], kind: str) -> Verifier:
    """Right or wrong by the answer key: an oracle. references: by example id; kind: see `score.match`."""
    return Verifier(lambda line: matches(line.answer, references[line.example_id], kind), oracle=True)


def grounded(contexts: Mapping[str, Sequence[str]], threshold: float) -> Verifier:
    """Whether at least `threshold` of the reply's content words stand in the context that was sent (ours).

    contexts: by example id, one for each step. A reply without content words is not grounded.
    """

    def check(line: Line) -> bool:
        words = content_words(line.text)
        context = content_words(contexts[line.example_id][line.step])
        return bool(words) and len(words & context) >= threshold * len(words)

    return Verifier(check, oracle=False)


def content_words(text: str) -> set[str]:
    """Numbers, and words of four letters or more, in lower case."""
    return set(re.findall(r"\d+(?:\.\d+)?|[^\W\d_]{4,}", text.lower()))
