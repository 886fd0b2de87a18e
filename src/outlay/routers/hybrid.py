"""HybridLLM (Ding et al. 2024): one small model predicts whether the weak tier's answer is as good as the strong one's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from outlay.agent.ledger import Trace
from outlay.routers import Setting, costs
from outlay.routers.features import fit_describer
from outlay.routers.pair import PairPolicy, Score, Wins, pair_of
from outlay.routers.workflow import probe_warnings, retry_warnings
from outlay.schema import option


@dataclass(frozen=True)
class Hybrid:
    """P(weak is at least as right as strong) by a logistic regression on the question and the probe, in place of DeBERTa.

    Labels are soft, over pairs of samples (their probabilistic router). The threshold comes from the tune split: a share of
    strong calls, or a mean budget in `cost`, probe and retries included.
    """

    strong_share: float = option(0.5, least=0, most=1)
    mean_cost: float | None = option(None, above=0)  # in place of strong_share
    cost: str = option("units", choices=costs.KINDS)
    weak: str | None = None  # None: the generator's first tier
    strong: str | None = None  # None: its last
    samples: int = option(5, least=1)
    token_budget: int | None = option(None, least=1)

    name: ClassVar[str] = "hybrid"
    least_tiers: ClassVar[int] = 2
    learns: ClassVar[bool] = True

    def policy(self, setting: Setting) -> PairPolicy:
        weak, strong = pair_of(setting, self.weak, self.strong)

        def learn(train: Sequence[Trace], wins: Wins) -> Score:
            import numpy as np
            from sklearn.linear_model import LogisticRegression

            describe = fit_describer(train, setting.embed)
            behind = np.concatenate([wins.strong, wins.tie + wins.weak])
            labels, kept = np.repeat([1, 0], len(train)), behind > 0
            if len(set(labels[kept].tolist())) < 2:
                return lambda traces: np.full(len(traces), float(labels[kept][0]))
            rows = np.tile(describe.rows(train), (2, 1))
            model = LogisticRegression(max_iter=2000).fit(
                rows[kept], labels[kept], sample_weight=behind[kept]
            )
            return lambda traces: model.predict_proba(describe.rows(traces))[:, 1]

        return PairPolicy(
            self,
            setting,
            weak,
            strong,
            learn,
            probes=True,
            warnings=tuple(probe_warnings(setting) + retry_warnings(setting)),
        )
