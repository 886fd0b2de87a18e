"""ACI-Bench (Yim et al. 2023): doctor-patient dialogues with the clinical notes written from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, files
from outlay.data.files import Row, each, member
from outlay.errors import DataError
from outlay.schema import option


@dataclass(frozen=True, kw_only=True)
class AciBench(Dataset):
    """Rows of encounter_id, dialogue, note (CSV), or src, tgt, file (the challenge's JSON).

    `document=dialogue` is the published task, with the note as the reference; `document=note` gives the
    notes themselves, which have no reference. The three test sets are split "test".
    """

    query: str = option("template", choices=("question", "template", "centroid", "reference"))
    document: str = option("dialogue", choices=("dialogue", "note"))

    name: ClassVar[str] = "aci_bench"
    task: ClassVar[str] = "summary"
    answer: ClassVar[str] = "text"
    aspects: ClassVar[tuple[str, ...]] = (
        "complaints and history",
        "examination and results",
        "assessment",
        "plan",
    )

    @property
    def has_gold(self) -> bool:  # type: ignore[override]
        return self.document == "dialogue"

    @property
    def prompt(self) -> PromptText:  # type: ignore[override]
        ask = (
            "Write the clinical note of this visit."
            if self.document == "dialogue"
            else "Summarise this note."
        )
        return PromptText(user=f"{{{{ context }}}}\n\n{ask}", max_new_tokens=256)

    def rows(self) -> Iterator[Example | DataError]:
        """The encounters of a file, or of the CSVs in a folder and its folders.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        suffixes = (".csv", *files.JSON_SUFFIXES)
        source = files.locate(self.path, None, suffixes, folder=True, local="FOLDER/challenge_data/train.csv")
        assert not isinstance(source, str)
        for file in _parts(source) if source.is_dir() else [source]:
            reader = _challenge if ".json" in file.suffixes else None
            yield from each(files.read(file, reader), partial(self._example, files.stem(file)))

    def _example(self, part: str, row: Row) -> Example:
        challenge = isinstance(row.value, dict) and "src" in row.value
        dialogue = member(row.value, "src" if challenge else "dialogue")
        note = member(row.value, "tgt" if challenge else "note")
        example_id = member(row.value, "file" if challenge else "encounter_id").strip()
        return Example(
            id=example_id,
            document=dialogue if self.has_gold else note,
            references=(note.strip(),) if self.has_gold else (),
            split=files.named_split(part, example_id),
        )


def _parts(folder: Path) -> list[Path]:
    found = sorted(file for file in folder.rglob("*.csv") if not file.stem.endswith("_metadata"))
    if not found:
        raise DataError(f"dataset.path: the folder '{folder}' holds no CSV of encounters")
    return found


def _challenge(path: Path) -> Iterator[Row]:
    """{"data": [encounters]}: small files, held whole."""
    for whole in files.read(path):
        if whole.key != "data" or not isinstance(whole.value, list):
            raise DataError(f'{path}: is not the challenge\'s {{"data": [encounters]}}')
        for number, value in enumerate(whole.value):
            yield Row(number, f"{path}: encounter {number + 1}", value)
