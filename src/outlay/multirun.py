"""A sweep from its plan to its end, under one tracked parent; and the job that every point is, alone or in a sweep."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from outlay import __version__, launch, record, schema, tune
from outlay.compose import (
    checked,
    choices_made,
    compose_near,
    has_option,
    plain,
    points_of,
    space_of,
)
from outlay.errors import ConfigError, OutlayError, SpendLimitReached
from outlay.process import this_process
from outlay.record import Ended

if TYPE_CHECKING:
    from hydra.plugins.launcher import Launcher

    from outlay.runner import Result


@dataclass(frozen=True)
class Command:
    """What the command line has found before Hydra takes over."""

    words: Sequence[str]  # its overrides
    points: Sequence[schema.Parts]  # of a tuned sweep only the first that can be run
    resumed: record.Plan | None = None  # the sweep that it goes on with


# Hydra stands between a command and its sweep and jobs: it hands on no object, and returns nothing. So these are kept here.
_commands: list[Command] = []  # the one that runs in this process
_ended: list[Ended] = []  # of this process's command, for the exit code
_refused: list[OutlayError] = []  # what ended a sweep as a whole; raised where Hydra does not print its trace
_apart: dict[int, str] = {}  # what tells a sweep's point from the others
_trials: dict[int, Mapping[str, str]] = {}  # of a tuned sweep: the tags of a point's run


def through_hydra(task: Callable[[DictConfig], Ended], command: Command | None) -> Sequence[Ended]:
    """Let Hydra run `task`, or start the command's sweep: how the points ended. command: None where Hydra only shows something.

    Raises:
        OutlayError: what ended a sweep as a whole.
    """
    import hydra

    _commands[:] = [command] if command else []
    # Hydra prints errors in its own way and exits; asked for full ones it lets them pass, and `main` says them.
    os.environ.setdefault("OUTLAY_TRACES", os.environ.get("HYDRA_FULL_ERROR", "0"))
    os.environ["HYDRA_FULL_ERROR"] = "1"
    hydra.main(version_base="1.3", config_path=str(schema.conf_dir()), config_name="config")(task)()
    for error in _refused:
        raise error
    return _ended


def traces() -> bool:
    """Whether errors are to be shown with their stack traces."""
    return os.environ.get("OUTLAY_TRACES", os.environ.get("HYDRA_FULL_ERROR")) == "1"


# ---------------------------------------------------------------- a sweep


@dataclass(frozen=True)
class _Sweep:
    """A sweep under way."""

    id: str
    folder: Path
    first: schema.Parts  # the first point's, whose settings are the sweep's
    parts: list[schema.Parts]  # every point's, by its number; a study adds to them
    study: "_Study | None"
    plan: record.Plan  # as it was at the start
    parent: Any  # the tracked run of the sweep
    earlier: Mapping[str, str]  # point -> the tracked run that it repeats

    @property
    def output_dir(self) -> Path:
        return Path(self.first.settings.output_dir)


def run_sweep(arguments: Sequence[str], launcher: "Launcher", folder: Path) -> Any:
    """Run the plan's points under one tracked parent, which ends as they did; failures are listed at the end."""
    (command,) = _commands
    try:
        return _run_sweep(replace(command, words=command.words or arguments), launcher, folder)
    except OutlayError as error:
        _refused.append(error)
        return []


