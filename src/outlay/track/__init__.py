"""Tracked runs. The only module that knows MLflow; it is imported when a run starts, not before."""

import contextlib
import logging
import math
import os
import re
import shutil
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from outlay import __version__
from outlay.errors import ConfigError, OutlayError, nearest
from outlay.process import alive, this_process
from outlay.schema import option
from outlay.track.origins import git_sha


@dataclass(frozen=True)
class Tracking:
    """uri: null takes the SQLite file `mlflow.db` in the output folder."""

    uri: str | None = None
    experiment: str = "outlay"
    log_text: bool = True
    traces: int = option(3, least=0, most=100)

    name: ClassVar[str] = "local"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w. -]*", self.experiment):
            raise ConfigError(
                f"tracking.experiment={self.experiment!r} names a folder too: letters, digits, spaces, - _ and ."
            )


def _again_where_another_was_first() -> Any:
    """MLflow looks whether a row is there and then adds it: of two runs at once the second is refused, and finds it next time."""
    import tenacity

    refused = tenacity.retry_if_exception(
        lambda error: "IntegrityError" in str(error) or "UniqueViolation" in str(error)
    )
    return tenacity.Retrying(
        retry=refused,
        stop=tenacity.stop_after_attempt(5),
        wait=tenacity.wait_random(0, 0.5),
        reraise=True,
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

    def data(self, name: str, digest: str, source: str, split: str) -> None:
        """The data set that the run read, as one of its inputs."""
        import json

        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(
            name=name, digest=digest, source_type="outlay", source=json.dumps({"source": source})
        )
        inputs = [DatasetInput(dataset, [InputTag("mlflow.data.context", split)])]
        for attempt in _again_where_another_was_first():
            with attempt:
                self.client.log_inputs(self.run_id, inputs)

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
        "process": this_process(),
    }
    if parent:
        every["mlflow.parentRunId"] = parent
    run = client.create_run(experiment, run_name=name, tags=every)
    return TrackedRun(client, run.info.run_id)


def reopen(tracking: Tracking, output_dir: Path, run_id: str) -> TrackedRun:
    """A sweep's parent, RUNNING again until `end`.

    Raises:
        OutlayError: the store does not know it.
    """
    uri = store_uri(tracking, output_dir)
    client, _ = _client(uri, str(output_dir.resolve()), tracking.experiment)
    try:
        client.update_run(run_id, status="RUNNING")
        run = TrackedRun(client, run_id)
        run.tags({"process": this_process()})
    except Exception as error:  # of the store or of the server
        first = str(error).strip().splitlines()[0]
        raise OutlayError(f"the sweep's tracked run {run_id} is not in {_public(uri)}: {first}") from error
    return run


def unfinished(parent: TrackedRun) -> dict[str, str]:
    """Point -> the latest of a sweep's runs that did not finish; those whose process is gone are marked KILLED."""
    experiment = parent.client.get_run(parent.run_id).info.experiment_id
    latest: dict[str, tuple[int, str, str]] = {}
    for run in _all_runs(parent.client, experiment):
        tags = run.data.tags
        if tags.get("mlflow.parentRunId") != parent.run_id or "point" not in tags:
            continue
        status = run.info.status
        if status == "RUNNING" and _reaped(parent.client, run):
            status = "KILLED"
        when = (run.info.start_time, run.info.run_id, status)
        latest[tags["point"]] = max(when, latest.get(tags["point"], when))
    return {point: run_id for point, (_, run_id, status) in latest.items() if status != "FINISHED"}


def end_children(parent: TrackedRun) -> None:
    """End the processes of this machine that still run a sweep's points, and mark those points as KILLED.

    For a launcher that gave up: its other workers may go on, or may have died without a word. Jobs on other machines
    are left to their cluster.
    """
    import psutil

    experiment = parent.client.get_run(parent.run_id).info.experiment_id
    found = []
    for run in _all_runs(parent.client, experiment):
        process = run.data.tags.get("process", "")
        if run.data.tags.get("mlflow.parentRunId") == parent.run_id and run.info.status == "RUNNING":
            host, pid, _ = process.rsplit(":", 2)
            if host == socket.gethostname() and process != this_process() and alive(process):
                found.append(psutil.Process(int(pid)))
    for one in found:
        with contextlib.suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(found, timeout=10)
    unfinished(parent)


