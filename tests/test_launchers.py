"""Sweeps whose points run in other processes: every run is found, nested and truly ended, whoever ran it and whatever died."""

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay import launch
from outlay.app import _command
from outlay.compose import compose, points_of
from outlay.errors import ConfigError
from outlay.track.places import SHARED, check_places, shared_filesystem

GRID = ("generator=extract", "selector=lead,mmr", "budget.tokens=32,64,128,256", "dataset.limit=2")
"""Eight points."""

MOUNTS = """\
proc /proc proc rw 0 0
/dev/vda / ext4 rw 0 0
filer:/home /home nfs4 rw 0 0
/dev/vdb /home/me/local\\040disk xfs rw 0 0
scratch@o2ib:/s /scratch lustre rw 0 0
tmpfs /scratch/fast tmpfs rw 0 0
host /mnt/share 9p rw 0 0
broken
"""


# ---------------------------------------------------------------- where SQLite may lie


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/out", "nfs4"),
        ("/home/me/local disk/out", None),
        ("/homely/out", None),
        ("/scratch/a/b", "lustre"),
        ("/scratch/fast/b", None),
        ("/mnt/share/x", None),  # a virtual machine's folder: one machine
        ("/tmp/x", None),
    ],
)
def test_the_longest_mount_decides(path: str, kind: str | None) -> None:
    assert shared_filesystem(Path(path), MOUNTS) == kind


@given(st.sampled_from(sorted(SHARED)), st.sampled_from(["ext4", "xfs", "tmpfs", "9p", "overlay"]))
def test_what_is_mounted_last_lies_on_top(network: str, local: str) -> None:
    one, other = f"a /deep/place {network} rw 0 0\n", f"b /deep/place {local} rw 0 0\n"
    assert shared_filesystem(Path("/deep/place/x"), one + other) is None
    assert shared_filesystem(Path("/deep/place/x"), other + one) == network


def test_sqlite_on_a_shared_file_system_is_refused_to_launchers_and_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    far, near = "sqlite:////home/me/out/mlflow.db", "sqlite:////tmp/out/mlflow.db"
    with pytest.raises(ConfigError, match=r"nfs4.*tracking=server"):
        check_places(far, Path("/tmp/cache"), "joblib", MOUNTS)
    with pytest.raises(ConfigError, match=r"lustre.*OUTLAY_CACHE_DIR to a folder on a local disk"):
        check_places("http://tracking:5000", Path("/scratch/cache"), "slurm", MOUNTS)
    check_places("http://tracking:5000", Path("/tmp/cache"), "slurm", MOUNTS)
    check_places(near, Path("/tmp/cache"), "ray", MOUNTS)
    assert capsys.readouterr().err == ""
    check_places(far, Path("/home/me/cache"), "basic", MOUNTS)
    assert "warning" in capsys.readouterr().err


# ---------------------------------------------------------------- what a job is told


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1))
def test_what_a_job_is_told_arrives_as_it_is(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    (one,) = OverridesParser.create().parse_overrides([f"a={launch._quoted(text)}"])
    assert OmegaConf.create({"a": one.value()}).a == text


def test_a_job_is_told_its_folder_and_of_its_own_earlier_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAY_CACHE_DIR", "cache")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    words = launch.carried(Path("sweep"), 3, {"3": "abc", "4": "def"})
    assert f"hydra.sweep.dir='{tmp_path}/sweep'" in words and "hydra.sweep.subdir='3'" in words
    assert f"+hydra.job.env_set.OUTLAY_CACHE_DIR='{tmp_path}/cache'" in words
    assert "abc" in str(words) and "def" not in str(words) and "secret" not in str(words)


def test_how_a_sweep_is_launched_is_no_part_of_its_points() -> None:
    words = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=1,2"]
    assert points_of(words) == [["seed=1", "sweep=[]"], ["seed=2", "sweep=[]"]]
    with pytest.raises(ConfigError, match="not an axis"):
        points_of(["hydra.launcher.n_jobs=1,2"])


def test_an_unknown_launcher_or_one_that_is_not_installed_says_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'joblib'"):
        _command(["-m", "hydra/launcher=joblb", *GRID])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"hydra-ray-launcher.*outlay\[launchers\]"):
        launch.installed("ray")
    launch.installed("basic")


