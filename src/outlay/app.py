"""The command line, and the only module that knows Hydra (a sweeper must live in `hydra_plugins`, and calls it): compose, check, run.

Everything that can be refused is refused in `_preflight`, before a model, a data set or the tracking store is touched.
"""

import contextlib
import copy
import itertools
import json
import math
import os
import re
import secrets
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict

from outlay import __version__, launch, record, schema, sweep, tune
from outlay.errors import ConfigError, OutlayError, SpendLimitReached, nearest
from outlay.process import this_process
from outlay.record import Ended

if TYPE_CHECKING:
    from hydra.plugins.launcher import Launcher

    from outlay.runner import Result

EXIT_INTERRUPTED = 130
INFO_FLAGS = (
    "--help",
    "-h",
    "--version",
    "--hydra-help",
    "--cfg",
    "-c",
    "--info",
    "-i",
    "--shell-completion",
    "-sc",
)


_refused: list[OutlayError] = []  # what ended a sweep as a whole; raised where Hydra does not print its trace
OF_THE_SWEEP = ("hydra", "output_dir=", "tracking", "verbose=", "experiment=")
"""Overrides that the sweep itself needs: where it goes and how it is launched."""
_arguments: list[str] = []  # the command's overrides
_points: list[schema.Parts] = []  # of this process's command, checked before Hydra takes over
_resumed: list[record.Plan] = []  # the sweep that this command goes on with
_ended: list[Ended] = []  # of this process's command, for the exit code: Hydra returns nothing
_apart: dict[int, str] = {}  # what tells a sweep's point from the others


