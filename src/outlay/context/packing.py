"""Units into a budget: what every selector that ranks has in common."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from outlay.context import Selection

if TYPE_CHECKING:
    import numpy as np


def fill(ranking: Iterable[int], costs: Sequence[int], budget: int) -> list[int]:
    """The units of a ranking that fit, in its order; one that does not fit is skipped, a repeated one counts once."""
    kept: dict[int, None] = {}
    left = budget
    for unit in ranking:
        if costs[unit] <= left and unit not in kept:
            kept[unit] = None
            left -= costs[unit]
    return list(kept)


def selection(order: Sequence[int], costs: "np.ndarray", **facts: object) -> Selection:
    """A `Selection` of units given in the order of picking; `facts` are its other fields."""
    tokens = int(costs[list(order)].sum()) if order else 0
    return Selection(indices=tuple(sorted(order)), tokens=tokens, order=tuple(order), **facts)  # type: ignore[arg-type]
