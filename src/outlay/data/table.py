"""Any CSV, TSV, JSON, JSONL or Parquet file with a mapping of its columns: the way in for people's own notes."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from outlay.data import SPLITS, Dataset, Example, PromptText, files, hash_split
from outlay.data.files import Row, each
from outlay.errors import ConfigError, DataError, nearest
from outlay.schema import option

_SPLIT_NAMES = {name: name for name in SPLITS} | {
    "training": "train",
    "dev": "tune",
    "val": "tune",
    "valid": "tune",
    "validation": "tune",
}
LOOKED_AT = 100
"""Rows whose columns are looked at before a run; fields of JSON may be absent in some."""
_CONTEXT = "{% if context %}{{ context }}\n\n{% endif %}"
_ASK = {  # by `answer`
    "number": ('\n\nThink step by step. End with "The answer is N", where N is a number.', 160),
    "span": ("\n\nGive only the answer.", 24),
    "label": ("\n\nAnswer with one of: {{ choices | join(', ') }}.", 8),
    "text": ("", 192),
}


@dataclass(kw_only=True)  # not frozen: OmegaConf makes a frozen part of a config read-only
class Columns:
    """The file's column for each field of an example; null where it has none."""

    id: str | None = None  # null: the row's number
    document: str | None = "document"  # null: a closed-book task
    question: str | None = None  # null: the task is a summary of the document
    reference: str | None = None  # null: no gold; a list holds several references
    split: str | None = None  # train, tune (or dev, val), test; null: the hash of the id


@dataclass(frozen=True, kw_only=True)
class Table(Dataset):
    """A file of one example per row, or per line of JSON. Text columns are sent as they are."""

    split: str = option("all", choices=("train", "tune", "test", "all"))
    query: str = option("template", choices=("question", "template", "centroid", "reference"))
    columns: Columns = field(default_factory=Columns)
    answer: str = option("text", choices=tuple(_ASK))  # type: ignore[misc]
    labels: list[str] = field(default_factory=list)
    aspects: list[str] = field(default_factory=lambda: list(Dataset.aspects))  # type: ignore[assignment, misc]
    credentialed: bool = False  # type: ignore[misc]

    name: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        columns = self.columns
        object.__setattr__(
            self, "aspects", tuple(self.aspects)
        )  # a config gives a list; keys need it hashable
        if not columns.document and not columns.question:
            raise ConfigError("columns: name the column of the document, of the question, or both")
        if self.query == "question" and not columns.question:
            raise ConfigError(
                "query=question: columns.question names none. Use dataset.query=template or centroid"
            )
        if self.answer == "label" and not self.labels:
            raise ConfigError("answer=label: list the labels, as in dataset.labels=[yes,no]")

    @property
    def has_document(self) -> bool:  # type: ignore[override]
        return self.columns.document is not None

    @property
    def has_gold(self) -> bool:  # type: ignore[override]
        return self.columns.reference is not None

    @property
    def prompt(self) -> PromptText:  # type: ignore[override]
        if not self.columns.question:
            return PromptText(user="{{ context }}\n\nSummarise the text above.", max_new_tokens=192)
        ask, tokens = _ASK[self.answer]
        return PromptText(user=f"{_CONTEXT}{{{{ question }}}}{ask}", max_new_tokens=tokens)

    def rows(self) -> Iterator[Example | DataError]:
        """The rows of the file.

        Raises:
            DataError: no such file, it is not in the format, or no row has the named columns.
        """
        source = files.locate(
            self.path, None, files.TABLE_SUFFIXES, local="FILE (CSV, TSV, JSON, JSONL or Parquet)"
        )
        assert isinstance(source, Path)
        return each(files.read(source), partial(self._example, files.stem(source)))

    def ready(self) -> None:
        """Raises ConfigError where none of the first rows has a column that is named."""
        path = Path(self.path or "").expanduser()
        if not path.is_file():
            return  # said when it is read
        seen: dict[str, None] = {}
        with suppress(DataError):  # a broken file is said, or skipped, when it is read
            for row in islice(files.read(path), LOOKED_AT):
                seen |= dict.fromkeys(row.value if isinstance(row.value, dict) else ())
        for name in ("id", "document", "question", "reference", "split"):
            column = getattr(self.columns, name)
            if seen and column and column not in seen:
                known = files.named(seen)
                raise ConfigError(
                    f"dataset.columns.{name}={column}: {self.path} has no such column. {nearest(column, known)} "
                    f"Its columns: {', '.join(known)}"
                )

    def _example(self, stem: str, row: Row) -> Example:
        columns = self.columns
        example_id = _text(row.value, "id", columns.id) if columns.id else f"{stem}-{row.number + 1}"
        references = _references(row.value, columns.reference) if columns.reference else ()
        if self.answer == "label":
            for reference in references:
                if reference not in self.labels:
                    hint = nearest(reference, self.labels)
                    raise DataError(f"column '{columns.reference}' holds no label of dataset.labels. {hint}")
        return Example(
            id=example_id,
            document=_text(row.value, "document", columns.document) if columns.document else "",
            question=_text(row.value, "question", columns.question).strip() if columns.question else "",
            references=references,
            choices=tuple(self.labels),
            split=_split(_text(row.value, "split", columns.split))
            if columns.split
            else hash_split(example_id),
        )


def _cell(row: Any, name: str, column: str) -> Any:
    if not isinstance(row, dict):
        raise DataError("is not an object with fields")
    if column not in row:
        raise DataError(
            f"dataset.columns.{name}={column}: no such column. {nearest(column, files.named(row))}"
        )
    return row[column]


def _text(row: Any, name: str, column: str) -> str:
    value = _cell(row, name, column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # numbers as ids, or as answers
    if not isinstance(value, str):
        raise DataError(f"column '{column}' holds {files.kind_of(value)}, not text")
    return value


def _references(row: Any, column: str) -> tuple[str, ...]:
    value = _cell(row, "reference", column)
    texts = [
        _text({column: one}, "reference", column).strip()
        for one in (value if isinstance(value, list) else [value])
    ]
    if not texts:
        raise DataError(f"column '{column}' is empty")
    return tuple(texts)


def _split(name: str) -> str:
    split = _SPLIT_NAMES.get(name.strip().lower())
    if split is None:
        raise DataError(f"the split is none of {', '.join(_SPLIT_NAMES)}")
    return split
