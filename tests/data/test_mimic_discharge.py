from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.data.mimic_discharge import MimicDischarge, cut_course
from outlay.errors import DataError

STANDIN = Path(__file__).parents[2] / "../shared/data/clinical/mimic_standin"
real = pytest.mark.skipif(not STANDIN.is_dir(), reason="no shared data")
HEADER = "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text\n"
NOTE = """Name: ___

History of Present Illness:
Ms. ___ came with chest pain.

Brief Hospital Course:
# Chest pain: troponins were negative.
Her medications were continued.

Transitional Issues:
[ ] repeat the ECG

Medications on Admission:
1. aspirin 81 mg

Discharge Medications:
1. aspirin 81 mg
"""


@real
def test_the_standin_file_has_whole_notes_and_no_gold():
    dataset = MimicDischarge(path=str(STANDIN), split="all")
    examples = list(dataset.examples())
    assert len(examples) == 207
    assert {example.references for example in examples} == {()}
    assert dataset.credentialed
    assert not dataset.has_gold


def test_the_course_is_cut_out_up_to_the_next_header_of_the_template():
    document, course = cut_course(NOTE)
    assert course.startswith("# Chest pain")
    assert course.endswith("[ ] repeat the ECG")
    assert "troponins" not in document
    assert "Hospital Course" not in document
    assert document.endswith(
        "Medications on Admission:\n1. aspirin 81 mg\n\nDischarge Medications:\n1. aspirin 81 mg\n"
    )


@given(st.text(), st.text(st.characters(exclude_characters=":"), max_size=40))
def test_nothing_of_the_note_is_lost(before, course):
    note = f"{before}\nBrief Hospital Course:{course}\nDischarge Disposition:\nHome\n"
    document, found = cut_course(note)
    if "hospital course" not in before.lower():
        assert found == course.strip()
        assert document == f"{before}\nDischarge Disposition:\nHome\n"
    assert len(document) + len(found) <= len(note)


def test_a_course_at_the_end_of_the_note():
    assert cut_course("Service: MEDICINE\nHOSPITAL COURSE:  He did well.\n") == (
        "Service: MEDICINE\n",
        "He did well.",
    )


def write(folder, *notes):
    rows = "".join(f'{n},{n},1,{kind},1,2100-01-01,,"{text}"\n' for n, (kind, text) in enumerate(notes))
    (folder / "discharge.csv").write_text(HEADER + rows)
    return str(folder)


def test_the_course_as_reference(tmp_path):
    path = write(
        tmp_path, ("DS", NOTE), ("DS", "No such section."), ("AD", "Addendum."), ("DS", "Hospital Course:\n")
    )
    dataset = MimicDischarge(path=path, reference="hospital_course")
    assert dataset.has_gold
    good, without, empty = dataset.rows()
    assert good.references == (cut_course(NOTE)[1],)
    assert "record 2" in str(without)
    assert "has no section 'Brief Hospital Course'; use dataset.reference=none" in str(without)
    assert "the reference is empty" in str(empty)


def test_addenda_are_left_out_unless_asked_for(tmp_path):
    path = write(tmp_path, ("DS", "Note."), ("AD", "Addendum."))
    kinds = {
        kind: [row.document for row in MimicDischarge(path=path, note_type=kind).rows()]
        for kind in ("DS", "AD", "all")
    }
    assert kinds == {"DS": ["Note."], "AD": ["Addendum."], "all": ["Note.", "Addendum."]}


def test_a_file_of_other_columns(tmp_path):
    (tmp_path / "discharge.csv").write_text("note_id,input,target\n1-DS-1,a,b\n")
    with pytest.raises(DataError, match=r"discharge\.csv: record 1 \(line 2\): has no field 'text'"):
        list(MimicDischarge(path=str(tmp_path)).examples())
