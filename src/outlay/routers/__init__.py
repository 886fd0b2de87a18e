"""Policies over tiers; one module each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outlay.generate import Tier

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Setting:
    """What a router makes its policy from."""

    retry: Any  # the retry component: next(trace, tier) -> Action
    probe: Any  # the probe component: next(trace, tier) -> Probe | None
    tiers: Sequence[Tier]  # in the config's order, with their prices
    embed: "Callable[[Sequence[str]], np.ndarray]"  # texts -> unit vectors (n, d)
    max_new_tokens: int  # of every reply
    seed: int