# ---------------------------------------------------------------- Slurm


def test_the_batch_script_asks_for_what_the_config_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitit = pytest.importorskip("submitit")
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    from hydra.core.hydra_config import HydraConfig
    from hydra.utils import instantiate
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from submitit.slurm.slurm import SlurmExecutor

    words = ["partition=cpu", "timeout_min=90", "cpus_per_task=4", "mem_gb=16", "array_parallelism=5"]
    words += ["setup=['source .venv/bin/activate']"]
    words = ["hydra/launcher=slurm", f"output_dir={tmp_path}", *(f"hydra.launcher.{word}" for word in words)]
    words += ["+hydra.launcher.additional_parameters.mail-type=END"]
    config = compose(words, with_hydra=True)
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    HydraConfig.instance().set_config(config)
    params = instantiate(config.hydra.launcher).params
    monkeypatch.setattr(SlurmExecutor, "affinity", classmethod(lambda cls: 2))  # as if sbatch were here
    # As the plugin does it: what is not common to all executors is Slurm's own.
    executor = submitit.AutoExecutor(
        params.pop("submitit_folder"), cluster="slurm", slurm_max_num_timeout=params.pop("max_num_timeout")
    )
    common = set(BaseQueueConf.__dataclass_fields__)
    executor.update_parameters(
        **{name if name in common else f"slurm_{name}": value for name, value in params.items()}
    )
    script = executor._executor._make_submission_file_text("python -m submitit.core._submit X", "id")
    for line in (
        "--partition=cpu",
        "--time=90",
        "--cpus-per-task=4",
        "--mem=16GB",
        "--job-name=outlay",
        "--mail-type=END",
    ):
        assert f"#SBATCH {line}\n" in script
    assert "\nsource .venv/bin/activate\n" in script and f"--output={tmp_path}" in script
    assert (
        "--export" not in script
    )  # sbatch hands on the whole environment, keys among it, unless told otherwise


# ---------------------------------------------------------------- real sweeps


