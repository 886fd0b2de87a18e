"""No document at all: what the model answers from its weights alone."""

from dataclasses import dataclass
from typing import ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import selection


@dataclass(frozen=True)
class Nothing:
    name: ClassVar[str] = "none"
    oracle: ClassVar[bool] = False
    blind: ClassVar[bool] = True  # looks at no vector, so none is made

    def select(self, problem: Problem) -> list[Selection]:
        return [selection((), problem.costs) for _ in problem.budgets]