def _run_sweep(command: Command, launcher: "Launcher", folder: Path) -> Any:
    from outlay import track
    from outlay.report import terminal

    _trials.clear()
    sweep = _started(command, folder)
    settings, parent, points = sweep.first.settings, sweep.parent, sweep.plan.points
    done = record.finished(folder, sweep.plan)
    if settings.reuse:
        done |= _reused(sweep, [point for point in points if point.number not in done])
    before = set(done)
    trials = sweep.first.tune.trials if sweep.study else 0
    if settings.verbose:
        terminal.sweep_starts(len(points), len(done), folder, trials)
    os.environ["OUTLAY_PARENT_RUN"] = parent.run_id
    os.environ["OUTLAY_SWEEP_POINTS"] = str(trials or len(points))
    os.environ["OUTLAY_SWEEP_PROCESS"] = this_process()
    try:
        shared, gave_up = _all_rounds(sweep, launcher, done, before)
        # A launcher that runs jobs in other processes fills `_ended` there, not here.
        _ended[:] = [done[number] for number in sorted(done)]
        unfinished = [one for one in _ended if one.status != "FINISHED"]
        front = _keep_sweep(sweep, done, shared)
        failed = gave_up or any(one.status == "FAILED" for one in unfinished)
        parent.end("FAILED" if failed else "KILLED" if unfinished else "FINISHED", gave_up)
    except BaseException as error:
        launch.leave()
        track.end_children(parent)
        stopped = isinstance(error, SpendLimitReached) or not isinstance(error, Exception)
        parent.end("KILLED" if stopped else "FAILED", error)
        raise
    if settings.verbose:
        _say_end(sweep, {number: one for number, one in done.items() if number not in before}, shared, front)
    if unfinished:
        terminal.failures(_ended, sweep.id)
    if sweep.study and sweep.study.why:
        print(f"outlay: the search stopped: {sweep.study.why}", file=sys.stderr)
    if gave_up:
        raise gave_up
    return _ended


def _started(command: Command, folder: Path) -> _Sweep:
    """The sweep with its points planned, its parent run begun (a resumed one's again), and its plan kept.

    Raises:
        OutlayError: its folder is another's; the resumed plan is another; from the tracking store.
    """
    from outlay import track

    first, resumed, words = command.points[0], command.resumed, tuple(command.words)
    output_dir, sweep_id = Path(first.settings.output_dir), os.environ["OUTLAY_SWEEP_ID"]
    parts, study, points = _planned(command)
    if resumed:
        record.same(resumed, points)
        parent = track.reopen(first.tracking, output_dir, resumed.parent)
        earlier = track.unfinished(parent)
    else:
        if folder.exists():
            raise OutlayError(f"{folder} is another sweep's. Run the command again for a new one")
        folder.mkdir(parents=True)
        parent = track.start_run(
            first.tracking,
            output_dir,
            f"{first.tracking.experiment} · {sweep_id}",
            {"kind": "sweep", "sweep_id": sweep_id, "command": " ".join(words)[:5000]},
        )
        earlier = {}
    plan = record.Plan(sweep_id, words, parent.run_id, this_process(), points)
    record.write_plan(folder, plan)
    _keep_changes(folder, parent)
    (folder / record.STOPPED).unlink(missing_ok=True)
    return _Sweep(sweep_id, folder, first, parts, study, plan, parent, earlier)


def _planned(
    command: Command,
) -> tuple[list[schema.Parts], "_Study | None", tuple[record.PlanPoint, ...]]:
    """Every point's components and place in the plan; a tuned sweep has those it is resumed with, and a study for more."""
    first, composed = command.points[0], dict[tuple[str, ...], DictConfig]()
    if isinstance(first.tune, tune.Optuna):
        study = _Study(space_of(command.words, composed), composed, first)
        return study.parts, study, study.planned(command.resumed) if command.resumed else ()
    overrides = points_of(command.words)
    points = record.planned(overrides, [plain(compose_near(words, composed)) for words in overrides])
    return list(command.points), None, points


def _keep_changes(folder: Path, parent: Any) -> None:
    """What the checkout has beyond its last commit, if anything."""
    from outlay.track.origins import changes

    if changes():
        (folder / "changes.diff").write_text(changes())
        parent.artifact(folder / "changes.diff")


