"""What a probe tells of a query before it is answered, and how well so many of its samples foretell retries."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from outlay.inflation import agreement, branching_entropy, inflation

if TYPE_CHECKING:
    from outlay.agent.ledger import Trace

FOUR = ("cbe", "agreement", "chain_tokens", "prompt_tokens")
"""The paper's features for its predictor, by the names that they have here."""

CUES = frozenset(
    "after altogether and before both combined difference double each every finally first half how if increase left "  # noqa: SIM905
    "less more next per percent remaining same second than then times total triple twice until when which while who whose".split()
)
"""Words of a question that ask for more than one step. The list is ours; the paper names the feature alone."""


@dataclass(frozen=True)
class Features:
    """What is known of a query after its probe; not-a-number where no sample was answered."""

    cbe: float  # bits over the answers
    agreement: float  # the most frequent answer's share
    chain_tokens: float  # mean reply
    prompt_tokens: float
    diversity: float  # distinct words / words, over all chains
    cues: float  # of `CUES` in the question, repeats counted


def features(trace: "Trace") -> Features:
    """The features of a query, from its probe's lines; calls that failed are left out, with reuse as without."""
    lines = [line for line in trace.probes if not line.error]
    answers = [line.answer for line in lines]
    words = [word for line in lines for word in _words(line.text)]
    return Features(
        cbe=rounded_entropy(answers),
        agreement=agreement(answers),
        chain_tokens=_mean([line.completion_tokens for line in lines]),
        prompt_tokens=float(trace.query.prompt_tokens),
        diversity=len(set(words)) / len(words) if words else float("nan"),
        cues=float(sum(word in CUES for word in _words(trace.query.question))),
    )


def rounded_entropy(answers: Iterable[str | None]) -> float:
    """CBE without its last bits: the same split of answers, met in another order, would else not be a tie."""
    return round(branching_entropy(answers), 9)


def identical(trace: "Trace") -> int:
    """Attempts that repeat an earlier one of their tier word for word: paid for, and nothing new.

    Always so for fresh retries at temperature 0; by chance for short answers. Failed calls do not count.
    """
    answered = [(line.tier, line.text) for line in trace.attempts if not line.error]
    return len(answered) - len(set(answered))


class KRow(NamedTuple):
    """How well the first k probe samples foretell inflation of at least 2."""

    k: int
    queries: int
    auroc: float
    lo: float
    hi: float
    distinct: int  # values that CBE takes
    ties: float  # share of (high, low) pairs that CBE does not tell apart


def k_sweep(traces: Sequence["Trace"], ks: Sequence[int], resamples: int = 2000, seed: int = 0) -> list[KRow]:
    """AUROC of CBE for inflation >= 2, by how many of each query's recorded probe samples are used, the first k.

    All rows are over the same queries: those with as many answered samples as the largest k, and an inflation. Where the
    probe was reused as attempts, it is part of what it foretells, and its AUROC says little.
    """
    import numpy as np

    from outlay.score.statistics import auroc

    cases = [
        (answers, inflation(trace.attempts) >= 2)
        for trace in traces
        if len(answers := [line.answer for line in trace.probes if not line.error]) >= max(ks)
        and inflation(trace.attempts) >= 1
    ]
    high = np.array([one for _, one in cases], bool)
    rows = []
    for k in ks:
        entropy = np.array([rounded_entropy(answers[:k]) for answers, _ in cases], float)
        found = auroc(entropy, high.astype(float), resamples=resamples, seed=seed)
        values, place = np.unique(entropy, return_inverse=True)
        above = np.bincount(place[high], minlength=len(values))
        below = np.bincount(place[~high], minlength=len(values))
        pairs = int(above.sum() * below.sum())
        ties = float((above * below).sum() / pairs) if pairs else float("nan")
        rows.append(KRow(k, len(cases), *found, distinct=len(values), ties=ties))
    return rows


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else float("nan")
