"""Answers are found where a reply commits to them, whatever its dress."""

import csv
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import ConfigError
from outlay.score.match import KINDS, is_exact, matches, normalise_text, parse

DATA = Path(__file__).parents[2] / "../shared/data"
YES_NO = ("yes", "no", "maybe")
LETTERS = ("A", "B", "C", "D")

NUMBERS = [
    # the commitment, in the forms of GSM8K and of chat models
    ("The answer is 18", "18"),
    ("The answer is 18.", "18"),
    ("the final answer is: 18 eggs", "18"),
    ("9 * 2 = <<9*2=18>>18 dollars\n#### 18", "18"),
    ("#### $1,248", "1248"),
    ("#### Each adult gets 25% of the watermelon.", "25"),
    ("So she makes 9 * 2 = $18 a day", "18"),
    ("9 + 9 = 18\nA: 18", "18"),
    (r"Thus \boxed{18}.", "18"),
    (r"The answer is $\boxed{18}$, from 16 - 3 eggs", "18"),
    ("Answer: 18", "18"),
    ("**Answer:** 18", "18"),
    ("**18**", "18"),
    ("Final answer = 18", "18"),
    # words after the answer, and a base model that goes on asking
    ("The answer is 18. Let me know if you want all 3 steps!", "18"),
    ("#### 18\n\nQuestion: Tom has 5 apples. How many?\n#### 5", "18"),
    ("The answer is $18 per day for 5 days.", "18"),
    ("The answer is 2 + 3 = 5 apples", "5"),
    ("The answer is that in 3 years she will be 20.", "20"),
    ("She answers 3 questions, worth 5 each, so the total is 41 points", "41"),
    # one value, many dresses
    ("$18.00", "18"),
    ("In total they cost $57.00.", "57"),
    ("$.50", "0.5"),
    ("1,450,000", "1450000"),
    ("1,450.50 dollars", "1450.5"),
    ("007", "7"),
    ("25%", "25"),
    ("25 percent", "25"),
    ("16.0 miles", "16"),
    ("5ft", "5"),
    ("the 5th floor", "5"),
    ("She is ready at 2:00 pm.", "2"),
    ("€30", "30"),
    ("1.5e3", "1500"),
    ("The answer is about 40.", "40"),
    ("The answer is ~40 minutes", "40"),
    ("Seven.", "7"),
    ("The answer is twelve.", "12"),
    # signs
    ("-10", "-10"),
    ("\u221210 degrees", "-10"),  # the minus sign of typography
    ("-$5.00", "-5"),
    ("$-5", "-5"),
    ("It is -3.", "-3"),
    ("9 -3", "3"),
    ("7-1", "1"),
    ("a range of 10-12", "12"),
    ("-0", "0"),
    # fractions
    ("1/2", "0.5"),
    ("3/4 cup", "0.75"),
    ("1/3", "1/3"),
    ("2/6", "1/3"),
    ("2 1/2 pounds", "2.5"),
    ("4/2", "2"),
    (r"\frac{1}{2}", "0.5"),
    ("½", "0.5"),
    ("1/0", None),
    # nothing there
    ("", None),
    ("I cannot tell.", None),
    ("The H2O molecule", None),
    ("The answer is unknown.", None),
]

SPANS = [
    ("Paris", "paris"),
    ("The Answer: Paris", "paris"),
    ("Answer: Paris\nExplanation: It is in France.", "paris"),
    ("The answer is Paris.", "paris"),
    ("The answer to the question is the Eiffel Tower", "eiffel tower"),
    ("\n\nParis. It is the capital of France.", "paris"),
    ("**Paris**", "paris"),
    ("Dr. Seuss", "dr seuss"),
    ("St. Louis, Missouri. It lies on the river.", "st louis missouri"),
    ("J. K. Rowling", "j k rowling"),
    ("Washington, D.C. He lived there.", "washington dc he lived there"),  # an initial never ends a sentence
    ("US$13 billion", "us13 billion"),
    ("“Build a Better Future.”", "build better future"),
    ("the  Well-Known\tcat", "wellknown cat"),
    ("Yes", "yes"),
    ("No, they are not composed by the same people.", "no"),
    ("Yes. Both are plants.", "yes"),
    ("No Doubt", "no doubt"),
    ("Yes, Minister", "yes minister"),
    ("1984. It was written by Orwell.", "1984"),
    ("The The", "the the"),
    ("", None),
    (" \n ", None),
    ("...", None),
]

