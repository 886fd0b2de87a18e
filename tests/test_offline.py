"""`outlay generate`: workers of a local Ray cluster fill the store with what a sweep asks first, each row once, whoever dies."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay import offline
from outlay.app import _command
from outlay.compose import preflight
from outlay.errors import ConfigError, GenerationError
from outlay.generate import Completion, Failure, Price, Request, Sampling, Tier
from outlay.generate.spend import Spend, SpendLimit
from outlay.generate.store import Store
from outlay.offline import Call, Made, Worker, Workers, into_store
from outlay.plan import union
from outlay.schema import Parts

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
ENGINES = [
    "smollm2",
    pytest.param("vllm", marks=pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")),
]
GRID = ("dataset=arithmetic", "dataset.limit=5", "probe=cbe", "retry=none,fixed")
"""Two points that ask the same at first: a probe of three samples for each of five sums."""


def points(*words: str) -> list[Parts]:
    return preflight([*GRID, "verbose=false", *words], multirun=True)


def request(text: str, sample: int = 0) -> Request:
    return Request("t", text, Sampling(0.7, 4), "probe", sample, 0)


# ---------------------------------------------------------------- without Ray


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generator=extract", "dataset=notes"], "nothing to generate"),
        (
            ["generator=openai", "generator.spend_limit_tokens=1000"],
            r"cannot be kept for gpt-4o-mini here: it tries a call again.*Run the sweep itself",
        ),
        (
            ["generator=ladder", "generator.tiers=[smollm2,gpt_4o_mini]", "generator.spend_limit_usd=1"],
            "cannot be kept for gpt-4o-mini here",
        ),
        (["generator=vllm", "generator.serve=true"], "each worker has an engine of its own"),
        (
            ["generator=vllm", "generator.base_url=http://127.0.0.1:1/v1"],
            "each worker has an engine of its own",
        ),
        (["--workers", "0"], "--workers: 0 is not a number from 1 on"),
        (["--wrong"], "outlay generate"),
        (["generator=smolm2"], "Did you mean 'smollm2'"),
    ],
)
def test_what_cannot_be_spread_is_refused_before_anything_starts(
    own_cache: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none is asked")
    if {"generator=vllm", "generator=openai", "generator=ladder"} & set(words) and find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with pytest.raises(ConfigError, match=message):
        _command(["generate", "dataset=arithmetic", *words])


def test_without_ray_the_way_to_it_is_told(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'outlay\[ray\]'"):
        _command(["generate", "dataset=arithmetic", "generator=smollm2"])


@needs_ray
def test_credentialed_text_goes_to_no_cluster(own_cache: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.csv"
    notes.write_text("note,summary\nWard round. Stable.,Stable.\n")
    words = ["dataset=mimic_bhc", f"dataset.path={notes}", "generator=smollm2", "--address", "auto"]
    with pytest.raises(ConfigError, match=r"mimic_bhc is credentialed.*Leave --address"):
        _command(["generate", *words])


class Moody:
    """A generator that answers with a prompt's last word, and fails on one that says so."""

    name = "moody"
    tiers: Sequence[Tier] = (Tier("t", Price(0.0, None, 0.0, 1.0)),)

    def identity(self, tier: str) -> dict[str, str]:
        return {"model": "moody"}

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return [len(text.split()) for text in texts]

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        for at, one in reversed(list(enumerate(requests))):
            if "fail" in one.text:
                raise GenerationError(f"{one.text}: no")
            yield [(at, Completion(f"{one.text} {one.sample}", 2, 1, "stop"))]


def test_one_bad_prompt_takes_no_other_with_it_and_is_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    asked = [(request("a"), request("a", 1)), (request("fail"),), (request("b"),)]
    batch = pa.table({"call": [0, 1, 2], "requests": [pickle.dumps(one) for one in asked]})
    rows = Worker(Moody(), {"t": {"model": "moody"}})(batch).to_pylist()  # type: ignore[arg-type]
    said = [([one.text for one in pickle.loads(row["completions"])], row["error"]) for row in rows]
    assert said == [(["a 0", "a 1"], ""), ([], "fail: no."), (["b 0"], "")]

    keys = [[one.key({}) for one in call] for call in asked]
    store, made = Store(tmp_path / "s.sqlite"), Made()
    work: Any = SimpleNamespace(made=made, store=store, identities={"t": {}}, told=lambda *_: None)
    offline._keep(
        [
            (Call("ex", tuple(key), call), pickle.loads(row["completions"]), row["error"])
            for key, call, row in zip(keys, asked, rows, strict=True)
        ],
        work,
    )
    assert made.rows == 3 and made.tokens == 3
    assert [(one["example"], one["key"], one["error"]) for one in made.failed] == [
        ("ex", keys[1][0], "fail: no.")
    ]
    assert set(store.get([key for call in keys for key in call])) == {*keys[0], *keys[2]}


