"""Which kept sentence supports each sentence of a generated text best. Ours: similarity is no proof of entailment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlay.context.assemble import merged_spans
from outlay.data import Span

if TYPE_CHECKING:
    import numpy as np

Embed = Callable[[Sequence[str], Sequence[str]], "tuple[np.ndarray, np.ndarray]"]
"""Units (n texts) and queries (q) to rows of length 1, (n, d) and (q, d): an embedder's `embed`."""


@dataclass(frozen=True, slots=True)
class Link:
    """Characters [start, end) of the text are best supported by [source_start, source_end) of the document.

    score: cosine of the two sentences' vectors, in (0, 1].
    """

    start: int
    end: int
    source_start: int
    source_end: int
    score: float


def link(text: str, document: str, spans: Sequence[Span], embed: Embed) -> list[Link]:
    """Each sentence of the text with the sentence of the document's kept spans that is most similar to it.

    A sentence that has nothing in common with any kept one has no link. Ties go to the earlier source.

    Args:
        text: the reply; document: what was selected from; spans: its kept parts, in any order.
        embed: the run's own embedder's, so that the links cost no second model.
    """
    said = sentence_spans(text)
    sources = [
        (start + first, start + last)
        for start, end in merged_spans(spans)
        for first, last in sentence_spans(document[start:end])
    ]
    if not said or not sources:
        return []
    rows, asked = embed(
        [document[start:end] for start, end in sources], [text[start:end] for start, end in said]
    )
    cosines = asked @ rows.T
    links = []
    for (start, end), likeness in zip(said, cosines, strict=True):
        best = int(likeness.argmax())
        if likeness[best] > 0:
            links.append(Link(start, end, *sources[best], min(1.0, float(likeness[best]))))
    return links


def sentence_spans(text: str) -> list[Span]:
    """The sentences of a text without the white space around them, as cut by unitizer=sentence."""
    from outlay.context.unitizers.sentence import sentences

    found = []
    for sentence in sentences(text):
        piece = text[sentence.start : sentence.end]
        start = sentence.start + len(piece) - len(piece.lstrip())
        end = start + len(piece.strip())
        if start < end:
            found.append((start, end))
    return found
