"""The retention contract: units that a selection may not drop. Their cost is paid first."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from outlay.context import Problem, Selection
from outlay.context.packing import fill, selection
from outlay.errors import ConfigError, OutlayError, nearest
from outlay.schema import option

_UNIT = r"(?:mg|mcg|g|ug|µg|ml|l|units?|iu|meq|mmol|mg/kg|tabs?|tablets?|puffs?|drops?)"
_BLOOD_THINNER = (
    "warfarin|coumadin|heparin|enoxaparin|lovenox|dalteparin|fondaparinux|apixaban|eliquis|rivaroxaban|xarelto|"
    "dabigatran|pradaxa|edoxaban|argatroban|bivalirudin|anticoagula\\w*"
)

STARTER: Mapping[str, str] = {
    "allergies": r"\ballerg(?:y|ies|ic)\b|\banaphyla\w+|\bNKDA\b",
    "anticoagulants": rf"\b(?:{_BLOOD_THINNER})\b",
    "doses": rf"\b\d+(?:[.,]\d+)?\s*{_UNIT}\b",
    "negated_findings": r"\b(?:no|not|denies|denied|without|negative\s+for|free\s+of|ruled\s+out|absence\s+of)\b",
}
"""A starter list for clinical notes (ours), not a validated one: review it before a decision hangs on it."""


@dataclass(frozen=True)
class Retention:
    """What a selection may not drop; options of every selector. pin: names of `STARTER`, or regular expressions."""

    pin: list[str] = option(factory=list)
    pin_mode: str = option("error", choices=("error", "best_effort"))

    def __post_init__(self) -> None:
        patterns(self.pin)

    def select(self, selector: Any, problem: Problem, texts: Sequence[str]) -> list[Selection]:
        """The selector's choice among what the pinned units leave.

        Raises:
            OutlayError: see `with_pins`.
        """
        if not self.pin:
            found: list[Selection] = selector.select(problem)
            return found
        return with_pins(selector, problem, pinned(texts, self.pin), self.pin_mode == "best_effort")


def patterns(names: Iterable[str]) -> list[re.Pattern[str]]:
    """Compiled patterns: a name of `STARTER`, or else a regular expression of one's own; case is ignored.

    Raises:
        ConfigError: an expression that does not compile.
    """
    compiled = []
    for name in names:
        try:
            compiled.append(re.compile(STARTER.get(name, name), re.IGNORECASE))
        except re.error as error:
            raise ConfigError(
                f"selector.pin: '{name}' is no regular expression ({error}). {nearest(name, STARTER)}"
            ) from None
    return compiled


def pinned(texts: Sequence[str], names: Iterable[str]) -> tuple[int, ...]:
    """Positions of the unit texts that match a pattern.

    Raises:
        ConfigError: see `patterns`.
    """
    compiled = patterns(names)
    return tuple(
        index for index, text in enumerate(texts) if any(pattern.search(text) for pattern in compiled)
    )


@runtime_checkable
class Continues(Protocol):
    """A selector that can go on from units already kept, whose costs count against the budgets."""

    def select_given(self, problem: Problem, kept: Sequence[int]) -> list[Selection]: ...


def with_pins(
    selector: Any, problem: Problem, pins: Sequence[int], best_effort: bool = False
) -> list[Selection]:
    """Selections that hold every pinned unit; the selector spends what their costs leave.

    mmr and rcd take the pins into account (novelty, coverage and certificate are those of the whole set); another
    selector chooses among the other units. `info["pinned"]` is the number of pinned units kept.

    Args:
        pins: positions of units.
        best_effort: under a budget that the pins alone pass, keep the pins that fit, earlier first.

    Raises:
        OutlayError: the pins alone pass a budget, and not best_effort.
    """
    pins = sorted(set(pins))
    costs = problem.costs.tolist()
    needed = sum(costs[pin] for pin in pins)
    selections: list[Selection] = []
    for budget in problem.budgets:
        if needed > budget and not best_effort:
            raise OutlayError(
                f"selector.pin: the {len(pins)} pinned units take {needed} tokens, and the budget is {budget}. "
                f"Raise budget.tokens to {needed}, pin less, or keep what fits with selector.pin_mode=best_effort"
            )
    whole = tuple(budget for budget in problem.budgets if budget >= needed)
    shared = iter(
        select_after(selector, replace(problem, budgets=whole), pins)
    )  # one pass for all budgets that hold the pins
    for budget in problem.budgets:
        if budget >= needed:
            found, kept = next(shared), len(pins)
        else:
            fitting = fill(pins, costs, budget)
            (found,), kept = (
                select_after(selector, replace(problem, budgets=(budget,)), fitting),
                len(fitting),
            )
        selections.append(replace(found, info={**found.info, "pinned": float(kept)}))
    return selections


def select_after(selector: Any, problem: Problem, kept: Sequence[int]) -> list[Selection]:
    """Selections that hold the units `kept`, which every budget of the problem must hold."""
    import numpy as np

    if not kept or selector.name == "full" or not problem.budgets:
        found: list[Selection] = selector.select(problem)
        return found
    if isinstance(selector, Continues):
        return selector.select_given(problem, kept)
    free = np.setdiff1d(np.arange(len(problem.costs)), kept)
    place = {int(old): new for new, old in enumerate(free)}
    paid = int(problem.costs[list(kept)].sum())
    rest = replace(
        problem,
        vectors=problem.vectors[free],
        relevance=problem.relevance[free],
        costs=problem.costs[free],
        budgets=tuple(budget - paid for budget in problem.budgets),
        units=tuple(
            replace(problem.units[old], header=place.get(problem.units[old].header)) for old in free.tolist()
        )
        if problem.units
        else (),
    )
    return [
        selection(
            [*kept, *(int(free[unit]) for unit in part.order)],
            problem.costs,
            choice=part.choice,
            info=dict(part.info),
        )
        for part in selector.select(rest)
    ]
