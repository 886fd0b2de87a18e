"""Two-hop questions over invented worlds: the passages prove the answer, and the file is a HotpotQA file."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.data import hash_split
from outlay.data.hotpotqa import HotpotQA
from outlay.data.twohop import TwoHop, hotpot_rows, write_hotpotqa
from outlay.errors import ConfigError
from outlay.schema import component
from outlay.score.match import matches, parse


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 8), st.sampled_from((0.0, 0.3, 1.0)))
def test_spans_are_supporting_sentences_and_hold_the_answer(
    seed: int, distractors: int, comparison: float
) -> None:
    data = TwoHop(seed=seed, count=20, split="all", max_distractors=distractors, comparison=comparison)
    for example in data.examples():
        assert len(example.facts) == example.meta["hops"]
        for fact in example.facts:
            ((start, end),) = fact.spans
            assert example.document[start:end] == fact.text and fact.text.endswith(".")
        assert 1 <= example.meta["difficulty"] <= 4
        proof = " ".join(fact.text for fact in example.facts)
        answer = example.references[0]
        assert answer in ("yes", "no") or answer in proof or answer in example.question
        assert matches(parse(answer, "span"), example.references, "span")
        if example.meta["type"] == "bridge":
            assert answer not in example.question + example.meta["cue"]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_comparisons_are_decided_by_the_passages(seed: int) -> None:
    data = TwoHop(seed=seed, count=20, split="all", min_hops=2, comparison=1.0)
    for example in data.examples():
        ends = {fact.text.rstrip(".").rsplit(" ", 2)[-1] for fact in example.facts}
        if example.references[0] in ("yes", "no"):
            assert (example.references[0] == "yes") == (len(ends) == 1)
        elif example.question.startswith("Which town has more"):
            most = max(example.facts, key=lambda fact: int(fact.text.split()[-2]))
            assert most.text.startswith(example.references[0])
        else:
            first = min(example.facts, key=lambda fact: int(fact.text.rstrip(".").split()[-1]))
            assert example.references[0] in first.text


def test_a_bridge_needs_both_passages() -> None:
    for row in hotpot_rows(TwoHop(count=200, min_hops=2, comparison=0)):
        passages = dict(row["context"])
        (first, number), (second, other) = row["supporting_facts"]
        assert first in row["question"] and second not in row["question"]
        assert second in passages[first][number]  # the first names the second
        assert row["answer"] in passages[second][other]


def test_the_dials_set_hops_and_distractors() -> None:
    easy = TwoHop(count=50, max_hops=1, max_distractors=0)
    hard = TwoHop(count=50, min_hops=2, min_distractors=8)
    assert {(len(row["context"]), row["level"], row["difficulty"]) for row in hotpot_rows(easy)} == {
        (1, "easy", 1)
    }
    assert {(len(row["context"]), row["level"], row["difficulty"]) for row in hotpot_rows(hard)} == {
        (10, "hard", 4)
    }
    kinds = {(row["type"], row["answer"] in ("yes", "no")) for row in hotpot_rows(TwoHop())}
    assert kinds == {("bridge", False), ("comparison", False), ("comparison", True)}


def test_yes_and_no_are_about_as_often() -> None:
    answers = [row["answer"] for row in hotpot_rows(TwoHop(count=600, min_hops=2, comparison=1.0))]
    yes, no = answers.count("yes"), answers.count("no")
    assert 0.35 < yes / (yes + no) < 0.65


def test_the_first_questions_are_the_same_bytes_on_every_machine() -> None:
    def digest(seed: int) -> str:
        return hashlib.sha256(json.dumps(list(hotpot_rows(TwoHop(seed=seed, count=50)))).encode()).hexdigest()

    assert digest(0) == "f079043a84b1616f66aea64ca4a103be90fe210af79eb989d283ebb23794168c"
    assert digest(1) != digest(0)


def test_the_written_file_is_in_the_original_schema_and_reads_back(tmp_path: Path) -> None:
    data = TwoHop(count=25, split="all")
    path = tmp_path / "hotpot_dev_distractor_v1.json"
    assert write_hotpotqa(data, path) == 25
    rows = json.loads(path.read_text(encoding="utf-8"))
    for row in rows:
        assert list(row) == ["_id", "question", "answer", "supporting_facts", "context", "type", "level"]
        sentences = dict(row["context"])
        assert len(sentences) == len(row["context"])
        assert all(number < len(sentences[title]) for title, number in row["supporting_facts"])
    back = list(HotpotQA(path=str(path), split="all").examples())
    assert [(one.id, one.question, one.document, one.facts) for one in back] == [
        (one.id, one.question, one.document, one.facts) for one in data.examples()
    ]


@pytest.mark.parametrize("split", ["train", "tune", "test", "all"])
def test_split_and_limit(split: str) -> None:
    every = list(component("dataset", "twohop", split=split).examples())
    assert every and all(example.split == hash_split(example.id) for example in every)
    assert all(split in ("all", example.split) for example in every)
    assert list(component("dataset", "twohop", split=split, limit=7).examples()) == every[:7]


@pytest.mark.parametrize("name", ["hops", "distractors"])
def test_a_range_the_wrong_way_round_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"dataset.min_{name}=2 is above dataset.max_{name}=1"):
        TwoHop(**{f"min_{name}": 2, f"max_{name}": 1})
