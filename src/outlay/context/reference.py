"""RCD's algorithms as plainly as they can be written: dense, in float64, every gain anew at every step.

The compiled and the torch engine are tested against this module; it serves `engine=numpy`.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from outlay.context.objective import Objective, first_copies

if TYPE_CHECKING:
    import numpy as np


class Solution(NamedTuple):
    """One budget's set and what is known of it."""

    order: list[int]  # units, in the order of picking
    value: float  # F of the set
    online: float  # the online bound on the best F
    slope: float  # the largest gain per token left after the greedy set
    lagrangian: float = float("inf")  # the Lagrangian bound, where asked for


def solve(
    objective: Objective,
    costs: "np.ndarray",
    budgets: Sequence[int],
    kept: Sequence[int] = (),
    guess: int = 0,
    guess_top: int | None = None,
) -> list[Solution]:
    """One solution per budget; every set contains `kept`, whose costs count."""
    solutions = []
    for budget in budgets:
        orders = [greedy_max(objective, costs, budget, kept)]
        for guessed in guesses(objective, costs, kept, guess, guess_top):
            start = [*kept, *guessed]
            if costs[start].sum() <= budget:
                orders.append(density_greedy(objective, costs, budget, start))
        best = max(orders, key=objective.value)  # the first of equals
        steps = range(len(kept), len(orders[0]) + 1)
        bound = min(online_bound(objective, costs, budget, orders[0][:step], kept) for step in steps)
        slope = _densities(objective, costs, best, int(costs.max())).max(initial=0.0)
        solutions.append(Solution(best, objective.value(best), bound, max(float(slope), 0.0)))
    return solutions


def gains(objective: Objective, kept: Sequence[int]) -> "np.ndarray":
    """(n,) the marginal gain F(kept + i) - F(kept) of every unit i, by the definition."""
    import numpy as np

    same = first_copies(objective.vectors)  # BLAS rounds equal rows differently, and ties must go by position
    rows = objective.vectors.astype(np.float64)
    cosines = (rows @ rows.T)[np.ix_(same, same)]
    covered = np.maximum(cosines[list(kept)].max(axis=0, initial=0.0), 0.0)
    coverage = np.maximum(cosines - covered, 0.0) @ objective.weight
    kernel = objective.scale * cosines
    across = kernel[list(kept)]
    inverse = np.linalg.inv(np.eye(len(kept)) + across[:, list(kept)])
    schur = 1 + np.diag(kernel) - np.einsum("ki,kl,li->i", across, inverse, across)
    return np.asarray(objective.reward + coverage + objective.diversity * np.log(np.maximum(schur, 1.0)))


def _densities(objective: Objective, costs: "np.ndarray", kept: Sequence[int], room: int) -> "np.ndarray":
    """(n,) gains per token; -1 for a unit that is kept or does not fit."""
    import numpy as np

    free = costs <= room
    free[list(kept)] = False
    return np.where(free, gains(objective, kept) / costs, -1.0)


def density_greedy(
    objective: Objective, costs: "np.ndarray", budget: int, start: Sequence[int] = ()
) -> list[int]:
    """The densest unit that fits, until none does; ties go to the earlier unit."""
    order = list(start)
    left = budget - int(costs[order].sum())
    while (densities := _densities(objective, costs, order, left)).max(initial=-1.0) >= 0:
        order.append(int(densities.argmax()))
        left -= int(costs[order[-1]])
    return order


def greedy_max(
    objective: Objective, costs: "np.ndarray", budget: int, start: Sequence[int] = ()
) -> list[int]:
    """Density greedy, or the best of its prefixes with one more unit, completed by density greedy: at least 1/2 of
    the optimum (Yaroslavtsev, Zhou, Avdiukhin, AISTATS 2020; the completion is ours)."""
    order = density_greedy(objective, costs, budget, start)
    best, chosen = objective.value(order) * (1 + 1e-7), order
    for step in range(len(start), len(order)):
        prefix = order[:step]
        densities = _densities(objective, costs, prefix, budget - int(costs[prefix].sum()))
        unit = int((densities * costs).argmax())
        value = objective.value([*prefix, unit])
        if value > best:
            best, chosen = value, [*prefix, unit]
    return order if chosen is order else density_greedy(objective, costs, budget, chosen)


def guesses(
    objective: Objective, costs: "np.ndarray", kept: Sequence[int], size: int, top: int | None
) -> Iterator[tuple[int, ...]]:
    """First units to try: every set of up to `size` units, or of the `top` units of largest value alone."""
    import numpy as np

    if size == 0:
        return
    ranking = np.argsort(-gains(objective, ()), kind="stable")[:top]
    units = [unit for unit in sorted(ranking.tolist()) if unit not in kept]
    for count in range(1, size + 1):
        yield from combinations(units, count)


def online_bound(
    objective: Objective, costs: "np.ndarray", budget: int, prefix: Sequence[int], kept: Sequence[int] = ()
) -> float:
    """F(A) + the fractional knapsack of the gains given A: at least F of every set within the budget that contains
    `kept` (Leskovec et al., KDD 2007)."""
    import numpy as np

    room = budget - int(costs[list(kept)].sum())
    densities = _densities(objective, costs, prefix, room)
    total = objective.value(prefix)
    for unit in np.argsort(-densities, kind="stable"):
        if room <= 0 or densities[unit] <= 0:
            break
        total += float(densities[unit]) * min(int(costs[unit]), room)
        room -= int(costs[unit])
    return total
