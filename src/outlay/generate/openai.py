"""Any model behind an OpenAI-compatible server, through the official client: many calls at once, each on the bill.

Samples of one prompt are one call (`n`), so its prompt is paid for once. A call that fails is tried again, after an
exponential wait or what Retry-After asks for; each try that failed is handed on with what it was billed.
"""

import asyncio
import hashlib
import ipaddress
import json
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, ClassVar
from urllib.parse import urlsplit

from outlay.errors import ConfigError, GenerationError, SpendLimitReached, nearest
from outlay.generate import Completion, Failure, Price, Prompt, Request, Tier
from outlay.generate.prices import price_of
from outlay.generate.spend import Spend, Ticket
from outlay.schema import option

OFFICIAL = "https://api.openai.com/v1"

SLACK = 64
"""Tokens reserved beyond a chat's count: a server's template may add a system message of its own."""

OWN_FIELDS = (
    "model",
    "messages",
    "prompt",
    "n",
    "stream",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "logprobs",
)
"""What a request says itself; `extra` may not say it again."""

ONE_PROMPT = (
    "content_filter",
    "context_length_exceeded",
    "string_above_max_length",
    "maximum context length",
)
"""Marks of a 400 that is about one prompt: its rows are refused, and the others go on."""

WAY_OUT = {
    301: "give the address that it redirects to as generator.base_url",
    400: "check generator.model and generator.extra, and try generator.logprobs=false or send_seed=false",
    401: "the key is not accepted: export {key_env} with a valid one",
    402: "the account has no credit left: top it up and run again; what was answered is kept",
    403: "the key may not use this model: check its permissions, or choose another generator.model",
    404: "check generator.model and generator.base_url, which usually ends in /v1",
    429: "the account has no credit left: top it up and run again; what was answered is kept",
}
"""What to do about an answer that no second try would change."""

_answered: set[str] = set()
"""Addresses that have answered this process: there a connection that is refused may be a server that starts again."""

Emit = Callable[[list[tuple[int, Completion]]], None]


