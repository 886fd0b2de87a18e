"""Tables say what varied, what it bought and what it cost; oracles are marked; figures and CSV come from the same points."""

import csv
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from outlay.report import sheets, tables, terminal


@dataclass(frozen=True)
class Made:
    name: str
    choices: dict[str, str]
    config: dict[str, Any]
    metrics: dict[str, float]
    oracle: bool = False
    status: str = "FINISHED"
    error: str = ""
    run_id: str = "r"
    folder: str = "f"
    extra: dict[str, Any] = field(default_factory=dict)


def point(retry: str, stop: str | None, accuracy: float, tokens: float, oracle: bool = False) -> Made:
    options: dict[str, Any] = {"_target_": f"x.{retry}", "temperature": 0.7}
    if stop:
        options["stop"] = stop
    metrics = {
        "quality/accuracy": accuracy,
        "quality/accuracy_lo": accuracy - 0.1,
        "quality/accuracy_hi": accuracy + 0.1,
        "cost/tokens_per_query": tokens,
        "cost/tokens_total": tokens * 10,
        "cost/tokens_probe": 0.0,
        "cost/tokens_retry": 0.0,
        "cost/per_correct": tokens / accuracy if accuracy else math.inf,
        "cost/per_correct_lo": 1.0,
        "cost/per_correct_hi": 2.0,
        "inflation/mean": 1.0,
        "data/examples": 10.0,
        "cache/generated_tokens": 5.0,
        "cache/hits": 0.0,
        "cache/misses": 10.0,
    }
    config = {"retry": options, "dataset": {"_target_": "x.Arithmetic"}, "output_dir": "a", "seed": 0}
    return Made(f"{retry} {stop}", {"dataset": "arithmetic", "retry": retry}, config, metrics, oracle)


POINTS = [
    point("none", None, 0.4, 100),
    point("fixed", "gold", 0.6, 250, oracle=True),
    point("fixed", "vote", 0.5, 300),
]


def test_what_varies_is_found_and_options_that_only_one_choice_has_do_not_count() -> None:
    assert tables.varying(POINTS) == ["retry", "retry.stop"]
    assert tables.varying(POINTS[:1]) == []


def test_a_seed_of_the_data_that_is_the_runs_own_is_no_setting() -> None:
    def seeded(seed: int, data: int) -> Made:
        return replace(POINTS[0], config={**POINTS[0].config, "seed": seed, "dataset": {"seed": data}})

    assert tables.varying([seeded(0, 0), seeded(1, 1)]) == ["seed"]
    assert tables.varying([seeded(0, 0), seeded(1, 1), seeded(1, 0)]) == ["dataset.seed", "seed"]
    assert tables.said(seeded(1, 1), [seeded(0, 0), seeded(1, 1)]) == "seed 1"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("retry", "vote", "vote"),
        ("retry", "none", "no retry"),
        ("retry.stop", "none", "stop none"),
        ("retry.stop", "gold", "gold"),
        ("budget.tokens", 64, "budget 64"),
        ("router.samples", 5, "samples 5"),
        ("probe.reuse", True, "reuse True"),
        ("seed", 3, "seed 3"),
        ("metrics.scorer", "strict", "scorer strict"),
    ],
)
def test_a_setting_is_named_where_its_value_says_nothing(key: str, value: object, said: str) -> None:
    assert tables.word(key, value) == said


def test_a_name_says_no_more_than_tells_its_run_from_the_others() -> None:
    assert [tables.said(one, POINTS) for one in POINTS] == ["no retry", "fixed · gold", "fixed · vote"]


def test_the_instrument_is_named_once() -> None:
    lab = replace(POINTS[0], choices={**POINTS[0].choices, "generator": "lab"})
    assert sheets.notes([lab]) == [tables.INSTRUMENT]


def test_the_csv_has_every_metric_and_run(tmp_path: Path) -> None:
    (path,) = tables.results(POINTS, tmp_path)
    rows = list(csv.DictReader(path.open()))
    assert [row["retry.stop"] for row in rows] == ["", "gold", "vote"]
    assert [float(row["quality/accuracy"]) for row in rows] == [0.4, 0.6, 0.5]
    assert [row["oracle"] for row in rows] == ["False", "True", "False"] and {
        row["run_id"] for row in rows
    } == {"r"}


def test_the_terminal_marks_oracles_and_never_calls_one_the_cheapest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.sweep_ends(POINTS, Path("out"), "mlflow ui")
    said = capsys.readouterr().out
    assert "gold *" in said and "reads the answer key" in said
    assert "Cheapest right answers here: retry none" in said
    assert "60 % [50, 70]" in said and "mlflow ui" in said
    assert "infla-" not in said and "probes" not in said  # columns that would say nothing


def test_failures_are_all_named(capsys: pytest.CaptureFixture[str]) -> None:
    bad = [
        Made("rcd · 64", {}, {}, {}, status="FAILED", error="row 3 has no answer", folder="out/3"),
        POINTS[0],
    ]
    terminal.failures(bad, "2026-01-01")
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of 2 runs did not finish (1 failed)" in said and "row 3 has no answer" in said


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.4, "1,234"), (math.nan, "–"), (math.inf, "∞"), (0.0, "0")]
)
def test_counts(value: float, shown: str) -> None:
    assert tables.count(value) == shown


def test_a_price_that_is_infinite_in_some_resamples_says_so() -> None:
    assert sheets.number(8.0, 7.25, math.inf).text == "8.00 [7.25, ∞]"
    assert sheets.number(math.inf, 7.25, math.inf).text == "∞ [7.25, ∞]"
    assert sheets.number(math.inf, math.inf, math.inf).text == "∞"
    assert sheets.percent(0.5, 0.25, math.inf, signed=True).text == "+50.0 [+25.0, ∞]"
    assert sheets.percent(0.41, 0.29, 0.54).text == "41.0 % [29.0, 54.0]"
    assert sheets.number(-0.001, -0.5, 0.0, "+.1f").text == "+0.0 [−0.5, +0.0]"


def test_a_mean_without_cases_is_a_dash() -> None:
    one = {"inflation/solved": 6.0, "inflation/solved_lo": math.nan, "inflation/solved_hi": math.nan}
    assert tables.with_interval(one, "inflation/solved", percent=False) == "6.00"  # one case: no interval
    assert tables.with_interval({}, "quality/accuracy") == "–"
