"""HotpotQA (Yang et al. 2018), distractor setting: two-hop questions over ten paragraphs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from outlay.data import Dataset, Example, Fact, PromptText, files
from outlay.data.files import Row, each, member
from outlay.errors import DataError

HELD_OUT = ("dev", "validation", "test")  # the published test answers are hidden, so the dev set is tested on
Paragraph = tuple[str, Sequence[str]]
"""A title and its sentences, which carry their own leading spaces."""


@dataclass(frozen=True, kw_only=True)
class HotpotQA(Dataset):
    """Rows in the original schema or the hub's. The published dev set is split "test", as its test answers are hidden."""

    name: ClassVar[str] = "hotpotqa"
    answer: ClassVar[str] = "span"
    prompt: ClassVar[PromptText] = PromptText(
        user="{% if context %}{{ context }}\n\n{% endif %}Question: {{ question }}\n"
        "Answer with a name, a short phrase, yes or no. Give only the answer.",
        max_new_tokens=24,
    )

    def rows(self) -> Iterator[Example | DataError]:
        """The file's questions; null gives the hub's.

        Raises:
            DataError: no such file, or it is not in the format.
        """
        source = files.locate(self.path, "hotpotqa/hotpot_qa", (*files.JSON_SUFFIXES, ".parquet"))
        if isinstance(source, str):
            for part in ("train", "validation"):
                if self.split == "all" or (self.split == "test") == (part == "validation"):
                    rows = files.hub(source, part, config="distractor", local="hotpot_dev_distractor_v1.json")
                    yield from each(rows, partial(_example, part))
        else:
            yield from each(files.read(source), partial(_example, files.stem(source)))


def _example(part: str, row: Row) -> Example:
    value = row.value
    question, answer = member(value, "question"), member(value, "answer")
    if "context" not in value:
        raise DataError(
            "has no field 'context', as in ReAct's simplified file. Its questions can be asked closed-book: "
            "dataset=table dataset.columns.document=null dataset.columns.question=question "
            "dataset.columns.reference=answer dataset.answer=span"
        )
    paragraphs = _paragraphs(value["context"])
    document, facts = layout(paragraphs, _supporting(member(value, "supporting_facts", (list, dict))))
    example_id = member(value, "_id" if "_id" in value else "id")
    return Example(
        id=example_id,
        question=question.strip(),
        document=document,
        references=(answer.strip(),),
        facts=facts,
        split=files.named_split(part, example_id, HELD_OUT),
        meta={name: value[name] for name in ("type", "level") if name in value},
    )


def _paragraphs(context: Any) -> list[Paragraph]:
    if isinstance(context, dict):  # the hub: parallel lists
        titles, sentences = files.texts(context, "title"), member(context, "sentences", list)
        if len(titles) != len(sentences):
            raise DataError(f"field 'context' has {len(titles)} titles and {len(sentences)} paragraphs")
        context = list(zip(titles, sentences, strict=True))
    if not isinstance(context, list) or not context:
        raise DataError("field 'context' is no list of paragraphs")
    for paragraph in context:
        match paragraph:
            case (str(), [*sentences]) if all(isinstance(sentence, str) for sentence in sentences):
                continue
        raise DataError("field 'context' holds something else than [title, [sentences]]")
    return [(title, sentences) for title, sentences in context]


def _supporting(facts: Any) -> list[tuple[str, int]]:
    if isinstance(facts, dict):
        titles, numbers = files.texts(facts, "title"), member(facts, "sent_id", list)
        if len(titles) != len(numbers):
            raise DataError(
                f"field 'supporting_facts' has {len(titles)} titles and {len(numbers)} sentence numbers"
            )
        facts = list(zip(titles, numbers, strict=True))
    for fact in facts:
        match fact:
            case (str(), int()):
                continue
        raise DataError("field 'supporting_facts' holds something else than [title, sentence number]")
    return [(title, sentence) for title, sentence in facts]


def layout(
    paragraphs: Sequence[Paragraph], supporting: Sequence[tuple[str, int]]
) -> tuple[str, tuple[Fact, ...]]:
    """The document, each paragraph as "Title\\nsentences", and the supporting sentences with their spans.

    A supporting fact that points past its paragraph has no text and is left out: the published files hold some.
    """
    wanted = set(supporting)
    pieces: list[str] = []
    facts: list[Fact] = []
    position = 0
    for title, sentences in paragraphs:
        body = "".join(sentences)
        start = position + len(title) + 1
        for number, sentence in enumerate(sentences):
            text = sentence.strip()
            if (title, number) in wanted and text:
                begin = start + len(sentence) - len(sentence.lstrip())
                facts.append(Fact(text, ((begin, begin + len(text)),)))
                wanted.discard((title, number))
            start += len(sentence)
        pieces.append(f"{title}\n{body}")
        position += len(pieces[-1]) + 2
    return "\n\n".join(pieces), tuple(facts)
