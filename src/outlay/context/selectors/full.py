"""The whole document, whatever it costs: the reference that every saving is measured against."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import selection


@dataclass(frozen=True)
class Full:
    """Keeps every unit under every budget: the only selector whose tokens may exceed it."""

    name: ClassVar[str] = "full"
    oracle: ClassVar[bool] = False
    blind: ClassVar[bool] = True  # looks at no vector, so none is made

    def select(self, problem: Problem) -> list[Selection]:
        return [selection(range(len(problem.costs)), problem.costs) for _ in problem.budgets]
