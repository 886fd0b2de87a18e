"""A tracking server on PostgreSQL: parallel writers of a Ray sweep, every run found, no text where it may not go."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
GRID = ("generator=extract", "selector=lead,mmr", "budget.tokens=32,64,128,256", "dataset.limit=5")
"""Eight points."""


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's own programs; Debian keeps them out of PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: float(one.parent.name), default=None
    )


def wait_for(ready: Any, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 240.0) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None and time.monotonic() < until, log.read_text()
        time.sleep(0.5)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of a PostgreSQL cluster of our own, on a Unix socket."""
    pytest.importorskip("psycopg2")
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    folder = Path(
        tempfile.mkdtemp(prefix="outlay-pg-")
    )  # short, for the socket's name; and its owner may enter it
    as_owner: list[str] = []
    if ROOT:  # which PostgreSQL refuses
        shutil.chown(folder, "postgres", "postgres")
        as_owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data, log = folder / "data", folder / "log"
    make = [*as_owner, str(programs / "initdb"), "-D", str(data), "-U", "outlay", "--auth=trust", "--no-sync"]
    subprocess.run(make, check=True, capture_output=True, cwd=folder)
    with log.open("wb") as said:
        server = subprocess.Popen(
            [
                *as_owner,
                str(programs / "postgres"),
                "-D",
                str(data),
                "-k",
                str(folder),
                "-c",
                "listen_addresses=",
            ],
            cwd=folder,
            stdout=said,
            stderr=said,
        )
    try:
        ask = [str(programs / "pg_isready"), "-h", str(folder), "-U", "outlay", "-d", "postgres"]
        wait_for(lambda: subprocess.run(ask, capture_output=True).returncode == 0, server, log)
        yield f"postgresql+psycopg2://outlay@/postgres?host={folder}"
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `mlflow server` on that cluster, with its artifacts in a folder."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"server --host 127.0.0.1 --port {port} --workers 2 --serve-artifacts".split()
    words += ["--backend-store-uri", database, "--artifacts-destination", str(folder / "artifacts")]
    log = folder / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            cwd=folder,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        )

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    try:
        wait_for(ready, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def outlay(cwd: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "outlay", *words], cwd=cwd, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def runs_of(server: str, experiment: str) -> tuple[Any, list[Any]]:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=server)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return client, list(client.search_runs([found.experiment_id]))


def test_a_ray_sweep_with_parallel_writers_is_whole_on_the_server(
    server: str, tmp_path: Path, own_cache: Path
) -> None:
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    to = ("tracking=server", f"tracking.uri={server}", "tracking.experiment=parallel")
    said = outlay(tmp_path, "-m", "hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2", *GRID, *to)
    assert server in said and "sqlite" not in said  # where to look
    client, runs = runs_of(server, "parallel")
    (parent,) = [run for run in runs if run.data.tags.get("kind") == "sweep"]
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(runs) == 9 and sorted(run.data.tags["point"] for run in children) == list("01234567")
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len({run.data.tags["process"] for run in children}) == 2
    for run in children:
        files = {one.path for one in client.list_artifacts(run.info.run_id)}
        assert {"config.yaml", "metrics.json", "ledger.parquet", "predictions.jsonl"} <= files
    kept = Path(client.download_artifacts(children[0].info.run_id, "metrics.json", str(tmp_path)))
    own = next(tmp_path.glob(f"multirun_outputs/parallel/*/{children[0].data.tags['point']}/metrics.json"))
    assert kept.read_bytes() == own.read_bytes()
    assert not list(tmp_path.rglob("mlflow.db"))
    traces = client.search_traces(locations=[parent.info.experiment_id], run_id=children[0].info.run_id)
    assert len(traces) == 3


def test_without_log_text_no_text_reaches_the_server(server: str, tmp_path: Path, own_cache: Path) -> None:
    word = f"zebra{secrets.token_hex(4)}"
    (tmp_path / "mine.jsonl").write_text(
        f'{{"id": "a", "document": "The {word} sleeps. It rains.", "question": "Who sleeps?", "references": "{word}"}}\n'
    )
    words = (
        "dataset=table",
        "dataset.path=mine.jsonl",
        "dataset.split=all",
        "generator=extract",
        "selector=lead",
    )
    to = ("tracking=server", f"tracking.uri={server}", "tracking.experiment=private")
    for log_text in ("true", "false"):
        outlay(tmp_path, *words, *to, f"tracking.log_text={log_text}")
    client, runs = runs_of(server, "private")
    told = {run.data.params["tracking.log_text"]: run for run in runs}
    assert {run.info.status for run in runs} == {"FINISHED"}
    for log_text, run in told.items():
        place = tmp_path / log_text
        place.mkdir()
        client.download_artifacts(run.info.run_id, "", str(place))
        (trace,) = client.search_traces(locations=[run.info.experiment_id], run_id=run.info.run_id)
        spans = str(client.get_trace(trace.info.trace_id).to_dict())
        held = [
            path.name for path in place.rglob("*") if path.is_file() and word.encode() in path.read_bytes()
        ]
        assert (word in spans) is (log_text == "True")
        assert bool(held) is (log_text == "True"), held
        assert word not in str(run.to_dictionary()) or log_text == "True"
