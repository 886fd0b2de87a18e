"""The one executor: all live queries advance together, wave by wave, whatever the policy.

A wave asks every live policy for its next action, checks it against the query's token budget, answers each tier's
requests as one batch, and writes the lines. Verifiers that cost nothing run inside the wave.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from outlay.agent import Attempt, Policy, Probe, Stop, Verify
from outlay.agent.ledger import Ledger, Line, Query, Trace
from outlay.errors import ConfigError
from outlay.generate import Completion, Generator, Prompt, Request, Sampling
from outlay.generate import Tally as Tally
from outlay.generate.store import Store, complete


@dataclass(frozen=True)
class Task:
    """One query to execute: what the policy sees, what is sent, and how a reply is read."""

    query: Query
    prompt: Callable[
        [str | None, int], Prompt
    ]  # the chain to show (None: fresh), the context's step -> prompt
    read: Callable[[str], str | None]  # reply -> normalised answer


@dataclass(frozen=True)
class Verifier:
    """A check that costs no tokens. oracle: it reads gold."""

    check: Callable[[Line], bool]  # an attempt's line -> verdict
    oracle: bool


@dataclass(frozen=True)
class Outcome:
    """A finished query."""

    trace: Trace
    stop: Stop


@dataclass(frozen=True)
class Limits:
    """Of every call and every query."""

    max_new_tokens: int
    stop: tuple[str, ...] = ()
    top_p: float = 1.0
    tokens_per_query: int | None = None  # a hard budget: reserved before a call, settled after it
    reuse_probe: bool = False  # probe samples are attempts too, drawn from the attempts' stream


@dataclass
class _Live:
    task: Task
    trace: Trace
    drawn: Counter[tuple[str, str, str]] = field(
        default_factory=Counter
    )  # (tier, stream, prompt) -> samples drawn


@dataclass(frozen=True)
class _Call:
    """One request of a wave: n samples of one prompt."""

    live: _Live
    kind: str
    context: str
    step: int
    text: str
    prompt_tokens: int
    requests: tuple[Request, ...]


def execute(
    tasks: Sequence[Task],
    policy: Policy,
    generator: Generator,
    store: Store,
    tally: Tally,
    verifiers: Mapping[str, Verifier],
    limits: Limits,
    seed: int,
    ledger: Ledger,
    on_progress: Callable[[int, int, int], None] = lambda finished, rows, tokens: None,
) -> list[Outcome]:
    """Run a policy on all tasks; lines go to `ledger` as they are settled.

    Returns:
        One outcome per task, in order.

    Raises:
        ConfigError: the policy asks for an unknown tier or verifier.
        GenerationError: the generator or the store cannot go on; what was generated is in the store.
    """
    live = [_Live(task, Trace(task.query)) for task in tasks]
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < len(live):
        calls = []
        for at, one in enumerate(live):
            if at in outcomes:
                continue
            action = _advance(one, policy, verifiers, ledger)
            if not isinstance(action, Stop):
                call = _call(one, action, generator, limits, seed)
                needs = call.prompt_tokens + sum(request.sampling.max_new_tokens for request in call.requests)
                budget = limits.tokens_per_query
                if budget is None or one.trace.tokens + needs <= budget:
                    calls.append(call)
                    continue
                action = Stop(one.trace.vote(), solved=False)  # the budget is spent: the best answer so far
            outcomes[at] = Outcome(one.trace, action)
            on_progress(1, 0, 0)
        _settle(calls, generator, store, tally, limits, ledger, on_progress)
    return [outcomes[at] for at in range(len(live))]


def _advance(
    one: _Live, policy: Policy, verifiers: Mapping[str, Verifier], ledger: Ledger
) -> Probe | Attempt | Stop:
    """The policy's next action that needs the generator; verifiers on the way are run and written."""
    while True:
        action = policy.next(one.trace)
        if not isinstance(action, Verify):
            return action
        verifier = verifiers.get(action.kind)
        if verifier is None:
            raise ConfigError(
                f"verifier '{action.kind}' is not to be had here; known: {', '.join(verifiers)}"
            )
        looked_at = one.trace.attempts[action.attempt - 1]
        line = Line(
            example_id=one.trace.query.id,
            line=len(one.trace.lines),
            kind="verify",
            tier=looked_at.tier,
            attempt=looked_at.attempt,
            step=looked_at.step,
            answer=looked_at.answer,
            verdict=verifier.check(looked_at),
            oracle=verifier.oracle,
            text=action.kind,
        )
        one.trace = one.trace.plus([line])
        ledger.lines.append(line)


