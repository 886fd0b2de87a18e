"""How far the bill of an agent passes the price of one call, and what predicts it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlay.agent.ledger import Line


def branching_entropy(answers: Iterable[str | None]) -> float:
    """CBE in bits: -sum p_c log2 p_c over the classes of normalised answers; None (unparsable) is one class.

    Source: InflationAgent (arXiv 2608.13571), chain-of-thought branching entropy of K sampled chains.
    nan without answers.
    """
    counts = Counter(answers)
    total = counts.total()
    if not total:
        return float("nan")
    return sum(count / total * log2(total / count) for count in counts.values())


def agreement(answers: Iterable[str | None]) -> float:
    """The largest class's share of the answers; nan without answers."""
    counts = Counter(answers)
    return max(counts.values()) / counts.total() if counts else float("nan")


def inflation(attempts: "Sequence[Line]") -> float:
    """C_real / C_direct: all attempts' tokens over those of one call; nan where no attempt cost anything."""
    direct = direct_tokens(attempts)
    return sum(line.tokens for line in attempts) / direct if direct else float("nan")


def direct_tokens(attempts: "Sequence[Line]") -> int:
    """C_direct: the first attempt that was billed, so that a failed call does not take its query out of the mean.

    Of n samples in one request the first carries the prompt, so this is one whole call; 0 where none was billed.
    """
    return next((line.tokens for line in attempts if line.tokens), 0)


def cannot_fire(predicted: float, factor: float, attempts: int) -> bool:
    """Whether the rule "observed inflation > factor x predicted" is out of reach.

    Attempts that cost alike inflate a query `attempts` times at most, so the rule is dead from predicted >=
    attempts / factor on: on the hardest queries, which it was meant for.
    """
    return factor * predicted >= attempts
