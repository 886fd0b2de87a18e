"""Search over settings: a sweep whose points are asked of a study, round by round. The only module that knows Optuna.

`multirun.py` runs a round as it runs a grid. The study lives in the sweep's folder, `study.db`, and can be opened with
Optuna's own tools. A trial is one question to the study; trials that ask for the same settings are one point.
"""

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from outlay.errors import ConfigError, nearest
from outlay.schema import option

if TYPE_CHECKING:
    from outlay.record import Ended

STUDY = "study.db"
SPLIT = "dataset.split"
COST = "cost/tokens_per_query"
ENOUGH = 10
"""Finished runs of which one at least has an objective; only some choices may have it (ours)."""

OTHERS = (
    *(f"cost/{name}" for name in ("tokens_total", "tokens_prompt", "tokens_completion", "tokens_probe")),
    *(f"cost/{name}" for name in ("tokens_retry", "tokens_per_query", "usd_total", "cost_units_total")),
    *(f"cost/{name}" for name in ("per_correct", "latency_p50", "latency_p95")),
    *(f"context/{name}" for name in ("tokens_mean", "tokens_max", "compression")),
    *(f"context/{name}" for name in ("optimality_mean", "optimality_min", "phi", "rho")),
    *(f"inflation/{name}" for name in ("mean", "ratio_of_means", "p50", "p95", "share_ge_2")),
    *(f"inflation/{name}" for name in ("share_exhausted", "solved", "exhausted")),
)
"""Metrics beside quality/* that may be an objective."""


@dataclass(frozen=True)
class Untuned:
    """A sweep is the grid that it says it is."""

    name: ClassVar[str] = "none"


@dataclass(frozen=True)
class Optuna:
    """objectives: metric -> maximize | minimize; null: the data set's headline quality, and tokens a query

    held_out: the split on which the front's settings are run once more, since what a search has chosen looks better on
    the examples that it was chosen by; null: they are not.
    """

    trials: int = option(40, least=1)
    batch: int = option(8, least=1)
    sampler: str = option("tpe", choices=("tpe", "nsga2", "random"))
    objectives: dict[str, str] | None = None
    held_out: str | None = option("test", choices=("train", "tune", "test"))

    name: ClassVar[str] = "optuna"

    def __post_init__(self) -> None:
        from outlay.score.quality import METRICS

        known = [*OTHERS, "quality/accuracy", *(f"quality/{name}" for name in METRICS)]
        for metric, direction in (self.objectives or {}).items():
            if metric not in known:
                raise ConfigError(f"objectives: there is no metric '{metric}'. {nearest(metric, known)}")
            if direction not in ("maximize", "minimize"):
                raise ConfigError(
                    f"objectives.{metric}={direction}: {nearest(direction, ('maximize', 'minimize'))}"
                )

    @property
    def directions(self) -> list[str]:
        return list((self.objectives or {}).values()) or ["maximize", "minimize"]


# ---------------------------------------------------------------- the space


@dataclass(frozen=True)
class Axis:
    """The values that a key may have: those listed, as overrides write them, or all from low to high.

    step: of a list that is a range; log: small values are tried as often as large ones; whole: of an interval.
    """

    key: str
    values: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    log: bool = False
    whole: bool = False

    @property
    def choice(self) -> bool:
        """Whether it is a group's: options depend on choices, so those are made first."""
        return "." not in self.key

    @property
    def ends(self) -> tuple[str, ...]:
        """What must be possible before the search begins: an interval's ends, or every value of a list."""
        return self.values or tuple(self.text(end) for end in (self.low, self.high))

    def text(self, value: Any) -> str:
        """A study's value as an override writes it; four digits of a real number (ours: enough, and readable)."""
        if self.step is not None:
            return self.values[round((value - self.low) / self.step)]
        if self.values:
            return str(value)
        if self.whole:
            return str(int(value))
        short = f"{value:.4g}"
        return short if self.low <= float(short) <= self.high else repr(float(value))


