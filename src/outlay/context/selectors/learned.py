"""The candidate with the least regret that a model predicts from the document, fitted on the train split."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from outlay.context import Problem, Selection
from outlay.context.features import features
from outlay.context.selectors.oracle import arm_selections, arm_worth, arms
from outlay.errors import ConfigError, OutlayError
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("outlay")


@dataclass(frozen=True)
class Learned:
    """A regression of every candidate's regret (best worth - own worth) on `features`; the least prediction wins.

    `fit` needs the gold of train problems; what it returns reads none. model=auto takes the kind and setting of model
    with the least regret in cross-validation by document, but the constant one, i.e. the best fixed candidate, unless
    the gain over it exceeds `margin` standard errors: where there is nothing to learn, it is the best fixed candidate.
    The models, their settings and the margin (as in the one-standard-error rule, Breiman et al. 1984) are ours.
    """

    candidates: tuple[str, ...] = option(
        ("lead", "mmr", "rcd")
    )  # of conf/selector, with their defaults there
    model: str = option("auto", choices=("auto", "constant", "ridge", "forest", "boosting"))
    train_limit: int | None = option(400, least=1)
    folds: int = option(5, least=2)
    margin: float = option(1.0, least=0)
    seed: int = 0

    name: ClassVar[str] = "learned"
    oracle: ClassVar[bool] = False  # train gold only

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))  # a list would not hash
        arms(self.candidates)

    def select(self, problem: Problem) -> list[Selection]:
        """Raises ConfigError: `fit` gives what selects."""
        raise ConfigError(
            "selector=learned is not fitted. A run fits it on its train split; elsewhere use "
            "Learned(...).fit(problems), with problems that carry gold (problem.utility), or selector=routed"
        )

    def fit(self, problems: Iterable[Problem]) -> "Fitted":
        """The selector that goes by these problems' gold; they are read once, and only numbers are kept.

        Raises:
            ConfigError: a problem without gold.
            OutlayError: fewer than two documents a fold.
        """
        examples = describe(self.candidates, problems)
        return self.fit_described(examples)

    def fit_described(self, train: "Described") -> "Fitted":
        """As `fit`, from problems described before.

        Raises:
            OutlayError: fewer than two documents a fold.
        """
        least = 2 * self.folds
        documents = len(set(train.documents))
        if documents < least:
            raise OutlayError(
                f"selector=learned: the train split has {documents} documents with gold, and folds={self.folds} need "
                f"{least}. Use more data (dataset.count, or a path with a larger train split; selector.train_limit "
                "caps it), fewer selector.folds, or selector=routed"
            )
        tried = [
            Trial(kind, model, *_cross_validated(model, train, self.folds, self.seed))
            for kind, build in MODELS.items()
            if self.model in ("auto", kind) or kind == "constant"
            for model in build(self.seed)
        ]
        constant, *others = tried
        best = min(others, key=lambda trial: trial.regret, default=constant)
        gain, error = _gain(constant, best, train)
        chosen = best if self.model not in ("auto", "constant") or gain > self.margin * error else constant
        fixed = train.regrets.mean(axis=0)
        log.info(
            "selector=learned: %s; regret in cross-validation %.4f, of the best fixed candidate chosen in the folds "
            "%.4f (gain of the best model, %s: %.4f, standard error %.4f); on all of train: %s; %d examples of %d documents",
            " ".join(repr(chosen.model).split()),
            chosen.regret,
            constant.regret,
            best.kind,
            gain,
            error,
            ", ".join(f"{name} {value:.4f}" for name, value in zip(self.candidates, fixed, strict=True)),
            len(train.rows),
            documents,
        )
        return Fitted(
            options=self,
            kind=chosen.kind,
            model=_clone(chosen.model).fit(train.rows, train.regrets),
            regret=chosen.regret,
            fixed_regret=constant.regret,
            fixed={name: float(value) for name, value in zip(self.candidates, fixed, strict=True)},
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted `Learned`, itself a selector that reads no gold.

    `choice` of a selection names the candidate; `info` holds phi, rho, predicted_<candidate> (its predicted regret),
    cv_regret and cv_regret_fixed (of the best fixed candidate). The first is the least of several models tried, so a
    little too good; the figure to report is that of another split.
    """

    options: Learned
    kind: str  # of MODELS
    model: Any = field(repr=False)
    regret: float  # in cross-validation
    fixed_regret: float  # in cross-validation, of the best fixed candidate chosen in each fold
    fixed: dict[str, float]  # each candidate's mean regret on all of train

    name: ClassVar[str] = "learned"
    oracle: ClassVar[bool] = False

    def select(self, problem: Problem) -> list[Selection]:
        return self.select_given(problem, ())

    def select_given(self, problem: Problem, kept: Sequence[int]) -> list[Selection]:
        """As `select`, after units that are kept already; their costs count against the budgets."""
        import numpy as np

        if not problem.budgets:
            return []
        names = self.options.candidates
        found = arm_selections(names, problem, kept)
        rows = features(problem, found)
        predicted = self.predict(np.array([list(row.values()) for row in rows]))
        chosen = []
        for place, (row, regrets) in enumerate(zip(rows, predicted, strict=True)):
            choice = names[int(regrets.argmin())]
            one = found[choice][place]
            info = {
                **one.info,
                "phi": row["phi_area"],
                "rho": row["rho_nearest"],
                "cv_regret": self.regret,
                "cv_regret_fixed": self.fixed_regret,
                **{f"predicted_{name}": float(value) for name, value in zip(names, regrets, strict=True)},
            }
            chosen.append(replace(one, choice=choice, info=info))
        return chosen

    def predict(self, rows: "np.ndarray") -> "np.ndarray":
        """(m, candidates) predicted regrets of (m, features) rows."""
        predicted: np.ndarray = self.model.predict(rows).reshape(len(rows), -1)
        return predicted


