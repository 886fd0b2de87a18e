"""The first units of the document that fit; a unit that does not fit is skipped."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.context import Problem, Selection


@dataclass(frozen=True)
class Lead:
    name: ClassVar[str] = "lead"
    oracle: ClassVar[bool] = False
    blind: ClassVar[bool] = True  # looks at no vector, so none is made

    def select(self, problem: Problem) -> list[Selection]:
        return [_lead(problem.costs.tolist(), budget) for budget in problem.budgets]


def _lead(costs: list[int], budget: int) -> Selection:
    kept, used = [], 0
    for index, cost in enumerate(costs):
        if used + cost <= budget:
            kept.append(index)
            used += cost
    return Selection(indices=tuple(kept), tokens=used, order=tuple(kept))
