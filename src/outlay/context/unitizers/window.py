"""Overlapping blocks of whole sentences, smaller where the text is dense."""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from outlay.context import Embed, Unit
from outlay.context.headers import word_set
from outlay.context.unitizers.sentence import Sentence, sentences
from outlay.schema import option

_WORD = re.compile(r"\w+")
_FUNCTION_WORDS = word_set(
    """
    a about after all also an and any are as at be because been before being between both but by can could did
    do does during each either for from had has have having he her here hers him his how i if in into is it
    its itself me more most my no nor not of on only or other our over own per she should so some such than
    that the their them then there these they this those through to under until up was we were what when where
    which while who whom will with would you your
    """
)


@dataclass(frozen=True)
class Windows:
    """Windows that each hold about the same content, placed by local content density. The rule is ours.

    The paper says no more than "overlapping blocks based on local content density". Here a window grows
    sentence by sentence until it holds the content of `words` average words, at most `most` times
    `words` words: dense text gets short windows, thin text long ones. The next window starts so that
    it shares the share `overlap` of the content of the one before, at least one sentence further on.
    """

    name: ClassVar[str] = "window"
    words: int = option(80, least=1)
    overlap: float = option(0.25, least=0.0, most=0.9)
    density: str = option("idf", choices=("idf", "unique", "uniform"))
    most: float = option(2.0, least=1.0)

    def split(self, document: str, embed: Embed | None = None) -> list[Unit]:
        found = sentences(document)
        bags = [_WORD.findall(document[s.start : s.end].lower()) for s in found]
        sizes = [len(bag) for bag in bags]
        content = _DENSITY[self.density](bags)
        target = self.words * sum(content) / max(1, sum(sizes))
        return _windows(found, content, sizes, target, self.words * self.most, self.overlap)


def _windows(
    found: list[Sentence],
    content: list[float],
    sizes: list[int],
    target: float,
    longest: float,
    overlap: float,
) -> list[Unit]:
    mass = [0.0, *accumulate(content)]
    words = [0, *accumulate(sizes)]
    units: list[Unit] = []
    first, last = 0, 0  # a window holds found[first:last]
    while last < len(found):
        last = max(last, first) + 1
        while (
            last < len(found)
            and mass[last] - mass[first] < target
            and words[last + 1] - words[first] <= longest
        ):
            last += 1
        units.append(Unit(((found[first].start, found[last - 1].end),)))
        keep = overlap * (mass[last] - mass[first])
        following = last
        while following - 1 > first and mass[last] - mass[following - 1] <= keep:
            following -= 1
        first = following
    return units


def _idf(bags: list[list[str]]) -> list[float]:
    """Sum over a sentence's distinct words of idf over the document's sentences, log((1 + n) / (1 + df)) + 1."""
    frequency = Counter(word for bag in bags for word in set(bag))
    n = len(bags)
    return [sum(math.log((1 + n) / (1 + frequency[word])) + 1 for word in set(bag)) for bag in bags]


def _unique(bags: list[list[str]]) -> list[float]:
    """Distinct content words of a sentence."""
    return [float(len(set(bag) - _FUNCTION_WORDS)) for bag in bags]


def _uniform(bags: list[list[str]]) -> list[float]:
    """All words alike: plain windows of `words` words, the ablation."""
    return [float(len(bag)) for bag in bags]


_DENSITY: dict[str, Callable[[list[list[str]]], list[float]]] = {
    "idf": _idf,
    "unique": _unique,
    "uniform": _uniform,
}
