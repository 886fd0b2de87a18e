"""One store for many processes: no call is paid twice, the dead hold nothing up, a limit is shared and never passed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlay.errors import SpendLimitReached
from outlay.generate import Completion, Price, Request, Sampling, Tally, Tier
from outlay.generate.spend import Spend, SpendLimit
from outlay.generate.store import Store, complete

WORKER = """
    import sys, time
    from pathlib import Path
    sys.path[:0] = [{tests!r}]
    from simulated import Simulated
    from outlay.generate import Request, Sampling, Tally
    from outlay.generate.store import Store, complete

    class Slow(Simulated):
        def generate(self, requests, spend):
            for batch in super().generate(requests, spend):
                time.sleep({pause})
                yield batch
                print(len(batch), flush=True)

    rows = [Request("small", f"prompt {{at % 30}}", Sampling(0.7, 5), "attempt", at // 30, 0) for at in range(60)]
    first = {first}
    complete(rows[first:] + rows[:first], Slow(batch=3), Store(Path({store!r})), Tally())
    print("done", flush=True)
"""


def worker(store: Path, first: int, pause: float) -> "subprocess.Popen[str]":
    tests = str(Path(__file__).parents[1] / "agent")
    code = textwrap.dedent(WORKER).format(tests=tests, store=str(store), first=first, pause=pause)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_jobs_that_want_the_same_rows_pay_for_each_once(tmp_path: Path) -> None:
    jobs = [worker(tmp_path / "s.sqlite", first, 0.01) for first in (0, 20, 40)]
    outputs = [job.communicate(timeout=120)[0].split() for job in jobs]
    assert all(output[-1] == "done" for output in outputs)
    assert sum(int(word) for output in outputs for word in output[:-1]) == 60
    assert len(Store(tmp_path / "s.sqlite")) == 60


def test_the_rows_of_a_job_that_was_killed_are_taken_over_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    job = worker(path, 0, 0.2)
    assert job.stdout is not None
    assert job.stdout.readline() == "3\n"  # its first batch is kept, the rest is claimed
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    other = worker(path, 0, 0.0)
    output = other.communicate(timeout=60)[0].split()
    kept = 60 - sum(map(int, output[:-1]))
    assert output[-1] == "done" and 3 <= kept <= 9


def test_a_claim_of_this_machine_stands_as_long_as_its_process(tmp_path: Path) -> None:
    """However late its sign of life: a stopped machine or a full disk makes no second caller pay."""
    path, keys = tmp_path / "s.sqlite", ["ab" * 32, "cd" * 32]
    store, other = Store(path), Store(path)
    with store.claiming(keys):
        store._db.execute("UPDATE claims SET until=?", (time.time() - 1,))
        with other.claiming(keys) as found:
            assert found == []
    with other.claiming(keys) as found:  # a thread that ends gives up, though its process lives
        assert found == keys


def test_the_heart_beats_on_after_the_store_failed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outlay.generate import store as module

    monkeypatch.setattr(module, "LEASE_S", 0.2)
    store, other = Store(tmp_path / "s.sqlite"), Store(tmp_path / "s.sqlite")

    def until() -> float:
        return float(other._db.execute("SELECT until FROM claims").fetchone()[0])

    with store.claiming(["ab" * 32]) as mine:
        assert len(mine) == 1
        other._db.execute("ALTER TABLE claims RENAME TO away")
        time.sleep(0.3)  # some beats that fail
        other._db.execute("ALTER TABLE away RENAME TO claims")
        before, end = until(), time.monotonic() + 30
        while until() <= before and time.monotonic() < end:
            time.sleep(0.02)
        assert until() > before


def test_claims_that_could_not_be_given_up_go_first_later(tmp_path: Path) -> None:
    """Else they would stand while their process lives."""
    store, key = Store(tmp_path / "s.sqlite"), "ab" * 32
    with pytest.raises(RuntimeError, match="the call"), store.claiming([key]):
        store._db.execute("ALTER TABLE claims RENAME TO away")
        raise RuntimeError("the call")  # and not that the store failed as well
    store._db.execute("ALTER TABLE away RENAME TO claims")
    with store.claiming([key]) as mine:
        assert mine == [key]


def test_a_claim_from_another_machine_stands_until_its_lease_ends(tmp_path: Path) -> None:
    key = "ab" * 32
    store = Store(tmp_path / "s.sqlite")
    claim = (bytes.fromhex(key), "elsewhere:1:2.0#a", time.time() + 60)
    store._db.execute("INSERT INTO claims VALUES (?,?,?)", claim)
    with store.claiming([key]) as mine:
        assert mine == []
    store._db.execute("UPDATE claims SET until=?", (time.time() - 1,))
    with store.claiming([key]) as mine:
        assert mine == [key]


@pytest.mark.parametrize("stores", [1, 2])
def test_a_process_keeps_out_of_its_own_way(stores: int, tmp_path: Path) -> None:
    """Two who claim, of one process: on a store of their own each, or on the same."""
    keys = [f"{at:064x}" for at in range(6)]
    first = Store(tmp_path / "s.sqlite")
    second = Store(tmp_path / "s.sqlite") if stores == 2 else first

    def claims() -> set[str]:
        return {key.hex() for (key,) in first._db.execute("SELECT key FROM claims")}

    with first.claiming(keys[:4]) as one:
        assert one == keys[:4]
        with second.claiming(keys) as other:
            assert other == keys[4:]
            second.put([(keys[4], "m", Completion("x", 1, 1, "stop")), (keys[0], "m", BROKEN)])
            assert claims() == {*keys[:4], keys[5]}  # an error ends no claim
        assert claims() == set(keys[:4])  # who ends gives up its own alone
    assert claims() == set()


BROKEN = Completion("", 0, 0, "error", error="hung up")


@pytest.mark.parametrize("stores", [1, 2])
def test_threads_that_want_the_same_rows_pay_for_each_once(stores: int, tmp_path: Path) -> None:
    from simulated import Simulated

    generator = Slow(Simulated(batch=3))
    rows = [Request("small", f"prompt {at}", Sampling(0.7, 5), "attempt", 0, 0) for at in range(30)]
    opened = [Store(tmp_path / "s.sqlite") for _ in range(stores)]
    with ThreadPoolExecutor(3) as pool:
        jobs = [
            pool.submit(complete, rows[first:] + rows[:first], generator, opened[at % stores], Tally())
            for at, first in enumerate((0, 10, 20))
        ]
        found = [job.result(timeout=60) for job in jobs]
    assert sorted(one.text for one in generator.asked) == sorted(one.text for one in rows)
    assert found[0] == found[1][20:] + found[1][:20] == found[2][10:] + found[2][:10]


class Slow:
    """A generator whose batches take a while, so that its callers overlap; asked: the rows that it was asked for."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def generate(self, requests: Any, spend: Any) -> Iterator[Any]:
        for batch in self.inner.generate(requests, spend):
            time.sleep(0.02)
            yield batch


def test_an_error_gives_the_claims_up(tmp_path: Path) -> None:
    from simulated import Simulated

    class Broken(Simulated):
        def generate(self, requests, spend):  # type: ignore[no-untyped-def]
            raise RuntimeError("the engine died")
            yield []

    store = Store(tmp_path / "s.sqlite")
    row = Request("small", "prompt", Sampling(0.7, 5), "attempt", 0, 0)
    with pytest.raises(RuntimeError):
        complete([row], Broken(), store, Tally())
    assert store._db.execute("SELECT count(*) FROM claims").fetchone() == (0,)


TIERS = (Tier("small", Price(input=1.0, output=2.0, units=1.0)),)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50), st.floats(0, 1)), max_size=30),
    tokens=st.integers(1, 800),
)
def test_a_limit_is_never_passed_and_what_is_not_used_is_put_back(
    tmp_path: Path, calls: list[tuple[int, int, float]], tokens: int
) -> None:
    store = Store(tmp_path / "s.sqlite")
    store._db.execute("DELETE FROM accounts")
    jobs = [Spend(SpendLimit(None, tokens), TIERS, store, "sweep") for _ in range(2)]
    billed = 0
    for at, (prompt, most, used) in enumerate(calls):
        spend = jobs[at % 2]
        try:
            ticket = spend.reserve("small", prompt, most)
        except SpendLimitReached:
            assert billed + prompt + most > tokens
            continue
        billed += prompt + int(used * most)
        assert store.spent("sweep")[0] <= tokens
        spend.settle(ticket, prompt, 0, int(used * most))
    assert store.spent("sweep")[0] == billed <= tokens


