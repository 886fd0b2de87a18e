"""RouteLLM (Ong et al. 2024): the strong tier wherever its predicted win rate reaches α, set to a share of strong calls.

Questions are embedded by the run's own embedder in place of text-embedding-3-small, and the routers learn from this run's
train split, in place of Chatbot Arena, whose model pair would never enter the decision.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from outlay.agent.ledger import Trace
from outlay.routers import Setting
from outlay.routers.features import Embed
from outlay.routers.pair import PairPolicy, Score, Wins, pair_of
from outlay.routers.workflow import retry_warnings
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

DIMENSIONS, RATE, DECAY, BATCH, EPOCHS, NOISE = 128, 3e-4, 1e-5, 64, 100, 0.1
"""Of the matrix factorisation, as published."""


@dataclass(frozen=True)
class RouteLlm:
    """kind: mf (matrix factorisation), sw (similarity-weighted ranking) or classifier (logistic in place of BERT).

    strong_share: of calls, promised on this run's tune split alone. A query's winner is the tier that is right more often
    in its samples; both right or both wrong is a tie.
    """

    kind: str = option("mf", choices=("mf", "sw", "classifier"))
    strong_share: float = option(0.5, least=0, most=1)
    weak: str | None = None  # None: the generator's first tier
    strong: str | None = None  # None: its last
    samples: int = option(1, least=1)  # RouteLLM compares one answer of each
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "routellm"
    least_tiers: ClassVar[int] = 2
    learns: ClassVar[bool] = True

    def policy(self, setting: Setting) -> PairPolicy:
        weak, strong = pair_of(setting, self.weak, self.strong)

        def learn(train: Sequence[Trace], wins: Wins) -> Score:
            vectors = _vectors(train, setting.embed)
            win_rate = KINDS[self.kind](vectors, wins, setting.seed)
            return lambda traces: win_rate(_vectors(traces, setting.embed))

        return PairPolicy(
            self, setting, weak, strong, learn, probes=False, warnings=tuple(retry_warnings(setting))
        )


WinRate = Callable[["np.ndarray"], "np.ndarray"]
"""(n, d) question vectors -> (n,) the strong tier's win rate"""


def factorised(vectors: "np.ndarray", wins: Wins, seed: int) -> WinRate:
    """σ(s(strong, x) − s(weak, x)), s(m, x) = w · (P_m/‖P_m‖ ⊙ A x); pairwise cross-entropy, ties dropped."""
    import numpy as np
    import torch
    from torch.nn.functional import normalize, softplus

    draw = torch.Generator().manual_seed(seed)
    x = torch.tensor(vectors, dtype=torch.float32)
    strong, weak = (torch.tensor(one, dtype=torch.float32) for one in (wins.strong, wins.weak))
    shapes = ((2, DIMENSIONS), (x.shape[1], DIMENSIONS), (DIMENSIONS,))
    weights = [torch.randn(shape, generator=draw) / shape[-1] ** 0.5 for shape in shapes]
    tiers, project, mix = (one.requires_grad_() for one in weights)

    def gap(rows: Any) -> Any:
        unit = normalize(tiers, dim=1)
        return (rows @ project) @ (mix * (unit[1] - unit[0]))

    optimiser = torch.optim.Adam([tiers, project, mix], lr=RATE, weight_decay=DECAY)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=draw).split(BATCH):
            noisy = x[rows] + NOISE * torch.randn(x[rows].shape, generator=draw)
            ahead = gap(noisy)
            loss = (strong[rows] * softplus(-ahead) + weak[rows] * softplus(ahead)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def win_rate(rows: "np.ndarray") -> "np.ndarray":
        with torch.no_grad():
            return np.asarray(torch.sigmoid(gap(torch.tensor(rows, dtype=torch.float32))), float)

    return win_rate


def similarity_weighted(vectors: "np.ndarray", wins: Wins, seed: int) -> WinRate:
    """Bradley–Terry with weights 10 · 10^(sim / max sim), ties half; of two tiers its solution is the weighted win share."""
    import numpy as np

    share = wins.strong + wins.tie / 2

    def win_rate(rows: "np.ndarray") -> "np.ndarray":
        similar = rows @ vectors.T
        nearest = np.maximum(similar.max(axis=1, keepdims=True), 1e-9)
        weights = 10 * 10 ** (similar / nearest)
        return np.asarray((weights @ share) / (weights @ (wins.strong + wins.tie + wins.weak)))

    return win_rate


def classified(vectors: "np.ndarray", wins: Wins, seed: int) -> WinRate:
    """1 − P(tie) − P(weak wins) of a three-class model."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    weights = np.concatenate([wins.strong, wins.tie, wins.weak])
    labels = np.repeat([0, 1, 2], len(vectors))
    seen = set(labels[weights > 0].tolist())
    if len(seen) < 2:
        return lambda rows: np.full(len(rows), float(seen == {0}))
    kept = weights > 0
    model = LogisticRegression(max_iter=2000)
    model.fit(np.tile(vectors, (3, 1))[kept], labels[kept], sample_weight=weights[kept])
    if 0 not in seen:
        return lambda rows: np.zeros(len(rows))
    return lambda rows: model.predict_proba(rows)[:, 0]


KINDS: Mapping[str, Callable[["np.ndarray", Wins, int], WinRate]] = {
    "mf": factorised,
    "sw": similarity_weighted,
    "classifier": classified,
}


def _vectors(traces: Sequence[Trace], embed: Embed) -> "np.ndarray":
    return embed([trace.query.question for trace in traces])
