"""Lead, MMR or RCD, by the budget and by how front-loaded and redundant the document is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from outlay.context import Problem, Selection
from outlay.context.routing import PHI, RHO
from outlay.context.selectors.lead import Lead
from outlay.context.selectors.mmr import Mmr
from outlay.context.selectors.rcd import Rcd
from outlay.schema import option


@dataclass(frozen=True)
class Routed:
    """B <= B1: lead; B1 < B <= B2: mmr; above: rcd (the paper's rule; every number here is ours).

    B1 = low * 4^(front phi): a front-loaded document stays with lead for longer.
    B2 = high * 4^(redundant (1/2 - rho)): a redundant one goes to rcd sooner.
    `choice` of a selection names its selector, `info` holds phi and rho.
    """

    low: float = option(128.0, least=0)  # B1 in tokens, before phi
    high: float = option(1024.0, least=0)  # B2 in tokens, before rho
    relative: bool = (
        False  # true: low and high are meant for a document of 2,000 tokens and scale with its length
    )
    front: float = option(1.0, least=0)  # how strongly phi moves B1; 0: not at all
    redundant: float = option(1.0, least=0)  # how strongly rho moves B2; 0: not at all
    phi: str = option("area", choices=tuple(PHI))
    rho: str = option("nearest", choices=tuple(RHO))
    mmr: Mmr = option(factory=Mmr)
    rcd: Rcd = option(factory=Rcd)

    name: ClassVar[str] = "routed"
    oracle: ClassVar[bool] = False

    def select(self, problem: Problem) -> list[Selection]:
        return self.select_given(problem, ())

    def select_given(self, problem: Problem, kept: Sequence[int]) -> list[Selection]:
        """As `select`, after units that are kept already; their costs count against the budgets."""
        from outlay.context.pins import select_after

        phi, rho = PHI[self.phi](problem), RHO[self.rho](problem)
        choices = [self._choice(problem, budget, phi, rho) for budget in problem.budgets]
        arms = {"lead": Lead(), "mmr": self.mmr, "rcd": self.rcd}
        found: dict[int, Selection] = {}
        for name in set(choices):
            places = [place for place, choice in enumerate(choices) if choice == name]
            part = replace(problem, budgets=tuple(problem.budgets[place] for place in places))
            found |= dict(zip(places, select_after(arms[name], part, kept), strict=True))
        return [
            replace(found[place], choice=choice, info={**found[place].info, "phi": phi, "rho": rho})
            for place, choice in enumerate(choices)
        ]

    def _choice(self, problem: Problem, budget: int, phi: float, rho: float) -> str:
        length = float(problem.costs.sum()) / 2000 if self.relative else 1.0
        if budget <= self.low * length * 4 ** (self.front * phi):
            return "lead"
        return "mmr" if budget <= self.high * length * 4 ** (self.redundant * (0.5 - rho)) else "rcd"
