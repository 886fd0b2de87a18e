"""MIMIC-IV-Ext-BHC (PhysioNet, credentialed): clinical notes with their brief hospital courses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, files, hash_split
from outlay.data.files import Row, each, member
from outlay.errors import DataError
from outlay.schema import option

FILES = ("mimic-iv-bhc.csv", "mimic-iv-bhc.csv.gz")


@dataclass(frozen=True, kw_only=True)
class MimicBHC(Dataset):
    """Rows of note_id, input, target (and two token counts, which are not used). Split by the hash of the patient."""

    query: str = option("template", choices=("question", "template", "centroid", "reference"))

    name: ClassVar[str] = "mimic_bhc"
    task: ClassVar[str] = "summary"
    answer: ClassVar[str] = "text"
    credentialed: ClassVar[bool] = True
    prompt: ClassVar[PromptText] = PromptText(
        user="{{ context }}\n\nWrite the brief hospital course of this patient.", max_new_tokens=256
    )

    def rows(self) -> Iterator[Example | DataError]:
        """The notes of the file, or of the one in the folder. No message repeats a note's text.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        source = files.locate(
            self.path, None, (".csv",), folder=True, local=f"FOLDER/{FILES[0]} from PhysioNet"
        )
        assert not isinstance(source, str)
        return each(files.read(files.inside(source, FILES) if source.is_dir() else source), _example)


def _example(row: Row) -> Example:
    note_id = member(row.value, "note_id").strip()
    return Example(
        id=note_id,
        document=member(row.value, "input"),
        references=(member(row.value, "target").strip(),),
        split=patient_split(note_id),
    )


def patient_split(note_id: str) -> str:
    """The split by the patient: `note_id` is subject_id-note_type-note_seq, and one patient has several notes."""
    return hash_split(note_id.partition("-")[0])