def main() -> None:
    """The console script."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    try:
        code = _command(sys.argv[1:])
    except OutlayError as error:
        code = _say(error, str(error), error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _say(error, f"{where}{error.strerror or error}. Is there room, and may it be written?", 1)
    except Exception as error:
        code = _say(error, f"{type(error).__name__}: {' '.join(str(error).split())}", 1)
    except KeyboardInterrupt:
        print(
            "outlay: interrupted; what was generated is in the store and is used by the next run. "
            "A sweep goes on with: outlay -m resume=last",
            file=sys.stderr,
        )
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _command(words: Sequence[str]) -> int:
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    if words and not words[0].startswith(("-", "+", "~")) and "=" not in words[0]:
        if words[0] in schema.GROUPS:
            raise ConfigError(
                f"'{words[0]}' needs a choice: {words[0]}={schema.choices(words[0])[0]}, for example"
            )
        raise ConfigError(f"unknown command '{words[0]}'. {nearest(words[0], COMMANDS)}")
    if "--version" in words:
        print(f"outlay {__version__}")
        return 0
    signal.signal(signal.SIGTERM, _terminated)
    multirun = any(word in ("-m", "--multirun") for word in words)
    info = any(word.split("=")[0] in INFO_FLAGS for word in words)
    overrides = [word for word in words if not word.startswith("-") and ("=" in word or word.startswith("~"))]
    sweep_id = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(2)}"
    wanted = next((word.partition("=")[2] for word in overrides if word.startswith("resume=")), "")
    if wanted and wanted != "null":
        if not multirun:
            raise ConfigError(f"resume={wanted}: only sweeps are resumed. Add -m: outlay -m resume={wanted}")
        overrides, sweep_id = _resume(wanted, overrides)
    if not info:
        _points[:] = _preflight(overrides, multirun)
        if _points[0].settings.plan:
            return _say_plan(overrides)
        _ready(_points)
        _may_launch(overrides if multirun else [], _points[0])
        _writable(Path(_points[0].settings.output_dir))
    os.environ["OUTLAY_SWEEP_ID"] = sweep_id
    if multirun and not info:
        # Hydra composes a sweep's options once on their own, without the choices that have them; the points are ours.
        _arguments[:] = overrides
        sys.argv[1:] = [word for word in words if word.startswith("-")]
        sys.argv += [word for word in overrides if word.lstrip("+~").startswith(OF_THE_SWEEP)]
    _hydra_main()
    for error in _refused:
        raise error
    return 0 if all(one.status == "FINISHED" for one in _ended) else 1


def _resume(wanted: str, overrides: Sequence[str]) -> tuple[list[str], str]:
    """The overrides of the sweep that is to go on, with what this command gives put over them; and its id.

    Raises:
        ConfigError: no such sweep.
        OutlayError: it still runs.
    """
    from outlay.process import alive

    given = [word for word in overrides if not word.startswith("resume=")]
    where = next((word.partition("=")[2] for word in given if word.startswith("output_dir=")), None)
    folder = record.find(Path(where or os.environ.get("OUTLAY_OUTPUT_DIR", "multirun_outputs")), wanted)
    plan = record.read_plan(folder)
    if alive(plan.process):
        raise OutlayError(f"resume={plan.sweep_id}: it is still running (process {plan.process})")
    _resumed[:] = [plan]
    keys = {word.partition("=")[0].lstrip("+~") for word in given}
    return [
        *(word for word in plan.words if word.partition("=")[0].lstrip("+~") not in keys),
        *given,
    ], plan.sweep_id


def _say_plan(overrides: Sequence[str]) -> int:
    from outlay.cache import cache_dir
    from outlay.generate.store import Store
    from outlay.plan import plan
    from outlay.report import terminal

    tuned = _points[0].tune
    points = _drawn(overrides) if isinstance(tuned, tune.Optuna) else _points
    store = Store(cache_dir() / "completions.sqlite")
    try:
        found = plan(points, store)
    finally:
        store.close()
    terminal.plan(found)
    if isinstance(tuned, tune.Optuna):
        terminal.plan_of_a_study(tuned, len(points))
    return 1 if found.failed else 0


def _drawn(overrides: Sequence[str]) -> list[schema.Parts]:
    """As many settings as a study has trials, drawn from its space at random: what it will choose is not known."""
    composed: dict[tuple[str, ...], DictConfig] = {}
    space, options = _space(overrides, composed), replace(_points[0].tune, sampler="random")
    search = tune.Search(options, space, _points[0].settings.seed)
    found: dict[str, schema.Parts] = {}
    while search.left:
        places, passed_over = {}, {}
        for trial, words in search.ask(lambda words, key: _has(words, key, composed)).items():
            try:
                config = _compose_near(words, composed)
                found[sweep.config_hash(_plain(config))] = _checked(config)
                places[trial] = 0
            except ConfigError as error:
                passed_over[trial] = str(error)
        search.place(places, passed_over)
    return list(found.values())


def _doctor(words: Sequence[str]) -> int:
    from outlay import track
    from outlay.doctor import doctor

    output_dir = Path(os.environ.get("OUTLAY_OUTPUT_DIR", "multirun_outputs"))
    uri = next((word.partition("=")[2] for word in words if word.startswith("tracking.uri=")), None)
    others = [word for word in words if word != "--reap" and not word.startswith("tracking.uri=")]
    if others or (uri and "--reap" not in words):
        raise ConfigError(
            f"usage: outlay doctor [--reap [tracking.uri=URI]], not {' '.join(others or words)}"
        )
    if words:
        reaped = track.reap(track.Tracking(uri=uri), output_dir)
        print(
            f"{len(reaped)} runs whose process is gone are now KILLED"
            + "".join(f"\n  {one}" for one in reaped)
        )
        return 0
    doctor(output_dir)
    return 0


APART = ("cache/", "cost/latency")
"""Metrics that say how a run was made, not what came of it."""


def _rerun(words: Sequence[str]) -> int:
    """Run a tracked config again, and say whether the metrics agree."""
    from outlay import track
    from outlay.runner import run_point

    options = dict(word.partition("=")[::2] for word in words if "=" in word)
    ids = [word for word in words if "=" not in word]
    known = ("output_dir", "tracking.uri")
    if len(ids) != 1 or set(options) - set(known):
        raise ConfigError("usage: outlay rerun RUN_ID [output_dir=DIR] [tracking.uri=URI]")
    output_dir = Path(options.get("output_dir") or os.environ.get("OUTLAY_OUTPUT_DIR", "multirun_outputs"))
    tracking = track.Tracking(uri=options.get("tracking.uri"))
    path, params, before, name = track.config_of(tracking, output_dir, ids[0])
    config = OmegaConf.load(path)
    assert isinstance(config, DictConfig)
    config.output_dir = str(output_dir)
    config.tracking.uri = tracking.uri
    config.setdefault("tune", {"_target_": "outlay.tune.Untuned"})  # tracked before there was such a group
    parts = _checked(config)
    chosen = {group: params[group] for group in schema.GROUPS if group in params}
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S-%f}"
    folder = output_dir / parts.tracking.experiment / "rerun" / stamp
    result = run_point(
        parts, _plain(config), OmegaConf.to_yaml(config), chosen, folder, {"rerun_of": ids[0]}, None
    )
    # The store has what the tracking store has: finite numbers.
    after = {key: value for key, value in result.metrics.items() if math.isfinite(value)}
    keys = [key for key in {**before, **after} if not key.startswith(APART)]
    differ = [key for key in keys if before.get(key) != after.get(key)]
    print(f"{name}: {len(keys) - len(differ)} of {len(keys)} metrics agree to the last digit")
    for key in differ:
        print(f"  {key}: {before.get(key, 'absent')} then, {after.get(key, 'absent')} now")
    print(f"Files: {folder}")
    return 1 if differ else 0


def _store(words: Sequence[str]) -> int:
    from outlay.keep import store

    return store(words)


def _generate(words: Sequence[str]) -> int:
    from outlay.offline import generate

    return generate(words, lambda overrides: _preflight(overrides, multirun=True))


def _report_runs(words: Sequence[str]) -> int:
    from outlay.report.command import report

    return report(words)


def _import(words: Sequence[str]) -> int:
    from outlay.imports import run

    return run(words)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "doctor": _doctor,
    "generate": _generate,
    "import": _import,
    "report": _report_runs,
    "rerun": _rerun,
    "store": _store,
}


def _say(error: Exception, text: str, code: int) -> int:
    if _traces():
        traceback.print_exception(error)
    print(f"outlay: {text}", file=sys.stderr)
    return code


def _traces() -> bool:
    return os.environ.get("OUTLAY_TRACES", os.environ.get("HYDRA_FULL_ERROR")) == "1"


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt  # SIGTERM ends a run as Ctrl-C does: KILLED, and nothing lost


# ---------------------------------------------------------------- compose and check


def _compose(overrides: Sequence[str], with_hydra: bool = False) -> DictConfig:
    """The config of one point.

    Raises:
        ConfigError: an unknown choice, key or value, with the nearest valid name.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        if GlobalHydra.instance().is_initialized():  # composing inside a running job
            return compose("config", list(overrides), return_hydra_config=with_hydra)
        with initialize_config_dir(str(schema.conf_dir()), version_base="1.3"):
            return compose("config", list(overrides), return_hydra_config=with_hydra)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_refusal(error, overrides)) from error


