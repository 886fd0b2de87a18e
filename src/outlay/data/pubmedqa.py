"""PubMedQA (Jin et al. 2019), PQA-L in the reasoning-required setting: the abstract without its conclusion."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from outlay.data import Dataset, Example, PromptText, files, hash_split
from outlay.data.files import Row, each, member, texts
from outlay.errors import DataError

LABELS = ("yes", "no", "maybe")
TEST_IDS = "test_ground_truth.json"


@dataclass(frozen=True, kw_only=True)
class PubMedQA(Dataset):
    """Rows in the original schema (PMID -> fields) or the hub's.

    The official test set is the keys of `test_ground_truth.json`, taken from `test_ids` or from beside the
    data file; the other examples are train and tune. Without that file, the hash of the PMID splits.
    """

    test_ids: str | None = None

    name: ClassVar[str] = "pubmedqa"
    answer: ClassVar[str] = "label"
    prompt: ClassVar[PromptText] = PromptText(
        user="{% if context %}{{ context }}\n\n{% endif %}Question: {{ question }}\n"
        "Answer with one word: yes, no or maybe.",
        max_new_tokens=8,
    )

    def rows(self) -> Iterator[Example | DataError]:
        """The file's questions; null gives the hub's.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        source = files.locate(self.path, "qiaojin/PubMedQA", (*files.JSON_SUFFIXES, ".parquet"))
        if isinstance(source, str):
            rows = files.hub(source, "train", config="pqa_labeled", local="ori_pqal.json")
        else:
            rows = files.read(source)
        return each(rows, partial(_example, self._test_ids(source)))

    def _test_ids(self, source: Path | str) -> frozenset[str]:
        if self.test_ids is not None:
            path = Path(self.test_ids).expanduser()
            if not path.is_file():
                raise DataError(f"dataset.test_ids: no file '{self.test_ids}'")
        elif isinstance(source, Path) and (source.parent / TEST_IDS).is_file():
            path = source.parent / TEST_IDS
        else:
            return frozenset()
        return frozenset(row.key or str(row.value) for row in files.read(path))  # or a plain list


def _example(test_ids: frozenset[str], row: Row) -> Example:
    pmid, fields = (row.key, row.value) if row.key else _hub(row.value)
    label = member(fields, "final_decision").strip().lower()
    if label not in LABELS:
        raise DataError(f"field 'final_decision' is '{label}', not one of {', '.join(LABELS)}")
    return Example(
        id=pmid,
        question=member(fields, "QUESTION").strip(),
        document=_abstract(texts(fields, "CONTEXTS"), texts(fields, "LABELS") if "LABELS" in fields else []),
        references=(label,),
        choices=LABELS,
        split=_split(pmid, test_ids),
        meta={"year": fields["YEAR"]} if "YEAR" in fields else {},
    )


def _split(pmid: str, test_ids: frozenset[str]) -> str:
    if not test_ids:
        return hash_split(pmid)
    return "test" if pmid in test_ids else files.train_or_tune(pmid)


def _hub(value: Any) -> tuple[str, dict[str, Any]]:
    context = member(value, "context", dict)
    fields = {
        "QUESTION": member(value, "question"),
        "CONTEXTS": texts(context, "contexts"),
        "LABELS": texts(context, "labels"),
        "final_decision": member(value, "final_decision"),
    }
    return str(member(value, "pubid", (int, str))), fields


def _abstract(contexts: list[str], labels: list[str]) -> str:
    if labels and len(labels) != len(contexts):
        raise DataError(f"has {len(contexts)} CONTEXTS and {len(labels)} LABELS")
    if not labels:  # unlabelled abstracts are plain paragraphs
        return "\n\n".join(contexts)
    return "\n\n".join(f"{label}:\n{text}" for label, text in zip(labels, contexts, strict=True))