def _all_rounds(
    sweep: _Sweep, launcher: "Launcher", done: dict[int, Ended], before: set[int]
) -> tuple[int, OutlayError | None]:
    """Run what is left, a round at a time; done is filled, and before by what another sweep has finished.

    Returns:
        Tokens generated for several points at once; why the launcher gave up.
    """
    study, settings = sweep.study, sweep.first.settings
    shared, gave_up = 0, None
    rounds = (
        study.rounds(sweep.plan, done, sweep.folder)
        if study
        else iter([[one for one in sweep.plan.points if one.number not in done]])
    )
    for todo in rounds:
        if study and settings.reuse:
            linked = _reused(sweep, todo)
            done |= linked
            before |= set(linked)
            todo = [point for point in todo if point.number not in linked]
        _apart.update(_told_apart(todo, sweep.parts, study))
        for point in todo:
            record.put_aside(sweep.folder, point.number)
        shared += _union([sweep.parts[point.number] for point in todo], sweep.id, settings.verbose)
        new, gave_up = _launched(sweep, launcher, todo)
        done |= new
        if gave_up:
            break
    return shared, gave_up


def _say_end(sweep: _Sweep, new: Mapping[int, Ended], shared: int, front: Any) -> None:
    """The sweep's table, and what was generated now. new: the points that had not finished before."""
    from outlay import track
    from outlay.report import terminal

    made = shared + sum(int(one.metrics.get("cache/generated_tokens", 0)) for one in new.values())
    command = track.ui_command(sweep.first.tracking, sweep.output_dir)
    terminal.sweep_ends(_ended, sweep.folder, command, front, (made, shared))


def _ways_to_say(word: str) -> set[str]:
    """Of selector.weight=0.5: what a run's name may have of it."""
    key, _, text = word.lower().partition("=")
    return {text, f"{key.rpartition('.')[2]}={text}"}


