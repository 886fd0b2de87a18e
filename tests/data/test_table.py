import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.data import files
from outlay.data.table import Columns, Table
from outlay.errors import ConfigError, DataError
from outlay.schema import component

DATA = Path(__file__).parents[2] / "../shared/data"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")
NOTES = Columns(id="note", document="text", reference="summary", split="part")
CSV = 'note,text,summary,part\n7,"Long\nnote.",Short.,train\n8,Another.,Brief.,dev\n9,Third.,3rd.,TEST\n'


def table(path, columns=NOTES, **options):
    return Table(path=str(path), columns=columns, split="all", **options)


def test_the_same_table_in_every_format(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.csv").write_text(CSV)
    expected = list(table(tmp_path / "a.csv").examples())
    rows = [row.value for row in files.read(tmp_path / "a.csv")]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parquet.write_table(
        arrow.Table.from_pylist([{**row, "note": int(row["note"])} for row in rows]), tmp_path / "a.parquet"
    )
    assert [(e.id, e.document, e.references, e.split) for e in expected] == [
        ("7", "Long\nnote.", ("Short.",), "train"),
        ("8", "Another.", ("Brief.",), "tune"),
        ("9", "Third.", ("3rd.",), "test"),
    ]
    for name in ("a.json", "a.jsonl", "a.parquet"):
        assert list(table(tmp_path / name).examples()) == expected


@real
def test_crlf_line_breaks_and_a_byte_order_mark_in_real_files():
    folder = DATA / "clinical/mts-dialog"
    name = folder / "Main-Dataset/MTS-Dialog-TrainingSet.csv"
    examples = list(table(name, Columns(id="ID", document="dialogue", reference="section_text")).examples())
    assert (len(examples), examples[0].id, examples[-1].id) == (1201, "0", "1200")
    name = folder / "Correlation-Study/MTS-Dialog-Automatic-Summaries-ValidationSet.csv"
    marked = table(name, Columns(document="Dialogue", reference="Reference Summary")).examples()
    assert len({example.id for example in marked}) == 400


@real
def test_a_closed_book_table():
    columns = Columns(document=None, question="question", reference="answer")
    dataset = table(DATA / "hotpotqa/hotpot_dev_v1_simplified.json", columns, answer="span")
    examples = list(dataset.examples())
    assert len(examples) == 1000
    assert not dataset.has_document
    assert examples[0].references == ("yes",)


def test_the_options_decide_what_the_task_is():
    notes = Table(columns=Columns(document="text"))
    assert (notes.has_document, notes.has_gold, notes.answer, notes.credentialed) == (
        True,
        False,
        "text",
        False,
    )
    assert "Summarise" in notes.prompt.user
    labels = Table(columns=NOTES, answer="label", labels=["yes", "no"], credentialed=True)
    assert labels.has_gold
    assert labels.credentialed


def test_columns_from_a_config():
    built = component(
        "dataset", "table", columns={"document": "text", "id": "note"}, labels=["a"], answer="label"
    )
    assert built.columns == Columns(id="note", document="text")
    assert built.labels == ["a"]
    with pytest.raises(ConfigError, match="docment"):
        component("dataset", "table", columns={"docment": "text"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": Columns(document=None)}, "name the column of the document, of the question, or both"),
        ({"query": "question"}, r"columns\.question names none"),
        ({"answer": "label"}, r"dataset\.labels=\[yes,no\]"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ConfigError, match=message):
        Table(**options)


def test_a_mistyped_column_suggests_the_nearest_and_is_never_skipped(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    for on_bad_row in ("error", "skip"):
        with pytest.raises(
            DataError, match=r"dataset\.columns\.document=txt: no such column\. Did you mean 'text'"
        ):
            list(table(tmp_path / "a.csv", Columns(document="txt"), on_bad_row=on_bad_row).examples())


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"text": None}, {}, "column 'text' holds null, not text"),
        ({"text": ["a"]}, {}, "column 'text' holds a list, not text"),
        ({"summary": ""}, {}, "the reference is empty"),
        ({"summary": []}, {}, "column 'summary' is empty"),
        ({"summary": ["a", None]}, {}, "column 'summary' holds null"),
        ({"part": "final"}, {}, "the split is none of train, tune, test"),
        ({"note": "7"}, {}, "repeats the id of line 1"),
        (
            {"summary": "yess"},
            {"answer": "label", "labels": ["Short.", "yes"]},
            "holds no label of dataset.labels",
        ),
    ],
)
def test_bad_cells(tmp_path, change, options, message):
    row = {"note": "7", "text": "Long note.", "summary": "Short.", "part": "test"}
    lines = [row, {**row, "note": "8", **change}, {**row, "note": "9"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    good, bad, last = table(tmp_path / "a.jsonl", **options).rows()
    assert (good.id, last.id) == ("7", "9")
    assert str(bad).startswith(f"{tmp_path / 'a.jsonl'}: line 2: ")
    assert message in str(bad)


@pytest.mark.parametrize("text", ["", " ", "\n \n"])
def test_an_empty_document_is_named(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(json.dumps({"document": text}))
    with pytest.raises(DataError, match="record 1 \\(example a-1\\): the document is empty"):
        list(Table(path=str(tmp_path / "a.jsonl"), split="all").examples())


def test_several_references(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"document": "Text.", "gold": ["one", " two "]}))
    (example,) = table(tmp_path / "a.jsonl", Columns(reference="gold")).examples()
    assert example.references == ("one", "two")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.sampled_from(["note", "text", "summary", "part"]), v),
        max_leaves=6,
    )
)
def test_no_row_breaks_the_reader(value):
    with suppress(DataError):
        table("a.jsonl")._example("a", files.Row(0, "a.jsonl: line 1", value))


def test_no_file_and_no_hub():
    with pytest.raises(DataError, match=r"dataset\.path is null.*CSV, TSV, JSON, JSONL or Parquet"):
        list(Table().examples())
