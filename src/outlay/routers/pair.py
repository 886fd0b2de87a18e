"""Weak or strong, by a learned score: the strong tier wherever the score reaches a threshold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from outlay.agent import Action
from outlay.agent.ledger import Ledger, Trace
from outlay.errors import ConfigError
from outlay.routers import Setting, checks
from outlay.routers.estimates import require_samples
from outlay.routers.explore import Explore, explorer, samples_of
from outlay.routers.rehearse import rehearse_on
from outlay.routers.view import on_tier, tried

if TYPE_CHECKING:
    import numpy as np

Score = Callable[[Sequence[Trace]], "np.ndarray"]
"""traces -> (n,), the higher, the more it takes the strong tier"""


@dataclass(frozen=True)
class Wins:
    """Weights (n,) of the three outcomes of a pair, from the samples of each query taken as independent."""

    strong: "np.ndarray"
    tie: "np.ndarray"
    weak: "np.ndarray"


@dataclass(frozen=True, eq=False)
class PairPolicy:
    """options has name, samples, strong_share, and may have mean_cost and cost; learn: (train traces, wins) -> score."""

    options: Any
    setting: Setting
    weak: str
    strong: str
    learn: Callable[[Sequence[Trace], Wins], Score]
    probes: bool
    warnings: tuple[str, ...] = ()
    score: Score | None = None
    threshold: float = 0.0

    def explore(self) -> Explore:
        return explorer(self.setting, (self.weak, self.strong), self.options.samples, self.probes)

    def fit(self, ledger: Ledger) -> Self:
        """Raises OutlayError: a tier without a scored attempt in the train split."""
        train = ledger.traces("train")
        require_samples(train, (self.weak, self.strong), self.options.name)
        train = _paired(train, self.weak, self.strong)
        wins = outcomes(train, self.weak, self.strong)
        score = self.learn(train, wins)
        tune = _paired(ledger.traces("tune"), self.weak, self.strong) or train
        scores = score(tune)
        threshold, found = self._threshold(scores, tune)
        counts = {
            "pair": (float(min(wins.strong.sum(), wins.weak.sum())), float((wins.strong + wins.weak).sum()))
        }
        few = [
            f"{self.options.name}: of {made:.0f} train pairs with a winner only {rarer:.1f} were won by the rarer tier; "
            f"fewer than {checks.FEW} say little. Raise dataset.fit_limit or router.samples"
            for rarer, made in counts.values()
            if rarer < checks.FEW
        ]
        return replace(
            self, score=score, threshold=threshold, warnings=self.warnings + tuple(few) + tuple(found)
        )

    def next(self, trace: Trace) -> Action:
        if self.score is None:
            raise ConfigError(f"router={self.options.name} is not fitted; a run fits it on its train split")
        probe = self.setting.probe.next(trace, self.setting.tiers[0].name) if self.probes else None
        if probe:
            return probe
        done = tried(trace)
        tier = done[-1].tier if done else self.choice(trace)
        return on_tier(self.setting.retry, trace, tier)

    def choice(self, trace: Trace) -> str:
        assert self.score is not None
        return self.strong if float(self.score([trace])[0]) >= self.threshold else self.weak

    def _threshold(self, scores: "np.ndarray", tune: Sequence[Trace]) -> tuple[float, list[str]]:
        """The (1 − share)-quantile of the scores on tune; or the lowest that keeps the mean budget."""
        import numpy as np

        budget = getattr(self.options, "mean_cost", None)
        if budget is None:
            share = self.options.strong_share
            threshold = float(np.quantile(scores, 1 - share)) if 0 < share < 1 else (1 - share) * float("inf")
            if share == 1:
                threshold = -float("inf")
            given = float((scores >= threshold).mean())
            missed = abs(given - share) > 0.1
            return threshold, [
                f"router.strong_share={share:g}: the scores of {len(tune)} tune queries tie, so that {given:.0%} of them go "
                f"to {self.strong}"
            ] * missed
        weak, strong = (self._costs(tier, tune) for tier in (self.weak, self.strong))
        order = np.argsort(-scores, kind="stable")
        spent = (weak.sum() + np.concatenate([[0.0], np.cumsum((strong - weak)[order])])) / len(tune)
        fits = np.flatnonzero(spent <= budget)
        calls = int(fits.max()) if fits.size else 0
        while calls and calls < len(order) and scores[order[calls]] == scores[order[calls - 1]]:
            calls -= 1  # a tie goes one way
        threshold = float(scores[order[calls - 1]]) if calls else float("inf")
        return threshold, checks.budget_missed(budget, float(spent[calls]), self.options.cost)

    def _costs(self, tier: str, traces: Sequence[Trace]) -> "np.ndarray":
        """(n,) what the probe and the run's retry cost on a tier, played on the recorded samples."""
        import numpy as np

        played = [rehearse_on(tier, self.setting, trace, self.options.cost, self.probes) for trace in traces]
        return np.array([one.cost for one in played])


def outcomes(traces: Sequence[Trace], weak: str, strong: str) -> Wins:
    import numpy as np

    rates = [
        [
            sum(line.score or 0.0 for line in each) / len(each)
            for each in (samples_of(trace, weak), samples_of(trace, strong))
        ]
        for trace in traces
    ]
    low, high = np.array(rates).T
    return Wins(high * (1 - low), high * low + (1 - high) * (1 - low), low * (1 - high))


def pair_of(setting: Setting, weak: str | None, strong: str | None) -> tuple[str, str]:
    """The two tiers: the generator's first and last, where none is named."""
    return weak or setting.tiers[0].name, strong or setting.tiers[-1].name


def _paired(traces: Sequence[Trace], weak: str, strong: str) -> list[Trace]:
    return [trace for trace in traces if samples_of(trace, weak) and samples_of(trace, strong)]