class _Study:
    """A tuned sweep: where its points come from, and what they tell the study."""

    def __init__(
        self, space: tune.Space, composed: dict[tuple[str, ...], DictConfig], first: schema.Parts
    ) -> None:
        self._space, self._composed, self._first = space, composed, first
        self._search: tune.Search
        self._has = partial(has_option, composed=composed)
        self.parts: list[schema.Parts] = []  # every point's, by its number
        self.why = ""  # the study stopped before it had its trials, or its held-out round

    def planned(self, resumed: record.Plan) -> tuple[record.PlanPoint, ...]:
        """The points that a sweep to be resumed has planned, as this command gives them."""
        plans = []
        each = [dict(word.split("=", 1) for word in point.overrides) for point in resumed.points]
        for point, words in zip(resumed.points, each, strict=True):
            # A search stays on one split, which is the first point's; another is a held-out one, of this front or an earlier.
            held = words.get(tune.SPLIT) != each[0].get(tune.SPLIT)
            words |= {
                key: text
                for key, text in self._space.fixed.items()
                if self._has(words, key) and not (held and key.lstrip("+") == tune.SPLIT)
            }
            plans.append(self._built([f"{key}={text}" for key, text in words.items()], point.number))
        return tuple(plans)

    def _built(self, words: Sequence[str], number: int) -> record.PlanPoint:
        """A point of the plan; its components go to `parts`.

        Raises:
            ConfigError: it cannot be run.
        """
        config = compose_near(words, self._composed)
        parts = checked(config)
        (point,) = record.planned([words], [plain(config)], number)
        self.parts[number:] = [parts]
        return point

    def rounds(
        self, plan: record.Plan, done: dict[int, Ended], folder: Path
    ) -> Iterator[list[record.PlanPoint]]:
        """The points to run next, until the study has its trials; then the front's, on the held-out split.

        done: how points ended, filled by the caller before the next round is asked for.
        """
        options, settings = self._first.tune, self._first.settings
        search = self._search = tune.Search(options, self._space, settings.seed, folder)
        points = list(plan.points)

        def added(words: Sequence[str]) -> record.PlanPoint:
            new = self._built(words, len(points))
            same = next((one for one in points if one.hash == new.hash), None)
            if same is None:
                points.append(new)
            else:
                del self.parts[new.number :]
            return same or new

        # Before the study hears of a point: one that no trial has is asked for again.
        def keep_plan() -> None:
            record.write_plan(folder, replace(plan, points=tuple(points)))

        # What was held out is chosen again once the study has its trials.
        left = [one for one in points if one.number not in done and search.first_of(one.number) is not None]
        if left:
            yield left
        search.tell(done)
        while search.left and not self._stopped(search, done):
            places, passed_over = {}, {}
            for trial, words in search.ask(self._has).items():
                try:
                    places[trial] = added(words).number
                except ConfigError as error:
                    passed_over[trial] = str(error)
            keep_plan()
            search.place(places, passed_over)
            fresh = [
                point for point in points if point.number in places.values() and point.number not in done
            ]
            if fresh:
                yield fresh
            search.tell(done)
        if options.held_out is None or self._stopped(search, done):
            return
        held = {}
        for best in search.front():
            try:
                there = added(tune.on_split(points[best.point or 0].overrides, options.held_out))
                held[there.number] = best.number
            except ConfigError as error:
                search.not_held_out[best.number] = str(error)
        keep_plan()
        search.hold_out(held)
        last = [points[number] for number in held if number not in done]
        if last:
            yield last

    def _stopped(self, search: tune.Search, done: Mapping[int, Ended]) -> bool:
        """Whether to ask no more; `why` then says the reason."""
        had = {one.status for one in done.values()}
        if self._first.settings.fail_fast and "FAILED" in had:
            self.why = "a point failed, and fail_fast=true"
        elif had & {"KILLED", "SKIPPED"}:
            self.why = "a point was killed, so the rest was not asked"
        elif had == {"FAILED"} and search.left and len(search.trials()) >= 2 * self._first.tune.batch:
            self.why = f"none of {len(search.trials())} trials has finished; more would be paid for in vain"
        return bool(self.why)

    def tags(self, todo: Sequence[record.PlanPoint]) -> dict[int, dict[str, str]]:
        """Point -> the tags of its run: the trial that it answers; or whose settings it has, on the held-out split."""
        found = {}
        for number in (point.number for point in todo):
            held = self._search.held_out.get(number)
            trial = self._search.first_of(number) if held is None else held
            found[number] = {"trial": str(trial)} | ({} if held is None else {"held_out": "true"})
        return found

    def files(self, done: Mapping[int, Ended], folder: Path) -> Any:
        """See `pareto.files`."""
        from outlay.report import pareto

        return pareto.files(self._search, done, folder)

    def held(self) -> set[int]:
        """The points on the held-out split, of this front and of earlier ones."""
        return set(self._search.ever_held_out)

    def varies(self, point: record.PlanPoint) -> list[str]:
        """The overrides that the study chose."""
        keys = {axis.key for axis in self._space.axes} | {tune.SPLIT}
        return [word for word in point.overrides if word.partition("=")[0] in keys]


def _told_apart(
    todo: Sequence[record.PlanPoint], parts: Sequence[schema.Parts], study: _Study | None
) -> dict[int, str]:
    """Point -> the overrides that other points on its data set have otherwise, as far as its name does not say them."""
    from outlay.runner import run_name

    each = {point.number: dict(word.split("=", 1) for word in point.overrides) for point in todo}
    values: dict[tuple[str | None, str], set[str]] = {}
    for words in each.values():
        for key, text in words.items():
            values.setdefault((words.get("dataset"), key), set()).add(text)
    found = {}
    for point in todo:
        name = set(run_name(parts[point.number]).lower().split())
        words = each[point.number]
        varies = [
            f"{key}={text}" for key, text in words.items() if len(values[words.get("dataset"), key]) > 1
        ]
        chosen = study.varies(point) if study else varies
        unsaid = [word for word in chosen if not _ways_to_say(word) & name]
        found[point.number] = " ".join(unsaid)
    return found


