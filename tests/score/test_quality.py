"""Texts against gold: the official formulas, to the last digit."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from outlay.data import Example, Fact
from outlay.errors import ConfigError
from outlay.score.quality import (
    METRICS,
    Scored,
    bertscore_f1,
    exact_match,
    fact_recall_context,
    fact_recall_text,
    metrics_of,
    rouge_l,
    rouge_n,
    score,
    score_batch,
    token_f1,
)

DATA = Path(__file__).parents[2] / "../shared/data"
OFFICIAL = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
sentences = st.lists(
    st.sampled_from(
        ["the", "a", "patient", "patients", "was", "running", "runs", "ran", "2.5", "mg,", "Bleeding;", "é"]
    ),
    max_size=30,
).map(" ".join)


@pytest.mark.parametrize(
    ("prediction", "references", "em", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1, 1),
        ("Eiffel Tower in Paris", ["the Eiffel Tower"], 0, 2 * (2 / 4) * 1 / (2 / 4 + 1)),
        ("Chloë Agnew", ["Chloë Alexandra Adele Emily Agnew"], 0, 2 * 1 * (2 / 5) / (1 + 2 / 5)),
        ("yes, both are", ["yes"], 0, 0),  # HotpotQA: yes and no match whole or not at all
        ("yes", ["Yes."], 1, 1),
        ("no", ["no way"], 0, 0),
        ("a cat", ["dog", "cat"], 1, 1),  # the best reference
        ("cat cat cat", ["cat"], 0, 2 * (1 / 3) * 1 / (1 / 3 + 1)),  # repeated words are not counted twice
        ("", ["cat"], 0, 0),
        ("the", ["a"], 1, 1),  # nothing left on either side
        ("cat", "cat", 1, 1),  # one reference, not its letters
    ],
)
def test_answers(prediction: str, references: list[str], em: float, f1: float) -> None:
    assert exact_match(prediction, references) == em
    assert token_f1(prediction, references) == pytest.approx(f1, abs=1e-15)


@given(sentences, st.lists(sentences, min_size=1, max_size=3))
def test_rouge_is_the_official_one(prediction: str, references: list[str]) -> None:
    official = OFFICIAL.score_multi(references, prediction)
    assert rouge_n(prediction, references, 1) == official["rouge1"].fmeasure
    assert rouge_n(prediction, references, 2) == official["rouge2"].fmeasure
    assert rouge_l(prediction, references) == official["rougeL"].fmeasure


@given(st.text(max_size=80), st.text(max_size=80))
def test_every_text_has_a_score(prediction: str, reference: str) -> None:
    official = OFFICIAL.score(reference, prediction)
    batch = [Scored(prediction, (reference,))]
    for name in ("rouge1", "rouge2", "rougeL"):
        assert score((name,), batch)[name] == [official[name].fmeasure]
    assert 0 <= token_f1(prediction, [reference]) <= 1
    assert token_f1(prediction, [prediction]) == exact_match(prediction, [prediction]) == 1


def test_rouge_is_the_official_one_on_clinical_notes() -> None:
    path = DATA / "replay/aci_bench_predictions/test1GPT-4_.csv"
    if not path.exists():
        pytest.skip("the ACI-Bench predictions are not here")
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))[:5]
    batch = [Scored(row["note"], (row["Reference Summaries"],)) for row in rows]
    ours = score(("rouge1", "rouge2", "rougeL"), batch)
    for index, row in enumerate(rows):
        official = OFFICIAL.score(row["Reference Summaries"], row["note"])
        assert {name: values[index] for name, values in ours.items()} == {
            name: value.fmeasure for name, value in official.items()
        }


def test_without_references_a_metric_is_undefined() -> None:
    values = score(METRICS, [Scored("a text")])
    assert all(math.isnan(value) for column in values.values() for value in column)


FACTS = (
    Fact("warfarin", ((10, 18), (50, 58))),
    Fact("2.5 mg", ((20, 26),)),
    Fact("no fever", ((90, 98),)),
)


@pytest.mark.parametrize(
    ("spans", "recall"),
    [
        ([(0, 100)], 1),
        ([], 0),
        ([(10, 18)], 1 / 3),
        ([(45, 60)], 1 / 3),  # the second place that states it
        ([(0, 17)], 0),  # cut through
        ([(15, 26), (0, 15)], 2 / 3),  # two kept units that touch are one stretch
        ([(0, 14), (15, 26)], 1 / 3),
        ([(0, 100), (20, 22)], 1),  # units overlap
    ],
)
def test_fact_recall_of_a_context(spans: list[tuple[int, int]], recall: float) -> None:
    assert fact_recall_context(FACTS, spans) == pytest.approx(recall)


@pytest.mark.parametrize(
    ("text", "recall"),
    [
        ("Started on Warfarin, 2.5 mg daily; no  fever.", 1),
        ("warfarin 12.5 mg", 1 / 3),
        ("warfarin 25 mg", 1 / 3),
        ("afebrile", 0),
        ("", 0),
    ],
)
def test_fact_recall_of_a_text(text: str, recall: float) -> None:
    assert fact_recall_text(FACTS, text) == pytest.approx(recall)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 30)), max_size=8))
def test_fact_recall_is_coverage_character_by_character(pieces: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in pieces]
    kept = {place for start, end in spans for place in range(start, end)}
    stated = [any(set(range(*span)) <= kept for span in fact.spans) for fact in FACTS]
    assert fact_recall_context(FACTS, spans) == pytest.approx(sum(stated) / len(FACTS))


def test_facts_without_gold_are_undefined_not_zero() -> None:
    assert math.isnan(fact_recall_context((), [(0, 9)]))
    assert math.isnan(fact_recall_context((Fact("aspirin", ()),), [(0, 9)]))
    assert math.isnan(fact_recall_text((), "aspirin"))


def test_sets_of_metrics() -> None:
    assert metrics_of("auto", "number") == metrics_of("qa", "text")
    assert metrics_of("auto", "text") == metrics_of("summary", "span")
    assert {"exact_match", "token_f1"} <= set(metrics_of("auto", "span"))
    assert {"rouge1", "rouge2", "rougeL", "bertscore_f1", "fact_recall"} <= set(metrics_of("auto", "text"))
    assert metrics_of("all", "label") == tuple(METRICS)
    with pytest.raises(ConfigError, match="Did you mean 'summary'"):
        metrics_of("sumary", "text")
    with pytest.raises(ConfigError, match="unknown kind"):
        metrics_of("auto", "words")
    with pytest.raises(ConfigError, match="Did you mean 'rougeL'"):
        score(("rougel",), [])


def test_a_batch_gives_one_dict_per_example() -> None:
    document = Example("1", document="x" * 100, references=("warfarin",), facts=FACTS)
    closed = Example("2", question="?", references=("4",), facts=FACTS)
    first, second = score_batch("qa", "span", [document, closed], ["warfarin", "no fever"], [[(0, 30)], ()])
    assert first["exact_match"] == 1
    assert first["fact_recall"] == pytest.approx(2 / 3)  # by spans: there is a document
    assert second["exact_match"] == 0
    assert second["fact_recall"] == pytest.approx(1 / 3)  # by the answer's text
    assert score_batch("all", "span", [], [], []) == []


@pytest.mark.slow
def test_an_unknown_bertscore_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="bertscore_model=/nowhere/model"):
        bertscore_f1(["a"], [["b"]], model="/nowhere/model")


@pytest.mark.slow
def test_bertscore() -> None:
    near, far = "The patient was given warfarin.", "Stock prices fell sharply today."
    reference = "Warfarin was started for the patient."
    values = bertscore_f1(
        [near, far, near, near, "", "\u200b", reference],
        [[reference], [reference], [far, reference], [], [reference], [reference], [reference]],
    )
    assert values[0] > values[1] + 0.2
    assert values[2] == pytest.approx(values[0], abs=1e-5)  # the best reference
    assert math.isnan(values[3])
    assert values[4] == 0
    assert 0 <= values[5] < values[0]
    assert values[6] == pytest.approx(1, abs=1e-5)
    assert bertscore_f1([], []) == []


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(sentences, sentences)
def test_bertscore_does_not_depend_on_its_batch(first: str, second: str) -> None:
    together = bertscore_f1([first, second], [["a patient was running"]] * 2)
    alone = bertscore_f1([first], [["a patient was running"]]) + bertscore_f1(
        [second], [["a patient was running"]]
    )
    assert together == pytest.approx(alone, abs=1e-4)
