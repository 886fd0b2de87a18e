"""The queries of an imported log: what `outlay import` writes beside a ledger, with everything that a run must know."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

from outlay.data import SPLITS, Dataset, Example, PromptText, files, hash_split
from outlay.data.files import Row, each, member, texts
from outlay.errors import ConfigError, DataError
from outlay.score.match import KINDS

SUFFIX = ".examples.jsonl"


@dataclass(frozen=True, kw_only=True)
class Recorded(Dataset):
    """Rows of id, question, references, kind, choices, longest, and document and split where the log has them.

    kind: of answer, see `score.match`; longest: the tokens of the log's longest reply, so that budgets are kept.
    """

    split: str = "all"
    name: ClassVar[str] = "recorded"

    @property
    def answer(self) -> str:  # type: ignore[override]
        return str(self._first["kind"])

    @property
    def has_document(self) -> bool:  # type: ignore[override]
        return bool(self._first.get("document"))

    @property
    def prompt(self) -> PromptText:  # type: ignore[override]
        """What is rendered is never sent: the log's own prompt was answered."""
        longest = int(self._first["longest"])
        return PromptText(
            user="{% if context %}{{ context }}\n\n{% endif %}{{ question }}", max_new_tokens=max(1, longest)
        )

    @property
    def _first(self) -> Mapping[str, Any]:
        """The first row: what holds for all.

        Raises:
            ConfigError: no such file, or not what `outlay import` writes.
        """
        if not self.path:
            raise ConfigError(f"dataset.path is null: name the FILE{SUFFIX} that `outlay import` wrote")
        where = Path(self.path).expanduser()
        if not where.is_file():
            raise ConfigError(
                f"dataset.path={self.path}: no such file. `outlay import FORMAT PATH --out FILE` writes FILE{SUFFIX}"
            )
        return _head(where, where.stat().st_mtime_ns)

    def rows(self) -> Iterator[Example | DataError]:
        """The file's queries.

        Raises:
            DataError: it is not in the format.
        """
        source = files.locate(self.path, None, files.JSON_SUFFIXES, local=f"FILE{SUFFIX}")
        assert isinstance(source, Path)
        return each(files.read(source), partial(_example, self.answer))


@lru_cache(maxsize=16)
def _head(path: Path, state: int) -> Mapping[str, Any]:
    with path.open(encoding="utf-8") as file:
        line = file.readline()
    try:
        first = json.loads(line)
        if first["kind"] in KINDS and first["longest"] >= 0:
            return dict(first)
    except (ValueError, TypeError, KeyError):
        pass
    raise ConfigError(
        f"dataset.path={path}: line 1 is no query of an imported log (id, question, kind, longest). "
        f"Name the FILE{SUFFIX} that `outlay import` wrote, or use dataset=table for a file of your own"
    )


def _example(kind: str, row: Row) -> Example:
    example_id = member(row.value, "id")
    if member(row.value, "kind") != kind:
        raise DataError(f"field 'kind' is '{row.value['kind']}', and the first row's is '{kind}'")
    split = row.value.get("split") or hash_split(example_id)
    if split not in SPLITS:
        raise DataError(f"field 'split' is none of {', '.join(SPLITS)}")
    return Example(
        id=example_id,
        document=row.value.get("document") or "",
        question=member(row.value, "question"),
        references=tuple(texts(row.value, "references")),
        choices=tuple(texts(row.value, "choices")),
        split=split,
    )
