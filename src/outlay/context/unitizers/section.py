"""Sections of clinical notes, structured abstracts and Markdown: a header stays with its body."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.context import Embed, Unit
from outlay.context.unitizers.sentence import Sentence, header_units, sentences
from outlay.schema import option

_INNERMOST = 99  # a level below every header's


@dataclass(frozen=True)
class Sections:
    """One unit per section; the text before the first header is one too, as is a document without headers.

    A section longer than `max_chars` is cut at the ends of sentences (a longer sentence stays whole).
    A piece names the section's first piece as its header, a nested section the section around it.
    """

    name: ClassVar[str] = "section"
    max_chars: int = option(2000, least=1)  # about 500 tokens; ours

    def split(self, document: str, embed: Embed | None = None) -> list[Unit]:
        pieces: list[Sentence] = []
        for sentence in sentences(document):
            if sentence.level or not pieces or sentence.end - pieces[-1].start > self.max_chars:
                pieces.append(sentence)
            else:
                pieces[-1] = pieces[-1]._replace(end=sentence.end)
        # The text before the first header is a section too: its later pieces name its first one.
        levels = [piece.level if index else piece.level or _INNERMOST for index, piece in enumerate(pieces)]
        return [
            Unit(((piece.start, piece.end),), holder)
            for piece, holder in zip(pieces, header_units(levels), strict=True)
        ]
