"""Lines of a document and what each is: clinical headers, labels of abstracts, Markdown headings, list items, table rows.

The rules are ours. They were set on ACI-Bench and MTS-Dialog notes, PubMedQA and Cochrane abstracts and the
layout of MIMIC-IV discharge notes.
"""

import re
from typing import NamedTuple


def word_set(text: str, separator: str | None = None) -> frozenset[str]:
    """The words of a table, or its phrases between separators."""
    return frozenset(" ".join(phrase.split()) for phrase in text.split(separator))


# Names that head a section even when text follows on the same line ("Allergies: penicillin").
_SECTIONS = word_set(
    """
    admission date; allergies; allergies and intolerances; assessment; assessment and plan; assessment/plan; a/p;
    attending; brief hospital course; cc; chief complaint; clinical history; condition on discharge; consultations;
    current medications; date of birth; diagnoses; diagnosis; diagnostic studies; discharge condition;
    discharge date; discharge diagnoses; discharge diagnosis; discharge disposition; discharge exam;
    discharge instructions; discharge labs; discharge medications; disposition; exam; facility; family history;
    family medical history; fh; findings; follow up; follow-up; follow-up instructions; followup instructions;
    general appearance; history; history of present illness; hospital course; hpi; imaging; immunizations; impression;
    impression and plan; indication; indications; instructions; interval history; lab results; laboratory data;
    laboratory results; labs; major surgical or invasive procedure; medical history; medications;
    medications on admission; medications on discharge; meds; objective; operations; past history;
    past medical history; past medical history/past surgical history; past surgical history; pertinent results;
    physical exam; physical examination; plan; pmh; pmhx; problem list; procedure; procedures; psh;
    reason for consultation; reason for visit; recommendations; results; review of systems; ros;
    secondary diagnoses; secondary diagnosis; service; sh; social history; studies; subjective; summary;
    surgical history; transitional issues; vital signs; vitals; vitals reviewed
    """,
    ";",
)

# A label of a structured abstract is built of these words ("PATIENTS AND METHODS:", "DESIGN, SETTING:").
_ABSTRACT_WORDS = word_set(
    """
    abstract aim aims analysis and approach background basic case cases clinical collection conclusion
    conclusions context criteria data definition description design discussion evidence experimental
    extraction finding findings for goal goals hypotheses hypothesis implications importance in interpretation
    intervention interventions introduction investigation key limitations main material materials measure
    measured measurement measurements measures method methodology methods object objective objectives
    observations of or outcome outcomes participants patients population practice presentation primary
    principal problem procedure procedures purpose purposes question rationale recommendations registration
    relevance report reports research result results review sample search secondary selection setting settings
    significance source sources statement strategy studied study subjects summary synthesis the to trial was
    """
)
_LINKS = word_set("and for in of or the to was")

_HASH = re.compile(r"(#{1,6})(?:[ \t]+(?=\S)|[.)]?[ \t]*(?=[^\W\d_]))")
_NAME_STOP = re.compile(r"(?<=[^\W_]{2})\.\s+(?=\S)")  # "# HIV. Continued home medications."
_LABEL = re.compile(r"([A-Za-z#][^:\n\t|]{1,60}?)[ \t]*:(?=\s|$)")
_INNER_LABEL = re.compile(r"(?<=[.?!;,)])[ \t]+(?=([A-Z][A-Z ,/&-]{2,50}):\s)")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_ITEM = re.compile(
    r"[ \t]*(?:[-–—*+•·‣▪◦●○■](?!\d)(?=\s|\w)|\(?\d{1,3}[.)](?!\d)(?=\s|[^\W\d])|\(?[a-z]\)|[a-h]\.(?=\s)|#\d+[.)]?(?=\s))"
    r"[ \t]*(?=\S)"
)
_STAMP = re.compile(
    r"[ \t]*(?:___|\d{1,4}[-/]\d{1,2}[-/]\d{1,4})?[ \t]*\d{1,2}:\d{2}[ \t]*(?:[AaPp]\.?[Mm]\b)?[ \t]*\S"
)
_CELL_GAP = re.compile(r"(?<=[^\s.?!:;,])(?: {2,}|[ \t]*\t[ \t]*| \| )(?=\S)")
_LONGEST_ROW = 200  # a longer line with wide gaps is justified prose

BLANK, TEXT, ITEM, ROW, HEADER = range(5)


