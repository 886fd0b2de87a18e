import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from outlay.data.aci_bench import AciBench
from outlay.errors import DataError

DATA = Path(__file__).parents[2] / "../shared/data/clinical/aci-bench"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")
RECORDS = {
    "train": 67,
    "valid": 20,
    "clinicalnlp_taskB_test1": 40,
    "clinicalnlp_taskC_test2": 40,
    "clef_taskC_test3": 40,
}


@real
@pytest.mark.parametrize("name", RECORDS)
def test_every_real_file(name):
    path = DATA / "challenge_data" / f"{name}.csv"
    examples = list(AciBench(path=str(path), split="all").examples())
    assert len(examples) == RECORDS[name]
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = {row["encounter_id"]: row for row in csv.DictReader(file)}
    for example in examples:
        assert example.document == rows[example.id]["dialogue"]
        assert example.references == (rows[example.id]["note"].strip(),)
    assert {example.split for example in examples} <= ({"test"} if "test" in name else {"train", "tune"})


@real
def test_a_folder_holds_all_sets_but_not_their_metadata():
    examples = list(AciBench(path=str(DATA), split="all").examples())
    assert len({example.id for example in examples}) == 207
    assert Counter(example.split for example in examples)["test"] == 120


@real
def test_the_challenge_json_has_the_same_dialogues():
    listed = list(AciBench(path=str(DATA / "challenge_data_json/valid_full.json"), split="all").examples())
    table = list(AciBench(path=str(DATA / "challenge_data/valid.csv"), split="all").examples())
    assert len(listed) == 20
    assert sorted(len(example.document.split()) for example in listed) == pytest.approx(
        sorted(len(example.document.split()) for example in table), abs=5
    )


def test_the_note_as_the_document_has_no_gold(tmp_path):
    (tmp_path / "train.csv").write_text("dataset,encounter_id,dialogue,note\nx,D1,[doctor] hi,Fine.\n")
    (example,) = AciBench(path=str(tmp_path), split="all", document="note").examples()
    assert (example.document, example.references) == ("Fine.", ())
    assert not AciBench(document="note").has_gold
    assert AciBench().has_gold


def test_line_breaks_crlf_and_a_byte_order_mark(tmp_path):
    text = 'dataset,encounter_id,dialogue,note\r\nx,D1,"[doctor] hi\n[patient] hello","PLAN\n\nRest."\r\n'
    (tmp_path / "test1.csv").write_bytes(text.encode("utf-8-sig"))
    (example,) = AciBench(path=str(tmp_path / "test1.csv")).examples()
    assert (example.document, example.references) == ("[doctor] hi\n[patient] hello", ("PLAN\n\nRest.",))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.csv", "encounter_id,dialogue\nD1,hi\n", "record 1 .*has no field 'note'"),
        ("train.csv", "encounter_id,dialogue,note\nD1,hi,\n", "record 1 .*the reference is empty"),
        ("train.csv", "", "holds no records"),
        ("v.json", json.dumps({"data": [{"src": "hi", "tgt": "Fine."}]}), "encounter 1: has no field 'file'"),
        ("v.json", json.dumps([{"src": "hi"}]), "is not the challenge's"),
        ("v.json", '{"data": [', "is not valid JSON"),
    ],
)
def test_files_that_are_not_the_format(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        list(AciBench(path=str(tmp_path / name), split="all").examples())


def test_a_folder_without_encounters(tmp_path):
    (tmp_path / "train_metadata.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match="holds no CSV of encounters"):
        list(AciBench(path=str(tmp_path)).examples())
