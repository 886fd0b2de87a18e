"""How well inflation is foretold: the network against the features alone and gradient boosting, with intervals.

Pooled figures may only tell data sets apart, so each also stands within its data set, and with that data set left out of
the training. AUROC, Brier score and calibration are of inflation of at least 2; correlations are with inflation itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from outlay.errors import DataError
from outlay.inflation.cases import HIGH, Cases
from outlay.inflation.predictor import Predictor, Training, train
from outlay.score import statistics
from outlay.score.statistics import NAN, Estimate

if TYPE_CHECKING:
    import numpy as np

UNKNOWN = Estimate(NAN, NAN, NAN)


@dataclass(frozen=True)
class Row:
    """One model on the test cases of one tier and scope; intervals resample queries.

    scope: pooled; within NAME (the same model on one data set's cases); leave-out NAME (fitted on the other data sets).
    model: mlp, gradient boosting, a feature alone, or "mlp - cbe": the paired difference of each figure.
    brier: mean squared error of P(inflation >= 2), from the network's second output, boosting's classifier, or logistic
    regression on the feature. ece: its expected calibration error over 10 equal-width bins.
    """

    model: str
    scope: str
    tier: str
    n: int
    share_high: float  # of the n; always saying so has the Brier score share (1 - share)
    auroc: Estimate = UNKNOWN
    pearson: Estimate = UNKNOWN
    spearman: Estimate = UNKNOWN
    brier: Estimate = UNKNOWN
    ece: Estimate = UNKNOWN
    note: str = ""  # why a figure is nan

    def flat(self) -> dict[str, Any]:
        """One table row: each figure as auroc, auroc_lo, auroc_hi."""
        flat: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Estimate):
                flat |= {name: value.value, f"{name}_lo": value.lo, f"{name}_hi": value.hi}
            else:
                flat[name] = value
        return flat


def evaluate(
    train_cases: Cases,
    test_cases: Cases,
    training: Training | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> list[Row]:
    """Every model in every scope, per tier.

    Raises:
        DataError: no test case, a query in both tables, or tables with different features.
    """
    if not len(test_cases):
        raise DataError("no test cases to evaluate a predictor on")
    if train_cases.names != test_cases.names:
        raise DataError(
            f"train has the features {', '.join(train_cases.names)}, test {', '.join(test_cases.names)}: use the same"
        )
    if both := set(train_cases.keys.tolist()) & set(test_cases.keys.tolist()):
        raise DataError(f"{len(both)} queries are in train and in test, such as {min(both)}: split by query")
    names = sorted(set(test_cases.dataset.tolist()))
    setting = (training or Training(), resamples, seed)
    rows = list(_rows(train_cases, test_cases, ["pooled", *(f"within {name}" for name in names)], *setting))
    for name in names:
        others, own = train_cases.dataset != name, test_cases.dataset == name
        if others.any():
            rows += _rows(train_cases.only(others), test_cases.only(own), [f"leave-out {name}"], *setting)
    return rows


def tracked(rows: Sequence[Row]) -> dict[str, float]:
    """The network's figures by their metric names: predictor/auroc, …; predictor/auroc_within, … within data sets.

    Means over tiers (and data sets), weighted by their cases; figures that are nan are left out.
    """
    found: dict[str, float] = {}
    for ending, wanted in (("", "pooled"), ("_within", "within "), ("_left_out", "leave-out ")):
        chosen = [row for row in rows if row.model == "mlp" and row.scope.startswith(wanted)]
        for name in ("auroc", "pearson", "spearman", "brier", "ece"):
            known = [(value, row.n) for row in chosen if (value := getattr(row, name).value) == value]
            if known:
                total = sum(count for _, count in known)
                found[f"predictor/{name}{ending}"] = sum(value * count for value, count in known) / total
    return found


# ---------------------------------------------------------------- models


class Foretold(NamedTuple):
    """What a model says of test cases."""

    score: "np.ndarray"  # (n,) higher: more inflation
    probability: "np.ndarray"  # (n,) of inflation of at least 2

    def only(self, chosen: "np.ndarray") -> "Foretold":
        return Foretold(self.score[chosen], self.probability[chosen])


def _mlp(fitted: Cases, asked: Cases, predictor: Predictor, seed: int) -> Foretold:
    tier = str(asked.tier[0])
    return Foretold(predictor.predict(tier, asked.features), predictor.probability(tier, asked.features))


def _boosting(fitted: Cases, asked: Cases, predictor: Predictor, seed: int) -> Foretold:
    """Small trees, as there are hundreds of cases rather than millions; the settings are ours."""
    import numpy as np
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    options: dict[str, Any] = {
        "learning_rate": 0.05,
        "max_iter": 100,
        "max_leaf_nodes": 8,
        "early_stopping": False,
        "random_state": seed,
    }
    regressor = HistGradientBoostingRegressor(**options).fit(fitted.features, np.log(fitted.inflation))
    score = np.exp(regressor.predict(asked.features))
    if len(set(fitted.high.tolist())) < 2:
        return Foretold(score, np.full(len(asked), float(fitted.high[0])))
    classifier = HistGradientBoostingClassifier(**options).fit(fitted.features, fitted.high)
    return Foretold(score, classifier.predict_proba(asked.features)[:, 1])


def _alone(name: str, sign: float) -> Callable[[Cases, Cases, Predictor, int], Foretold]:
    """One feature as the score, with the sign that the hypothesis gives it; its probability by logistic regression."""

    def foretell(fitted: Cases, asked: Cases, predictor: Predictor, seed: int) -> Foretold:
        import numpy as np
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        known, score = sign * fitted.column(name), sign * asked.column(name)
        middle = float(np.nanmean(known)) if np.isfinite(known).any() else 0.0
        known, score = (np.nan_to_num(one, nan=middle) for one in (known, score))
        if len(set(fitted.high.tolist())) < 2:
            return Foretold(score, np.full(len(asked), float(fitted.high[0])))
        platt = make_pipeline(StandardScaler(), LogisticRegression()).fit(known[:, None], fitted.high)
        return Foretold(score, platt.predict_proba(score[:, None])[:, 1])

    return foretell


MODELS: Mapping[str, Callable[[Cases, Cases, Predictor, int], Foretold]] = {
    "mlp": _mlp,
    "cbe": _alone("cbe", 1.0),
    "agreement": _alone("agreement", -1.0),
    "prompt_tokens": _alone("prompt_tokens", 1.0),
    "gradient boosting": _boosting,
}
"""Name -> (train cases and test cases of one tier, the predictor, seed) -> what it foretells."""


# ---------------------------------------------------------------- figures


def _rows(
    train_cases: Cases,
    test_cases: Cases,
    scopes: Sequence[str],
    training: Training,
    resamples: int,
    seed: int,
) -> Iterator[Row]:
    """Of models fitted on all of train_cases; scopes "within NAME" look at one data set's test cases."""
    import numpy as np

    predictor = train(train_cases, training) if len(train_cases) else None
    for tier in sorted(set(test_cases.tier.tolist())):
        asked = test_cases.only(test_cases.tier == tier)
        fitted = train_cases.only(train_cases.tier == tier)
        models = [name for name in MODELS if name in (*asked.names, "mlp", "gradient boosting")]
        foretold = (
            {name: MODELS[name](fitted, asked, predictor, seed) for name in models}
            if predictor and len(fitted)
            else {}
        )
        for scope in scopes:
            of_scope = asked.dataset == scope.removeprefix("within ")
            chosen = of_scope if scope.startswith("within ") else np.ones(len(asked), bool)
            cost = asked.inflation[chosen]
            if not len(cost):
                continue
            about = (scope, tier, len(cost), float((cost >= HIGH).mean()))
            if not foretold:
                yield Row("mlp", *about, note=f"no training case of tier {tier}")
                continue
            said = {name: one.only(chosen) for name, one in foretold.items()}
            for name in models:
                yield _row(name, *about, said[name], cost, resamples, seed)
            if "cbe" in said:
                yield _difference("cbe", *about, said["mlp"], said["cbe"], cost, resamples, seed)


def _row(
    model: str,
    scope: str,
    tier: str,
    n: int,
    share: float,
    said: Foretold,
    cost: "np.ndarray",
    resamples: int,
    seed: int,
) -> Row:
    options = {"resamples": resamples, "seed": seed}
    high = cost >= HIGH
    return Row(
        model,
        scope,
        tier,
        n,
        share,
        auroc=statistics.auroc(said.score, high, **options),
        pearson=statistics.pearson(said.score, cost, **options),
        spearman=statistics.spearman(said.score, cost, **options),
        brier=statistics.brier(said.probability, high, **options),
        ece=statistics.calibration_error(said.probability, high, **options),
        note=_note(share, said),
    )


def _difference(
    other: str,
    scope: str,
    tier: str,
    n: int,
    share: float,
    first: Foretold,
    second: Foretold,
    cost: "np.ndarray",
    resamples: int,
    seed: int,
) -> Row:
    """mlp - other, on the same draws. A lower Brier score is the better one; calibration has no paired difference."""
    high = cost >= HIGH

    def gap(figure: Callable[..., Estimate], outcome: "np.ndarray") -> Estimate:
        def of(one: Any, two: Any, outcomes: Any) -> float:
            return figure(one, outcomes, resamples=0).value - figure(two, outcomes, resamples=0).value

        return statistics.bootstrap(of, first.score, second.score, outcome, resamples=resamples, seed=seed)

    errors, theirs = ((said.probability - high) ** 2 for said in (first, second))
    return Row(
        f"mlp - {other}",
        scope,
        tier,
        n,
        share,
        auroc=gap(statistics.auroc, high),
        pearson=gap(statistics.pearson, cost),
        spearman=gap(statistics.spearman, cost),
        brier=Estimate(*statistics.paired_difference(errors, theirs, resamples=resamples, seed=seed)[:3]),
        note=_note(share, first) or _note(share, second),
    )


def _note(share: float, said: Foretold) -> str:
    import numpy as np

    if share in (0.0, 1.0):
        return f"every inflation is {'at least' if share else 'below'} {HIGH:g}: no AUROC"
    return "it says the same of every case: no correlation" if np.ptp(said.score) == 0 else ""
