"""Each tier's chance of a right attempt, and its cost, for one query: what most routers choose by.

Estimators and their settings are ours; the papers' routers differ in what they do with such estimates, not in these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outlay.agent.ledger import Ledger, Line, Trace
from outlay.errors import OutlayError
from outlay.generate import Price, Tier
from outlay.routers import checks, costs
from outlay.routers.explore import samples_of
from outlay.routers.features import Describer, Embed, fit_describer

if TYPE_CHECKING:
    import numpy as np

ESTIMATORS = ("logistic", "knn", "mean")
NEIGHBOURS = 20
PLATT, ISOTONIC = (
    20,
    1000,
)  # tune outcomes of the rarer class that each way of calibrating needs; below, isotonic overfits
MEMO = 4096


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one fresh attempt on a tier."""

    success: float
    cost: float  # in the unit that the router minimises
    concentration: float  # of the Beta belief in `success`: how few failures it takes to shake it

    def after(self, failures: float, successes: float = 0.0) -> float:
        """The posterior mean of success after attempts on the same tier, right or wrong: (a + k) / (a + b + n)."""
        strength = self.concentration
        return (self.success * strength + successes) / (strength + successes + failures)


@dataclass(frozen=True, eq=False)
class OnTier:
    price: Price
    success: Any  # (n, d) rows -> (n,)
    completion: Any  # rows -> tokens of a reply
    prompt_ratio: float  # the tier's prompt tokens to `Query.prompt_tokens`
    concentration: float
    mean: float  # success, without x


@dataclass(frozen=True, eq=False)
class Estimates:
    tiers: Mapping[str, OnTier]
    describe: Describer
    cost: str
    warnings: tuple[str, ...]
    _memo: dict[Any, dict[str, Estimate]] = field(default_factory=dict, repr=False)

    def of(self, trace: Trace) -> dict[str, Estimate]:
        """By tier, in the order of the config. A query is embedded once."""
        key = (trace.query.id, trace.query.question, len(trace.probes))
        if key not in self._memo:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            self._memo[key] = self.all([trace])[0]
        return self._memo[key]

    def all(self, traces: Sequence[Trace]) -> list[dict[str, Estimate]]:
        """As `of`, in one batch of the embedder."""
        rows = self.describe.rows(traces)
        found: list[dict[str, Estimate]] = [{} for _ in traces]
        for name, tier in self.tiers.items():
            success, reply = tier.success(rows), tier.completion(rows)
            for at, trace in enumerate(traces):
                prompt = trace.query.prompt_tokens * tier.prompt_ratio
                cost = costs.of_call(tier.price, prompt, float(reply[at]), self.cost)
                found[at][name] = Estimate(float(success[at]), cost, tier.concentration)
        return found


def fit_estimates(
    ledger: Ledger,
    tiers: Sequence[Tier],
    embed: Embed,
    estimator: str,
    cost: str,
    router: str,
    probed: bool = True,
) -> Estimates:
    """Fit on train, calibrate on tune.

    Raises:
        OutlayError: a tier without a scored attempt in the train split.
    """
    import numpy as np

    train, tune = ledger.traces("train"), ledger.traces("tune")
    require_samples(train, [tier.name for tier in tiers], router)
    describe = fit_describer(train, embed, probed)
    rows, tune_rows = describe.rows(train), describe.rows(tune) if tune else None
    fitted: dict[str, OnTier] = {}
    counts: dict[str, tuple[float, float]] = {}
    for tier in tiers:
        samples = [samples_of(trace, tier.name) for trace in train]
        right, made = _outcomes(samples)
        success = _success(rows, right, made, estimator)
        if tune_rows is not None and estimator != "mean":
            held_out = [samples_of(trace, tier.name) for trace in tune]
            success = _calibrated(success, tune_rows, *_outcomes(held_out))
        replies = np.array([_mean([line.completion_tokens for line in each]) for each in samples])
        billed = [
            (max(line.prompt_tokens for line in each), trace.query.prompt_tokens)
            for each, trace in zip(samples, train, strict=True)
            if each and trace.query.prompt_tokens
        ]
        ratio = sum(one for one, _ in billed) / max(1, sum(known for _, known in billed))
        fitted[tier.name] = OnTier(
            price=tier.price,
            success=success,
            completion=_reply(rows, replies, made, estimator),
            prompt_ratio=ratio,
            concentration=_concentration(success(rows), right, made),
            mean=float(right.sum() / made.sum()),
        )
        counts[tier.name] = (float((made - right).sum()), float(made.sum()))
    return Estimates(fitted, describe, cost, tuple(checks.few_failures(counts)))


