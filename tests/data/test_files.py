"""Rows of every format: in order, one at a time, with their place; a broken file or record says where it is broken."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.data import Example, files, hash_split
from outlay.errors import DataError

plain = st.text(st.characters(codec="utf-8"), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | plain,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(plain, inner, max_size=4),
    max_leaves=12,
)


def place(tmp_path_factory, name, content):
    path = tmp_path_factory.mktemp("rows") / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path):
    return [row.value for row in files.read(path)]


# --- JSON


@given(items=st.lists(values, min_size=1), indent=st.sampled_from([None, 1]), chunk=st.integers(1, 40))
def test_a_json_array_streams_what_the_whole_parser_reads(tmp_path_factory, items, indent, chunk):
    text = json.dumps(items, indent=indent, ensure_ascii=False)
    path = place(tmp_path_factory, "a.json", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", chunk)
        assert read(path) == json.loads(text)


@given(
    members=st.dictionaries(plain, values, min_size=1),
    indent=st.sampled_from([None, 2]),
    chunk=st.integers(1, 40),
)
def test_a_json_object_streams_its_members(tmp_path_factory, members, indent, chunk):
    path = place(tmp_path_factory, "a.json", json.dumps(members, indent=indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", chunk)
        assert {row.key: row.value for row in files.read(path)} == members


def test_a_json_file_is_not_held_whole(tmp_path):
    path = tmp_path / "big.json"
    path.write_text(json.dumps([{"text": "word " * 1000}] * 1000))
    held = []
    original = files._Buffer._more

    def watched(buffer, size):
        found = original(buffer, size)
        held.append(len(buffer.text))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files._Buffer, "_more", watched)
        patch.setattr(files, "CHUNK", 10_000)
        assert len(read(path)) == 1000
    assert max(held) < path.stat().st_size / 20


def test_a_lone_surrogate_is_kept_for_the_check_of_the_text(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a\\ud800b"}]')
    assert read(path) == [{"text": "a\ud800b"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"a": 1},\n{"a": }\n]', r"record 2 \(line 3\): is not valid JSON: Expecting value"),
        ('[\n{"a": 1}\n{"a": 2}\n]', r"record 1 \(line 2\): is not valid JSON: a comma is missing"),
        ('[{"a": 1}, {"a": "unterminated}]', r"record 2 \(line 1\): is not valid JSON: Unterminated string"),
        ('[{"a": 1},', r"record 2 \(line 1\): is not valid JSON"),
        ("{3: 1}", r"record 1 \(line 1\): is not valid JSON"),
        ('{"a": 1}\n{"a": 2}', "line 2: more than one JSON value; JSON lines are read from .jsonl files"),
        ('"a text"', "line 1: is no JSON array or object"),
        ("", "holds no records"),
        (" \n ", "holds no records"),
        ("[]", "holds no records"),
        ("{}", "holds no records"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_broken_json_file_says_where(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'["caf\xe9"]')
    with pytest.raises(DataError, match=r"not UTF-8 \(byte 0xe9\)"):
        read(path)


# --- JSON lines


@given(items=st.lists(values, min_size=1), end=st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_json_lines(tmp_path_factory, items, end):
    text = end.join(json.dumps(item, ensure_ascii=False) for item in items)
    assert read(place(tmp_path_factory, "a.jsonl", text)) == items


def test_a_broken_line_is_one_bad_row_and_reading_goes_on(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n{"a": "caf\xe9"}\n{"a": 2}')
    rows = list(files.read(path))
    assert [row.value for row in rows if isinstance(row.value, dict)] == [{"a": 1}, {"a": 2}]
    assert [(row.number, row.place.rpartition(": ")[2]) for row in rows] == [
        (0, "line 1"),
        (1, "line 3"),
        (2, "line 4"),
        (3, "line 5"),
    ]
    assert "is not valid JSON" in str(rows[1].value)
    assert "not UTF-8 (byte 0xe9)" in str(rows[2].value)


# --- CSV

cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@given(
    table=st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), min_size=1, max_size=6)
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
)
def test_csv_with_line_breaks_in_cells_crlf_and_bom(tmp_path_factory, table, end, mark):
    names = [f"column {number}" for number in range(len(table[0]))]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([names, *table])
    path = place(tmp_path_factory, "a.csv", text.getvalue().encode("utf-8-sig" if mark else "utf-8"))
    assert read(path) == [dict(zip(names, row, strict=True)) for row in table]


def test_a_csv_record_is_placed_by_its_first_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,note\n1,"two\nlines"\n2,short,extra\n3,fine\n')
    rows = list(files.read(path))
    assert [row.place for row in rows] == [
        f"{path}: record {n} (line {line})" for n, line in [(1, 2), (2, 4), (3, 5)]
    ]
    assert str(rows[1].value) == "has 3 cells where the header has 2 columns"
    assert rows[2].value == {"id": "3", "note": "fine"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no records"),
        (b"id,note\n", "holds no records"),
        (b"id,note,id\n1,a,b\n", r"the header names id twice"),
        ("id,note\n1,a\n".encode("utf-16"), "is not UTF-8"),
    ],
)
def test_a_csv_file_that_is_none(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(path)


def test_bad_cells_are_bad_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,note\n1,caf\xe9\n2,"a"b\n3,fine\n4,"never closed\n')
    found = read(path)
    assert "not UTF-8 (byte 0xe9)" in str(found[0])
    assert "is not valid CSV" in str(found[1])
    assert found[2] == {"id": "3", "note": "fine"}
    assert "is not valid CSV" in str(found[3])


def test_a_note_longer_than_the_csv_modules_limit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f'id,note\n1,"{"long " * 40_000}"\n')
    assert len(read(path)[0]["note"]) == 200_000


def test_tab_separated(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("id\tnote\n1\ta, b\n")
    assert read(path) == [{"id": "1", "note": "a, b"}]


# --- Parquet and gzip


def test_parquet(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"id": number, "note": f"note {number}", "refs": ["a", "b"]} for number in range(600)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == rows
    (tmp_path / "b.parquet").write_text("no parquet")
    with pytest.raises(DataError, match="is not readable as Parquet"):
        read(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("name", "text"), [("a.json.gz", '[{"a": "b"}]'), ("a.jsonl.gz", '{"a": "b"}'), ("a.csv.gz", "a\nb\n")]
)
def test_gzip_by_content_not_by_name(tmp_path, name, text):
    zipped = tmp_path / name
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read(zipped) == [{"a": "b"}]
    named = tmp_path / name.replace(".gz", "")
    named.write_bytes(zipped.read_bytes())
    assert read(named) == [{"a": "b"}]
    zipped.write_text(text)
    assert read(zipped) == [{"a": "b"}]


@pytest.mark.parametrize(
    "damage", [lambda zipped: zipped[: len(zipped) // 2], lambda zipped: zipped[:12] + b"\xff" * 40]
)
def test_a_gzip_file_cut_off_or_broken(tmp_path, damage):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(damage(gzip.compress(b"id,note\n" + b"1,a\n" * 50_000)))
    with pytest.raises(DataError, match=r"a\.csv\.gz: cannot be read"):
        read(path)


# --- where the data is


def test_locate_prefers_what_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / "data.jsonl").write_text("{}")
    assert files.locate(None, "owner/name", (".jsonl",)) == "owner/name"
    assert files.locate("other/name", "owner/name", (".jsonl",)) == "other/name"
    assert files.locate("me/data.jsonl", "owner/name", (".jsonl",)).is_file()
    assert files.locate("me", "owner/name", (".jsonl",), folder=True).is_dir()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("me/daat.jsonl", "dataset.path: no file 'me/daat.jsonl'. Did you mean 'data.jsonl'?"),
        ("me/name", "dataset.path: no file 'me/name'."),
        ("other/data.jsonl", "there is no folder 'other', only '.'"),
        ("a/b/c/data.jsonl", "there is no folder 'a/b/c', only '.'"),
        ("me", "'me' is a folder; name a file in it. Choices: data.jsonl."),
        ("me/notes.txt", "'me/notes.txt' is not of this format; it reads .jsonl"),
        ("me/notes.txt/data.jsonl", "no folder"),
        ("x" * 5000, "cannot be opened"),
        ("a\0b", "no file"),
    ],
)
def test_a_path_that_leads_nowhere(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / "data.jsonl").write_text("{}")
    (tmp_path / "me" / "notes.txt").write_text("")
    with pytest.raises(DataError) as error:
        files.locate(path, "owner/name", (".jsonl",))
    assert message in str(error.value)
    assert "dataset.path" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_null_path_without_a_hub(tmp_path):
    with pytest.raises(DataError, match=r"dataset\.path is null.*pass dataset\.path=FOLDER/notes\.csv"):
        files.locate(None, None, (".csv",), local="FOLDER/notes.csv")


def test_a_hub_that_does_not_answer_is_one_line_with_the_way_out(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def unreachable(*_args, **_options):
        raise ConnectionError("Couldn't reach the Hub\nwith a long trace")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError) as error:
        list(files.hub("owner/name", "test", config="main", local="test.jsonl"))
    assert str(error.value) == (
        "dataset.path: cannot load 'owner/name' (main, test) from the hub: Couldn't reach the Hub. "
        "Pass a local file instead: dataset.path=FOLDER/test.jsonl"
    )


def test_hub_rows_carry_their_place(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_args, **_options: [{"a": 1}, {"a": 2}])
    rows = list(files.hub("owner/name", "test", local="test.jsonl"))
    assert [(row.number, row.place, row.value) for row in rows] == [
        (0, "owner/name test: row 1", {"a": 1}),
        (1, "owner/name test: row 2", {"a": 2}),
    ]


# --- rows to examples


def _row(number, value):
    return files.Row(number, f"f.jsonl: line {number + 1}", value)


def _parse(row):
    return Example(id=files.member(row.value, "id"), references=(files.member(row.value, "gold"),))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"gold": "a"}, "has no field 'id'. Choices: gold"),
        ({"id": "b", "glod": "a"}, "has no field 'gold'. Did you mean 'glod'"),
        ({"id": 3, "gold": "a"}, "field 'id' is a number, not text"),
        ({"id": None, "gold": "a"}, "field 'id' is null, not text"),
        (["id"], "is a list, not an object with fields"),
        ({"id": "b", "gold": " "}, "the reference is empty"),
        ({"id": "", "gold": "a"}, "the id is empty"),
        ({"id": "b", "gold": "\ud800"}, "the id or the reference holds a lone surrogate"),
        ({"id": "a", "gold": "a"}, "repeats the id of line 1"),
        (DataError("is not valid JSON"), "is not valid JSON"),
    ],
)
def test_a_bad_row_is_yielded_with_its_place(value, message):
    rows = [_row(0, {"id": "a", "gold": "a"}), _row(1, value), _row(2, {"id": "c", "gold": "a"})]
    first, bad, last = files.each(iter(rows), _parse)
    assert (first.id, last.id) == ("a", "c")
    assert isinstance(bad, DataError)
    assert str(bad) == f"f.jsonl: line 2: {message}"


def test_a_file_without_one_good_row_is_not_in_the_format():
    found = []
    with pytest.raises(
        DataError, match=r"no row is in the format; the first: f\.jsonl: line 1: has no field 'id'"
    ):
        found.extend(files.each(iter([_row(0, {}), _row(1, {})]), _parse))
    assert files.each(iter([]), _parse).__class__.__name__ == "generator"


@given(st.text())
def test_the_splits_of_published_sets(example_id):
    assert files.train_or_tune(example_id) in ("train", "tune")
    assert files.train_or_tune(example_id) == hash_split(example_id) or hash_split(example_id) == "test"
    assert files.named_split("clinicalnlp_taskB_test1", example_id) == "test"
    assert files.named_split("hotpot_train_v1.1", example_id) == files.train_or_tune(example_id)
    assert files.named_split("valid", example_id) == files.train_or_tune(example_id)
    assert files.named_split("dev", example_id, ("dev",)) == "test"
    assert files.named_split("contest", example_id) == hash_split(example_id)
