"""Random draws that are the same on every machine and Python version, for the generated data sets.

Built on `random.Random.random()` alone: the one method whose sequence Python promises to keep for a seed.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random  # a string seed goes through SHA-512, not through hash()

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high]."""
        return low + int(self.random() * (high - low + 1))

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        left = list(items)
        for last in range(len(left) - 1, 0, -1):  # Fisher and Yates
            other = int(self.random() * (last + 1))
            left[last], left[other] = left[other], left[last]
        return left
