"""Points that run in other processes: what their jobs are told, how the sweep hears of their ends, what is true when a launcher gives up.

Launchers are Hydra's plugins; `multirun.py` starts them. What a job must know goes with it as `hydra.job.env_set`, which every
launcher applies around the job: no worker's own environment, nor the order in which workers were started, plays a part.
"""

import importlib.util
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlay import record
from outlay.errors import ConfigError, OutlayError
from outlay.process import this_process
from outlay.record import Ended

PACKAGES = {
    "joblib": "hydra-joblib-launcher",
    "ray": "hydra-ray-launcher",
    "slurm": "hydra-submitit-launcher",
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
}
"""hydra/launcher's choices beside basic, and what each needs installed."""

TOLD = ("OUTLAY_SWEEP_ID", "OUTLAY_PARENT_RUN", "OUTLAY_SWEEP_POINTS", "OUTLAY_SWEEP_PROCESS")
PLACES = ("OUTLAY_CACHE_DIR", "OUTLAY_OUTPUT_DIR")
POLL_S = 0.5
"""How often the sweep looks for the records of points that have ended."""


def installed(launcher: str) -> None:
    """Raises ConfigError where a launcher's plugin is not installed."""
    package = PACKAGES.get(launcher)
    if package and importlib.util.find_spec("hydra_plugins." + package.replace("-", "_")) is None:
        raise ConfigError(
            f"hydra/launcher={launcher} needs the package {package}: pip install 'outlay[launchers]'"
        )


def carried(
    folder: Path, number: int, earlier: Mapping[str, str], tags: Mapping[str, str] | None = None
) -> list[str]:
    """Overrides that tell a point's job its folder and its sweep. A point keeps its number whichever others are left to run.

    earlier: point -> the tracked run that it repeats; tags: further ones of this point's run.
    """
    import json

    mine = {point: run for point, run in earlier.items() if point == str(number)}
    told = {name: os.environ[name] for name in TOLD if name in os.environ}
    told |= {name: str(Path(os.environ[name]).absolute()) for name in PLACES if name in os.environ}
    told |= {"OUTLAY_RETRY_OF": json.dumps(mine), "OUTLAY_TAGS": json.dumps(dict(tags or {}))}
    told["OUTLAY_CWD"] = str(Path.cwd())
    return [
        f"hydra.sweep.dir={_quoted(str(folder.absolute()))}",
        f"hydra.sweep.subdir='{number}'",
        *(f"+hydra.job.env_set.{name}={_quoted(value)}" for name, value in told.items()),
    ]


RAY: dict[str, dict[str, Any]] = {
    "init": {
        "log_to_driver": False,  # the sweep itself says how each point ended
        "logging_level": "ERROR",
        "include_dashboard": False,
        "object_store_memory": None,  # the plugin's own number is refused together with an address
    },
    "remote": {
        "max_retries": 0
    },  # a point whose process dies is KILLED, not run again unseen beside its first tracked run
}


def settle(launcher: Any) -> None:
    """Start Ray, where it is the launcher, with what a sweep needs of it and the command does not say."""
    options = getattr(launcher, "ray_cfg", None)
    if options is None or ("ray" in sys.modules and sys.modules["ray"].is_initialized()):
        return  # not Ray; or started for an earlier round
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from omegaconf import OmegaConf, open_dict

    for part, wanted in RAY.items():
        with open_dict(options[part]):
            for key, value in wanted.items():
                options[part].setdefault(key, value)
    if options.init.address is None and "RAY_ADDRESS" not in os.environ:
        options.init.address = "local"  # else Ray would join whatever cluster it finds on this machine
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**OmegaConf.to_container(options.init, resolve=True))  # type: ignore[arg-type]
    except ConnectionError as error:
        raise OutlayError(
            f"{error}. Does it run (ray status)? For a cluster with a token, set RAY_AUTH_MODE=token"
        ) from error
    signal.signal(signal.SIGTERM, handler)  # Ray puts its own there, which ends the process before its runs


def _quoted(value: str) -> str:
    """A string as Hydra's override grammar, and then OmegaConf, read it back."""
    plain = value.replace("${", "\\${")
    # Only a quote, and the backslashes right before one (the last one too), are escaped.
    return "'" + re.sub(r"(\\*)('|\Z)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), plain) + "'"


def apart() -> bool:
    """Whether this process runs a job of a sweep that another one holds."""
    return os.environ.get("OUTLAY_SWEEP_PROCESS", this_process()) != this_process()


def enter() -> None:
    """Where a job starts in another folder than its sweep, go there: overrides hold relative paths."""
    there = os.environ.get("OUTLAY_CWD")
    if there and Path(there).is_dir() and Path.cwd() != Path(there):
        os.chdir(there)


@contextmanager
def heard(folder: Path, numbers: Sequence[int], say: Callable[[Ended, int], None]) -> Iterator[None]:
    """Say each point's end as its record appears, in this process alone: lines of several workers would mix, or not arrive."""
    left = list(numbers)
    over = threading.Event()

    def look() -> None:
        for number in list(left):
            ended = record.read_ended(folder / str(number))
            if ended is not None:
                left.remove(number)
                say(ended, number)

    def listen() -> None:
        while not over.wait(POLL_S):
            look()

    ear = threading.Thread(target=listen, daemon=True)
    ear.start()
    try:
        yield
    finally:
        over.set()
        ear.join()
        look()


def lost(folder: Path, number: int, name: str, why: str) -> Ended:
    """How a point stands whose launcher gave up: as it recorded, else killed, or never started."""
    place = folder / str(number)
    kept = record.read_ended(place)
    if kept is not None:
        return kept
    if (place / "run.log").exists():
        return Ended(name, "KILLED", {}, {}, {}, str(place), error=f"it had not ended: {why}")
    return Ended(name, "SKIPPED", {}, {}, {}, str(place), error="not started")


def reason(error: BaseException) -> str:
    """A launcher's error in a line: its kind and its first sentence."""
    text = " ".join(str(error).split())
    if isinstance(error, OutlayError):
        return text + "."
    return f"{type(error).__name__}: {re.split(r'(?<=[.!]) ', text)[0]}".rstrip(": ")


def leave() -> None:
    """Keep Ray from starting the points that wait; other launchers do so by themselves."""
    ray = sys.modules.get("ray")
    if ray is not None:
        ray.shutdown()
