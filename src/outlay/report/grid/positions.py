"""Where in the document the kept units stand."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.data import Span
from outlay.report.figures import COLORS
from outlay.report.grid.drawing import panels, row_name, save, write_rows
from outlay.report.grid.runs import BINS, SELECTORS, Grid, document_weights, documents_of, grids, ordered
from outlay.report.tables import Point

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class PositionRow:
    """The share of a document's text that is kept, by place: bin b of BINS covers [b, b + 1) / BINS of its length."""

    dataset: str
    setting: str
    unitizer: str
    selector: str
    budget: int
    bin: int
    kept: float
    kept_lo: float
    kept_hi: float
    examples: int
    run_ids: str


def position_rows(points: Sequence[Point]) -> list[PositionRow]:
    """Means over examples, with a 95 % bootstrap interval over documents.

    A document's length is its predictions' `document_characters`, else the last character that any run kept.
    """
    rows = []
    for grid in grids(points):
        runs = [*grid.runs.values(), *([grid.full] if grid.full else [])]
        spans = {run.folder: _spans(run.folder) for run in runs}
        lengths: dict[str, int] = {}
        for found in spans.values():
            for name, (length, kept) in found.items():
                lengths[name] = max([lengths.get(name, 0), length, *(end for _, end in kept)])
        for (unitizer, selector, budget), run in grid.runs.items():
            own = {name: kept for name, (_, kept) in spans[run.folder].items() if lengths[name]}
            if own:
                rows += _position_rows(grid, unitizer, selector, budget, own, lengths)
    return rows


def _position_rows(
    grid: Grid,
    unitizer: str,
    selector: str,
    budget: int,
    found: Mapping[str, Sequence[Span]],
    lengths: Mapping[str, int],
) -> list[PositionRow]:
    import numpy as np

    kept = np.array([kept_by_place(spans, lengths[name]) for name, spans in found.items()])
    documents = documents_of(grid.runs[unitizer, selector, budget].folder, list(found))
    draws = document_weights(documents) @ kept
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return [
        PositionRow(
            grid.dataset,
            grid.rest,
            unitizer,
            selector,
            budget,
            at,
            float(mean),
            float(low[at]),
            float(high[at]),
            len(kept),
            grid.runs[unitizer, selector, budget].run_id,
        )
        for at, mean in enumerate(kept.mean(axis=0))
    ]


def kept_by_place(spans: Sequence[Span], length: int) -> "np.ndarray":
    """(BINS,) share of the characters of each stretch of a document of `length` that the spans (disjoint) hold."""
    import numpy as np

    edges = np.linspace(0, length, BINS + 1)
    kept = np.zeros(BINS)
    for start, end in spans:
        kept += np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0, None)
    share: np.ndarray = kept / (length / BINS)
    return share


def _spans(folder: str) -> dict[str, tuple[int, list[Span]]]:
    """Example id -> (the document's characters, 0 where unknown; kept spans)."""
    path = Path(folder) / "predictions.jsonl"
    found: dict[str, tuple[int, list[Span]]] = {}
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                one = json.loads(line)
                spans = [(start, end) for start, end in one["context_spans"]]
                found[str(one["id"])] = (int(one.get("document_characters") or 0), spans)
    return found


def kept_positions(points: Sequence[Point], folder: Path) -> list[Path]:
    """Where in the document each selector's text comes from: shade is the share kept of each twentieth.

    A panel for each budget, a row of panels for each data set and unitizer.
    """
    import matplotlib

    rows = position_rows(points)
    if not rows:
        return []
    written = write_rows(rows, folder / "kept_positions.csv")
    bands = list(dict.fromkeys((row_name(row), row.unitizer) for row in rows))
    budgets = sorted({row.budget for row in rows})
    drawn = {
        band: ordered({row.selector for row in rows if (row_name(row), row.unitizer) == band}, SELECTORS)
        for band in bands
    }
    table = {(row_name(row), row.unitizer, row.selector, row.budget, row.bin): row.kept for row in rows}
    height = 0.62 + 0.2 * max(map(len, drawn.values()))
    figure, axes = panels(len(bands), len(budgets), width=2.0, height=height, left=0.6)
    shades = matplotlib.colors.LinearSegmentedColormap.from_list("kept", ("#f4f6f8", COLORS[0], "#00263f"))
    image = None
    for at, (name, unitizer) in enumerate(bands):
        for column, budget in enumerate(budgets):
            axis, selectors = axes[at][column], drawn[name, unitizer]
            shown = [
                [table.get((name, unitizer, one, budget, b), math.nan) for b in range(BINS)]
                for one in selectors
            ]
            image = axis.imshow(
                shown, aspect="auto", cmap=shades, vmin=0, vmax=1, extent=(0, 100, len(selectors), 0)
            )
            axis.set_yticks(
                [i + 0.5 for i in range(len(selectors))], selectors if column == 0 else [], fontsize=8
            )
            axis.set_xticks([0, 50, 100])
            axis.tick_params(length=0, labelsize=8)
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
            for edge in range(1, len(selectors)):
                axis.axhline(edge, color="white", linewidth=1.5)
            if at == 0:
                axis.set_title(f"{budget:,} tokens", loc="left", fontsize=9)
        axes[at][0].set_ylabel(f"{name}\n{unitizer}", fontsize=9)
    figure.supxlabel("place in the document, % of its length", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, pad=0.01)
    bar.set_label("share of the text kept", fontsize=9)
    bar.outline.set_visible(False)
    return written + save(figure, folder / "kept_positions")


# What is saved against the whole document
