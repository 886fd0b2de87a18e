"""GSM8K (Cobbe et al. 2021): grade-school word problems; the gold answer is a number."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, files
from outlay.data.files import Row, each, member
from outlay.errors import DataError

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)")


@dataclass(frozen=True, kw_only=True)
class Gsm8k(Dataset):
    """Rows of `question`, `answer`. The published test set is split "test"; the training set gives train and tune."""

    name: ClassVar[str] = "gsm8k"
    answer: ClassVar[str] = "number"
    has_document: ClassVar[bool] = False
    prompt: ClassVar[PromptText] = PromptText(
        user='{{ question }}\n\nThink step by step. End with "The answer is N", where N is a number.',
        max_new_tokens=256,
    )

    def rows(self) -> Iterator[Example | DataError]:
        """The file's problems; a folder gives its train.jsonl and test.jsonl; null gives the hub's.

        Raises:
            DataError: no such file or folder, or it is not in the format.
        """
        source = files.locate(self.path, "openai/gsm8k", (*files.JSON_SUFFIXES, ".parquet"), folder=True)
        if isinstance(source, str):
            for part in ("train", "test"):
                if self.split == "all" or (self.split == "test") == (part == "test"):
                    rows = files.hub(source, part, config="main", local=f"{part}.jsonl")
                    yield from each(rows, partial(_example, part))
        elif source.is_dir():
            parts = [source / name for name in ("train.jsonl", "test.jsonl") if (source / name).is_file()]
            if not parts:
                raise DataError(f"dataset.path: '{source}' holds neither train.jsonl nor test.jsonl")
            for file in parts:
                yield from self._file(file)
        else:
            yield from self._file(source)

    def _file(self, path: Path) -> Iterator[Example | DataError]:
        return each(files.read(path), partial(_example, files.stem(path)))


def _example(part: str, row: Row) -> Example:
    example_id = f"{part}-{row.number}"  # the row's index, as on the hub
    return Example(
        id=example_id,
        question=member(row.value, "question").strip(),
        references=(gold(member(row.value, "answer")),),
        split=files.named_split(part, example_id),
    )


def gold(answer: str) -> str:
    """The number after the last ####, without thousands commas.

    Raises:
        DataError: there is no ####, or no number after it.
    """
    _, mark, tail = answer.rpartition("####")
    number = tail.strip().replace(",", "").lstrip("$")
    if not mark:
        raise DataError("field 'answer' has no '####' before its final number")
    if not _NUMBER.fullmatch(number):
        raise DataError(f"field 'answer' has no number after its last '####', but {tail.strip()[:40]!r}")
    return number
