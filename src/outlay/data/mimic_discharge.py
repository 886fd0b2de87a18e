"""MIMIC-IV-Note 2.2 discharge summaries (PhysioNet, credentialed)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, files
from outlay.data.files import Row, each, member
from outlay.data.mimic_bhc import patient_split
from outlay.errors import DataError
from outlay.schema import option

FILES = ("discharge.csv", "discharge.csv.gz")

_COURSE = re.compile(r"^[ \t]*(?:brief )?hospital course[^\n:]*:", re.IGNORECASE | re.MULTILINE)
_NEXT = re.compile(  # the headers that follow the course in the notes' template
    r"^[ \t]*(?:medications? on admission|(?:the )?pre-?admission medications?|admission medications?"
    r"|discharge (?:medications?|disposition|diagnos[ie]s|condition|instructions?)|facility"
    r"|follow-?up instructions?)\b[^\n:]*:",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class MimicDischarge(Dataset):
    """The notes, in full and without gold (`reference=none`), or with their hospital course as the reference.

    Under `reference=hospital_course` the section "Brief Hospital Course" is cut out of the document, up to the
    next header of the template, and becomes the reference; a note without that section is a bad row.
    Addenda (note_type AD) are no summaries and are left out, unless `note_type` says otherwise.
    """

    query: str = option("template", choices=("question", "template", "centroid", "reference"))
    reference: str = option("none", choices=("none", "hospital_course"))
    note_type: str = option("DS", choices=("DS", "AD", "all"))

    name: ClassVar[str] = "mimic_discharge"
    task: ClassVar[str] = "summary"
    answer: ClassVar[str] = "text"
    credentialed: ClassVar[bool] = True
    prompt: ClassVar[PromptText] = PromptText(
        user="{{ context }}\n\nWrite the brief hospital course of this patient.", max_new_tokens=256
    )

    @property
    def has_gold(self) -> bool:  # type: ignore[override]
        return self.reference != "none"

    def rows(self) -> Iterator[Example | DataError]:
        """The notes of the file, or of the one in the folder. No message repeats a note's text.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        source = files.locate(
            self.path, None, (".csv",), folder=True, local=f"FOLDER/{FILES[0]} from PhysioNet"
        )
        assert not isinstance(source, str)
        rows = files.read(files.inside(source, FILES) if source.is_dir() else source)
        return each(filter(self._wanted, rows), self._example)

    def _wanted(self, row: Row) -> bool:
        known = isinstance(row.value, dict) and "note_type" in row.value
        return self.note_type == "all" or not known or row.value["note_type"] == self.note_type

    def _example(self, row: Row) -> Example:
        note_id, text = member(row.value, "note_id").strip(), member(row.value, "text")
        member(row.value, "note_type")
        document, references = text, tuple[str, ...]()
        if self.has_gold:
            document, course = cut_course(text)
            references = (course,)
        return Example(id=note_id, document=document, references=references, split=patient_split(note_id))


def cut_course(text: str) -> tuple[str, str]:
    """The note without its hospital course, header included, and the course.

    Raises:
        DataError: the note has no such section.
    """
    start = _COURSE.search(text)
    if start is None:
        raise DataError("the text has no section 'Brief Hospital Course'; use dataset.reference=none")
    end = _NEXT.search(text, start.end())
    stop = end.start() if end else len(text)
    return text[: start.start()] + text[stop:], text[start.end() : stop].strip()
