"""Optimal routing, cascading and cascade routing (Dekoninck et al. 2025), with attempts of one tier as further nodes.

A node is (tier, attempt). The paper's estimates are ours to choose: before a run, the chance that a tier is right; after it,
of gold the verdict, and without gold `posterior.Posterior`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Self

from outlay.agent import Action, Attempt, Stop, Verify
from outlay.agent.ledger import Ledger, Line, Trace
from outlay.errors import ConfigError
from outlay.routers import Setting, checks, costs
from outlay.routers.calibrate import Mix, calibrate
from outlay.routers.estimates import ESTIMATORS, MEMO, Estimate, Estimates, fit_estimates
from outlay.routers.explore import Explore, explorer, samples_of, temperature
from outlay.routers.optimal import best_plan
from outlay.routers.posterior import Posterior, fit_posterior
from outlay.routers.rehearse import rehearse
from outlay.routers.view import tried
from outlay.routers.workflow import probe_warnings
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

DRAWS = 128  # of the Sobol sequence; the paper's 100 is not a power of two
Counts = tuple[int, ...]
"""Attempts on each tier."""


@dataclass(frozen=True)
class Cascade:
    """strategy: routing (one node, chosen before any run), cascading (tiers in order, `attempts` of each, stopping when no
    longer prefix is worth more), cascade_routing (over all supersets of what was run), optimal (ours: exact dynamic
    programming that counts on stopping at a right answer, which the paper's supersets do not; needs verify=gold).

    verify: gold (an oracle: each answer is checked) or none (judged by who agrees with whom). Quality of a superset: with
    gold 1 − Π(1 − q), exact for answers that are right or wrong; without, E[max] by Sobol draws around the estimates.
    """

    strategy: str = option("cascade_routing", choices=("routing", "cascading", "cascade_routing", "optimal"))
    verify: str = option("none", choices=("none", "gold"))
    attempts: int = option(2, least=1)  # on each tier; one at temperature 0, where a second is the first
    cost: str = option("units", choices=costs.KINDS)
    mean_cost: float | None = option(None, above=0)
    cost_share: float = option(0.5, least=0, most=1)
    estimator: str = option("logistic", choices=ESTIMATORS)
    samples: int = option(5, least=1)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "cascade"
    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.strategy == "optimal" and self.verify != "gold":
            raise ConfigError(
                "strategy=optimal stops at an answer known to be right: it needs verify=gold. Use strategy=cascade_routing"
            )
        if self.attempts > self.samples:
            raise ConfigError(
                f"samples={self.samples}: at least attempts={self.attempts} are needed of each tier"
            )

    @property
    def reads_gold(self) -> bool:
        return self.verify == "gold"

    def policy(self, setting: Setting) -> "CascadePolicy":
        drawn = temperature(setting)
        told = (
            [
                f"router.attempts={self.attempts} is taken as 1: at temperature 0 a second attempt on a tier repeats the "
                "first word for word. Use retry.temperature=0.7 for attempts that differ"
            ]
            if drawn == 0 and self.attempts > 1
            else []
        )
        options = replace(self, attempts=1) if told else self
        return CascadePolicy(options, setting, tuple(told + probe_warnings(setting)))


@dataclass(frozen=True, eq=False)
class CascadePolicy:
    options: Cascade
    setting: Setting
    warnings: tuple[str, ...] = ()
    estimates: Estimates | None = None
    posterior: Posterior | None = None
    draws: "np.ndarray | None" = None  # (DRAWS, tiers, attempts) of ex-post less ex-ante estimates
    mix: Mix | None = None
    _values: dict[Any, tuple[list[Counts], Any, Any]] = field(default_factory=dict, repr=False)

    def explore(self) -> Explore:
        return explorer(self.setting, costs.names(self.setting.tiers), self.options.samples)

    def fit(self, ledger: Ledger) -> Self:
        """Raises OutlayError: a tier without a scored attempt in the train split."""
        options, tiers = self.options, self.setting.tiers
        estimates = fit_estimates(
            ledger, tiers, self.setting.embed, options.estimator, options.cost, options.name
        )
        fitted = replace(self, estimates=estimates, _values={})
        if options.verify == "none":
            train = [one for one in ledger.traces("train") if all(samples_of(one, t.name) for t in tiers)]
            known = estimates.all(train)
            posterior = fit_posterior(train, known, costs.names(tiers), options.attempts, self.setting.seed)
            shifts = _shifts(train, known, posterior, costs.names(tiers), options.attempts)
            fitted = replace(fitted, posterior=posterior, draws=_draws(shifts, len(tiers), self.setting.seed))
        tune = ledger.traces("tune") or ledger.traces("train")
        prices = {tier.name: tier.price for tier in tiers}
        probe = sum(costs.of_line(line, options.cost) for one in tune for line in one.probes) / len(tune)
        direct = estimates.all(tune)
        alone = [probe + sum(one[name].cost for one in direct) / len(tune) for name in prices]
        budget = costs.Budget(options.mean_cost, options.cost_share).amount(alone)

        def mean_cost(rate: float) -> float:
            always = replace(fitted, mix=Mix(rate, rate, 1.0, 0.0))
            return sum(rehearse(always.next, one, prices, options.cost).cost for one in tune) / len(tune)

        mix = calibrate(mean_cost, budget, steps=12)
        found = (*estimates.warnings, *checks.budget_missed(budget, mix.mean_cost, options.cost))
        return replace(fitted, mix=mix, warnings=self.warnings + found)

    def next(self, trace: Trace) -> Action:
        probe = self.setting.probe.next(trace, self.setting.tiers[0].name)
        if probe:
            return probe
        if self.estimates is None or self.mix is None:
            raise ConfigError("router=cascade is not fitted; a run fits it on its train split")
        done = tried(trace)
        if self.options.verify == "gold":
            for line in done:
                if not trace.checked(line.attempt, "gold"):
                    return Verify("gold", line.attempt)
                if trace.verdict(line.attempt, "gold"):
                    return Stop(line.answer, solved=True)
        tier = self._next_tier(trace, done, self.mix.rate(trace.query.id))
        if tier is not None:
            return Attempt(tier, temperature(self.setting))
        return self._answer(trace, done)

    def _answer(self, trace: Trace, done: Sequence[Line]) -> Stop:
        """The likeliest answer of those that were paid for; with gold none of them was right."""
        if self.posterior is None or not done:
            return Stop(trace.last_answer(), solved=False)
        assert self.estimates is not None
        judged = self.posterior.of(done, self.estimates.of(trace))
        best = done[judged.index(max(judged))].answer
        return Stop(best, solved=best is not None)

    def _next_tier(self, trace: Trace, done: Sequence[Line], rate: float) -> str | None:
        """The tier to run next; None to stop. The first run is made in any case: a query wants an answer."""
        assert self.estimates is not None
        names, known = costs.names(self.setting.tiers), self.estimates.of(trace)
        counts = tuple(sum(line.tier == name for line in done) for name in names)
        strategy = self.options.strategy
        if strategy == "routing":
            if done:
                return None
            return max(
                names, key=lambda name: (known[name].success - rate * known[name].cost, -known[name].cost)
            )
        if strategy == "optimal":
            chances = [[known[name].after(k) for k in range(self.options.attempts)] for name in names]
            plan = best_plan(chances, [known[name].cost for name in names], rate, counts)
            if plan.tier is None and not done:
                return min(names, key=lambda name: known[name].cost)
            return None if plan.tier is None else names[plan.tier]
        sets, quality, cost = self._supersets(trace, done, counts, known)
        best = sets[int((quality - rate * cost).argmax())]
        missing = [name for name, had, wants in zip(names, counts, best, strict=True) if wants > had]
        if not missing:
            return None
        # In the order of the config for a chain; else the cheapest of the best superset first.
        return missing[0] if strategy == "cascading" else min(missing, key=lambda name: known[name].cost)

    def _supersets(
        self, trace: Trace, done: Sequence[Line], counts: Counts, known: Mapping[str, Estimate]
    ) -> "tuple[list[Counts], np.ndarray, np.ndarray]":
        """All sets of nodes that hold those run, the expected quality of each, and what it costs from here on."""
        key = (trace.query.id, len(trace.probes), tuple((line.tier, line.answer) for line in done))
        if key not in self._values:
            if len(self._values) >= MEMO * 8:
                self._values.clear()
            self._values[key] = self._valued(trace, done, counts, known)
        return self._values[key]

    def _valued(
        self, trace: Trace, done: Sequence[Line], counts: Counts, known: Mapping[str, Estimate]
    ) -> "tuple[list[Counts], np.ndarray, np.ndarray]":
        import numpy as np

        names, most = list(known), self.options.attempts
        sets = [
            one
            for one in product(*(range(had, most + 1) for had in counts))
            if self.options.strategy != "cascading" or _prefix(one, most)
        ]
        if not done:
            sets = [one for one in sets if any(one)]
        ahead = np.array(sets) - np.array(counts)
        cost = ahead @ np.array([known[name].cost for name in names])
        if self.options.verify == "gold":
            # All attempts so far were wrong; chances of further ones fall with each failure of their tier.
            fails = [
                np.cumprod([1.0, *(1 - known[n].after(k) for k in range(had, most))])
                for n, had in zip(names, counts, strict=True)
            ]
            missed = np.prod([fails[at][ahead[:, at]] for at in range(len(names))], axis=0)
            return sets, 1 - missed, cost
        assert self.posterior is not None and self.draws is not None
        judged = self.posterior.of(done, known)
        floor = max(judged, default=0.0)
        best = np.zeros(
            (len(names), most + 1, len(self.draws))
        )  # best of a tier's first k further nodes, by draw
        for at, name in enumerate(names):
            rights = sum(p for p, line in zip(judged, done, strict=True) if line.tier == name)
            chance = known[name].after(counts[at] - rights, rights)
            for k in range(1, most - counts[at] + 1):
                drawn = np.clip(chance + self.draws[:, at, counts[at] + k - 1], 0.0, 1.0)
                best[at, k] = np.maximum(best[at, k - 1], drawn)
        each = np.stack([best[at, ahead[:, at]] for at in range(len(names))])
        quality = np.maximum(each.max(axis=0), floor).mean(axis=1)
        return sets, quality, cost


def _prefix(counts: Counts, most: int) -> bool:
    """Whether it is the start of the chain: tiers in order, all attempts of each before the next."""
    return all(had == most or not any(counts[at + 1 :]) for at, had in enumerate(counts))


def _shifts(
    traces: Sequence[Trace],
    known: Sequence[Mapping[str, Estimate]],
    posterior: Posterior,
    tiers: Sequence[str],
    attempts: int,
) -> "np.ndarray":
    """(queries, tiers x attempts) how far an estimate moved when all nodes had run."""
    import numpy as np

    rows = []
    for trace, estimates in zip(traces, known, strict=True):
        nodes = [samples_of(trace, tier)[:attempts] for tier in tiers]
        nodes = [(each * attempts)[:attempts] for each in nodes]  # where calls failed, there are fewer
        flat = [line for each in nodes for line in each]
        before = np.array([estimates[line.tier].success for line in flat])
        rows.append(np.array(posterior.of(flat, estimates)) - before)
    return np.array(rows)


def _draws(shifts: "np.ndarray", tiers: int, seed: int) -> "np.ndarray":
    """Sobol draws of a normal with the shifts' covariance, mean 0: (DRAWS, tiers, attempts)."""
    import numpy as np
    from scipy.stats import norm, qmc

    nodes = shifts.shape[1]
    covariance = (
        np.cov(shifts, rowvar=False).reshape(nodes, nodes) if len(shifts) > 1 else np.zeros((nodes, nodes))
    )
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    uniform = qmc.Sobol(nodes, seed=seed).random(DRAWS)
    normal = norm.ppf(np.clip(uniform, 1e-6, 1 - 1e-6))
    drawn: np.ndarray = (normal @ root.T).reshape(DRAWS, tiers, -1)
    return drawn
