"""A sweep is killed at any moment and goes on: the figures are those of an undisturbed one, and nothing is paid twice."""

import json
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from commands import command, finish

WORDS = (
    "dataset=arithmetic",
    "dataset.limit=6",
    "retry=fixed",
    "retry.stop=vote,none",
    "retry.max_attempts=2,3",
    "probe=none,cbe",
    "generator.batch_rows=3",
)
"""Eight points that share draws, adaptive and not, on the real model."""

QUICKSTART = ("experiment=quickstart", "dataset.limit=6", "generator.batch_rows=3")
POINTS = 12


def progress(cwd: Path, cache: Path) -> int:
    """How far a sweep has come: the rows that it has paid for, and the points that have ended."""
    ended = len(list((cwd / "multirun_outputs").glob("*/*/*/ended.json")))
    try:
        with sqlite3.connect(f"file:{cache / 'completions.sqlite'}?mode=ro", uri=True) as store:
            return ended + int(store.execute("SELECT count(*) FROM completions").fetchone()[0])
    except sqlite3.OperationalError:  # not there yet
        return ended


def metrics(cwd: Path) -> list[dict[str, float]]:
    """Each point's metrics, apart from what says how it was run."""
    (sweep,) = (path.parent for path in (cwd / "multirun_outputs").glob("*/*/plan.jsonl"))
    found = []
    for number in range(len(list(sweep.glob("*/ended.json")))):
        one = json.loads((sweep / str(number) / "metrics.json").read_text())
        found.append(
            {key: value for key, value in one.items() if not key.startswith(("cache/", "cost/latency"))}
        )
    return found


def own(cache: Path, tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "weights").symlink_to((cache / "weights").resolve())
    return folder


@pytest.mark.slow
def test_killed_at_ten_random_moments_and_resumed_it_is_the_undisturbed_sweep(
    tmp_path: Path, own_cache: Path
) -> None:
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    calm.mkdir()
    wild.mkdir()
    calm_cache, wild_cache = own(own_cache, tmp_path, "calm-cache"), own(own_cache, tmp_path, "wild-cache")
    finish(command(calm, calm_cache, "-m", *QUICKSTART))
    whole = progress(calm, calm_cache)
    rng = random.Random(0)
    words = QUICKSTART
    for moment in sorted(rng.uniform(0, 0.95) for _ in range(10)):
        process = command(wild, wild_cache, "-m", *words)
        while progress(wild, wild_cache) < moment * whole and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        assert process.poll() is None  # it is killed at work, all ten times
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if list((wild / "multirun_outputs").glob("*/*/plan.jsonl")):
            words = ("resume=last",)
    finish(command(wild, wild_cache, "-m", *words))
    assert metrics(wild) == metrics(calm)  # to the last digit
    rows = [
        sqlite3.connect(cache / "completions.sqlite")
        .execute("SELECT count(*) FROM completions")
        .fetchone()[0]
        for cache in (calm_cache, wild_cache)
    ]
    assert rows[0] == rows[1]
    claims = sqlite3.connect(wild_cache / "completions.sqlite").execute("SELECT count(*) FROM claims")
    assert claims.fetchone() == (0,)

    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{wild / 'multirun_outputs' / 'mlflow.db'}")
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments, max_results=1000)
    assert "RUNNING" not in {run.info.status for run in runs}
    parents = [run for run in runs if run.data.tags.get("kind") == "sweep"]
    assert [run.info.status for run in parents] == ["FINISHED"]
    finished = [
        run.data.tags["point"] for run in runs if run.data.tags.get("point") and run.info.status == "FINISHED"
    ]
    assert sorted(map(int, finished)) == list(range(POINTS))  # each point once
    (sweep,) = (path.parent for path in (wild / "multirun_outputs").glob("*/*/plan.jsonl"))
    assert len((sweep / "results.csv").read_text().splitlines()) == POINTS + 1


@pytest.mark.slow
def test_a_failed_point_alone_is_run_again_and_says_of_which_run(tmp_path: Path, own_cache: Path) -> None:
    rows = [{"question": "1+1?", "answer": "so\n#### 2"}] * 3
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(map(json.dumps, rows)))
    bad.write_text('{"question": "no answer"}\n')
    words = (
        "dataset=gsm8k",
        "dataset.split=all",
        "dataset.path=bad.jsonl,good.jsonl",
        "prompt.max_new_tokens=2",
    )
    process = command(tmp_path, own_cache, "-m", *words)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1 and "resume=" in said
    bad.write_text(good.read_text())
    out = finish(command(tmp_path, own_cache, "-m", "resume=last"))
    assert "1 of them finished before" in out and "[1/2]" in out and "[2/2]" not in out

    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'multirun_outputs' / 'mlflow.db'}")
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    failed = next(run for run in runs if run.info.status == "FAILED")
    again = next(run for run in runs if "retry_of" in run.data.tags)
    assert again.data.tags["retry_of"] == failed.info.run_id and again.info.status == "FINISHED"
    (sweep,) = (path.parent for path in (tmp_path / "multirun_outputs").glob("*/*/plan.jsonl"))
    assert (sweep / "earlier" / "0-1" / "run.log").is_file()

    # The same points in another sweep are linked, not run again.
    out = finish(command(tmp_path, own_cache, "-m", *words, "reuse=true"))
    assert "2 of them finished before" in out


@pytest.mark.slow
def test_fail_fast_starts_nothing_after_the_first_failure(tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"question": "no answer"}\n')
    (tmp_path / "good.jsonl").write_text(json.dumps({"question": "1+1?", "answer": "#### 2"}))
    process = command(
        tmp_path,
        own_cache,
        "-m",
        "dataset=gsm8k",
        "dataset.split=all",
        "dataset.path=bad.jsonl,good.jsonl",
        "prompt.max_new_tokens=2",
        "fail_fast=true",
    )
    _, said = process.communicate(timeout=300)
    assert process.returncode == 1 and "1 failed, 1 skipped" in said