def _launched(
    sweep: _Sweep, launcher: "Launcher", todo: Sequence[record.PlanPoint]
) -> tuple[dict[int, Ended], OutlayError | None]:
    """How each point ended; and why the launcher gave up, where a worker died or its cluster went away."""
    from outlay import track
    from outlay.report import terminal
    from outlay.runner import run_name

    if not todo:
        return {}, None
    folder, parts = sweep.folder, sweep.parts
    verbose = parts[0].settings.verbose
    tags = sweep.study.tags(todo) if sweep.study else {}
    _trials.update(tags)
    words = [
        [*point.overrides, *launch.carried(folder, point.number, sweep.earlier, tags.get(point.number))]
        for point in todo
    ]
    elsewhere = [point.number for point in todo] if verbose and not _is_basic(launcher) else []
    try:
        launch.settle(launcher)
        with launch.heard(
            folder,
            elsewhere,
            lambda one, number: terminal.point(one, _place(number), _apart.get(number, "")),
        ):
            returns = launcher.launch(words, initial_job_idx=0)
            return {point.number: one.return_value for point, one in zip(todo, returns, strict=True)}, None
    except Exception as error:
        if traces():
            traceback.print_exc()
        launch.leave()
        track.end_children(sweep.parent)
        why = launch.reason(error)
        found = {
            point.number: launch.lost(folder, point.number, run_name(parts[point.number]), why)
            for point in todo
        }
        return found, OutlayError(
            f"the launcher gave up: {why} What has finished is kept: outlay -m resume={sweep.id}"
        )


def _place(number: int) -> str:
    """Where a point stands in its sweep: of a grid from 1, of a study its trial, as in the study's tables from 0."""
    total = int(os.environ.get("OUTLAY_SWEEP_POINTS", "0"))
    if number not in _trials:
        return f"{number + 1}/{total}"
    trial = f"trial {_trials[number]['trial']}"
    return f"{trial}, held out" if "held_out" in _trials[number] else f"{trial} of 0 to {total - 1}"


def _is_basic(launcher: "Launcher") -> bool:
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher

    return isinstance(launcher, BasicLauncher)


def _reused(sweep: _Sweep, points: Sequence[record.PlanPoint]) -> dict[int, Ended]:
    """Those that another sweep has finished: linked from the parent's tags and the table, not copied."""
    found = record.elsewhere(sweep.output_dir, {point.hash for point in points}, _code(), but=sweep.id)
    linked = {point.number: found[point.hash] for point in points if point.hash in found}
    sweep.parent.tags({f"reused.{number}": one.run_id for number, one in linked.items()})
    return linked


def _union(points: Sequence[schema.Parts], sweep_id: str, verbose: bool) -> int:
    """Generate what the points ask first, together; the points then read it. Tokens generated."""
    if len(points) < 2 or not any(parts.generator.stored for parts in points):
        return 0
    from outlay.cache import cache_dir
    from outlay.generate.store import Store
    from outlay.plan import union
    from outlay.progress import Progress

    made = 0
    store = Store(cache_dir() / "completions.sqlite")

    def told(rows: int, tokens: int) -> None:
        nonlocal made
        made += tokens
        progress(rows, rows, tokens)

    try:
        with Progress("what all points ask first", None, verbose, "completions") as progress:
            union(points, store, sweep_id, told, progress.of)
    finally:
        store.close()
    return made


def _keep_sweep(sweep: _Sweep, done: Mapping[int, Ended], shared: int) -> Any:
    """The sweep's tables and figures, beside its points and as artifacts of the parent; its totals as metrics.

    Returns:
        The front's table, where there is one.
    """
    from outlay.report import sweep_files

    folder, parent, study = sweep.folder, sweep.parent, sweep.study
    finished = [one for one in done.values() if one.status == "FINISHED"]
    written, front, found = study.files(done, folder) if study else ([], None, {})
    # Figures of two splits do not compare: those of the held-out one are the front's alone.
    held = study.held() if study else ()
    compared = [
        one for number, one in sorted(done.items()) if one.status == "FINISHED" and number not in held
    ]
    for path in [*written, *sweep_files(compared, folder)]:
        inside = path.parent.relative_to(folder)
        parent.artifact(path, None if inside == Path() else str(inside))
        if path.name.endswith("_metrics.json"):
            found |= json.loads(path.read_text(encoding="utf-8"))
    totals = {
        name: sum(one.metrics.get(name, 0.0) for one in finished)
        for name in (
            "cache/generated_tokens",
            "cache/hits",
            "cache/misses",
            "cost/tokens_total",
            "cost/usd_total",
        )
    }
    totals["cache/generated_tokens"] += shared
    parent.metrics(
        {**found, **totals, "points": float(len(done)), "points_failed": float(len(done) - len(finished))}
    )
    return front


