from collections import Counter
from pathlib import Path

import pytest

from outlay.data import files
from outlay.data.cochrane import Cochrane, _pair
from outlay.errors import DataError

DATA = Path(__file__).parents[2] / "../shared/data/cochrane"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")


def parallel(folder, name="test", **sides):
    for side, text in sides.items():
        (folder / f"{name}.{side}").write_text(text)
    return folder / f"{name}.source"


@real
def test_the_parallel_files_align():
    folder = DATA / "data-1024"
    examples = list(Cochrane(path=str(folder / "test.source")).examples())
    sides = {side: (folder / f"test.{side}").read_text().split("\n") for side in ("source", "target", "doi")}
    assert len(examples) == 480
    for number in (0, 240, 479):
        example = examples[number]
        assert example.document == sides["source"][number]
        assert example.references == (sides["target"][number].strip(),)
        assert example.id == sides["doi"][number]
    assert {example.question for example in examples} == {""}


@real
@pytest.mark.parametrize(
    ("path", "count"), [("data-1024/val", 411), ("data-1024", 891), (".", 891), ("data-1024/test", 480)]
)
def test_a_prefix_or_a_folder(path, count):
    assert len(list(Cochrane(path=str(DATA / path), split="all").examples())) == count


@real
def test_only_the_test_file_is_split_test():
    splits = Counter(example.split for example in Cochrane(path=str(DATA), split="all").examples())
    assert splits["test"] == 480
    assert splits["train"] > splits["tune"] > 0


@real
def test_the_review_csv_of_the_evaluator_gives_background_and_target():
    examples = list(Cochrane(path=str(DATA / "mslr2022_evaluator/test-targets.csv")).examples())
    assert len(examples) == 5
    assert examples[0].id == "205832151"
    assert not any("<background>" in example.document for example in examples)
    assert examples == list(Cochrane(path=str(DATA / "mslr2022_evaluator")).examples())


@real
def test_the_predictions_csv_is_not_the_format():
    with pytest.raises(DataError, match=r"test-predictions\.csv.*has no field 'Target'"):
        list(Cochrane(path=str(DATA / "mslr2022_evaluator/test-predictions.csv")).examples())


def test_a_review_is_its_studies_in_order(tmp_path):
    (tmp_path / "dev-inputs.csv").write_text(
        ",ReviewID,PMID,Title,Abstract\n0,r1,1,First,It works.\n1,r1,2,Second,\n2,r2,3,Third,It does\n3,r3,4,Fourth,x\n"
    )
    (tmp_path / "dev-targets.csv").write_text(",ReviewID,Target\n0,r1,Good.\n1,r2, \n")
    for name in ("dev-inputs.csv", "dev-targets.csv"):
        one, empty, missing = Cochrane(path=str(tmp_path / name)).rows()
        assert (one.id, one.document, one.references) == ("r1", "First\nIt works.\n\nSecond", ("Good.",))
        assert one.split in ("train", "tune")
        assert "dev-inputs.csv: record 3 (line 4): the reference is empty" in str(empty)
        assert "record 4 (line 5): review r3 has no summary" in str(missing)


def test_studies_of_a_review_that_stand_apart_are_refused(tmp_path):
    (tmp_path / "dev-inputs.csv").write_text("ReviewID,Title,Abstract\nr1,A,a\nr2,B,b\nr1,C,c\n")
    (tmp_path / "dev-targets.csv").write_text("ReviewID,Target\nr1,Good.\nr2,Bad.\n")
    assert "repeats the id of record 1 (line 2)" in str(list(Cochrane(path=str(tmp_path)).rows())[-1])


def test_without_doi_the_line_is_the_id(tmp_path):
    path = parallel(tmp_path, source="a b.\nc d.\n", target="a.\nc.\n")
    assert [example.id for example in Cochrane(path=str(path)).examples()] == ["test-0", "test-1"]


def test_a_hub_row():
    row = {"gem_id": "g", "doi": "10.1/x", "source": "Long.", "target": "Short."}
    example = _pair("test", files.Row(0, "hub: row 1", row))
    assert (example.id, example.document, example.references, example.split) == (
        "10.1/x",
        "Long.",
        ("Short.",),
        "test",
    )


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({"source": "a\nb\n", "target": "a\n"}, r"test\.target: has fewer lines"),
        ({"source": "a\n", "target": "a\nb\n"}, r"test\.source: has fewer lines"),
        ({"source": "a\nb\n", "target": "a\nb\n", "doi": "1\n"}, r"test\.doi: has fewer lines"),
        ({"source": "a\n"}, r"its summaries 'test\.target' are not beside it"),
        ({"source": "", "target": ""}, "holds no records"),
        ({"source": "a\nb\n", "target": "a\n\n"}, r"test\.source: line 2: the reference is empty"),
        ({"source": "a\n\n", "target": "a\nb\n"}, "the document is empty"),
    ],
)
def test_files_that_do_not_fit(tmp_path, sides, message):
    with pytest.raises(DataError, match=message):
        list(Cochrane(path=str(parallel(tmp_path, **sides))).examples())


def test_a_folder_without_reviews(tmp_path):
    with pytest.raises(DataError, match=r"holds no \.source file and no -targets\.csv"):
        list(Cochrane(path=str(tmp_path)).examples())


def test_the_hub_is_asked_only_for_the_sets_that_a_split_needs(monkeypatch):
    asked = []

    def hub(repo, split, **options):
        asked.append((repo, split, options))
        yield files.Row(0, f"{repo} {split}: row 1", {"doi": split, "source": "Long.", "target": "Short."})

    monkeypatch.setattr(files, "hub", hub)
    found = {split: [e.split for e in Cochrane(split=split).examples()] for split in ("test", "all")}
    assert found["test"] == ["test"]
    assert len(found["all"]) == 3
    assert [(repo, split) for repo, split, _ in asked] == [
        ("GEM/cochrane-simplification", part) for part in ("test", "train", "validation", "test")
    ]
