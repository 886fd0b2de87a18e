"""The figures of a budget grid: their numbers by hand, and that each CSV holds what its figure is drawn from."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from outlay.report import figures
from outlay.report.grid import curves
from outlay.report.grid.curves import curve_rows, quality_over_budget
from outlay.report.grid.effects import effect_rows, selector_against_unitizer, variance_split
from outlay.report.grid.positions import kept_by_place, kept_positions, position_rows
from outlay.report.grid.runs import BINS, grids
from outlay.report.grid.savings import saving_rows, savings
from outlay.report.grid.separation import metric_separation, separation_rows, separations


@dataclass
class Run:
    """A finished run, as the report knows it."""

    name: str
    config: dict[str, Any]
    choices: dict[str, str]
    metrics: dict[str, float]
    folder: str
    oracle: bool = False
    run_id: str = field(default="id")


def run(
    folder: Path,
    unitizer: str,
    selector: str,
    budget: int | None,
    scores: Sequence[float | None],
    spans: Sequence[list[list[int]]] | None = None,
    tokens: int = 0,
    dataset: str = "cochrane",
    metric: str = "bertscore_f1",
    ids: Sequence[str] | None = None,
    oracle: bool = False,
    **others: Sequence[float],
) -> Run:
    """A run's folder with its predictions, and the point that names it."""
    name = f"{dataset}-{unitizer}-{selector}-{budget}"
    own = folder / name
    own.mkdir()
    columns: dict[str, Sequence[float | None]] = {metric: scores, **others}
    with (own / "predictions.jsonl").open("w", encoding="utf-8") as file:
        for at in range(len(scores)):
            one = {
                "id": ids[at] if ids else f"d{at}",
                "document": ids[at].partition("-q")[0] if ids else f"d{at}",
                "context_tokens": tokens or budget,
                "context_spans": spans[at] if spans else [[0, 10]],
                "metrics": {key: values[at] for key, values in columns.items()},
            }
            file.write(json.dumps(one) + "\n")
    kept = "full" if selector == "full" else "fixed"
    config: dict[str, Any] = {"budget": {} if budget is None else {"tokens": budget}}
    choices = {"dataset": dataset, "unitizer": unitizer, "selector": selector, "budget": kept}
    count = len(scores)
    metrics = {
        "data/examples": float(count),
        "context/tokens_mean": float(tokens or budget or 0),
        "cost/tokens_prompt": float(count * (tokens or budget or 0)),
        "cost/tokens_per_query": float(tokens or budget or 0),
    }
    for key, values in columns.items():
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if known else math.nan
        metrics |= {f"quality/{key}": mean, f"quality/{key}_lo": mean - 0.1, f"quality/{key}_hi": mean + 0.1}
    return Run(name, config, choices, metrics, str(own), oracle, name)