def test_a_worker_with_other_weights_is_refused() -> None:
    with pytest.raises(GenerationError, match="model: moody not other"):
        Worker(Moody(), {"t": {"model": "other"}})  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.integers(1, 60))
def test_what_is_handed_out_is_paid_for_in_advance(sizes: list[int], limit: int) -> None:
    """A call of n samples costs its prompt's one token and four for each sample at most."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "s.sqlite")
        spend = Spend(SpendLimit(spend_limit_tokens=limit), Moody.tiers, store, "a")
        work: Any = SimpleNamespace(spend=spend, generator=Moody(), limited=True)
        calls = deque(
            Call("ex", (), tuple(request(f"p{at}", k) for k in range(n))) for at, n in enumerate(sizes)
        )
        most = [1 + 4 * n for n in sizes]
        try:
            paid = offline._paid(calls, work)
        except GenerationError:
            paid = []
            assert most[0] > limit
        taken = sum(most[: len(paid)])
        assert taken <= limit and store.spent("a")[0] == taken
        assert len(paid) + len(calls) == len(sizes)
        assert not calls or taken + most[len(paid)] > limit
        store.close()


def test_every_bill_is_charged_and_what_is_unknown_stays_set_aside(tmp_path: Path) -> None:
    """Moody's calls may cost 1 + 2 x 4 tokens each."""
    store = Store(tmp_path / "s.sqlite")
    spend = Spend(SpendLimit(spend_limit_tokens=1000), Moody.tiers, store, "a")
    work: Any = SimpleNamespace(
        spend=spend,
        generator=Moody(),
        limited=True,
        made=Made(),
        store=store,
        identities={"t": {}},
        told=lambda *_: None,
    )
    asked = [(request(text), request(text, 1)) for text in ("plain", "again", "lost", "half")]
    keys = [tuple(one.key({}) for one in call) for call in asked]
    paid = offline._paid(deque(Call("ex", *both) for both in zip(keys, asked, strict=True)), work)
    good = Completion("x", 1, 2, "stop")
    tried = replace(good, failures=(Failure("timeout", 1, 1), Failure("http 500")))
    lost = Completion("", 0, 0, "error", error="connection closed (bill unknown)")
    offline._keep(
        [
            (paid[0], [good, good], ""),
            (paid[1], [tried, good], ""),
            (paid[2], [], "no"),
            (paid[3], [good, lost], ""),
        ],
        work,
    )
    assert store.spent("a")[0] == (1 + 2 + 2) + (1 + 2 + 2 + 1 + 1) + 9 + 9


def test_a_row_in_the_store_counts_once_and_one_that_was_made_here_not(tmp_path: Path) -> None:
    store, made = Store(tmp_path / "s.sqlite"), Made()
    old, new, more = request("old"), request("new"), request("more")
    key = {one.text: one.key({"model": "moody"}) for one in (old, new, more)}
    answer = Completion("x", 1, 1, "stop")
    store.put([(key["old"], "m", answer)])
    work: Any = SimpleNamespace(
        generator=Moody(), identities={}, store=store, made=made, workers=Workers(round=1)
    )
    chunks = iter([[("a", old), ("b", new)], [("a", old), ("b", new), ("c", more)], [("a", old), ("b", new)]])
    assert list(offline._missing(chunks, work)) == [key["new"]]
    store.put([(key["new"], "m", answer)])  # as the round does
    assert list(offline._missing(chunks, work)) == [key["more"]]
    store.put([(key["more"], "m", answer)])
    assert offline._missing(chunks, work) == {} and made.stored == 1


