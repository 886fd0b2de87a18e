"""A real OpenAI-compatible server on loopback that fails as it is told to, and keeps the bill of what it delivered."""

import asyncio
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

FAULTS = (
    "hang",
    "close",
    "garbage",
    "list",
    "error_200",
    "no_usage",
    "repeat",
    "fewer",
    "half_body",
    "half_choice",
    "no_choices",
    "429",
    "500",
    "503",
)
SILENT = ("hang", "close", "garbage", "list", "error_200", "no_usage", "half_body", "429", "500", "503")
"""Faults that deliver no answer with a bill: this server bills nothing for them."""

NAMES = {
    "hang": "timeout",
    "close": "connection closed",
    "garbage": "not JSON",
    "list": "not JSON",
    "error_200": "error in a 200",
    "no_usage": "usage missing",
    "repeat": "choices repeated",
    "fewer": "choices missing",
    "half_body": "half an answer",
    "half_choice": "half an answer",
    "no_choices": "choices missing",
    "429": "http 429",
    "500": "http 500",
    "503": "http 503",
}
"""How each fault is called in the ledger."""


def draw(*parts: object) -> int:
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16)


def at_random(share: float, faults: tuple[str, ...] = FAULTS, seed: int = 0) -> Callable[[str, int], str]:
    """A plan: this share of calls fails, each in its own way, whatever order they come in."""

    def plan(prompt: str, attempt: int) -> str:
        chosen = draw(seed, prompt, attempt)
        return faults[chosen % len(faults)] if chosen // 1000 % 1000 < share * 1000 else ""

    return plan


@dataclass
class Faulty:
    """plan(prompt, how many calls it has had) -> a fault, or ""."""

    plan: Callable[[str, int], str]
    reply: Callable[[str, int], str] = lambda prompt, sample: f"echo {draw(prompt) % 1000}"
    headers: dict[str, str] = field(default_factory=dict)  # of 429 and 5xx
    status_body: dict[str, Any] = field(default_factory=dict)  # of an answer whose plan is another status
    cached: int = 0  # of each prompt's tokens
    wait_s: float = 0.002  # of each answer
    together: int = 0  # no answer before so many calls have come
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bills: list[tuple[int, int, int]] = field(default_factory=list)  # prompt, cached, completion tokens
    faults: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    url: str = ""
    _at_once: int = 0
    _all_here: asyncio.Event = field(default_factory=asyncio.Event)
    _tried: Counter[str] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        return sum(prompt + completion for prompt, _, completion in self.bills)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._answer(request)
        finally:
            self._at_once -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization", ""))
        prompt = json.dumps(body.get("messages") or body.get("prompt"))
        fault = self.plan(prompt, self._tried[prompt])
        self._tried[prompt] += 1
        self.faults[fault] += 1
        if len(self.bodies) >= self.together:
            self._all_here.set()
        await self._all_here.wait()
        await asyncio.sleep(self.wait_s)
        if fault == "hang":
            await asyncio.sleep(600)
        if fault == "close":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault == "garbage":
            return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")
        if fault == "list":
            return web.json_response(["an answer"])
        if fault == "error_200":
            return web.json_response({"error": {"message": "overloaded", "code": 529}})
        if fault.isdigit():
            default = {"error": {"message": f"status {fault}"}}
            return web.json_response(self.status_body or default, status=int(fault), headers=self.headers)
        return await self._deliver(request, body, prompt, fault)

    async def _deliver(
        self, request: web.Request, body: dict[str, Any], prompt: str, fault: str
    ) -> web.StreamResponse:
        n, chat = body.get("n", 1), "messages" in body
        most = body.get("max_tokens") or body.get("max_completion_tokens")
        texts = [self.reply(prompt, sample) for sample in range(n)]
        used = [1 + draw(prompt, self._tried[prompt], sample) % most for sample in range(n)]
        ended: str | None = "stop"
        indexes = list(range(n))
        if fault == "repeat":
            indexes = [0] * (n + 1)
            texts, used = [texts[0], *texts], [used[0], *used]
        if fault == "fewer":
            indexes = indexes[: n // 2]
        if fault == "no_choices":
            indexes = []
        if fault == "half_choice":
            texts, ended = [text[: len(text) // 2] for text in texts], None
        choices = [
            {
                "index": index,
                "finish_reason": ended,
                **({"message": {"role": "assistant", "content": text}} if chat else {"text": text}),
            }
            for index, text in zip(indexes, texts, strict=False)
        ]
        bill = (max(1, len(prompt) // 4), self.cached, sum(used[: len(indexes)]))
        answer: dict[str, Any] = {"id": "1", "object": "chat.completion", "choices": choices}
        if fault != "no_usage":
            answer["usage"] = {
                "prompt_tokens": bill[0],
                "completion_tokens": bill[2],
                "prompt_tokens_details": {"cached_tokens": bill[1]},
            }
        raw = json.dumps(answer).encode()
        if fault == "half_body":
            response = web.StreamResponse(headers={"Content-Length": str(len(raw))})
            await response.prepare(request)
            await response.write(raw[: len(raw) // 2])
            assert request.transport is not None
            request.transport.close()
            return response
        if fault not in SILENT:
            self.bills.append(bill)
        return web.Response(body=raw, content_type="application/json")


@contextmanager
def serving(server: Faulty) -> Iterator[Faulty]:
    """The server at `server.url`, in a thread of its own."""
    loop = asyncio.new_event_loop()
    ready, runners = threading.Event(), list[web.AppRunner]()

    async def start() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", server.answer)
        app.router.add_post("/v1/completions", server.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        runners.append(runner)
        ready.set()

    def drive() -> None:
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runners[0].cleanup())
        loop.close()

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