@dataclass(frozen=True)
class Space:
    """fixed: key -> text, of all points; axes: what is searched. Both apply where a point's choices have such an option."""

    fixed: Mapping[str, str]
    axes: tuple[Axis, ...]

    def choose(self, has: Callable[[Mapping[str, str], str], bool], of: Callable[[Axis], str]) -> list[str]:
        """The overrides of one point. has: whether a point with these words has an option; of: the value of an axis."""
        words = {key: text for key, text in self.fixed.items() if "." not in key}
        words |= {axis.key: of(axis) for axis in self.axes if axis.choice}
        choices = dict(words)
        words |= {key: text for key, text in self.fixed.items() if "." in key and has(choices, key)}
        words |= {axis.key: of(axis) for axis in self.axes if not axis.choice and has(choices, axis.key)}
        return [*(f"{key}={text}" for key, text in words.items()), "sweep=[]"]


def on_split(words: Sequence[str], split: str) -> list[str]:
    """A point's overrides on another split."""
    return [*(word for word in words if word.partition("=")[0].lstrip("+") != SPLIT), f"{SPLIT}={split}"]


# ---------------------------------------------------------------- the study


@dataclass(frozen=True)
class Trial:
    """One question to the study. values: of the objectives; None where its point failed, or has not ended."""

    number: int
    point: int | None
    values: tuple[float, ...] | None