# ---------------------------------------------------------------- on a local Ray


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_the_sweep_afterwards_generates_nothing_first_and_reads_what_it_would_have_made(
    own_cache: Path, tmp_path: Path, engine: str
) -> None:
    grid = points(f"generator={engine}")
    store, alone = Store(own_cache / "completions.sqlite"), Store(tmp_path / "alone.sqlite")
    made = into_store(grid, store, Workers(count=2, batch=2), "account")
    assert (made.rows, made.stored, made.failed, made.skipped) == (15, 0, [], [])  # both points ask the same
    after = union(grid, store, "account", lambda rows, tokens: None)
    assert (after.generated_tokens, after.misses, after.hits) == (0, 0, 15)

    union(grid, alone, "account", lambda rows, tokens: None)  # in this process, without Ray
    ours, theirs = ({str(row["key"]): row for row in one.export()} for one in (store, alone))
    assert ours.keys() == theirs.keys()
    for key, row in theirs.items():
        for name in ("model", "text", "prompt_tokens", "completion_tokens", "finish_reason", "cached_tokens"):
            assert ours[key][name] == row[name], (key, name)
        assert ours[key]["logprob"] == pytest.approx(row["logprob"], abs=1e-3)
    from outlay.generate.vllm import stop

    stop()


@needs_ray
@pytest.mark.slow
def test_what_another_process_is_generating_is_waited_for_and_not_paid_again(own_cache: Path) -> None:
    grid = points("generator=smollm2")
    made = Made()
    group = list(enumerate(grid, start=1))
    first = next(offline._first(group, made))
    identity = grid[0].generator.identity("smollm2")
    theirs = [one.key(identity) for _, one in first[:4]]
    claimed = threading.Event()

    def other() -> None:
        store = Store(own_cache / "completions.sqlite")
        with store.claiming(theirs[:3]) as mine:
            assert mine == theirs[:3]
            claimed.set()
            until = time.monotonic() + 120
            while len(store) < 12 and time.monotonic() < until:  # all that are left to it
                time.sleep(0.1)
            store.put(
                (key, "m", Completion("theirs", 1, 1, "stop")) for key in theirs[:2]
            )  # and not the third
        store.close()

    thread = threading.Thread(target=other)
    thread.start()
    claimed.wait(30)
    store = Store(own_cache / "completions.sqlite")
    made = into_store(grid, store, Workers(batch=2), "account")
    thread.join()
    assert made.rows == 13 and len(store) == 15
    assert [store.get([key])[key].text == "theirs" for key in theirs] == [True, True, False, False]


def command(cache: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "outlay", "generate", *GRID[:1], *GRID[2:], *words],
        cwd=cache.parent,
        env={**os.environ, "OUTLAY_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_some(store: Store, process: "subprocess.Popen[str]", wanted: int = 3) -> dict[str, Any]:
    """What the store has as soon as it has some."""
    while len(store) < wanted:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return {str(row["key"]): row for row in store.export()}


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_worker_that_is_killed_loses_nothing_that_was_finished(own_cache: Path, engine: str) -> None:
    store = Store(own_cache / "completions.sqlite")
    process = command(own_cache, "dataset.limit=24", f"generator={engine}", "--batch", "1")
    before = until_some(store, process)
    (worker,) = [one for one in psutil.Process(process.pid).children(recursive=True) if is_worker(one)]
    engines = worker.children(recursive=True)
    worker.kill()
    out, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "72 completions" in out
    after = {str(row["key"]): row for row in store.export()}
    assert len(after) == 72 and before.items() <= after.items()
    assert psutil.wait_procs(engines, timeout=20)[1] == []


def is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("MapWorker" in word or "MapBatches(" in word for word in process.cmdline())
    return False


@needs_ray
@pytest.mark.slow
def test_a_command_that_is_killed_goes_on_where_it_stopped(own_cache: Path) -> None:
    store = Store(own_cache / "completions.sqlite")
    words = ("dataset.limit=40", "generator=smollm2", "--batch", "2", "--round", "60")
    process = command(own_cache, *words)
    until_some(store, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = {str(row["key"]): row for row in store.export()}
    out, said = (again := command(own_cache, *words)).communicate(timeout=600)
    assert again.returncode == 0, said
    after = {str(row["key"]): row for row in store.export()}
    assert len(after) == 120 and before.items() <= after.items()
    assert f"{120 - len(before)} completions" in out