LABELS = [
    ("yes", YES_NO, "yes"),
    ("Yes.", YES_NO, "yes"),
    ("No, it does not.", YES_NO, "no"),
    ("MAYBE", YES_NO, "maybe"),
    ("Answer: no", YES_NO, "no"),
    ("**Answer:** Yes", YES_NO, "yes"),
    ("The answer is maybe.", YES_NO, "maybe"),
    ("It is not known. The answer is yes.", YES_NO, "yes"),  # "no" is not in "not", "known"
    ("Nothing is known about this.", YES_NO, None),
    ("There is no evidence of harm, so yes", YES_NO, "yes"),
    ("No significant difference was found, so the answer is maybe", YES_NO, "maybe"),
    ("No it does not", YES_NO, "no"),
    ("Yes the results show it", YES_NO, "yes"),
    ("yes, no, or maybe? I would say no.", YES_NO, "no"),  # repeats the question
    ("Answer yes/no/maybe: maybe", YES_NO, "maybe"),
    ("Yes. Though others would say no.", YES_NO, "yes"),  # the first commitment
    ("The answer is not yes but no.", YES_NO, "no"),
    ('{"step_by_step_thinking": "yes, if ...", "answer_choice": "B"}', YES_NO, "no"),
    ('{"answer_choice": "C. maybe"}', YES_NO, "maybe"),
    ('{"answer_choice": "A/B/C"}', YES_NO, None),
    ("Based on these considerations, the answer to the question is: C. maybe.", YES_NO, "maybe"),
    ("(A)", YES_NO, "yes"),
    ("A study of 20 patients", YES_NO, None),  # an article, not the first option
    ("Request timed out", YES_NO, None),
    ("", YES_NO, None),
    ("B", LETTERS, "B"),
    ("(B)", LETTERS, "B"),
    ("B.", LETTERS, "B"),
    ("b)", LETTERS, "B"),
    ("(D) An article in a popular newspaper", LETTERS, "D"),
    ("The answer is C", LETTERS, "C"),
    ("The correct option is (D) because A is false", LETTERS, "D"),
    ("A person who likes B", LETTERS, "B"),
    ("I think C is right", LETTERS, "C"),
    ("Because a cat sat", LETTERS, None),
    ("not entailment", ("entailment", "not entailment"), "not entailment"),
    ("It is Entailment.", ("entailment", "not entailment"), "entailment"),
    ("Not  enough info", ("not enough info", "supported"), "not enough info"),
]


@pytest.mark.parametrize(("reply", "answer"), NUMBERS)
def test_numbers(reply: str, answer: str | None) -> None:
    assert parse(reply, "number") == answer


@pytest.mark.parametrize(("reply", "answer"), SPANS)
def test_spans(reply: str, answer: str | None) -> None:
    assert parse(reply, "span") == answer


@pytest.mark.parametrize(("reply", "choices", "answer"), LABELS)
def test_labels(reply: str, choices: tuple[str, ...], answer: str | None) -> None:
    assert parse(reply, "label", choices) == answer


@pytest.mark.parametrize(
    ("answer", "references", "kind", "right"),
    [
        ("18", ["18.00"], "number", True),
        ("18", ["She sells 9 eggs.\n#### 18"], "number", True),
        ("0.5", ["1/2"], "number", True),
        ("1000", ["1,000"], "number", True),
        ("18", ["19", "18"], "number", True),
        ("18", ["-18"], "number", False),
        ("18", ["180"], "number", False),
        ("kate bosworth", ["Kate Bosworth!"], "span", True),
        ("mr t he is an actor", ["Mr. T. He is an actor"], "span", True),  # gold is never cut
        ("paris", ["Paris, France"], "span", False),
        ("paris", "Paris", "span", True),  # one reference, not its letters
        ("yes", ["Yes"], "label", True),
        ("B", ["(B)"], "label", True),
        ("B", [], "label", False),
    ],
)
def test_matches(answer: str, references: list[str], kind: str, right: bool) -> None:
    assert matches(answer, references, kind) is right


