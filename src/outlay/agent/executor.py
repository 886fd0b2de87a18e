"""The one executor: all live queries advance together, wave by wave, whatever the policy.

A wave asks every live policy for its next action, checks it against the query's token budget, answers each tier's
requests as one batch, and writes the lines. Verifiers that cost nothing run inside the wave.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outlay.agent import Attempt, Policy, Probe, Stop, Verify
from outlay.agent.ledger import Ledger, Line, Query, Trace
from outlay.errors import ConfigError, nearest
from outlay.generate import FRESH, Completion, Earlier, Generator, Price, Prompt, Request, Sampling, Tier
from outlay.generate import Tally as Tally
from outlay.generate.spend import UNLIMITED, Spend
from outlay.generate.store import Store, complete


@dataclass(frozen=True)
class Task:
    """One query to execute: what the policy sees, what is sent, and how a reply is read."""

    query: Query
    # what of earlier attempts is shown, the context's step, the tier's own first words -> prompt
    prompt: Callable[[Earlier, int, str | None], Prompt]
    read: Callable[[str], str | None]  # reply -> normalised answer


@dataclass(frozen=True)
class Verifier:
    """A check that costs no tokens. oracle: it reads gold."""

    check: Callable[
        [Trace, Line], float
    ]  # the query so far, an attempt -> confidence that it is right, 0 to 1
    oracle: bool
    threshold: float = 0.5  # the least confidence of a positive verdict


@dataclass(frozen=True)
class Asked:
    """A check that costs a call: k samples of another prompt, whose readings' mean is the confidence."""

    prompt: Callable[[Trace, Line], Prompt]
    read: Callable[[str], float | None]  # reply -> 0 to 1; None where it says nothing
    tier: str | None = None  # None: the tier of the attempt
    k: int = 1
    temperature: float = 0.0
    max_new_tokens: int = 8
    threshold: float = 0.5
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A finished query. refused: the most tokens of the call that its token budget did not allow, where that ended it."""

    trace: Trace
    stop: Stop
    refused: int | None = None


@dataclass(frozen=True)
class Limits:
    """Of every call and every query."""

    max_new_tokens: int
    stop: tuple[str, ...] = ()
    top_p: float = 1.0
    # Before a call the most that it should take is reserved: the prompt as counted here, and replies of full length. What
    # only the bill shows, failed tries and tokens that a server's template adds, may pass it, and is then left of nothing.
    tokens_per_query: int | None = None
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
    action: Probe | Attempt | Verify
    asked: Asked | None
    context: str
    step: int
    text: str
    prompt_tokens: int
    requests: tuple[Request, ...]

    @property
    def kind(self) -> str:
        return {Probe: "probe", Attempt: "attempt", Verify: "verify"}[type(self.action)]

    @property
    def most_tokens(self) -> int:
        return self.prompt_tokens + sum(request.sampling.max_new_tokens for request in self.requests)


def execute(
    tasks: Sequence[Task],
    policy: Policy,
    generator: Generator,
    store: Store,
    tally: Tally,
    verifiers: Mapping[str, Verifier | Asked],
    limits: Limits,
    seed: int,
    ledger: Ledger,
    on_progress: Callable[[int, int, int], None] = lambda finished, rows, tokens: None,
    spend: Spend = UNLIMITED,
) -> list[Outcome]:
    """Run a policy on all tasks; lines go to `ledger` as they are settled.

    Returns:
        One outcome per task, in order.

    Raises:
        ConfigError: the policy asks for an unknown tier or verifier; its wave is not paid for.
        GenerationError: the generator or the store cannot go on; what was generated is in the store.
    """
    live = [_Live(task, Trace(task.query)) for task in tasks]
    ledger.queries |= {task.query.id: task.query for task in tasks}
    outcomes: dict[int, Outcome] = {}
    tiers = {tier.name: tier for tier in generator.tiers}
    prepare = getattr(policy, "prepare", None)
    while len(outcomes) < len(live):
        calls = []
        if prepare:
            prepare([one.trace for at, one in enumerate(live) if at not in outcomes])
        for at, one in enumerate(live):
            if at in outcomes:
                continue
            action = _advance(one, policy, verifiers, ledger)
            if not isinstance(action, Stop):
                call = _call(one, action, verifiers, generator, tiers, limits, seed)
                budget = limits.tokens_per_query
                if budget is None or one.trace.tokens + call.most_tokens <= budget:
                    calls.append(call)
                    continue
                stop = Stop(one.trace.vote(), solved=False)  # the budget is spent: the best answer so far
                outcomes[at] = Outcome(one.trace, stop, call.most_tokens)
            else:
                outcomes[at] = Outcome(one.trace, action)
            on_progress(1, 0, 0)
        _settle(calls, generator, store, tally, limits, ledger, on_progress, spend)
    return [outcomes[at] for at in range(len(live))]


def first_wave(
    tasks: Sequence[Task],
    policy: Policy,
    generator: Generator,
    verifiers: Mapping[str, Verifier | Asked],
    limits: Limits,
    seed: int,
) -> list[tuple[Request, int]]:
    """The requests that a policy makes before it has seen any answer, each with its prompt's tokens.

    A plan is made of these, and the union of all points is generated from them; nothing is generated here.
    """
    found, tiers = [], {tier.name: tier for tier in generator.tiers}
    for task in tasks:
        one = _Live(task, Trace(task.query))
        action = _advance(one, policy, verifiers, Ledger())
        if not isinstance(action, Stop):
            call = _call(one, action, verifiers, generator, tiers, limits, seed)
            budget = limits.tokens_per_query
            if (budget is None or call.most_tokens <= budget) and _refusal(call, generator) is None:
                found += [(request, call.prompt_tokens) for request in call.requests]
    return found


def _advance(
    one: _Live, policy: Policy, verifiers: Mapping[str, Verifier | Asked], ledger: Ledger
) -> Probe | Attempt | Verify | Stop:
    """The policy's next action that needs the generator; free verifiers on the way are run and written."""
    while True:
        action = policy.next(one.trace)
        if not isinstance(action, Verify):
            return action
        verifier = verifiers.get(action.kind)
        if verifier is None:
            raise ConfigError(
                f"verifier '{action.kind}' is not to be had here; known: {', '.join(verifiers)}"
            )
        if isinstance(verifier, Asked):
            return action
        looked_at = one.trace.attempts[action.attempt - 1]
        confidence = float(verifier.check(one.trace, looked_at))
        line = Line(
            example_id=one.trace.query.id,
            line=len(one.trace.lines),
            kind="verify",
            tier=looked_at.tier,
            attempt=looked_at.attempt,
            step=looked_at.step,
            answer=looked_at.answer,
            verifier=action.kind,
            confidence=confidence,
            verdict=confidence >= verifier.threshold,
            oracle=verifier.oracle,
        )
        one.trace = one.trace.plus([line])
        ledger.lines.append(line)


