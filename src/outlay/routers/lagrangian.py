"""The tier with the most expected quality less λ times its expected cost, λ set to a mean budget."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from outlay.agent import Action
from outlay.agent.ledger import Ledger, Trace
from outlay.errors import ConfigError
from outlay.routers import Setting, checks, costs
from outlay.routers.calibrate import Mix, calibrate
from outlay.routers.estimates import ESTIMATORS
from outlay.routers.explore import Explore, explorer
from outlay.routers.view import on_tier, tried
from outlay.routers.workflow import (
    Expected,
    Workflow,
    fit_workflow,
    foretold_by,
    probe_warnings,
    retry_warnings,
)
from outlay.schema import option


@dataclass(frozen=True)
class Lagrangian:
    """argmax_m U(m, x) − λ C_real(m, x), retries included: what SER's ratio becomes under a budget.

    mean_cost: the budget, a mean a query in `cost`, probe included; None: `cost_share` of the way from the cheapest tier's
    mean to the dearest's (ours). λ comes from bisection on the tune split.
    """

    cost: str = option("units", choices=costs.KINDS)
    mean_cost: float | None = option(None, above=0)
    cost_share: float = option(0.5, least=0, most=1)
    estimator: str = option("logistic", choices=ESTIMATORS)
    predictor: str | None = None
    samples: int = option(5, least=1)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "lagrangian"
    least_tiers: ClassVar[int] = 2
    learns: ClassVar[bool] = True

    def policy(self, setting: Setting) -> "LagrangianPolicy":
        return LagrangianPolicy(self, setting, tuple(probe_warnings(setting) + retry_warnings(setting)))


@dataclass(frozen=True, eq=False)
class LagrangianPolicy:
    options: Lagrangian
    setting: Setting
    warnings: tuple[str, ...] = ()
    workflow: Workflow | None = None
    mix: Mix | None = None

    def explore(self) -> Explore:
        return explorer(self.setting, costs.names(self.setting.tiers), self.options.samples)

    def fit(self, ledger: Ledger) -> Self:
        """Raises OutlayError: a tier without a scored attempt in the train split."""
        options = self.options
        workflow = fit_workflow(
            ledger,
            self.setting,
            options.estimator,
            options.cost,
            options.name,
            foretold_by(options.predictor),
        )
        tune = ledger.traces("tune") or ledger.traces("train")
        expected = [workflow.of(trace) for trace in tune]
        probe = sum(costs.of_line(line, options.cost) for trace in tune for line in trace.probes) / len(tune)
        alone = [probe + sum(one[tier].cost for one in expected) / len(tune) for tier in workflow.utility]
        budget = costs.Budget(options.mean_cost, options.cost_share).amount(alone)
        mix = calibrate(
            lambda rate: probe + sum(one[choice(one, rate)].cost for one in expected) / len(tune), budget
        )
        found = (*workflow.warnings, *checks.budget_missed(budget, mix.mean_cost, options.cost))
        return replace(self, workflow=workflow, mix=mix, warnings=self.warnings + found)

    def next(self, trace: Trace) -> Action:
        probe = self.setting.probe.next(trace, self.setting.tiers[0].name)
        if probe:
            return probe
        done = tried(trace)
        if self.workflow is None or self.mix is None:
            raise ConfigError("router=lagrangian is not fitted; a run fits it on its train split")
        tier = done[-1].tier if done else choice(self.workflow.of(trace), self.mix.rate(trace.query.id))
        return on_tier(self.setting.retry, trace, tier)


def choice(expected: dict[str, Expected], rate: float) -> str:
    """Ties go to the cheaper tier."""
    return max(
        expected,
        key=lambda tier: (expected[tier].utility_x - rate * expected[tier].cost, -expected[tier].cost),
    )