def _refusal(error: Exception, overrides: Sequence[str]) -> str:
    """Hydra's error in one line, with the nearest valid name."""
    for word in overrides:
        key, _, value = word.partition("=")
        key = key.lstrip("+~")
        if key == "hydra/launcher" and value != "basic":
            try:
                launch.installed(value)
            except ConfigError as missing:
                return str(missing)
            if value not in launch.PACKAGES:
                return f"{word}: no such launcher. {nearest(value, ['basic', *launch.PACKAGES])}"
        group, _, rest = key.partition(".")
        groups = (*schema.GROUPS, "experiment")
        if group in groups and not rest:
            for one in value.split(","):
                if one and one not in schema.choices(group) and one != "null":
                    return f"{group}={one}: no such choice. {nearest(one, schema.choices(group))}"
        elif (
            group.partition("/")[0] not in (*groups, "hydra")
            and group not in schema.Settings.__dataclass_fields__
        ):
            return (
                f"unknown option '{key}'. {nearest(group, [*groups, *schema.Settings.__dataclass_fields__])}"
            )
    text = " ".join(str(error).split())
    if "Ambiguous value" in text:
        several = next(word for word in overrides if "," in word)
        return f"{several}: several values make a grid. Add -m: outlay -m {' '.join(overrides)}"
    for word in overrides:
        key = word.partition("=")[0].lstrip("+~")
        group, _, rest = key.partition(".")
        if rest and key in text and group in schema.GROUPS:
            return f"unknown option '{key}'. {_options_of(group, overrides, rest)}"
    return text


def _options_of(group: str, overrides: Sequence[str], wrong: str) -> str:
    """The nearest option of the group's chosen component."""
    others = [word for word in overrides if not word.lstrip("+~").startswith(f"{group}.")]
    try:
        known = [str(key) for key in _compose(others)[group] if key != "_target_"]
    except ConfigError:
        return ""
    return nearest(wrong, known, f"{group}.") if known else "That choice has no options."


def _plan(overrides: Sequence[str]) -> list[list[str]]:
    """The points of a multirun: the preset's grids crossed with the command line.

    Raises:
        ConfigError: an override that cannot be parsed, a wrong preset.
    """
    given = _given(overrides)
    grids = _preset(given)[0]
    held = (_axis(key, axis) for grid in grids if isinstance(grid, Mapping) for key, axis in grid.items())
    for axis in (*given.values(), *held):
        if not axis.values:
            raise ConfigError(
                f"{axis.key} is an interval, which has no list of values. A grid needs one, {axis.key}=1,2,3 or "
                f"{axis.key}='range(1,4)'; to search the interval, add tune=optuna"
            )
    points = sweep.points(grids, {key: axis.values for key, axis in given.items()})
    # The plan is the sweep's; a point carries its own overrides only, so its hash does not depend on its neighbours.
    return [[*point, "sweep=[]"] for point in points]


def _given(overrides: Sequence[str]) -> dict[str, tune.Axis]:
    """What the command line gives, by key, without what says how the sweep is launched.

    Raises:
        ConfigError: an override that cannot be parsed.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        found = {}
        for one in OverridesParser.create().parse_overrides(list(overrides)):
            key = one.get_key_element()
            name = key.lstrip("+~").partition(".")[0]
            if one.is_sweep_override() and (name.startswith("hydra") or name == "tune"):
                how = "launched" if name.startswith("hydra") else "searched"
                raise ConfigError(f"{one.input_line}: one value; how a sweep is {how} is not an axis")
            if not name.startswith("hydra"):
                found[key] = _read(key, one)
        return found
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split())) from error


def _read(key: str, one: Any) -> tune.Axis:
    """A parsed override as an axis; one with a single value has that alone."""
    from hydra.core.override_parser.types import RangeSweep

    if not one.is_sweep_override():
        return tune.Axis(key, (one.get_value_element_as_str(),))
    value = one.value()
    if not one.is_discrete_sweep():
        return tune.Axis(key, low=value.start, high=value.end, log="log" in value.tags)
    values = tuple(one.sweep_string_iterator())
    if not isinstance(value, RangeSweep) or value.shuffle or len(values) < 2:
        return tune.Axis(key, values)
    low, high = sorted((float(values[0]), float(values[-1])))
    return tune.Axis(
        key, values if value.step > 0 else values[::-1], low, high, (high - low) / (len(values) - 1)
    )


SWEPT = re.compile(r"(tag\(.*)?(interval|range|choice)\(")
"""How a string begins that a preset's axis has in Hydra's sweep grammar."""


def _axis(key: str, axis: Any) -> tune.Axis:
    """A preset's axis: a list of values, one value, or Hydra's sweep grammar as a string."""
    if isinstance(axis, str) and SWEPT.match(axis):
        return _given([f"{key}={axis}"])[key]
    return tune.Axis(key, tuple(sweep.written(value) for value in sweep.values(key, axis)))


def _preset(given: Mapping[str, tune.Axis]) -> tuple[Any, Any]:
    """The preset's grids, and how they are searched (`tune.Untuned`: not at all)."""
    presets = given["experiment"].values if "experiment" in given else ()
    if len(presets) > 1:
        raise ConfigError("experiment: one preset at a time; its sweep is a union of grids")
    words = [
        f"{key}={axis.values[0]}"
        for key, axis in given.items()
        if key.lstrip("+~").partition(".")[0] in ("experiment", "tune")
    ]
    if not words:
        return [], tune.Untuned()
    config: Any = OmegaConf.to_container(_compose(words), resolve=False)
    return config["sweep"], schema.build_one("tune", config["tune"])