def _call(
    one: _Live,
    action: Probe | Attempt | Verify,
    verifiers: Mapping[str, Verifier | Asked],
    generator: Generator,
    tiers: Mapping[str, Tier],
    limits: Limits,
    seed: int,
) -> _Call:
    attempts, step, shown = one.trace.attempts, 0, FRESH
    asked: Asked | None = None
    sampling = Sampling(0.0, limits.max_new_tokens, top_p=limits.top_p, stop=limits.stop)
    if isinstance(action, Verify):
        known = verifiers[action.kind]
        assert isinstance(known, Asked)
        asked = known
        looked_at = attempts[action.attempt - 1]
        step, tier, n, stream = looked_at.step, action.tier or asked.tier or looked_at.tier, asked.k, "verify"
        sampling = Sampling(asked.temperature, asked.max_new_tokens, stop=asked.stop)
    else:
        tier, sampling = action.tier, replace(sampling, temperature=action.temperature)
        if isinstance(action, Probe):
            n, stream = action.k, "attempt" if limits.reuse_probe else "probe"
        else:
            n, stream, step = action.n, "attempt", action.step
            chain = action.shown if action.shown is not None else attempts[-1].text if attempts else None
            if action.context != "fresh" and chain is not None:
                wrote = tiers[attempts[-1].tier].prefill if attempts else None
                shown = Earlier(action.context, chain, _reflection(one.trace), wrote)
    if tier not in tiers:
        raise ConfigError(
            f"the policy asks for tier '{tier}', which generator={generator.name} has not. {nearest(tier, tiers)}"
        )
    if asked:
        prompt = asked.prompt(one.trace, looked_at)
    else:
        prompt = replace(one.task.prompt(shown, step, tiers[tier].prefill), step=step)
    text = generator.render(prompt, tier)
    drawn = (tier, stream, text)
    first = one.drawn[drawn]
    one.drawn[drawn] += n
    return _Call(
        live=one,
        action=action,
        asked=asked,
        context=shown.context,
        step=step,
        text=text,
        prompt_tokens=generator.count([text], tier)[0],
        requests=tuple(
            Request(tier=tier, text=text, sampling=sampling, stream=stream, sample=first + k, seed=seed)
            for k in range(n)
        ),
    )


def _reflection(trace: Trace) -> str:
    """What was last written about an attempt."""
    written = [line.text for line in trace.lines if line.verifier == "reflect" and line.text]
    return written[-1] if written else ""


