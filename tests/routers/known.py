"""Tiers whose chance of a right answer is known for each level of difficulty, and what it takes to run a router on them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from outlay.agent.executor import Asked, Limits, Outcome, Task, Verifier, execute, scored
from outlay.agent.ledger import Ledger, Line, Query
from outlay.agent.retry.none import NoRetry
from outlay.generate import Completion, Earlier, Price, Prompt, Request, Tally, Tier
from outlay.generate.spend import Spend
from outlay.generate.store import Store
from outlay.inflation.probes.none import NoProbe
from outlay.routers import Setting
from outlay.routers.optimal import best_plan

PROMPT, REPLY = 20, 10
"""Tokens of every prompt and of every reply, so that an attempt's cost is known."""

LADDER = {
    "small": ((0.9, 0.5, 0.1), 1.0),
    "middle": ((0.92, 0.75, 0.3), 4.0),
    "large": ((0.97, 0.93, 0.85), 12.0),
}
"""Tier -> chance of a right answer by level, units per token."""


@dataclass(frozen=True)
class Known:
    """Independent attempts: right with the tier's chance at the query's level, else one of four wrong answers.

    A check (stream "verify") says yes to a right answer with chance `trust`, to a wrong one with 1 - trust.
    """

    ladder: Mapping[str, tuple[Sequence[float], float]] = field(default_factory=lambda: LADDER)
    trust: float = 0.85
    free: bool = False  # in dollars
    asked: list[Request] = field(default_factory=list, compare=False)

    name = "known"
    samples = True
    stored = True
    stays_home = True

    @property
    def tiers(self) -> Sequence[Tier]:
        return tuple(
            Tier(name, Price(*[0.0 if self.free else units] * 3, units))
            for name, (_, units) in self.ladder.items()
        )

    def identity(self, tier: str) -> Mapping[str, str]:
        return {"model": f"known-{tier}-{self.ladder[tier]}-{self.trust}"}

    def window(self, tier: str) -> int:
        return 10_000

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return [PROMPT for _ in texts]

    def render(self, prompt: Prompt, tier: str) -> str:
        return "\n".join(f"{role}: {text}" for role, text in prompt.messages)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        self.asked.extend(requests)
        yield [(at, self._one(request)) for at, request in enumerate(requests)]

    def _one(self, request: Request) -> Completion:
        draw: Any = np.random.Generator(
            np.random.Philox([request.row_seed, list(self.ladder).index(request.tier)])
        ).random(2)
        if request.stream == "verify":
            right = "reply: right" in request.text
            return Completion("yes" if (draw[0] < self.trust) == right else "no", PROMPT, 1, "stop")
        p = self.ladder[request.tier][0][level(request.text)]
        answer = "right" if draw[0] < p else f"wrong-{int(draw[1] * 4)}"
        return Completion(answer, PROMPT, REPLY, "stop")


def level(text: str) -> int:
    return int(text.split("level ")[1][0])


def embed(texts: Sequence[str]) -> np.ndarray:
    """(n, 3) the level, one-hot: a question tells how hard it is."""
    return np.eye(3)[[level(text) for text in texts]]


GOLD: Mapping[str, Verifier | Asked] = {
    "gold": Verifier(lambda _, line: float(line.answer == "right"), oracle=True),
    "self_verify": Asked(
        lambda trace, line: Prompt((("user", f"{trace.query.question} reply: {line.answer}"),)),
        lambda reply: float(reply == "yes"),
        k=5,
        temperature=0.7,
    ),
}


def tasks(n: int, split: str) -> list[Task]:
    """A third of the queries at each level."""

    def task(at: int) -> Task:
        question = f"question {split:>5} {at} level {at % 3}"

        def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
            return Prompt(
                (("user", question + (f" after {shown.chain}" if shown.context != "fresh" else "")),)
            )

        return Task(
            Query(f"{split}-{at}", question, 0, PROMPT, split=split), prompt, lambda reply: reply or None
        )

    return [task(at) for at in range(n)]


