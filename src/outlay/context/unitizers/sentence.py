"""Sentences that clinical abbreviations, doses, lists, tables and headers do not break."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

from outlay.context import Embed, Unit
from outlay.context.headers import BLANK, HEADER, ITEM, ROW, TEXT, Line, lines, word_set


class Sentence(NamedTuple):
    """A sentence [start, end) of the tiling. `level`: of the section header that it carries, 0 where it carries none."""

    start: int
    end: int
    level: int = 0


@dataclass(frozen=True)
class Sentences:
    """One unit per sentence, list item or table row.

    A header line stays with what follows it: alone it tells nothing, yet a cost-benefit greedy would
    buy it first, being short and near every query. The units of a section name the one that carries
    its header; a nested header's unit names the unit of the section around it.
    """

    name: ClassVar[str] = "sentence"

    def split(self, document: str, embed: Embed | None = None) -> list[Unit]:
        found = sentences(document)
        holders = header_units([sentence.level for sentence in found])
        return [Unit(((s.start, s.end),), holder) for s, holder in zip(found, holders, strict=True)]


def header_units(levels: list[int]) -> list[int | None]:
    """For each unit the index of the unit with its section's header; `levels` are 0 for units without one."""
    holders: list[int | None] = []
    open_sections: list[tuple[int, int]] = []  # (level, index), outermost first
    for index, level in enumerate(levels):
        if level:
            while open_sections and open_sections[-1][0] >= level:
                open_sections.pop()
        holders.append(open_sections[-1][1] if open_sections else None)
        if level:
            open_sections.append((level, index))
    return holders


def sentences(document: str) -> list[Sentence]:
    """The document's sentences in order; together they tile it, white space going to the sentence before.

    Line structure first: headers, list items, table rows and paragraphs, whose hard-wrapped lines are
    joined. Then nupunkt inside each, corrected by the tables below. Ours.
    """
    starts: list[int] = []
    levels: list[int] = []
    carried = 0  # level of the bare headers that wait for their first sentence
    for block in _blocks(document):
        first = block.start
        if carried:
            levels[-1] = min(levels[-1], carried, *([block.level] if block.level else []))
        else:
            starts.append(first)
            levels.append(block.level)
        carried = levels[-1] if block.bare else 0
        if block.kind in (TEXT, ITEM, HEADER) and not block.bare:
            more = _inner_starts(document, block.body, block.end)
            starts += more
            levels += [0] * len(more)
    if not starts:
        return []
    starts[0] = 0
    return [Sentence(*each) for each in zip(starts, [*starts[1:], len(document)], levels, strict=True)]


def _blocks(document: str) -> list[Line]:
    """Lines merged into blocks that tile the document: a header, an item, a row or a paragraph each."""
    found = lines(document)
    width = _wrap_width(document, found)
    blocks: list[Line] = []
    before, broken = "", True  # the line before; whether a blank line stands between
    for line in found:
        if line.kind == BLANK:
            broken = True
            continue
        text = document[line.start : line.end].strip()
        joins = not broken and line.kind == TEXT and not (blocks[-1].bare or blocks[-1].kind == ROW)
        if not joins or not _continues(before, text, width):
            indent = len(document[line.start : line.end]) - len(document[line.start : line.end].lstrip())
            blocks.append(line._replace(start=line.start + indent))
        before, broken = text, False
    if not blocks:
        return [Line(0, len(document), TEXT, 0)] if document else []
    ends = [block.start for block in blocks[1:]] + [len(document)]
    return [block._replace(end=end) for block, end in zip(blocks, ends, strict=True)]


_NARROW, _WIDE = 40, 140  # line widths between which a document may be hard-wrapped


def _wrap_width(document: str, found: list[Line]) -> int:
    """The width that the document's lines were wrapped to, or 0 where a line break ends a paragraph."""
    lengths = sorted(len(document[line.start : line.end].rstrip()) for line in found if line.kind != BLANK)
    width = lengths[int(0.9 * len(lengths))] if lengths else 0
    return width if _NARROW <= width <= _WIDE else 0


def _continues(before: str, text: str, width: int) -> bool:
    """Whether a line goes on with the line before: it starts small, or its first word did not fit there."""
    if text[0].islower() or text[0] in ",;)%/&" or before[-1] in ",(/&":
        return True
    return bool(width) and len(before) + 1 + len(text.split(maxsplit=1)[0]) > width


