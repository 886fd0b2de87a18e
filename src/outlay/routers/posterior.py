"""How likely an answer is right, from who gave it and who gave another: the ex-post estimate of a cascade without gold.

One-parameter Dawid and Skene: an attempt on a tier is right with its estimated chance, and two wrong attempts agree with
chance `collision`; a logistic regression on train makes the odds calibrated, since attempts depend on each other (ours).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from outlay.agent.ledger import Line, Trace
from outlay.routers.estimates import Estimate
from outlay.routers.explore import samples_of

PREFIXES = 4  # random runs of each train query that it is fitted on


@dataclass(frozen=True, eq=False)
class Posterior:
    collision: float
    weights: tuple[float, ...]  # of `_signals`; empty where there was one class
    bias: float

    def of(self, lines: Sequence[Line], estimates: Mapping[str, Estimate]) -> list[float]:
        """The chance that each attempt's answer is right, given all; an unparsable one never is."""
        chances: dict[str | None, float] = {None: 0.0}
        for answer in (line.answer for line in lines):
            if answer is not None and answer not in chances:
                signals = _signals(answer, lines, estimates, self.collision) if self.weights else ()
                odds = self.bias + sum(w * one for w, one in zip(self.weights, signals, strict=True))
                chances[answer] = 1 / (1 + exp(-odds))
        return [chances[line.answer] for line in lines]


def fit_posterior(
    traces: Sequence[Trace],
    estimates: Sequence[Mapping[str, Estimate]],
    tiers: Sequence[str],
    attempts: int,
    seed: int,
) -> Posterior:
    """Fit on random runs of each query's samples, of every length; estimates: one a trace."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    collision = _collision(traces, tiers)
    rng = np.random.default_rng(seed)
    rows, right = [], []
    for trace, known in zip(traces, estimates, strict=True):
        nodes = [line for tier in tiers for line in samples_of(trace, tier)[:attempts]]
        for _ in range(PREFIXES):
            order = rng.permutation(len(nodes))[: rng.integers(1, len(nodes) + 1)]
            run = [nodes[at] for at in order]
            for answer in dict.fromkeys(line.answer for line in run if line.answer is not None):
                rows.append(_signals(answer, run, known, collision))
                right.append(next(line.score or 0.0 for line in run if line.answer == answer) >= 0.5)
    if len(set(right)) < 2:
        share = (sum(right) + 0.5) / (len(right) + 1)
        return Posterior(collision, (), log(share / (1 - share)))
    model = LogisticRegression(max_iter=2000).fit(np.array(rows), right)
    return Posterior(collision, tuple(model.coef_[0].tolist()), float(model.intercept_[0]))


def _signals(
    answer: str, lines: Sequence[Line], estimates: Mapping[str, Estimate], collision: float
) -> tuple[float, ...]:
    """Log odds of the attempts for the answer, of the best other answer, vote share, log number of attempts."""
    votes: dict[str, float] = {}
    for line in lines:
        if line.answer is not None:
            votes[line.answer] = votes.get(line.answer, 0.0) + _weight(
                estimates[line.tier].success, collision
            )
    rival = max((weight for other, weight in votes.items() if other != answer), default=0.0)
    share = sum(line.answer == answer for line in lines) / len(lines)
    return votes[answer], rival, share, log(len(lines))


def _weight(success: float, collision: float) -> float:
    p = min(0.99, max(0.01, success))
    return log(p / ((1 - p) * collision))


def _collision(traces: Sequence[Trace], tiers: Sequence[str]) -> float:
    """The share of pairs of wrong, parsed samples of a query that agree; one pair of a hundred is added to each side."""
    alike = pairs = 0
    for trace in traces:
        wrong = [
            line.answer
            for tier in tiers
            for line in samples_of(trace, tier)
            if line.answer is not None and (line.score or 0.0) < 0.5
        ]
        pairs += len(wrong) * (len(wrong) - 1) // 2
        alike += sum(wrong[a] == wrong[b] for a in range(len(wrong)) for b in range(a))
    return (alike + 0.01) / (pairs + 0.02)