class Search:
    """A study, and which point answers which trial. Everything that a resume needs is in its file.

    The sampler of a round is seeded by `seed` and the trials that were answered before it, so that a sweep which was killed
    and goes on asks for what an undisturbed one asks: what was asked and not answered is given up, and asked again.
    """

    def __init__(self, options: Optuna, space: Space, seed: int, folder: Path | None = None) -> None:
        """folder: of the sweep; None: nothing is kept.

        Raises:
            ConfigError: the folder's study searches another space, or for something else.
        """
        optuna = _optuna()
        self._options, self._space, self._seed = options, space, seed
        self._state = optuna.trial.TrialState
        storage = None if folder is None else optuna.storages.RDBStorage(f"sqlite:///{folder / STUDY}")
        self._study = optuna.create_study(
            study_name="tune", storage=storage, directions=options.directions, load_if_exists=True
        )
        self._hold("objectives", dict(options.objectives or {}))
        self._hold("space", {axis.key: asdict(axis) for axis in space.axes})
        self._answers: dict[int, int | str] = self._kept(
            "answers"
        )  # trial -> its point; or why no run can be so
        # point -> the trial of the front whose settings it has, on the held-out split; of this front, and of any so far
        self.held_out: dict[int, int] = self._kept("held_out")
        self.ever_held_out: dict[int, int] = self._kept("ever_held_out")
        self.not_held_out: dict[int, str] = {}  # trial of the front -> why it cannot be run there
        self.without: dict[int, str] = {}  # trial -> the objective that its run has not
        for trial in self._all():
            if not trial.state.is_finished() and trial.number not in self._places:
                self._study.tell(trial.number, state=self._state.FAIL)

    @property
    def _places(self) -> dict[int, int]:
        return {trial: point for trial, point in self._answers.items() if isinstance(point, int)}

    @property
    def passed_over(self) -> dict[int, str]:
        """Trial -> why no run can be so."""
        return {trial: why for trial, why in self._answers.items() if isinstance(why, str)}

    def _hold(self, name: str, value: dict[str, Any]) -> None:
        now, then = json.loads(json.dumps(value)), self._study.user_attrs.get(name)
        if then is None:
            self._study.set_user_attr(name, now)
        elif then != now:
            (key, *_) = [key for key in {**then, **now} if then.get(key) != now.get(key)] or [name]
            raise ConfigError(
                f"resume: the study's {name} are not this command's ({key} differs). Give only resume=... and "
                "tune.trials, or start a new sweep"
            )

    def _kept(self, name: str) -> dict[int, Any]:
        return {int(key): value for key, value in self._study.user_attrs.get(name, {}).items()}

    def _keep(self, name: str, value: Mapping[int, Any]) -> None:
        self._study.set_user_attr(name, {str(key): one for key, one in value.items()})

    def _all(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    @property
    def left(self) -> int:
        """Trials not asked yet."""
        return self._options.trials - len(self._answers)

    def ask(self, has: Callable[[Mapping[str, str], str], bool]) -> dict[int, list[str]]:
        """The next round: trial -> its point's overrides."""
        seed = (1_000_003 * self._seed + len(self._answers)) % 2**32
        self._study.sampler = _sampler(self._options, seed)
        asked = {}
        for _ in range(min(self._options.batch, self.left)):
            trial = self._study.ask()
            asked[trial.number] = self._space.choose(has, partial(_suggested, trial))
        return asked

    def place(self, places: Mapping[int, int], passed_over: Mapping[int, str]) -> None:
        """The points that answer a round's trials, planned already; and the trials that no run can answer, and why."""
        self._answers |= {**places, **passed_over}
        self._keep("answers", self._answers)  # in one write: a round is answered as a whole, or asked again
        for trial in passed_over:
            self._study.tell(trial, state=self._state.FAIL)

    def tell(self, ended: Mapping[int, "Ended"]) -> None:
        """How points ended: a point's objectives, or FAIL, also where it has not all of them. One that was killed is left
        open, for a resume.

        Raises:
            ConfigError: an objective that none of `ENOUGH` finished runs has, or none of all.
        """
        names = self.names(list(ended.values()))
        again, places = self._kept("again"), self._places
        for trial in self._all():
            one = ended.get(places.get(trial.number, -1))
            if one is None or one.status not in ("FINISHED", "FAILED"):
                continue
            values = _values(one, names) if one.status == "FINISHED" else None
            if one.status == "FINISHED" and (absent := [name for name in names if name not in one.metrics]):
                self.without[trial.number] = absent[0]
            if not trial.state.is_finished():
                failed = None if values else self._state.FAIL
                self._study.tell(trial.number, values, state=failed)
            elif values and trial.state == self._state.FAIL and trial.number not in again.values():
                # It failed, and finished when it was run again: what was told cannot be changed, so a trial is added.
                self._study.add_trial(
                    _optuna().trial.create_trial(
                        params=trial.params, distributions=trial.distributions, values=list(values)
                    )
                )
                again[len(self._all()) - 1] = trial.number
                self._keep("again", again)
        finished = [one for one in ended.values() if one.status == "FINISHED"]
        all_told = not self.left and all(one.state.is_finished() for one in self._all())
        if finished and (all_told or len(finished) >= ENOUGH):
            for name in names:
                if not any(name in one.metrics for one in finished):
                    raise ConfigError(
                        f"tune.objectives: no metric '{name}' in any of {len(finished)} finished runs. "
                        f"{nearest(name, finished[0].metrics)}"
                    )

    def names(self, ended: Sequence["Ended"]) -> list[str]:
        """The objectives; the headline quality is known once a run has finished, and then stays."""
        from outlay.report.tables import headline

        if self._options.objectives:
            return list(self._options.objectives)
        kept = self._study.user_attrs.get("headline")
        finished = [one for one in ended if one.status == "FINISHED"]
        if kept is None and finished:
            kept = headline(finished)
            self._study.set_user_attr("headline", kept)
        return [kept or "quality", COST]

    @property
    def directions(self) -> list[str]:
        return self._options.directions

    def trials(self) -> list[Trial]:
        """In the order of asking; a trial whose point finished only when it was run again has that run's values."""
        again, places = self._kept("again"), self._places
        every = self._all()
        values = {again.get(one.number, one.number): tuple(one.values) for one in every if one.values}
        return [
            Trial(one.number, places.get(one.number), values.get(one.number))
            for one in every
            if one.number not in again and one.number in self._answers
        ]

    def first_of(self, point: int) -> int | None:
        """The first trial that a point answers. None: it is held out; or a kill came between its plan and its place."""
        return next((trial for trial, held in sorted(self._places.items()) if held == point), None)

    def front(self) -> list[Trial]:
        """The trials that no other beats, by the last objective; of equal ones the first."""
        known = [one for one in self.trials() if one.values is not None]
        best = [known[at] for at in front([one.values or () for one in known], self.directions)]
        return sorted(best, key=lambda one: (one.values or ())[::-1])

    def hold_out(self, points: Mapping[int, int]) -> None:
        """The points of the last round, planned already."""
        self.held_out = dict(points)
        self.ever_held_out |= points
        self._keep("ever_held_out", self.ever_held_out)
        self._keep("held_out", points)


def _optuna() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


def _sampler(options: Optuna, seed: int) -> Any:
    samplers = _optuna().samplers
    if options.sampler == "random":
        return samplers.RandomSampler(seed=seed)
    if options.sampler == "nsga2":  # a round is a generation; two parents are the least
        return samplers.NSGAIISampler(population_size=max(2, options.batch), seed=seed)
    return samplers.TPESampler(seed=seed, constant_liar=True)  # a round's trials keep apart


def _suggested(trial: Any, axis: Axis) -> str:
    if axis.step is not None:
        whole = float(axis.low).is_integer() and float(axis.step).is_integer()
        suggest = trial.suggest_int if whole else trial.suggest_float
        kind = int if whole else float
        return axis.text(suggest(axis.key, kind(axis.low), kind(axis.high), step=kind(axis.step)))
    if axis.values:
        return axis.text(trial.suggest_categorical(axis.key, list(axis.values)))
    if axis.whole:
        return axis.text(trial.suggest_int(axis.key, int(axis.low), int(axis.high), log=axis.log))
    return axis.text(trial.suggest_float(axis.key, axis.low, axis.high, log=axis.log))


def _values(ended: "Ended", names: Sequence[str]) -> tuple[float, ...] | None:
    """A point's objectives; None where one is absent or not a number: without cases there is nothing to learn from."""
    values = tuple(float(ended.metrics.get(name, math.nan)) for name in names)
    return None if any(math.isnan(value) for value in values) else values


# ---------------------------------------------------------------- the front


def front(values: Sequence[Sequence[float]], directions: Sequence[str]) -> list[int]:
    """Which rows no other row dominates (as good in every objective, better in one), in order; of equal rows the first."""
    losses = [_losses(row, directions) for row in values]

    def beaten(at: int) -> bool:
        mine = losses[at]
        return any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and (other != mine or by < at)
            for by, other in enumerate(losses)
            if by != at
        )

    return [at for at in range(len(losses)) if not beaten(at)]


