"""Quality over cost with the hull of what mixing settings can buy: every run, in tokens or in compute units a query."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.report.agent.lines import spent
from outlay.report.grid.drawing import footnote, panels, save, write_rows
from outlay.report.sheets import judged, names, only_held_out
from outlay.report.tables import Point, by_dataset, headline, marks

if TYPE_CHECKING:
    import numpy as np

BUDGETS = ("budget.tokens", "budget.fraction", "retry.max_attempts")
"""Settings that move a run along its line."""


@dataclass(frozen=True)
class HullRow:
    """One run. Intervals are 95 %, by a bootstrap over examples."""

    dataset: str
    run: str
    line: str  # runs that differ in their budget only share it
    marks: str
    metric: str
    unit: str  # of the cost
    cost: float  # a query, every call included
    cost_lo: float
    cost_hi: float
    quality: float
    quality_lo: float
    quality_hi: float
    on_hull: bool  # a corner of the hull over the runs that could be deployed
    run_id: str


def hull_rows(points: Sequence[Point]) -> list[HullRow]:
    """A row for each run that has a quality. Where tiers differ in price a token, cost is in compute units."""
    shown = judged(points)
    # Of one model, a unit is a token; of several tiers, tokens do not compare. One unit for all: the panels are one figure.
    units = any(
        len({round(_unit_price(point), 6) for point in group}) > 1 for group in by_dataset(shown).values()
    )
    return [row for dataset, group in by_dataset(shown).items() for row in _rows(dataset, group, units)]


def _rows(dataset: str, points: Sequence[Point], units: bool) -> list[HullRow]:
    from outlay.score.curves import hull
    from outlay.score.statistics import interval

    quality = headline(points)
    named, lines = names(points), names(points, leave_out=BUDGETS)
    rows = []
    cost: tuple[float, float, float]
    for point in points:
        metrics = point.metrics
        value, low, high = _estimate(point, quality)
        if math.isnan(value):
            continue
        if units and (Path(point.folder) / "predictions.jsonl").is_file():
            cost = interval([one.units for one in spent(point.folder).values()])
        elif units:
            cost = (metrics["cost/cost_units_total"] / metrics["data/examples"], math.nan, math.nan)
        else:
            cost = _estimate(point, "cost/tokens_per_query")
        rows.append(
            HullRow(
                dataset,
                named[point.run_id],
                lines[point.run_id],
                marks(point),
                quality.partition("/")[2],
                "compute units" if units else "tokens",
                *cost,
                value,
                low,
                high,
                False,
                point.run_id,
            )
        )
    known = [row for row in rows if not row.marks]
    curve = hull([row.cost for row in known], [row.quality for row in known])
    corners = set(zip(curve.cost.tolist(), curve.quality.tolist(), strict=True))
    return [
        HullRow(**{**vars(row), "on_hull": not row.marks and (row.cost, row.quality) in corners})
        for row in rows
    ]


def _estimate(point: Point, name: str) -> tuple[float, float, float]:
    """A metric with its interval; nan where it has none."""
    value, low, high = (point.metrics.get(f"{name}{end}", math.nan) for end in ("", "_lo", "_hi"))
    return value, low, high


def _unit_price(point: Point) -> float:
    """Compute units a token."""
    tokens = point.metrics.get("cost/tokens_total", 0.0)
    return point.metrics.get("cost/cost_units_total", 0.0) / tokens if tokens else 0.0


def accuracy_over_cost(points: Sequence[Point], folder: Path) -> list[Path]:
    """accuracy_over_cost.csv and figure: a dot for each run, and the hull over those that could be deployed."""
    rows = hull_rows(points)
    if not rows:
        return []
    datasets = list(dict.fromkeys(row.dataset for row in rows))
    figure, axes = panels(1, len(datasets), width=5.4, height=3.8)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        own = [row for row in rows if row.dataset == dataset]
        for marked, color, marker in ((False, "#0072B2", "o"), (True, "#D55E00", "X")):
            some = [row for row in own if bool(row.marks) == marked]
            axis.errorbar(
                [row.cost for row in some],
                [row.quality for row in some],
                xerr=_arms(some, "cost"),
                yerr=_arms(some, "quality"),
                linestyle="none",
                color=color,
                marker=marker,
                markersize=5,
                elinewidth=0.6,
                alpha=0.8,
                label="a bound, or a leak" if marked else "could be deployed",
            ) if some else None
        corners = sorted((row for row in own if row.on_hull), key=lambda row: row.cost)
        axis.plot(
            [row.cost for row in corners],
            [row.quality for row in corners],
            color="#000000",
            linewidth=1.2,
            label="hull: what mixing them buys",
        )
        for at, row in enumerate(corners):
            axis.annotate(
                row.run,
                (row.cost, row.quality),
                textcoords="offset points",
                xytext=(5, -10 if at % 2 else 6),
                fontsize=7,
            )
        axis.set_title(f"{dataset}{only_held_out(points)}", loc="left", fontsize=11)
        axis.set_xlabel(f"{own[0].unit} a query")
        axis.set_ylabel(own[0].metric.replace("_", " "))
        axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    footnote(figure, points)
    return write_rows(rows, folder / "accuracy_over_cost.csv") + save(figure, folder / "accuracy_over_cost")


def _arms(rows: Sequence[HullRow], name: str) -> "np.ndarray":
    """(2, n) lengths of the error bars; 0 where there is no interval."""
    import numpy as np

    value, low, high = (
        np.array([getattr(row, f"{name}{end}") for row in rows]) for end in ("", "_lo", "_hi")
    )
    return np.nan_to_num(np.clip(np.stack([value - low, high - value]), 0, None))


def quality_over_cost_data(points: Sequence[Point], folder: Path) -> list[Path]:
    """quality_over_cost.csv: what that figure shows, in tokens whatever the tiers."""
    rows = [
        CostRow(
            dataset,
            named[point.run_id],
            marks(point),
            headline(group).partition("/")[2],
            point.metrics.get("cost/tokens_per_query", math.nan),
            *_estimate(point, headline(group)),
            point.run_id,
        )
        for dataset, group in by_dataset(judged(points)).items()
        for named in (names(group),)
        for point in group
    ]
    return write_rows(rows, folder / "quality_over_cost.csv")


@dataclass(frozen=True)
class CostRow:
    dataset: str
    run: str
    marks: str
    metric: str
    tokens: float  # a query
    quality: float
    quality_lo: float
    quality_hi: float
    run_id: str