class Line(NamedTuple):
    """A line [start, end) with its line break. `body`: where the text after a header's name or item's mark begins."""

    start: int
    end: int
    kind: int = TEXT
    body: int = 0
    level: int = 0  # of a header, 1 = outermost
    bare: bool = False  # a header with nothing after it on its line


def known_header(name: str) -> bool:
    """Whether the name heads a section of a clinical note, or labels a part of a structured abstract."""
    name = " ".join(name.lower().split())
    if name in _SECTIONS:
        return True
    words = _WORD.findall(name)
    return bool(words) and all(word in _ABSTRACT_WORDS for word in words) and words[0] not in _LINKS


def lines(document: str) -> list[Line]:
    """Every line of the document with its kind; together they tile it. A label inside a line starts a new one."""
    found: list[Line] = []
    shouting = _mostly_capitals(document)
    offset, alone = 0, True
    for physical in document.splitlines(keepends=True):
        cut = 0
        if ":" in physical:
            for match in _INNER_LABEL.finditer(physical):
                if known_header(match[1]):
                    found.append(_line(physical[cut : match.end()], offset + cut, alone and not shouting))
                    cut, alone = match.end(), False
        line = _line(physical[cut:] if cut else physical, offset + cut, alone and not shouting)
        found.append(line)
        alone = line.kind == BLANK
        offset += len(physical)
    return _ranked(document, found)


def _line(text: str, start: int, alone: bool) -> Line:
    """One line; `alone`: a line in capitals here is a header, as a blank line or the document's start is before it."""
    end, content = start + len(text), text.strip()
    if not content:
        return Line(start, end, BLANK, start)
    head = start + len(text) - len(text.lstrip())
    if content[0] == "#" and (mark := _HASH.match(content)):
        name = _LABEL.match(content) or _NAME_STOP.search(content, mark.end())
        body = head + (name.end() if name else len(content))
        return Line(start, end, HEADER, body, len(mark[1]), bare=body >= head + len(content))
    label = _LABEL.match(content)
    if label:
        bare = label.end() == len(content)
        if known_header(label[1]) and (bare or content[0].isupper()):
            return Line(start, end, HEADER, head + label.end(), 1, bare)
        if bare and _titled(label[1]):
            return Line(start, end, HEADER, head + label.end(), 1 if label[1].isupper() else 2, bare)
    elif (
        content[0].isupper()
        and content[-1] not in ".,;?!"
        and len(content) <= 60
        and (known_header(content) or (alone and content.isupper() and _caps_header(content)))
    ):
        return Line(start, end, HEADER, end, 1, bare=True)
    if item := _ITEM.match(text):
        return Line(start, end, ITEM, start + item.end())
    if _STAMP.match(text):
        return Line(start, end, ITEM, head)
    if len(content) <= _LONGEST_ROW:
        gaps = _CELL_GAP.findall(content)
        if len(gaps) >= 2 or any("\t" in gap for gap in gaps):
            return Line(start, end, ROW, head)
    return Line(start, end, TEXT, head)


def _mostly_capitals(document: str) -> bool:
    """Whether the document is dictated in capitals, so that capitals mark no header."""
    letters = [character for character in document[:4000] if character.isalpha()]
    return 2 * sum(map(str.isupper, letters)) > len(letters)


def _titled(name: str) -> bool:
    words = _WORD.findall(name)
    if not words or len(words) > 8 or not name[0].isupper():
        return False
    return all(word[0].isupper() for word in words if len(word) > 3)


def _caps_header(content: str) -> bool:
    words = _WORD.findall(content)
    return len(words) <= 8 and any(len(word) >= 4 for word in words) and not _CELL_GAP.search(content)


def _ranked(document: str, found: list[Line]) -> list[Line]:
    """Levels on one scale. Where the first header is a `#`, the document is Markdown and `#` is outermost;
    in a clinical note a `#` line is a problem under the section that holds it."""
    headers = [line for line in found if line.kind == HEADER]
    hashes = [document[line.start : line.end].lstrip()[:1] == "#" for line in headers]
    if not any(hashes) or all(hashes):
        return found
    markdown, mark = hashes[0], iter(hashes)
    ranked = []
    for line in found:
        if line.kind == HEADER and next(mark) != markdown:
            line = line._replace(level=line.level + (6 if markdown else 2))
        ranked.append(line)
    return ranked
