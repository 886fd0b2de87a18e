import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.data import files
from outlay.data.gsm8k import Gsm8k, _example, gold
from outlay.errors import DataError

DATA = Path(__file__).parents[2] / "../shared/data/gsm8k"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")


def test_gold_is_the_number_after_the_last_mark():
    assert gold("<<2*5=10>>10 \n#### 10") == "10"
    assert gold("#### 3\nNo.\n#### 1,234,567") == "1234567"
    assert gold("#### $-0.5 ") == "-0.5"


@given(st.integers(-(10**9), 10**9))
def test_thousands_commas_do_not_matter(number):
    assert gold(f"So it is {number}.\n#### {number:,}") == str(number)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("18", "no '####'"),
        ("#### ", "no number"),
        ("#### eighteen", "'eighteen'"),
        ("#### 1.2.3", "no number"),
    ],
)
def test_an_answer_without_its_number(answer, message):
    with pytest.raises(DataError, match=message):
        gold(answer)


@real
def test_the_test_file():
    examples = list(Gsm8k(path=str(DATA / "test.jsonl")).examples())
    assert len(examples) == 1319
    assert [example.id for example in examples] == [f"test-{number}" for number in range(1319)]
    assert {example.split for example in examples} == {"test"}
    assert examples[0].references == ("18",)
    assert all(float(example.references[0]).is_integer() for example in examples)
    assert sum("," in row for row in (DATA / "test.jsonl").read_text().splitlines() if "#### " in row) > 0
    assert not any("," in example.references[0] for example in examples)


@real
def test_the_training_file_gives_train_and_tune_only():
    splits = Counter(
        example.split for example in Gsm8k(path=str(DATA / "train.jsonl"), split="all").examples()
    )
    assert splits.keys() == {"train", "tune"}
    assert splits.total() == 7473
    assert splits["train"] / 7473 == pytest.approx(5 / 7, abs=0.02)


@real
def test_a_folder_gives_both_files_and_the_same_splits():
    train = list(Gsm8k(path=str(DATA), split="train").examples())
    assert train == list(Gsm8k(path=str(DATA / "train.jsonl"), split="train").examples())
    assert len(list(Gsm8k(path=str(DATA), split="all").examples())) == 1319 + 7473


@real
def test_a_hub_row_is_the_local_row():
    row = json.loads((DATA / "test.jsonl").read_text().split("\n", 1)[0])
    local = next(Gsm8k(path=str(DATA / "test.jsonl")).examples())
    assert _example("test", files.Row(0, "openai/gsm8k test: row 1", row)) == local


def test_bad_rows_are_named_or_skipped(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"question": "1+1?", "answer": "#### 2"}\n{"question": "2+2?"}\n{"question"\n{"question": " ", "answer": "#### 3"}\n'
    )
    with pytest.raises(
        DataError, match=r"mine\.jsonl: line 2: has no field 'answer'.*dataset\.on_bad_row=skip"
    ):
        list(Gsm8k(path=str(path), split="all").examples())
    skipped = []
    examples = list(Gsm8k(path=str(path), split="all", on_bad_row="skip").examples(skipped))
    assert [example.references for example in examples] == [("2",)]
    assert len(skipped) == 3
    assert "line 3: is not valid JSON" in str(skipped[1])


@pytest.mark.parametrize("name", ["tset.jsonl", "sub", "notes.txt"])
def test_a_path_that_is_no_data(tmp_path, name):
    (tmp_path / "test.jsonl").write_text("{}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(
        DataError, match=r"dataset\.path.*(Did you mean 'test\.jsonl'|train\.jsonl|reads \.json)"
    ):
        next(Gsm8k(path=str(tmp_path / name)).examples())


def test_the_hub_is_asked_only_for_the_sets_that_a_split_needs(monkeypatch):
    asked = []

    def hub(repo, split, **options):
        asked.append((repo, split, options))
        yield files.Row(0, f"{repo} {split}: row 1", {"question": split, "answer": "#### 1"})

    monkeypatch.setattr(files, "hub", hub)
    found = {split: [e.split for e in Gsm8k(split=split).examples()] for split in ("test", "all")}
    assert found["test"] == ["test"]
    assert len(found["all"]) == 2
    assert [(repo, split) for repo, split, _ in asked] == [
        ("openai/gsm8k", part) for part in ("test", "train", "test")
    ]
