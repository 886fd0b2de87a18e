"""What answering on a tier buys and costs with the run's retries: the two sides of SER and of q - λc."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from outlay.agent.ledger import Ledger, Trace
from outlay.routers import Setting, checks, costs
from outlay.routers.estimates import Estimate, Estimates, fit_estimates
from outlay.routers.explore import temperature
from outlay.routers.rehearse import FREE, rehearse_on

if TYPE_CHECKING:
    from outlay.inflation.predictor import Predictor

REHEARSED = ("gold", *FREE)
Foretell = Callable[[Trace, str], float]
"""(trace with its probe, tier) -> predicted inflation"""


def solved_within(success: float, attempts: int) -> float:
    """U of independent retries that stop at the first right answer: 1 − (1 − p)^n."""
    return 1 - (1 - success) ** attempts


def expected_attempts(success: float, attempts: int) -> float:
    """Inflation of the same at equal cost an attempt: (1 − (1 − p)^n) / p; n where p is 0."""
    return solved_within(success, attempts) / success if success > 0 else float(attempts)


def exchange_rate(utility: float, direct: float, inflation: float) -> float:
    """SER = U / (C_direct x inflation) (InflationAgent); infinite where the call is free."""
    cost = direct * inflation
    return utility / cost if cost > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one query on one tier, retries included."""

    utility: float  # U(m): of the tier, whatever the query
    utility_x: float  # U(m, x)
    direct: float  # cost of the first call
    inflation: float  # of all attempts on the tier, a reused probe's samples among them
    estimate: Estimate
    paid: float = 0.0  # of them, what the probe has paid

    @property
    def cost(self) -> float:
        """What is still to be paid: all of it but a reused probe, which is sunk when a tier is chosen."""
        return max(0.0, self.direct * self.inflation - self.paid)


@dataclass(frozen=True, eq=False)
class Workflow:
    estimates: Estimates
    attempts: int  # the most that a query may take on a tier
    gold: bool  # the retry stops at the first right answer
    utility: Mapping[str, float]
    inflation: Mapping[str, float]  # mean over train, without what a probe's samples save
    further: Mapping[str, float]  # by tier whose probe is reused: mean cost after it, over that of one call
    predictor: Foretell | None = None
    warnings: tuple[str, ...] = ()

    def of(self, trace: Trace) -> dict[str, Expected]:
        """By tier, in the order of the config."""
        return {tier: self._on(trace, tier, one) for tier, one in self.estimates.of(trace).items()}

    def apart(self) -> "Workflow":
        """The same where the probe's samples are not used again."""
        return replace(self, further={})

    def _on(self, trace: Trace, tier: str, one: Estimate) -> Expected:
        reused = [
            line for line in trace.probes if line.attempt and line.tier == tier and tier in self.further
        ]
        attempts = max(self.attempts, len(reused))
        paid = sum(costs.of_line(line, self.estimates.cost) for line in reused)
        return Expected(
            utility=self.utility[tier],
            utility_x=solved_within(one.success, attempts) if self.gold else one.success,
            direct=one.cost,
            inflation=max(1.0, self._inflation(trace, tier, one, len(reused), paid)),
            estimate=one,
            paid=paid,
        )

    def _inflation(self, trace: Trace, tier: str, one: Estimate, reused: int, paid: float) -> float:
        already = paid / one.cost if one.cost > 0 else 0.0
        if self.predictor is not None:
            return max(already, self.predictor(trace, tier))
        if self.gold:  # the further attempts are made where none of the probe's samples was right
            left = max(0, self.attempts - reused)
            return already + (1 - one.success) ** reused * expected_attempts(one.success, left)
        return already + self.further[tier] if reused else self.inflation[tier]


def fit_workflow(
    ledger: Ledger,
    setting: Setting,
    estimator: str,
    cost: str,
    router: str,
    predictor: Foretell | None = None,
    probed: bool = True,
) -> Workflow:
    """Fit on train. U(m), and the inflation of a stop rule other than gold, are measured by playing the run's retry against
    the recorded samples of each train query (ours): what a vote or a verifier makes of them is not a function of p.

    probed: whether the probe is played before it, and its samples counted where they serve as attempts."""
    estimates = fit_estimates(ledger, setting.tiers, setting.embed, estimator, cost, router, probed)
    train = ledger.traces("train")
    reused = {line.tier for one in train for line in one.probes if line.attempt} if probed else set()
    utility, inflation, further = {}, {}, {}
    for tier in costs.names(setting.tiers):
        played = [rehearse_on(tier, setting, one, cost, probed) for one in train]
        utility[tier] = _mean([one.quality for one in played])
        if tier in reused:
            paid = [sum(costs.of_line(x, cost) for x in one.probes if x.tier == tier) for one in train]
            bills = [one.on(tier) for one in played]
            further[tier] = _mean(
                [
                    (sum(bill) - probe) / bill[0]
                    for bill, probe in zip(bills, paid, strict=True)
                    if bill and bill[0]
                ]
            )
            played = [rehearse_on(tier, setting, one, cost, probed=False) for one in train]
        inflation[tier] = _mean([one.inflation(tier) for one in played])
    return Workflow(
        estimates=estimates,
        attempts=attempts_of(setting),
        gold=getattr(setting.retry, "stop", "none") == "gold",
        utility=utility,
        inflation=inflation,
        further=further,
        predictor=predictor,
        warnings=estimates.warnings
        + tuple(checks.not_rehearsed(getattr(setting.retry, "asks", None), REHEARSED)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def foretold_by(where: str | None) -> Foretell | None:
    """A saved predictor of inflation: a folder, or runs:/ID; it is read on first use and needs a probe."""
    if where is None:
        return None

    def foretell(trace: Trace, tier: str) -> float:
        from outlay.inflation.features import features

        predictor = _load(where)
        return float(predictor.predict(tier, [predictor.row(features(trace))])[0])

    return foretell


@lru_cache(maxsize=4)
def _load(where: str) -> "Predictor":
    from outlay.inflation.predictor import load

    return load(where)


def attempts_of(setting: Setting) -> int:
    """The most attempts that the run's retry makes on a tier."""
    return int(getattr(setting.retry, "max_attempts", 1))


def probe_warnings(setting: Setting) -> list[str]:
    """Of the probe's options alone."""
    k = getattr(setting.probe, "k", None)
    return checks.few_entropies(k) if k else []


def retry_warnings(setting: Setting) -> list[str]:
    """Of the retry's options alone: a router counts on attempts that differ."""
    if getattr(setting.retry, "context", "fresh") != "fresh":
        return []
    return checks.repeats(attempts_of(setting), temperature(setting), "retry.max_attempts")