@pytest.mark.parametrize("kind", [kind for kind in KINDS if is_exact(kind)])
def test_an_unparsable_answer_is_wrong(kind: str) -> None:
    assert not matches(None, ["18", "", "yes"], kind)


def test_a_pattern_says_where_to_look() -> None:
    assert parse("[[7]] of 9", "number", pattern=r"\[\[(.+?)\]\]") == "7"
    assert parse("so #7 of 9", "number", pattern=r"#\d") == "7"
    assert parse("7", "number", pattern=r"\[\[(.+?)\]\]") is None
    with pytest.raises(ConfigError, match="answer_pattern"):
        parse("7", "number", pattern="(")


def test_free_text_is_kept_and_never_simply_right() -> None:
    assert parse(" A summary.\n", "text") == "A summary."
    assert parse(" \n", "text") is None
    assert not is_exact("text")
    with pytest.raises(ConfigError, match="metrics=summary"):
        matches("A summary.", ["A summary."], "text")


def test_a_wrong_kind_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'number'"):
        parse("7", "nunber")
    with pytest.raises(ConfigError, match="choices"):
        parse("yes", "label")


@given(st.text(alphabet=st.sampled_from("0123456789.,/-$%−½ =#:()\n*eE"), max_size=40))
def test_a_number_in_normal_form_stays(text: str) -> None:
    found = parse(text, "number")
    assert found is None or parse(found, "number") == found
    assert found is None or matches(found, [found], "number")


@given(
    st.integers(-(10**9), 10**9), st.sampled_from(["{:,}", "{}", "{}.00", "The answer is {:,}.", "#### {}"])
)
def test_an_integer_survives_its_dress(number: int, dress: str) -> None:
    assert parse(dress.format(number), "number") == str(number)


@given(st.text(max_size=60))
def test_a_span_in_normal_form_stays(text: str) -> None:
    normal = normalise_text(text)
    assert normalise_text(normal) == normal
    assert parse(text, "label", YES_NO) in (*YES_NO, None)


ODD = [
    "9" * 100,
    "1,",
    "answer ",
    "yes or ",
    "=",
    "(",
    "1/",
    "- ",
    "A. ",
    "*",
    "answer is a ",
    "yes" + " " * 999,
    "\n",
]


@pytest.mark.parametrize("unit", ODD)
@pytest.mark.parametrize("kind", ["number", "span", "label"])
def test_long_and_odd_replies_end(unit: str, kind: str) -> None:
    found = parse(unit * (20_000 // len(unit)), kind, YES_NO)
    assert found is None or found


# --- recorded logs -----------------------------------------------------------------------------------------


def _rows(path: str) -> list[dict]:
    file = DATA / path
    if not file.exists():
        pytest.skip(f"{path} is not here")
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines)) if path.endswith(".csv") else [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("model", "flagged", "ours", "gained", "lost"),
    [("gpt-4-1106-preview", 85.7, 88.9, 43, 1), ("mistralai/Mixtral-8x7B-Instruct-v0.1", 63.8, 63.8, 6, 6)],
)
def test_routellm_gsm8k(model: str, flagged: float, ours: float, gained: int, lost: int) -> None:
    """The log's flag takes the last run of digits: "$18.00" is 00 there, and "1/3" is 3."""
    rows, gold = _rows("replay/routellm/gsm8k_responses.csv"), _rows("gsm8k/test.jsonl")
    flags = [row[model] == "True" for row in rows]
    right = [
        matches(parse(row[f"{model}_response"], "number"), [example["answer"]], "number")
        for row, example in zip(rows, gold, strict=True)
    ]
    assert round(100 * sum(flags) / len(rows), 1) == flagged
    assert round(100 * sum(right) / len(rows), 1) == ours
    assert sum(r and not f for r, f in zip(right, flags, strict=True)) == gained
    assert sum(f and not r for r, f in zip(right, flags, strict=True)) == lost


