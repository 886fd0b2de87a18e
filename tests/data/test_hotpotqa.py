import hashlib
import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.data import files
from outlay.data.hotpotqa import HotpotQA, _example, layout
from outlay.errors import DataError

DATA = Path(__file__).parents[2] / "../shared/data/hotpotqa"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")

ROW = {
    "_id": "a1",
    "question": "Where was the maker of the Blue Kite born?",
    "answer": "Oslo",
    "type": "bridge",
    "level": "easy",
    "supporting_facts": [["Blue Kite", 0], ["Ada Berg", 1]],
    "context": [
        ["Blue Kite", ["Blue Kite was made by Ada Berg.", " It is blue."]],
        ["Ada Berg", ["Ada Berg is a maker.", " She was born in Oslo."]],
    ],
}
HUB_ROW = {
    **{name: ROW[name] for name in ("question", "answer", "type", "level")},
    "id": "a1",
    "supporting_facts": {"title": ["Blue Kite", "Ada Berg"], "sent_id": [0, 1]},
    "context": {
        "title": ["Blue Kite", "Ada Berg"],
        "sentences": [ROW["context"][0][1], ROW["context"][1][1]],
    },
}


def parse(value):
    return _example("mine", files.Row(0, "mine.json: record 1", value))


def test_the_document_and_the_spans_of_its_facts():
    example = parse(ROW)
    assert example.document == (
        "Blue Kite\nBlue Kite was made by Ada Berg. It is blue.\n\nAda Berg\nAda Berg is a maker. She was born in Oslo."
    )
    assert [fact.text for fact in example.facts] == [
        "Blue Kite was made by Ada Berg.",
        "She was born in Oslo.",
    ]
    assert example.references == ("Oslo",)
    assert example.meta == {"type": "bridge", "level": "easy"}


def test_a_hub_row_is_the_same_example():
    assert parse(HUB_ROW) == parse(ROW)


sentences = st.lists(st.text(st.sampled_from("ab .\n"), max_size=8), max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["A", "B b", "C"]), sentences), min_size=1, max_size=5), st.data())
def test_spans_map_back_to_the_supporting_sentences(paragraphs, data):
    everything = [(title, number) for title, body in paragraphs for number in range(len(body))]
    wanted = data.draw(st.lists(st.sampled_from(everything))) if everything else []
    document, facts = layout(paragraphs, wanted)
    assert document == "\n\n".join(f"{title}\n{''.join(body)}" for title, body in paragraphs)
    for fact in facts:
        ((start, end),) = fact.spans
        assert document[start:end] == fact.text
        assert fact.text in {
            body[n].strip() for title, body in paragraphs for n in range(len(body)) if (title, n) in wanted
        }


def test_a_supporting_fact_past_its_paragraph_is_left_out():
    assert (
        len(parse({**ROW, "supporting_facts": [["Blue Kite", 0], ["Blue Kite", 9], ["Nobody", 0]]}).facts)
        == 1
    )


@real
@pytest.mark.parametrize(
    ("name", "ids", "split"),
    [("hotpotqa_100.json", "_id", None), ("hf_distractor_validation_100.jsonl", "id", "test")],
)
def test_the_real_files(name, ids, split):
    text = (DATA / name).read_text()
    items = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    examples = list(HotpotQA(path=str(DATA / name), split="all").examples())
    assert [(e.id, e.question, e.references) for e in examples] == [
        (item[ids], item["question"].strip(), (item["answer"].strip(),)) for item in items
    ]
    assert len(examples) == 100
    assert split is None or {example.split for example in examples} == {split}
    paragraphs = [example.document.count("\n\n") + 1 for example in examples]
    assert sorted(paragraphs)[:2] == ([4, 10] if name == "hotpotqa_100.json" else [10, 10])
    for example, item in zip(examples, items, strict=True):
        named = item["supporting_facts"]
        named = list(zip(named["title"], named["sent_id"], strict=True)) if isinstance(named, dict) else named
        assert len(example.facts) == len(named)
        assert all(
            example.document[start:end] == fact.text for fact in example.facts for start, end in fact.spans
        )


@real
def test_the_two_files_share_one_question_as_documented():
    one, other = (
        {example.question for example in HotpotQA(path=str(DATA / name), split="all").examples()}
        for name in ("hotpotqa_100.json", "hf_distractor_validation_100.jsonl")
    )
    assert len(one & other) == 1
    digest = hashlib.sha256("\n".join(sorted(one)).encode()).hexdigest()
    assert digest == "9c9fba6b72bb2932d476a0d2c1dfa8e1eb43ad0292c47eb4ce8669285cae924c"


@real
def test_the_simplified_file_has_no_paragraphs_and_is_refused_with_the_way_out():
    with pytest.raises(DataError, match=r"record 1 .*has no field 'context'.*dataset=table"):
        list(HotpotQA(path=str(DATA / "hotpot_dev_v1_simplified.json")).examples())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, "field 'question' is null"),
        ({"answer": ["Oslo"]}, "field 'answer' is a list"),
        ({"context": []}, "no list of paragraphs"),
        ({"context": "text"}, "no list of paragraphs"),
        ({"context": [["A", "text"]]}, r"something else than \[title, \[sentences\]\]"),
        ({"context": [["A", ["text", 3]]]}, r"something else than \[title"),
        ({"context": {"title": ["A"], "sentences": []}}, "1 titles and 0 paragraphs"),
        ({"supporting_facts": [["A"]]}, r"something else than \[title, sentence number\]"),
        ({"supporting_facts": {"title": ["A"], "sent_id": []}}, "1 titles and 0 sentence numbers"),
        ({"supporting_facts": 3}, "field 'supporting_facts' is a number, not a list or an object"),
        ({"_id": 3}, "field '_id' is a number"),
    ],
)
def test_rows_of_the_wrong_shape(change, message):
    with pytest.raises(DataError, match=message):
        parse({**ROW, **change})


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda v: (
            st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["title", "sentences", "sent_id"]), v)
        ),
        max_leaves=8,
    ),
    st.sampled_from([*ROW]),
)
def test_no_value_of_a_field_breaks_the_reader(value, name):
    with suppress(DataError):
        parse({**ROW, name: value})


def test_the_hub_is_asked_only_for_the_sets_that_a_split_needs(monkeypatch):
    asked = []

    def hub(repo, split, **options):
        asked.append((repo, split, options))
        yield files.Row(0, f"{repo} {split}: row 1", {**HUB_ROW, "id": split})

    monkeypatch.setattr(files, "hub", hub)
    found = {split: [e.split for e in HotpotQA(split=split).examples()] for split in ("test", "all")}
    assert found["test"] == ["test"]
    assert len(found["all"]) == 2
    assert [(repo, split) for repo, split, _ in asked] == [
        ("hotpotqa/hotpot_qa", part) for part in ("validation", "train", "validation")
    ]
