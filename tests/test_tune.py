"""Search over settings: the front is a front, a space is drawn within its bounds, a study goes on where it was killed."""

import csv
import itertools
import json
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import command, finish
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay import multirun, record, tune
from outlay.compose import has_option, preflight, space_of
from outlay.errors import ConfigError
from outlay.record import Ended
from outlay.report import pareto
from outlay.tune import Axis, Optuna, Search, Space

# ---------------------------------------------------------------- the front

ROWS = st.integers(1, 3).flatmap(
    lambda n: st.tuples(
        st.lists(st.tuples(*[st.integers(-3, 3)] * n), min_size=1, max_size=12),
        st.tuples(*[st.sampled_from(["maximize", "minimize"])] * n),
    )
)


def beats(first: tuple[int, ...], second: tuple[int, ...], directions: tuple[str, ...]) -> bool:
    better = [
        (a - b) * (1 if way == "maximize" else -1)
        for a, b, way in zip(first, second, directions, strict=True)
    ]
    return min(better) >= 0 and max(better) > 0


@given(ROWS)
def test_nothing_on_the_front_is_beaten_and_all_else_is(
    case: tuple[list[tuple[int, ...]], tuple[str, ...]],
) -> None:
    rows, directions = case
    best = tune.front(rows, directions)
    assert best == sorted(best) and best
    assert not any(beats(row, rows[at], directions) for at in best for row in rows)
    assert len({rows[at] for at in best}) == len(best)  # of equal rows one
    for row in rows:
        assert row in [rows[at] for at in best] or any(beats(rows[at], row, directions) for at in best)


@given(ROWS)
def test_the_hypervolume_is_the_share_of_the_box_that_the_front_beats(
    case: tuple[list[tuple[int, ...]], tuple[str, ...]],
) -> None:
    rows, directions = case
    losses = [
        [-x if way == "maximize" else x for x, way in zip(row, directions, strict=True)] for row in rows
    ]
    low, high = ([pick(column) for column in zip(*losses, strict=True)] for pick in (min, max))
    cells = list(itertools.product(*(range(a, b) if b > a else [a] for a, b in zip(low, high, strict=True))))
    beaten = sum(any(all(x <= c for x, c in zip(row, cell, strict=True)) for row in losses) for cell in cells)
    assert tune.hypervolume(rows, directions) == pytest.approx(beaten / len(cells))


def test_without_a_finite_value_there_is_no_hypervolume() -> None:
    assert math.isnan(tune.hypervolume([(math.inf, 1.0)], ["minimize", "maximize"]))
    assert tune.hypervolume([(0.0, 1.0), (1.0, 0.0), (0.5, 0.5)], ["minimize", "minimize"]) == 0.25


# ---------------------------------------------------------------- the space

WORDS = (
    "tune=optuna",
    "tune.sampler=random",
    "tune.trials=60",
    "dataset.split=tune",
    "generator=extract",
    "selector=lead,mmr,rcd",
    "selector.weight=interval(0,1)",
    "selector.relevance=tag(log,interval(0.01,10))",
    "selector.bound_steps=interval(10,60)",
    "selector.guess=range(0,3)",
    "budget.tokens=64,128",
)


def test_an_option_is_drawn_where_the_choice_has_it_and_within_its_bounds() -> None:
    composed: dict[Any, Any] = {}
    space = space_of(WORDS, composed)
    search = Search(Optuna(trials=60, sampler="random"), space, seed=0)
    points = []
    while search.left:
        asked = search.ask(partial(has_option, composed=composed))
        points += [dict(word.split("=", 1) for word in words) for words in asked.values()]
        search.place(dict.fromkeys(asked, 0), {})
    own = {"lead": set(), "mmr": {"weight"}, "rcd": {"relevance", "bound_steps", "guess"}}
    for point in points:
        options = {key.partition(".")[2] for key in point if key.startswith("selector.")}
        assert options == own[point["selector"]]
        assert 0 <= float(point.get("selector.weight", 0)) <= 1
        assert 0.01 <= float(point.get("selector.relevance", 1)) <= 10
        assert 10 <= int(point.get("selector.bound_steps", 10)) <= 60  # whole, as the option is
        assert point.get("selector.guess", "0") in "012" and point["budget.tokens"] in ("64", "128")
    rcd = [point for point in points if point["selector"] == "rcd"]
    small = sum(float(point["selector.relevance"]) < 0.3 for point in rcd)
    assert len(rcd) > 5 and small >= len(rcd) / 5  # on the log scale it is half of them; on a plain one 3 %


