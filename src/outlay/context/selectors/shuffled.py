"""Units in a random order, as far as they fit: lead without its position, so the gap between both is position bias."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import fill, selection


@dataclass(frozen=True)
class Shuffled:
    """The order is drawn once from the problem's seed and serves every budget."""

    name: ClassVar[str] = "shuffled"
    oracle: ClassVar[bool] = False
    blind: ClassVar[bool] = True  # looks at no vector, so none is made

    def select(self, problem: Problem) -> list[Selection]:
        import numpy as np

        ranking = np.random.default_rng(problem.seed).permutation(len(problem.costs)).tolist()
        costs = problem.costs.tolist()
        return [selection(fill(ranking, costs, budget), problem.costs) for budget in problem.budgets]
