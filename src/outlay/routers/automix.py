"""AutoMix (Aggarwal et al. 2024): the weak tier answers and checks itself; the check decides whether the strong one is asked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Ledger, Trace
from outlay.agent.verifiers import ASKED
from outlay.errors import ConfigError
from outlay.routers import Setting, checks, costs
from outlay.routers.calibrate import Mix, calibrate
from outlay.routers.estimates import require_samples
from outlay.routers.explore import Explore, samples_of, temperature
from outlay.routers.pair import pair_of
from outlay.routers.view import tried
from outlay.schema import option


@dataclass(frozen=True)
class AutoMix:
    """rule: threshold (the answer is kept at a confidence of at least `threshold`) or pomdp (a belief over which tiers
    are right, from the train queries whose confidence fell in the same of `bins`; the strong tier is asked where the
    expected gain passes λ times its cost).

    verifier: its calls are paid for, and are lines. mean_cost: the budget that λ, or the threshold where it is null, is set
    to on the tune split; None: `cost_share` of the way from the weak tier's cost, checked, to that with the strong one's.
    """

    rule: str = option("pomdp", choices=("threshold", "pomdp"))
    threshold: float | None = option(None, least=0, most=1)
    bins: int = option(8, least=2)  # as published
    verifier: str = option("self_verify", choices=ASKED)
    verifier_samples: int = option(5, least=1)  # replies of a check; ours
    cost: str = option("units", choices=costs.KINDS)
    mean_cost: float | None = option(None, above=0)
    cost_share: float = option(0.5, least=0, most=1)
    weak: str | None = None  # None: the generator's first tier
    strong: str | None = None  # None: its last
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "automix"
    least_tiers: ClassVar[int] = 2
    learns: ClassVar[bool] = True

    def policy(self, setting: Setting) -> "AutoMixPolicy":
        return AutoMixPolicy(self, setting, *pair_of(setting, self.weak, self.strong))


@dataclass(frozen=True)
class Seen:
    """One explored query: what the check said, who was right, and what each part cost."""

    confidence: float
    weak: float
    strong: float
    paid: float  # the weak answer and its check
    more: float  # the strong one


@dataclass(frozen=True, eq=False)
class AutoMixPolicy:
    options: AutoMix
    setting: Setting
    weak: str
    strong: str
    warnings: tuple[str, ...] = ()
    gain: tuple[float, ...] = ()  # by bin: the strong tier's chance less the weak one's
    more: float = 0.0  # mean cost of asking the strong tier
    mix: Mix | None = None

    def explore(self) -> Explore:
        return Explore(
            (self.weak, self.strong),
            1,
            temperature(self.setting),
            verify=self.options.verifier,
            checked=self.weak,
        )

    def fit(self, ledger: Ledger) -> Self:
        """Raises OutlayError: a tier without a scored attempt in the train split."""
        options = self.options
        require_samples(ledger.traces("train"), (self.weak, self.strong), options.name)
        train, tune = self._seen(ledger.traces("train")), self._seen(ledger.traces("tune"))
        tune = tune or train
        fitted = replace(self, gain=_gains(train, options.bins), more=_mean([one.more for one in train]))
        paid, more = _mean([one.paid for one in tune]), _mean([one.more for one in tune])
        budget = costs.Budget(options.mean_cost, options.cost_share).amount([paid, paid + more])
        mix = calibrate(
            lambda rate: (
                paid + sum(one.more for one in tune if fitted.asks(one.confidence, rate)) / len(tune)
            ),
            budget,
        )
        failures = {self.weak: (sum(1 - one.weak for one in train), float(len(train)))}
        found = [*checks.few_failures(failures)]
        if options.threshold is None or options.rule == "pomdp":
            found += checks.budget_missed(budget, mix.mean_cost, options.cost)
        return replace(fitted, mix=mix, warnings=self.warnings + tuple(found))

    def next(self, trace: Trace) -> Action:
        if self.mix is None:
            raise ConfigError("router=automix is not fitted; a run fits it on its train split")
        done = tried(trace)
        if not done:
            return Attempt(self.weak, temperature(self.setting))
        first = done[0]
        if not trace.checked(first.attempt, self.options.verifier):
            return Verify(self.options.verifier, first.attempt)
        if len(done) == 1:
            confidence = self._confidence(trace, first.attempt)
            if self.asks(confidence, self.mix.rate(trace.query.id)) or first.answer is None:
                return Attempt(self.strong, temperature(self.setting))
            return Stop(first.answer, solved=True)
        answer = done[-1].answer
        return Stop(answer if answer is not None else first.answer, solved=answer is not None)

    def asks(self, confidence: float, rate: float) -> bool:
        """Whether the strong tier is asked, at an exchange rate of quality for cost."""
        if self.options.rule == "pomdp":
            return self.gain[_bin(confidence, self.options.bins)] > rate * self.more
        if self.options.threshold is not None:
            return confidence < self.options.threshold
        return 1 - confidence > rate * self.more  # the threshold that the budget's rate stands for

    def _confidence(self, trace: Trace, attempt: int) -> float:
        """One that says nothing counts as 0: the paper's verifier is then not convinced."""
        return trace.confidence(attempt, self.options.verifier) or 0.0

    def _seen(self, traces: Sequence[Trace]) -> list[Seen]:
        found = []
        for trace in traces:
            weak, strong = (samples_of(trace, tier)[:1] for tier in (self.weak, self.strong))
            if weak and strong:
                check = [
                    line for line in trace.lines if line.kind == "verify" and line.attempt == weak[0].attempt
                ]
                cost = self.options.cost
                found.append(
                    Seen(
                        confidence=self._confidence(trace, weak[0].attempt),
                        weak=weak[0].score or 0.0,
                        strong=strong[0].score or 0.0,
                        paid=sum(costs.of_line(line, cost) for line in (weak[0], *check)),
                        more=costs.of_line(strong[0], cost),
                    )
                )
        return found


def _gains(seen: Sequence[Seen], bins: int) -> tuple[float, ...]:
    """By bin of confidence; one prior query of the mean gain in each, so that an empty bin has that (ours)."""
    prior = _mean([one.strong - one.weak for one in seen])
    gains = []
    for at in range(bins):
        inside = [one.strong - one.weak for one in seen if _bin(one.confidence, bins) == at]
        gains.append((sum(inside) + prior) / (len(inside) + 1))
    return tuple(gains)


def _bin(confidence: float, bins: int) -> int:
    return min(bins - 1, int(confidence * bins))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
