"""Maximal marginal relevance: relevant to the query, unlike what is already kept (Carbonell and Goldstein, SIGIR 1998)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import selection
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Mmr:
    """Greedy by relevance against the largest similarity to a kept unit, one row of similarities per pick.

    form=penalty (the authors' code, with weight .5): relevance - weight * similarity.
    form=convex (Carbonell and Goldstein): weight * relevance - (1 - weight) * similarity.
    per_token (ours) divides by the cost, after adding the most that the similarity can take away, so that no score is
    negative; without it the same order as published.
    """

    weight: float = option(0.5, least=0, most=1)
    form: str = option("penalty", choices=("penalty", "convex"))
    per_token: bool = False

    name: ClassVar[str] = "mmr"
    oracle: ClassVar[bool] = False

    def select(self, problem: Problem) -> list[Selection]:
        return self.select_given(problem, ())

    def select_given(self, problem: Problem, kept: Sequence[int]) -> list[Selection]:
        """As `select`, after units that are kept already; their costs count against the budgets."""
        from outlay.context.objective import first_copies

        rows = _Rows(problem.vectors, first_copies(problem.vectors))
        return [self._select(problem, budget, list(kept), rows) for budget in problem.budgets]

    def _select(self, problem: Problem, budget: int, order: list[int], rows: "_Rows") -> Selection:
        import numpy as np

        gain, loss = (1.0, self.weight) if self.form == "penalty" else (self.weight, 1 - self.weight)
        costs = problem.costs
        left = budget - int(costs[order].sum())
        closest: np.ndarray = (
            np.zeros(len(costs)) if not order else np.max([rows[unit] for unit in order], axis=0)
        )
        free = np.ones(len(costs), bool)
        free[order] = False
        while (fits := free & (costs <= left)).any():
            score = gain * problem.relevance + loss * (1 - closest)
            if self.per_token:
                score = score / costs
            best = int(np.argmax(np.where(fits, score, -1.0)))
            closest = rows[best] if not order else np.maximum(closest, rows[best])
            free[best] = False
            left -= int(costs[best])
            order.append(best)
        return selection(order, costs)


class _Rows:
    """Similarities of one unit to all, made when asked for and shared by the budgets."""

    def __init__(self, vectors: "np.ndarray", first: "np.ndarray") -> None:
        self.vectors, self.first = vectors, first
        self.made: dict[int, np.ndarray] = {}

    def __getitem__(self, unit: int) -> "np.ndarray":
        unit = int(self.first[unit])
        if unit not in self.made:
            # Through the first copy: BLAS rounds equal rows differently, and ties must go by position.
            self.made[unit] = (self.vectors @ self.vectors[unit])[self.first]
        return self.made[unit]