def shown(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def same_as_csv(rows: Sequence[Any], path: Path) -> None:
    """The file holds the rows, value for value."""
    lines = shown(path)
    assert len(lines) == len(rows) > 0
    for row, line in zip(rows, lines, strict=True):
        for key, text in line.items():
            value = getattr(row, key)
            if isinstance(value, float):
                assert text == "" if math.isnan(value) else float(text) == value
            else:
                assert text == str(value)


@pytest.fixture
def grid(tmp_path: Path) -> list[Run]:
    """Two unitizers, two selectors, two budgets, and the whole document."""
    return [
        run(tmp_path, "sentence", "lead", 64, [0.2, 0.4], [[[0, 50]], [[0, 50]]], rouge1=[0.1, 0.3]),
        run(
            tmp_path,
            "sentence",
            "mmr",
            64,
            [0.3, 0.5],
            [[[50, 100]], [[0, 25], [75, 100]]],
            rouge1=[0.1, 0.2],
        ),
        run(tmp_path, "section", "lead", 64, [0.1, 0.3], rouge1=[0.1, 0.3]),
        run(tmp_path, "section", "mmr", 64, [0.4, 0.6], rouge1=[0.1, 0.4]),
        run(tmp_path, "sentence", "lead", 128, [0.5, 0.5], rouge1=[0.2, 0.3]),
        run(tmp_path, "sentence", "mmr", 128, [0.6, 0.8], rouge1=[0.2, 0.3]),
        run(tmp_path, "section", "lead", 128, [0.5, 0.5], rouge1=[0.2, 0.3]),
        run(tmp_path, "section", "mmr", 128, [0.5, 0.5], rouge1=[0.2, 0.3]),
        run(
            tmp_path,
            "sentence",
            "full",
            None,
            [0.6, 0.6],
            [[[0, 100]], [[0, 100]]],
            tokens=256,
            rouge1=[0.2, 0.2],
        ),
    ]


def test_curves_carry_the_runs_interval_and_the_paired_difference_to_lead(grid: list[Run]) -> None:
    rows = {(r.metric, r.unitizer, r.selector, r.budget): r for r in curve_rows(grid)}
    one = rows["bertscore_f1", "sentence", "mmr", 64]
    assert (one.quality, one.quality_lo, one.quality_hi) == pytest.approx((0.4, 0.3, 0.5))
    # Both examples gain .1, so every resample does.
    assert (one.over_lead, one.over_lead_lo, one.over_lead_hi) == pytest.approx((0.1, 0.1, 0.1))
    assert math.isnan(rows["bertscore_f1", "sentence", "lead", 64].over_lead)
    assert rows["rouge1", "section", "mmr", 64].over_lead == pytest.approx(0.05)
    assert not any(r.selector == "full" for r in rows.values())


def test_the_variance_is_split_as_in_a_two_way_analysis() -> None:
    # Means 1 2 / 5 6: rows differ by 4, columns by 1, nothing is left.
    found = variance_split(np.array([[1.0, 2.0], [5.0, 6.0]]))
    assert {name: (float(share), float(spread)) for name, (share, spread) in found.items()} == {
        "selector": (pytest.approx(4 / 4.25), pytest.approx(2.0)),
        "unitizer": (pytest.approx(0.25 / 4.25), pytest.approx(0.5)),
        "both": (pytest.approx(0.0), pytest.approx(0.0)),
    }
    crossed = variance_split(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert float(crossed["both"][0]) == pytest.approx(1.0)
    assert [float(share) for share, _ in variance_split(np.ones((2, 3))).values()] == [0, 0, 0]


@given(arrays(float, (3, 4), elements=st.floats(-5, 5)))
def test_the_shares_make_up_the_variance(means: np.ndarray) -> None:
    parts = variance_split(means)
    assert sum(float(spread) ** 2 for _, spread in parts.values()) == pytest.approx(means.var(), abs=1e-9)
    if means.var() > 1e-6:
        assert sum(float(share) for share, _ in parts.values()) == pytest.approx(1.0)


def test_effects_of_a_grid(grid: list[Run]) -> None:
    rows = {(r.metric, r.budget, r.source): r for r in effect_rows(grid)}
    # Means at 64 tokens: sentence lead .3, mmr .4; section lead .2, mmr .5.
    selector, both = rows["bertscore_f1", 64, "selector"], rows["bertscore_f1", 64, "both"]
    assert selector.spread == pytest.approx(0.1)
    assert (selector.share, both.share) == pytest.approx((0.8, 0.2))
    assert rows["bertscore_f1", 64, "unitizer"].share == pytest.approx(0.0)
    # Every example has the same differences, so does every resample.
    assert (selector.share_lo, selector.share_hi) == pytest.approx((0.8, 0.8))
    assert (selector.selectors, selector.unitizers, selector.examples) == (2, 2, 2)


def test_an_effect_needs_every_selector_under_every_unitizer(grid: list[Run]) -> None:
    without = [one for one in grid if not (one.name.startswith("cochrane-section-mmr"))]
    assert effect_rows(without) == []


def test_separation_is_the_paired_t_statistic() -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 2.0, 2.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    # First minus second: 1 0 1 0, mean .5, sd 1/sqrt(3), error 1/(2 sqrt(3)).
    assert separations(values).tolist() == pytest.approx([math.sqrt(3), 0.0, math.sqrt(3)])


def test_separation_of_a_grid_counts_pairs_of_methods_only(grid: list[Run], tmp_path: Path) -> None:
    extra = run(tmp_path, "sentence", "oracle", 64, [0.9, 0.1], rouge1=[0.9, 0.1], oracle=True)
    (row,) = (
        r
        for r in separation_rows([*grid, extra])
        if (r.metric, r.unitizer, r.budget) == ("rouge1", "sentence", 64)
    )
    assert (row.pairs, row.examples) == (1, 2)
    assert row.separation == pytest.approx(1.0)  # differences 0 and .1: mean .05, error .05


def test_kept_places() -> None:
    kept = kept_by_place([(0, 5), (10, 20)], 100)
    assert kept.shape == (BINS,)
    assert kept[:4].tolist() == pytest.approx([1.0, 0.0, 1.0, 1.0])
    assert kept_by_place([(0, 3)], 40)[:3].tolist() == pytest.approx([1.0, 0.5, 0.0])


spans = st.lists(st.integers(0, 200), max_size=10).map(
    lambda ends: [(a, b) for a, b in zip(sorted(ends)[::2], sorted(ends)[1::2], strict=False)]
)


@given(spans)
def test_kept_places_hold_all_kept_text(kept: list[tuple[int, int]]) -> None:
    merged = {at for start, end in kept for at in range(start, end)}
    assert kept_by_place(kept, 200).sum() * 200 / BINS == pytest.approx(len(merged))


def test_positions_of_a_grid(grid: list[Run]) -> None:
    rows = {(r.selector, r.bin): r for r in position_rows(grid) if (r.unitizer, r.budget) == ("sentence", 64)}
    assert [rows["lead", at].kept for at in (0, 9, 10, 19)] == pytest.approx([1, 1, 0, 0])
    # Of two documents of 100 characters, one is kept in its second half, one at either end.
    assert [rows["mmr", at].kept for at in (0, 7, 12, 19)] == pytest.approx([0.5, 0.0, 0.5, 1.0])


def test_savings_against_the_whole_document(grid: list[Run]) -> None:
    rows = {(r.unitizer, r.selector, r.budget): r for r in saving_rows(grid)}
    one = rows["section", "mmr", 64]
    assert (one.input_tokens, one.input_tokens_full) == (64, 256)
    assert (one.saving, one.context_saving) == pytest.approx((0.75, 0.75))
    assert (one.quality, one.quality_full, one.over_full) == pytest.approx((0.5, 0.6, -0.1))
    assert (one.over_full_lo, one.over_full_hi) == pytest.approx((-0.2, 0.0))
    assert saving_rows([point for point in grid if point.choices["selector"] != "full"]) == []


def test_questions_on_one_document_are_resampled_together(tmp_path: Path) -> None:
    ids = ["n1-q0", "n1-q1", "n2-q0", "n2-q1"]
    notes = [
        run(tmp_path, "sentence", "lead", 64, [0, 0, 0, 0], dataset="notes", metric="fact_recall", ids=ids),
        run(tmp_path, "sentence", "mmr", 64, [1, 0, 1, 0], dataset="notes", metric="fact_recall", ids=ids),
        run(tmp_path, "section", "lead", 64, [0, 1, 0, 1], dataset="notes", metric="fact_recall", ids=ids),
        run(tmp_path, "section", "mmr", 64, [1, 1, 1, 1], dataset="notes", metric="fact_recall", ids=ids),
    ]
    # The two notes are alike, so resampling notes changes nothing; resampling questions would.
    for row in effect_rows(notes):
        assert (row.share_lo, row.share_hi) == pytest.approx((row.share, row.share))


def test_runs_that_differ_in_more_are_grids_of_their_own(grid: list[Run], tmp_path: Path) -> None:
    for point in grid:
        point.config["generator"] = {"model": "a"}
    other = run(tmp_path, "sentence", "rcd", 64, [0.0, 1.0])
    other.config["generator"] = {"model": "b"}
    found = grids([*grid, other])
    assert [(one.rest, len(one.runs)) for one in found] == [
        ("generator.model=a", 8),
        ("generator.model=b", 1),
    ]
    assert found[0].full is grid[-1] and found[1].full is None


def test_budgets_of_two_kinds_do_not_meet(grid: list[Run], tmp_path: Path) -> None:
    for point in grid[:-1]:
        point.config["budget"]["truncate"] = True
    other = run(tmp_path, "sentence", "rcd", 64, [0.0, 1.0])
    other.config["budget"]["truncate"] = False
    cut, whole = grids([*grid, other])
    assert (cut.rest, len(cut.runs), cut.full) == ("budget.truncate=True", 8, grid[-1])
    assert (whole.rest, len(whole.runs), whole.full) == ("budget.truncate=False", 1, grid[-1])


FIGURES = (
    (quality_over_budget, curve_rows, "quality_over_budget"),
    (selector_against_unitizer, effect_rows, "selector_against_unitizer"),
    (metric_separation, separation_rows, "metric_separation"),
    (kept_positions, position_rows, "kept_positions"),
)


@pytest.mark.parametrize(("write", "rows", "name"), FIGURES, ids=[name for *_, name in FIGURES])
def test_each_figure_is_written_beside_its_data(
    write: Any, rows: Any, name: str, grid: list[Run], tmp_path: Path
) -> None:
    written = write(grid, tmp_path)
    assert [path.name for path in written] == [f"{name}.csv", f"{name}.png", f"{name}.svg"]
    assert written[1].read_bytes()[:4] == b"\x89PNG"
    assert b"<svg" in written[2].read_bytes()[:2000]
    same_as_csv(rows(grid), written[0])
    known = {point.run_id for point in grid}
    assert all(set(row.run_ids.split()) <= known and row.run_ids for row in rows(grid))


def test_a_row_names_the_runs_that_it_compares(grid: list[Run]) -> None:
    row = next(
        row for row in curve_rows(grid) if (row.unitizer, row.selector, row.budget) == ("section", "mmr", 64)
    )
    assert row.run_ids.split() == ["cochrane-section-mmr-64", "cochrane-section-lead-64"]
    saving = next(row for row in saving_rows(grid) if row.selector == "lead")
    assert saving.run_ids.split() == ["cochrane-sentence-lead-64", "cochrane-sentence-full-None"]


def test_the_curves_drawn_are_the_rows(
    grid: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(curves, "save", lambda figure, stem: kept.append(figure) or [])
    quality_over_budget(grid, tmp_path)
    (figure,) = kept
    rows = {
        (r.unitizer, r.selector, r.budget): r.quality for r in curve_rows(grid) if r.metric == "bertscore_f1"
    }
    for axis, unitizer in zip(figure.axes[:2], ("sentence", "section"), strict=True):
        for line in axis.lines:
            drawn = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
            assert drawn == {budget: rows[unitizer, line.get_label(), budget] for budget in (64, 128)}
        assert {line.get_label() for line in axis.lines} == {"lead", "mmr"}


@pytest.mark.parametrize("write", [write for write, *_ in FIGURES] + [savings])
def test_what_does_not_apply_writes_nothing(write: Any, tmp_path: Path) -> None:
    closed = Run(
        "closed", {}, {"dataset": "arithmetic", "selector": "none"}, {"data/examples": 2.0}, str(tmp_path)
    )
    assert write([closed], tmp_path) == []
    assert not list(tmp_path.glob("*.*"))


def test_a_run_whose_files_are_elsewhere_is_left_out(grid: list[Run]) -> None:
    for point in grid:
        point.folder += "-moved"
    assert effect_rows(grid) == separation_rows(grid) == position_rows(grid) == saving_rows(grid) == []


def test_of_many_lines_the_frontier_is_named(tmp_path: Path) -> None:
    many = [
        run(tmp_path, unitizer, selector, 64, [quality], tokens=tokens)
        for unitizer, selector, quality, tokens in [
            *((unitizer, f"s{at}", 0.1, 64 + at) for unitizer in ("sentence", "section") for at in range(4)),
            ("window", "best", 0.9, 80),
            ("window", "cheap", 0.2, 32),
        ]
    ]
    lines = {point.name: [point] for point in many}
    named = figures._told_apart(lines, "quality/bertscore_f1")
    assert named == ["cochrane-window-best-64", "cochrane-window-cheap-64"]
    few = dict(list(lines.items())[:3])
    assert figures._told_apart(few, "quality/bertscore_f1") == list(few)
