"""What a router counts as cost: tokens, compute units or dollars, as its option `cost` says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outlay.agent.ledger import Line
from outlay.generate import Price, Tier

KINDS = ("units", "tokens", "usd")

_OF_LINE: Mapping[str, Callable[[Line], float]] = {
    "units": lambda line: line.cost_units,
    "tokens": lambda line: float(line.tokens),
    "usd": lambda line: line.usd,
}
_OF_CALL: Mapping[str, Callable[[Price, float, float], float]] = {
    "units": lambda price, prompt, reply: price.cost_units(prompt, reply),  # type: ignore[arg-type]
    "tokens": lambda _, prompt, reply: prompt + reply,
    "usd": lambda price, prompt, reply: price.usd(prompt, 0, reply),  # type: ignore[arg-type]
}


def of_line(line: Line, kind: str) -> float:
    return _OF_LINE[kind](line)


def of_call(price: Price, prompt_tokens: float, completion_tokens: float, kind: str) -> float:
    """The cost of a call whose tokens are known or expected; no part of its prompt is taken for cached."""
    return _OF_CALL[kind](price, prompt_tokens, completion_tokens)


def names(tiers: Sequence[Tier]) -> list[str]:
    return [tier.name for tier in tiers]


@dataclass(frozen=True)
class Budget:
    """A mean a query: `mean_cost`, or `share` of the way from the cheapest tier's mean to the dearest's."""

    mean_cost: float | None
    share: float

    def amount(self, alone: Sequence[float]) -> float:
        """alone: mean cost a query of each tier on its own."""
        if self.mean_cost is not None:
            return self.mean_cost
        return min(alone) + self.share * (max(alone) - min(alone))