@dataclass(frozen=True)
class OpenAI:
    model: str = "gpt-4o-mini"
    tier: str | None = None  # null: the model's name
    base_url: str | None = None  # null: the official one
    api: str = option("chat", choices=("chat", "completions"))
    key_env: str | None = "OPENAI_API_KEY"  # the variable that holds the key
    revision: str = ""  # what the server serves under the model's name; part of every row's key
    tokenizer: str | None = None  # a model's name, tiktoken:ENCODING, or null: every byte counts as a token
    window_tokens: int = option(128_000, least=1)  # prompt and reply
    concurrency: int = option(16, least=1)
    timeout_s: float = option(120.0, above=0)  # of a whole call
    max_tries: int = option(6, least=1)
    backoff_s: float = option(1.0, above=0)  # the first wait is at most this; then it doubles
    max_wait_s: float = option(120.0, above=0)
    n_per_call: int = option(128, least=1)
    prefill: str = option("none", choices=("none", "assistant", "vllm"))
    send_seed: bool = True
    logprobs: bool = False
    extra: dict[str, Any] = field(default_factory=dict)  # further fields of the request's body
    price: Price = field(default_factory=Price)

    samples: ClassVar[bool] = True
    stored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self._url)
        except ValueError:  # brackets of an IPv6 address that do not match
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"base_url={self.base_url}: not a server's address, such as http://127.0.0.1:8000/v1"
            )
        if parts.username or parts.password:
            raise ConfigError("base_url holds a user or a password; name the variable of the key in key_env")
        if self.api == "completions" and self.tokenizer is None:
            raise ConfigError(
                "api=completions sends the chat template's text: set tokenizer to the model's name"
            )
        taken = [name for name in self.extra if name in OWN_FIELDS]
        if taken:
            raise ConfigError(f"extra.{taken[0]}: each request says that itself")

    @property
    def name(self) -> str:
        return self.tier or self.model

    @property
    def tiers(self) -> Sequence[Tier]:
        return (Tier(self.name, price_of(self.model, self.price, own_hardware=self.stays_home)),)

    @property
    def stays_home(self) -> bool:
        return is_loopback(self._url)

    @property
    def _url(self) -> str:
        return (self.base_url or OFFICIAL).rstrip("/")

    def identity(self, tier: str) -> Mapping[str, str]:
        found = {
            "model": self.model,
            "revision": self.revision,
            "base_url": self._url,
            "api": self.api,
            "extra": json.dumps(self.extra, sort_keys=True),
        }
        # A row that was kept without its log probability does not serve who asks for it.
        return found | ({"logprobs": "true"} if self.logprobs else {})

    def window(self, tier: str) -> int:
        return self.window_tokens

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        """Tokens of each text; of a rendered prompt, with what its template adds. Without a tokenizer, bytes of
        UTF-8: an upper bound, since no tokenizer makes two tokens of a byte. Bills never come from here where the
        server states its usage."""
        if self.tokenizer is None:
            return [len(text.encode(errors="replace")) for text in texts]
        self._tokenizer()
        chats = [_messages(text) if self.api == "chat" else None for text in texts]
        plain = iter(
            _count(self.tokenizer, [text for text, chat in zip(texts, chats, strict=True) if not chat])
        )
        return [_count_chat(self.tokenizer, chat) if chat else next(plain) for chat in chats]

    def render(self, prompt: Prompt, tier: str) -> str:
        """The messages as JSON, as they are sent; for api=completions the text under the tokenizer's chat template."""
        messages = [{"role": role, "content": text} for role, text in prompt.messages]
        if self.api == "completions":
            self._tokenizer()
            return _templated(str(self.tokenizer), messages) + prompt.prefill
        if prompt.prefill and self.prefill != "none":
            messages.append({"role": "assistant", "content": prompt.prefill})
        return json.dumps(messages, ensure_ascii=False)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        """One batch a call.

        Raises:
            SpendLimitReached: no further call fits; those in flight have been finished and yielded.
            ConfigError: no key.
            GenerationError: no server, answers without a bill, or an answer that no second try would change.
        """
        if requests:
            yield from _stepped(lambda emit: self._answer_all(requests, spend, emit))

    async def _answer_all(self, requests: Sequence[Request], spend: Spend, emit: Emit) -> None:
        waiting, session = deque(_calls(requests)), _Session(spend)

        async def work() -> None:
            while waiting and session.over is None:
                rows = waiting.popleft()
                try:
                    await _Call(self, client, session, requests, rows, emit).answer()
                except Exception as error:  # the first ends the session, once the calls in flight have ended
                    session.end(error)

        async with self._client() as client:
            await asyncio.gather(*(work() for _ in range(min(self.concurrency, len(waiting)))))
        if session.over is not None:
            raise session.over

    def ready(self) -> None:
        """Refuse a run before anything is loaded.

        Raises:
            ConfigError: the key that the server needs is not in the environment, or is none.
        """
        key = self._key()
        if not key and self.key_env and not self.stays_home:
            raise ConfigError(
                f"generator.base_url={self._url} needs a key: export {self.key_env}=…, name another variable in "
                "generator.key_env, or set it to null for a server without keys"
            )
        if not (key.isascii() and key.isprintable()):  # an ellipsis that was copied, a line break
            raise ConfigError(f"{self.key_env} holds characters that no key has: export the key itself")

    def _client(self) -> Any:
        import openai

        self.ready()
        key = self._key()
        # Text for this machine passes neither a proxy nor a redirect to another.
        home: dict[str, Any] = {"trust_env": False, "follow_redirects": False} if self.stays_home else {}
        return openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=self._url,  # said outright: the client would take another one from the environment
            max_retries=0,  # each try has its reservation and its line
            timeout=None,  # `timeout_s` bounds the whole call, a server that trickles too
            http_client=openai.DefaultAsyncHttpxClient(timeout=None, **home),
        )

    def _fields(self, request: Request, n: int) -> dict[str, Any]:
        """The body of a call."""
        sampling = request.sampling
        found: dict[str, Any] = {"model": self.model, "n": n, "temperature": sampling.temperature}
        if sampling.top_p != 1:
            found["top_p"] = sampling.top_p
        if sampling.stop:
            found["stop"] = list(sampling.stop)
        if self.send_seed:
            found["seed"] = call_seed(request, bits=30)  # some servers take 32
        extra = dict(self.extra)
        if self.api == "completions":
            # As ids, so that the server adds no token of its own.
            found["prompt"] = _ids(str(self.tokenizer), request.text)
            found |= {"max_tokens": sampling.max_new_tokens} | ({"logprobs": 1} if self.logprobs else {})
        else:
            found["messages"] = messages = json.loads(request.text)
            if self.prefill == "vllm" and messages[-1]["role"] == "assistant":
                extra |= {"continue_final_message": True, "add_generation_prompt": False}
            # The official server's newer models refuse the old name, others know no new one.
            longest = "max_completion_tokens" if self._url == OFFICIAL else "max_tokens"
            found |= {longest: sampling.max_new_tokens} | ({"logprobs": True} if self.logprobs else {})
        return found | ({"extra_body": extra} if extra else {})

    def _tokenizer(self) -> None:
        """Load a tokenizer that is not tiktoken's.

        Raises:
            GenerationError: it cannot be; says so too where the server does not run, which comes first.
        """
        from outlay.models import load_tokenizer

        if self.tokenizer is None or self.tokenizer.startswith("tiktoken:"):
            return
        try:
            load_tokenizer(self.tokenizer)
        except GenerationError as error:
            said = (
                f"generator.tokenizer={self.tokenizer}: {str(error).removeprefix(f'tokenizer of {self.tokenizer}: ')}, "
                "or set it to null, which counts each byte as a token"
            )
            if self.stays_home and not _listens(self._url):
                said = f"{self._nobody('connection refused')}. Nor can its tokens be counted: {said}"
            raise GenerationError(said) from error

    def _nobody(self, why: str) -> str:
        """That no server has ever answered, and what to do."""
        port = urlsplit(self._url).port
        start = f"Start one (vllm serve {self.model}{f' --port {port}' if port else ''}), or set"
        return (
            f"generator.base_url={self._url}: no server answers there ({why}). "
            f"{start if self.stays_home else 'Check the network, or set'} generator.base_url to where one listens"
        )

    def _key(self) -> str:
        return os.environ.get(self.key_env, "").strip() if self.key_env else ""

    def _clean(self, said: object) -> str:
        """The first line of what a server says, without the key, should it repeat it."""
        key, text = self._key(), str(said).strip().partition("\n")[0]
        return (text.replace(key, "***") if key else text)[:200]