ONCE, NOTHING = NoRetry(temperature=0.7), NoProbe()


@dataclass(frozen=True)
class Ran:
    """A router's run: what it learned from, its fitted policy, and the test queries."""

    explored: Ledger
    policy: Any
    outcomes: list[Outcome]
    ledger: Ledger

    @property
    def right(self) -> np.ndarray:
        return np.array([float(one.stop.answer == "right") for one in self.outcomes])

    def costs(self, kind: str = "cost_units") -> np.ndarray:
        return np.array([sum(getattr(line, kind) for line in one.trace.lines) for one in self.outcomes])

    @property
    def tiers(self) -> list[str]:
        """Of each query's last attempt."""
        return [one.trace.attempts[-1].tier for one in self.outcomes]


def run(
    store: Store,
    router: Any,
    retry: Any = ONCE,
    probe: Any = NOTHING,
    generator: Known | None = None,
    fit: int = 240,
    n: int = 600,
    seed: int = 0,
    split: str = "test",
    **limits: Any,
) -> Ran:
    """Explore and fit as the runner does, then answer n queries."""
    generator = generator or Known()
    policy = router.policy(Setting(retry, probe, generator.tiers, embed, 10, seed))

    def answer(one: Any, wanted: list[Task], ledger: Ledger) -> list[Outcome]:
        return execute(
            wanted, one, generator, store, Tally(), GOLD, Limits(max_new_tokens=10, **limits), seed, ledger
        )

    explored = Ledger()
    if hasattr(policy, "explore"):
        for split in ("train", "tune"):
            answer(policy.explore(), tasks(fit, split), part := Ledger())
            explored.lines += scored(part.lines, score)
            explored.queries |= part.queries
        policy = policy.fit(explored)
    ledger = Ledger()
    return Ran(explored, policy, answer(policy, tasks(n, split), ledger), ledger)


def least_right(ran: Ran) -> float:
    """The lower end of an exact 99.7 % interval of the share of right answers."""
    from scipy.stats import binomtest

    return float(binomtest(int(ran.right.sum()), len(ran.right)).proportion_ci(0.997).low)


def score(line: Line) -> float:
    return float(line.answer == "right")


def attempt_cost(tier: str) -> float:
    """Units of one fresh attempt."""
    return (PROMPT + REPLY) * LADDER[tier][1]


def success(attempts: int, generator: Known | None = None) -> list[list[list[float]]]:
    """By level and tier, the chance of each attempt: what the bound knows."""
    ladder = (generator or Known()).ladder
    return [[[p[at]] * attempts for p, _ in ladder.values()] for at in range(3)]


def only(*names: str) -> Known:
    return replace(Known(), ladder={name: LADDER[name] for name in names})


def least_cost(
    queries: Sequence[Sequence[Sequence[float]]], costs: Sequence[float], accuracy: float
) -> float:
    """The least mean cost at which any policy, mixed ones too, is right on a share `accuracy` of these queries.

    queries: `success` of each, known to the policy (so it is a bound for those that must guess). By duality: the largest,
    over rates, of (accuracy − mean value) / rate. Infinite where no budget buys the accuracy.
    """

    def mean(rate: float) -> tuple[float, float]:
        plans = [best_plan(query, costs, rate) for query in queries]
        return sum(p.value for p in plans) / len(plans), sum(p.accuracy for p in plans) / len(plans)

    low, high = 1e-9 / min(costs), 1 / min(costs)
    if mean(low)[1] < accuracy - 1e-9:
        return float("inf")
    for _ in range(60):  # the rate at which the best policy's accuracy passes the one asked for
        middle = (low * high) ** 0.5
        low, high = (middle, high) if mean(middle)[1] >= accuracy else (low, middle)
    return max((accuracy - mean(rate)[0]) / rate for rate in (low, high))