# ---------------------------------------------------------------- a point


def job(config: DictConfig) -> Ended:
    """Hydra's task: one point. Its failure is returned, so that it hides no other point's."""
    from hydra.core.hydra_config import HydraConfig

    launch.enter()
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    chosen = choices_made(hydra_config)
    multirun = hydra_config.mode is not None and hydra_config.mode.name == "MULTIRUN"
    ended = Ended("", "FAILED", plain(config), chosen, {}, str(folder), code=_code())
    if multirun and config.get("fail_fast") and (folder.parent / record.STOPPED).exists():
        ended = replace(ended, name=_name(config, folder), status="SKIPPED", error="an earlier point failed")
        _ended.append(ended)
        return ended
    try:
        result = _run(config, folder, chosen)
        ended = replace(
            ended,
            name=result.name,
            status="FINISHED",
            config=result.config,
            metrics=dict(result.metrics),
            run_id=result.run_id,
            oracle=result.oracle,
            warnings=result.warnings,
        )
    except Exception as error:
        if traces():
            traceback.print_exc()
        message = str(error) if isinstance(error, OutlayError) else f"{type(error).__name__}: {error}"
        ended = replace(
            ended,
            name=_name(config, folder),
            status="KILLED" if isinstance(error, SpendLimitReached) else "FAILED",
            error=" ".join(message.split()),
        )
        if multirun:
            (folder.parent / record.STOPPED).touch()
    record.write_ended(ended)
    _ended.append(ended)
    _report(ended, int(folder.name) if multirun else None)
    return ended


def _code() -> str:
    """What ran a point: a result of other code is not taken for this one's."""
    from outlay.track.origins import git_sha

    return f"{__version__} {git_sha()}".strip()


def _run(config: DictConfig, folder: Path, chosen: Mapping[str, str]) -> "Result":
    from outlay.runner import run_point

    parts = checked(config)
    if launch.apart():  # bars of several processes would be drawn over each other
        parts = replace(parts, settings=replace(parts.settings, verbose=False))
    sweep_id = os.environ.get("OUTLAY_SWEEP_ID", "")
    parent = os.environ.get("OUTLAY_PARENT_RUN") or None
    tags = {"sweep_id": sweep_id, "point": folder.name} if parent else {}
    earlier = json.loads(os.environ.get("OUTLAY_RETRY_OF", "{}")).get(folder.name)
    if parent:
        tags |= json.loads(os.environ.get("OUTLAY_TAGS", "{}"))
        tags |= {"retry_of": earlier} if earlier else {}
    return run_point(parts, plain(config), OmegaConf.to_yaml(config), chosen, folder, tags, parent)


def _name(config: DictConfig, folder: Path) -> str:
    """A failed point's name; one that was never built has its folder's."""
    from outlay.runner import run_name

    try:
        return run_name(checked(config))
    except ConfigError:
        return f"run {folder.name}"


def _report(ended: Ended, number: int | None) -> None:
    """What one point printed: the result, or the error as the last line."""
    from outlay.report import terminal

    verbose = bool(ended.config.get("verbose", True))
    if launch.apart():
        return  # the sweep hears of it by its record
    if number is not None:
        if verbose:
            terminal.point(ended, _place(number), _apart.get(number, ""))
        return
    if ended.status != "FINISHED":
        print(f"outlay: {ended.error}", file=sys.stderr)
    elif verbose:
        terminal.single(ended)