def require_samples(traces: Sequence[Trace], tiers: Sequence[str], router: str) -> None:
    """Raises OutlayError: nothing to learn from on a tier."""
    for tier in tiers:
        if not any(samples_of(trace, tier) for trace in traces):
            raise OutlayError(
                f"router={router}: the train split has no scored attempt on tier {tier} "
                f"({len(traces)} train queries were explored). Give it a data set with a train split and gold answers, "
                "raise dataset.fit_limit or router.token_budget, or use router=static"
            )


def _outcomes(samples: Sequence[Sequence[Line]]) -> "tuple[np.ndarray, np.ndarray]":
    """(n,) right, (n,) made; a score between 0 and 1 counts as that share of a right answer."""
    import numpy as np

    right = np.array([sum(line.score or 0.0 for line in each) for each in samples], float)
    return right, np.array([len(each) for each in samples], float)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _success(rows: "np.ndarray", right: "np.ndarray", made: "np.ndarray", estimator: str) -> Any:
    """rows -> chance of a right attempt."""
    import numpy as np

    share = float(right.sum() / made.sum())
    if estimator == "mean" or share in (0.0, 1.0):
        return lambda rows: np.full(len(rows), share)
    if estimator == "knn":
        return _neighbours(rows, right / np.maximum(made, 1), made)
    from sklearn.linear_model import LogisticRegression

    labels = np.repeat([1, 0], len(rows))
    weights = np.concatenate([right, made - right])
    model = LogisticRegression(max_iter=2000).fit(np.vstack([rows, rows]), labels, sample_weight=weights)
    return _chance(model)


def _chance(model: Any) -> Any:
    """predict_proba of the second class, without the checks that cost a millisecond a query."""
    from scipy.special import expit

    weights, bias = model.coef_[0], float(model.intercept_[0])
    return lambda rows: expit(rows @ weights + bias)


def _reply(rows: "np.ndarray", tokens: "np.ndarray", made: "np.ndarray", estimator: str) -> Any:
    """rows -> completion tokens of a reply, within what was seen."""
    import numpy as np

    kept = made > 0
    mean = float(tokens[kept].mean())
    if estimator == "mean" or kept.sum() < NEIGHBOURS:
        return lambda rows: np.full(len(rows), mean)
    low, high = float(tokens[kept].min()), float(tokens[kept].max())
    if estimator == "knn":
        predict = _neighbours(rows, tokens, made)
    else:
        from sklearn.linear_model import Ridge

        model = Ridge(alpha=1.0).fit(rows[kept], tokens[kept], sample_weight=made[kept])
        weights, bias = model.coef_, float(model.intercept_)

        def predict(rows: "np.ndarray") -> "np.ndarray":
            found: np.ndarray = rows @ weights + bias
            return found

    return lambda rows: np.clip(predict(rows), low, high)


def _neighbours(rows: "np.ndarray", values: "np.ndarray", made: "np.ndarray") -> Any:
    from sklearn.neighbors import KNeighborsRegressor

    kept = made > 0
    model = KNeighborsRegressor(min(NEIGHBOURS, int(kept.sum()))).fit(rows[kept], values[kept])
    return model.predict


def _calibrated(success: Any, rows: "np.ndarray", right: "np.ndarray", made: "np.ndarray") -> Any:
    """Isotonic or Platt on the tune split, where it has the cases; else as it is."""
    import numpy as np

    rarer = min(right.sum(), (made - right).sum())
    if rarer < PLATT:
        return success
    labels, weights = np.repeat([1, 0], len(rows)), np.concatenate([right, made - right])
    if rarer >= ISOTONIC:
        from sklearn.isotonic import IsotonicRegression

        seen = np.tile(success(rows), 2)
        steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(seen, labels, weights)
        return lambda rows: steps.predict(success(rows))
    from sklearn.linear_model import LogisticRegression

    line = _chance(LogisticRegression(C=1e6).fit(np.tile(_logit(success(rows)), 2)[:, None], labels, weights))
    return lambda rows: line(_logit(success(rows))[:, None])


def _logit(chance: "np.ndarray") -> "np.ndarray":
    import numpy as np

    clipped = np.clip(chance, 0.01, 0.99)  # neighbours may be all right or all wrong
    odds: np.ndarray = np.log(clipped / (1 - clipped))
    return odds


def _concentration(success: "np.ndarray", right: "np.ndarray", made: "np.ndarray") -> float:
    """a + b of the Beta around each estimate, by moments of the outcomes: large where retries are independent given it.

    One sample a query says nothing of retries; then 2, i.e. one failure takes off a third.
    """
    pairs = float((made * (made - 1) * success * (1 - success)).sum())
    if pairs <= 0:
        return 2.0
    spread = float(((right - made * success) ** 2 - made * success * (1 - success)).sum())
    alike = min(0.95, max(1e-6, spread / pairs))  # the correlation of two attempts
    return (1 - alike) / alike
