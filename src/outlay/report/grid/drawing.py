"""What the figures of a grid have in common."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from outlay.report.figures import COLORS, MARKERS
from outlay.report.grid.runs import SELECTORS, ordered
from outlay.report.tables import Point, legend

STYLES = {
    "lead": (COLORS[0], "o", "-"),
    "mmr": (COLORS[1], "s", "-"),
    "rcd": (COLORS[2], "^", "-"),
    "routed": (COLORS[3], "D", "-"),
    "sliding": (COLORS[4], "v", "-"),
    "hierarchical": (COLORS[5], "P", "-"),
    "graphcluster": (COLORS[6], "X", "-"),
    "shuffled": ("#999999", "o", "--"),
    "learned": (COLORS[1], "D", ":"),
    "oracle": (COLORS[6], "v", ":"),
}
"""The same colour, marker and line for a selector in every figure."""
BANDED = ("lead", "mmr", "rcd", "routed")
"""Whose bands are drawn where many selectors meet: eight bands on each other are a fog. The CSV has them all."""


def selector_style(selector: str, at: int = 0) -> dict[str, Any]:
    known = STYLES.get(selector)
    color, marker, line = known or (COLORS[at % len(COLORS)], MARKERS[(at + 3) % len(MARKERS)], "--")
    return {"color": color, "marker": marker, "linestyle": line}


def panels(rows: int, columns: int, width: float, height: float, left: float = 0.0) -> "tuple[Any, Any]":
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (max(5.4, width * columns + left + 1.3), max(3.0, height * rows + 0.4))
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.4, alpha=0.6)
    return figure, axes


def band(
    axis: Any, rows: Sequence[Any], selector: str, column: str, style: Mapping[str, Any], banded: bool
) -> None:
    """A line over the budget, with its 95 % band or without."""
    rows = [row for row in rows if not math.isnan(getattr(row, column))]
    if not rows:
        return
    x = [row.budget for row in rows]
    star = " *" if any(row.reads_gold for row in rows) else ""
    width = 1.6 if banded else 1.0
    axis.plot(
        x,
        [getattr(row, column) for row in rows],
        label=selector + star,
        markersize=4,
        linewidth=width,
        **style,
    )
    if banded:
        ends = ([getattr(row, f"{column}_{end}") for row in rows] for end in ("lo", "hi"))
        axis.fill_between(x, *ends, color=style["color"], alpha=0.12, linewidth=0)


def dots(
    axis: Any,
    rows: Sequence[Any],
    column: str,
    scale: float,
    label: str,
    color: str,
    marker: str,
    shift: float,
) -> None:
    """Points joined over the budget with their intervals; `shift`, in octaves, keeps intervals from hiding each other."""
    x = [row.budget * 2**shift for row in rows]
    y = [scale * getattr(row, column) for row in rows]
    low = [max(0.0, value - scale * getattr(row, f"{column}_lo")) for value, row in zip(y, rows, strict=True)]
    high = [
        max(0.0, scale * getattr(row, f"{column}_hi") - value) for value, row in zip(y, rows, strict=True)
    ]
    axis.errorbar(
        x,
        y,
        yerr=[low, high],
        label=label,
        color=color,
        marker=marker,
        markersize=4.5,
        linewidth=1.2,
        elinewidth=0.8,
        capsize=2,
        alpha=0.9,
    )


def budget_axis(axis: Any, budgets: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axis.set_xscale("log", base=2)
    axis.set_xticks(budgets, [f"{budget:,}" for budget in budgets], fontsize=8)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.tick_params(axis="y", labelsize=8)


def share_y(axes: Sequence[Any]) -> None:
    limits = [axis.get_ylim() for axis in axes if axis.lines or axis.containers]
    for axis in axes if limits else ():
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def one_legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, at their right."""
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    order = ordered(handles, SELECTORS) if any(name in SELECTORS for name in handles) else list(handles)
    figure.legend(
        [handles[name] for name in order], order, loc="outside right upper", frameon=False, fontsize=9
    )


def footnote(figure: Any, points: Sequence[Point]) -> None:
    """What the marks mean, under the figure."""
    if legend(points):
        figure.supxlabel("\n".join(legend(points)), fontsize=8, color="#555555")


def row_name(row: Any) -> str:
    return " · ".join(part for part in (row.dataset, row.setting) if part)


def spoken(metric: str) -> str:
    return {"bertscore_f1": "BERTScore", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}.get(
        metric, metric.replace("_", " ").replace(" f1", " F1")
    )


def write_rows(rows: Sequence[Any], path: Path) -> list[Path]:
    """The figure's own data, one line per row; an empty cell is not a number."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in fields(rows[0])])
        for row in rows:
            values = (getattr(row, column.name) for column in fields(row))
            writer.writerow(
                ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
            )
    return [path]


def save(figure: Any, stem: Path) -> list[Path]:
    from matplotlib import pyplot as plt

    written = [stem.with_suffix(f".{ending}") for ending in ("png", "svg")]
    for path in written:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return written