@dataclass(frozen=True)
class _Billed:
    """What a call is billed, by the server's own word."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True)
class _Reply:
    """One choice of an answer. fault: why it cannot be used."""

    index: int
    text: str = ""
    finish_reason: str = ""
    logprob: float | None = None
    tokens: int = 0
    fault: str = ""


@dataclass(frozen=True)
class _Answer:
    """What a call gave: the choices that can be used, those that cannot, and the bill of all."""

    usable: Sequence[_Reply]
    dropped: Sequence[_Reply]
    asked: int
    billed: _Billed
    latency_s: float = 0.0

    @property
    def fault(self) -> str:
        """Why it is not all that was asked for; "" where it is."""
        short = "choices missing" if len(self.usable) < self.asked else ""
        name = self.dropped[0].fault if self.dropped else short
        return f"{name}: {len(self.usable)} of {self.asked} kept" if name else ""

    def failure(self, prompt: bool) -> Failure:
        """The part of the bill that stands on no row's line. prompt: its prompt too, since another call's does."""
        wasted = sum(reply.tokens for reply in self.dropped)
        paid = (self.billed.prompt, self.billed.cached) if prompt else (0, 0)
        error = self.fault or "asked for in parts"
        return Failure(error, paid[0], wasted, self.latency_s, paid[1])


class _Fault(Exception):
    """A try that failed. billed: None where nobody knows. unreachable: nothing listens at the address; unstated: an
    answer came, and its bill did not."""

    def __init__(
        self,
        error: str,
        billed: _Billed | None = None,
        retry_after: float | None = None,
        unreachable: bool = False,
        unstated: bool = False,
    ) -> None:
        super().__init__(error)
        self.error = error if billed is not None else f"{error} (bill unknown)"
        self.billed, self.retry_after = billed, retry_after
        self.unreachable, self.unstated = unreachable, unstated
        self.latency_s = 0.0

    @property
    def failure(self) -> Failure:
        billed = self.billed or _Billed()
        return Failure(self.error, billed.prompt, billed.completion, self.latency_s, billed.cached)


class _Refused(Exception):
    """The server refuses this prompt, and would again."""


class _Session:
    """What the calls of one `generate` share: the account, and whether it is over."""

    def __init__(self, spend: Spend) -> None:
        self._spend = spend
        self._flying = 0
        self._landed = asyncio.Event()
        self._ended = asyncio.Event()
        self._stated, self._unstated = False, 0
        self.over: Exception | None = None

    def bill(self, stated: bool) -> bool:
        """Note whether an answer states its bill. False: two have not and none has, so the next will not either."""
        self._stated |= stated
        self._unstated += not stated
        return self._stated or self._unstated < 2

    async def reserve(self, tier: str, prompt_tokens: int, completion_tokens: int) -> Ticket:
        """Set a call's most aside. Calls in flight rarely cost theirs, so the limit is reached when none is left.

        Raises:
            SpendLimitReached, or what else has ended the session.
        """
        while self.over is None:
            try:
                ticket = self._spend.reserve(tier, prompt_tokens, completion_tokens)
            except SpendLimitReached as reached:
                if self._flying == 0:
                    self.end(reached)
                else:
                    await self._landed.wait()
            else:
                self._flying += 1
                return ticket
        raise self.over

    def land(self, ticket: Ticket, billed: _Billed | None) -> None:
        """A try is over; one whose bill is unknown stays set aside."""
        self._flying -= 1
        if billed is not None:
            self._spend.settle(ticket, billed.prompt, billed.cached, billed.completion)
        self._wake()

    def end(self, error: Exception) -> None:
        if self.over is None:
            self.over = error
            self._ended.set()
            self._wake()

    async def sleep(self, seconds: float) -> None:
        """Wait before the next try, unless there will be none."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    def _wake(self) -> None:
        self._landed.set()
        self._landed = asyncio.Event()


