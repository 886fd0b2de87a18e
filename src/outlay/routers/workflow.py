"""What answering on a tier buys and costs with the run's retries: the two sides of SER and of q - λc."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from outlay.agent.ledger import Ledger, Trace
from outlay.routers import Setting, checks
from outlay.routers.estimates import Estimate, Estimates, fit_estimates
from outlay.routers.rehearse import FREE, rehearse

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
    inflation: float
    estimate: Estimate

    @property
    def cost(self) -> float:
        return self.direct * self.inflation


@dataclass(frozen=True, eq=False)
class Workflow:
    estimates: Estimates
    attempts: int  # the most that a query may take on a tier
    gold: bool  # the retry stops at the first right answer
    utility: Mapping[str, float]
    inflation: Mapping[str, float]  # mean over train
    predictor: Foretell | None = None
    warnings: tuple[str, ...] = ()

    def of(self, trace: Trace) -> dict[str, Expected]:
        """By tier, in the order of the config."""
        return {
            tier: Expected(
                utility=self.utility[tier],
                utility_x=solved_within(one.success, self.attempts) if self.gold else one.success,
                direct=one.cost,
                inflation=self._inflation(trace, tier, one),
                estimate=one,
            )
            for tier, one in self.estimates.of(trace).items()
        }

    def _inflation(self, trace: Trace, tier: str, one: Estimate) -> float:
        if self.predictor is not None:
            return max(1.0, self.predictor(trace, tier))
        if self.gold:
            return max(1.0, expected_attempts(one.success, self.attempts))
        return self.inflation[tier]


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
    the recorded samples of each train query (ours): what a vote or a verifier makes of them is not a function of p."""
    estimates = fit_estimates(ledger, setting.tiers, setting.embed, estimator, cost, router, probed)
    prices = {tier.name: tier.price for tier in setting.tiers}
    utility, inflation = {}, {}
    for tier in prices:
        played = [
            rehearse(
                lambda trace, tier=tier: setting.retry.next(trace, tier),  # type: ignore[misc]
                one,
                prices,
                cost,
                getattr(setting.retry, "threshold", None),
            )
            for one in ledger.traces("train")
        ]
        utility[tier] = sum(one.quality for one in played) / len(played)
        inflation[tier] = sum(one.inflation for one in played) / len(played)
    return Workflow(
        estimates=estimates,
        attempts=attempts_of(setting),
        gold=getattr(setting.retry, "stop", "none") == "gold",
        utility=utility,
        inflation=inflation,
        predictor=predictor,
        warnings=estimates.warnings
        + tuple(checks.not_rehearsed(getattr(setting.retry, "asks", None), REHEARSED)),
    )


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
