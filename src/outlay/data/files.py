"""Reading the original files and hub rows: streams of rows that know their file and place."""

import csv
import gzip
import io
import json
import logging
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from outlay.data import Example, hash_split
from outlay.errors import DataError, nearest

JSON_SUFFIXES = (".json", ".jsonl")
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
CHUNK = 1 << 20  # characters read at a time from a JSON file

_SETS = frozenset({"train", "training", "valid", "validation", "val", "dev"})
_NAME = re.compile(r"[A-Za-z_][\w.|-]{0,39}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_ESCAPED_BYTE = re.compile(
    "[\udc80-\udcff]"
)  # what errors="surrogateescape" leaves of a byte that is not UTF-8


class Row(NamedTuple):
    """One record of a file. `value` is its `DataError` where the record itself cannot be read."""

    number: int  # 0-based record
    place: str  # file and record, for messages
    value: Any
    key: str = ""  # the member's name, where the file is one JSON object


# --- where the data is


def locate(
    path: str | None, hub: str | None, suffixes: Sequence[str], *, folder: bool = False, local: str = ""
) -> Path | str:
    """The local file (or folder, where allowed) that `dataset.path` names, else the hub id to load.

    Args:
        hub: the id that a null path stands for; None: the data set is on no hub, and `local` is its file.

    Raises:
        DataError: neither; the message names the option, the path and the nearest existing file.
    """
    if path is None:
        if hub is None:
            raise DataError(
                f"dataset.path is null, and this data set is on no hub: pass dataset.path={local}"
            )
        return hub
    where = Path(path).expanduser()
    try:
        return _found(where, path, hub, suffixes, folder)
    except (OSError, ValueError) as error:  # no permission, a name too long, a NUL
        raise DataError(f"dataset.path: '{path}' cannot be opened: {error}") from error


def _found(where: Path, path: str, hub: str | None, suffixes: Sequence[str], folder: bool) -> Path | str:
    if where.is_dir():
        if folder:
            return where
        raise DataError(
            f"dataset.path: '{path}' is a folder; name a file in it. {_listing(where, '', suffixes)}"
        )
    if where.exists():
        if _suffix(where) in suffixes:
            return where
        raise DataError(
            f"dataset.path: '{path}' is not of this format; it reads {', '.join(suffixes)}, gzip or not"
        )
    if (
        hub is not None
        and _HUB_ID.fullmatch(path)
        and _suffix(where) not in suffixes
        and not where.parent.exists()
    ):
        return path
    base = where.parent
    while not base.is_dir():
        base = base.parent
    if base != where.parent:
        raise DataError(f"dataset.path: no file '{path}': there is no folder '{where.parent}', only '{base}'")
    raise DataError(f"dataset.path: no file '{path}'. {_listing(base, where.name, suffixes)}")


def inside(folder: Path, names: Sequence[str]) -> Path:
    """The first of the named files that the folder holds.

    Raises:
        DataError: it holds none.
    """
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"dataset.path: the folder '{folder}' holds no {' or '.join(names)}")


def train_or_tune(example_id: str) -> str:
    """The hash split, for examples of a published training set: never "test"."""
    split, turn = hash_split(example_id), 0
    while split == "test":
        turn += 1
        split = hash_split(f"{example_id}#{turn}")
    return split


def named_split(stem: str, example_id: str, held_out: Collection[str] = ("test",)) -> str:
    """The split by the set that the file's name gives: "test" for a held-out one, train or tune for the others.

    A name that gives none leaves it to the hash of the example's id.
    """
    words = set(re.split(r"[^a-z]+", stem.lower()))
    if words.intersection(held_out):
        return "test"
    return train_or_tune(example_id) if words & _SETS else hash_split(example_id)


def stem(path: Path) -> str:
    """The file's name without its suffixes of format and compression."""
    return path.name.removesuffix(".gz").rsplit(".", 1)[0]


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _listing(folder: Path, name: str, suffixes: Sequence[str]) -> str:
    names = sorted(file.name for file in folder.iterdir() if file.is_dir() or _suffix(file) in suffixes)
    if not names:
        return f"'{folder}' holds no {' or '.join(suffixes)} file."
    hint = nearest(name, names)
    return (
        hint
        if len(names) <= 20 or hint.startswith("Did")
        else f"It holds {names[0]} and {len(names) - 1} more."
    )


# --- rows to examples


def each(rows: Iterator[Row], parse: Callable[[Row], Example]) -> Iterator[Example | DataError]:
    """Parsed rows; a row that cannot be parsed, or repeats an id, is yielded as an error naming file and row.

    Raises:
        DataError: there were rows and not one could be parsed: the file is not in the format.
    """
    seen: dict[str, str] = {}
    first: DataError | None = None
    for row in rows:
        try:
            if isinstance(row.value, DataError):
                raise row.value
            example = parse(row)
            _check_gold(example)
            if example.id in seen:
                raise DataError(f"repeats the id of {seen[example.id]}")
            seen[example.id] = row.place.partition(": ")[2]
        except DataError as error:
            # ready for what the caller adds to the sentence
            placed = DataError(f"{row.place}: {str(error).rstrip('.?')}")
            first = first or placed
            yield placed
        else:
            yield example
    if first is not None and not seen:
        raise DataError(f"no row is in the format; the first: {first}")