@dataclass
class _Call:
    """Samples of one prompt, until each has its reply: one call, or several where the server gives fewer at a time."""

    generator: OpenAI
    client: Any
    session: _Session
    requests: Sequence[Request]
    rows: Sequence[int]  # of the requests, by sample
    emit: Emit
    failures: list[Failure] = field(default_factory=list)
    answers: list[_Answer] = field(default_factory=list)  # each for the next rows

    @property
    def missing(self) -> Sequence[int]:
        return self.rows[sum(len(answer.usable) for answer in self.answers) :]

    async def answer(self) -> None:
        """Emit a completion for every row, or for those that were answered before the session ended."""
        import tenacity

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(self._again),
            stop=tenacity.stop_after_attempt(self.generator.max_tries),
            wait=self._wait,
            sleep=self.session.sleep,
            after=lambda state: self.failures.append(_fault(state).failure),
            reraise=True,
        )
        error, reason = "", "error"
        try:
            while self.missing:
                answer: _Answer = await retrying(self._try)
                if self.answers:  # the rows' lines show one prompt, this call's
                    self.failures.append(self.answers[-1].failure(prompt=True))
                self.answers.append(answer)
        except _Refused as refused:
            error, reason = str(refused), "refused"
        except _Fault as fault:
            if fault.unreachable and self.generator._url not in _answered:
                raise GenerationError(self.generator._nobody(fault.error)) from None
            if fault.unreachable:
                raise GenerationError(
                    f"generator.base_url={self.generator._url}: {fault.error}, {self.generator.max_tries} times. "
                    "Start the server, or correct the address; what was answered is kept"
                ) from None
            error = fault.error
            if fault.failure == Failure(error, latency_s=fault.latency_s):
                self.failures.pop()  # the row's own line says it
        finally:
            self._emit(error, reason)

    def _again(self, error: BaseException) -> bool:
        """Whether a try is worth another: not where no server has ever answered."""
        return isinstance(error, _Fault) and not (error.unreachable and self.generator._url not in _answered)

    async def _try(self) -> _Answer:
        generator, missing = self.generator, self.missing
        request, n = self.requests[missing[0]], min(len(missing), self.generator.n_per_call)
        (prompt_tokens,) = generator.count([request.text], request.tier)
        most = prompt_tokens + (SLACK if generator.api == "chat" else 0)
        ticket = await self.session.reserve(request.tier, most, n * request.sampling.max_new_tokens)
        started, billed = time.perf_counter(), None
        try:
            answer = await self._send(request, n)
            answer = replace(answer, latency_s=round(time.perf_counter() - started, 4))
            billed = answer.billed
            self.session.bill(stated=True)
            if not answer.usable:
                raise _Fault(answer.fault, billed)
        except (_Refused, GenerationError):
            billed = _Billed()
            raise
        except _Fault as fault:
            billed, fault.latency_s = fault.billed, round(time.perf_counter() - started, 4)
            if fault.unstated and not self.session.bill(stated=False):
                raise GenerationError(
                    f"generator.base_url={generator._url}: its answers do not state their usage, so nobody knows what "
                    "they cost, and a second one was not worth another try. Set generator.tokenizer to the model's own "
                    "(a folder, a hub id or tiktoken:ENCODING): then tokens are counted here"
                ) from None
            raise
        finally:
            self.session.land(ticket, billed)
        return answer

    async def _send(self, request: Request, n: int) -> _Answer:
        """One call.

        Raises:
            _Fault: it may be tried again. _Refused: not for this prompt. GenerationError: not at all.
        """
        import openai

        generator, begun = self.generator, False
        chat = generator.api == "chat"
        api = self.client.chat.completions if chat else self.client.completions
        try:
            async with (
                asyncio.timeout(generator.timeout_s),
                api.with_streaming_response.create(**generator._fields(request, n)) as response,
            ):
                begun = True  # the head is here; the body may still break off
                _answered.add(generator._url)
                raw = await response.read()
        except TimeoutError:
            raise _Fault(f"timeout: no answer within {generator.timeout_s:g} s") from None
        except openai.APIStatusError as error:
            _answered.add(generator._url)
            raise self._status(error) from None
        except openai.APIConnectionError as error:
            cause, said = type(error.__cause__).__name__, generator._clean(error.__cause__ or "")
            if cause.startswith("Connect"):
                refused = said in ("", "All connection attempts failed")
                name = "connection refused" if refused else f"no connection: {said}"
                raise _Fault(name, _Billed(), unreachable=True) from None
            raise _Fault(f"connection closed: {cause}") from None
        except openai.OpenAIError:
            raise
        except Exception as error:  # whatever the HTTP library beneath the client raises
            if not begun:
                raise
            raise _Fault(f"half an answer: {type(error).__name__}") from None
        return _read(raw, n, generator, request)

    def _status(self, error: Any) -> Exception:
        """What an HTTP status means: try again, refuse the prompt, or end."""
        status, body = error.status_code, error.body if isinstance(error.body, dict) else {}
        said = self.generator._clean(body.get("message") or "")
        named = f"http {status}" + (f": {said}" if said else "")
        no_credit = status == 429 and body.get("code") == "insufficient_quota"
        if status in (408, 409, 425, 429) or status >= 500:
            wait = _retry_after(error.response.headers)
            if not no_credit and (wait is None or wait <= self.generator.max_wait_s):
                return _Fault(named, _Billed(), wait)
            if not no_credit:
                return GenerationError(
                    f"generator.base_url={self.generator._url}: {named}: it asks to wait {wait:.0f} s. Run again then, "
                    "or raise generator.max_wait_s; what was answered is kept"
                )
        if status == 400 and any(mark in f"{body.get('code')} {said}" for mark in ONE_PROMPT):
            return _Refused(named)
        if status == 401:
            named = "http 401"  # what is said then may show parts of the key
        way_out = WAY_OUT.get(status if status >= 400 else 301, WAY_OUT[400])
        key_env = self.generator.key_env or "the variable that generator.key_env names"
        return GenerationError(
            f"generator.base_url={self.generator._url}: {named}: {way_out.format(key_env=key_env)}"
        )

    def _wait(self, state: Any) -> float:
        """Seconds before the next try: what the server asks for, else a random part of a doubling time."""
        import tenacity

        asked = _fault(state).retry_after
        generator = self.generator
        backoff = tenacity.wait_random_exponential(generator.backoff_s, generator.max_wait_s)
        return float(backoff(state)) if asked is None else asked

    def _emit(self, error: str, reason: str) -> None:
        last = self.answers[-1] if self.answers else None
        done = [
            Completion(
                text=reply.text,
                prompt_tokens=last.billed.prompt,
                completion_tokens=reply.tokens,
                finish_reason=reply.finish_reason,
                cached_tokens=last.billed.cached,
                latency_s=answer.latency_s,
                error="refused: content filter" if reply.finish_reason == "refused" else "",
                logprob=reply.logprob,
            )
            for answer in self.answers
            for reply in answer.usable
            if last
        ]
        if last and last.fault and last.dropped:
            self.failures.append(last.failure(prompt=False))
        if error:
            done += [Completion("", 0, 0, reason, error=error)] * len(self.missing)
        if done:
            done[0] = replace(done[0], failures=tuple(self.failures))
            self.emit(list(zip(self.rows, done, strict=False)))


