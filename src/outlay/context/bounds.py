"""Upper bounds on the best objective under a budget, so that value / bound is a proven share of the optimum.

The online bound (Leskovec et al., KDD 2007) comes with the selection (`reference.online_bound` shows it plainly).
Here is the Lagrangian one (ours): split each covered unit's value between the units that cover it by a price.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

MARGIN = 1e-5
"""Relative; above the rounding of single-precision similarities and of their sums."""


def lagrangian_bounds(
    inst: Any,
    budgets: "np.ndarray",
    orders: Sequence[Sequence[int]],
    values: Sequence[float],
    kept: "np.ndarray",
    steps: int,
) -> "np.ndarray":
    """(q,) for any prices v >= 0 and any set A, the optimum is at most

        sum_j v_j + gamma logdet(A) + max_x sum_i x_i [reward_i + sum_j max(0, w_j s_ij - v_j) + gamma logdet_i(A)]

    over fractional x within the budget: a covered unit j is worth at most v_j plus what its best coverer pays above
    it, and log det lies below each of its linearisations. The prices descend by `steps` Polyak subgradient steps per
    budget; v_j = w_j cover_j would be the online bound's coverage part. Sets must contain the units `kept`.

    Args:
        inst: `_kernels.Instance` with its similarities.
        orders, values: a selection per budget, and F of each: the lower bounds that size the steps.
    """
    import numpy as np

    bounds = np.full(len(budgets), np.inf)
    price: np.ndarray | None = None
    for place in range(len(budgets) - 1, -1, -1):  # from the largest budget: its prices start the next one
        group = inst.group[np.asarray(orders[place], dtype=np.int64)]
        cover = inst.similarity[group].max(axis=0, initial=0.0)
        own = inst.weight * np.maximum(cover, 0.0)
        starts = [0.9 * own] if price is None else [0.9 * own, price]
        parts = _linearised(inst, group)
        problem = _Relaxation(inst, int(budgets[place]), kept)
        tries = [(problem.at(start, part)[0], start, part) for start in starts for part in parts]
        _, start, part = min(tries, key=lambda one: one[0])
        bounds[place], price = problem.descend(start, part, float(values[place]), steps)
    return bounds


def _linearised(inst: Any, group: "np.ndarray") -> list[tuple["np.ndarray", float]]:
    """The log-determinant's gains (m,) and constant, linearised at the empty set and at the selection."""
    import numpy as np

    alone = inst.diversity * np.log1p(inst.scale * inst.norm)
    if inst.diversity == 0 or not len(group):
        return [(alone, 0.0)]
    rows = inst.vectors.astype(np.float64)
    chosen = rows[group]
    # schur_i = 1 + scale |u_i|^2 - c_i M^-1 c_i^T = 1 + scale u_i (I + scale U^T U)^-1 u_i^T, the smaller of two forms
    if len(chosen) <= rows.shape[1]:
        across = inst.scale * (rows @ chosen.T)
        inner = np.linalg.inv(np.eye(len(chosen)) + inst.scale * (chosen @ chosen.T))
        schur = 1 + inst.scale * inst.norm - np.einsum("ik,ik->i", across @ inner, across)
    else:
        inner = np.linalg.inv(np.eye(rows.shape[1]) + inst.scale * (chosen.T @ chosen))
        schur = 1 + inst.scale * np.einsum("id,id->i", rows @ inner, rows)
    given = inst.diversity * np.log(np.maximum(schur, 1.0))
    # A group all of whose units are chosen gains nothing more; of a copied unit, the other copies still do.
    copies = np.bincount(inst.group, minlength=len(rows))
    given[np.bincount(group, minlength=len(rows)) >= copies] = 0.0
    from outlay.context.objective import log_det

    return [(alone, 0.0), (given, inst.diversity * log_det(chosen, inst.scale))]


class _Relaxation:
    """The dual function of one budget."""

    def __init__(self, inst: Any, budget: int, kept: "np.ndarray") -> None:
        import numpy as np

        self.inst = inst
        count = len(inst.cost)
        self.forced = np.bincount(inst.group[kept], minlength=count).astype(np.float64)
        self.room = budget - int(inst.cost @ self.forced)
        self.copies = np.where(
            inst.cost <= self.room, np.bincount(inst.group, minlength=count) - self.forced, 0.0
        )
        self.worth = np.empty(count)
        self.slope = np.empty(count)

    def at(self, price: "np.ndarray", part: tuple["np.ndarray", float]) -> tuple[float, "np.ndarray"]:
        """The bound at these prices, and how much of each group is taken there."""
        import numpy as np

        from outlay.context import _kernels

        inst, (log_gain, constant) = self.inst, part
        _kernels.excesses(inst.similarity, inst.weight, price, self.worth)
        worth = inst.reward + self.worth + log_gain
        by_density = np.argsort(-worth / inst.cost, kind="stable")
        tokens = (inst.cost * self.copies)[by_density]
        room = np.clip(self.room - (np.cumsum(tokens) - tokens), 0.0, tokens)
        taken = self.forced.copy()
        taken[by_density] += room / inst.cost[by_density]
        # A pinned unit's log-determinant is linearised too, so it pays its gain like any other.
        return float(price.sum(dtype=np.float64) + constant + worth @ taken), taken

    def descend(
        self, price: "np.ndarray", part: tuple["np.ndarray", float], value: float, steps: int
    ) -> tuple[float, "np.ndarray"]:
        """The least bound on the way, and its prices."""
        import numpy as np

        from outlay.context import _kernels

        price = price.astype(np.float32)
        best, best_price, pace, stalled = np.inf, price, 1.0, 0
        for _ in range(steps):
            bound, taken = self.at(price, part)
            if bound < best - 1e-6 * abs(bound):
                best, best_price, stalled = bound, price, 0
            else:
                stalled += 1
                if stalled == 5:
                    pace, stalled = 0.6 * pace, 0
            _kernels.subgradient(self.inst.similarity, self.inst.weight, price, taken, self.slope)
            length = float(self.slope @ self.slope)
            if best <= value * (1 + 1e-6) or length < 1e-12:
                break
            step = pace * max(bound - value, 0.0) / length
            price = np.maximum(price - step * self.slope, 0.0).astype(np.float32)
        return float(best), best_price