def _space(overrides: Sequence[str], composed: dict[tuple[str, ...], DictConfig]) -> tune.Space:
    """What a tuned sweep searches: the preset's one grid, with what the command line gives put over it.

    Raises:
        ConfigError: a union of grids, an interval that is none, an option that no choice has.
    """
    given = _given(overrides)
    grids = _preset(given)[0]
    if len(grids) > 1:
        raise ConfigError(
            f"tune=optuna searches one space, and the preset is a union of {len(grids)} grids. "
            "Use a preset with one, such as experiment=tune"
        )
    held = {key: _axis(key, axis) for grid in grids for key, axis in grid.items()}
    axes = list((held | given).values())
    fixed = {axis.key: axis.values[0] for axis in axes if len(axis.values) == 1}
    space = tune.Space(fixed, tuple(axis for axis in axes if axis.key not in fixed))
    homes = {axis.key: _home(axis.key, space, composed) for axis in axes if not axis.choice}
    for axis in axes:
        if axis.key in given and homes.get(axis.key, True) is None:
            _compose(
                [*next(_choices_of(space)), f"{axis.key}={axis.ends[0]}"]
            )  # it says which option is near
            raise ConfigError(f"{axis.key}: no choice of the space has this option")
    # A preset's option whose choices the command line has replaced is for none.
    known = [axis for axis in space.axes if homes.get(axis.key, True) is not None]
    if not known:
        raise ConfigError(
            "tune=optuna: nothing to search. Give several values or an interval, such as "
            "selector.weight='interval(0,1)' budget.tokens=64,128,256"
        )
    return replace(space, axes=tuple(_typed(axis, homes.get(axis.key)) for axis in known))


def _home(key: str, space: tune.Space, composed: dict[tuple[str, ...], DictConfig]) -> DictConfig | None:
    """The config of the first choices that have an option."""
    found = (words for words in _choices_of(space) if _has(words, key, composed))
    words = next(found, None)
    return None if words is None else _composed(words, composed)


def _typed(axis: tune.Axis, home: DictConfig | None) -> tune.Axis:
    """An interval of an option that is a whole number has whole numbers. home: the config of choices that have it.

    Raises:
        ConfigError: an interval that is none.
    """
    if axis.values:
        return axis
    if not (axis.low < axis.high and (axis.low > 0 or not axis.log)):
        raise ConfigError(
            f"{axis.key}: an interval goes from a smaller to a larger number; under log, above 0"
        )
    usual = None if home is None else OmegaConf.select(home, axis.key)
    whole = isinstance(usual, int) and not isinstance(usual, bool)
    if whole and not (axis.low.is_integer() and axis.high.is_integer()):
        raise ConfigError(f"{axis.key}: a whole number, so its interval ends in whole numbers")
    return replace(axis, whole=whole)


def _choices_of(space: tune.Space) -> Iterator[list[str]]:
    """Every combination of the space's choices, as overrides."""
    fixed = [f"{key}={text}" for key, text in space.fixed.items() if "." not in key]
    choices = [[f"{axis.key}={text}" for text in axis.ends] for axis in space.axes if axis.choice]
    return ([*fixed, *combination] for combination in itertools.product(*choices))


