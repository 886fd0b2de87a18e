"""Tables say what varied, what it bought and what it cost; oracles are marked; figures and CSV come from the same points."""

import csv
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from outlay.report import sheets, tables, terminal
from outlay.report.agent.difficulty import difficulty_rows
from outlay.report.hull import hull_rows


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


def sized(one: Made, examples: float, documents: float = 0.0) -> Made:
    return replace(one, metrics=one.metrics | {"data/examples": examples, "data/documents": documents})


def test_rows_of_different_sizes_say_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = [sized(POINTS[0], 40, 5), sized(POINTS[2], 20, 5)]
    assert tables.size(mixed) == "20 to 40 examples on 5 documents"
    assert tables.size([sized(POINTS[0], 40, 1)]) == "40 examples on 1 document"
    (sheet,) = sheets.overview(mixed)
    at = sheet.headings.index("examples")
    assert [row[at].text for row in sheet.rows] == ["40", "20"]
    assert sheet.notes[0].startswith("20 to 40 examples on 5 documents;")
    terminal.sweep_ends(mixed, Path("out"), "ui")
    said = capsys.readouterr().out
    assert "20 to 40 examples on 5 documents" in said and "┃ examples ┃" in said
    assert "examples" not in sheets.overview(POINTS)[0].headings


def extracted(accuracy: float, recall: float) -> Made:
    one = point("none", None, accuracy, 244)
    kept = {f"quality/fact_recall{end}": recall for end in ("", "_lo", "_hi")}
    return replace(one, choices=one.choices | {"generator": "extract"}, metrics=one.metrics | kept)


def test_what_no_model_answered_is_not_judged_as_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    alone = [extracted(0.0, 0.5), replace(extracted(0.0, 0.4), run_id="s")]
    terminal.sweep_ends(alone, Path("out"), "ui")
    terminal.single(alone[0])
    said = capsys.readouterr().out
    assert "right answer" not in said and "∞" not in said and "accuracy" not in said
    assert said.count("fact recall") == 2  # the sweep's column, once, and the run's row

    answered, apart = sheets.overview([POINTS[0], *alone])
    assert answered.title.startswith("arithmetic:") and "accuracy" in answered.headings
    assert apart.title.startswith("arithmetic (no model):")
    assert "fact recall" in apart.headings and "accuracy" not in apart.headings
    assert len(apart.rows) == 2 and not any("right answer" in one for one in apart.headings)


def test_a_verifier_that_did_not_run_is_not_named() -> None:
    def stopping(stop: str, verifier: str) -> Made:
        options = {"stop": stop, "verifier": verifier, "threshold": None}
        return replace(POINTS[1], config={**POINTS[1].config, "retry": options})

    points = [stopping("vote", "agreement"), stopping("verifier", "agreement"), stopping("verifier", "judge")]
    assert "retry.verifier" not in tables.labels(points[0])
    assert tables.said(points[0], points) == "vote"
    assert tables.said(points[2], points).endswith("judge")


def test_levels_that_are_all_right_have_an_interval_of_some_width(tmp_path: Path) -> None:
    with (tmp_path / "predictions.jsonl").open("w") as file:
        for level, right in ((1, 1), (2, 0), (3, None)):
            for at in range(8):
                correct = bool(at % 2) if right is None else bool(right)
                one = {"difficulty": level, "correct": correct, "inflation": 1.0, "tokens": 10.0}
                file.write(json.dumps(one) + "\n")
    easy, hard, _ = difficulty_rows([replace(POINTS[2], folder=str(tmp_path))])
    assert (easy.accuracy, easy.accuracy_hi) == (1.0, 1.0) and 0.6 < easy.accuracy_lo < 0.65
    assert (hard.accuracy, hard.accuracy_lo) == (0.0, 0.0) and 0.35 < hard.accuracy_hi < 0.4


def test_the_panels_of_one_figure_have_one_unit_of_cost() -> None:
    def priced(dataset: str, units: float) -> Made:
        metrics = POINTS[0].metrics | {
            "cost/cost_units_total": units * POINTS[0].metrics["cost/tokens_total"]
        }
        return replace(POINTS[0], choices={**POINTS[0].choices, "dataset": dataset}, metrics=metrics)

    two_prices = [priced("chains", 1.0), priced("chains", 9.0)]
    assert {row.unit for row in hull_rows([*two_prices, priced("arithmetic", 1.0)])} == {"compute units"}
    assert {row.unit for row in hull_rows([priced("chains", 9.0), priced("arithmetic", 1.0)])} == {"tokens"}
