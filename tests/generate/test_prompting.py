"""What is sent: templates, shown chains, worked examples; a bad template is refused before anything is loaded."""

import pytest

from outlay.data import Example, PromptText
from outlay.errors import ConfigError
from outlay.generate import Earlier
from outlay.generate.prompting import Prompting

EXAMPLE = Example(
    "e",
    question="What is 2 + 3?",
    references=("5",),
    choices=("yes", "no"),
    meta={"cue": "2 + 3 =", "front": True},
)
OWN = PromptText(
    user="{{ context }}|{{ question }}", system="Be brief.", prefill="{{ meta.cue }}", max_new_tokens=9
)


def test_null_takes_the_data_sets_own_wording() -> None:
    text = Prompting().over(OWN)
    assert text == OWN
    prompt = Prompting().prompt(text, EXAMPLE, "CTX", ())
    assert prompt.messages == (("system", "Be brief."), ("user", "CTX|What is 2 + 3?"))
    assert prompt.prefill == "2 + 3 =" and prompt.context == "CTX"


def test_what_is_set_takes_its_place() -> None:
    text = Prompting(template="Q: {{ question }}", system="", prefill="", max_new_tokens=3, stop=["\n"]).over(
        OWN
    )
    assert text == PromptText(user="Q: {{ question }}", max_new_tokens=3, stop=("\n",))


def test_a_tiers_own_first_words_take_the_prompts_place_and_a_shown_chain_keeps_its_own() -> None:
    shown = Earlier("carry", " 6", prefill="Steps:")
    prompt = Prompting(carry="Again.").prompt(OWN, EXAMPLE, "", (), shown, "At once:")
    assert prompt.prefill == "At once:" and prompt.messages[2] == ("assistant", "Steps: 6")


def test_a_shown_chain_stands_between_two_turns_of_the_user() -> None:
    prompt = Prompting(carry="Again: {{ user }}").prompt(OWN, EXAMPLE, "", (), Earlier("carry", " 6"))
    assert prompt.messages[1:] == (
        ("user", "|What is 2 + 3?"),
        ("assistant", "2 + 3 = 6"),
        ("user", "Again: |What is 2 + 3?"),
    )


def test_worked_examples_come_before_the_question() -> None:
    turns = Prompting(shots=1).worked(OWN, [(EXAMPLE, "CTX")])
    assert turns == [("user", "CTX|What is 2 + 3?"), ("assistant", "2 + 3 = 5")]
    prompt = Prompting(shots=1).prompt(OWN, EXAMPLE, "", turns)
    assert [role for role, _ in prompt.messages] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("template", ["{{ question", "{% if %}", "{{ question | nope }}"])
def test_a_template_that_is_no_jinja_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match="prompt template"):
        Prompting(template=template).over(OWN)


def test_an_unknown_field_is_named_with_those_that_exist() -> None:
    text = Prompting(template="{{ answer }}").over(OWN)
    with pytest.raises(ConfigError, match=r"'answer' is undefined.*question, context"):
        Prompting().prompt(text, EXAMPLE, "", ())


def test_a_template_cannot_reach_into_python() -> None:
    text = Prompting(template="{{ question.__class__.__mro__ }}").over(OWN)
    with pytest.raises(ConfigError, match="prompt template"):
        Prompting().prompt(text, EXAMPLE, "", ())


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match="answer_pattern"):
        Prompting(answer_pattern="(")