@dataclass(frozen=True, eq=False)
class Described:
    """Problems as numbers: one row per problem and budget."""

    rows: "np.ndarray"  # (m, features)
    worths: "np.ndarray"  # (m, candidates), gold
    documents: tuple[int, ...]  # (m,), which rows share a document
    names: tuple[str, ...]  # of the features

    @property
    def regrets(self) -> "np.ndarray":
        regrets: np.ndarray = self.worths.max(axis=1, keepdims=True) - self.worths
        return regrets

    def only(self, chosen: "np.ndarray") -> "Described":
        """The rows of a mask or of positions."""
        import numpy as np

        documents = tuple(np.asarray(self.documents)[chosen].tolist())
        return replace(self, rows=self.rows[chosen], worths=self.worths[chosen], documents=documents)


def describe(candidates: tuple[str, ...], problems: Iterable[Problem]) -> Described:
    """Features and each candidate's worth; a problem whose worth is undefined is left out.

    Problems with the same units are of one document: several questions on a note are not independent of each other.

    Raises:
        ConfigError: a problem without gold.
    """
    import numpy as np

    seen: dict[Any, int] = {}
    rows: list[dict[str, float]] = []
    worths: list[list[float]] = []
    documents: list[int] = []
    for at, problem in enumerate(problems):
        found = arm_selections(candidates, problem, ())
        for place, row in enumerate(features(problem, found)):
            worth = [arm_worth(problem, found[name][place], "learned") for name in candidates]
            if np.isnan(worth).any():
                continue
            key = (
                (tuple(unit.spans for unit in problem.units), problem.costs.tobytes())
                if problem.units
                else at
            )
            rows.append(row)
            worths.append(worth)
            documents.append(seen.setdefault(key, len(seen)))
    names = tuple(rows[0]) if rows else ()
    return Described(
        np.array([list(row.values()) for row in rows]).reshape(len(rows), len(names)),
        np.array(worths).reshape(len(rows), len(candidates)),
        tuple(documents),
        names,
    )


# ---------------------------------------------------------------- models


@dataclass(frozen=True, eq=False)
class Trial:
    kind: str
    model: Any
    regret: float  # mean over rows, in cross-validation
    regrets: "np.ndarray"  # (m,)


def _constant(seed: int) -> list[Any]:
    from sklearn.dummy import DummyRegressor

    return [DummyRegressor(strategy="mean")]


def _ridge(seed: int) -> list[Any]:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return [make_pipeline(StandardScaler(), Ridge(alpha=alpha)) for alpha in (3.0, 30.0, 300.0)]


def _forest(seed: int) -> list[Any]:
    from sklearn.ensemble import RandomForestRegressor

    return [
        RandomForestRegressor(n_estimators=100, min_samples_leaf=leaf, max_features=0.3, random_state=seed)
        for leaf in (5, 20)
    ]


def _boosting(seed: int) -> list[Any]:
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.multioutput import MultiOutputRegressor

    one = GradientBoostingRegressor(
        n_estimators=60, max_depth=2, learning_rate=0.1, subsample=0.5, max_features=0.3, random_state=seed
    )
    return [MultiOutputRegressor(one)]


MODELS: dict[str, Callable[[int], list[Any]]] = {
    "constant": _constant,
    "ridge": _ridge,
    "forest": _forest,
    "boosting": _boosting,
}
"""Kind -> its models of every setting that is tried, from a seed. The constant one comes first, simpler ones before others."""


def _clone(model: Any) -> Any:
    from sklearn.base import clone

    return clone(model)


def _cross_validated(model: Any, train: Described, folds: int, seed: int) -> "tuple[float, np.ndarray]":
    """Regret of the choices that a model makes on documents that it was not fitted on: mean, and per row."""
    import numpy as np
    from sklearn.model_selection import GroupKFold

    regrets = train.regrets
    choices = np.zeros(len(regrets), int)
    splitter = GroupKFold(folds, shuffle=True, random_state=seed)
    for fitted_on, held_out in splitter.split(train.rows, groups=train.documents):
        predicted = _clone(model).fit(train.rows[fitted_on], regrets[fitted_on]).predict(train.rows[held_out])
        choices[held_out] = predicted.reshape(len(held_out), -1).argmin(axis=1)
    suffered = regrets[np.arange(len(regrets)), choices]
    return float(suffered.mean()), suffered


def _gain(constant: Trial, best: Trial, train: Described) -> tuple[float, float]:
    """The mean gain over the constant model, and its standard error over documents."""
    import numpy as np

    gains = constant.regrets - best.regrets
    of_document = np.bincount(train.documents, weights=gains - gains.mean())
    return float(gains.mean()), float(np.sqrt((of_document**2).sum()) / len(gains))
