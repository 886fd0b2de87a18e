"""A generator whose answers are drawn from known chances: what the executor is tested with."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outlay.generate import Completion, Price, Prompt, Request, Tier
from outlay.generate.spend import Spend


@dataclass(frozen=True)
class Simulated:
    """Answers "right" with chance p, else one of three wrong answers or nothing that can be read."""

    p: float = 0.5
    fail: float = 0.0  # chance of a failed call
    batch: int = 7
    tier_names: tuple[str, ...] = ("small",)
    asked: list[Request] = field(default_factory=list, compare=False)

    name = "simulated"
    samples = True
    stored = True
    stays_home = True

    @property
    def tiers(self) -> Sequence[Tier]:
        return tuple(Tier(name, Price(input=1.0, output=2.0, units=0.5)) for name in self.tier_names)

    def identity(self, tier: str) -> Mapping[str, str]:
        return {"model": f"simulated-{tier}-{self.p}"}

    def window(self, tier: str) -> int:
        return 1000

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return [len(text) for text in texts]

    def render(self, prompt: Prompt, tier: str) -> str:
        return "\n".join(f"{role}: {text}" for role, text in prompt.messages)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        self.asked.extend(requests)
        for first in range(0, len(requests), self.batch):
            yield [
                (at, self._one(requests[at])) for at in range(first, min(first + self.batch, len(requests)))
            ]

    def _one(self, request: Request) -> Completion:
        draw: Any = np.random.Generator(np.random.Philox(request.row_seed)).random(3)
        if draw[0] < self.fail:
            return Completion("", 0, 0, "error", error="the server hung up")
        answer = "right" if draw[1] < self.p else ["wrong-a", "wrong-b", "wrong-c", ""][int(draw[2] * 4)]
        return Completion(answer, len(request.text), 1 + len(answer), "stop", latency_s=0.1)