def config_of(
    tracking: Tracking, output_dir: Path, run_id: str
) -> tuple[Path, dict[str, str], dict[str, float], str]:
    """A finished run's config.yaml, its params, its metrics and its name.

    Raises:
        OutlayError: the store does not know it, or it has no config.
    """
    uri = store_uri(tracking, output_dir)
    client, _ = _client(uri, str(output_dir.resolve()), tracking.experiment)
    try:
        run = client.get_run(run_id)
        path = Path(client.download_artifacts(run_id, "config.yaml"))
    except Exception as error:  # of the store, the server or the file system
        first = str(error).strip().splitlines()[0]
        raise OutlayError(
            f"run {run_id} in {_public(uri)}: {first.replace(uri, _public(uri))}. outlay doctor lists single runs with their "
            "ids, outlay doctor --runs SWEEP those of a sweep"
        ) from error
    return path, dict(run.data.params), dict(run.data.metrics), str(run.info.run_name)


def reap(tracking: Tracking, output_dir: Path) -> list[str]:
    """Mark every run as KILLED that says RUNNING and whose process is gone; their names."""
    uri = store_uri(tracking, output_dir)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        return []
    client = _mlflow().MlflowClient(tracking_uri=uri)
    return [
        str(run.info.run_name)
        for experiment in client.search_experiments()
        for run in _all_runs(client, experiment.experiment_id)
        if run.info.status == "RUNNING" and _reaped(client, run)
    ]


def _reaped(client: Any, run: Any) -> bool:
    process = run.data.tags.get("process")
    if process is None or alive(process):
        return False
    TrackedRun(client, run.info.run_id).tags({"error": f"its process is gone: {process}"})
    client.set_terminated(run.info.run_id, "KILLED")
    return True


def store_uri(tracking: Tracking, output_dir: Path) -> str:
    """The tracking store's address."""
    return tracking.uri or f"sqlite:///{output_dir.resolve() / 'mlflow.db'}"


def fetch(uri: str, tracking_uri: str | None = None) -> Path:
    """The local folder or file of a run's artifact, `runs:/RUN_ID/PATH`.

    tracking_uri: the store's address; None takes MLFLOW_TRACKING_URI, else the SQLite file in the default output folder.

    Raises:
        ConfigError: not such an address.
        OutlayError: the store, the run or the artifact is not to be had.
    """
    from outlay.schema import Settings

    parts = re.fullmatch(r"runs:/([^/]+)/(.+)", uri)
    if parts is None:
        raise ConfigError(f"{uri}: expected runs:/RUN_ID/PATH, such as runs:/RUN_ID/predictor")
    run_id, path = parts.groups()
    store = (
        tracking_uri
        or os.environ.get("MLFLOW_TRACKING_URI")
        or store_uri(Tracking(), Path(Settings().output_dir))
    )
    if store.startswith("sqlite:///") and not Path(store.removeprefix("sqlite:///")).is_file():
        raise OutlayError(
            f"{uri}: no tracking store {store}. Set MLFLOW_TRACKING_URI to the one that holds the run"
        )
    try:
        return Path(_mlflow().MlflowClient(tracking_uri=store).download_artifacts(run_id, path))
    except Exception as error:  # of the store, of the server or of the file system
        first = str(error).strip().splitlines()[0]
        raise OutlayError(f"{uri} in {_public(store)}: {first.replace(store, _public(store))}") from error


def ui_command(tracking: Tracking, output_dir: Path) -> str:
    """What to type, or to open, to look at the runs."""
    uri = tracking.uri and _public(tracking.uri)
    if uri is not None and uri.startswith("http"):
        return uri
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
                        "sweep_id": run.data.tags.get("sweep_id", ""),
                        "started": run.info.start_time,
                    }
                )
    for one in found:
        one["children"] = dict(children.get(one["id"], {}))
    return sorted(found, key=lambda one: int(one["started"]), reverse=True)