def _fault(state: Any) -> _Fault:
    fault = state.outcome.exception()
    assert isinstance(fault, _Fault)
    return fault


def call_seed(request: Request, bits: int = 62) -> int:
    """A call's seed, from its first sample. vLLM gives sample i of a call seed + i (`ParentRequest`), so there a sample
    is the same however many are asked for at once; elsewhere equal calls have equal seeds."""
    whole = json.dumps([request.seed, request.text, request.stream])
    base = int(hashlib.sha256(whole.encode()).hexdigest()[:16], 16) >> 64 - bits
    return base + request.sample


def _calls(requests: Sequence[Request]) -> list[list[int]]:
    """The rows of each call, by sample: all that differ in their sample alone."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for at, one in enumerate(requests):
        found.setdefault((one.tier, one.text, one.sampling, one.stream, one.seed), []).append(at)
    return [sorted(rows, key=lambda at: requests[at].sample) for rows in found.values()]


def _read(raw: bytes, n: int, generator: OpenAI, request: Request) -> _Answer:
    """An answer of status 200, checked.

    Raises:
        _Fault: it is none, or its bill cannot be known.
    """
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _Fault("not JSON: " + generator._clean(raw[:80].decode(errors="replace")))
    billed = _usage(found.get("usage"))
    if found.get("error"):
        said = found["error"].get("message") if isinstance(found["error"], dict) else found["error"]
        raise _Fault(f"error in a 200: {generator._clean(said)}", billed or _Billed())
    choices = found.get("choices")
    replies = _replies(choices if isinstance(choices, list) else [], n, generator)
    if billed is None:
        if generator.tokenizer is None:
            raise _Fault("usage missing: set generator.tokenizer to count instead", unstated=True)
        counts = generator.count([request.text], request.tier) + _count(
            generator.tokenizer, [reply.text for reply in replies]
        )
        billed = _Billed(counts[0], 0, sum(counts[1:]))
    shares = _shares(billed.completion, _weights(replies, generator))
    replies = [replace(reply, tokens=tokens) for reply, tokens in zip(replies, shares, strict=True)]
    if not replies and billed.completion:  # paid for, and nothing given: one line bears it
        replies = [_Reply(0, tokens=billed.completion, fault="choices missing")]
    return _Answer(
        [reply for reply in replies if not reply.fault],
        [reply for reply in replies if reply.fault],
        n,
        billed,
    )


def _usage(found: Any) -> _Billed | None:
    """The server's bill; None where it states none that can be believed."""
    if not isinstance(found, dict):
        return None
    details = found.get("prompt_tokens_details")
    cached = (details.get("cached_tokens") if isinstance(details, dict) else None) or 0
    tokens: list[Any] = [found.get("prompt_tokens"), cached, found.get("completion_tokens")]
    if any(type(one) is not int or one < 0 for one in tokens) or not 0 < tokens[0] >= cached:
        return None
    return _Billed(*tokens)