def _composed(words: Any, composed: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    """The config of a point's choices, without its options."""
    choices = tuple(
        word for word in words if "." not in word.partition("=")[0] and not word.startswith("sweep=")
    )
    choices = (*choices, "sweep=[]")
    if choices not in composed:
        composed[choices] = _compose(choices)
    return composed[choices]


def _has(words: Any, key: str, composed: dict[tuple[str, ...], DictConfig]) -> bool:
    """Whether a point with these choices has an option."""
    if key.startswith(("+", "~")):
        return True
    if isinstance(words, Mapping):
        words = [f"{name}={text}" for name, text in words.items()]
    where, _, name = key.rpartition(".")
    node = OmegaConf.select(_composed(words, composed), where)
    return isinstance(node, DictConfig) and name in node.keys()  # noqa: SIM118 (one without a value is there too)


def _preflight_of_a_space(overrides: Sequence[str]) -> list[schema.Parts]:
    """Every value of the space, an interval by its ends, can be run with some of its choices, the other options as first given.

    Returns:
        The first point that can be run.

    Raises:
        ConfigError: names the option.
    """
    composed: dict[tuple[str, ...], DictConfig] = {}
    space = _space(overrides, composed)
    has = partial(_has, composed=composed)
    first: list[schema.Parts] = []
    for wanted in [(axis.key, end) for axis in space.axes for end in axis.ends]:
        why = None
        for words in _choices_of(space):
            chosen = dict(word.split("=", 1) for word in words) | dict([wanted])
            if "." in wanted[0] and not has(chosen, wanted[0]):
                continue
            point = space.choose(has, lambda axis, chosen=chosen: chosen.get(axis.key, axis.ends[0]))  # type: ignore[misc]
            try:
                first.append(_checked(_compose_near(point, composed)))
                break
            except ConfigError as error:
                why = why or error
        else:
            assert why is not None
            raise why
    options = first[0].tune
    if options.held_out is not None and first[0].dataset.split in (options.held_out, "all"):
        raise ConfigError(
            f"tune.held_out={options.held_out}: the search would see that split, dataset.split={first[0].dataset.split}. "
            "Search on dataset.split=tune, or say that nothing is held out: tune.held_out=null"
        )
    return first[:1]


def _writable(output_dir: Path) -> None:
    """Refuse an output folder before the first run rather than after it.

    Raises:
        ConfigError: it cannot be made or written.
    """
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output_dir):
            pass
    except OSError as error:
        raise ConfigError(
            f"output_dir={output_dir}: {error.strerror}. Name a folder that can be written"
        ) from error


def _preflight(overrides: Sequence[str], multirun: bool) -> list[schema.Parts]:
    """Compose and check every point before the first is paid for.

    Returns:
        Each point's components, in the plan's order.

    Raises:
        ConfigError: names the option, and the point where it is not the only one.
    """
    if not multirun:
        config = _compose(overrides)
        _refuse_grid(config, overrides)
        return [_checked(config)]
    if isinstance(_preset(_given(overrides))[1], tune.Optuna):
        return _preflight_of_a_space(overrides)
    points = _plan(overrides)
    composed: dict[tuple[str, ...], DictConfig] = {}
    found = []
    for at, point in enumerate(points):
        try:
            found.append(_checked(_compose_near(point, composed)))
        except ConfigError as error:
            where = f" (point {at + 1} of {len(points)}: {' '.join(point[:-1])})" if len(points) > 1 else ""
            raise ConfigError(f"{error}{where}") from error
    return found


def _ready(points: Sequence[schema.Parts]) -> None:
    """Refuse what would not be answered: a plan needs no key, and a run does.

    Raises:
        ConfigError: from a generator's own `ready`.
    """
    for parts in points:
        if check := getattr(parts.generator, "ready", None):
            check()


def _may_launch(overrides: Sequence[str], first: schema.Parts) -> None:
    """Refuse a launcher that is not here, and stores where its jobs could not share them.

    Raises:
        ConfigError: names the package or the folder, and the way out.
    """
    from outlay.cache import cache_dir
    from outlay.track import store_uri
    from outlay.track.places import check_places

    words = [word for word in overrides if word.lstrip("+~").startswith("hydra")]
    name = "basic"
    if words:
        name = str(_compose(words, with_hydra=True).hydra.runtime.choices["hydra/launcher"])
    launch.installed(name)
    check_places(store_uri(first.tracking, Path(first.settings.output_dir)), cache_dir(), name)


def _refuse_grid(config: DictConfig, overrides: Sequence[str]) -> None:
    if OmegaConf.select(config, "tune._target_") == "outlay.tune.Optuna":
        raise ConfigError("tune=optuna searches by a sweep of runs. Add -m: outlay -m " + " ".join(overrides))
    if config.get("sweep"):
        raise ConfigError("this preset is a grid of runs. Add -m: outlay -m " + " ".join(overrides))


