"""How much of the differences is the selector, how much the unitizer: a two-way split of the variance."""

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
    spoken,
    write_rows,
)
from outlay.report.grid.runs import (
    REFERENCES,
    RESAMPLES,
    UNITIZERS,
    aligned,
    document_weights,
    documents_of,
    grids,
    ordered,
    panel_metrics,
    percentile_ends,
    run_ids,
    shared_metrics,
)
from outlay.report.tables import Point

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class EffectRow:
    """What part of the differences between runs of one budget is due to the selector, the unit, and their interplay.

    Two-way analysis of variance of the mean quality M over selector × unitizer: share = sum of squares / total;
    spread = standard deviation of the marginal means, in the metric's units. 95 % intervals by a bootstrap over
    documents. Noise counts as interplay, and as effect: with few examples every share is pulled to its degrees of
    freedom.
    """

    dataset: str
    setting: str
    metric: str
    budget: int
    source: str  # selector | unitizer | both
    share: float
    share_lo: float
    share_hi: float
    spread: float
    spread_lo: float
    spread_hi: float
    selectors: int
    unitizers: int
    examples: int
    run_ids: str


def effect_rows(points: Sequence[Point]) -> list[EffectRow]:
    """The split for each grid, metric and budget that has every selector under every unitizer, two or more of either."""
    rows = []
    for grid in grids(points):
        for metric in shared_metrics(grid):
            for budget in grid.budgets:
                runs = grid.at(budget)
                unitizers = ordered({unitizer for unitizer, _ in runs}, UNITIZERS)
                selectors = [
                    name
                    for name in grid.selectors
                    if name.partition(" ")[0] not in REFERENCES
                    and all((unit, name) in runs for unit in unitizers)
                ]
                if len(unitizers) < 2 or len(selectors) < 2:
                    continue
                used = [runs[unit, name] for name in selectors for unit in unitizers]
                found = aligned(used, metric)
                if found is None:
                    continue
                values, ids = found
                whole = variance_split(values.mean(axis=1).reshape(len(selectors), -1))
                documents = documents_of(next(iter(runs.values())).folder, ids)
                draws = (document_weights(documents) @ values.T).reshape(RESAMPLES, len(selectors), -1)
                again = variance_split(draws)
                rows += [
                    EffectRow(
                        grid.dataset,
                        grid.rest,
                        metric,
                        budget,
                        source,
                        float(whole[source][0]),
                        *percentile_ends(again[source][0]),
                        float(whole[source][1]),
                        *percentile_ends(again[source][1]),
                        len(selectors),
                        len(unitizers),
                        len(ids),
                        run_ids(used),
                    )
                    for source in whole
                ]
    return rows


def variance_split(means: "np.ndarray") -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """(…, s, u) cell means into {source: (share of the variance, spread)}; shares are 0 where all cells are equal."""
    import numpy as np

    grand = means.mean(axis=(-2, -1), keepdims=True)
    selector = means.mean(axis=-1, keepdims=True) - grand
    unitizer = means.mean(axis=-2, keepdims=True) - grand
    both = means - grand - selector - unitizer
    parts = {"selector": selector, "unitizer": unitizer, "both": both}
    variance = {name: (part**2).mean(axis=(-2, -1)) for name, part in parts.items()}
    total = sum(variance.values())
    return {
        name: (np.divide(one, total, out=np.zeros_like(one), where=total > 1e-18), np.sqrt(one))
        for name, one in variance.items()
    }


def selector_against_unitizer(points: Sequence[Point], folder: Path) -> list[Path]:
    """Above, each source's share of the variance between runs, over the budget; below, how large it is at all."""
    rows = effect_rows(points)
    if not rows:
        return []
    written = write_rows(rows, folder / "selector_against_unitizer.csv")
    columns = [
        (grid.name, metric)
        for grid in grids(points)
        for metric in panel_metrics(grid)
        if any((row_name(row), row.metric) == (grid.name, metric) for row in rows)
    ]
    figure, axes = panels(2, len(columns), width=4.2, height=2.7)
    for at, (name, metric) in enumerate(columns):
        mine = [row for row in rows if (row_name(row), row.metric) == (name, metric)]
        budgets = sorted({row.budget for row in mine})
        for step, source in enumerate(("selector", "unitizer", "both")):
            line = [row for row in mine if row.source == source]
            for axis, column, scale in ((axes[0][at], "share", 100), (axes[1][at], "spread", 100)):
                dots(
                    axis, line, column, scale, SOURCES[source], COLORS[step], MARKERS[step], (step - 1) * 0.05
                )
        axes[0][at].set_title(f"{name}: {spoken(metric)}", loc="left", fontsize=10)
        axes[1][at].set_xlabel("budget, tokens")
        for axis in (axes[0][at], axes[1][at]):
            budget_axis(axis, budgets)
            axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("share of the variance\nbetween runs, %")
    axes[1][0].set_ylabel("spread of the means,\npoints")
    one_legend(figure, axes)
    return written + save(figure, folder / "selector_against_unitizer")


SOURCES = {"selector": "selector", "unitizer": "unitizer", "both": "interplay of the two"}


# How well a metric tells selectors apart
