"""examples.html: what it shows, and that no text of a document can become markup."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.agent.ledger import Line
from outlay.data import Example
from outlay.report.examples import (
    LIMIT,
    Shown,
    document_pieces,
    examples_page,
    reply_pieces,
    write_examples,
)
from outlay.score.provenance import Link

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>{{ 7 * 7 }}"
DOCUMENT = "He had fever. He went home."
LINKS = (Link(0, 6, 14, 27, 0.75),)


def shown(**given: object) -> Shown:
    example = Example("n1", "Where did he go?", DOCUMENT, references=("home",))
    lines = [
        Line("n1", 0, "attempt", "small", 1, prompt_tokens=30, completion_tokens=4, usd=0.25, answer="away"),
        Line("n1", 1, "verify", text="gold", verdict=False),
        Line("n1", 2, "attempt", "small", 2, prompt_tokens=30, completion_tokens=6, usd=0.5, text="Home."),
    ]
    values = {"example": example, "reply": "Home. ", "spans": [(14, 27)], "context_tokens": 5, "lines": lines}
    return Shown(**{**values, "links": LINKS, "metrics": {"token_f1": 0.5, "fact_recall": None}, **given})  # type: ignore[arg-type]


class Tags(HTMLParser):
    """The tags of a page, and the text that a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def test_a_page_shows_the_bill_the_sources_and_the_gold() -> None:
    page = Tags(examples_page("a run", {"selector": "rcd", "budget.tokens": 1024}, [shown()]))
    assert "5 tokens of context, 48 % of the text · 70 tokens billed · $0.750000" in page.text
    assert "budget.tokens" in page.text and "1,024" in page.text
    assert "0.75" in page.text  # the link's score
    (said,) = (link for link in page.of("a") if "said" in (link.get("class") or ""))
    (source,) = (mark for mark in page.of("mark") if mark.get("id"))
    assert said["href"] == f"#{source['id']}"
    rows = [tag for tag, _ in page.tags].count("tr")
    assert rows == 2 + 3  # the metrics and their heading, two calls and theirs; a verdict is no call


@pytest.mark.parametrize(
    "place", ["document", "question", "reply", "reference", "id", "answer", "error", "title"]
)
def test_no_text_becomes_markup(place: str) -> None:
    example = Example(
        EVIL if place == "id" else "n1",
        EVIL if place == "question" else "?",
        EVIL if place == "document" else DOCUMENT,
        references=(EVIL if place == "reference" else "home",),
    )
    line = Line("n1", 0, "attempt", "small", 1, answer="x", error=EVIL if place == "error" else "")
    one = shown(
        example=example,
        reply=EVIL if place == "reply" else "Home.",
        answer=EVIL if place == "answer" else None,
        lines=[line],
        links=(),
        spans=[(2, 9)],
    )
    page = examples_page(EVIL if place == "title" else "a run", {EVIL: EVIL}, [one])
    plain = Tags(page)
    assert len(plain.of("script")) == 1  # the page's own
    assert not plain.of("img")
    assert "{{ 7 * 7 }}" in plain.text
    assert not any(name.startswith("on") for _, attributes in plain.tags for name in attributes)


def test_the_page_asks_no_network_for_anything() -> None:
    page = Tags(examples_page("a run", {}, [shown()]))
    assert not [tag for tag, attributes in page.tags if "src" in attributes or tag == "link"]
    assert all((link["href"] or "").startswith("#") for link in page.of("a"))
    (policy,) = (
        meta["content"] for meta in page.of("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None and policy.startswith("default-src 'none'")


def test_a_page_holds_the_first_examples_only(tmp_path: Path) -> None:
    path = write_examples(tmp_path / "examples.html", "a run", {}, [shown()] * (LIMIT + 3))
    assert len(Tags(path.read_text(encoding="utf-8")).of("article")) == LIMIT


def test_a_closed_book_example_has_no_document() -> None:
    one = shown(example=Example("q", "2 + 2?", references=("4",)), spans=(), links=(), reply="", metrics={})
    page = Tags(examples_page("a run", {}, [one]))
    assert "of context" not in page.text
    assert "(nothing)" in page.text


def test_the_document_is_cut_at_kept_parts_and_sources() -> None:
    pieces = document_pieces(DOCUMENT, [(7, 27)], LINKS)
    assert [(piece.text, piece.kept, piece.source) for piece in pieces] == [
        ("He had ", False, -1),
        ("fever. ", True, -1),
        ("He went home.", True, 0),
    ]


def test_a_reply_keeps_what_has_no_source() -> None:
    links = (Link(4, 8, 20, 25, 0.5), Link(9, 12, 0, 5, 0.25))
    pieces = reply_pieces("Yes home now.", links)
    assert [(piece.text, piece.source) for piece in pieces] == [
        ("Yes ", -1),
        ("home", 1),  # sources are numbered in document order
        (" ", -1),
        ("now", 0),
        (".", -1),
    ]


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=5).map(
    lambda pairs: [(min(pair), max(pair)) for pair in pairs]
)


@given(st.text(min_size=1, max_size=40), spans, spans)
def test_pieces_make_up_the_document(
    document: str, kept: list[tuple[int, int]], sources: list[tuple[int, int]]
) -> None:
    links = [Link(0, 1, start, end, 0.5) for start, end in sources]
    pieces = document_pieces(document, kept, links)
    assert "".join(piece.text for piece in pieces) == document
    marked = sum(len(piece.text) for piece in pieces if piece.kept)
    assert marked == len({at for start, end in kept for at in range(start, min(end, len(document)))})