def _compose_near(point: Sequence[str], composed: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    """As `_compose`, but points that differ in plain options share one composition: a fifth of the time."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    options = [
        one for one in OverridesParser.create().parse_overrides(list(point)) if "." in one.key_or_group
    ]
    plain = all(not (one.is_add() or one.is_force_add() or one.is_delete() or one.package) for one in options)
    if not plain or any(one.key_or_group.startswith("hydra") for one in options):
        return _compose(point)
    config = copy.deepcopy(_composed(point, composed))
    try:
        for one in options:
            OmegaConf.update(config, one.key_or_group, one.value(), force_add=False)
    except Exception:  # whatever is wrong, Hydra's own composition says it in our words
        return _compose(point)
    return config


def _checked(config: DictConfig) -> schema.Parts:
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", "") or ""
        raise ConfigError(
            f"{key}: {' '.join(str(error).split('full_key')[0].split())}. Set {key}=..."
        ) from error
    written: Any = OmegaConf.to_container(config, resolve=False)
    if re.search(r"//[^/@$]*:[^/@$]+@", str(written["tracking"]["uri"])):  # it would be kept in config files
        raise ConfigError(
            "tracking.uri: a password in it would be written into config files. Take it from the environment, "
            "tracking.uri='http://${oc.env:TRACKING_USER}:${oc.env:TRACKING_PASSWORD}@HOST:PORT', or set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        )
    return schema.build(plain)  # type: ignore[arg-type]


# ---------------------------------------------------------------- run


def _hydra_main() -> None:
    import hydra

    # Hydra prints errors in its own way and exits; asked for full ones it lets them pass, and `main` says them.
    os.environ.setdefault("OUTLAY_TRACES", os.environ.get("HYDRA_FULL_ERROR", "0"))
    os.environ["HYDRA_FULL_ERROR"] = "1"
    hydra.main(version_base="1.3", config_path=str(schema.conf_dir()), config_name="config")(_job)()


def _job(config: DictConfig) -> Ended:
    """Hydra's task: one point. Its failure is returned, so that it hides no other point's."""
    from hydra.core.hydra_config import HydraConfig

    launch.enter()
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir)
    chosen = _choices(hydra_config)
    multirun = hydra_config.mode is not None and hydra_config.mode.name == "MULTIRUN"
    ended = Ended("", "FAILED", _plain(config), chosen, {}, str(folder), code=_code())
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
        if _traces():
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

    parts = _checked(config)
    if launch.apart():  # bars of several processes would be drawn over each other
        parts = replace(parts, settings=replace(parts.settings, verbose=False))
    sweep_id = os.environ.get("OUTLAY_SWEEP_ID", "")
    parent = os.environ.get("OUTLAY_PARENT_RUN") or None
    tags = {"sweep_id": sweep_id, "point": folder.name} if parent else {}
    earlier = json.loads(os.environ.get("OUTLAY_RETRY_OF", "{}")).get(folder.name)
    if parent:
        tags |= json.loads(os.environ.get("OUTLAY_TAGS", "{}"))
        tags |= {"retry_of": earlier} if earlier else {}
    return run_point(parts, _plain(config), OmegaConf.to_yaml(config), chosen, folder, tags, parent)


def _plain(config: DictConfig) -> dict[str, Any]:
    """The resolved config as it may be kept: what comes from the environment stands as its `${oc.env:...}` name."""

    def kept(raw: Any, resolved: Any) -> Any:
        if isinstance(raw, dict):
            return {key: kept(raw[key], resolved[key]) for key in raw}
        return raw if "oc.env:" in str(raw) else resolved

    raw, resolved = (OmegaConf.to_container(config, resolve=resolve) for resolve in (False, True))
    found: dict[str, Any] = kept(raw, resolved)
    return found


def _name(config: DictConfig, folder: Path) -> str:
    """A failed point's name; one that was never built has its folder's."""
    from outlay.runner import run_name

    try:
        return run_name(_checked(config))
    except ConfigError:
        return f"run {folder.name}"


def _choices(hydra_config: Any) -> dict[str, str]:
    return {
        group: str(choice) for group, choice in hydra_config.runtime.choices.items() if group in schema.GROUPS
    }


def run_from_python(overrides: Sequence[str]) -> "Result":
    """One tracked run without the command line; see `outlay.run`."""
    config = _compose(overrides, with_hydra=True)
    _refuse_grid(config, overrides)
    chosen = _choices(config.hydra)
    with open_dict(config):
        del config["hydra"]
    parts = _checked(config)
    _ready([parts])
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S-%f}"
    folder = Path(parts.settings.output_dir) / parts.tracking.experiment / "single" / stamp
    from outlay.runner import run_point

    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(OmegaConf.to_yaml(list(overrides)))
    (folder / ".hydra" / "config.yaml").write_text(OmegaConf.to_yaml(config))
    return run_point(parts, _plain(config), OmegaConf.to_yaml(config), chosen, folder, {}, None)


def _report(ended: Ended, number: int | None) -> None:
    """What one point printed: the result, or the error as the last line."""
    from outlay.report import terminal

    verbose = bool(ended.config.get("verbose", True))
    if launch.apart():
        return  # the sweep hears of it by its record
    if number is not None:
        if verbose:
            total = int(os.environ.get("OUTLAY_SWEEP_POINTS", "0"))
            terminal.point(ended, number + 1, total, _apart.get(number, ""))
        return
    if ended.status == "FAILED":
        print(f"outlay: {ended.error}", file=sys.stderr)
    elif verbose:
        terminal.single(ended)


def run_sweep(arguments: Sequence[str], launcher: "Launcher", folder: Path) -> Any:
    """Run the plan's points under one tracked parent, which ends as they did; failures are listed at the end."""
    try:
        return _run_sweep(_arguments or arguments, launcher, folder)
    except OutlayError as error:
        _refused.append(error)
        return []


def _run_sweep(arguments: Sequence[str], launcher: "Launcher", folder: Path) -> Any:
    from outlay import track
    from outlay.report import terminal
    from outlay.track.origins import changes

    first = _points[0]
    output_dir = Path(first.settings.output_dir)
    resumed = _resumed[0] if _resumed else None
    sweep_id = os.environ["OUTLAY_SWEEP_ID"]
    composed: dict[tuple[str, ...], DictConfig] = {}
    study: _Study | None = None
    if isinstance(first.tune, tune.Optuna):
        study = _Study(_space(arguments, composed), composed, first)
        points = study.planned(resumed) if resumed else ()
    else:
        overrides = _plan(arguments)
        points = record.planned(overrides, [_plain(_compose(words)) for words in overrides])
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
            {"kind": "sweep", "sweep_id": sweep_id, "command": " ".join(arguments)[:5000]},
        )
        earlier = {}
    plan = record.Plan(sweep_id, tuple(arguments), parent.run_id, this_process(), points)
    record.write_plan(folder, plan)
    if changes():
        (folder / "changes.diff").write_text(changes())
        parent.artifact(folder / "changes.diff")
    (folder / record.STOPPED).unlink(missing_ok=True)
    done = record.finished(folder, plan)
    if first.settings.reuse:
        done = _reused(points, done, output_dir, sweep_id, parent) | done
    before = set(done)
    trials = first.tune.trials if study else 0
    if first.settings.verbose:
        terminal.sweep_starts(len(points), len(done), folder, trials)
    os.environ["OUTLAY_PARENT_RUN"] = parent.run_id
    os.environ["OUTLAY_SWEEP_POINTS"] = str(trials or len(points))
    os.environ["OUTLAY_SWEEP_PROCESS"] = this_process()
    shared, gave_up = 0, None
    try:
        rounds = (
            study.rounds(plan, done, folder)
            if study
            else iter([[one for one in points if one.number not in done]])
        )
        for todo in rounds:
            _apart.update(_told_apart(todo, study))
            for point in todo:
                record.put_aside(folder, point.number)
            shared += _union([_points[point.number] for point in todo], sweep_id, first.settings.verbose)
            tags = study.tags(todo) if study else {}
            new, gave_up = _launched(launcher, todo, earlier, tags, folder, parent)
            done |= new
            if gave_up:
                break
        # A launcher that runs jobs in other processes fills `_ended` there, not here.
        _ended[:] = [done[number] for number in sorted(done)]
        unfinished = [one for one in _ended if one.status != "FINISHED"]
        front = _keep_sweep(done, folder, parent, shared, study)
        failed = gave_up or any(one.status == "FAILED" for one in unfinished)
        parent.end("FAILED" if failed else "KILLED" if unfinished else "FINISHED", gave_up)
    except BaseException as error:
        launch.leave()
        track.end_children(parent)
        stopped = isinstance(error, SpendLimitReached) or not isinstance(error, Exception)
        parent.end("KILLED" if stopped else "FAILED", error)
        raise
    if first.settings.verbose:
        made = shared + sum(
            int(one.metrics.get("cache/generated_tokens", 0))
            for number, one in done.items()
            if number not in before
        )
        terminal.sweep_ends(
            _ended, folder, track.ui_command(first.tracking, output_dir), front, (made, shared)
        )
    if unfinished:
        terminal.failures(_ended, sweep_id)
    if gave_up:
        raise gave_up
    return _ended


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
        self._has = partial(_has, composed=composed)
        _points.clear()

    def planned(self, resumed: record.Plan) -> tuple[record.PlanPoint, ...]:
        """The points that a sweep to be resumed has planned, as this command gives them."""
        plans = []
        for point in resumed.points:
            words = dict(word.split("=", 1) for word in point.overrides)
            held = words.get(tune.SPLIT, "") == self._first.tune.held_out
            given = {key: text for key, text in self._space.fixed.items() if self._has(words, key)}
            words |= given | ({tune.SPLIT: words[tune.SPLIT]} if held else {})
            plans.append(self._built([f"{key}={text}" for key, text in words.items()], point.number))
        return tuple(plans)

    def _built(self, words: Sequence[str], number: int) -> record.PlanPoint:
        """A point of the plan; its components go to `_points`.

        Raises:
            ConfigError: it cannot be run.
        """
        config = _compose_near(words, self._composed)
        parts = _checked(config)
        (point,) = record.planned([words], [_plain(config)], number)
        _points[number:] = [parts]
        return point

    def rounds(
        self, plan: record.Plan, done: dict[int, Ended], folder: Path
    ) -> Iterator[list[record.PlanPoint]]:
        """The points to run next, until the study has its trials; then the front's, on the held-out split.

        done: how points ended, filled by the caller before the next round is asked for.
        """
        options, settings = self._first.tune, self._first.settings
        search = self._search = tune.Search(options, self._space, settings.seed, folder, len(plan.points))
        points = list(plan.points)

        def added(words: Sequence[str]) -> record.PlanPoint:
            new = self._built(words, len(points))
            same = next((one for one in points if one.hash == new.hash), None)
            if same is None:
                points.append(new)
            else:
                del _points[new.number :]
            return same or new

        left = [point for point in points if point.number not in done]
        if left:
            yield left
        search.tell(done)
        while search.left and not self._stopped(done, settings.fail_fast):
            places, passed_over = {}, {}
            for trial, words in search.ask(self._has).items():
                try:
                    places[trial] = added(words).number
                except ConfigError as error:
                    passed_over[trial] = str(error)
            search.place(places, passed_over)
            record.write_plan(folder, replace(plan, points=tuple(points)))
            fresh = [
                point for point in points if point.number in places.values() and point.number not in done
            ]
            if fresh:
                yield fresh
            search.tell(done)
            if fresh and all(done[point.number].status == "FAILED" for point in fresh):
                return  # the next round would be paid for in vain
        if options.held_out is None or self._stopped(done, settings.fail_fast):
            return
        held = {}
        for best in search.front():
            own = points[best.point or 0].overrides
            there = [word for word in own if not word.startswith(f"{tune.SPLIT}=")]
            held[added([*there, f"{tune.SPLIT}={options.held_out}"]).number] = best.number
        search.hold_out(held)
        record.write_plan(folder, replace(plan, points=tuple(points)))
        last = [points[number] for number in held if number not in done]
        if last:
            yield last

    def _stopped(self, done: Mapping[int, Ended], fail_fast: bool) -> bool:
        stops = ("KILLED", "SKIPPED", *(["FAILED"] if fail_fast else []))
        return any(one.status in stops for one in done.values())

    def tags(self, todo: Sequence[record.PlanPoint]) -> dict[int, dict[str, str]]:
        """Point -> the tags of its run: the trial that it answers; or whose settings it has, on the held-out split."""
        found = {}
        for number in (point.number for point in todo):
            held = self._search.held_out.get(number)
            trial = self._search.first_of(number) if held is None else held
            found[number] = {"trial": str(trial)} | ({} if held is None else {"held_out": "true"})
        return found

    def files(self, done: Mapping[int, Ended], folder: Path) -> Any:
        """See `tune.files`."""
        return tune.files(self._search, done, folder)

    def held(self) -> set[int]:
        """The points on the held-out split."""
        return set(self._search.held_out)

    def varies(self, point: record.PlanPoint) -> list[str]:
        """The overrides that the study chose."""
        keys = {axis.key for axis in self._space.axes} | {tune.SPLIT}
        return [word for word in point.overrides if word.partition("=")[0] in keys]


