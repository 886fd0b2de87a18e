"""L-Eval (An et al. 2023): long documents with several questions each; one JSON line is one document."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from outlay.data import Dataset, Example, PromptText, files, hash_split
from outlay.data.files import Row, each, member, texts
from outlay.errors import ConfigError, DataError, nearest

LETTERS = ("A", "B", "C", "D")


@dataclass(frozen=True)
class Task:
    """One of L-Eval's tasks: its kind of answer, and whether every document is asked for a summary of itself."""

    answer: str
    choices: tuple[str, ...] = ()
    summary: bool = False
    closed: bool = False


TASKS = {
    "codeU": Task("span", closed=True),
    "coursera": Task("span", closed=True),  # a set of letters, so no single label
    "gsm100": Task("number", closed=True),
    "quality": Task("label", LETTERS, closed=True),
    "sci_fi": Task("label", ("True", "False"), closed=True),
    "topic_retrieval_longchat": Task("span", closed=True),
    "tpo": Task("label", LETTERS, closed=True),
    "financial_qa": Task("text"),
    "gov_report_summ": Task("text", summary=True),
    "legal_contract_qa": Task("text"),
    "meeting_summ": Task("text"),  # query-based
    "multidoc_qa": Task("text"),
    "narrative_qa": Task("text"),
    "natural_question": Task("text"),
    "news_summ": Task("text", summary=True),
    "paper_assistant": Task("text"),
    "patent_summ": Task("text", summary=True),
    "review_summ": Task("text", summary=True),
    "scientific_qa": Task("text"),
    "tv_show_summ": Task("text", summary=True),
}

_ASK = "{% if context %}{{ context }}\n\n{% endif %}{{ question }}"
_PROMPTS = {
    "number": PromptText(
        user=_ASK + '\nEnd with "The answer is N", where N is a number.', max_new_tokens=160
    ),
    "label": PromptText(user=_ASK + "\n\nAnswer with one of: {{ choices | join(', ') }}.", max_new_tokens=8),
    "span": PromptText(user=_ASK + "\n\nGive only the answer.", max_new_tokens=32),
    "text": PromptText(user=_ASK + "\n\nAnswer briefly.", max_new_tokens=96),
}
_SUMMARY = PromptText(user="{{ context }}\n\n{{ meta.instruction }}", max_new_tokens=256)


@dataclass(frozen=True, kw_only=True)
class LEval(Dataset):
    """One task of L-Eval. All questions of a document are in one split, given by the document's hash."""

    task: str | None = None

    name: ClassVar[str] = "leval"
    aspects: ClassVar[tuple[str, ...]] = ("the purpose", "the main points", "the conclusions")

    def __post_init__(self) -> None:
        if self.task is not None and self.task not in TASKS:
            raise ConfigError(f"task={self.task}: {nearest(self.task, TASKS)}")
        if self._task().summary and self.query == "question":
            raise ConfigError(
                f"query=question: the task {self._name()} asks for a summary and has no question. "
                "Use dataset.query=centroid or template"
            )

    @property
    def answer(self) -> str:  # type: ignore[override]
        return self._task().answer

    @property
    def prompt(self) -> PromptText:  # type: ignore[override]
        return _SUMMARY if self._task().summary else _PROMPTS[self.answer]

    def _name(self) -> str:
        """The option, else the file's name; a folder and the hub hold every task, so there it is quality."""
        named = files.stem(Path(self.path)) if self.path else ""
        return self.task or (named if named in TASKS else "quality")

    def _task(self) -> Task:
        return TASKS[self._name()]

    def rows(self) -> Iterator[Example | DataError]:
        """The questions of the task's file; a folder is searched for it; null gives the hub's.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        source = files.locate(self.path, "L4NLP/LEval", (*files.JSON_SUFFIXES, ".parquet"), folder=True)
        if isinstance(source, str):
            file = f"LEval/{'Exam' if self._task().closed else 'Generation'}/{self._name()}.jsonl"
            rows = files.hub(source, "test", file=file, local=f"{self._name()}.jsonl")
        else:
            rows = files.read(self._file(source))
        return each(_questions(rows), self._example)

    def _file(self, source: Path) -> Path:
        if source.is_file():
            if self.task is None and files.stem(source) not in TASKS:
                raise DataError(
                    f"dataset.path: '{source}' names no task of L-Eval; say which one it is with dataset.task"
                )
            return source
        found = sorted(source.rglob(f"{self._name()}.jsonl"))
        if not found:
            held = sorted({file.stem for file in source.rglob("*.jsonl") if file.stem in TASKS})
            raise DataError(
                f"dataset.task={self._name()}: the folder '{source}' holds no {self._name()}.jsonl. "
                f"It holds: {', '.join(held) or 'no task of L-Eval'}"
            )
        return found[0]

    def _example(self, row: Row) -> Example:
        name, task = self._name(), self._task()
        document, number, instruction, output = row.value
        return Example(
            id=f"{name}-{row.number}-{number}",
            question="" if task.summary else instruction.strip(),
            document=document,
            references=(gold(output, task),),
            choices=task.choices,
            split=hash_split(f"{name}-{row.number}"),
            meta={"instruction": instruction.strip()} if task.summary else {},
        )


def _questions(rows: Iterator[Row]) -> Iterator[Row]:
    """One row (document, number, instruction, output) per question; a document that cannot be read is one bad row."""
    for row in rows:
        try:
            if isinstance(row.value, DataError):
                raise row.value
            document = member(row.value, "input")
            instructions, outputs = texts(row.value, "instructions"), texts(row.value, "outputs")
            if len(instructions) != len(outputs):
                raise DataError(f"has {len(instructions)} instructions and {len(outputs)} outputs")
        except DataError as error:
            yield row._replace(value=error)
            continue
        for number, (instruction, output) in enumerate(zip(instructions, outputs, strict=True)):
            place = f"{row.place}: question {number + 1}"
            yield row._replace(place=place, value=(document, number, instruction, output))


def gold(output: str, task: Task) -> str:
    """The reference of an output: the letter of "(B) because …" for a choice, else the text.

    Raises:
        DataError: it names none of the task's choices.
    """
    if task.choices:
        names = "|".join(task.choices)
        hit = re.match(rf"\s*\(?({names})\b", output)
        if hit is None:
            raise DataError(f"the output names none of {', '.join(task.choices)}")
        return hit[1]
    return output.strip()
