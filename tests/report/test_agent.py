"""Tables of the agent side against runs whose truth is known."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import Simulated

from outlay.compose import checked, compose, plain
from outlay.generate import Completion, Prompt, Request
from outlay.record import Ended
from outlay.report.agent.contamination import arm_rows, contamination
from outlay.report.agent.lines import attempts
from outlay.report.agent.retries import curve_rows, inflation_table, retry_curves
from outlay.runner import _run, run_name


@dataclass(frozen=True)
class Swayed(Simulated):
    """Right with chance 0.6 alone; after a shown chain it repeats that chain's answer with chance 0.5."""

    p: float = 0.6

    def render(self, prompt: Prompt, tier: str) -> str:
        return f"{prompt.shows}|{prompt.messages}"

    def _one(self, request: Request) -> Completion:
        draw: Any = np.random.Generator(np.random.Philox(request.row_seed)).random(3)
        question = request.text.split("'user', ")[-1]
        gold = _sum(question)
        if request.text.startswith("carry") and draw[2] < 0.5:
            shown = request.text.split("('assistant', '")[1].split("')")[0].split()[-1].rstrip(".'\"")
            return Completion(f"It is {shown}", 10, 5, "stop")
        return Completion(f"It is {gold if draw[0] < self.p else gold + 1 + int(3 * draw[1])}", 10, 5, "stop")


def _sum(question: str) -> int:
    import re

    expression = re.findall(r"\d+(?: [+-] \d+)+", question)[-1]
    return int(sum(int(part.replace(" ", "")) for part in re.findall(r"[+-]? ?\d+", expression)))


def point(folder: Path, *words: str) -> Ended:
    config = compose(
        ["dataset=arithmetic", "dataset.split=all", "prompt.prefill=''", "verbose=false", *words]
    )
    parts = replace(checked(config), generator=Swayed())
    folder.mkdir(parents=True)
    choices = {"dataset": "arithmetic"} | {
        word.partition("=")[0]: word.partition("=")[2] for word in words if "." not in word.partition("=")[0]
    }
    done = _run(parts, folder, run_name(parts), choices)
    metrics, oracle = done.metrics, done.oracle
    return Ended(
        run_name(parts), "FINISHED", plain(config), choices, metrics, str(folder), folder.name, oracle
    )


@pytest.fixture
def arms(tmp_path: Path, own_cache: Path) -> Sequence[Ended]:
    return [
        point(
            tmp_path / arm,
            "dataset.limit=250",
            "dataset.count=250",
            "retry=contaminate",
            f"retry.arm={arm}",
            "retry.samples=6",
        )
        for arm in ("fresh", "failed", "right", "answer")
    ]


def test_the_arms_of_a_known_contamination_are_told_apart(arms: Sequence[Ended], tmp_path: Path) -> None:
    rows = {row.arm: row for row in arm_rows(arms) if row.chains == "all"}
    fresh, failed, right = rows["fresh"], rows["failed"], rows["right"]
    assert fresh.right_lo <= 0.6 <= fresh.right_hi
    assert failed.right_lo <= 0.3 <= failed.right_hi  # half repeats the wrong answer
    assert right.right_lo <= 0.8 <= right.right_hi
    assert failed.difference_hi < 0 < right.difference_lo and failed.p < 1e-4
    assert failed.p_holm >= failed.p and failed.repeats > 0.5 > failed.repeats_fresh
    assert failed.losses + failed.gains <= failed.cases == fresh.cases  # the same queries
    written = {path.name for path in contamination(arms, tmp_path)}
    assert written == {"contamination.csv", "contamination.md", "contamination.png", "contamination.svg"}


def test_a_query_without_a_failed_chain_is_no_case(arms: Sequence[Ended], tmp_path: Path) -> None:
    import pandas as pd

    ledger = pd.read_parquet(tmp_path / "failed" / "ledger.parquet")
    failed = ledger[
        (ledger.kind == "attempt") & (ledger.attempt <= 6) & (ledger.score == 0) & ledger.answer.notna()
    ]
    last = ledger[(ledger.kind == "attempt") & (ledger.attempt == 7)]
    assert set(last.example_id) == set(failed.example_id)


def test_retry_curves_follow_from_the_chance_of_success(tmp_path: Path, own_cache: Path) -> None:
    run = point(
        tmp_path / "all",
        "dataset.limit=300",
        "dataset.count=300",
        "retry=fixed",
        "retry.stop=none",
        "retry.max_attempts=6",
    )
    rows = curve_rows(run, [run])
    for row in rows:
        assert row.solved_lo - 0.02 <= 1 - 0.4**row.attempts <= row.solved_hi + 0.02
        expected = (1 - 0.4**row.attempts) / 0.6  # attempts until the first success, at most k
        assert row.inflation_lo - 0.05 <= expected <= row.inflation_hi + 0.05
    assert [row.all_tokens for row in rows] == sorted(row.all_tokens for row in rows)
    assert rows[0].solved == rows[0].voted and rows[-1].voted < rows[-1].solved
    paths = retry_curves([run], tmp_path)
    with (tmp_path / "retry_curves.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6 and len(paths) == 4


def test_a_curve_agrees_with_the_run_that_stops(tmp_path: Path, own_cache: Path) -> None:
    words = ("dataset.limit=60", "dataset.count=60", "retry=fixed", "retry.max_attempts=4")
    every = curve_rows(point(tmp_path / "a", *words, "retry.stop=none"), [])[-1]
    stopped = point(tmp_path / "b", *words, "retry.stop=gold")
    assert every.solved == pytest.approx(stopped.metrics["quality/accuracy"])
    assert every.solved_tokens == pytest.approx(stopped.metrics["cost/tokens_per_query"])
    assert every.inflation == pytest.approx(stopped.metrics["inflation/mean"])
    assert stopped.oracle


def test_a_query_that_was_refused_every_attempt_counts_as_wrong(tmp_path: Path, own_cache: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = point(
        tmp_path / "all",
        "dataset.limit=40",
        "dataset.count=40",
        "retry=fixed",
        "retry.stop=none",
        "retry.max_attempts=3",
    )
    whole = curve_rows(run, [run])
    attempts.cache_clear()
    path = tmp_path / "all" / "ledger.parquet"
    lines = pq.read_table(path)
    right = [row["example_id"] for row in lines.to_pylist() if row["score"] and row["attempt"] == 1]
    kept = [name != right[0] for name in lines["example_id"].to_pylist()]
    pq.write_table(lines.filter(pa.array(kept)), path)
    rows = curve_rows(run, [run])
    assert [row.queries for row in rows] == [40, 40, 40]
    assert rows[0].solved == pytest.approx(whole[0].solved - 1 / 40)
    assert rows[0].all_tokens < whole[0].all_tokens


def test_the_inflation_table_has_its_data_beside_it(tmp_path: Path, own_cache: Path) -> None:
    words = ("dataset.limit=20", "dataset.count=20", "retry=fixed", "retry.max_attempts=3")
    points = [point(tmp_path / stop, *words, f"retry.stop={stop}") for stop in ("gold", "vote")]
    assert {path.name for path in inflation_table(points, tmp_path)} == {"inflation.csv", "inflation.md"}
    with (tmp_path / "inflation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["run_id"] for row in rows] == ["gold", "vote"] and rows[0]["marks"] == "*"
    for row, one in zip(rows, points, strict=True):
        assert float(row["mean"]) == one.metrics["inflation/mean"]
    assert "| gold \\* |" in (tmp_path / "inflation.md").read_text()
