import gzip
from pathlib import Path

import pytest

from outlay.data import hash_split
from outlay.data.mimic_bhc import MimicBHC
from outlay.errors import DataError

STANDIN = Path(__file__).parents[2] / "../shared/data/clinical/mimic_standin"
real = pytest.mark.skipif(not STANDIN.is_dir(), reason="no shared data")
HEADER = "note_id,input,target,input_tokens,target_tokens\n"


@real
def test_the_standin_file():
    examples = list(MimicBHC(path=str(STANDIN), split="all").examples())
    assert len(examples) == len({example.id for example in examples}) == 207
    words = [len(example.document.split()) for example in examples]
    targets = [len(example.references[0].split()) for example in examples]
    assert sum(words) / 207 == pytest.approx(254, abs=1)
    assert sum(targets) / 207 == pytest.approx(175, abs=1)
    assert examples == list(MimicBHC(path=str(STANDIN / "mimic-iv-bhc.csv"), split="all").examples())


def test_it_is_credentialed_a_summary_and_on_no_hub():
    assert MimicBHC().credentialed
    assert (MimicBHC().answer, MimicBHC().task) == ("text", "summary")
    with pytest.raises(DataError, match=r"dataset\.path is null.*mimic-iv-bhc\.csv from PhysioNet"):
        list(MimicBHC().examples())
    with pytest.raises(DataError, match="no folder 'owner'"):
        list(MimicBHC(path="owner/name").examples())


def test_the_notes_of_one_patient_are_in_one_split(tmp_path):
    path = tmp_path / "mimic-iv-bhc.csv.gz"
    notes = "".join(
        f'{patient}-DS-{seq},"<SEX> F\nNote.",Course.,2,1\n' for patient in range(30) for seq in range(3)
    )
    path.write_bytes(gzip.compress((HEADER + notes).encode()))
    for example in MimicBHC(path=str(tmp_path), split="all").examples():
        assert example.split == hash_split(example.id.split("-")[0])


def test_messages_never_repeat_a_note(tmp_path):
    path = tmp_path / "notes.csv"
    path.write_text(
        HEADER + '1-DS-1,SECRET note,,2,1\n1-DS-2,"SECRET"note,SECRET,2,1\n1-DS-3,SECRET,SECRET,SECRET\n'
        "1-DS-4,,SECRET,2,1\n1-DS-5,note,course,1,1\n1-DS-5,SECRET,SECRET,1,1\n"
    )
    skipped = []
    examples = list(MimicBHC(path=str(path), split="all", on_bad_row="skip").examples(skipped))
    assert [example.id for example in examples] == ["1-DS-5"]
    assert len(skipped) == 5
    assert not any("SECRET" in str(error) for error in skipped)
    assert "notes.csv: record 1 (line 2): the reference is empty" in str(skipped[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no records"),
        (HEADER, "holds no records"),
        ("note_id,text\n1-DS-1,note\n", "record 1 .*has no field 'input'"),
    ],
)
def test_files_that_are_not_the_format(tmp_path, text, message):
    (tmp_path / "notes.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        list(MimicBHC(path=str(tmp_path / "notes.csv")).examples())
    with pytest.raises(DataError, match=r"holds no mimic-iv-bhc\.csv or mimic-iv-bhc\.csv\.gz"):
        list(MimicBHC(path=str(tmp_path)).examples())