def test_a_reached_limit_says_what_is_spent_and_the_way_out(tmp_path: Path) -> None:
    spend = Spend(SpendLimit(0.001, None), TIERS, Store(tmp_path / "s.sqlite"), "run")
    spend.reserve("small", 100, 400)  # 0.0009 USD
    with pytest.raises(SpendLimitReached, match=r"0\.0009 of 0\.0010 USD.*spend_limit_usd"):
        spend.reserve("small", 100, 400)


def test_the_first_layout_is_brought_over_row_by_row(tmp_path: Path) -> None:
    import sqlite3

    old = sqlite3.connect(tmp_path / "s.sqlite")
    old.execute(
        "CREATE TABLE completions (key TEXT PRIMARY KEY, model TEXT, created REAL, text TEXT, prompt_tokens INTEGER,"
        " completion_tokens INTEGER, finish_reason TEXT, cached_tokens INTEGER, latency_s REAL) WITHOUT ROWID"
    )
    old.execute(
        "INSERT INTO completions VALUES (?,?,?,?,?,?,?,?,?)", ("ab" * 32, "m", 1.0, "x", 2, 3, "stop", 1, 0.5)
    )
    old.commit()
    old.close()
    found = Store(tmp_path / "s.sqlite").get(["ab" * 32])
    assert found == {"ab" * 32: Completion("x", 2, 3, "stop", cached_tokens=1, latency_s=0.5)}


def test_list_export_prune_and_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from outlay.errors import ConfigError
    from outlay.keep import store as command

    path, other = tmp_path / "s.sqlite", tmp_path / "other.sqlite"
    one = Store(path)
    one.put([(f"{at:064x}", f"model-{at % 2}", Completion(f"é{at}", 2, 3, "stop")) for at in range(10)])
    command(["--path", str(path), "list"])
    assert "model-1" in (shown := capsys.readouterr().out) and "15" in shown
    command(["--path", str(path), "export", "--out", str(tmp_path / "rows.jsonl")])
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == [f"é{at}" for at in range(10)]
    command(["--path", str(other), "take", str(path)])
    assert len(Store(other)) == 10
    command(["--path", str(path), "prune", "--model", "model-0"])
    assert len(one) == 10  # without --yes it only says what would go
    command(["--path", str(path), "prune", "--model", "model-0", "--yes"])
    assert {model for model, *_ in one.models()} == {"model-1"}
    command(["--path", str(path), "take", str(other)])
    assert len(one) == 10
    with pytest.raises(ConfigError, match="model-0, model-1"):
        command(["--path", str(path), "prune", "--model", "model-7"])
