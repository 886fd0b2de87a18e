"""The lab: a ladder of small models that the project trained itself, for `dataset=chains`.

An instrument, no language model: thousands of live queries take seconds, so that a success probability can be
estimated to three digits and every policy checked against the truth. What is measured on it holds for it alone.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, ClassVar

from outlay.errors import ConfigError, nearest
from outlay.generate import Completion, Price, Prompt, Request, Tier
from outlay.generate.spend import Spend
from outlay.generate.transformers import Transformers
from outlay.schema import option

FOLDER = Path(__file__).parent.parent / "lab"
MODELS = ("small", "medium", "large")


@dataclass(frozen=True)
class Lab:
    """tiers: names of models, cheapest first; once built, what they offer (`Tier`). Units: millions of parameters."""

    tiers: list[Any] = field(default_factory=lambda: list(MODELS))
    dtype: str = option("auto", choices=("auto", "float32", "bfloat16", "float16"))
    device: str = option("auto", choices=("auto", "cpu", "cuda", "mps"))
    batch_tokens: int = option(32768, least=1)  # prompt tokens prefilled together, padding included
    batch_rows: int = option(512, least=1)  # samples decoded together
    usd_per_unit: float = option(
        1.0, least=0
    )  # USD per million tokens, by a million parameters; nominal, ours

    name: ClassVar[str] = "lab"
    samples: ClassVar[bool] = True
    stored: ClassVar[bool] = True
    stays_home: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = [str(name) for name in self.tiers]
        for name in names:
            if name not in MODELS:
                raise ConfigError(f"tiers={name}: {nearest(name, MODELS)}")
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"tiers={names}: name one model at least, and each once")
        # The option and what every generator offers share their name: from here on it is the latter.
        object.__setattr__(self, "tiers", [Tier(name, self._price(name)) for name in names])

    def _price(self, model: str) -> Price:
        units = parameters(model) / 1e6
        usd = units * self.usd_per_unit
        return Price(input=usd, output=usd, units=units)

    def _tier(self, name: str) -> Transformers:
        return Transformers(
            model=str(FOLDER / name),
            tier=name,
            dtype=self.dtype,
            device=self.device,
            batch_tokens=self.batch_tokens,
            batch_rows=self.batch_rows,
            price=self._price(name),
        )

    def identity(self, tier: str) -> Mapping[str, str]:
        return {**self._tier(tier).identity(tier), "model": f"lab/{tier}"}  # not where it is installed

    def window(self, tier: str) -> int:
        return _window(tier)

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return self._tier(tier).count(texts, tier)

    def render(self, prompt: Prompt, tier: str) -> str:
        return self._tier(tier).render(prompt, tier)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        for tier in dict.fromkeys(request.tier for request in requests):
            rows = [at for at, request in enumerate(requests) if request.tier == tier]
            for batch in self._tier(tier).generate([requests[at] for at in rows], spend):
                yield [(rows[at], completion) for at, completion in batch]


@cache
def parameters(model: str) -> int:
    """How many numbers a shipped model has, from the header of its weights: nothing is loaded."""
    with (FOLDER / model / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


@cache
def _window(model: str) -> int:
    return int(json.loads((FOLDER / model / "config.json").read_text())["max_position_embeddings"])