def test_grade_school_math_agrees_with_its_flags_everywhere() -> None:
    rows = _rows("gsm8k/example_model_solutions.jsonl")
    tiers = {
        "6b_finetuning": 21.7,
        "6b_verification": 39.0,
        "175b_finetuning": 34.7,
        "175b_verification": 56.3,
    }
    solved = [False] * len(rows)
    for tier, share in tiers.items():
        right = [
            matches(parse(row[tier]["solution"], "number"), [row["ground_truth"]], "number") for row in rows
        ]
        assert right == [row[tier]["is_correct"] for row in rows]
        assert round(100 * sum(right) / len(rows), 1) == share
        solved = [a or b for a, b in zip(solved, right, strict=True)]
    assert round(100 * sum(solved) / len(rows), 1) == 67.2


@pytest.mark.parametrize(
    ("model", "last_digits", "ours"),
    [("turbo-16k-0613", 79, 83), ("Claude-100k", 89, 89), ("gpt4-32k", 96, 96)],
)
def test_leval_gsm100(model: str, last_digits: int, ours: int) -> None:
    """79 counts "$16.00" as wrong where gold is 16; four such replies make 83."""
    rows = _rows(f"replay/leval_predictions/exam_eval/{model}/gsm100.pred.jsonl")
    replies = [next(text for key, text in row.items() if key.endswith("_pred")) for row in rows]
    naive = [re.findall(r"-?\d+(?:\.\d+)?", reply.replace(",", ""))[-1:] for reply in replies]
    assert sum(last == [row["gt"]] for last, row in zip(naive, rows, strict=True)) == last_digits
    right = [
        matches(parse(reply, "number"), [row["gt"]], "number")
        for reply, row in zip(replies, rows, strict=True)
    ]
    assert sum(right) == ours


def test_mirage_pubmedqa() -> None:
    """Three of 2,000 replies differ from the recorded choice: two it did not find, and "A/B/C", which it took for A."""
    right, differ = defaultdict(int), []
    for row in _rows("replay/mirage_pubmedqa/pubmedqa_outcomes.jsonl"):
        answer = parse(row["response"], "label", YES_NO)
        right[row["setting"]] += matches(answer, [row["gold"]], "label")
        if answer != row["prediction"]:
            differ.append((row["prediction"], answer))
    assert sorted(differ, key=str) == [("yes", None), (None, "maybe"), (None, "no")]
    assert dict(right) == {
        "gpt-35-turbo-16k/cot": 181,  # recorded 180
        "gpt-4-32k/cot": 198,
        "gpt-35-turbo-16k/rag_32": 336,  # recorded 337
        "gpt-4-32k/rag_32": 352,
    }


@pytest.mark.parametrize(
    ("file", "official", "ours"),
    [
        ("res_gpt-4o-mini/hotpotqa_res", 349, 398),
        ("res_gpt-4o-mini/hotpotqa_res_bsline_bm25", 372, 388),
        ("res_gpt-4o-mini/hotpotqa_res_bsline_llm_gpt-4o-mini_wo_ctx", 207, 221),
        ("res_qwen2_5_14b/hotpotqa_res", 39, 39),
    ],
)
def test_hotpotqa_runs(file: str, official: int, ours: int) -> None:
    """Beyond the official exact match we accept only "Yes, both are plants." for yes, and lose nothing."""
    path = DATA / f"replay/hotpotqa_lite_raptor/{file}.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    rows = json.loads(path.read_text(encoding="utf-8"))
    exact = [normalise_text(row["model_answer"]) == normalise_text(row["ref_answer"]) for row in rows]
    right = [matches(parse(row["model_answer"], "span"), [row["ref_answer"]], "span") for row in rows]
    assert (sum(exact), sum(right)) == (official, ours)
    gained = [row["ref_answer"] for row, e, r in zip(rows, exact, right, strict=True) if r and not e]
    assert set(gained) <= {"yes", "no"}
    assert not any(e and not r for e, r in zip(exact, right, strict=True))


def test_a_decimal_point_is_no_punctuation() -> None:
    assert parse("79.1 kg.", "span") == "79.1 kg"
    assert matches("79.1 kg", ["79.1 kg"], "span") and not matches("791 kg", ["79.1 kg"], "span")
