"""What a sweep will need, before anything is paid; and the union of what its points ask first.

A plan plays every policy twice without a model: once each answer is right and agrees with all others, once none does.
What is asked before any answer is known is exact; what follows lies between the two plays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from outlay.agent.executor import Asked, Task, Verifier, execute, first_wave
from outlay.agent.ledger import Ledger
from outlay.errors import OutlayError
from outlay.generate import Completion, Generator, Prompt, Request, Tally, Tier
from outlay.generate.spend import Spend
from outlay.generate.store import Store, complete
from outlay.runner import Asks, asking, asks
from outlay.schema import Parts

ASSUMED_SHARE = 0.5
"""A reply's expected length as a share of the most it may have, for a model that the store has no rows of. Ours."""


@dataclass
class Play:
    """Distinct completions of one way the answers may fall: by key, (tokens, USD) of what is not in the store."""

    rows: dict[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(tokens for tokens, _ in self.rows.values())

    @property
    def usd(self) -> float:
        return sum(usd for _, usd in self.rows.values())


@dataclass(frozen=True)
class Plan:
    """Of all points together. Completions are distinct: what two points share is counted once.

    best: every first answer is accepted; worst: none is, and every reply has its full length. Of what the store has not.
    """

    points: int
    queries: int
    stored: int  # distinct completions of the best case that the store has
    best: Play
    worst: Play
    learning: int  # points whose policy is fitted first; what it asks of the test split is not in the plan
    failed: tuple[str, ...]  # points that cannot be planned, and why


def plan(points: Sequence[Parts], store: Store, told: Callable[[int], None] = lambda point: None) -> Plan:
    """The plan of a sweep; nothing is generated. told: the number of each point as it has been played."""
    best, worst, stored = Play(), Play(), set[str]()
    queries = learning = 0
    failed: list[str] = []
    lengths = _Lengths(store)
    for number, parts in enumerate(points, start=1):
        try:
            fits = False
            for one in asks(parts):
                fits = one.fits
                queries += len(one.tasks)
                for play, kind in ((best, True), (worst, False)):
                    dry = _Dry(parts.generator, kind)
                    _played(one, parts, dry, store)
                    stored |= _counted(dry, parts, play, store, lengths, full=not kind)
            learning += fits
        except OutlayError as error:
            failed.append(f"point {number}: {error}")
        told(number)
    return Plan(len(points), queries, len(stored), best, worst, learning, tuple(failed))


def union(
    points: Sequence[Parts],
    store: Store,
    account: str,
    told: Callable[[int, int], None],
    of: Callable[[int], None] = lambda completions: None,
) -> Tally:
    """Generate what all points ask before they have seen an answer, each completion once, in one batch a generator.

    told: rows and tokens of each batch; of: how many completions are to be generated in all, before the first.
    A point that cannot be prepared is left to fail by itself, and so are those of a generator that does not answer or
    has spent its limit: what was generated is in the store.
    """
    tally, prepared = Tally(), set[str]()
    wanted: dict[str, tuple[Parts, dict[Request, None]]] = {}
    for parts in points:
        if not parts.generator.stored:
            continue
        _, requests = wanted.setdefault(repr((parts.generator, parts.spend_limit)), (parts, {}))
        with suppress(OutlayError):
            for chunk in asked_first(parts, prepared):
                requests |= dict.fromkeys(request for _, request in chunk)
    of(sum(_missing(list(requests), parts, store) for parts, requests in wanted.values()))
    for parts, requests in wanted.values():
        spend = Spend(parts.spend_limit, parts.generator.tiers, store, account)
        with suppress(OutlayError):  # its points meet the same, and say why
            complete(list(requests), parts.generator, store, tally, told, spend)
    return tally


def asked_first(parts: Parts, prepared: set[str]) -> Iterator[list[tuple[str, Request]]]:
    """(example, request) of what a point asks before it has seen an answer, a chunk of examples at a time.

    prepared: what points before it have asked, added to here; a router that learns from the same samples asks nothing.

    Raises:
        OutlayError: the point cannot be prepared.
    """
    same = asking(parts)
    if same and same in prepared:
        return
    prepared.add(same)
    for one in asks(parts):
        yield [
            (task.query.id, request)
            for task in one.tasks
            for request, _ in first_wave(
                [task], one.policy, parts.generator, one.verifiers, one.limits, parts.settings.seed
            )
        ]


def _missing(requests: Sequence[Request], parts: Parts, store: Store) -> int:
    """How many of these the store has not; 0 of a generator that does not answer."""
    try:
        tiers = dict.fromkeys(one.tier for one in requests)
        identities = {tier: parts.generator.identity(tier) for tier in tiers}
    except OutlayError:
        return 0
    keys = {one.key(identities[one.tier]) for one in requests}
    return len(keys) - len(store.get(list(keys)))


class _Dry:
    """Stands where the generator does, and writes down what is asked of it."""

    samples = True
    stored = False
    stays_home = True

    def __init__(self, generator: Generator, agrees: bool) -> None:
        self._generator, self._agrees = generator, agrees
        self.asked: dict[Request, bool] = {}  # whether it is the first sample of its call
        self._rendered: dict[tuple[Prompt, str], str] = {}
        self._counted: dict[tuple[str, str], int] = {}

    @property
    def name(self) -> str:
        return self._generator.name

    @property
    def tiers(self) -> Sequence[Tier]:
        return self._generator.tiers

    def identity(self, tier: str) -> Mapping[str, str]:
        return {}

    def window(self, tier: str) -> int:
        return self._generator.window(tier)

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        for text in texts:
            if (text, tier) not in self._counted:
                self._counted[text, tier] = self._generator.count([text], tier)[0]
        return [self._counted[text, tier] for text in texts]

    def render(self, prompt: Prompt, tier: str) -> str:
        if (prompt, tier) not in self._rendered:
            self._rendered[prompt, tier] = self._generator.render(prompt, tier)
        return self._rendered[prompt, tier]

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        prompts = set()
        for (
            request
        ) in requests:  # samples of one prompt in one wave are one request, which bills its prompt once
            prompt = (request.tier, request.text, request.stream)
            self.asked.setdefault(request, prompt not in prompts)
            prompts.add(prompt)
        yield [
            (
                at,
                Completion(
                    "the same" if self._agrees else f"{request.row_seed:x}", 0, 0, "stop", logprob=0.0
                ),
            )
            for at, request in enumerate(requests)
        ]


def _played(one: Asks, parts: Parts, dry: _Dry, store: Store) -> None:
    """Run the policy on the queries with made-up answers and verdicts."""
    said = float(dry._agrees)

    def verifier(kept: Verifier | Asked) -> Verifier | Asked:
        if isinstance(kept, Verifier):
            return replace(kept, check=lambda trace, line: said)
        return replace(kept, read=lambda reply: said)

    tasks = [Task(task.query, task.prompt, lambda reply: reply) for task in one.tasks]
    execute(
        tasks,
        one.policy,
        dry,
        store,
        Tally(),
        {name: verifier(kept) for name, kept in one.verifiers.items()},
        one.limits,
        parts.settings.seed,
        Ledger(),
    )


def _counted(dry: _Dry, parts: Parts, play: Play, store: Store, lengths: "_Lengths", full: bool) -> set[str]:
    """Add what was asked and is not in the store; the keys that are."""
    if not parts.generator.stored:
        return set()
    identities = {tier: parts.generator.identity(tier) for tier in {one.tier for one in dry.asked}}
    prices = {tier.name: tier.price for tier in parts.generator.tiers}
    keys = {request.key(identities[request.tier]): request for request in dry.asked}
    known = set(store.get(list(keys)))
    for key, request in keys.items():
        if key in known or key in play.rows:
            continue
        prompt_tokens = dry.count([request.text], request.tier)[0] if dry.asked[request] else 0
        most = request.sampling.max_new_tokens
        reply = most if full else lengths.of(identities[request.tier].get("model", ""), most)
        usd = prices[request.tier].usd(prompt_tokens, 0, reply)
        play.rows[key] = (prompt_tokens + reply, usd)
    return known


class _Lengths:
    """How long a model's replies are, from the store's rows of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, float | None] = {}

    def of(self, model: str, most: int) -> int:
        if model not in self._known:
            self._known[model] = self._store.mean_reply(model)
        mean = self._known[model]
        return max(1, min(most, round(most * ASSUMED_SHARE if mean is None else mean)))
