import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from outlay.data import files
from outlay.data.leval import TASKS, LEval, gold
from outlay.errors import ConfigError, DataError

DATA = Path(__file__).parents[2] / "../shared/data/leval"
real = pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")
QUESTIONS = {  # task: documents, questions
    "gsm100": (100, 100),
    "quality": (15, 202),
    "gov_report_summ": (14, 14),
    "scientific_qa": (23, 184),
    "legal_contract_qa": (6, 43),
    "patent_summ": (14, 14),
    "meeting_summ": (8, 60),
    "multidoc_qa": (23, 158),
}


def leval(path, task=None, **options):
    return LEval(path=str(path), task=task, query="centroid", split="all", **options)


def write(folder, *rows, name="quality"):
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@real
@pytest.mark.parametrize("task", QUESTIONS)
def test_every_real_task(task):
    examples = list(leval(DATA, task).examples())
    documents = {example.id.rpartition("-")[0] for example in examples}
    assert (len(documents), len(examples)) == QUESTIONS[task]
    (path,) = DATA.rglob(f"{task}.jsonl")
    assert list(leval(path).examples()) == examples  # the file's name says the task


@real
def test_the_questions_of_a_document_share_it_and_its_split():
    held = defaultdict(set)
    for example in leval(DATA, "quality").examples():
        held[example.id.rpartition("-")[0]].add((example.document, example.split))
    assert all(len(kinds) == 1 for kinds in held.values())


@real
def test_closed_tasks_have_short_gold():
    numbers = [example.references[0] for example in leval(DATA, "gsm100").examples()]
    assert numbers[:3] == ["18", "3", "70000"]
    letters = Counter(example.references[0] for example in leval(DATA, "quality").examples())
    assert letters.keys() == set("ABCD")
    assert letters.total() == 202


def test_the_task_decides_how_it_is_asked_and_scored():
    assert leval("x", "gsm100").answer == "number"
    assert leval("x", "quality").answer == "label"
    assert leval("x", "scientific_qa").answer == "text"
    assert "meta.instruction" in leval("x", "gov_report_summ").prompt.user
    assert LEval().answer == "label"
    assert {task.answer for task in TASKS.values()} == {"number", "label", "span", "text"}


def test_a_summary_task_has_no_question():
    with pytest.raises(ConfigError, match=r"gov_report_summ asks for a summary.*dataset\.query=centroid"):
        LEval(task="gov_report_summ")


def test_a_summary_keeps_its_instruction_for_the_prompt(tmp_path):
    path = write(
        tmp_path, {"input": "Text.", "instructions": ["Sum it up."], "outputs": ["T."]}, name="patent_summ"
    )
    (example,) = leval(path).examples()
    assert (example.question, example.meta) == ("", {"instruction": "Sum it up."})


def test_gold_is_the_letter_before_the_options_text():
    assert gold("(C) Tr'en\n", TASKS["quality"]) == "C"
    assert gold(" B", TASKS["tpo"]) == "B"
    assert gold("True [fact: False]", TASKS["sci_fi"]) == "True"
    with pytest.raises(DataError, match="names none of A, B, C, D"):
        gold("Almost nothing", TASKS["quality"])


def test_bad_documents_and_bad_questions_are_single_rows(tmp_path):
    fine = {"input": "Text.", "instructions": ["One?", "Two?"], "outputs": ["(A) a", "(B) b"]}
    path = write(
        tmp_path,
        fine,
        {**fine, "outputs": ["(A) a"]},
        {**fine, "outputs": ["(A) a", "neither"]},
        {"input": "Text.", "instruction": [], "outputs": []},
    )
    rows = list(leval(path).rows())
    assert [getattr(row, "id", None) for row in rows] == [
        "quality-0-0",
        "quality-0-1",
        None,
        "quality-2-0",
        None,
        None,
    ]
    assert "line 2: has 2 instructions and 1 outputs" in str(rows[2])
    assert "line 3: question 2: the output names none of A, B, C, D" in str(rows[4])
    assert "line 4: has no field 'instructions'. Did you mean 'instruction'" in str(rows[5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "qualty"}, "task=qualty: Did you mean 'quality'?"),
        ({"task": "gsm100", "folder": True}, r"holds no gsm100\.jsonl\. It holds: quality"),
        ({"name": "mine"}, "names no task of L-Eval; say which one it is with dataset.task"),
    ],
)
def test_a_task_that_is_not_there(tmp_path, options, message):
    path = write(tmp_path, {}, name=options.get("name", "quality"))
    with pytest.raises((ConfigError, DataError), match=message):
        list(leval(tmp_path if "folder" in options else path, options.get("task")).examples())


def test_the_hub_file_of_a_task(monkeypatch):
    row = {"input": "Text.", "instructions": ["One?"], "outputs": ["(B) b"], "evaluation": "exam"}
    asked = []

    def hub(repo, _split, *, file, local):
        asked.append((repo, file, local))
        yield files.Row(0, "hub: row 1", row)

    monkeypatch.setattr(files, "hub", hub)
    (example,) = LEval(split="all").examples()
    assert example.references == ("B",)
    list(LEval(task="scientific_qa", split="all").examples())
    assert asked == [
        ("L4NLP/LEval", "LEval/Exam/quality.jsonl", "quality.jsonl"),
        ("L4NLP/LEval", "LEval/Generation/scientific_qa.jsonl", "scientific_qa.jsonl"),
    ]