def _call(one: _Live, action: Probe | Attempt, generator: Generator, limits: Limits, seed: int) -> _Call:
    probe = isinstance(action, Probe)
    context, step = ("fresh", 0) if isinstance(action, Probe) else (action.context, action.step)
    attempts = one.trace.attempts
    shown = attempts[-1].text if context != "fresh" and attempts else None
    n = action.k if isinstance(action, Probe) else action.n
    text = generator.render(one.task.prompt(shown, step), action.tier)
    stream = "probe" if probe and not limits.reuse_probe else "attempt"
    sampling = Sampling(
        temperature=action.temperature,
        max_new_tokens=limits.max_new_tokens,
        top_p=limits.top_p,
        stop=limits.stop,
    )
    drawn = (action.tier, stream, text)
    first = one.drawn[drawn]
    one.drawn[drawn] += n
    return _Call(
        live=one,
        kind="probe" if probe else "attempt",
        context=context if shown is not None else "fresh",
        step=step,
        text=text,
        prompt_tokens=generator.count([text], action.tier)[0],
        requests=tuple(
            Request(
                tier=action.tier, text=text, sampling=sampling, stream=stream, sample=first + k, seed=seed
            )
            for k in range(n)
        ),
    )


def _settle(
    calls: Sequence[_Call],
    generator: Generator,
    store: Store,
    tally: Tally,
    limits: Limits,
    ledger: Ledger,
    on_progress: Callable[[int, int, int], None],
) -> None:
    """Answer a wave's calls, a batch a tier, and write their lines in the order of the queries."""
    fitting: dict[str, list[Request]] = {}
    refused: dict[int, str] = {}
    for call in calls:
        tier = call.requests[0].tier
        window = generator.window(tier)
        longest = call.prompt_tokens + limits.max_new_tokens
        if longest > window:
            refused[id(call)] = (
                f"the prompt's {call.prompt_tokens} tokens and a reply of {limits.max_new_tokens} pass the window of "
                f"{window} tokens on tier {tier}; lower budget.tokens"
            )
        else:
            fitting.setdefault(tier, []).extend(call.requests)
    answered: dict[Request, Completion] = {}
    for requests in fitting.values():
        done = complete(requests, generator, store, tally, lambda rows, tokens: on_progress(0, rows, tokens))
        answered.update(zip(requests, done, strict=True))
    prices = {tier.name: tier.price for tier in generator.tiers}
    for call in calls:
        lines = []
        tried = len(call.live.trace.attempts)
        for k, request in enumerate(call.requests):
            error = refused.get(id(call))
            reply = Completion("", 0, 0, "refused", error=error) if error else answered[request]
            # One request, n samples: the prompt is on the first sample's line alone.
            prompt_tokens = reply.prompt_tokens if k == 0 else 0
            cached_tokens = reply.cached_tokens if k == 0 else 0
            price = prices[request.tier]
            lines.append(
                Line(
                    example_id=call.live.trace.query.id,
                    line=len(call.live.trace.lines) + k,
                    kind=call.kind,
                    tier=request.tier,
                    attempt=tried + k + 1 if call.kind == "attempt" or limits.reuse_probe else 0,
                    sample=request.sample,
                    context=call.context,
                    step=call.step,
                    seed=request.row_seed,
                    temperature=request.sampling.temperature,
                    prompt_tokens=prompt_tokens,
                    cached_tokens=cached_tokens,
                    completion_tokens=reply.completion_tokens,
                    cost_units=price.cost_units(prompt_tokens, reply.completion_tokens),
                    usd=price.usd(prompt_tokens, cached_tokens, reply.completion_tokens),
                    latency_s=reply.latency_s,
                    finish_reason=reply.finish_reason,
                    answer=None if reply.error else call.live.task.read(reply.text),
                    error=reply.error,
                    text=reply.text,
                )
            )
        call.live.trace = call.live.trace.plus(lines)
        ledger.lines.extend(lines)


def scored(lines: Iterable[Line], score: Callable[[Line], float | None]) -> list[Line]:
    """The lines with their scores joined, after the run: nothing that decided has seen them."""
    return [replace(line, score=score(line)) if line.kind != "verify" else line for line in lines]
