"""Verifiers see one attempt's line; only gold reads gold."""

from outlay.agent.ledger import Line
from outlay.agent.verifiers import content_words, gold, grounded


def line(text: str, answer: str | None = None, step: int = 0) -> Line:
    return Line("q", 0, "attempt", attempt=1, text=text, answer=answer, step=step)


def test_gold_is_marked_as_an_oracle() -> None:
    verifier = gold({"q": ["12"]}, "number")
    assert verifier.oracle
    assert (
        verifier.check(line("12", "12"))
        and not verifier.check(line("13", "13"))
        and not verifier.check(line("", None))
    )


def test_grounded_counts_the_content_words_of_the_context_that_was_sent() -> None:
    verifier = grounded({"q": ["Warfarin 5 mg.", "Warfarin 5 mg daily for fibrillation."]}, threshold=1.0)
    assert not verifier.oracle
    assert verifier.check(line("warfarin 5"))
    assert not verifier.check(line("Warfarin for fibrillation"))
    assert verifier.check(line("Warfarin for fibrillation", step=1))
    assert not verifier.check(line("He is on."))  # says nothing that could be checked


def test_content_words() -> None:
    assert content_words("The INR was 2.5, on Warfarin.") == {"2.5", "warfarin"}