def _check_gold(example: Example) -> None:
    if not example.id:
        raise DataError("the id is empty")
    if not all(reference.strip() for reference in example.references):
        raise DataError("the reference is empty")
    try:
        "".join((example.id, *example.references)).encode()
    except UnicodeEncodeError as error:
        raise DataError("the id or the reference holds a lone surrogate") from error


def member(row: Any, name: str, kind: type | tuple[type, ...] = str) -> Any:
    """The field of a row, of the given kind.

    Raises:
        DataError: the row is no object, or the field is missing or of another kind.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"is {kind_of(row)}, not an object with fields")
    if name not in row:
        raise DataError(f"has no field '{name}'. {nearest(name, named(row))}")
    value = row[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = " or ".join(
            _KINDS.get(k, k.__name__) for k in (kind if isinstance(kind, tuple) else (kind,))
        )
        raise DataError(f"field '{name}' is {kind_of(value)}, not {wanted}")
    return value


def named(row: Iterable[Any]) -> list[str]:
    """The keys that look like names. A file without a header has text of its first row as keys, which may be a
    patient's, and no message may repeat that."""
    return [str(key) for key in row if _NAME.fullmatch(str(key))][:40]


def texts(row: Any, name: str) -> list[str]:
    """The field of a row that holds a list of texts."""
    values = member(row, name, list)
    for value in values:
        if not isinstance(value, str):
            raise DataError(f"field '{name}' holds {kind_of(value)}, not only texts")
    return cast("list[str]", values)


