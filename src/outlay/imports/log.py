"""What every import gives: the queries of a log, and its replies."""

import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlay.agent.ledger import Line
from outlay.data import files
from outlay.data.files import Row, member
from outlay.errors import ConfigError, DataError, nearest

PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".npy")


@dataclass(frozen=True)
class Question:
    """A query as the log shows it. text: what was asked; references: gold, () where the log has none."""

    id: str
    text: str
    references: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    document: str = ""
    split: str = ""  # the log's own


@dataclass(frozen=True)
class Reply:
    """A reply as it was recorded. flag: the log's own word on it, 0 to 1."""

    example_id: str
    tier: str
    text: str
    flag: float | None = None
    context: str = "fresh"
    shown: str = ""  # what a retry's prompt showed beside the question
    prompt_tokens: int | None = None  # None: not in the log, so they are estimated
    completion_tokens: int | None = None
    usd: float = float("nan")  # nan: not in the log
    error: str = ""


@dataclass
class Log:
    """kind: of answer, see `score.match`; pattern: where the answer stands in a reply, for prompt.answer_pattern.

    lines: of a log that is a ledger already; its replies are empty.
    """

    kind: str
    questions: dict[str, Question] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    pattern: str | None = None
    notes: list[str] = field(default_factory=list)  # what a reader must know of it
    lines: list[Line] | None = None

    def ask(self, question: Question, place: str) -> None:
        """Add a query, which several files may hold.

        Raises:
            DataError: another query, or another gold answer, under the same id.
        """
        known = self.questions.setdefault(question.id, question)
        if known.references != question.references:
            raise DataError(
                f"{place}: the gold answer of {question.id} is not that of an earlier file or row"
            )


@dataclass(frozen=True)
class Options:
    """What the command line adds to a log. Each format takes some; null where it was not given."""

    gold: Path | None = None  # a file with the gold answers
    tier: str | None = None  # the model's name
    kind: str | None = None  # of answer
    labels: tuple[str, ...] = ()  # of kind=label
    context: str | None = None  # what the log's retries were shown


def sources(paths: Sequence[str], pattern: str) -> list[Path]:
    """The files that the paths name; of a folder, those inside that match `pattern`.

    Raises:
        ConfigError: a path that is not there. DataError: a pickle, a folder without such a file.
    """
    found: list[Path] = []
    for path in paths:
        where = Path(path).expanduser()
        if where.is_dir():
            inside = sorted(one for one in where.rglob(pattern) if one.is_file())
            if not inside:
                raise DataError(f"{path}: the folder holds no {pattern}")
            found += inside
        elif not where.is_file():
            beside = [one.name for one in where.parent.iterdir()] if where.parent.is_dir() else []
            close = nearest(where.name, beside)
            raise ConfigError(f"{path}: no such file. {close if close.startswith('Did') else ''}".strip())
        elif where.suffix.lower() in PICKLES:
            raise DataError(
                f"{path}: pickles are not read, since they run code. Convert it where you trust it: "
                "pandas.read_pickle(…).to_parquet(…)"
            )
        else:
            found.append(where)
    return found


def rows(path: Path) -> Iterator[Row]:
    """The records of a table or JSON file.

    Raises:
        DataError: it cannot be read; the message names file and row.
    """
    for row in files.read(path):
        if isinstance(row.value, DataError):
            raise DataError(f"{row.place}: {row.value}")
        yield row


def cell(row: Row, name: str, kind: type | tuple[type, ...] = str) -> Any:
    """A field of a row.

    Raises:
        DataError: it is missing or of another kind; the message names file and row.
    """
    try:
        return member(row.value, name, kind)
    except DataError as error:
        raise DataError(f"{row.place}: {error}") from error


def flag(row: Row, name: str, value: Any) -> float:
    """A log's word on a reply: true, "True", 1, 0.5.

    Raises:
        DataError: it is none of these.
    """
    known = {"true": 1.0, "false": 0.0}.get(str(value).strip().lower())
    if known is not None:
        return known
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= 1:
        raise DataError(
            f"{row.place}: field '{name}' is {value!r}, neither true or false nor a score from 0 to 1"
        )
    return number


def header(path: Path) -> list[str]:
    """The columns of a CSV file."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        return next(csv.reader(file), [])


def one_gold(options: Options, what: str) -> Path:
    """The file of --gold.

    Raises:
        ConfigError: it was not given. DataError: it is not there.
    """
    if options.gold is None:
        raise ConfigError(f"this log holds no gold answers: give them with --gold {what}")
    return sources([str(options.gold)], "*")[0]


def opaque(example_id: str, right: bool, tier: str) -> str:
    """A token that stands for a reply whose text was not logged: right ones are equal, wrong ones differ by tier."""
    return hashlib.sha256(f"{example_id}|{'' if right else tier}".encode()).hexdigest()[:16]


def digest(*parts: str) -> str:
    """A short name for a query that the log does not name."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
