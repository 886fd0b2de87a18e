"""The contiguous run of units with the most relevance under the budget."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from outlay.context import Problem, Selection
from outlay.context.packing import selection

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Sliding:
    """Exact: relevance is never negative, so the best run from each start is the longest that fits.

    Of equal runs the earliest wins. value is the run's summed relevance.
    """

    name: ClassVar[str] = "sliding"
    oracle: ClassVar[bool] = False

    def select(self, problem: Problem) -> list[Selection]:
        import numpy as np

        tokens = np.concatenate([[0], np.cumsum(problem.costs)])
        relevance = np.concatenate([[0.0], np.cumsum(problem.relevance)])
        return [_best_run(tokens, relevance, budget, problem) for budget in problem.budgets]


def _best_run(tokens: "np.ndarray", relevance: "np.ndarray", budget: int, problem: Problem) -> Selection:
    """The best window [start, end) by prefix sums of tokens and relevance (n + 1,)."""
    import numpy as np

    starts = np.flatnonzero(problem.costs <= budget)
    if not len(starts):
        return selection((), problem.costs, value=0.0)
    ends = np.searchsorted(tokens, tokens[starts] + budget, side="right") - 1
    scores = relevance[ends] - relevance[starts]
    best = int(
        np.argmax(scores >= scores.max() - 1e-9)
    )  # the first of equals, above the rounding of prefix sums
    run = range(int(starts[best]), int(ends[best]))
    return selection(run, problem.costs, value=float(scores[best]))
