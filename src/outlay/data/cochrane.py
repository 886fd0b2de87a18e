"""Cochrane reviews: abstracts with plain-language summaries (Devaraj et al. 2021), or MSLR 2022 review CSVs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, files
from outlay.data.files import Row, each, member
from outlay.errors import DataError
from outlay.schema import option

PARTS = ("train", "validation", "test")
_TAG = re.compile(r"</?background>")


@dataclass(frozen=True, kw_only=True)
class Cochrane(Dataset):
    """Summaries: parallel line files (`.source`, `.target`, `.doi`), MSLR's `*-inputs.csv` and `*-targets.csv`,
    or rows of `source`, `target`, `doi`.

    An MSLR document is the titles and abstracts of a review's studies. Where the inputs are not beside the
    targets, it is the column `Background`, which the shared task's evaluator gives.
    """

    query: str = option("centroid", choices=("question", "template", "centroid", "reference"))

    name: ClassVar[str] = "cochrane"
    task: ClassVar[str] = "summary"
    answer: ClassVar[str] = "text"
    aspects: ClassVar[tuple[str, ...]] = (
        "the effect of the treatment on the main outcomes",
        "harms and side effects",
        "the quality and certainty of the evidence",
    )
    prompt: ClassVar[PromptText] = PromptText(
        user="{{ context }}\n\nSummarise the findings above in plain language, in a few sentences.",
        max_new_tokens=192,
    )

    def may_exist(self) -> bool:
        """As for every data set; a prefix of the parallel files serves too."""
        return super().may_exist() or Path(f"{self.path}.source").expanduser().is_file()

    def rows(self) -> Iterator[Example | DataError]:
        """The reviews of a file, a prefix of parallel files ("folder/test"), a folder, or the hub.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        path = self.path
        if path is not None and Path(f"{path}.source").expanduser().is_file():
            path = f"{path}.source"
        suffixes = (".source", ".csv", *files.JSON_SUFFIXES, ".parquet")
        source = files.locate(path, "GEM/cochrane-simplification", suffixes, folder=True)
        if isinstance(source, str):
            for part in PARTS:
                if self.split == "all" or (self.split == "test") == (part == "test"):
                    rows = files.hub(source, part, file=f"{part}.json", local="test.source")
                    yield from each(rows, partial(_pair, part))
            return
        for file in _parts(source) if source.is_dir() else [source]:
            yield from _examples(file)


def _parts(folder: Path) -> list[Path]:
    """The parallel files in a folder and its folders; without any, the CSVs of reviews."""
    found = sorted(folder.rglob("*.source")) or sorted(folder.rglob("*-targets.csv"))
    if not found:
        raise DataError(f"dataset.path: the folder '{folder}' holds no .source file and no -targets.csv")
    return found


def _examples(path: Path) -> Iterator[Example | DataError]:
    if ".source" in path.suffixes:
        return each(files.read(path, _parallel), partial(_pair, files.stem(path)))
    if ".csv" in path.suffixes:
        return each(files.read(path, _reviews), partial(_review, files.stem(path)))
    return each(files.read(path), partial(_pair, files.stem(path)))


def _pair(part: str, row: Row) -> Example:
    source, target = member(row.value, "source"), member(row.value, "target")
    example_id = member(row.value, "doi").strip() if "doi" in row.value else f"{part}-{row.number}"
    return Example(
        id=example_id,
        document=source,
        references=(target.strip(),),
        split=files.named_split(part, example_id),
    )


def _review(part: str, row: Row) -> Example:
    review = row.value["id"]
    return Example(
        id=review,
        document=row.value["document"],
        references=(row.value["target"].strip(),),
        split=files.named_split(part, review),
    )


def _parallel(path: Path) -> Iterator[Row]:
    sides = {"source": path}
    for name in ("target", "doi"):
        sides[name] = path.with_name(path.name.replace(".source", f".{name}"))
    if not sides["target"].is_file():
        raise DataError(f"{path}: its summaries '{sides['target'].name}' are not beside it")
    if not sides["doi"].is_file():
        del sides["doi"]
    for rows in zip_longest(*(files.lines(side) for side in sides.values())):
        for row, side in zip(rows, sides.values(), strict=True):
            if row is None:
                raise DataError(
                    f"{side}: has fewer lines than the files beside it; line n of each is one review"
                )
        broken = next((row.value for row in rows if isinstance(row.value, DataError)), None)
        yield rows[0]._replace(value=broken or dict(zip(sides, (row.value for row in rows), strict=True)))


def _reviews(path: Path) -> Iterator[Row]:
    """One row {id, document, target} per review, in the order of the inputs; only the targets are held."""
    targets = path.with_name(path.name.replace("-inputs.", "-targets."))
    inputs = path.with_name(path.name.replace("-targets.", "-inputs."))
    if not targets.is_file():
        raise DataError(f"{path}: its summaries '{targets.name}' are not beside it")
    held: dict[str, str] = {}
    for row in files.read(targets):
        try:
            if isinstance(row.value, DataError):
                raise row.value
            review, target = member(row.value, "ReviewID"), member(row.value, "Target")
            held[review] = target
            if not inputs.is_file() or inputs == targets:
                background = _TAG.sub("", member(row.value, "Background")).strip()
                yield row._replace(value={"id": review, "document": background, "target": target})
        except DataError as error:
            yield row._replace(value=error)
    if inputs.is_file() and inputs != targets:
        yield from _studies(inputs, held)


def _studies(inputs: Path, targets: dict[str, str]) -> Iterator[Row]:
    """The inputs' rows of one review stand together."""
    first: Row | None = None
    open_review, studies = "", list[str]()
    for row in files.read(inputs):
        try:
            if isinstance(row.value, DataError):
                raise row.value
            review = member(row.value, "ReviewID")
            study = "\n".join(
                text for name in ("Title", "Abstract") if (text := member(row.value, name).strip())
            )
        except DataError as error:
            yield row._replace(value=error)
            continue
        if first is not None and review != open_review:
            yield _joined(first, open_review, studies, targets)
            first, studies = None, []
        first, open_review = first or row, review
        studies.append(study)
    if first is not None:
        yield _joined(first, open_review, studies, targets)


def _joined(row: Row, review: str, studies: list[str], targets: dict[str, str]) -> Row:
    if review not in targets:
        return row._replace(value=DataError(f"review {review} has no summary in the targets file"))
    return row._replace(value={"id": review, "document": "\n\n".join(studies), "target": targets[review]})
