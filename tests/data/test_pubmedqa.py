import hashlib
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.data import files, hash_split
from outlay.data.pubmedqa import PubMedQA, _example
from outlay.errors import DataError

DATA = Path(__file__).parents[2] / "../shared/data/pubmedqa"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")

FIELDS = {
    "QUESTION": "Does tea help?",
    "CONTEXTS": ["Tea is drunk.", "It helped two of three."],
    "LABELS": ["BACKGROUND", "RESULTS"],
    "final_decision": "maybe",
    "LONG_ANSWER": "The conclusion.",
    "YEAR": "2011",
}
HUB_ROW = {
    "pubid": 12,
    "question": FIELDS["QUESTION"],
    "context": {"contexts": FIELDS["CONTEXTS"], "labels": FIELDS["LABELS"], "meshes": []},
    "long_answer": FIELDS["LONG_ANSWER"],
    "final_decision": "maybe",
}


def parse(value, key="12", test_ids=frozenset()):
    return _example(test_ids, files.Row(0, "mine.json: record 1", value, key))


def test_the_abstract_with_its_labels_and_without_its_conclusion():
    example = parse(FIELDS)
    assert example.document == "BACKGROUND:\nTea is drunk.\n\nRESULTS:\nIt helped two of three."
    assert "conclusion" not in repr(example)
    assert example.references == ("maybe",)
    assert example.choices == ("yes", "no", "maybe")
    assert parse({**FIELDS, "LABELS": []}).document == "Tea is drunk.\n\nIt helped two of three."


def test_a_hub_row_is_the_same_example_without_its_year():
    hub, local = parse(HUB_ROW, key=""), parse(FIELDS)
    assert (hub.id, hub.question, hub.document, hub.references) == (
        local.id,
        local.question,
        local.document,
        local.references,
    )
    assert hub.split == local.split == hash_split("12")
    assert local.meta == {"year": "2011"}


def test_official_test_ids_leave_no_other_test_example():
    assert parse(FIELDS, "12", frozenset({"12"})).split == "test"
    assert all(parse(FIELDS, str(pmid), frozenset({"x"})).split in ("train", "tune") for pmid in range(50))


@real
def test_the_real_file_gives_the_500_official_test_questions():
    examples = list(PubMedQA(path=str(DATA / "ori_pqal.json")).examples())
    truth = json.loads((DATA / "test_ground_truth.json").read_text())
    assert {example.id: example.references[0] for example in examples} == truth
    assert Counter(e.references[0] for e in examples) == {"yes": 276, "no": 169, "maybe": 55}
    digest = hashlib.sha256("\n".join(sorted(e.id for e in examples)).encode()).hexdigest()
    assert digest == "406e3b89eff577ed38571eca5a5819734a6f49ac0437d171b6c64e5c3cd195f8"


@real
def test_all_splits_of_the_real_file():
    examples = list(PubMedQA(path=str(DATA / "ori_pqal.json"), split="all").examples())
    raw = json.loads((DATA / "ori_pqal.json").read_text())
    assert Counter(e.references[0] for e in examples) == {"yes": 552, "no": 338, "maybe": 110}
    assert Counter(e.split for e in examples)["test"] == 500
    for example in examples:
        assert all(text in example.document for text in raw[example.id]["CONTEXTS"])
        assert raw[example.id]["LONG_ANSWER"] not in example.document


@real
def test_the_test_ids_may_lie_elsewhere_or_be_absent(tmp_path):
    (tmp_path / "ori_pqal.json").write_bytes((DATA / "ori_pqal.json").read_bytes())
    path = str(tmp_path / "ori_pqal.json")
    hashed = [example.id for example in PubMedQA(path=path).examples()]
    assert all(hash_split(pmid) == "test" for pmid in hashed)
    assert len(hashed) not in (0, 500)
    named = PubMedQA(path=path, test_ids=str(DATA / "test_ground_truth.json"))
    assert len(list(named.examples())) == 500
    with pytest.raises(DataError, match=r"dataset\.test_ids: no file"):
        list(PubMedQA(path=path, test_ids="nowhere.json").examples())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"final_decision": "perhaps"}, "'final_decision' is 'perhaps', not one of yes, no, maybe"),
        ({"CONTEXTS": "text"}, "field 'CONTEXTS' is text, not a list"),
        ({"CONTEXTS": [1, 2]}, "field 'CONTEXTS' holds a number, not only texts"),
        ({"LABELS": ["RESULTS"]}, "2 CONTEXTS and 1 LABELS"),
    ],
)
def test_rows_of_the_wrong_shape(tmp_path, change, message):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"1": FIELDS, "2": {**FIELDS, **change}}))
    good, bad = PubMedQA(path=str(path)).rows()
    assert good.id == "1"
    assert isinstance(bad, DataError)
    assert f"{path}: record 2 (line 1) '2': " in str(bad)
    assert message in str(bad)


@given(
    st.none() | st.integers() | st.lists(st.integers() | st.text()) | st.dictionaries(st.text(), st.text()),
    st.sampled_from([*FIELDS]),
)
def test_no_value_of_a_field_breaks_the_reader(value, name):
    for row, key in (
        ({**FIELDS, name: value}, "1"),
        ({**HUB_ROW, name.lower(): value}, ""),
        (value, ""),
        (value, "1"),
    ):
        with suppress(DataError):
            parse(row, key)
