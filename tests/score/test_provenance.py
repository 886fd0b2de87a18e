"""Links from a reply's sentences to the kept sentences that support them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.schema import component
from outlay.score.provenance import Link, link, sentence_spans

WORDS = ("fever", "warfarin", "pneumonia", "home")


def bag(units: Sequence[str], queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of four words, each row of length 1: cosines that can be worked out by hand."""

    def rows(texts: Sequence[str]) -> np.ndarray:
        counts = np.array([[text.lower().count(word) for word in WORDS] for text in texts], np.float32)
        length = np.linalg.norm(counts, axis=1, keepdims=True)
        return counts / np.where(length > 0, length, 1)

    return rows(units), rows(queries)


DOCUMENT = "He had fever. Warfarin was started for him. He has fever and pneumonia. He went home."


def kept(*texts: str) -> list[tuple[int, int]]:
    return [(DOCUMENT.index(text), DOCUMENT.index(text) + len(text)) for text in texts]


def test_each_sentence_goes_to_its_nearest_kept_one() -> None:
    reply = "Pneumonia was found. Discharged home on warfarin."
    spans = kept("Warfarin was started for him.", "He has fever and pneumonia. He went home.")
    first, second = link(reply, DOCUMENT, spans, bag)
    assert reply[first.start : first.end] == "Pneumonia was found."
    assert DOCUMENT[first.source_start : first.source_end] == "He has fever and pneumonia."
    assert first.score == pytest.approx(2**-0.5)
    # "home" and "warfarin" are as near to either sentence: the earlier one is the source.
    assert DOCUMENT[second.source_start : second.source_end] == "Warfarin was started for him."
    assert second.score == pytest.approx(2**-0.5)


def test_only_kept_text_is_a_source() -> None:
    assert link("He had fever.", DOCUMENT, kept("He went home."), bag) == []
    (only,) = link("He had fever.", DOCUMENT, kept("He has fever and pneumonia."), bag)
    assert DOCUMENT[only.source_start : only.source_end] == "He has fever and pneumonia."


def test_nothing_said_or_nothing_kept_has_no_links() -> None:
    assert link("", DOCUMENT, kept("He went home."), bag) == []
    assert link("  \n", DOCUMENT, kept("He went home."), bag) == []
    assert link("Home.", DOCUMENT, [], bag) == []
    assert link("Home.", "", [(0, 0)], bag) == []
    assert link("Stocks fell.", DOCUMENT, kept("He went home."), bag) == []


def test_a_copied_sentence_is_its_own_source_with_tfidf() -> None:
    embed = component("embedder", "tfidf").embed
    (found,) = link("He went home.", DOCUMENT, [(0, len(DOCUMENT))], embed)
    assert found == Link(0, 13, *kept("He went home.")[0], pytest.approx(1.0))


@given(
    st.text(alphabet=st.sampled_from("ab. \nfever"), max_size=60),
    st.lists(st.tuples(st.integers(0, len(DOCUMENT)), st.integers(0, len(DOCUMENT))), max_size=4),
)
def test_links_stay_in_the_reply_and_in_kept_text(reply: str, ends: list[tuple[int, int]]) -> None:
    spans = [(min(pair), max(pair)) for pair in ends]
    inside = {at for start, end in spans for at in range(start, end)}
    found = link(reply, DOCUMENT, spans, bag)
    for one in found:
        assert 0 <= one.start < one.end <= len(reply)
        assert set(range(one.source_start, one.source_end)) <= inside
        assert 0 < one.score <= 1
    assert all(before.end <= after.start for before, after in pairwise(found))


@given(st.text(max_size=80))
def test_sentence_spans_hold_every_visible_character(text: str) -> None:
    covered = {at for start, end in sentence_spans(text) for at in range(start, end)}
    assert all(at in covered for at, character in enumerate(text) if not character.isspace())