def start(cwd: Path, cache: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "outlay", "-m", *words],
        cwd=cwd,
        env={**os.environ, "OUTLAY_CACHE_DIR": str(cache), "COLUMNS": "150"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    out, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    assert "Traceback" not in said and "database" not in said
    return out


def runs_of(cwd: Path) -> list[Any]:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{cwd / 'multirun_outputs' / 'mlflow.db'}")
    return list(client.search_runs([one.experiment_id for one in client.search_experiments()]))


def check_whole(cwd: Path) -> tuple[Any, list[Any]]:
    """One sweep of eight finished, nested runs; the parent and its children."""
    runs = runs_of(cwd)
    (parent,) = [run for run in runs if run.data.tags.get("kind") == "sweep"]
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert sorted(run.data.tags["point"] for run in children) == list("01234567") and len(runs) == 9
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len({run.data.tags["sweep_id"] for run in runs}) == 1
    return parent, children


@pytest.mark.slow
def test_joblib_on_a_fresh_tracking_store(tmp_path: Path, own_cache: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    for number in range(3):  # the store is new each time: what may go wrong is its migration
        cwd = tmp_path / str(number)
        cwd.mkdir()
        out = finish(start(cwd, own_cache, "hydra/launcher=joblib", "hydra.launcher.n_jobs=4", *GRID))
        _, children = check_whole(cwd)
        assert sorted(line[:5] for line in out.splitlines() if line.startswith("[")) == [
            f"[{point}/8]" for point in range(1, 9)
        ]
        assert len({run.data.tags["process"] for run in children}) > 1


@pytest.mark.slow
def test_jobs_share_one_store_and_generate_nothing_twice(tmp_path: Path, own_cache: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    # Carried chains are not known before the points run, so workers ask for the same ones at the same time.
    words = ("dataset=chains", "generator=lab", "dataset.limit=12", "retry=fixed", "retry.context=carry")
    words += ("retry.stop=parse,vote", "retry.max_attempts=3,4", "seed=0", "metrics.resamples=100,200")
    finish(start(tmp_path, own_cache, "hydra/launcher=joblib", "hydra.launcher.n_jobs=4", *words))
    parent, children = check_whole(tmp_path)
    with closing(sqlite3.connect(own_cache / "completions.sqlite")) as store:
        (kept,) = store.execute("SELECT sum(completion_tokens) FROM completions").fetchone()
        assert store.execute("SELECT count(*) FROM claims").fetchone() == (0,)
    assert parent.data.metrics["cache/generated_tokens"] == kept > 0
    asked = sum(run.data.metrics["cache/hits"] + run.data.metrics["cache/misses"] for run in children)
    assert asked > sum(run.data.metrics["cache/misses"] for run in children)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Ray cluster of two workers that was started elsewhere, before the sweep: what a client's environment needs."""
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    ray = str(Path(sys.executable).parent / "ray")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    token = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    told = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAY")} | token
    begin = [ray, "start", "--head", "--port=0", "--num-cpus=2", "--include-dashboard=false", "--block"]
    log = elsewhere / "log"
    with log.open("w") as said:
        process = subprocess.Popen(begin, cwd=elsewhere, env=told, stdout=said, stderr=said)
    try:
        until = time.monotonic() + 240
        while "--address='" not in log.read_text():
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.5)
        yield token | {"address": log.read_text().split("--address='")[1].split("'")[0]}
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.slow
def test_ray_on_a_cluster_that_knows_neither_our_folder_nor_our_environment(
    cluster: dict[str, str], tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.jsonl").write_text(
        json.dumps(
            {
                "id": "a",
                "document": "It rains. The cat sleeps.",
                "question": "Who sleeps?",
                "references": "cat",
            }
        )
    )
    words = (*GRID, "dataset=table", "dataset.path=mine.jsonl", "dataset.split=all")  # a relative path
    address = cluster["address"]
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, cluster[name])
    finish(
        start(
            tmp_path, own_cache, "hydra/launcher=ray", f"hydra.launcher.ray.init.address='{address}'", *words
        )
    )
    _, children = check_whole(tmp_path)
    assert len({run.data.tags["process"] for run in children}) == 2
    assert (own_cache / "completions.sqlite").is_file()


@pytest.mark.slow
def test_submitit_on_this_machine(tmp_path: Path, own_cache: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    out = finish(start(tmp_path, own_cache, "hydra/launcher=submitit_local", *GRID))
    check_whole(tmp_path)
    assert out.count("/8] ") == 8  # though submitit keeps what its jobs print


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "ray"])
def test_a_worker_that_is_killed_leaves_a_true_table_and_a_sweep_that_can_go_on(
    launcher: str, tmp_path: Path, own_cache: Path
) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{launcher}_launcher")
    two = {"joblib": "hydra.launcher.n_jobs=2", "ray": "+hydra.launcher.ray.init.num_cpus=2"}[launcher]
    process = start(tmp_path, own_cache, f"hydra/launcher={launcher}", two, *GRID)
    until = time.monotonic() + 300
    while True:  # kill the process of a run once another has finished
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
        ends = list(tmp_path.glob("multirun_outputs/*/*/*/ended.json"))
        begun = {path.parent for path in tmp_path.glob("multirun_outputs/*/*/*/run.log")}
        if not ends or not begun - {path.parent for path in ends}:
            continue
        running = [
            run for run in runs_of(tmp_path) if run.info.status == "RUNNING" and "point" in run.data.tags
        ]
        if running:
            os.kill(int(running[0].data.tags["process"].split(":")[1]), signal.SIGKILL)
            break
    out, said = process.communicate(timeout=600)
    assert process.returncode == 1
    last = said.strip().splitlines()[-1]
    assert last.startswith("outlay: the launcher gave up") and "outlay -m resume=" in last
    runs = runs_of(tmp_path)
    (parent,) = [run for run in runs if run.data.tags.get("kind") == "sweep"]
    statuses = [run.info.status for run in runs if run is not parent]
    assert parent.info.status == "FAILED" and "gave up" in parent.data.tags["error"]
    assert set(statuses) == {"FINISHED", "KILLED"}
    finished = statuses.count("FINISHED")
    assert f"{8 - finished} of 8 runs did not finish" in said
    assert f"{statuses.count('KILLED')} killed" in said

    out = finish(start(tmp_path, own_cache, "resume=last"))
    assert f"{finished} of them finished before" in out
    ended = [run for run in runs_of(tmp_path) if run.info.status == "FINISHED" and "point" in run.data.tags]
    assert sorted(run.data.tags["point"] for run in ended) == list("01234567")
