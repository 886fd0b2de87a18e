"""The limit on what a command may pay: reserved before a call, settled after it, never passed, and resumable."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty import SILENT, Faulty, at_random, serving
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.data.chains import Chains
from outlay.errors import SpendLimitReached
from outlay.generate import Completion, Price, Prompt, Request, Sampling, Tally, Tier
from outlay.generate.lab import Lab
from outlay.generate.openai import OpenAI
from outlay.generate.spend import Spend, SpendLimit, Ticket
from outlay.generate.store import Store, complete

PRICE = Price(input=2.0, cached=0.5, output=8.0, units=1.0)
TIERS = (Tier("m", PRICE),)
MOST = 20  # new tokens of a reply


def client(server: Faulty, **options: Any) -> OpenAI:
    plain = {"model": "m", "price": PRICE, "backoff_s": 0.002, "timeout_s": 2.0, "max_tries": 12}
    return OpenAI(base_url=server.url, **{**plain, **options})


def requests(n: int) -> list[Request]:
    texts = [OpenAI().render(Prompt((("user", f"question {at}"),)), "m") for at in range(n)]
    return [Request("m", text, Sampling(0.7, MOST), "attempt", 0, 0) for text in texts]


def run(
    server: Faulty, store: Store, limit: SpendLimit, n: int = 60, account: str = "sweep", **options: Any
) -> list[Completion]:
    spend = Spend(limit, TIERS, store, account)
    return complete(requests(n), client(server, **options), store, Tally(), spend=spend)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store.sqlite")
    yield opened
    opened.close()


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("limit", [150, 700, 1300])
def test_the_servers_bill_never_passes_the_limit_and_a_resumed_run_pays_for_the_rest(
    limit: int, share: float, store: Store
) -> None:
    faults = tuple(fault for fault in SILENT if fault != "hang")
    with serving(Faulty(at_random(share, faults))) as server:
        with pytest.raises(SpendLimitReached, match=r"spend limit reached.*generator\.spend_limit_tokens"):
            run(server, store, SpendLimit(spend_limit_tokens=limit))
        first = server.tokens
        assert first <= store.spent("sweep")[0] <= limit
        assert len(store) == len(server.bills), "what was paid for is kept"
        assert share or store.spent("sweep")[0] == first, "all bills are known, so all is settled"
        rows = run(server, store, SpendLimit(spend_limit_tokens=10**6))
        assert (
            len(server.bills) == 60 and len({body["messages"][0]["content"] for body in server.bodies}) == 60
        )
        assert sum(row.prompt_tokens + row.completion_tokens for row in rows) == server.tokens > first
        assert not any(row.error for row in rows)


@pytest.mark.parametrize("limit", [400, 2500, 5000])
def test_200_calls_at_30_percent_faults_16_at_once_never_pass_the_limit(limit: int, store: Store) -> None:
    with serving(Faulty(at_random(0.3))) as server:
        with pytest.raises(SpendLimitReached):
            run(server, store, SpendLimit(spend_limit_tokens=limit), n=200)
        assert 0 < server.tokens <= store.spent("sweep")[0] <= limit
        kept = len(store)
        asked = {body["messages"][0]["content"] for body in server.bodies}
        rows = run(server, store, SpendLimit(spend_limit_tokens=10**6), n=200)
        assert len(store) == 200 and 0 < kept <= len(asked) and not any(row.error for row in rows)
        assert server.tokens <= store.spent("sweep")[0] <= 10**6


@pytest.mark.parametrize("limit_usd", [0.0, 0.0005, 0.004])
def test_a_limit_in_dollars(limit_usd: float, store: Store) -> None:
    with serving(Faulty(lambda prompt, tried: "", cached=3)) as server:
        with pytest.raises(SpendLimitReached, match="USD are spent"):
            run(server, store, SpendLimit(spend_limit_usd=limit_usd))
        paid = sum(PRICE.usd(*bill) for bill in server.bills)
        assert paid <= limit_usd and store.spent("sweep")[1] == pytest.approx(paid)
        assert bool(server.bills) == (limit_usd > 0)


def test_reservations_in_flight_do_not_end_a_run_that_has_the_means(store: Store, tmp_path: Path) -> None:
    """Sixteen calls reserve far more than they use; the limit is the bill and one reservation more."""
    with serving(Faulty(lambda prompt, tried: "")) as server:
        run(server, store, SpendLimit())
        bill = server.tokens
    reserved = len(requests(60)[-1].text.encode()) + 64 + MOST
    other = Store(tmp_path / "other.sqlite")
    with serving(Faulty(lambda prompt, tried: "")) as server:
        run(server, other, SpendLimit(spend_limit_tokens=bill + reserved))
        assert len(other) == 60 and other.spent("sweep")[0] == server.tokens == bill
    other.close()


@pytest.mark.parametrize("samples", [1, 3])
def test_a_local_batch_that_does_not_fit_is_made_smaller(samples: int, store: Store) -> None:
    """The batch of all would reserve twice the limit; what fits of it is answered, to within one row."""
    new = 24
    lab = Lab(["small"])
    questions = [one.question for one in Chains(split="all", count=40, seed=3).examples()]
    rows = [
        Request("small", text, Sampling(0.7, new), "attempt", k, 0)
        for text in questions
        for k in range(samples)
    ]
    most = sum(lab.count(questions, "small")) + len(rows) * new
    spend = Spend(SpendLimit(spend_limit_tokens=most // 2), lab.tiers, store, "sweep")
    with pytest.raises(SpendLimitReached):
        complete(rows, lab, store, Tally(), spend=spend)
    left = most // 2 - store.spent("sweep")[0]
    assert 0 <= left < max(lab.count(questions, "small")) + new
    kept = len(store)
    assert kept > len(rows) // 3
    enough = Spend(SpendLimit(spend_limit_tokens=2 * most), lab.tiers, store, "sweep")
    done = complete(rows, lab, store, tally := Tally(), spend=enough)
    assert tally.hits == kept and not any(row.error for row in done)


def test_a_bill_that_nobody_knows_stays_set_aside(store: Store) -> None:
    with serving(Faulty(lambda prompt, tried: "" if tried else "garbage")) as server:
        run(server, store, SpendLimit(spend_limit_tokens=10**6), n=5)
        reserved = sum(len(one.text.encode()) + 64 + MOST for one in requests(5))
        assert store.spent("sweep")[0] == server.tokens + reserved


def test_jobs_of_a_sweep_draw_on_one_account_and_another_sweep_on_its_own(store: Store) -> None:
    with serving(Faulty(lambda prompt, tried: "")) as server:
        run(server, store, SpendLimit(spend_limit_tokens=2000), n=20)
        spent = store.spent("sweep")[0]
        assert spent == server.tokens
        with pytest.raises(SpendLimitReached):
            run(server, store, SpendLimit(spend_limit_tokens=spent + 10), n=60)
        run(server, store, SpendLimit(spend_limit_tokens=10**4), n=60, account="another")
        assert store.spent("sweep")[0] == spent and store.spent("another")[0] == server.tokens - spent


calls = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0, 1), st.booleans()), min_size=1, max_size=30
)


@settings(max_examples=40, deadline=None)
@given(calls=calls, limit=st.integers(1, 400))
def test_the_account_is_the_bill_and_what_is_set_aside(
    calls: list[tuple[int, int, float, bool]], limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("spend") / "s.sqlite")
    spend = Spend(SpendLimit(spend_limit_tokens=limit), TIERS, store, "a")
    billed, open_tickets = 0, list[tuple[Ticket, int, int]]()
    for prompt, completion, used, at_once in calls:
        try:
            ticket = spend.reserve("m", prompt, completion)
        except SpendLimitReached:
            assert store.spent("a")[0] + prompt + completion > limit
            continue
        open_tickets.append((ticket, prompt, int(completion * used)))
        if at_once:
            ticket, prompt, completion = open_tickets.pop()
            spend.settle(ticket, prompt, 0, completion)
            billed += prompt + completion
        aside = sum(ticket.tokens for ticket, *_ in open_tickets)
        assert store.spent("a")[0] == billed + aside <= limit
    for ticket, prompt, completion in open_tickets:
        spend.settle(ticket, prompt, 0, completion)
        billed += prompt + completion
    assert store.spent("a")[0] == billed
    store.close()


def test_connections_of_their_own_do_not_pass_the_limit_together(tmp_path: Path) -> None:
    """As the processes of a sweep: each has a store of its own on the same file."""
    granted: list[Ticket] = []

    def job() -> None:
        store = Store(tmp_path / "s.sqlite")
        spend = Spend(SpendLimit(spend_limit_tokens=1000), TIERS, store, "a")
        try:
            while True:
                granted.append(spend.reserve("m", 5, 2))
        except SpendLimitReached:
            store.close()

    Store(tmp_path / "s.sqlite").close()
    jobs = [threading.Thread(target=job) for _ in range(4)]
    for one in jobs:
        one.start()
    for one in jobs:
        one.join()
    assert sum(ticket.tokens for ticket in granted) == 1000 // 7 * 7
