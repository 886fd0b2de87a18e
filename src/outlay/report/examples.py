"""examples.html: a run's first examples as a person reads them, in one file that needs no network.

The document with its kept parts marked, the question, each sentence of the reply linked to the kept sentence that
supports it best, the references, the metrics, and what each call cost.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from outlay.agent.ledger import Line
from outlay.data import Example, Span
from outlay.score.provenance import Link

LIMIT = 12
"""Examples a page shows: what a person reads, not what a run holds."""
WEAK = 0.3
"""Cosine below which a link is drawn dashed. Ours."""


@dataclass(frozen=True)
class Shown:
    """One example of a run, as the page needs it. `reply` is the text that the final answer was read from."""

    example: Example
    reply: str
    spans: Sequence[Span]  # kept parts of the document, disjoint and in order
    context_tokens: int
    lines: Sequence[Line]  # of the ledger
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    answer: str | None = None  # parsed; None where the reply itself is the answer
    correct: bool | None = None
    links: Sequence[Link] = ()


@dataclass(frozen=True)
class Piece:
    """A stretch of the document or of the reply. source: number of the source sentence it is, or leads to; -1: none."""

    text: str
    kept: bool = True
    source: int = -1
    score: float = math.nan


def write_examples(path: Path, title: str, settings: Mapping[str, Any], shown: Sequence[Shown]) -> Path:
    """Write the page of a run.

    Args:
        settings: what the run was, in the order to show.
        shown: its first examples, at most LIMIT of which are used.
    """
    path.write_text(examples_page(title, settings, shown[:LIMIT]), encoding="utf-8", errors="replace")
    return path


def examples_page(title: str, settings: Mapping[str, Any], shown: Sequence[Shown]) -> str:
    """The page as text; every value is escaped."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = _number
    template = environment.from_string(
        Path(__file__).with_name("examples.html.jinja").read_text(encoding="utf-8")
    )
    examples = [
        {
            "shown": one,
            "document": document_pieces(one.example.document, one.spans, one.links),
            "reply": reply_pieces(one.reply, one.links),
            "attempts": [line for line in one.lines if line.kind != "verify"],
            "tokens": sum(line.tokens for line in one.lines),
            "usd": sum(line.usd for line in one.lines),
            "kept": sum(end - start for start, end in one.spans) / max(1, len(one.example.document)),
        }
        for one in shown
    ]
    return template.render(title=title, settings=settings, examples=examples, weak=WEAK)


def document_pieces(document: str, spans: Sequence[Span], links: Sequence[Link]) -> list[Piece]:
    """The document in order, cut at the ends of kept spans and of source sentences; the pieces' texts make it up."""
    number = _sources(links)
    edges = {
        0,
        len(document),
        *(edge for span in spans for edge in span),
        *(edge for span in number for edge in span),
    }
    pieces = []
    places = sorted(edge for edge in edges if 0 <= edge <= len(document))
    for start, end in pairwise(places):
        kept = any(first <= start and end <= last for first, last in spans)
        source = next((at for (first, last), at in number.items() if first <= start and end <= last), -1)
        pieces.append(Piece(document[start:end], kept, source))
    return pieces


def reply_pieces(reply: str, links: Sequence[Link]) -> list[Piece]:
    """The reply in order: linked sentences, and what lies between."""
    number, pieces, done = _sources(links), [], 0
    for one in sorted(links, key=lambda link: link.start):
        if one.start > done:
            pieces.append(Piece(reply[done : one.start]))
        pieces.append(
            Piece(reply[one.start : one.end], True, number[one.source_start, one.source_end], one.score)
        )
        done = one.end
    if done < len(reply):
        pieces.append(Piece(reply[done:]))
    return pieces


def _sources(links: Sequence[Link]) -> dict[Span, int]:
    """Each source sentence's number on the page, in document order."""
    return {span: at for at, span in enumerate(sorted({(one.source_start, one.source_end) for one in links}))}


def _number(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) and abs(value) >= 10 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