def _told_apart(todo: Sequence[record.PlanPoint], study: _Study | None) -> dict[int, str]:
    """Point -> the overrides that other points have otherwise, as far as its name does not say them."""
    from outlay.runner import run_name

    each = {point.number: dict(word.split("=", 1) for word in point.overrides) for point in todo}
    values: dict[str, set[str]] = {}
    for words in each.values():
        for key, text in words.items():
            values.setdefault(key, set()).add(text)
    found = {}
    for point in todo:
        name = set(run_name(_points[point.number]).lower().split())
        varies = [f"{key}={text}" for key, text in each[point.number].items() if len(values[key]) > 1]
        chosen = study.varies(point) if study else varies
        unsaid = [word for word in chosen if not _ways_to_say(word) & name]
        found[point.number] = " ".join(unsaid)
    return found


def _launched(
    launcher: "Launcher",
    todo: Sequence[record.PlanPoint],
    earlier: Mapping[str, str],
    tags: Mapping[int, Mapping[str, str]],
    folder: Path,
    parent: Any,
) -> tuple[dict[int, Ended], OutlayError | None]:
    """How each point ended; and why the launcher gave up, where a worker died or its cluster went away."""
    from outlay import track
    from outlay.report import terminal
    from outlay.runner import run_name

    if not todo:
        return {}, None
    total, verbose = int(os.environ["OUTLAY_SWEEP_POINTS"]), _points[0].settings.verbose
    words = [
        [*point.overrides, *launch.carried(folder, point.number, earlier, tags.get(point.number))]
        for point in todo
    ]
    elsewhere = [point.number for point in todo] if verbose and not _is_basic(launcher) else []
    try:
        launch.settle(launcher)
        with launch.heard(
            folder,
            elsewhere,
            lambda one, number: terminal.point(one, number + 1, total, _apart.get(number, "")),
        ):
            returns = launcher.launch(words, initial_job_idx=0)
            return {point.number: one.return_value for point, one in zip(todo, returns, strict=True)}, None
    except Exception as error:
        if _traces():
            traceback.print_exc()
        launch.leave()
        track.end_children(parent)
        why = launch.reason(error)
        found = {
            point.number: launch.lost(folder, point.number, run_name(_points[point.number]), why)
            for point in todo
        }
        sweep_id = os.environ["OUTLAY_SWEEP_ID"]
        return found, OutlayError(
            f"the launcher gave up: {why} What has finished is kept: outlay -m resume={sweep_id}"
        )


