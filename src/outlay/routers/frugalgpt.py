"""FrugalGPT (Chen et al. 2023): a chain of tiers, each answer kept where a learned scorer trusts it, under a mean budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations, product
from typing import TYPE_CHECKING, ClassVar, Self

from outlay.agent import Action, Attempt, Stop
from outlay.agent.ledger import Ledger, Line, Trace
from outlay.agent.scorer import Scorer, embed_latest, fit_scorer
from outlay.errors import ConfigError
from outlay.routers import Setting, checks, costs
from outlay.routers.estimates import require_samples
from outlay.routers.explore import Explore, explorer, samples_of, temperature
from outlay.routers.view import tried
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

SCORER_SHARE = 0.45  # of the train queries, as published
GRID = 40  # quantiles tried for each threshold, as published
MOST = 20_000  # settings tried for one chain (ours): with many thresholds the grid is coarser


@dataclass(frozen=True)
class FrugalGpt:
    """The order, depth and thresholds with the most quality among those whose mean cost keeps the budget.

    The scorer, one a tier, is a logistic regression on question and answer in place of DistilBERT. It learns on train, the
    chain on tune, and chains of every depth up to `depth` are tried. faithful=true is the published way: chains of exactly
    `depth`, chosen on the train queries of which 45 % taught the scorer. No tier is tried twice, and the last is always
    kept. mean_cost: a mean a query in `cost`; None: `cost_share` of the way from the cheapest tier to the dearest (ours).
    """

    depth: int = option(3, least=1)  # at most the number of tiers
    faithful: bool = False
    cost: str = option("units", choices=costs.KINDS)
    mean_cost: float | None = option(None, above=0)
    cost_share: float = option(0.5, least=0, most=1)
    samples: int = option(1, least=1)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "frugalgpt"
    least_tiers: ClassVar[int] = 2
    learns: ClassVar[bool] = True

    def policy(self, setting: Setting) -> "FrugalGptPolicy":
        return FrugalGptPolicy(self, setting)


@dataclass(frozen=True)
class Chain:
    """thresholds: least confidence of each tier's answer; the last is 0. quality, cost: on what it was chosen on."""

    tiers: tuple[str, ...]
    thresholds: tuple[float, ...]
    quality: float
    cost: float


