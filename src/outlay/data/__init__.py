"""Examples and the data sets that yield them; one module per data set."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from outlay.errors import DataError
from outlay.schema import option

Span = tuple[int, int]
"""Character offsets [start, end) into a document."""

SPLITS = {"train": 0.5, "tune": 0.2, "test": 0.3}
"""Shares of the hash split, for data sets that have none of their own. Ours."""

OTHER = "Someone else answered this task:\n\n{{ chain }}\n\nIt may be wrong. {{ user }}"
REFLECT = (
    "That was an earlier try, and it failed. What you wrote about it:\n{{ reflection }}\n\n"
    "Solve the task again from the start.\n\n{{ user }}"
)
CARRY = "That was an earlier try, and it may be wrong. Solve the task again from the start.\n\n{{ user }}"


@dataclass(frozen=True)
class Fact:
    """One gold fact: its value as text, and every place of the document that states it."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class Example:
    """One query of a data set. `references`, `facts` are gold: only `score/` and the gold verifier read them."""

    id: str
    question: str = ""  # empty: the task is a summary of the document
    document: str = ""  # empty: a closed-book task
    references: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    choices: tuple[str, ...] = ()  # the labels of a classification task
    split: str = "test"
    meta: Mapping[str, Any] = field(default_factory=dict)  # e.g. difficulty; never gold


@dataclass(frozen=True)
class PromptText:
    """How a data set is asked by `prompt=auto`: Jinja templates over `question`, `context`, `choices`, `meta`.

    carry, other, reflect: what the user says where a chain is shown; see `Prompting`, whose usual wording they hold.
    """

    user: str
    system: str = ""
    prefill: str = ""  # first words of the assistant's turn
    max_new_tokens: int = 64
    stop: tuple[str, ...] = ()
    carry: str = CARRY
    other: str = OTHER
    reflect: str = REFLECT


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Options shared by every data set. A subclass adds its own and yields examples from `rows`.

    Class attributes say what the task is, so that impossible combinations are refused before loading:
    `answer` is the kind of `score.match`: "number", "span", "label" or "text" (a free text, never parsed).
    """

    path: str | None = None  # a local file in the original format; else the hub id
    split: str = option("test", choices=("train", "tune", "test", "all"))
    limit: int | None = option(None, least=1)
    fit_limit: int | None = option(None, least=1)  # of each of train and tune, for policies that learn
    seed: int = 0
    query: str = option("question", choices=("question", "template", "centroid", "reference"))
    on_bad_row: str = option("error", choices=("error", "skip"))

    name: ClassVar[str]
    answer: ClassVar[str]
    prompt: ClassVar[PromptText]
    aspects: ClassVar[tuple[str, ...]] = (  # the queries of query=template; ours
        "principal diagnosis and reason for admission",
        "hospital course and treatment",
        "medications and doses at discharge",
        "follow-up and instructions",
    )
    has_document: ClassVar[bool] = True
    has_gold: ClassVar[bool] = True
    credentialed: ClassVar[bool] = False
    embedded: ClassVar[bool] = False  # generated here, so it needs no path

    def rows(self) -> Iterator[Example | DataError]:
        """Every example of every split, in file order. A bad row is yielded as its error, not raised.

        Raises:
            DataError: the file cannot be opened or is not in the format.
        """
        raise NotImplementedError

    def may_exist(self) -> bool:
        """Whether `path` is here, or could be a hub id (owner/name, and no folder `owner`)."""
        where = Path(self.path or "").expanduser()
        hub_id = str(self.path).count("/") == 1 and not where.suffix and not where.parent.exists()
        return where.exists() or hub_id

    def examples(self, skipped: list[DataError] | None = None) -> Iterator[Example]:
        """The chosen split, at most `limit` examples; bad rows raise, or go to `skipped` under on_bad_row=skip.

        Raises:
            DataError: a bad row under on_bad_row=error; the message names file and row.
        """
        return islice(self._checked(skipped if skipped is not None else []), self.limit)

    def _checked(self, skipped: list[DataError]) -> Iterator[Example]:
        for number, row in enumerate(self.rows(), start=1):
            if isinstance(row, Example):
                problem = _unusable(row, self.has_document)
                if problem is None:
                    if self.split in ("all", row.split):
                        yield row
                    continue
                row = DataError(f"{self.path or self.name}: record {number} (example {row.id}): {problem}")
            if self.on_bad_row == "error":
                said = str(row) if str(row).endswith(("?", ".")) else f"{row}."
                raise DataError(f"{said} Mend the row, or count and leave it out: dataset.on_bad_row=skip")
            skipped.append(row)


def _unusable(example: Example, has_document: bool) -> str | None:
    text = example.document if has_document else example.question
    if not text.strip():
        return f"the {'document' if has_document else 'question'} is empty"
    whole = example.document + example.question
    if "\0" in whole:
        return "the text holds a NUL character"
    try:
        whole.encode()
    except UnicodeEncodeError as error:
        return f"the text holds a lone surrogate at character {error.start}"
    return None


def hash_split(example_id: str) -> str:
    """The split of an example in a data set without one: the same in every run and on every machine."""
    digest = hashlib.sha256(f"outlay-split:{example_id}".encode()).digest()
    point, edge = int.from_bytes(digest[:8]) / 2**64, 0.0
    for name, share in SPLITS.items():
        edge += share
        if point < edge:
            return name
    return "test"
