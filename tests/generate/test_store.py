"""The store: what was paid for is kept, keys tell models and samplings apart, a full disk says so."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import GenerationError
from outlay.generate import Completion, Failure, Price, Request, Sampling
from outlay.generate.store import Store

REQUEST = Request("small", "prompt", Sampling(0.7, 10), "attempt", 0, 0)
K, ABSENT = "ab" * 32, "cd" * 32
IDENTITY = {"model": "m", "weights": "w", "dtype": "float32"}


def test_a_completion_comes_back_as_it_was_put(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    completion = Completion("text é\n\ud7ff", 12, 3, "length", cached_tokens=4, latency_s=0.25)
    completion = replace(completion, logprob=-0.125, failures=(Failure("timeout", 3, 2, 0.5),))
    store.put([(K, "m", completion)])
    store.close()
    assert Store(tmp_path / "s.sqlite").get([K, ABSENT]) == {K: completion}


def test_many_keys_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.put((f"{at:064x}", "m", Completion(str(at), at, 1, "stop")) for at in range(2500))
    found = store.get([f"{at:064x}" for at in range(0, 2500, 2)])
    assert len(found) == 1250 and found[f"{2498:064x}"].prompt_tokens == 2498


def test_an_error_is_never_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    store.put([(K, "m", Completion("", 0, 0, "error", error="hung up"))])
    assert len(store) == 0


@given(
    st.sampled_from(
        [
            replace(REQUEST, text="other"),
            replace(REQUEST, stream="probe"),
            replace(REQUEST, sample=1),
            replace(REQUEST, seed=1),
            replace(REQUEST, sampling=Sampling(0.8, 10)),
            replace(REQUEST, sampling=Sampling(0.7, 11)),
            replace(REQUEST, sampling=Sampling(0.7, 10, top_p=0.9)),
            replace(REQUEST, sampling=Sampling(0.7, 10, stop=("\n",))),
        ]
    )
)
def test_whatever_changes_a_reply_changes_its_key(other: Request) -> None:
    assert other.key(IDENTITY) != REQUEST.key(IDENTITY)


@pytest.mark.parametrize("field", IDENTITY)
def test_one_models_rows_are_never_anothers(field: str) -> None:
    assert REQUEST.key({**IDENTITY, field: "other"}) != REQUEST.key(IDENTITY)


def test_at_temperature_0_every_sample_is_the_same_row() -> None:
    greedy = replace(REQUEST, sampling=Sampling(0.0, 10))
    assert greedy.key(IDENTITY) == replace(greedy, sample=3, seed=9, stream="probe").key(IDENTITY)


def test_no_room_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages + 1}")  # SQLite's own "disk is full"
    with pytest.raises(GenerationError, match=r"s\.sqlite.*full.*OUTLAY_CACHE_DIR"):
        store.put([(f"{at:064x}", "m", Completion("x" * 5000, 1, 1, "stop")) for at in range(50)])
    assert len(store) == 0  # the batch is whole or absent


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.sqlite").write_text("not a database, certainly not one of ours" * 50)
    with pytest.raises(GenerationError, match="OUTLAY_CACHE_DIR"):
        Store(tmp_path / "s.sqlite")


def test_two_stores_on_one_file_see_each_others_batches(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "s.sqlite"), Store(tmp_path / "s.sqlite")
    first.put([(K, "m", Completion("a", 1, 1, "stop"))])
    second.put([(K, "m", Completion("b", 1, 1, "stop"))])  # the first answer stays
    assert second.get([K])[K].text == first.get([K])[K].text == "a"


def test_a_store_is_readable_by_sqlite_alone(tmp_path: Path) -> None:
    Store(tmp_path / "s.sqlite").put([(K, "m", Completion("a", 1, 1, "stop"))])
    assert sqlite3.connect(tmp_path / "s.sqlite").execute(
        "SELECT model, text FROM completions"
    ).fetchall() == [("m", "a")]


def test_a_price_is_exact_and_an_unknown_one_is_refused() -> None:
    price = Price(input=2.5, cached=1.25, output=10.0, units=1.0)
    assert price.usd(1_000_000, 400_000, 100_000) == pytest.approx(0.6 * 2.5 + 0.4 * 1.25 + 0.1 * 10)
    assert price.cost_units(10, 5) == 15
    with pytest.raises(Exception, match="0 is a price"):
        Price(input=1.0).usd(1, 0, 1)
    with pytest.raises(Exception, match="units"):
        Price().cost_units(1, 1)
