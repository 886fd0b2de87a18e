"""Inflation and accuracy by the difficulty of the question, for data sets that grade it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outlay.report.grid.drawing import footnote, save, write_rows
from outlay.report.sheets import Cell, Sheet, judged, names, notes, number, percent
from outlay.report.tables import Point, answers, by_dataset, marks

LINES = 8
"""Runs that a panel of the figure draws."""


@dataclass(frozen=True)
class DifficultyRow:
    """One run's queries of one difficulty. Intervals are 95 %, by a bootstrap over queries (all right, or all wrong: Clopper and Pearson)."""

    dataset: str
    setting: str
    marks: str
    difficulty: float  # terms of a sum, steps of a chain, hops and distractors: see the data set
    queries: int
    accuracy: float
    accuracy_lo: float
    accuracy_hi: float
    inflation: float  # mean of (tokens of all attempts / of the first)
    inflation_lo: float
    inflation_hi: float
    tokens: float  # a query
    tokens_lo: float
    tokens_hi: float
    run_id: str


def difficulty_rows(points: Sequence[Point]) -> list[DifficultyRow]:
    """A row for each run and difficulty, of runs that see two difficulties or more."""
    from outlay.score.statistics import interval, share

    rows = []
    for dataset, group in by_dataset(judged(points)).items():
        named = names(group)
        for point in group:
            graded = _graded(point.folder)
            for level, asked in sorted(graded.items()) if len(graded) > 1 else ():
                columns = zip(*asked, strict=True)
                correct, inflation, tokens = (
                    estimate([math.nan if x is None else x for x in one])
                    for estimate, one in zip((share, interval, interval), columns, strict=True)
                )
                rows.append(
                    DifficultyRow(
                        dataset,
                        named[point.run_id],
                        marks(point),
                        level,
                        len(asked),
                        *correct,
                        *inflation,
                        *tokens,
                        point.run_id,
                    )
                )
    return rows


@lru_cache(maxsize=256)
def _graded(folder: str) -> dict[float, list[tuple[float | None, float | None, float]]]:
    """Difficulty -> (right, inflation, tokens) of its queries; empty where the data set has no difficulty."""
    path = Path(folder) / "predictions.jsonl"
    found: dict[float, list[tuple[float | None, float | None, float]]] = {}
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for one in map(json.loads, file):
                if isinstance(one.get("difficulty"), (int, float)):
                    found.setdefault(one["difficulty"], []).append(
                        (one["correct"], one["inflation"], one["tokens"])
                    )
    return found


def inflation_by_difficulty(points: Sequence[Point], folder: Path) -> tuple[list[Path], list[Sheet]]:
    """inflation_by_difficulty.csv, figure and sheet; nothing where no run that retries sees two difficulties."""
    retried = [
        point for point in points if answers(point) and point.choices.get("retry") not in (None, "none")
    ]
    rows = difficulty_rows(retried)
    if not rows:
        return [], []
    written = write_rows(rows, folder / "inflation_by_difficulty.csv") + _figure(rows, points, folder)
    sheet = Sheet(
        "inflation_by_difficulty",
        "Inflation by difficulty",
        ("data set", "run", "difficulty", "queries", "accuracy", "inflation", "tokens a query"),
        tuple(
            (
                Cell(row.dataset),
                Cell(row.setting),
                Cell(f"{row.difficulty:g}", row.difficulty),
                Cell(str(row.queries), row.queries),
                percent(row.accuracy, row.accuracy_lo, row.accuracy_hi),
                number(row.inflation, row.inflation_lo, row.inflation_hi),
                number(row.tokens, row.tokens_lo, row.tokens_hi, ",.0f"),
            )
            for row in rows
        ),
        tuple((row.run_id,) for row in rows),
        (
            "Inflation: mean of tokens of all attempts over those of the first. 95 % intervals over queries.",
            *notes(points),
        ),
        2,
    )
    return written, [sheet]


def _figure(rows: Sequence[DifficultyRow], points: Sequence[Point], folder: Path) -> list[Path]:
    """Inflation, and below it accuracy, over difficulty: a panel for each data set, a line for each run."""
    from outlay.report.figures import COLORS, MARKERS
    from outlay.report.grid.drawing import panels

    datasets = list(dict.fromkeys(row.dataset for row in rows))
    figure, axes = panels(2, len(datasets), width=5.0, height=3.0)
    for column, dataset in enumerate(datasets):
        lines: dict[str, list[DifficultyRow]] = {}
        for row in rows:
            if row.dataset == dataset:
                lines.setdefault(row.run_id, []).append(row)
        shown = list(lines.values())[:LINES]
        for at, line in enumerate(shown):
            for axis, name, scale in ((axes[0][column], "inflation", 1), (axes[1][column], "accuracy", 100)):
                x = [row.difficulty + 0.04 * (at - len(shown) / 2) for row in line]
                y = [scale * getattr(row, name) for row in line]
                arms = [
                    [max(0.0, scale * abs(getattr(row, f"{name}{end}") - getattr(row, name))) for row in line]
                    for end in ("_lo", "_hi")
                ]
                axis.errorbar(
                    x,
                    y,
                    yerr=arms,
                    label=line[0].setting,
                    color=COLORS[at % len(COLORS)],
                    marker=MARKERS[at % len(MARKERS)],
                    markersize=4.5,
                    linewidth=1.2,
                    elinewidth=0.8,
                    capsize=2,
                )
        left = f" (first {LINES} of {len(lines)} runs; the CSV has all)" if len(lines) > LINES else ""
        axes[0][column].set_title(f"{dataset}{left}", loc="left", fontsize=10)
        axes[0][column].set_ylabel("inflation")
        axes[1][column].set_ylabel("right, %")
        axes[1][column].set_xlabel("difficulty")
        axes[1][column].legend(
            frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2
        )
    footnote(figure, points)
    return save(figure, folder / "inflation_by_difficulty")
