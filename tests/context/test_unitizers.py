"""Units cover the document, keep clinical text whole, and know their section."""

import csv
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlay.context import Unit
from outlay.context.embedders.tfidf import Tfidf
from outlay.context.headers import known_header
from outlay.context.unitizers.cluster import Clusters, communities, similarity_graph
from outlay.context.unitizers.section import Sections
from outlay.context.unitizers.sentence import Sentences
from outlay.context.unitizers.window import Windows

SHARED = Path(__file__).parents[2] / "../shared/data"
UNITIZERS = {
    "sentence": Sentences(),
    "section": Sections(),
    "section, small": Sections(max_chars=40),
    "window": Windows(words=12),
    "window, unique": Windows(words=8, overlap=0.5, density="unique"),
    "cluster": Clusters(max_sentences=3),
}

NOTE = """CHIEF COMPLAINT:
Chest pain.

History of Present Illness:
Pt. seen by Dr. Smith. Given 2.5 mg b.i.d. with food vs. placebo. The patient, a 61 y/o man with a long history
of smoking, was admitted on 3.4.2021 by Dr. ___. He
feels better, e.g. he walks.

MEDICATIONS:
1. Lasix 40 mg p.o. q.d. at 8 a.m.
2. Aspirin 81 mg
- Toprol-XL 50 mg b.i.d.

LABS:
Na\t138\t
K\t4.2\tH
"""


def embed(texts):
    return Tfidf().embed(texts, [])[0]


def pieces(document: str, unitizer=UNITIZERS["sentence"]) -> list[str]:
    return [unit.text(document).strip() for unit in unitizer.split(document, embed)]


# Letters, abbreviations and layout that meet the splitter's every branch, beside arbitrary text.
FRAGMENTS = [
    "Dr. ", "b.i.d. ", "2.5 ", "He ", "was. ", "\n", "\n\n", "\r\n", "\r", "\t", "  ", "1. ", "- ", "# ", "## ", "PLAN:", "Labs: ",
    "RESULTS\n", "x", "? ", "...", "”", "。", "\u2028", "\x85", "\u202f", "e\u0301", "🩺", "___", " | ", "9:30 AM ", "a) ",
]  # fmt: skip
DOCUMENTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join),
)


@pytest.mark.parametrize("name", UNITIZERS)
@settings(deadline=None)
@given(document=DOCUMENTS)
@example(document=NOTE)
@example(document="\n \t")
@example(document="")
def test_units_cover_every_character_in_order(name, document):
    units = UNITIZERS[name].split(document, embed)
    spans = sorted(span for unit in units for span in unit.spans)
    covered = 0
    for start, end in spans:
        assert start <= covered and start < end
        covered = max(covered, end)
    assert covered == len(document)
    assert [unit.start for unit in units] == sorted(unit.start for unit in units)
    for index, unit in enumerate(units):
        assert list(unit.spans) == sorted(unit.spans)
        assert unit.header is None or 0 <= unit.header < index


@settings(deadline=None)
@given(document=DOCUMENTS)
def test_sentences_and_sections_tile_the_document(document):
    for unitizer in (Sentences(), Sections(max_chars=30)):
        assert "".join(unit.text(document) for unit in unitizer.split(document)) == document


@settings(deadline=None)
@given(document=DOCUMENTS)
def test_trailing_white_space_belongs_to_the_unit_before(document):
    units = Sentences().split(document)
    assert not any(unit.text(document)[0].isspace() for unit in units[1:])


@pytest.mark.parametrize("name", UNITIZERS)
def test_an_empty_document_has_no_units_and_white_space_is_one(name):
    assert UNITIZERS[name].split("", embed) == []
    assert UNITIZERS[name].split(" \n\t\n", embed) == [Unit(((0, 4),))]


