"""Kept units into the text that is sent, never above the budget, each piece with its place in the document."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlay.context import Span, Unit

if TYPE_CHECKING:
    import numpy as np

Count = Callable[[str], int]
"""Tokens of a text under the budget's tokenizer."""

_WORD = re.compile(r"\S+")
_GAP = "\n"  # what stands for the text left out between two kept pieces
_LONGEST_BREAK = 80
_LONGEST_WORD = 40  # a longer run without white space (Chinese, a URL) may be cut inside


@dataclass(frozen=True)
class Context:
    """The document's part that is sent.

    text: document[start:end] of the spans, joined by line breaks;
    tokens: of the text, measured; kept, dropped: unit indices in document order; cut: a kept unit of which only
    the beginning is sent.
    """

    text: str
    spans: tuple[Span, ...]
    tokens: int
    kept: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    cut: int | None = None


def unit_costs(
    document: str, units: Sequence[Unit], count_many: Callable[[list[str]], list[int]]
) -> "np.ndarray":
    """(n,) int64 tokens of each unit as it would stand in the context, with the break before it; at least 1.

    The break stands before, not after: byte-pair tokenizers read a blank line at the end of a text as one
    token and before a word as two. It is the document's own where it holds a line break (so much is sent if
    the unit before is kept too), else one line break (sent if it is not): with such tokenizers the costs add
    up to the whole text's tokens or slightly more.
    """
    import numpy as np

    texts = []
    for unit in units:
        before = document[max(0, unit.start - _LONGEST_BREAK) : unit.start]
        own = before[len(before.rstrip()) :]
        texts.append((own if "\n" in own or "\r" in own else _GAP) + _joined(document, unit.spans)[0])
    return np.maximum(np.asarray(count_many(texts) if texts else [], dtype=np.int64), 1)


def assemble(
    document: str,
    units: Sequence[Unit],
    indices: Iterable[int],
    budget: int,
    count: Count,
    order: Sequence[int] | None = None,
    truncate: bool = False,
    spare: Sequence[int] = (),
) -> Context:
    """The units' text in document order, at most `budget` tokens as measured on the whole text.

    Overlapping spans are merged and adjacent ones rejoined exactly as they stood. Costs of single units do
    not add up to the cost of their text under every tokenizer: while the text is above the budget, the unit picked
    last is dropped.

    Args:
        indices: the units kept by a selector.
        order: the same in the order of picking; without it, the last in the document goes first.
        truncate: the first unit that does not fit is sent up to its last whole word that does.
        spare: units that the selector left out for want of room, best first: under `truncate` the first is cut to fill.
    """
    picked = list(dict.fromkeys(order if order is not None else sorted(indices)))

    def measured(kept: Sequence[int], extra: Iterable[Span] = ()) -> tuple[str, tuple[Span, ...], int]:
        text, spans = _joined(document, [*(span for unit in kept for span in units[unit].spans), *extra])
        return text, spans, count(text) if text else 0

    best = measured(picked)
    fits, over, step = len(picked), len(picked), 1
    if best[2] > budget:
        best, fits = measured(()), 0
        while over - fits > 1:  # back from the end in growing steps, then halve
            middle = max(fits + 1, over - step)
            trial = measured(picked[:middle])
            if trial[2] <= budget:
                best, fits = trial, middle
                step = max(1, (over - fits) // 2)
            else:
                over, step = middle, step * 2
    kept, cut = picked[:fits], None
    rest = [*picked[fits:], *(unit for unit in spare if unit not in picked)]
    if truncate and rest:
        part = _cut(document, units[rest[0]], lambda spans: measured(kept, spans), budget)
        if part is not None and part[1] != best[1]:
            whole = measured([*kept, rest[0]])[1]
            best, cut = part, rest[0] if part[1] != whole else None
            kept = [*kept, rest[0]]
    text, spans, tokens = best
    dropped = tuple(sorted(set(picked) - set(kept)))
    return Context(text, spans, tokens, tuple(sorted(kept)), dropped, cut)


def _cut(
    document: str,
    unit: Unit,
    measured: Callable[[list[Span]], tuple[str, tuple[Span, ...], int]],
    budget: int,
) -> tuple[str, tuple[Span, ...], int] | None:
    """The longest beginning of the unit, in whole words, with which the context fits; None where no word does."""
    ends: list[tuple[int, int]] = []  # (span, end of a beginning in it)
    for at, (start, end) in enumerate(unit.spans):
        for word in _WORD.finditer(document, start, end):
            inner = range(word.start() + 1, word.end()) if word.end() - word.start() > _LONGEST_WORD else ()
            ends += [(at, place) for place in inner if not unicodedata.combining(document[place])]
            ends.append((at, word.end()))
    best, low, high = None, 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        at, end = ends[middle]
        trial = measured([*unit.spans[:at], (unit.spans[at][0], end)])
        if trial[2] <= budget:
            best, low = trial, middle + 1
        else:
            high = middle
    return best


def _joined(document: str, spans: Iterable[Span]) -> tuple[str, tuple[Span, ...]]:
    """The text of spans in any order, and the tight spans that make it up."""
    tight: list[Span] = []
    for start, end in merged_spans(spans):
        piece = document[start:end]
        end -= len(piece) - len(piece.rstrip())
        start += len(piece) - len(piece.lstrip())
        if start < end:
            tight.append((start, end))
    return _GAP.join(document[start:end] for start, end in tight), tuple(tight)


def merged_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in document order; those that overlap or touch are one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
