"""What a learned selector may know of a document before it is sent: numbers from its units, query and budget, no gold.

The list is ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from outlay.context import Problem, Selection
from outlay.context.routing import PHI, RHO

if TYPE_CHECKING:
    import numpy as np

MOST_UNITS = 512
"""Of the spectrum of rho_rank, whose cost is cubic: a longer document gives evenly spaced units."""


def features(problem: Problem, found: Mapping[str, Sequence[Selection]]) -> list[dict[str, float]]:
    """One row of named finite numbers per budget of the problem.

    Args:
        found: each candidate's selections, one per budget.
    """
    from outlay.context.selectors.rcd import Rcd

    rcd = Rcd()
    objective = rcd.objective(problem)
    document = _document(problem)
    # One pass gives the F curve at half, one and two budgets.
    around = tuple(max(1, round(share * budget)) for budget in problem.budgets for share in (0.5, 1, 2))
    curve = rcd.select(replace(problem, budgets=around, utility=None))
    rows = []
    for place, budget in enumerate(problem.budgets):
        half, whole, double = curve[3 * place : 3 * place + 3]
        row = {
            **document,
            "log_budget": _log(budget),
            "budget_share": min(1.0, _ratio(budget, float(problem.costs.sum()))),
            "curve_below": _ratio(half.value, whole.value),
            "curve_above": _ratio(whole.value, double.value),
            "next_token": _ratio(whole.info.get("marginal", 0.0) * budget, whole.value),
            "certificate": _ratio(whole.value, whole.bound),
        }
        for name, selections in found.items():
            kept = list(selections[place].indices)
            row[f"{name}_relevance"] = _ratio(problem.relevance[kept].sum(), problem.relevance.sum())
            row[f"{name}_top"] = _ratio(
                problem.relevance[kept].max(initial=0.0), problem.relevance.max(initial=0.0)
            )
            row[f"{name}_value"] = _ratio(objective.value(kept), whole.value)
            row[f"{name}_filled"] = selections[place].tokens / budget
        rows.append({name: float(value) for name, value in row.items()})
    return rows


def _document(problem: Problem) -> dict[str, float]:
    """What does not depend on the budget."""
    import numpy as np

    count, mass = len(problem.costs), problem.relevance.sum()
    thinned = problem
    if count > MOST_UNITS:
        kept = np.linspace(0, count - 1, MOST_UNITS).astype(int)
        thinned = replace(problem, vectors=problem.vectors[kept])
    ranked = np.sort(problem.relevance)[::-1]
    gaps = ranked[:-1] - ranked[1:]
    best = int(problem.relevance.argmax()) if count else 0
    return {
        **{f"phi_{name}": measure(problem) for name, measure in PHI.items()},
        **{f"rho_{name}": measure(thinned if name == "rank" else problem) for name, measure in RHO.items()},
        "log_units": _log(count),
        "log_tokens": _log(problem.costs.sum()),
        "unit_spread": _ratio(problem.costs.std(), problem.costs.mean()) if count else 0.0,
        "relevance_mean": _ratio(mass, count),
        "relevance_top": float(ranked[0]) if count else 0.0,
        "relevance_none": float((problem.relevance <= 0).mean()) if count else 0.0,
        "relevance_entropy": _entropy(problem.relevance / mass) if mass > 0 else 1.0,
        "relevance_gap": float(gaps.max(initial=0.0)),
        "relevance_before_gap": _ratio(gaps.argmax() + 1, count) if count > 1 else 0.0,
        "best_at": _ratio(problem.costs[:best].sum(), problem.costs.sum()),
        **_headers(problem),
    }


def _headers(problem: Problem) -> dict[str, float]:
    named = [unit.header for unit in problem.units if unit.header is not None]
    return {
        "headed": _ratio(len(named), len(problem.units)),
        "sections": _ratio(len(set(named)), len(problem.units)),
    }


def _entropy(shares: "np.ndarray") -> float:
    """Of relevance over units, divided by its maximum log n."""
    import numpy as np

    positive = shares[shares > 0]
    return _ratio(-float((positive * np.log(positive)).sum()), float(np.log(len(shares))))


def _log(value: float) -> float:
    return math.log(max(1.0, float(value)))


def _ratio(part: float, whole: float) -> float:
    """0 where there is no whole."""
    return float(part) / float(whole) if whole > 0 else 0.0