def hypervolume(values: Sequence[Sequence[float]], directions: Sequence[str]) -> float:
    """The share of the box between the best and the worst value of each objective that the front dominates, in [0, 1].

    The reference is the worst of these rows (ours), so it compares searches over the same rows only; nan without a
    finite row. Exact, by slicing the last objective (While et al. 2006). Optuna's own is private.
    """
    losses = [_losses(row, directions) for row in values if all(map(math.isfinite, row))]
    if not losses:
        return math.nan
    low, high = ([pick(column) for column in zip(*losses, strict=True)] for pick in (min, max))
    scaled = {
        tuple((x - a) / (b - a) if b > a else 0.0 for x, a, b in zip(row, low, high, strict=True))
        for row in losses
    }
    return _volume(scaled)


def _volume(points: set[tuple[float, ...]]) -> float:
    """What points of the unit cube dominate of it, where less is better."""
    if not points:
        return 0.0
    if len(next(iter(points))) == 1:
        return 1.0 - min(point[0] for point in points)
    edges = [*sorted({point[-1] for point in points}), 1.0]
    return sum(
        (to - since) * _volume({point[:-1] for point in points if point[-1] <= since})
        for since, to in pairwise(edges)
    )


def _losses(row: Sequence[float], directions: Sequence[str]) -> tuple[float, ...]:
    signs = (-1.0 if one == "maximize" else 1.0 for one in directions)
    return tuple(sign * value for sign, value in zip(signs, row, strict=True))
