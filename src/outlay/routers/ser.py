"""The semantic exchange rate (InflationAgent): the tier with the most accuracy per unit of what it will really cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Ledger, Trace
from outlay.errors import ConfigError
from outlay.inflation import inflation
from outlay.routers import Setting, checks, costs
from outlay.routers.estimates import ESTIMATORS
from outlay.routers.explore import Explore, explorer
from outlay.routers.view import on_tier, tried
from outlay.routers.workflow import (
    Expected,
    Workflow,
    attempts_of,
    exchange_rate,
    fit_workflow,
    foretold_by,
    probe_warnings,
    retry_warnings,
)
from outlay.schema import option


@dataclass(frozen=True)
class Escalation:
    """When a tier is left for the next one, and what that one is shown first.

    rule: paper (observed inflation > factor x predicted) or index (ours: after k tries without success the chance of the
    next is p̂ = a/(a + b + k), and the next tier's p/c is better; or the attempts are spent). factor=null: never, by the
    paper's rule.
    """

    factor: float | None = option(2.0, above=0)
    context: str = option("fresh", choices=("fresh", "carry"))
    rule: str = option("paper", choices=("paper", "index"))


@dataclass(frozen=True)
class Ser:
    """U(m) / (C_direct x predicted inflation), per query through the inflation alone.

    cost: what C is counted in. predictor: a saved one; None: from the estimated chance of success. samples: of every
    tier on train and tune.
    """

    cost: str = option("units", choices=costs.KINDS)
    estimator: str = option("logistic", choices=ESTIMATORS)
    predictor: str | None = None
    escalate: Escalation = field(default_factory=Escalation)
    samples: int = option(5, least=1)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "ser"
    least_tiers: ClassVar[int] = 2
    learns: ClassVar[bool] = True
    per_query: ClassVar[bool] = False

    def policy(self, setting: Setting) -> "SerPolicy":
        factor, attempts = self.escalate.factor, attempts_of(setting)
        warnings = checks.never_fires(factor, attempts) if factor and self.escalate.rule == "paper" else []
        return SerPolicy(self, setting, tuple(warnings + probe_warnings(setting) + retry_warnings(setting)))


@dataclass(frozen=True)
class SerX(Ser):
    """U(m, x) in place of U(m): with independent retries and a gold stop the inflation cancels, and what is left is p/c."""

    name: ClassVar[str] = "ser_x"
    per_query: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class SerPolicy:
    options: Ser
    setting: Setting
    warnings: tuple[str, ...] = ()
    workflow: Workflow | None = None

    def explore(self) -> Explore:
        return explorer(self.setting, costs.names(self.setting.tiers), self.options.samples)

    def fit(self, ledger: Ledger) -> Self:
        """Raises OutlayError: a tier without a scored attempt in the train split."""
        fitted = replace(self, workflow=self._fitted(ledger))
        return replace(fitted, warnings=self.warnings + tuple(fitted._warnings(ledger)))

    def next(self, trace: Trace) -> Action:
        tiers = costs.names(self.setting.tiers)
        probe = self.setting.probe.next(trace, tiers[0])
        if probe:
            return probe
        done = tried(trace)
        tier = done[-1].tier if done else self.choice(trace)
        action = on_tier(self.setting.retry, trace, tier)
        if isinstance(action, Verify) or (isinstance(action, Stop) and action.solved):
            return action
        up = tiers[tiers.index(tier) + 1 :]
        if not (done and up and self._leaves(trace, tier, up[0], isinstance(action, Stop))):
            return action
        first = on_tier(self.setting.retry, trace, up[0])
        return replace(first, context=self.options.escalate.context) if isinstance(first, Attempt) else first

    def choice(self, trace: Trace) -> str:
        """The tier with the highest exchange rate; ties go to the earlier one."""
        rates = self.rates(self._expected(trace))
        return max(rates, key=rates.__getitem__)

    def rates(self, expected: Mapping[str, Expected]) -> dict[str, float]:
        return {
            tier: exchange_rate(
                one.utility_x if self.options.per_query else one.utility, one.direct, one.inflation
            )
            for tier, one in expected.items()
        }

    def _leaves(self, trace: Trace, tier: str, up: str, spent: bool) -> bool:
        rule, here = self.options.escalate, trace.of_tier(tier).attempts
        expected = self._expected(trace)
        if rule.rule == "paper":
            return rule.factor is not None and inflation(here) > rule.factor * expected[tier].inflation
        stay, go = expected[tier], expected[up]
        index = 0.0 if spent else stay.estimate.after(len(here)) / max(stay.direct, 1e-300)
        return go.estimate.success / max(go.direct, 1e-300) > index

    def _expected(self, trace: Trace) -> dict[str, Expected]:
        if self.workflow is None:
            raise ConfigError(f"router={self.options.name} is not fitted; a run fits it on its train split")
        return self.workflow.of(trace)

    def _fitted(self, ledger: Ledger, probed: bool = True) -> Workflow:
        options = self.options
        foretell = foretold_by(options.predictor) if probed else None
        return fit_workflow(
            ledger, self.setting, options.estimator, options.cost, options.name, foretell, probed
        )

    def _warnings(self, ledger: Ledger) -> list[str]:
        workflow, options = self.workflow, self.options
        tune = ledger.traces("tune") or ledger.traces("train")
        if workflow is None:
            return []
        expected = [workflow.of(trace) for trace in tune]
        direct = {tier: sum(one[tier].direct for one in expected) / len(tune) for tier in workflow.utility}
        found = list(workflow.warnings)
        if not options.per_query:
            found += checks.unreachable(workflow.utility, direct, workflow.attempts)
        chosen = [self.choice(trace) for trace in tune]
        if (
            options.escalate.factor
            and options.escalate.rule == "paper"
            and workflow.attempts > options.escalate.factor
        ):
            predicted = [one[tier].inflation for one, tier in zip(expected, chosen, strict=True)]
            found += checks.dead_zone(predicted, options.escalate.factor, workflow.attempts)
        if any(trace.probes for trace in tune):
            blind = replace(self, workflow=self._fitted(ledger, probed=False))
            apart = workflow.apart()  # without a probe nothing is there to be used again
            without = [apart.of(trace)[blind.choice(trace)].cost for trace in tune]
            with_probe = [one[tier].cost for one, tier in zip(expected, chosen, strict=True)]
            paid = sum(costs.of_line(line, options.cost) for trace in tune for line in trace.probes)
            found += checks.probe_saves(
                paid / len(tune), sum(with_probe) / len(tune), sum(without) / len(tune), options.cost
            )
        return found
