"""Several tiers as one generator: each is a choice of the group `generator`, asked for its own tier's rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from outlay.errors import ConfigError, nearest
from outlay.generate import Completion, Generator, Prompt, Request
from outlay.generate.spend import Spend
from outlay.schema import component


@dataclass(frozen=True, repr=False)
class Ladder:
    """tiers: names of choices, cheapest first; once built, what they offer (`Tier`). options: by choice."""

    tiers: list[Any] = field(default_factory=lambda: ["qwen2_5_7b", "gpt_4o_mini", "gpt_4o"])
    options: dict[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "ladder"

    def __post_init__(self) -> None:
        names = [str(name) for name in self.tiers]
        if not names:
            raise ConfigError("tiers is empty: name choices of generator, cheapest first")
        for name in self.options:
            if name not in names:
                raise ConfigError(f"options.{name}: not one of the tiers. {nearest(name, names)}")
        owners: dict[str, Generator] = {}
        for name in names:
            generator = component("generator", name, **(self.options.get(name) or {}))
            for tier in generator.tiers:
                if tier.name in owners:
                    raise ConfigError(
                        f"two tiers are named '{tier.name}': name this one with +generator.options.{name}.tier=…"
                    )
                owners[tier.name] = generator
        # The option and what every generator offers share their name: from here on it is the latter.
        object.__setattr__(self, "tiers", [tier for one in _distinct(owners) for tier in one.tiers])
        object.__setattr__(self, "_owners", owners)

    def __repr__(self) -> str:
        return f"Ladder({', '.join(map(repr, self.generators))})"

    @property
    def generators(self) -> Sequence[Generator]:
        """Cheapest first."""
        return _distinct(self._of)

    @property
    def samples(self) -> bool:
        return all(one.samples for one in self.generators)

    @property
    def stored(self) -> bool:
        """Where one tier's rows are paid for, the others' may as well be kept."""
        return any(one.stored for one in self.generators)

    @property
    def stays_home(self) -> bool:
        return all(one.stays_home for one in self.generators)

    @property
    def _of(self) -> Mapping[str, Generator]:
        owners: Mapping[str, Generator] = self.__dict__["_owners"]
        return owners

    def ready(self) -> None:
        for one in self.generators:
            if check := getattr(one, "ready", None):
                check()

    def identity(self, tier: str) -> Mapping[str, str]:
        return self._of[tier].identity(tier)

    def window(self, tier: str) -> int:
        return self._of[tier].window(tier)

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return self._of[tier].count(texts, tier)

    def render(self, prompt: Prompt, tier: str) -> str:
        return self._of[tier].render(prompt, tier)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        """One generator after another, cheapest first."""
        for generator in self.generators:
            own = [at for at, request in enumerate(requests) if self._of[request.tier] is generator]
            if own:
                for batch in generator.generate([requests[at] for at in own], spend):
                    yield [(own[at], completion) for at, completion in batch]


def _distinct(owners: Mapping[str, Generator]) -> list[Generator]:
    return list({id(one): one for one in owners.values()}.values())