@dataclass(frozen=True, eq=False)
class FrugalGptPolicy:
    options: FrugalGpt
    setting: Setting
    warnings: tuple[str, ...] = ()
    scorers: Mapping[str, Scorer] | None = None
    chain: Chain | None = None

    def explore(self) -> Explore:
        return explorer(self.setting, costs.names(self.setting.tiers), self.options.samples, probes=False)

    def fit(self, ledger: Ledger) -> Self:
        """Raises OutlayError: a tier without a scored attempt in the train split."""
        options, tiers = self.options, costs.names(self.setting.tiers)
        train = ledger.traces("train")
        require_samples(train, tiers, options.name)
        share = SCORER_SHARE if options.faithful else 1.0
        scorers = {
            tier: fit_scorer(
                [_alone(trace, line) for trace in train for line in samples_of(trace, tier)],
                self.setting.embed,
                self.setting.seed,
                share,
            )
            for tier in tiers
        }
        chosen_on = train if options.faithful else ledger.traces("tune") or train
        items = self._items(
            [trace for trace in chosen_on if all(samples_of(trace, tier) for tier in tiers)], scorers
        )
        alone = [float(items[tier].cost.mean()) for tier in tiers]
        budget = costs.Budget(options.mean_cost, options.cost_share).amount(alone)
        depth = min(options.depth, len(tiers))
        depths = [depth] if options.faithful else range(1, depth + 1)
        found = [
            chain
            for length in depths
            for order in permutations(tiers, length)
            if (chain := best_thresholds(order, items, budget)) is not None
        ]
        cheapest = tiers[alone.index(min(alone))]
        fallback = Chain((cheapest,), (0.0,), float(items[cheapest].quality.mean()), min(alone))
        chain = max(found, key=lambda one: (one.quality, -one.cost), default=fallback)
        seen = {tier: [line for trace in train for line in samples_of(trace, tier)] for tier in tiers}
        failures = {
            tier: (sum(1 - (line.score or 0.0) for line in lines), float(len(lines)))
            for tier, lines in seen.items()
        }
        told = (*checks.few_failures(failures), *checks.budget_missed(budget, chain.cost, options.cost))
        return replace(self, scorers=scorers, chain=chain, warnings=self.warnings + told)

    def prepare(self, traces: Sequence[Trace]) -> None:
        embed_latest(traces, self.setting.embed)

    def next(self, trace: Trace) -> Action:
        if self.chain is None or self.scorers is None:
            raise ConfigError("router=frugalgpt is not fitted; a run fits it on its train split")
        done = tried(trace)
        for place, tier in enumerate(self.chain.tiers):
            if place == len(done):
                return Attempt(tier, temperature(self.setting))
            line, last = done[place], place + 1 == len(self.chain.tiers)
            confidence = 1.0 if last else self._confidence(trace, line)
            if confidence >= self.chain.thresholds[place]:
                answer = line.answer if line.answer is not None else trace.last_answer()
                return Stop(answer, solved=answer is not None)
        raise AssertionError("the last tier's threshold is 0")

    def _confidence(self, trace: Trace, line: Line) -> float:
        assert self.scorers is not None
        return self.scorers[line.tier].confidence(_alone(trace, line), line, self.setting.embed)

    def _items(self, traces: Sequence[Trace], scorers: Mapping[str, Scorer]) -> "dict[str, Items]":
        """Each tier's samples in step: the k-th of one tier with the k-th of another."""
        import numpy as np

        prices = {tier.name: tier.price for tier in self.setting.tiers}
        few = [min(len(samples_of(trace, tier)) for tier in scorers) for trace in traces]
        found = {}
        for tier, scorer in scorers.items():
            pairs = [
                (trace, line)
                for trace, count in zip(traces, few, strict=True)
                for line in samples_of(trace, tier)[:count]
            ]
            prompts = [max(line.prompt_tokens for line in samples_of(trace, tier)) for trace, _ in pairs]
            found[tier] = Items(
                confidence=scorer.confidences(
                    [(_alone(t, line), line) for t, line in pairs], self.setting.embed
                ),
                quality=np.array([line.score or 0.0 for _, line in pairs]),
                cost=np.array(
                    [
                        costs.of_call(prices[tier], prompt, line.completion_tokens, self.options.cost)
                        for (_, line), prompt in zip(pairs, prompts, strict=True)
                    ]
                ),
            )
        return found


@dataclass(frozen=True, eq=False)
class Items:
    """One tier's samples, (n,) each."""

    confidence: "np.ndarray"
    quality: "np.ndarray"
    cost: "np.ndarray"


def best_thresholds(order: Sequence[str], items: Mapping[str, Items], budget: float) -> Chain | None:
    """The best thresholds of one chain within the budget, or None.

    Thresholds are quantiles of the confidences of what is not yet kept: tier i keeps a share q_i of it, and shares do not
    fall along the chain (as published). A brute grid, without the published refinement by simplex.
    """
    import numpy as np

    parts = [items[tier] for tier in order]
    if parts[0].cost.mean() > budget:
        return None
    best: Chain | None = None
    for kept in _grid(len(order) - 1):
        left = np.ones(len(parts[0].cost), bool)
        quality = spent = 0.0
        thresholds = []
        for part, share in zip(parts, (*kept, 1.0), strict=True):
            spent += part.cost[left].sum()
            threshold = (
                float(np.quantile(part.confidence[left], 1 - share)) if left.any() and share < 1 else 0.0
            )
            keeps = left & (part.confidence >= threshold)
            quality += part.quality[keeps].sum()
            thresholds.append(threshold)
            left &= ~keeps
        quality, spent = quality / len(left), spent / len(left)
        if spent <= budget * (1 + 1e-9) and (best is None or (quality, -spent) > (best.quality, -best.cost)):
            best = Chain(tuple(order), tuple(thresholds), float(quality), float(spent))
    return best


def _grid(thresholds: int) -> Iterator[tuple[float, ...]]:
    points = min(GRID, int(MOST ** (1 / thresholds))) if thresholds else 1
    shares = [(k + 0.5) / points for k in range(points)]
    for kept in product(shares, repeat=thresholds):
        if all(low <= high for low, high in pairwise(kept)):
            yield kept


def _alone(trace: Trace, line: Line) -> Trace:
    """The scorer sees one answer: what other tiers said is not known when a chain is learned."""
    return replace(trace, lines=(line,))