def _is_basic(launcher: "Launcher") -> bool:
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher

    return isinstance(launcher, BasicLauncher)


def _reused(
    points: Sequence[record.PlanPoint],
    done: Mapping[int, Ended],
    output_dir: Path,
    sweep_id: str,
    parent: Any,
) -> dict[int, Ended]:
    """Points that another sweep has finished: linked from the parent's tags and the table, not copied."""
    wanted = {point.hash for point in points if point.number not in done}
    found = record.elsewhere(output_dir, wanted, _code(), but=sweep_id)
    linked = {point.number: found[point.hash] for point in points if point.hash in found}
    parent.tags({f"reused.{number}": one.run_id for number, one in linked.items()})
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
        progress(0, rows, tokens)

    try:
        with (
            Progress("what all points ask first", None, verbose) as progress,
            # The points that the store can answer still finish; the others are refused their own next call.
            contextlib.suppress(SpendLimitReached),
        ):
            union(points, store, sweep_id, told)
    finally:
        store.close()
    return made


def _keep_sweep(
    done: Mapping[int, Ended],
    folder: Path,
    parent: Any,
    shared: int,
    study: "_Study | None",
) -> Any:
    """The sweep's tables and figures, beside its points and as artifacts of the parent; its totals as metrics.

    Returns:
        The front's table, where there is one.
    """
    from outlay.report import sweep_files

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
