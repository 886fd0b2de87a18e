"""The command line, and the only module that knows Hydra (a sweeper must live in `hydra_plugins`, and calls it): compose, check, run.

Everything that can be refused is refused in `_preflight`, before a model, a data set or the tracking store is touched.
"""

import copy
import json
import math
import os
import re
import secrets
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf, open_dict

from outlay import __version__, launch, record, schema, sweep
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


def main() -> None:
    """The console script."""
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
            return _say_plan()
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


def _say_plan() -> int:
    from outlay.cache import cache_dir
    from outlay.generate.store import Store
    from outlay.plan import plan
    from outlay.report import terminal

    store = Store(cache_dir() / "completions.sqlite")
    try:
        found = plan(_points, store)
    finally:
        store.close()
    terminal.plan(found)
    return 1 if found.failed else 0


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


def _report_runs(words: Sequence[str]) -> int:
    from outlay.report.command import report

    return report(words)


def _import(words: Sequence[str]) -> int:
    from outlay.imports import run

    return run(words)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "doctor": _doctor,
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
    return nearest(wrong, known) if known else "That choice has no options."


def _plan(overrides: Sequence[str]) -> list[list[str]]:
    """The points of a multirun: the preset's grids crossed with the command line.

    Raises:
        ConfigError: an override that cannot be parsed, a wrong preset.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        given: dict[str, list[str]] = {}
        for one in parsed:
            if one.get_key_element().lstrip("+~").startswith("hydra"):  # of the sweep, not of a point
                if one.is_sweep_override():
                    raise ConfigError(f"{one.input_line}: one value; how a sweep is launched is not an axis")
            elif one.is_sweep_override():
                if not one.is_discrete_sweep():
                    raise ConfigError(
                        f"{one.input_line}: only lists of values can be swept, e.g. a=1,2,3 or a=range(1,4)"
                    )
                given[one.get_key_element()] = list(one.sweep_string_iterator())
            else:
                given[one.get_key_element()] = [one.get_value_element_as_str()]
    except HydraException as error:
        raise ConfigError(" ".join(str(error).split())) from error
    presets = given.get("experiment", [])
    if len(presets) > 1:
        raise ConfigError("experiment: one preset at a time; its sweep is a union of grids")
    grids: Any = []
    if presets and presets[0] != "null":
        grids = OmegaConf.to_container(_compose([f"experiment={presets[0]}"]), resolve=False)["sweep"]  # type: ignore[index,call-overload]
    points = sweep.points(grids, given)
    # The plan is the sweep's; a point carries its own overrides only, so its hash does not depend on its neighbours.
    return [[*point, "sweep=[]"] for point in points]


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
    if config.get("sweep"):
        raise ConfigError("this preset is a grid of runs. Add -m: outlay -m " + " ".join(overrides))


def _compose_near(point: Sequence[str], composed: dict[tuple[str, ...], DictConfig]) -> DictConfig:
    """As `_compose`, but points that differ in plain options share one composition: a fifth of the time."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    choices = tuple(word for word in point if "." not in word.partition("=")[0])
    options = [
        one for one in OverridesParser.create().parse_overrides(list(point)) if "." in one.key_or_group
    ]
    plain = all(not (one.is_add() or one.is_force_add() or one.is_delete() or one.package) for one in options)
    if not plain or any(one.key_or_group.startswith("hydra") for one in options):
        return _compose(point)
    if choices not in composed:
        composed[choices] = _compose(choices)
    config = copy.deepcopy(composed[choices])
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
    if parent and earlier:
        tags["retry_of"] = earlier
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
            terminal.point(ended, number + 1, int(os.environ.get("OUTLAY_SWEEP_POINTS", "0")))
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

    overrides = _plan(arguments)
    points = record.planned(overrides, [_plain(_compose(words)) for words in overrides])
    first = _points[0]
    output_dir = Path(first.settings.output_dir)
    resumed = _resumed[0] if _resumed else None
    sweep_id = os.environ["OUTLAY_SWEEP_ID"]
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
    todo = [point for point in points if point.number not in done]
    for point in todo:
        record.put_aside(folder, point.number)
    if first.settings.verbose:
        terminal.sweep_starts(len(points), len(done), folder)
    os.environ["OUTLAY_PARENT_RUN"] = parent.run_id
    os.environ["OUTLAY_SWEEP_POINTS"] = str(len(points))
    os.environ["OUTLAY_SWEEP_PROCESS"] = this_process()
    try:
        shared = _union([_points[point.number] for point in todo], sweep_id, first.settings.verbose)
        new, gave_up = _launched(launcher, todo, earlier, folder, parent)
        # A launcher that runs jobs in other processes fills `_ended` there, not here.
        _ended[:] = [(done | new)[point.number] for point in points]
        unfinished = [one for one in _ended if one.status != "FINISHED"]
        _keep_sweep(_ended, folder, parent, shared)
        failed = gave_up or any(one.status == "FAILED" for one in unfinished)
        parent.end("FAILED" if failed else "KILLED" if unfinished else "FINISHED", gave_up)
    except BaseException as error:
        launch.leave()
        track.end_children(parent)
        stopped = isinstance(error, SpendLimitReached) or not isinstance(error, Exception)
        parent.end("KILLED" if stopped else "FAILED", error)
        raise
    if first.settings.verbose:
        terminal.sweep_ends(_ended, folder, track.ui_command(first.tracking, output_dir))
    if unfinished:
        terminal.failures(_ended, sweep_id)
    if gave_up:
        raise gave_up
    return _ended


def _launched(
    launcher: "Launcher",
    todo: Sequence[record.PlanPoint],
    earlier: Mapping[str, str],
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
    words = [[*point.overrides, *launch.carried(folder, point.number, earlier)] for point in todo]
    elsewhere = [point.number for point in todo] if verbose and not _is_basic(launcher) else []
    try:
        launch.settle(launcher)
        with launch.heard(folder, elsewhere, lambda one, number: terminal.point(one, number + 1, total)):
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

    store = Store(cache_dir() / "completions.sqlite")
    try:
        with Progress("what all points ask first", None, verbose) as progress:
            return union(
                points, store, sweep_id, lambda rows, tokens: progress(0, rows, tokens)
            ).generated_tokens
    finally:
        store.close()


def _keep_sweep(ended: Sequence[Ended], folder: Path, parent: Any, shared: int) -> None:
    """The sweep's tables and figures, beside its points and as artifacts of the parent; its totals as metrics."""
    from outlay.report import sweep_files

    finished = [one for one in ended if one.status == "FINISHED"]
    found: dict[str, float] = {}
    for path in sweep_files(finished, folder):
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
        {**found, **totals, "points": float(len(ended)), "points_failed": float(len(ended) - len(finished))}
    )
