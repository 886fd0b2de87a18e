"""The most relevant units, each with its section header and its neighbours."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import fill, selection
from outlay.schema import option


@dataclass(frozen=True)
class Hierarchical:
    """Anchors by relevance; each brings first its section header, then its neighbours, the nearest first.

    The paper names the idea; radius and headers are ours.
    """

    radius: int = option(1, least=0)  # neighbours on each side of an anchor
    headers: bool = True  # an anchor brings its section header

    name: ClassVar[str] = "hierarchical"
    oracle: ClassVar[bool] = False

    def select(self, problem: Problem) -> list[Selection]:
        import numpy as np

        anchors = np.argsort(-problem.relevance, kind="stable").tolist()
        ranking = list(self._with_context(anchors, problem))
        costs = problem.costs.tolist()
        return [selection(fill(ranking, costs, budget), problem.costs) for budget in problem.budgets]

    def _with_context(self, anchors: list[int], problem: Problem) -> Iterator[int]:
        count = len(anchors)
        for anchor in anchors:
            yield anchor
            header = problem.units[anchor].header if problem.units and self.headers else None
            if header is not None:
                yield header
            for distance in range(1, self.radius + 1):
                yield from (near for near in (anchor - distance, anchor + distance) if 0 <= near < count)
