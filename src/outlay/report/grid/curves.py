"""Quality over budget, a line for each selector, with its paired difference to lead."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.report.grid.drawing import (
    BANDED,
    band,
    budget_axis,
    footnote,
    one_legend,
    panels,
    row_name,
    save,
    selector_style,
    share_y,
    spoken,
    write_rows,
)
from outlay.report.grid.runs import (
    RESAMPLES,
    SELECTORS,
    UNITIZERS,
    Grid,
    aligned,
    documents_of,
    grids,
    ordered,
    panel_metrics,
    run_ids,
    shared_metrics,
)
from outlay.report.tables import Point


@dataclass(frozen=True)
class CurveRow:
    """A run's mean quality and its difference to lead's under the same unitizer and budget, with 95 % intervals."""

    dataset: str
    setting: str
    metric: str
    unitizer: str
    selector: str
    reads_gold: bool
    budget: int
    tokens_mean: float
    examples: int
    quality: float
    quality_lo: float
    quality_hi: float
    over_lead: float  # paired by example; nan for lead itself and where there is no lead
    over_lead_lo: float
    over_lead_hi: float
    over_lead_p: float  # two-sided, not adjusted for the number of comparisons
    run_ids: str  # of the run, and of lead's where it is compared with it


def curve_rows(points: Sequence[Point]) -> list[CurveRow]:
    """Every run of every grid, under every metric that tells runs apart."""
    rows = []
    for grid in grids(points):
        if len(grid.budgets) < 2:
            continue
        for metric in shared_metrics(grid):
            for unitizer in grid.unitizers:
                for selector in grid.selectors:
                    rows += [
                        _curve_row(grid, metric, unitizer, selector, budget)
                        for budget in grid.budgets
                        if (unitizer, selector, budget) in grid.runs
                    ]
    return rows


def _curve_row(grid: Grid, metric: str, unitizer: str, selector: str, budget: int) -> CurveRow:
    from outlay.score.statistics import paired_difference

    run = grid.runs[unitizer, selector, budget]
    lead = grid.runs.get((unitizer, "lead", budget))
    pair = aligned([run, lead], metric) if lead is not None and selector != "lead" else None
    against = (math.nan,) * 4
    if pair:
        values, ids = pair
        against = paired_difference(
            values[0], values[1], resamples=RESAMPLES, clusters=documents_of(run.folder, ids)
        )
    mean, low, high = (run.metrics.get(f"quality/{metric}{end}", math.nan) for end in ("", "_lo", "_hi"))
    examples = int(run.metrics["data/examples"])
    tokens = run.metrics.get("context/tokens_mean", math.nan)
    return CurveRow(
        grid.dataset,
        grid.rest,
        metric,
        unitizer,
        selector,
        run.oracle,
        budget,
        tokens,
        examples,
        mean,
        low,
        high,
        *against,
        run_ids([run, lead if pair else None]),
    )


def quality_over_budget(points: Sequence[Point], folder: Path) -> list[Path]:
    """Quality over the token budget, a line for each selector with its 95 % band; below, its paired lead over `lead`.

    A panel for each unitizer, a pair of rows for each data set and metric.
    """
    rows = curve_rows(points)
    if not rows:
        return []
    written = write_rows(rows, folder / "quality_over_budget.csv")
    shown = {grid.name: panel_metrics(grid) for grid in grids(points)}
    bands = [
        (name, metric)
        for name, metrics in shown.items()
        for metric in metrics
        if any((row_name(row), row.metric) == (name, metric) for row in rows)
    ]
    unitizers = ordered({row.unitizer for row in rows}, UNITIZERS)
    figure, axes = panels(2 * len(bands), len(unitizers), width=3.6, height=2.7)
    for at, (name, metric) in enumerate(bands):
        for column, unitizer in enumerate(unitizers):
            mine = [
                row for row in rows if (row_name(row), row.metric, row.unitizer) == (name, metric, unitizer)
            ]
            upper, lower = axes[2 * at][column], axes[2 * at + 1][column]
            drawn = ordered({row.selector for row in mine}, SELECTORS)
            for number, selector in enumerate(drawn):
                line = [row for row in mine if row.selector == selector]
                banded = len(drawn) <= len(BANDED) or selector in BANDED
                band(upper, line, selector, "quality", selector_style(selector, number), banded)
                band(lower, line, selector, "over_lead", selector_style(selector, number), banded)
            lower.axhline(0, color=selector_style("lead")["color"], linewidth=1.2)
            upper.set_title(f"{name}: {unitizer}" if column == 0 else unitizer, loc="left", fontsize=10)
            lower.set_xlabel("budget, tokens")
            for axis in (upper, lower):
                budget_axis(axis, sorted({row.budget for row in rows}))
        axes[2 * at][0].set_ylabel(spoken(metric))
        axes[2 * at + 1][0].set_ylabel(f"{spoken(metric)},\ndifference to lead")
        for row_of in (2 * at, 2 * at + 1):
            share_y(axes[row_of])
    one_legend(figure, axes)
    footnote(figure, points)
    return written + save(figure, folder / "quality_over_budget")


# Selector against unitizer