def test_a_clinical_note_is_cut_where_a_clinician_would():
    assert pieces(NOTE) == [
        "CHIEF COMPLAINT:\nChest pain.",
        "History of Present Illness:\nPt. seen by Dr. Smith.",
        "Given 2.5 mg b.i.d. with food vs. placebo.",
        "The patient, a 61 y/o man with a long history\nof smoking, was admitted on 3.4.2021 by Dr. ___.",
        "He\nfeels better, e.g. he walks.",
        "MEDICATIONS:\n1. Lasix 40 mg p.o. q.d. at 8 a.m.",
        "2. Aspirin 81 mg",
        "- Toprol-XL 50 mg b.i.d.",
        "LABS:\nNa\t138",
        "K\t4.2\tH",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Seen by Dr. A. Smith today.",
        "Given 2.5 mg b.i.d. with food.",
        "Take 40 mg p.o. q.d. for edema.",
        "Use cream t.i.d. p.r.n. to bites.",
        "Lisinopril 10 mg p.o. Daily and aspirin.",
        "Stool grew C. difficile again.",
        "Warfarin vs. heparin was discussed.",
        "Worse at night, e.g. at 2.30 in bed.",
        "Tylenol No. 3 for pain.",
        "Choledocholithiasis, ? cholecystitis.",
        "Positive for: 1.  Diabetes mellitus",
        "A 35 y.o. woman came.",
        "See Fig. 2 for the K of 3.5 on 01.02.2020.",
    ],
)
def test_abbreviations_doses_and_marks_do_not_end_a_sentence(text):
    assert pieces(text) == [text]


@pytest.mark.parametrize(
    "first, second",
    [
        ("Lasix 40 mg q.d.", "He is well."),
        ("She slept until 9 a.m.", "On Saturday she did not."),
        ("Father had brain cancer.", "Mother is well."),  # "cancer" is an abbreviation in nupunkt's model
        ("Small effusion.", "Tender to palpation."),
        ("Normal abdominal CT.", "Mild hepatomegaly."),
        ("No effect of vitamin A.", "Two studies agree."),
        ("His A1c was 7.2.", "He takes metformin."),
        ('He feels "funny."', "His wife agrees."),
        ("Hypertension.", "2. Gout."),
        ("Regular rate.", "2/6 systolic murmur."),
        ("痛みがある。", "熱はない。"),
    ],
)
def test_sentences_end_where_they_end(first, second):
    assert pieces(f"{first} {second}") == [first, second]


def test_hard_wrapped_lines_are_joined_and_short_lines_are_not():
    wrapped = "The patient was admitted for chest pain and was seen by the\nCardiology service. He did well."
    assert (
        pieces(wrapped)[0]
        == "The patient was admitted for chest pain and was seen by the\nCardiology service."
    )
    assert pieces("Hypertension\nDiabetes mellitus\nGout") == ["Hypertension", "Diabetes mellitus", "Gout"]


def test_all_caps_prose_is_not_taken_for_headers():
    document = "THE PATIENT WAS SEEN TODAY\nAND FEELS WELL\nWITHOUT COMPLAINTS"
    assert all(unit.header is None for unit in Sentences().split(document))


def test_a_sentence_names_the_unit_with_its_section_header():
    units = Sentences().split(NOTE)
    assert [unit.header for unit in units] == [None, None, 1, 1, 1, None, 5, 5, None, 8]


def test_problems_of_a_note_lie_under_the_section_that_holds_them():
    note = "Hospital Course:\nLong stay. Did well.\n# HTN: on lisinopril. Stable.\n# CHF. Diuresed.\nPlan:\nHome.\n"
    units = Sections().split(note)
    texts = [unit.text(note).split("\n")[0] for unit in units]
    assert texts == ["Hospital Course:", "# HTN: on lisinopril. Stable.", "# CHF. Diuresed.", "Plan:"]
    assert [unit.header for unit in units] == [None, 0, 0, None]


def test_markdown_headings_nest_and_stay_with_their_body():
    text = "# Title\nIntro.\n## Methods\n### Data\nWe did.\n### Model\nA net.\n## Results\nGood."
    units = Sections().split(text)
    assert [unit.text(text) for unit in units] == [
        "# Title\nIntro.\n",
        "## Methods\n### Data\nWe did.\n",
        "### Model\nA net.\n",
        "## Results\nGood.",
    ]
    assert [unit.header for unit in units] == [None, 0, 1, 0]


@pytest.mark.parametrize("joint", ["\n", " "])
def test_structured_abstracts_are_cut_at_their_labels(joint):
    parts = [
        "BACKGROUND: Pain is common.",
        "PATIENTS AND METHODS: We asked 20. All came.",
        "RESULTS: It hurts.",
    ]
    assert pieces(joint.join(parts), Sections()) == parts


