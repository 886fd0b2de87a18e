"""Tracked runs. The only module that knows MLflow; it is imported when a run starts, not before."""

import logging
import math
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from outlay import __version__
from outlay.errors import ConfigError, OutlayError


@dataclass(frozen=True)
class Tracking:
    """uri: null takes the SQLite file `mlflow.db` in the output folder."""

    uri: str | None = None
    experiment: str = "outlay"
    log_text: bool = True

    name: ClassVar[str] = "local"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w. -]*", self.experiment):
            raise ConfigError(
                f"tracking.experiment={self.experiment!r} names a folder too: letters, digits, spaces, - _ and ."
            )


@dataclass
class TrackedRun:
    """One run in the tracking store; every way to end it leaves a true status."""

    client: Any
    run_id: str
    ended: bool = field(default=False)

    def params(self, values: Mapping[str, Any]) -> None:
        """Flat config values; the whole config is the artifact `config.yaml`."""
        from mlflow.entities import Param

        # 500 characters keep the UI readable; MLflow would cut at 6,000 with a warning only.
        params = [Param(key, str(value)[:500]) for key, value in values.items()]
        for first in range(0, len(params), 100):
            self.client.log_batch(self.run_id, params=params[first : first + 100])

    def metrics(self, values: Mapping[str, float]) -> None:
        """All metrics in one batch."""
        import time

        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        # An infinite cost (nothing was right) would be stored as the largest float, and drawn so.
        known = {key: float(value) for key, value in values.items() if math.isfinite(value)}
        self.client.log_batch(
            self.run_id, metrics=[Metric(key, value, now, 0) for key, value in known.items()]
        )

    def tags(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        self.client.log_batch(self.run_id, tags=[RunTag(key, value[:5000]) for key, value in values.items()])

    def artifact(self, path: Path, folder: str | None = None) -> None:
        self.client.log_artifact(self.run_id, str(path), folder)

    def end(
        self, status: str = "FINISHED", error: BaseException | None = None, private: bool = False
    ) -> None:
        """status: FINISHED, FAILED or KILLED. private: of the error only its kind goes into the store."""
        if self.ended:
            return
        self.ended = True
        try:
            if error is not None:
                self.tags({"error": type(error).__name__ + ("" if private else f": {error}")})
        finally:
            self.client.set_terminated(self.run_id, status)


def start_run(
    tracking: Tracking, output_dir: Path, name: str, tags: Mapping[str, str], parent: str | None = None
) -> TrackedRun:
    """Open a run, RUNNING until `end`; nested where `parent` is a run id."""
    client, experiment = _client(
        store_uri(tracking, output_dir), str(output_dir.resolve()), tracking.experiment
    )
    every = {
        **tags,
        "git_sha": git_sha(),
        "outlay_version": __version__,
        "mlflow.runName": name,
        "mlflow.source.name": "outlay",
    }
    if parent:
        every["mlflow.parentRunId"] = parent
    run = client.create_run(experiment, run_name=name, tags=every)
    return TrackedRun(client, run.info.run_id)


def store_uri(tracking: Tracking, output_dir: Path) -> str:
    """The tracking store's address."""
    return tracking.uri or f"sqlite:///{output_dir.resolve() / 'mlflow.db'}"


def ui_command(tracking: Tracking, output_dir: Path) -> str:
    """What to type to look at the runs."""
    uri = tracking.uri
    if uri is None:
        try:
            path = output_dir.resolve().relative_to(Path.cwd())
        except ValueError:
            path = output_dir.resolve()
        uri = f"sqlite:///{path / 'mlflow.db'}"
    program = "mlflow"
    if not shutil.which(program):  # the environment is not activated: the one that runs this has it
        beside = Path(sys.executable).parent / program
        program = str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)
    return f"{program} ui --backend-store-uri {uri} --port 5000"


def summary(tracking: Tracking, output_dir: Path) -> list[dict[str, Any]]:
    """Every sweep and single run of the store, newest first: name, status, and how its children ended."""
    from collections import Counter

    mlflow = _mlflow()
    uri = store_uri(tracking, output_dir)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        return []
    client = mlflow.MlflowClient(tracking_uri=uri)
    found: list[dict[str, Any]] = []
    children: dict[str, Counter[str]] = {}
    experiments = client.search_experiments()
    for experiment in experiments:
        for run in _all_runs(client, experiment.experiment_id):
            parent = run.data.tags.get("mlflow.parentRunId")
            if parent:
                children.setdefault(parent, Counter())[run.info.status] += 1
            else:
                found.append(
                    {
                        "id": run.info.run_id,
                        "experiment": experiment.name,
                        "name": run.info.run_name,
                        "status": run.info.status,
                        "sweep": run.data.tags.get("kind") == "sweep",
                    }
                )
    for one in found:
        one["children"] = dict(children.get(one["id"], {}))
    return found


def _all_runs(client: Any, experiment_id: str) -> Any:
    token = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _lock_file(uri: str, output_dir: str) -> Path:
    """Beside the SQLite file, which several output folders may share; else in the output folder."""
    if uri.startswith("sqlite:///"):
        path = Path(uri.removeprefix("sqlite:///"))
        if path.parent.is_dir():
            return path.with_name(f".{path.name}.lock")
    return Path(output_dir) / ".mlflow.lock"


def _public(uri: str) -> str:
    """The address without a password."""
    return re.sub(r"//[^/@]*@", "//***@", uri)


@cache
def git_sha() -> str:
    """The commit of the checkout that holds this code, "+dirty" when edited; "" when it is an installed wheel."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "HEAD") + ("+dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


@cache
def _mlflow() -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    for noisy in ("alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow
    for noisy in ("alembic", "mlflow"):  # mlflow sets its own levels on import
        logging.getLogger(noisy).setLevel(logging.ERROR)
    return mlflow


@cache
def _client(uri: str, output_dir: str, experiment: str) -> tuple[Any, str]:
    """A client and the experiment's id. The lock keeps two processes from migrating one new SQLite file."""
    from filelock import FileLock

    mlflow = _mlflow()
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(str(_lock_file(uri, output_dir))):
            client = mlflow.MlflowClient(tracking_uri=uri)
            known = client.get_experiment_by_name(experiment)
            if known is None:
                # Only a local store keeps artifacts beside the outputs; a server knows its own place.
                place = (Path(output_dir) / "mlartifacts").as_uri() if uri.startswith("sqlite:") else None
                return client, client.create_experiment(experiment, artifact_location=place)
            if known.lifecycle_stage == "deleted":
                raise OutlayError(
                    f"tracking.experiment={experiment} was deleted in {uri}; restore it or name another"
                )
            return client, known.experiment_id
    except OutlayError:
        raise
    except Exception as error:  # SQLAlchemy's, the client's and the server's errors share no base
        first = str(error).strip().splitlines()[0]
        raise OutlayError(
            f"tracking.uri={_public(uri)}: {first.replace(uri, _public(uri))}. Give a reachable store, or tracking=local"
        ) from error
