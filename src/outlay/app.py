"""The command line: its words, its commands and its exit codes."""

import math
import os
import secrets
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf, open_dict

from outlay import __version__, multirun, record, schema, sweep, tune
from outlay.compose import (
    checked,
    choices_made,
    compose,
    compose_near,
    has_option,
    may_launch,
    plain,
    preflight,
    ready,
    refuse_grid,
    space_of,
    to_generate,
    writable,
)
from outlay.errors import ConfigError, OutlayError, nearest
from outlay.process import sigterm_interrupts

if TYPE_CHECKING:
    from outlay.record import Ended
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

OF_THE_SWEEP = ("hydra", "output_dir=", "tracking", "verbose=", "experiment=")
"""Overrides that the sweep itself needs: where it goes and how it is launched."""


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
    sigterm_interrupts()
    many = any(word in ("-m", "--multirun") for word in words)
    info = any(word.split("=")[0] in INFO_FLAGS for word in words)
    overrides = [word for word in words if not word.startswith("-") and ("=" in word or word.startswith("~"))]
    sweep_id = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{secrets.token_hex(2)}"
    wanted = next((word.partition("=")[2] for word in overrides if word.startswith("resume=")), "")
    resumed = None
    if wanted and wanted != "null":
        if not many:
            raise ConfigError(f"resume={wanted}: only sweeps are resumed. Add -m: outlay -m resume={wanted}")
        resumed, overrides = _resume(wanted, overrides)
        sweep_id = resumed.sweep_id
    command = None
    if not info:
        points = preflight(overrides, many)
        if points[0].settings.plan:
            return _say_plan(overrides, points)
        ready(points)
        may_launch(overrides if many else [], points[0])
        writable(Path(points[0].settings.output_dir))
        command = multirun.Command(tuple(overrides), tuple(points), resumed)
    os.environ["OUTLAY_SWEEP_ID"] = sweep_id
    if many and not info:
        # Hydra composes a sweep's options once on their own, without the choices that have them; the points are ours.
        sys.argv[1:] = [word for word in words if word.startswith("-")]
        sys.argv += [word for word in overrides if word.lstrip("+~").startswith(OF_THE_SWEEP)]
    ended = multirun.through_hydra(_task, command)
    return 0 if all(one.status == "FINISHED" for one in ended) else 1


def _task(config: DictConfig) -> "Ended":
    """One point. It is here since Hydra names jobs, on Slurm too, after the module of what it is given."""
    return multirun.job(config)


def _resume(wanted: str, overrides: Sequence[str]) -> tuple[record.Plan, list[str]]:
    """The sweep that is to go on; and its overrides, with what this command gives put over them.

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
    keys = {word.partition("=")[0].lstrip("+~") for word in given}
    return plan, [
        *(word for word in plan.words if word.partition("=")[0].lstrip("+~") not in keys),
        *given,
    ]


def _say_plan(overrides: Sequence[str], points: Sequence[schema.Parts]) -> int:
    from outlay.cache import cache_dir
    from outlay.generate.store import Store
    from outlay.plan import plan
    from outlay.report import terminal

    tuned = points[0].tune
    if isinstance(tuned, tune.Optuna):
        points = _drawn(overrides, points[0])
    store = Store(cache_dir() / "completions.sqlite")
    try:
        found = plan(points, store)
    finally:
        store.close()
    if len(found.failed) == len(points):  # no figure is true of anything
        whys = dict.fromkeys(one.partition(": ")[2] for one in found.failed)
        raise ConfigError(f"plan=true: {' '.join(whys)}")
    terminal.plan(found)
    if isinstance(tuned, tune.Optuna):
        terminal.plan_of_a_study(tuned, len(points))
    return 1 if found.failed else 0


def _drawn(overrides: Sequence[str], first: schema.Parts) -> list[schema.Parts]:
    """As many settings as a study has trials, drawn from its space at random: what it will choose is not known."""
    composed: dict[tuple[str, ...], DictConfig] = {}
    space, options = space_of(overrides, composed), replace(first.tune, sampler="random")
    search = tune.Search(options, space, first.settings.seed)
    found: dict[str, schema.Parts] = {}
    while search.left:
        places, passed_over = {}, {}
        for trial, words in search.ask(lambda words, key: has_option(words, key, composed)).items():
            try:
                config = compose_near(words, composed)
                found[sweep.config_hash(plain(config))] = checked(config)
                places[trial] = 0
            except ConfigError as error:
                passed_over[trial] = str(error)
        search.place(places, passed_over)
    return list(found.values())


def _doctor(words: Sequence[str]) -> int:
    from outlay import track
    from outlay.doctor import doctor, runs_of

    output_dir = Path(os.environ.get("OUTLAY_OUTPUT_DIR", "multirun_outputs"))
    uri = next((word.partition("=")[2] for word in words if word.startswith("tracking.uri=")), None)
    others = [word for word in words if word != "--reap" and not word.startswith("tracking.uri=")]
    if len(others) == 2 and others[0] == "--runs" and "--reap" not in words:
        runs_of(others[1], output_dir, uri)
        return 0
    if others or (uri and "--reap" not in words):
        raise ConfigError(
            "usage: outlay doctor [--reap | --runs SWEEP] [tracking.uri=URI], such as outlay doctor --runs last, not "
            + " ".join(others or words)
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
    parts = checked(config)
    chosen = {group: params[group] for group in schema.GROUPS if group in params}
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S-%f}"
    folder = output_dir / parts.tracking.experiment / "rerun" / stamp
    result = run_point(
        parts, plain(config), OmegaConf.to_yaml(config), chosen, folder, {"rerun_of": ids[0]}, None
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

    return generate(words, to_generate)


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
    if multirun.traces():
        traceback.print_exception(error)
    print(f"outlay: {text}", file=sys.stderr)
    return code


def run_from_python(overrides: Sequence[str]) -> "Result":
    """One tracked run without the command line; see `outlay.run`."""
    config = compose(overrides, with_hydra=True)
    refuse_grid(config, overrides)
    chosen = choices_made(config.hydra)
    with open_dict(config):
        del config["hydra"]
    parts = checked(config)
    ready([parts])
    stamp = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S-%f}"
    folder = Path(parts.settings.output_dir) / parts.tracking.experiment / "single" / stamp
    from outlay.runner import run_point

    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(OmegaConf.to_yaml(list(overrides)))
    (folder / ".hydra" / "config.yaml").write_text(OmegaConf.to_yaml(config))
    return run_point(parts, plain(config), OmegaConf.to_yaml(config), chosen, folder, {}, None)
