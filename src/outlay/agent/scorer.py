"""A small learned verifier: the chance that an attempt is right, from what it says and how its query's samples agree.

FrugalGPT's scorer is a DistilBERT over question and answer; here it is a logistic regression over their embedding and
agreement features, so that it is fitted on a CPU in seconds (ours).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, log1p
from typing import TYPE_CHECKING, Self

from outlay.agent import Action, Policy, verifiers
from outlay.agent.executor import Asked, Verifier
from outlay.agent.ledger import Ledger, Line, Trace
from outlay.agent.verifiers import samples
from outlay.errors import DataError

if TYPE_CHECKING:
    import numpy as np

Embed = Callable[[Sequence[str]], "np.ndarray"]
"""texts -> unit vectors (n, d)"""

SIGNALS = ("agree", "differ", "parsed", "length", "logprob", "logprob_known")
"""What is known of an attempt beside its text; see `signals`."""


@dataclass(frozen=True, eq=False)
class Scorer:
    """weights: (d + 6,) of the embedding, then of the standardised `SIGNALS`."""

    weights: "np.ndarray"
    bias: float
    mean: "np.ndarray"  # (6,)
    scale: "np.ndarray"  # (6,)
    fitted_on: frozenset[str]  # queries; thresholds are chosen on others

    def confidence(self, trace: Trace, line: Line, embed: Embed) -> float:
        """The chance, 0 to 1, that an attempt of the query is right; its gold is not known here."""
        return float(self.confidences([(trace, line)], embed)[0])

    def confidences(self, pairs: Sequence[tuple[Trace, Line]], embed: Embed) -> "np.ndarray":
        """(n,) as `confidence`, in one batch of the embedder."""
        from scipy.special import expit

        known = (_signals(pairs) - self.mean) / self.scale
        split = len(self.weights) - len(SIGNALS)
        return expit(_vectors(pairs, embed) @ self.weights[:split] + known @ self.weights[split:] + self.bias)


def fit_scorer(traces: Sequence[Trace], embed: Embed, seed: int, share: float = 1.0) -> Scorer:
    """A scorer from scored traces: every sample that was answered is a case.

    share: of the queries, drawn by `seed`; FrugalGPT fits on 0.45 and keeps 0.55 of them for its thresholds. Cases of
    one class alone give their share as a constant.

    Raises:
        DataError: there is no scored sample.
    """
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    order = np.random.default_rng(seed).permutation(len(traces))
    kept = [traces[at] for at in order[: max(1, round(share * len(traces)))]]
    pairs = [(trace, line) for trace in kept for line in _samples(trace) if line.score is not None]
    if not pairs:
        raise DataError(
            "the scorer has nothing to learn from: no scored answer in the train split. "
            "Use a data set with gold answers and a train split, or retry.verifier=agreement"
        )
    right = np.array([line.score for _, line in pairs], float) >= 0.5
    known = _signals(pairs)
    mean, scale = known.mean(axis=0), known.std(axis=0)
    scale[scale == 0] = 1.0  # a constant signal says nothing
    vectors = _vectors(pairs, embed)
    fitted_on = frozenset(trace.query.id for trace in kept)
    if right.all() or not right.any():
        base = (right.sum() + 0.5) / (right.size + 1)
        constant = np.zeros(vectors.shape[1] + len(SIGNALS))
        return Scorer(constant, log(base / (1 - base)), mean, scale, fitted_on)
    # The embedding's unit rows stay as they are: each of its many columns is small, and so is held back by the penalty.
    model = LogisticRegression(max_iter=1000).fit(np.hstack([vectors, (known - mean) / scale]), right)
    return Scorer(model.coef_[0], float(model.intercept_[0]), mean, scale, fitted_on)


def signals(trace: Trace, line: Line) -> tuple[float, ...]:
    """`SIGNALS` of one sample, from the samples up to it, so that they are the same when fitted and when used.

    agree, differ: log(1 + other samples with the same answer, with another); parsed: an answer could be read; length:
    log(1 + tokens of the reply); logprob: mean over its tokens, 0 where the engine gives none.
    """
    others = [one.answer for one in _samples(trace) if one.line < line.line and one.answer is not None]
    same = sum(answer == line.answer for answer in others)
    return (
        log1p(same),
        log1p(len(others) - same),
        float(line.answer is not None),
        log1p(line.completion_tokens),
        0.0 if line.logprob is None else line.logprob,
        float(line.logprob is not None),
    )


def _samples(trace: Trace) -> list[Line]:
    return [line for line in samples(trace) if not line.error]


def _signals(pairs: Sequence[tuple[Trace, Line]]) -> "np.ndarray":
    import numpy as np

    return np.array([signals(trace, line) for trace, line in pairs], float)


def embed_latest(traces: Sequence[Trace], embed: Embed) -> None:
    """Embed the latest attempt of each query in one batch, for an embedder that remembers (`Policy.prepare`)."""
    _vectors([(trace, attempts[-1]) for trace in traces if (attempts := trace.attempts)], embed)


def _vectors(pairs: Sequence[tuple[Trace, Line]], embed: Embed) -> "np.ndarray":
    return embed([f"{trace.query.question}\n{line.text}" for trace, line in pairs])


@dataclass(frozen=True, eq=False)
class WithScorer:
    """A policy whose stop rule asks the scorer: it is fitted on the train split, and verifies from then on.

    explorer: what is run to learn from, where the policy does not explore itself.
    """

    policy: Policy
    explorer: Policy
    embed: Embed
    seed: int
    threshold: float | None = None  # None: the verifier's own
    scorer: Scorer | None = None

    def explore(self) -> Policy:
        own = getattr(self.policy, "explore", None)
        return own() if own else self.explorer

    def fit(self, ledger: Ledger) -> Self:
        policy = self.policy.fit(ledger) if hasattr(self.policy, "explore") else self.policy
        return replace(self, policy=policy, scorer=fit_scorer(ledger.traces("train"), self.embed, self.seed))

    def prepare(self, traces: Sequence[Trace]) -> None:
        if own := getattr(self.policy, "prepare", None):
            own(traces)
        embed_latest(traces, self.embed)

    def next(self, trace: Trace) -> Action:
        return self.policy.next(trace)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(getattr(self.policy, "warnings", ()))

    @property
    def verifiers(self) -> Mapping[str, Verifier | Asked]:
        """Verifiers that come with the policy, by the name that its actions ask for them."""
        own = getattr(self.policy, "verifiers", {})
        return (
            {**own, "scorer": verifiers.scorer(self.scorer, self.embed, self.threshold)}
            if self.scorer
            else own
        )
