"""Tracked runs: every ending leaves a true state; names, tags, metrics and artifacts are what MLflow shows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from outlay.errors import ConfigError, DataError, OutlayError
from outlay.track import TrackedRun, Tracking, start_run, store_uri, summary, ui_command

pytestmark = pytest.mark.slow  # a new SQLite store takes seconds to migrate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs")


def test_a_sweep_and_its_runs_are_nested_and_truly_ended(folder: Path) -> None:
    parent = start_run(Tracking(), folder, "sweep", {"kind": "sweep"})
    good = start_run(Tracking(), folder, "good", {}, parent.run_id)
    good.params({"selector": "rcd", "long": "x" * 9000})
    good.metrics({"quality/accuracy": 0.5, "cost/per_correct": float("inf")})
    (folder / "a.txt").write_text("kept")
    good.artifact(folder / "a.txt")
    good.end()
    bad = start_run(Tracking(), folder, "bad", {}, parent.run_id)
    bad.end("FAILED", ValueError("row 3"))
    bad.end()  # the first end is the true one
    parent.end("FAILED")
    run = good.client.get_run(good.run_id)
    assert run.data.params == {"selector": "rcd", "long": "x" * 500}
    assert run.data.metrics == {"quality/accuracy": 0.5}  # nothing that is not a number
    assert run.data.tags["mlflow.parentRunId"] == parent.run_id and "git_sha" in run.data.tags
    assert [file.path for file in good.client.list_artifacts(good.run_id)] == ["a.txt"]
    assert bad.client.get_run(bad.run_id).data.tags["error"] == "ValueError: row 3"
    (shown,) = [one for one in summary(Tracking(), folder) if one["sweep"]]
    assert shown["status"] == "FAILED" and shown["children"] == {"FINISHED": 1, "FAILED": 1}


def test_a_store_is_made_once_and_found_again(folder: Path) -> None:
    assert (folder / "mlflow.db").is_file()
    first = start_run(Tracking(experiment="other"), folder, "one", {})
    first.end("KILLED")
    assert any(one["name"] == "one" and one["status"] == "KILLED" for one in summary(Tracking(), folder))
    assert store_uri(Tracking(uri="http://127.0.0.1:5000"), folder) == "http://127.0.0.1:5000"
    assert "mlflow ui" in ui_command(Tracking(), folder)


def test_runs_that_read_the_same_data_at_the_same_moment_all_say_so(folder: Path) -> None:
    """MLflow looks for a data set and then adds it: of two at once, one met a row that was not there before."""
    runs = [start_run(Tracking(experiment="at once"), folder, str(at), {}) for at in range(6)]
    together = Barrier(len(runs), timeout=60)

    def read(run: TrackedRun) -> None:
        for digest in range(12):
            together.wait()
            run.data("notes", f"digest {digest}", "made here", "test")

    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(read, runs))
    for run in runs:
        assert len(run.client.get_run(run.run_id).inputs.dataset_inputs) == 12
        run.end()


def test_an_empty_folder_has_no_runs(tmp_path: Path) -> None:
    assert summary(Tracking(), tmp_path) == [] and not list(tmp_path.iterdir())


def test_a_store_that_cannot_be_reached_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(OutlayError, match=r"tracking\.uri=sqlite:////proc/nowhere/x\.db"):
        start_run(Tracking(uri="sqlite:////proc/nowhere/x.db"), tmp_path, "x", {})


@pytest.mark.parametrize("name", ["", "a/b", "a:b"])
def test_an_experiment_names_a_folder_too(name: str) -> None:
    with pytest.raises(ConfigError, match=r"experiment"):
        Tracking(experiment=name)


def test_a_run_whose_files_cannot_be_kept_is_still_truly_ended(
    folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import outlay
    from outlay.track import TrackedRun

    def no_room(self: TrackedRun, path: Path, folder: str | None = None) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrackedRun, "artifact", no_room)
    words = [
        "generator=extract",
        "dataset.limit=2",
        "selector=lead",
        "verbose=false",
        "tracking.experiment=full",
    ]
    with pytest.raises(OSError, match="No space"):
        outlay.run(words, output_dir=str(folder))
    with pytest.raises(DataError, match="split"):  # its own error is not hidden by the second one
        outlay.run([*words, "dataset.count=1", "dataset.seed=3"], output_dir=str(folder))
    ended = [one["status"] for one in summary(Tracking(), folder) if one["experiment"] == "full"]
    assert ended == ["FAILED", "FAILED"]


def test_secrets_and_credentialed_text_stay_out_of_the_store(
    folder: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import outlay

    monkeypatch.setenv("MY_SECRET", "hunter2secret")
    words = ["generator=extract", "dataset.limit=2", "selector=lead", "verbose=false"]
    done = outlay.run([*words, "prompt.system='${oc.env:MY_SECRET}'"], output_dir=str(folder))
    (tmp_path / "bhc.csv").write_text("10,Patient John Doe has HIV and cirrhosis.,x\n11,More,y\n")
    with pytest.raises(DataError) as refused:
        outlay.run(
            [*words, "dataset=mimic_bhc", f"dataset.path='{tmp_path / 'bhc.csv'}'", "dataset.query=template"],
            output_dir=str(folder),
        )
    assert "John Doe" not in str(refused.value)
    written = b"".join(
        path.read_bytes() for path in [*folder.rglob("*"), *done.folder.rglob("*")] if path.is_file()
    )
    assert b"hunter2secret" not in written and b"John Doe" not in written and b"oc.env:MY_SECRET" in written