def _refusal(call: _Call, generator: Generator) -> str | None:
    """Why a call cannot be made: its prompt and reply do not fit the model's window."""
    window = generator.window(call.requests[0].tier)
    reply = call.requests[0].sampling.max_new_tokens
    if call.prompt_tokens + reply <= window:
        return None
    return (
        f"the prompt's {call.prompt_tokens} tokens and a reply of {reply} pass the window of "
        f"{window} tokens on tier {call.requests[0].tier}; lower budget.tokens"
    )


def _settle(
    calls: Sequence[_Call],
    generator: Generator,
    store: Store,
    tally: Tally,
    limits: Limits,
    ledger: Ledger,
    on_progress: Callable[[int, int, int], None],
    spend: Spend,
) -> None:
    """Answer a wave's calls, a batch a tier, and write their lines in the order of the queries."""
    fitting: dict[str, list[Request]] = {}
    refused: dict[int, str] = {}
    for call in calls:
        refusal = _refusal(call, generator)
        if refusal:
            refused[id(call)] = refusal
        else:
            fitting.setdefault(call.requests[0].tier, []).extend(call.requests)
    answered: dict[Request, Completion] = {}
    for requests in fitting.values():
        done = complete(
            requests, generator, store, tally, lambda rows, tokens: on_progress(0, rows, tokens), spend
        )
        answered.update(zip(requests, done, strict=True))
    prices = {tier.name: tier.price for tier in generator.tiers}
    for call in calls:
        error = refused.get(id(call))
        replies = [
            Completion("", 0, 0, "refused", error=error) if error else answered[request]
            for request in call.requests
        ]
        lines = _lines(call, replies, prices[call.requests[0].tier], limits)
        call.live.trace = call.live.trace.plus(lines)
        ledger.lines.extend(lines)


def _lines(call: _Call, replies: Sequence[Completion], price: Price, limits: Limits) -> list[Line]:
    """A call's lines: what was tried and failed before it, then each sample."""
    trace, asked = call.live.trace, call.asked
    tried = len(trace.attempts)
    numbered = call.kind == "attempt" or (call.kind == "probe" and limits.reuse_probe)
    readings = [asked.read(reply.text) if asked and not reply.error else None for reply in replies]
    said = [reading for reading in readings if reading is not None]
    verdict = sum(said) / len(said) >= asked.threshold if asked and said else None
    lines: list[Line] = []
    for k, (request, reply) in enumerate(zip(call.requests, replies, strict=True)):
        base = Line(
            example_id=trace.query.id,
            line=0,
            kind=call.kind,
            tier=request.tier,
            sample=request.sample,
            context=call.context,
            step=call.step,
            seed=request.row_seed,
            temperature=request.sampling.temperature,
            verifier=call.action.kind if isinstance(call.action, Verify) else "",
        )
        for failure in reply.failures:
            billed = Completion(
                "", failure.prompt_tokens, failure.completion_tokens, "retried", failure.cached_tokens
            )
            tokens = _billed(price, billed, first=True)
            lines.append(
                replace(
                    base, **tokens, latency_s=failure.latency_s, finish_reason="retried", error=failure.error
                )
            )
        line = replace(
            base,
            # One request, n samples: the prompt is on the first sample's line alone.
            **_billed(price, reply, first=k == 0),
            latency_s=reply.latency_s,
            finish_reason=reply.finish_reason,
            logprob=reply.logprob,
            error=reply.error,
            text=reply.text,
        )
        if isinstance(call.action, Verify):
            attempt = trace.attempts[call.action.attempt - 1]
            line = replace(
                line,
                attempt=attempt.attempt,
                answer=attempt.answer,
                confidence=readings[k],
                verdict=verdict,
            )
        else:
            line = replace(
                line,
                attempt=tried + k + 1 if numbered else 0,
                answer=None if reply.error else call.live.task.read(reply.text),
            )
        lines.append(line)
    return [replace(line, line=len(trace.lines) + at) for at, line in enumerate(lines)]


def _billed(price: Price, reply: Completion, first: bool) -> dict[str, Any]:
    prompt_tokens = reply.prompt_tokens if first else 0
    cached_tokens = reply.cached_tokens if first else 0
    return {
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "completion_tokens": reply.completion_tokens,
        "cost_units": price.cost_units(prompt_tokens, reply.completion_tokens),
        "usd": price.usd(prompt_tokens, cached_tokens, reply.completion_tokens),
    }


def scored(lines: Iterable[Line], score: Callable[[Line], float | None]) -> list[Line]:
    """The lines with their scores joined, after the run: nothing that decided has seen them."""
    return [replace(line, score=score(line)) if line.kind != "verify" else line for line in lines]