def _replies(choices: Sequence[Any], n: int, generator: OpenAI) -> list[_Reply]:
    """The choices by their index, each with what is wrong with it."""
    found: list[_Reply] = []
    seen: set[int] = set()
    reasons = {"length": "length", "content_filter": "refused"}
    for at, choice in enumerate(choices):
        choice = choice if isinstance(choice, dict) else {}
        index = choice.get("index", at)
        message = choice.get("message")
        part = message if isinstance(message, dict) else {}
        # A model that declines says so in a field of its own; of a chat, content may be null.
        text = (
            choice.get("text")
            if generator.api == "completions"
            else part.get("content") or part.get("refusal")
        )
        ended = choice.get("finish_reason")
        whole = isinstance(ended, str) and (isinstance(text, str) or (text is None and bool(part)))
        fault = "" if whole else "half an answer"
        if type(index) is not int or not 0 <= index < n or index in seen:
            fault = "choices repeated"
        seen.add(index if type(index) is int else -1)
        text = text if isinstance(text, str) else ""
        logprob, tokens = _logprob(choice.get("logprobs"))
        text = text.encode(
            errors="replace"
        ).decode()  # half of a surrogate pair can be sent as JSON, not kept
        found.append(_Reply(index, text, reasons.get(str(ended), "stop"), logprob, tokens, fault))
    return sorted(found, key=lambda reply: reply.index if type(reply.index) is int else n)