@given(low=st.floats(-1e6, 1e6, allow_subnormal=False), width=st.floats(1e-3, 1e6), share=st.floats(0, 1))
def test_a_shortened_number_stays_in_its_interval(low: float, width: float, share: float) -> None:
    axis = Axis("a.b", low=low, high=low + width)
    value = min(low + share * width, low + width)
    assert low <= float(axis.text(value)) <= low + width
    assert float(axis.text(value)) == pytest.approx(value, rel=1e-3, abs=1e-9)


REFUSED = [
    (("selector=mmr", "selector.weight=interval(0,1)"), "add tune=optuna"),
    (("experiment=tune", "tune.objectives={quality/acuracy:maximize}"), "Did you mean 'quality/accuracy'"),
    (("experiment=tune", "tune.objectives={quality/accuracy:maximise}"), "Did you mean 'maximize'"),
    (("experiment=tune", "tune.trails=4"), "Did you mean 'tune.trials'"),
    (("experiment=tune", "tune.trials=2,3"), "not an axis"),
    (("experiment=tune", "budget.tokens=interval(0,100)"), "budget.tokens=0: must be at least 1"),
    (("experiment=tune", "budget.tokens=interval(0.5,100)"), "whole"),
    (("experiment=tune", "budget.tokens=interval(100,10)"), "from a smaller to a larger"),
    (("experiment=tune", "selector=lead,rdc"), "Did you mean 'rcd'"),
    (("experiment=tune", "selector=lead", "selector.weight=interval(0,1)"), "selector.weight"),
    (("experiment=tune", "dataset.limt=3"), "Did you mean 'dataset.limit'"),
    (("experiment=tune", "retry=none,fixed"), "same answer every time"),
    (("experiment=tune", "dataset.split=test"), "tune.held_out=test: the search would see that split"),
    (("experiment=tune", "dataset.split=tune,test"), "a search stays on one split"),
    (("experiment=tune", "selector=learned", "tune.held_out=train"), "tune.held_out=train: what is found"),
    (
        ("experiment=tune", "generator=smollm2", "prompt.shots=range(1,3)", "tune.held_out=train"),
        "prompt.shots=1 shows worked examples of the train split",
    ),
    (("experiment=tune", "generator=ladder", "router=ser", "retry=fixed"), "Use dataset.split=test"),
    (("experiment=quickstart", "tune=optuna"), "union of 3 grids"),
    (("tune=optuna", "dataset.split=tune"), "nothing to search"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=lambda value: " ".join(value))
def test_what_cannot_be_searched_is_refused_before_anything_is_paid(
    words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        preflight(words, multirun=True)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_preset_keeps_what_fits_the_choices_that_the_command_line_gives() -> None:
    space = space_of(["experiment=tune", "selector=rcd"], {})
    keys = {axis.key for axis in space.axes}
    assert keys == {"selector.relevance", "selector.diversity", "budget.tokens"}


def test_what_learns_on_the_tune_split_is_searched_on_the_test_split_with_nothing_held_out() -> None:
    words = (
        "tune=optuna",
        "dataset=arithmetic",
        "selector=none",
        "generator=ladder",
        "router=ser",
        "retry=vote",
    )
    with pytest.raises(ConfigError, match=r"tune\.held_out=null"):
        preflight([*words, "router.escalate.factor=interval(1,4)"], multirun=True)
    (found,) = preflight(
        [*words, "router.escalate.factor=interval(1,4)", "tune.held_out=null"], multirun=True
    )
    assert found.dataset.split == "test" and found.router.learns


def test_a_search_is_a_sweep() -> None:
    with pytest.raises(ConfigError, match="Add -m"):
        preflight(["experiment=tune"], multirun=False)


# ---------------------------------------------------------------- the study

LINE = Space({}, (Axis("a", low=0.0, high=1.0), Axis("b", ("x", "y"))))


def answer(words: list[str], number: int, status: str = "FINISHED") -> Ended:
    """A point of a made-up task: quality rises with a, and so does the cost."""
    said = dict(word.split("=", 1) for word in words)
    a, good = float(said["a"]), said["b"] == "x"
    metrics = {"quality/accuracy": math.sqrt(a) - 0.2 * (not good), "cost/tokens_total": 100 * a}
    return Ended(
        f"run {number}", status, {"dataset": {"split": "tune"}, **said}, {}, metrics, "", f"id-{number}"
    )


def has(choices: Mapping[str, str], key: str) -> bool:
    return True


OPTIONS = Optuna(
    trials=12, batch=4, objectives={"quality/accuracy": "maximize", "cost/tokens_total": "minimize"}
)


def one_round(search: Search, done: dict[int, Ended]) -> list[list[str]]:
    asked = search.ask(has)
    places = {trial: len(done) + at for at, trial in enumerate(asked)}
    search.place(places, {})
    done |= {places[trial]: answer(words, places[trial]) for trial, words in asked.items()}
    search.tell(done)
    return list(asked.values())


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_a_study_that_is_opened_again_asks_for_what_an_undisturbed_one_asks(
    sampler: str, tmp_path: Path
) -> None:
    options = replace(OPTIONS, sampler=sampler)
    calm: dict[int, Ended] = {}
    search = Search(options, LINE, seed=3)
    whole = [one_round(search, calm) for _ in range(3)]
    assert search.left == 0
    done: dict[int, Ended] = {}
    again = []
    for _ in range(3):
        Search(options, LINE, 3, tmp_path).ask(has)  # killed before the round was answered
        again.append(one_round(Search(options, LINE, 3, tmp_path), done))
    assert again == whole
    drawn = {word for words in whole for one in words for word in one if word.startswith("a=")}
    assert len(drawn) == 12 or sampler == "nsga2"  # whose children may be their parents
    assert one_round(Search(options, LINE, seed=4), {}) != whole[0]


def test_failed_points_are_told_and_killed_ones_stay_open(tmp_path: Path) -> None:
    search = Search(OPTIONS, LINE, 0, tmp_path)
    asked = search.ask(has)
    search.place({trial: at for at, trial in enumerate(asked)}, {})
    done = {
        at: answer(words, at, status)
        for (at, words), status in zip(
            enumerate(asked.values()), ("FINISHED", "FAILED", "KILLED", "FINISHED"), strict=True
        )
    }
    done[3].metrics["quality/accuracy"] = math.nan  # type: ignore[index]
    search.tell(done)

    import optuna

    study = optuna.load_study(study_name="tune", storage=f"sqlite:///{tmp_path / tune.STUDY}")
    assert [one.state.name for one in study.trials] == ["COMPLETE", "FAIL", "RUNNING", "FAIL"]
    # Run again, both finish: the killed trial is told, and the failed one has its values too.
    search = Search(OPTIONS, LINE, 0, tmp_path)
    done |= {at: answer(words, at) for at, words in enumerate(asked.values()) if at in (1, 2)}
    for _ in range(2):  # once, however often it is told
        search.tell(done)
    assert [one.values is None for one in search.trials()] == [False, False, False, True]
    assert search.left == 8
    assert len(search.ask(has)) == 4


def test_what_was_asked_and_never_planned_is_given_up(tmp_path: Path) -> None:
    search = Search(OPTIONS, LINE, 0, tmp_path)
    search.ask(has)  # killed here
    search = Search(OPTIONS, LINE, 0, tmp_path)
    assert search.left == 12 and search.trials() == []
    done: dict[int, Ended] = {}
    one_round(search, done)
    assert len(search.trials()) == 4 and search.left == 8


def test_another_space_or_aim_is_no_resume(tmp_path: Path) -> None:
    Search(OPTIONS, LINE, 0, tmp_path)
    with pytest.raises(ConfigError, match="space"):
        Search(OPTIONS, Space({}, LINE.axes[:1]), 0, tmp_path)
    with pytest.raises(ConfigError, match="objectives"):
        Search(
            replace(OPTIONS, objectives={"quality/accuracy": "maximize", "cost/usd_total": "minimize"}),
            LINE,
            0,
            tmp_path,
        )
    assert Search(replace(OPTIONS, trials=30), LINE, 0, tmp_path).left == 30  # more trials are welcome


def test_a_metric_that_no_run_has_names_the_nearest() -> None:
    search = Search(Optuna(trials=4, batch=4, objectives={"quality/rouge1": "maximize"}), LINE, 0)
    with pytest.raises(ConfigError, match=r"no metric 'quality/rouge1'"):
        one_round(search, {})


def test_a_point_without_an_objective_that_others_have_is_a_failed_trial(tmp_path: Path) -> None:
    options = Optuna(trials=12, batch=1, sampler="random", objectives={"context/optimality_mean": "maximize"})
    search, done, lacks = Search(options, LINE, 0), dict[int, Ended](), ""
    while search.left:
        ((trial, words),) = search.ask(has).items()
        search.place({trial: trial}, {})
        done[trial] = answer(words, trial)
        lacks = lacks or str(done[0].config["b"])  # the first has not got it, and that ends nothing
        if done[trial].config["b"] != lacks:
            done[trial].metrics["context/optimality_mean"] = 0.5  # type: ignore[index]
        search.tell(done)
    failed = [one.config["b"] == lacks for one in done.values()]
    assert [one.values is None for one in search.trials()] == failed and len(set(failed)) == 2
    _, sheet, _ = pareto.files(search, done, tmp_path)
    assert sheet and "without an objective" in " ".join(sheet.notes)
    assert "trial 0: context/optimality_mean" in " ".join(sheet.notes)


@pytest.mark.slow
def test_every_metric_that_may_be_an_objective_is_one_that_a_run_has(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import outlay

    monkeypatch.chdir(tmp_path)
    words = ("generator=extract", "dataset.limit=3", "metrics.resamples=100", "verbose=false")
    runs = [outlay.run([*words, f"selector={selector}"]) for selector in ("rcd", "routed")]
    assert set(tune.OTHERS) <= {name for run in runs for name in run.metrics}


def test_the_front_is_written_with_what_it_was_chosen_by(tmp_path: Path) -> None:
    search, done = Search(OPTIONS, LINE, 0), dict[int, Ended]()
    for _ in range(3):
        one_round(search, done)
    written, sheet, metrics = pareto.files(search, done, tmp_path)
    assert {path.name for path in written} == {
        "trials.csv", "pareto.csv", "pareto.md", "pareto.tex", "pareto.png", "pareto.svg",
    }  # fmt: skip
    assert all(path.stat().st_size for path in written)
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    best = [row for row in rows if row["front"] == "True"]
    values = [(float(row["quality/accuracy"]), float(row["cost/tokens_total"])) for row in rows]
    assert len(rows) == 12 and len(best) == metrics["tune/front"] == len(sheet.rows)  # type: ignore[union-attr]
    assert [rows.index(row) for row in best] == tune.front(values, OPTIONS.directions)
    assert "chosen and judged on split tune" in (tmp_path / "pareto.md").read_text().lower()


# ---------------------------------------------------------------- rounds, and their ends

ROUNDS = (
    *("tune=optuna", "tune.trials=6", "tune.batch=2", "tune.sampler=random", "dataset.split=tune"),
    *("generator=extract", "selector=lead,rcd", "budget.tokens=interval(32,512)"),
    "tune.objectives={quality/accuracy:maximize,cost/tokens_total:minimize}",
)


def drive(
    folder: Path,
    words: tuple[str, ...],
    ends: Callable[[int], str] = lambda number: "FINISHED",
    held_out: str = "test",
) -> tuple[multirun._Study, dict[int, Ended], list[list[record.PlanPoint]]]:
    """A study over made-up runs, resumed where the folder has a plan. ends: a point's number -> its status."""
    folder.mkdir(exist_ok=True)
    (first,) = preflight(words, multirun=True)
    first = replace(first, tune=replace(first.tune, held_out=held_out))
    composed: dict[Any, Any] = {}
    study = multirun._Study(space_of(words, composed), composed, first)
    plan = record.Plan("sweep", words, "parent", "here:1:", ())
    done: dict[int, Ended] = {}
    if (folder / record.PLAN).is_file():
        then = record.read_plan(folder)
        plan = replace(plan, points=study.planned(then))
        record.same(then, plan.points)
        done = record.finished(folder, plan)
    rounds = []
    for todo in study.rounds(plan, done, folder):
        rounds.append(todo)
        for point in todo:
            tokens = float(point.settings["budget.tokens"])  # type: ignore[arg-type]
            metrics = {"quality/accuracy": math.sqrt(tokens), "cost/tokens_total": tokens}
            at = str(folder / str(point.number))
            config = {"dataset": {"split": point.settings["dataset.split"]}}
            ended = Ended("made up", ends(point.number), config, {}, metrics, at)
            record.write_ended(ended)
            done[point.number] = ended
    return study, done, rounds


def test_a_failed_point_ends_no_study(tmp_path: Path) -> None:
    words = (*ROUNDS, "tune.batch=1")
    study, done, rounds = drive(tmp_path, words, lambda number: "FAILED" if number in (0, 3) else "FINISHED")
    assert [len(todo) for todo in rounds[:6]] == [1] * 6 and not study.why
    held = study.held()
    assert held == {point.number for point in rounds[-1]} and len(held) == 4
    assert {done[number].config["dataset"]["split"] for number in held} == {"test"}
    assert {study.tags([point])[point.number].get("held_out") for point in rounds[0]} == {None}


def test_a_study_of_which_nothing_finishes_stops_after_two_rounds_and_says_so(tmp_path: Path) -> None:
    study, done, _ = drive(tmp_path, ROUNDS, lambda number: "FAILED")
    assert len(done) == 4 and "none of 4 trials has finished" in study.why
    study, _, _ = drive(tmp_path / "fast", (*ROUNDS, "fail_fast=true"), lambda number: "FAILED")
    assert "fail_fast" in study.why


def test_what_cannot_be_run_on_the_held_out_split_is_passed_over_and_said(tmp_path: Path) -> None:
    words = tuple(word.replace("lead,rcd", "lead,learned") for word in ROUNDS)
    study, done, rounds = drive(tmp_path, words, held_out="train")
    chosen = {
        point.number: dict(w.split("=", 1) for w in point.overrides)["selector"] for point in rounds[-1]
    }
    assert set(chosen) == study.held() and set(chosen.values()) == {"lead"}
    _, sheet, _ = study.files(done, tmp_path)
    assert "cannot be run on the held-out split" in " ".join(sheet.notes)


def test_more_trials_leave_no_earlier_held_out_run_among_the_trials(tmp_path: Path) -> None:
    before = drive(tmp_path, ROUNDS)[0].held()
    study, done, _ = drive(tmp_path, (*ROUNDS, "tune.trials=10"))
    split = {number: one.config["dataset"]["split"] for number, one in done.items()}
    assert before < study.held() == {number for number, one in split.items() if one == "test"}
    assert len(split) - len(study.held()) == 10
    # Another split may be held out from then on, or none.
    study, done, rounds = drive(
        tmp_path, (*ROUNDS, "tune.trials=10", "tune.held_out=train"), held_out="train"
    )
    assert {point.settings["dataset.split"] for todo in rounds for point in todo} == {"train"}
    assert len(done) - len(study.held()) == 10


@pytest.mark.parametrize("killed", ["ask", "place", "place, then", "hold_out, then"])
def test_wherever_it_is_killed_a_study_goes_on_to_ask_the_same(
    killed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tuple(word.replace("sampler=random", "sampler=tpe") for word in ROUNDS)
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    for folder in (calm, wild):
        folder.mkdir()
    _, whole, _ = drive(calm, words)
    name, _, after = killed.partition(", ")  # before the call, or right after it
    real, calls = getattr(Search, name), itertools.count()

    def dies(*given: Any) -> Any:
        last = next(calls) == (0 if name == "hold_out" else 2)
        found = None if last and not after else real(*given)
        if last:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Search, name, dies)
        drive(wild, words)
    _, done, _ = drive(wild, words)
    plans = [record.read_plan(folder) for folder in (calm, wild)]
    assert [one.overrides for one in plans[0].points] == [one.overrides for one in plans[1].points]
    assert set(done) == set(whole)


# ---------------------------------------------------------------- the sweep

SWEEP = ("experiment=tune", "tune.trials=9", "tune.batch=3", "dataset.limit=4", "metrics.resamples=100")


def trials(cwd: Path) -> list[dict[str, str]]:
    (path,) = (cwd / "multirun_outputs").glob("*/*/trials.csv")
    return [
        {key: text for key, text in row.items() if key != "run_id"} for row in csv.DictReader(path.open())
    ]


@pytest.mark.slow
def test_a_tuned_sweep_is_killed_and_goes_on_to_the_same_front(tmp_path: Path, own_cache: Path) -> None:
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    calm.mkdir()
    wild.mkdir()
    out = finish(command(calm, own_cache, "-m", *SWEEP))
    assert "The front:" in out and "(test, held out)" in out
    words: tuple[str, ...] = SWEEP
    for ends in (1, 5, 10):  # in the first round, in the second, on the held-out split
        process = command(wild, own_cache, "-m", *words)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            if len(list((wild / "multirun_outputs").glob("*/*/*/ended.json"))) >= ends:
                break
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        words = ("resume=last",)
    out = finish(command(wild, own_cache, "-m", "resume=last"))
    assert "finished before" in out
    assert trials(wild) == trials(calm) and len(trials(wild)) == 9

    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{wild / 'multirun_outputs' / 'mlflow.db'}")
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()], max_results=1000)
    assert "RUNNING" not in {run.info.status for run in runs}
    (parent,) = [run for run in runs if run.data.tags.get("kind") == "sweep"]
    files = {one.path for one in client.list_artifacts(parent.info.run_id)}
    assert {"pareto.csv", "pareto.md", "pareto.png", "trials.csv"} <= files
    assert parent.info.status == "FINISHED" and 0 <= parent.data.metrics["tune/hypervolume"] <= 1
    finished = [run for run in runs if run.info.status == "FINISHED" and "trial" in run.data.tags]
    chosen = [run for run in finished if "held_out" not in run.data.tags]
    assert sorted(int(run.data.tags["trial"]) for run in chosen) == list(range(9))
    held = [run for run in finished if "held_out" in run.data.tags]
    assert len(held) == parent.data.metrics["tune/front"]
    assert {run.data.params["dataset.split"] for run in held} == {"test"}
    assert {run.data.params["dataset.split"] for run in chosen} == {"tune"}

    # More trials are a resume; a report reads the whole.
    finish(command(wild, own_cache, "-m", "resume=last", "tune.trials=10"))
    assert len(trials(wild)) == 10 and trials(wild)[0] | {"front": ""} == trials(calm)[0] | {"front": ""}
    finish(command(wild, own_cache, "report", "--out", "report"))
    assert (wild / "report" / "report.html").is_file()
    refused = command(wild, own_cache, "-m", "resume=last", "dataset.limit=5")
    _, said = refused.communicate(timeout=300)
    assert refused.returncode != 0 and "dataset.limit" in said

    # Another search of the same takes all from this one.
    finish(command(calm, own_cache, "-m", *SWEEP, "reuse=true"))
    first, second = sorted(
        (path.parent for path in (calm / "multirun_outputs").glob("*/*/trials.csv")),
        key=lambda folder: -len(list(folder.glob("*/ended.json"))),
    )
    assert not list(second.glob("*/ended.json"))
    assert (second / "trials.csv").read_text() == (first / "trials.csv").read_text()


@pytest.mark.slow
def test_a_plan_of_a_study_says_what_it_can_and_runs_nothing(tmp_path: Path, own_cache: Path) -> None:
    out = finish(command(tmp_path, own_cache, "-m", *SWEEP, "plan=true"))
    assert "up to 9 trials" in out and "on split test come on top" in " ".join(out.split())
    assert not (tmp_path / "multirun_outputs").exists()


@pytest.mark.slow
def test_retries_are_searched_on_a_model_and_what_cannot_run_costs_nothing(
    tmp_path: Path, own_cache: Path
) -> None:
    out = finish(
        command(
            tmp_path,
            own_cache,
            "-m",
            *("tune=optuna", "tune.trials=6", "tune.batch=3", "tune.held_out=null", "tune.sampler=random"),
            *("dataset=arithmetic", "dataset.split=tune", "dataset.limit=3", "metrics.resamples=100"),
            *("retry=none,vote,fixed", "retry.max_attempts=range(2,4)", "retry.stop=vote,none"),
        )
    )
    assert "chosen and judged on split tune" in out.lower()
    (sweep,) = (path.parent for path in (tmp_path / "multirun_outputs").glob("*/*/plan.jsonl"))
    points = [json.loads(line) for line in (sweep / "plan.jsonl").read_text().splitlines()[1:]]
    rows = list(csv.DictReader((sweep / "trials.csv").open()))
    assert len(rows) == 6
    assert len({point["hash"] for point in points}) == len(points)  # the same settings are one run
    for point in points:
        words = dict(word.split("=", 1) for word in point["overrides"])
        assert ("retry.max_attempts" in words) == (words["retry"] != "none")
        assert ("retry.stop" in words) == (words["retry"] == "fixed")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), batch=st.integers(1, 5), asked=st.integers(1, 9))
def test_a_study_asks_no_more_than_it_may(seed: int, batch: int, asked: int) -> None:
    search = Search(Optuna(trials=asked, batch=batch, sampler="random"), LINE, seed)
    rounds = 0
    while search.left:
        found = search.ask(has)
        assert 1 <= len(found) <= batch
        search.place(dict.fromkeys(found, 0), {})
        rounds += 1
    assert rounds == -(-asked // batch)