_KINDS = {
    str: "text",
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def kind_of(value: Any) -> str:
    return "true or false" if isinstance(value, bool) else _KINDS.get(type(value), type(value).__name__)


# --- files to rows


def read(path: Path, reader: Callable[[Path], Iterator[Row]] | None = None) -> Iterator[Row]:
    """The records of a CSV, TSV, JSON, JSONL or Parquet file, gzip or not, one at a time.

    Args:
        reader: the reader of another format; by default, the one for the file's suffix.

    Raises:
        DataError: the file cannot be opened, is empty, or is broken beyond one record.
    """
    reader = reader or _READERS.get(_suffix(path))
    if reader is None:
        raise DataError(f"{path}: cannot read '{path.suffix}' files; formats: {', '.join(_READERS)}")
    empty = True
    try:
        for row in reader(path):
            empty = False
            yield row
    except (OSError, EOFError, zlib.error) as error:  # the last two: a gzip file cut off, or broken
        raise DataError(f"{path}: cannot be read: {error}") from error
    if empty:
        raise DataError(f"{path}: holds no records")


def lines(path: Path) -> Iterator[Row]:
    """The lines of a text file, without their line ends; blank lines are rows too."""
    with _open(path) as file:
        for index, raw in enumerate(file):
            place = f"{path}: line {index + 1}"
            try:
                yield Row(index, place, raw.decode("utf-8-sig" if index == 0 else "utf-8").rstrip("\r\n"))
            except UnicodeDecodeError as error:
                yield Row(index, place, DataError(_not_utf8(raw[error.start])))


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"  # by content: names lie
    return cast(BinaryIO, gzip.open(path, "rb") if zipped else path.open("rb"))


def _not_utf8(byte: int) -> str:
    return f"is not UTF-8 (byte 0x{byte:02x}); save the file as UTF-8"


def _jsonl(path: Path) -> Iterator[Row]:
    index = 0
    for line in lines(path):
        if isinstance(line.value, str):
            if not line.value.strip():
                continue
            try:
                line = line._replace(value=json.loads(line.value))
            except (ValueError, RecursionError) as error:
                line = line._replace(value=DataError(f"is not valid JSON: {error}"))
        yield line._replace(number=index)
        index += 1


def _csv(path: Path, delimiter: str = ",") -> Iterator[Row]:
    csv.field_size_limit(sys.maxsize)  # a note is longer than the default 131,072 characters
    with (
        _open(path) as binary,
        io.TextIOWrapper(binary, "utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        header: list[str] | None = None
        index, line = 0, 1
        while True:
            cells: Any
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                cells = DataError(f"is not valid CSV: {error}")
            place, line = f"{path}: record {index + 1} (line {line})", reader.line_num + 1
            if cells == []:
                continue
            if header is None:
                if isinstance(cells, DataError):
                    raise DataError(f"{path}: the header {cells}")
                repeated = {name for name in cells if cells.count(name) > 1}
                if repeated:
                    which = ", ".join(sorted(named(repeated))) or "a column"
                    raise DataError(f"{path}: the header names {which} twice")
                if bad := _ESCAPED_BYTE.search("".join(cells)):
                    raise DataError(f"{path}: {_not_utf8(ord(bad[0]) - 0xDC00)}")
                header = cells
                continue
            yield Row(index, place, cells if isinstance(cells, DataError) else _record(header, cells))
            index += 1


def _record(header: list[str], cells: list[str]) -> dict[str, str] | DataError:
    if len(cells) != len(header):
        return DataError(f"has {len(cells)} cells where the header has {len(header)} columns")
    for cell in cells:
        if bad := _ESCAPED_BYTE.search(cell):
            return DataError(_not_utf8(ord(bad[0]) - 0xDC00))
    return dict(zip(header, cells, strict=True))


def _tsv(path: Path) -> Iterator[Row]:
    return _csv(path, "\t")


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow as arrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            index = 0
            for batch in file.iter_batches(batch_size=256):
                for value in batch.to_pylist():
                    yield Row(index, f"{path}: row {index + 1}", value)
                    index += 1
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: is not readable as Parquet: {str(error).splitlines()[0]}") from error


def _json(path: Path) -> Iterator[Row]:
    """Items of a top-level array, or members of a top-level object, with one item in memory at a time.

    By hand, because the streaming parser ijson turns a lone surrogate into "?" instead of keeping it.
    """
    with _open(path) as binary, io.TextIOWrapper(binary, "utf-8-sig") as file:
        try:
            yield from _json_items(path, _Buffer(file))
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: {_not_utf8(error.object[error.start])}") from error


def _json_items(path: Path, buffer: "_Buffer") -> Iterator[Row]:
    opened = buffer.peek()
    if opened == "":
        return
    if opened not in "[{":
        raise DataError(f"{path}: line {buffer.line}: is no JSON array or object")
    buffer.skip()
    closing = "]" if opened == "[" else "}"
    for index in count():
        if buffer.peek() == closing and index == 0:
            break
        place = f"{path}: record {index + 1} (line {buffer.line})"
        try:
            key = ""
            if opened == "{":
                key = buffer.decode()
                if not isinstance(key, str) or buffer.peek() != ":":
                    raise ValueError("a member without a name or a colon")
                buffer.skip()
            yield Row(index, f"{place} '{key}'" if key else place, buffer.decode(), key)
            if buffer.peek() == closing:
                break
            if buffer.peek() != ",":
                raise ValueError("a comma is missing")
            buffer.skip()
        except (ValueError, RecursionError) as error:  # what follows cannot be found again
            detail = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise DataError(f"{place}: is not valid JSON: {detail}") from error
    buffer.skip()
    if buffer.peek():
        raise DataError(
            f"{path}: line {buffer.line}: more than one JSON value; JSON lines are read from .jsonl files"
        )


class _Buffer:
    """The unread part of a JSON text."""

    def __init__(self, file: io.TextIOBase) -> None:
        self.file, self.text, self.position, self.line = file, "", 0, 1
        self.decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self.position < len(self.text):
                character = self.text[self.position]
                if character not in " \t\r\n":
                    return character
                self.line += character == "\n"
                self.position += 1
            if not self._more(CHUNK):
                return ""

    def skip(self) -> None:
        self.position += 1

    def decode(self) -> Any:
        """The next JSON value."""
        self.peek()
        size = CHUNK
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                # an error far from the end of what was read is no matter of reading more
                cut = error.msg.startswith("Unterminated string") or error.pos > len(self.text) - 16
                if not cut or not self._more(size):
                    raise
            else:
                # a number may go on: "1" of "1.5", or of "1e+5"
                whole = not isinstance(value, int | float) or len(self.text) - end > 2
                if whole or not self._more(size):
                    self.line += self.text.count("\n", self.position, end)
                    self.position = end
                    return value
            size *= 2

    def _more(self, size: int) -> bool:
        read = self.file.read(size)
        if read:  # else nothing moves: the caller may hold an offset
            self.text, self.position = self.text[self.position :] + read, 0
        return bool(read)


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".json": _json,
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}


# --- the hub


def hub(
    repo: str, split: str, *, config: str | None = None, file: str | None = None, local: str
) -> Iterator[Row]:
    """The rows of a hub data set, through `datasets` and its cache on disk (memory-mapped, not held).

    Args:
        config: the hub's configuration. file: a raw file of the repository, for repositories whose loading
            script `datasets` 4 no longer runs. local: the original file's name, for the message.

    Raises:
        DataError: the hub does not answer or has no such data; the message says how to pass a local file.
    """
    try:
        data = _load(repo, split, config, file)
    except Exception as error:  # the hub's clients share no base class of errors
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
        raise DataError(
            f"dataset.path: cannot load '{repo}' ({file or config or 'default'}, {split}) from the hub: {reason}. "
            f"Pass a local file instead: dataset.path=FOLDER/{local}"
        ) from error
    for index, value in enumerate(data):
        yield Row(index, f"{repo} {split}: row {index + 1}", value)


def _load(repo: str, split: str, config: str | None, file: str | None) -> Any:
    import datasets

    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)  # its retries are told in one line, by the caller
    try:
        if file is None:
            return datasets.load_dataset(repo, config, split=split)
        return datasets.load_dataset("json", data_files=f"hf://datasets/{repo}/{file}", split="train")
    finally:
        log.setLevel(level)