def _logprob(found: Any) -> tuple[float | None, int]:
    """(mean log probability, tokens) of a choice, from either form of `logprobs`; (None, 0) where it has none."""
    if not isinstance(found, dict):
        return None, 0
    content, flat = found.get("content"), found.get("token_logprobs")
    each = (
        [one.get("logprob") for one in content if isinstance(one, dict)]
        if isinstance(content, list)
        else flat
    )
    if not isinstance(each, list) or not each or any(not isinstance(one, int | float) for one in each):
        return None, 0
    return sum(each) / len(each), len(each)


def _weights(replies: Sequence[_Reply], generator: OpenAI) -> list[int]:
    """What the choices' shares of the usage go by: their tokens where known, else their characters."""
    if all(reply.tokens for reply in replies):
        return [reply.tokens for reply in replies]
    if generator.tokenizer is not None and len(replies) > 1:
        return _count(generator.tokenizer, [reply.text for reply in replies])
    return [len(reply.text) for reply in replies]


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """A whole number of tokens for each choice, in proportion (largest remainder): the sum is exactly the total."""
    if not weights:
        return []
    weights = weights if sum(weights) else [1] * len(weights)
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda at: (-(total * weights[at] % whole), at))
    for at in by_rest[: total - sum(shares)]:
        shares[at] += 1
    return shares


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait, from either form of Retry-After."""
    said = headers.get("retry-after") or ""
    with suppress(ValueError):
        return max(0.0, float(said))
    with suppress(ValueError):
        at = parsedate_to_datetime(said)
        return max(0.0, (at - datetime.now(at.tzinfo or UTC)).total_seconds())
    return None


def is_loopback(url: str) -> bool:
    """Whether an address is of this machine, by what is written; no name but localhost is looked up."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listens(url: str) -> bool:
    """Whether something listens at an address of this machine."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname, port), timeout=2):
            return True
    except OSError:
        return False


def _stepped(work: Callable[[Emit], Awaitable[None]]) -> Iterator[list[tuple[int, Completion]]]:
    """What an async function emits, as it comes. Its loop has a thread of its own, so that a notebook, whose thread
    runs one already, can step it; closing the iterator cancels it."""
    batches: queue.SimpleQueue[list[tuple[int, Completion]] | BaseException | None] = queue.SimpleQueue()
    loop = asyncio.new_event_loop()

    async def whole() -> None:
        await work(batches.put)

    task = loop.create_task(whole())

    def drive() -> None:
        try:
            loop.run_until_complete(task)
            batches.put(None)
        except BaseException as error:
            batches.put(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=drive, daemon=True, name="outlay-openai")
    thread.start()
    try:
        while (batch := batches.get()) is not None:
            if isinstance(batch, BaseException):
                raise batch
            yield batch
    finally:
        with suppress(RuntimeError):  # the loop has closed already
            loop.call_soon_threadsafe(task.cancel)
        thread.join()


def _count(tokenizer: str, texts: Sequence[str]) -> list[int]:
    name = tokenizer.removeprefix("tiktoken:")
    if name == tokenizer:
        from outlay.models import count_tokens

        return count_tokens(tokenizer, texts)
    return [len(one) for one in _encoding(name).encode_ordinary_batch(list(texts))]


@cache
def _encoding(name: str) -> Any:
    """An encoding of OpenAI's own tokenizer.

    Raises:
        GenerationError: tiktoken is not installed, knows no such encoding, or could not fetch it.
    """
    otherwise = "or set generator.tokenizer=null, which counts each byte as a token"
    try:
        import tiktoken
    except ImportError:
        raise GenerationError(
            f"generator.tokenizer=tiktoken:{name}: tiktoken is not installed. Run: pip install 'outlay[tokens]', {otherwise}"
        ) from None
    if name not in tiktoken.list_encoding_names():
        raise GenerationError(
            f"generator.tokenizer=tiktoken:{name}: {nearest(name, tiktoken.list_encoding_names())}"
        )
    try:
        return tiktoken.get_encoding(name)
    except Exception as error:  # of the network
        raise GenerationError(
            f"generator.tokenizer=tiktoken:{name}: its file could not be fetched ({type(error).__name__}). Put it into "
            f"TIKTOKEN_CACHE_DIR, {otherwise}"
        ) from error


def _templated(tokenizer: str, messages: Sequence[Mapping[str, str]], continued: bool = False) -> str:
    from outlay.models import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    if not loaded.chat_template:
        raise GenerationError(
            f"generator.tokenizer={tokenizer}: it has no chat template. Name that of an instruct model"
        )
    turn = {"continue_final_message": True} if continued else {"add_generation_prompt": True}
    return str(loaded.apply_chat_template(list(messages), tokenize=False, **turn))


def _ids(tokenizer: str, text: str) -> list[int]:
    from outlay.models import load_tokenizer

    return list(load_tokenizer(tokenizer).backend_tokenizer.encode(text, add_special_tokens=False).ids)


def _count_chat(tokenizer: str, messages: Sequence[Mapping[str, str]]) -> int:
    if not tokenizer.startswith("tiktoken:"):
        continued = messages[-1]["role"] == "assistant"
        return _count(tokenizer, [_templated(tokenizer, messages, continued)])[0]
    # OpenAI's template is not public; by its own guide a message takes three tokens and its role, and the reply three.
    return sum(_count(tokenizer, [message["content"] for message in messages])) + 4 * len(messages) + 3


def _messages(text: str) -> list[dict[str, str]] | None:
    """A rendered chat; None for any other text."""
    if text.startswith('[{"role": "'):
        with suppress(ValueError):
            return list(json.loads(text))
    return None
