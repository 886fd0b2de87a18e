"""The compiled engine's Python side: groups of identical units, similarities, and float64 values of what it found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outlay.context.objective import Objective, first_copies, log_det
from outlay.context.reference import Solution
from outlay.errors import OutlayError

if TYPE_CHECKING:
    import numpy as np

DENSE_LIMIT = 12_000  # units; the matrix of similarities takes 4 n^2 bytes, 576 MB here
FACTOR_LIMIT = 2**33  # bytes of the Cholesky factor; only touched pages take memory


def solve(
    objective: Objective,
    costs: "np.ndarray",
    budgets: Sequence[int],
    kept: Sequence[int] = (),
    guess: int = 0,
    guess_top: int | None = None,
    bounded: bool = True,
    steps: int = 0,
    dense_limit: int = DENSE_LIMIT,
) -> list[Solution]:
    """One solution per ascending budget; every set contains `kept`, whose costs count.

    Args:
        steps: subgradient steps of the Lagrangian bound; 0: the online bound alone. Beyond `dense_limit` units
            there is no matrix to compute it from, and the online bound stands.

    Raises:
        OutlayError: the Cholesky factor for so many units and picks would not fit.
    """
    import numpy as np

    from outlay.context import _kernels
    from outlay.context.bounds import lagrangian_bounds

    inst = instance(objective, costs, max(budgets), dense_limit)
    limits, first = np.asarray(budgets, np.int64), np.asarray(kept, np.int64)
    orders, sizes, values, bounds, slopes = _kernels.sweep(inst, limits, first, True, bounded)
    if guess:
        ranking = np.argsort(-inst.first_gain, kind="stable")[:guess_top]
        firsts = np.sort(inst.leader[ranking])
        if guess > 1:  # a pair may be two copies
            firsts = np.union1d(firsts, inst.twin[firsts])
        candidates = np.setdiff1d(firsts, [-1, *kept])
        _kernels.best_guess(inst, limits, first, candidates, guess, orders, sizes, values)
    found = [orders[place, :size].tolist() for place, size in enumerate(sizes)]
    values = [_value(objective, inst, order) for order in found]
    prices = np.full(len(found), np.inf)
    if steps and len(inst.similarity):
        prices = lagrangian_bounds(inst, limits, found, values, first, steps)
    facts = zip(found, values, bounds.tolist(), slopes.tolist(), prices.tolist(), strict=True)
    return [Solution(*one) for one in facts]


def instance(objective: Objective, costs: "np.ndarray", budget: int, dense_limit: int) -> Any:
    """The arrays of `_kernels.Instance` for budgets up to this one."""
    import numpy as np

    from outlay.context import _kernels

    group, leader, twin = _groups(objective, costs)
    rows = np.ascontiguousarray(objective.vectors[leader])
    weight = np.bincount(group, objective.weight, minlength=len(leader)).astype(np.float32)
    norm = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    alone = objective.reward[leader] + objective.diversity * np.log1p(objective.scale * norm)
    dense = len(leader) <= dense_limit
    if dense:
        similarity = rows @ rows.T
        alone += _kernels.coverage_gains(similarity, weight)
    else:
        similarity = np.zeros((0, 0), np.float32)
        alone += coverage_limit(rows, weight)
    picks = min(int(np.searchsorted(np.cumsum(np.sort(costs)), budget, side="right")), len(costs)) + 1
    tall = len(leader) if objective.diversity > 0 else 1
    if 4 * tall * picks > FACTOR_LIMIT:
        raise OutlayError(
            f"a document of {len(costs)} units under a budget of {budget} tokens needs {4 * tall * picks / 2**30:.0f} GB for "
            f"the log-determinant, above the limit of {FACTOR_LIMIT >> 30} GB. Set selector.diversity=0, cut larger "
            f"units, or keep the budget below that of {FACTOR_LIMIT // (4 * tall)} units"
        )
    return _kernels.Instance(
        similarity=similarity,
        vectors=rows,
        norm=norm,
        weight=weight,
        reward=objective.reward[leader],
        cost=costs[leader],
        first_gain=alone,
        first_stamp=0 if dense else -1,
        group=group,
        leader=leader,
        twin=twin,
        diversity=float(objective.diversity),
        scale=float(objective.scale),
        factor=np.zeros((tall, picks), np.float32),
    )


def _groups(objective: Objective, costs: "np.ndarray") -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """Units with the same vector, reward and cost: group of each unit (n,), first member of each group (m,), and the
    next member after each unit (n,), -1 at the end."""
    import numpy as np

    count = len(costs)
    first = first_copies(objective.vectors)
    positions = np.arange(count)
    if (first == positions).all():
        return positions, positions.copy(), np.full(count, -1)
    keys = np.stack([first.astype(np.float64), objective.reward, costs.astype(np.float64)], axis=1)
    _, leader, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    by_position = np.argsort(leader)
    rank = np.empty_like(by_position)
    rank[by_position] = np.arange(len(leader))
    group = rank[inverse.reshape(-1)]
    twin = np.full(count, -1)
    chain = np.argsort(group, kind="stable")
    linked = group[chain[:-1]] == group[chain[1:]]
    twin[chain[:-1][linked]] = chain[1:][linked]
    return group, leader[by_position], twin


def coverage_limit(rows: "np.ndarray", weight: "np.ndarray") -> "np.ndarray":
    """(m,) an upper bound of each unit's coverage alone, in O(m d^2), without the matrix of similarities (ours).

    max(0, s) = (s + |s|) / 2, and by Cauchy-Schwarz sum_j w_j |s_ij| <= sqrt(W sum_j w_j s_ij^2).
    """
    import numpy as np

    weighted = rows * weight[:, None]
    linear = rows @ weighted.sum(axis=0)
    square = np.einsum("id,id->i", rows @ (weighted.T @ rows), rows)
    total = float(weight.sum(dtype=np.float64))
    limit = (linear + np.sqrt(np.maximum(total * square, 0.0))) / 2
    return np.asarray(
        np.maximum(limit, 0.0) * (1 + 1e-4) + 1e-6 * total
    )  # above the rounding of the two products


def _value(objective: Objective, inst: Any, order: list[int]) -> float:
    """F in float64. Where the similarities are at hand they are used, exact to 1e-7; else from the vectors."""
    import numpy as np

    if not len(inst.similarity):
        return objective.value(order)
    rows = inst.similarity[inst.group[order]]
    covered = rows.max(axis=0, initial=0.0).astype(np.float64)
    value = float(objective.reward[order].sum() + inst.weight.astype(np.float64) @ covered)
    if objective.diversity > 0:
        value += objective.diversity * log_det(objective.vectors[order].astype(np.float64), objective.scale)
    return value