# Abbreviations that never end a sentence ("no." only before a number).
_BOUND = word_set(
    """
    dr drs mr mrs ms prof pt pts st vs e.g i.e eg ie viz cf fig figs no nos
    """
)
_TITLES = word_set("dr drs mr mrs ms prof pt pts st vs no")  # bound in capitals too; "CF." may end a sentence
# Abbreviations that end one only before a capital that does not start a dosing word.
_LOOSE = word_set(
    """
    abd abx ac amt ant approx appt bid bilat ca cap caps cc cm cont dept diff dist dx ed equiv esp est et al
    etc ext ft fx gm gms gtt hosp hr hrs ht hx inc incl inf inj int iv kg km lat lb lbs lt mcg meds meq mg min
    mins mm mo mos neg neuro oz po post prep prn prob prox psych qd qid reg resp rt rx sat sec segs subq
    subcut supp surg sx sys tab tabs tbsp temp tid tsp tx vol wk wks wt yo yr yrs
    """
)
_DOSING = re.compile(
    r"(?:bid|tid|qid|qd|qod|qhs|qam|qpm|q\d+\s?-?\d*h|prn|daily|po|iv|im|sc|sq|sl|pr|disp|dispense|refills?|sig)\b"
    r"|(?:[a-z]\.){2,}",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"(?<![\w.])(?:[^\W\d_]\.)+[)\]]?\Z")  # "C.", "b.i.d."
_LAST_WORD = re.compile(r"([\w.'’-]+)\.\Z")
# Ends that look like an abbreviation's, but a capitalised word goes on: times and doses, acronyms, a letter that is a name.
_MISSED = re.compile(
    r"(?:\b(?:a\.m|p\.m|b\.i\.d|t\.i\.d|q\.i\.d|q\.d|q\.h\.s|q\.o\.d|h\.s|p\.r\.n|p\.o)"
    r"|\b[A-Z]{2,}|\d\s?(?:cm|hrs?|kg|mg|min|ml|mm|mos?|sec|wks?|yrs?)"
    r"|\b(?:vitamin|hepatitis|influenza|type|group|grade|class)\s[A-E])\.\)?\s+(?=[A-Z][a-z]|[AI]\s)"
    r"|\bDr\.\s[A-Z]\.\s+(?=(?:He|She|They|We|I|The|This|Patient|In|On|At)\b)"
)
_ENUMERATOR = re.compile(r"(?:\A|([:,])\s+|[.?!;)]\s+)(\(?\d{1,2}[.)]\s*|\(?[a-z]\)\s*)\Z")
_SHORT_WORDS = word_set("an as at be by do go he if in is it me my of on or so to up us we")
_STOP = re.compile(r"""[.?!…]["'”’)\]]*\s|[。！？]""")
_WIDE_STOP = re.compile(r"[。！？]+[」』”）]*(?=.)", re.DOTALL)
_CONTEXT = 24  # characters before a boundary that decide about it


def _inner_starts(document: str, start: int, end: int) -> list[int]:
    """Starts of the sentences after the first in document[start:end]."""
    text = document[start:end]
    if not _STOP.search(text):
        return []
    flat = text.replace("\n", " ").replace("\r", " ")
    ends = [stop for _, (_, stop) in _splitter().tokenize_with_spans(flat)]
    ends += [match.end() for pattern in (_WIDE_STOP, _MISSED) for match in pattern.finditer(flat)]
    starts = set()
    for at in ends:
        while at < len(flat) and flat[at].isspace():
            at += 1
        if at < len(flat) and (mark := _ENUMERATOR.search(flat, max(0, at - _CONTEXT), at)):
            if mark[1]:  # "positive for: 1. | Diabetes": none
                continue
            at = mark.start(2)  # "…daily. 2. | Aspirin": before the mark
        if 0 < at < len(flat) and not _vetoed(
            flat[max(0, at - _CONTEXT) : at].rstrip(), flat[at : at + _CONTEXT]
        ):
            starts.add(at)
    return [start + at for at in sorted(starts)]


def _vetoed(before: str, after: str) -> bool:
    """Whether the full stop that ends `before` belongs to an abbreviation, so that `after` is the same sentence."""
    if before.endswith(" ?"):
        return after[0].islower()  # "stones, ? cholecystitis"
    if not before.endswith((".", ".)", ".]")):
        return False
    word = _LAST_WORD.search(before)
    written = word[1] if word else ""
    name = written.lower()
    if name in _BOUND and (name in _TITLES or not written.isupper()):
        return not name.startswith("no") or after[0].isdigit()
    if name in _LOOSE or _LETTERS.search(before):
        return not after[0].isupper() or bool(_DOSING.match(after))
    return False


@cache
def _splitter() -> Any:
    """nupunkt (MIT, no dependencies, fast, contiguous spans) without the words that its model takes for abbreviations.

    Its model, learnt from scanned legal text, holds "cancer", "effusion", "hand": a sentence that ends in
    one would run on. What looks like an abbreviation stays: inner dots, no vowel, or in the tables above.
    """
    from nupunkt import load_default_model

    splitter = load_default_model()
    for word in [word for word in splitter.abbreviations if _is_word(word)]:
        splitter.remove_abbreviation(word)
    return splitter


def _is_word(name: str) -> bool:
    if "." in name or name in _BOUND | _LOOSE:
        return False
    return name in _SHORT_WORDS or (len(name) > 2 and bool(set(name) & set("aeiouy")))
