"""How far apart the selectors are under each metric, in standard errors."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.report.figures import COLORS, MARKERS
from outlay.report.grid.drawing import (
    budget_axis,
    dots,
    one_legend,
    panels,
    row_name,
    save,
    share_y,
    spoken,
    write_rows,
)
from outlay.report.grid.runs import (
    METRICS,
    REFERENCES,
    UNITIZERS,
    aligned,
    documents_of,
    grids,
    ordered,
    run_ids,
    shared_metrics,
)
from outlay.report.tables import Point

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class SeparationRow:
    """How far two selectors are apart under a metric: |mean difference| / its standard error, paired by example.

    separation: the mean over pairs of selectors, 0 for two that gave the same texts; about 0.8 where there is nothing
    but noise. 95 % interval by the jackknife over documents. apart: share of the pairs above 1.96.
    """

    dataset: str
    setting: str
    metric: str
    unitizer: str
    budget: int
    separation: float
    separation_lo: float
    separation_hi: float
    apart: float
    pairs: int
    examples: int
    run_ids: str


def separation_rows(points: Sequence[Point]) -> list[SeparationRow]:
    """One row for each metric, unitizer and budget with two selectors or more."""
    rows = []
    for grid in grids(points):
        for metric in shared_metrics(grid):
            for unitizer in grid.unitizers:
                for budget in grid.budgets:
                    names = [name for name in grid.selectors if name.partition(" ")[0] not in REFERENCES]
                    runs = [
                        grid.runs[unitizer, name, budget]
                        for name in names
                        if (unitizer, name, budget) in grid.runs
                    ]
                    found = aligned(runs, metric) if len(runs) > 1 else None
                    if found is None:
                        continue
                    values, ids = found
                    each = separations(values)
                    held_out = _held_out(documents_of(runs[0].folder, ids))
                    again = (
                        [float(separations(values[:, kept]).mean()) for kept in held_out]
                        if len(held_out) > 2
                        else []
                    )
                    half = (
                        1.96 * math.sqrt((len(again) - 1) * statistics.pvariance(again))
                        if again
                        else math.nan
                    )
                    mean = float(each.mean())
                    rows.append(
                        SeparationRow(
                            grid.dataset,
                            grid.rest,
                            metric,
                            unitizer,
                            budget,
                            mean,
                            max(0.0, mean - half),
                            mean + half,
                            float((each > 1.96).mean()),
                            len(each),
                            len(ids),
                            run_ids(runs),
                        )
                    )
    return rows


def separations(values: "np.ndarray") -> "np.ndarray":
    """(pairs,) |mean| / standard error of the paired differences between the rows of (selectors, n) values."""
    import numpy as np

    first, second = np.triu_indices(len(values), 1)
    differences = values[first] - values[second]
    error = differences.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
    apart = np.abs(differences.mean(axis=1))
    found: np.ndarray = np.divide(apart, error, out=np.zeros_like(apart), where=error > 1e-12)
    return found


def _held_out(documents: Sequence[str]) -> "list[np.ndarray]":
    """For each document, the places of the other documents' examples."""
    import numpy as np

    names = np.array(documents)
    return [np.flatnonzero(names != name) for name in dict.fromkeys(documents)]


def metric_separation(points: Sequence[Point], folder: Path) -> list[Path]:
    """How far selectors are apart, in standard errors, under each metric; a panel for each data set and unitizer."""
    rows = separation_rows(points)
    if len({row.metric for row in rows}) < 2:
        return []
    written = write_rows(rows, folder / "metric_separation.csv")
    names = list(dict.fromkeys(row_name(row) for row in rows))
    unitizers = ordered({row.unitizer for row in rows}, UNITIZERS)
    figure, axes = panels(len(names), len(unitizers), width=3.4, height=2.9)
    for at, name in enumerate(names):
        for column, unitizer in enumerate(unitizers):
            axis = axes[at][column]
            mine = [row for row in rows if (row_name(row), row.unitizer) == (name, unitizer)]
            metrics = [metric for metric in METRICS if any(row.metric == metric for row in mine)]
            for metric in metrics:
                step = METRICS.index(metric)
                line = [row for row in mine if row.metric == metric]
                shift = (metrics.index(metric) - (len(metrics) - 1) / 2) * 0.05
                dots(axis, line, "separation", 1, spoken(metric), COLORS[step], MARKERS[step], shift)
            axis.axhline(0.8, color="#888888", linewidth=0.8, linestyle=":")
            axis.set_title(f"{name}: {unitizer}" if column == 0 else unitizer, loc="left", fontsize=10)
            budget_axis(axis, sorted({row.budget for row in rows}))
            axis.set_ylim(bottom=0)
            axis.set_xlabel("budget, tokens")
        axes[at][0].set_ylabel("distance of two selectors,\nstandard errors")
        share_y(axes[at])
    figure.supxlabel("dotted: what noise alone gives", fontsize=8, color="#555555")
    one_legend(figure, axes)
    return written + save(figure, folder / "metric_separation")


# Where kept text stands
