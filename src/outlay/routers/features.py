"""What is known of a query before it is answered: its question, its length, and its probe if one was paid for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log1p
from typing import TYPE_CHECKING

from outlay.agent.ledger import Trace
from outlay.inflation import agreement
from outlay.inflation.features import rounded_entropy

if TYPE_CHECKING:
    import numpy as np

Embed = Callable[[Sequence[str]], "np.ndarray"]
"""texts -> unit vectors (n, d)"""


def numbers(trace: Trace, probed: bool = True) -> list[float]:
    """log(1 + characters), log(1 + prompt tokens); with a probe CBE, agreement and log(1 + mean chain tokens) (ours)."""
    probes = trace.probes if probed else []
    known = [log1p(len(trace.query.question)), log1p(trace.query.prompt_tokens)]
    if probes:
        answers = [line.answer for line in probes]
        chain = sum(line.completion_tokens for line in probes) / len(probes)
        known += [rounded_entropy(answers), agreement(answers), log1p(chain)]
    return known


@dataclass(frozen=True, eq=False)
class Describer:
    """Rows of features: the question's unit vector, then standardised `numbers`, which together have length 1 on average."""

    embed: Embed
    probed: bool
    mean: "np.ndarray"
    scale: "np.ndarray"

    def rows(self, traces: Sequence[Trace]) -> "np.ndarray":
        """(n, d + 2), or (n, d + 5) with a probe."""
        import numpy as np

        known = np.array([numbers(trace, self.probed) for trace in traces])
        return np.hstack([self.vectors(traces), (known - self.mean) / self.scale])

    def vectors(self, traces: Sequence[Trace]) -> "np.ndarray":
        return self.embed([trace.query.question for trace in traces])


def fit_describer(traces: Sequence[Trace], embed: Embed, probed: bool = True) -> Describer:
    import numpy as np

    known = np.array([numbers(trace, probed) for trace in traces])
    scale = known.std(axis=0)
    scale[scale == 0] = 1.0  # a constant says nothing
    return Describer(embed, probed, known.mean(axis=0), scale * known.shape[1] ** 0.5)
