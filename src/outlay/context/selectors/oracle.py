"""Per example, the candidate whose context gold values most: a bound on what choosing among them can buy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isnan
from typing import Any, ClassVar

from outlay.context import Problem, Selection
from outlay.errors import ConfigError
from outlay.schema import component, option

REFUSED = ("full", "learned", "oracle")
"""No candidates: they keep no budget, or choose among candidates with a fit or with gold of their own."""


@dataclass(frozen=True)
class Oracle:
    """The candidate with the largest `problem.utility`; ties go to the cheaper, then to the earlier candidate.

    The worth of a context is the share of gold facts in it, or its ROUGE-1 (`score.quality.context_worth`): the metric
    that a run with generator=extract leads with. Of a model's answers it is the best context, not the best answer;
    there regret.csv's "best fixed per example" is the bound.

    `choice` of a selection names the candidate, `info` holds worth_<candidate> for each. A worth that is undefined
    (an example without gold of its kind) counts as 0.
    """

    candidates: tuple[str, ...] = option(
        ("lead", "mmr", "rcd")
    )  # of conf/selector, with their defaults there

    name: ClassVar[str] = "oracle"
    oracle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))  # a list would not hash
        arms(self.candidates)

    def select(self, problem: Problem) -> list[Selection]:
        return self.select_given(problem, ())

    def select_given(self, problem: Problem, kept: Sequence[int]) -> list[Selection]:
        """As `select`, after units that are kept already; their costs count against the budgets.

        Raises:
            ConfigError: the problem carries no gold.
        """
        found = arm_selections(self.candidates, problem, kept)
        best = []
        for place in range(len(problem.budgets)):
            own = {name: found[name][place] for name in self.candidates}
            worth = {name: arm_worth(problem, one, self.name) for name, one in own.items()}
            worth = {name: 0.0 if isnan(value) else value for name, value in worth.items()}
            choice = max(self.candidates, key=lambda name: (worth[name], -own[name].tokens))
            info = {**own[choice].info, **{f"worth_{name}": value for name, value in worth.items()}}
            best.append(replace(own[choice], choice=choice, info=info))
        return best


@lru_cache(maxsize=64)
def arms(names: tuple[str, ...]) -> dict[str, Any]:
    """The candidates by name, with the options of their config files.

    Raises:
        ConfigError: none, a repeated, an unknown or a refused name.
    """
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"candidates={list(names)}: name one selector or more, each once")
    for name in names:
        if name in REFUSED:
            raise ConfigError(
                f"candidates: '{name}' cannot be one. Use others, e.g. candidates=[lead,mmr,rcd]"
            )
    return {name: component("selector", name) for name in names}


def arm_selections(
    names: tuple[str, ...], problem: Problem, kept: Sequence[int]
) -> dict[str, list[Selection]]:
    """Each candidate's selections, one per budget of the problem. No candidate sees gold."""
    from outlay.context.pins import select_after

    blind = replace(problem, utility=None)
    return {name: select_after(arm, blind, kept) for name, arm in arms(names).items()}


def arm_worth(problem: Problem, found: Selection, asked_by: str) -> float:
    """Gold's worth of a selection, which may be nan.

    Raises:
        ConfigError: the problem carries no gold.
    """
    if problem.utility is None:
        raise ConfigError(
            f"selector={asked_by} needs gold (problem.utility), and this problem has none. Run it on a data set with "
            "references, or use selector=routed"
        )
    return problem.utility(found.indices)