def test_a_document_without_headers_is_one_section_cut_at_sentences_above_the_maximum():
    document = "One two three four. " * 30
    assert len(Sections(max_chars=10_000).split(document)) == 1
    units = Sections(max_chars=100).split(document)
    assert len(units) == 6
    assert all(len(unit.text(document)) <= 100 and unit.text(document).startswith("One") for unit in units)
    assert [unit.header for unit in units] == [None, 0, 0, 0, 0, 0]


def test_headers_are_told_from_labels():
    assert all(
        map(known_header, ("Brief Hospital Course", "PATIENTS AND METHODS", "HPI", "Main Outcome Measures"))
    )
    assert not any(map(known_header, ("Patient", "Doctor", "Heart", "and", "The")))


SIMPLE = "".join(f"Fact number {word} is here today. " for word in "abcdefghijklmnopqrst")


def test_windows_overlap_by_whole_sentences_and_advance():
    for density in ("idf", "unique", "uniform"):
        units = Windows(words=24, overlap=0.5, density=density).split(SIMPLE)
        spans = [unit.spans[0] for unit in units]
        assert len(spans) > 3
        for (start, end), (following, _) in pairwise(spans):
            assert start < following < end
            assert SIMPLE[following:].startswith("Fact")
    apart = [unit.spans[0] for unit in Windows(words=24, overlap=0.0).split(SIMPLE)]
    assert all(end == following for (_, end), (following, _) in pairwise(apart))


def test_windows_are_shorter_where_the_text_is_dense():
    thin = "It was so and it was as it was. " * 40
    dense = "".join(f"Acute w{i}a nephritis w{i}b followed w{i}c sepsis w{i}d. " for i in range(20))
    for density in ("idf", "unique"):
        units = Windows(words=30, overlap=0.0, density=density, most=4.0).split(thin + dense)
        inside = [unit.text(thin + dense) for unit in units]
        of_thin = [len(text.split()) for text in inside if "Acute" not in text]
        of_dense = [len(text.split()) for text in inside if "It was" not in text]
        assert of_thin and min(of_thin) > max(of_dense)


def test_clusters_group_what_is_alike_and_keep_document_order():
    topics = ["Kidney function creatinine rose again.", "Cardiac echo ventricle murmur heard."]
    document = "".join(f"{topics[i % 2]} " for i in range(8))
    units = Clusters().split(document, embed)
    assert len(units) == 2
    for unit, topic in zip(units, topics, strict=True):
        assert len(unit.spans) == 4
        assert unit.text(document) == f"{topic} " * 4
    assert all(len(unit.spans) <= 3 for unit in Clusters(max_sentences=3).split(document, embed))


def test_clusters_are_the_same_every_time_and_for_any_block_size():
    import numpy as np

    vectors = np.random.default_rng(0).random((50, 8), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    whole, blocks = similarity_graph(vectors, 4, 0.1), similarity_graph(vectors, 4, 0.1, rows=7)
    np.testing.assert_allclose(whole.toarray(), blocks.toarray(), rtol=1e-6)
    assert (whole != whole.T).nnz == 0 and not whole.diagonal().any()
    assert communities(whole, 1.0, seed=3) == communities(whole, 1.0, seed=3)


def test_clusters_survive_units_without_features():
    import numpy as np

    units = Clusters().split(
        "The. Of. And.\n\nIt.", lambda texts: np.zeros((len(texts), 1), dtype=np.float32)
    )
    assert all(len(unit.spans) == 1 for unit in units) and len(units) == 4


def test_real_notes_are_covered_and_no_unit_is_cut_after_an_abbreviation():
    path = SHARED / "clinical/mimic_standin/discharge.csv"
    if not path.is_file():
        pytest.skip("no ../shared/data")
    with path.open(newline="") as file:
        notes = [row["text"] for row in csv.DictReader(file)][::4]
    for note in notes:
        texts = [unit.text(note) for unit in Sentences().split(note)]
        assert "".join(texts) == note
        for before, after in pairwise(texts):
            last = before.split()[-1].lower().lstrip("(")
            assert last not in {"dr.", "mr.", "mrs.", "ms.", "pt.", "vs.", "e.g.", "•"}, before + after
        assert not any(re.fullmatch(r"\(?\d{1,2}[.)]", text.strip()) for text in texts)
