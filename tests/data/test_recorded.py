"""The queries of an imported log say of themselves what a run must know."""

import json
from pathlib import Path

import pytest

from outlay.errors import ConfigError, DataError
from outlay.schema import component

ROW = {
    "id": "a",
    "question": "Which?",
    "references": ["x", "y"],
    "kind": "span",
    "choices": [],
    "longest": 40,
}


def file(folder: Path, *rows: dict[str, object]) -> str:
    path = folder / "log.examples.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_kind_document_and_longest_reply_are_the_files(tmp_path: Path) -> None:
    data = component("dataset", "recorded", path=file(tmp_path, ROW, {**ROW, "id": "b", "split": "train"}))
    assert (data.answer, data.has_document, data.prompt.max_new_tokens) == ("span", False, 40)
    first, second = data.examples()
    assert first.references == ("x", "y") and second.split == "train"
    with_document = component("dataset", "recorded", path=file(tmp_path, {**ROW, "document": "Long."}))
    assert with_document.has_document and next(with_document.examples()).document == "Long."


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    for path, message in (
        (None, "dataset.path is null"),
        (str(tmp_path / "no.jsonl"), "no such file.*outlay import"),
        (file(tmp_path, {"question": "Which?"}), "line 1 is no query.*dataset=table"),
    ):
        with pytest.raises(ConfigError, match=message):
            assert component("dataset", "recorded", path=path).answer
    mixed = component("dataset", "recorded", path=file(tmp_path, ROW, {**ROW, "id": "b", "kind": "number"}))
    with pytest.raises(DataError, match="line 2: field 'kind' is 'number'"):
        list(mixed.examples())
    split = component("dataset", "recorded", path=file(tmp_path, ROW, {**ROW, "id": "b", "split": "dev"}))
    with pytest.raises(DataError, match="none of train, tune, test"):
        list(split.examples())
