"""The context stage: what a sweep's points share, and what a truncated budget is filled with."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from outlay.context import stage
from outlay.context.pins import Retention
from outlay.context.stage import Stage
from outlay.data import Dataset, Example, PromptText
from outlay.schema import component

DOCUMENT = " ".join(
    f"Sentence {word} tells of {word}." for word in ("fever", "warfarin", "home", "weight", "oxygen")
)


@dataclass(frozen=True, kw_only=True)
class Notes(Dataset):
    query: str = "centroid"
    name = "notes"
    answer = "text"
    prompt = PromptText("")

    def rows(self) -> Iterator[Example]:
        yield Example("1", document=DOCUMENT)


@dataclass(frozen=True)
class Counted:
    """TF-IDF that counts its calls."""

    calls: list[int] = field(default_factory=list, compare=False)
    name = "counted"

    def embed(self, units: Sequence[str], queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append(len(units))
        found: tuple[np.ndarray, np.ndarray] = component("embedder", "tfidf").embed(units, queries)
        return found


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_problems", {})


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def made(
    embedder: Any, tokens: int, selector: str = "mmr", truncate: bool = False, unitizer: str = "sentence"
) -> Stage:
    budget = component("budget", "fixed", tokens=tokens, truncate=truncate)
    return Stage(
        dataset=Notes(),
        unitizer=component("unitizer", unitizer),
        embedder=embedder,
        selector=component("selector", selector),
        retention=Retention(),
        budget=budget,
        count=words,
        tokenizer="words",
        seed=0,
    )


def test_points_that_differ_in_selector_or_budget_embed_a_document_once() -> None:
    embedder = Counted()
    example = Example("1", document=DOCUMENT)
    shared = [
        made(embedder, tokens, selector).contexts(example)[0].context.text
        for selector in ("mmr", "rcd", "sliding")
        for tokens in (6, 12, 20)
    ]
    assert embedder.calls == [5]
    stage._problems.clear()
    alone = []
    for selector in ("mmr", "rcd", "sliding"):
        for tokens in (6, 12, 20):
            stage._problems.clear()
            alone.append(made(Counted(), tokens, selector).contexts(example)[0].context.text)
    assert shared == alone


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "KEPT_BYTES", 30_000)
    for at in range(20):
        made(Counted(), 12).contexts(Example(str(at), document=f"{DOCUMENT} Number {at}."))
    assert 0 < len(stage._problems) < 6
    assert sum(size for size, _ in stage._problems.values()) <= 30_000


@pytest.mark.parametrize("selector", ["lead", "mmr", "rcd", "sliding", "shuffled"])
def test_a_truncated_budget_is_filled_by_the_first_unit_however_large(selector: str) -> None:
    document = "word " * 100
    (sent,) = made(Counted(), 5, selector, truncate=True).contexts(Example("1", document=document))
    assert sent.context.tokens == 5
    (whole,) = made(Counted(), 5, selector).contexts(Example("1", document=document))
    assert whole.context.tokens == 0