@dataclass(frozen=True)
class Kept:
    """A finished run as the store keeps it."""

    run_id: str
    name: str
    experiment: str
    sweep_id: str  # empty: a single run
    point: str  # its number in the sweep
    started_ms: int
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Mapping[str, float]


def points(
    tracking: Tracking, output_dir: Path, sweeps: Sequence[str] = (), experiments: Sequence[str] = ()
) -> list[Kept]:
    """Finished runs, in the order of their points: those of sweeps, by id or "last", and of whole experiments.

    A point that a sweep took from another one (reuse=true) is among them. Without a sweep or an experiment: the last sweep.

    Raises:
        ConfigError: no such sweep or experiment; names the nearest.
        OutlayError: there is no store, or it cannot be read.
    """
    uri = store_uri(tracking, output_dir)
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).is_file():
        raise OutlayError(f"no tracking store {uri}. Name it: --output-dir DIR, or --tracking-uri URI")
    try:
        client = _mlflow().MlflowClient(tracking_uri=uri)
        names = {one.experiment_id: one.name for one in client.search_experiments()}
        runs = [run for one in names for run in _all_runs(client, one)]
    except Exception as error:  # of the store or of the server
        first = str(error).strip().splitlines()[0]
        raise OutlayError(f"tracking store {_public(uri)}: {first.replace(uri, _public(uri))}") from error
    parents = {run.data.tags["sweep_id"]: run for run in runs if run.data.tags.get("kind") == "sweep"}
    wanted = list(sweeps) or ([] if experiments else ["last"])
    if "last" in wanted and not parents:
        raise ConfigError(
            f"no sweep in {_public(uri)} yet. Run one, or name an --experiment with single runs"
        )
    latest = max(parents, key=lambda one: parents[one].info.start_time, default="")
    ids = [latest if one == "last" else one for one in wanted]
    for one in ids:
        if one not in parents:
            raise ConfigError(f"sweep {one}: no such sweep in {_public(uri)}. {nearest(one, parents)}")
    held = {names[run.info.experiment_id] for run in runs}
    for one in experiments:
        if one not in held:
            raise ConfigError(f"--experiment {one}: no run of it in {_public(uri)}. {nearest(one, held)}")
    taken = {
        run_id for one in ids for tag, run_id in parents[one].data.tags.items() if tag.startswith("reused.")
    }
    found = [
        Kept(
            run.info.run_id,
            str(run.info.run_name),
            names[run.info.experiment_id],
            run.data.tags.get("sweep_id", ""),
            run.data.tags.get("point", ""),
            int(run.info.start_time),
            dict(run.data.params),
            dict(run.data.tags),
            dict(run.data.metrics),
        )
        for run in runs
        if run.info.status == "FINISHED"
        and run.data.tags.get("kind") == "run"
        and (
            run.data.tags.get("sweep_id") in ids
            or run.info.run_id in taken
            or names[run.info.experiment_id] in experiments
        )
    ]
    return sorted(found, key=lambda one: (one.sweep_id, int(one.point or 0), one.started_ms))


def artifacts(tracking: Tracking, output_dir: Path, run_id: str, names: Sequence[str], into: Path) -> None:
    """Copy those of a run's artifacts that it has and `into` does not have yet.

    Raises:
        OutlayError: the store or the server cannot give them.
    """
    uri = store_uri(tracking, output_dir)
    missing = [name for name in names if not (into / name).is_file()]
    if not missing:
        return
    try:
        client = _mlflow().MlflowClient(tracking_uri=uri)
        held = {one.path for one in client.list_artifacts(run_id)}
        for name in missing:
            if name in held:
                into.mkdir(parents=True, exist_ok=True)
                client.download_artifacts(run_id, name, str(into))
    except Exception as error:  # of the store, of the server or of the file system
        first = str(error).strip().splitlines()[0]
        raise OutlayError(f"the files of run {run_id} in {_public(uri)}: {first}") from error


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
