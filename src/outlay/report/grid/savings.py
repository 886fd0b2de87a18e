"""Input tokens saved against the whole document, and what that cost in quality."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.report.grid.drawing import write_rows
from outlay.report.grid.runs import (
    RESAMPLES,
    aligned,
    documents_of,
    grids,
    panel_metrics,
    read_scores,
    run_ids,
)
from outlay.report.tables import Point, headline

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class SavingRow:
    """A run's input tokens and quality against those of the run that sends the whole document, paired by example."""

    dataset: str
    setting: str
    unitizer: str
    selector: str
    reads_gold: bool
    budget: int
    input_tokens: float  # a query, prompt and context, retries included
    input_tokens_full: float
    saving: float  # share of the input tokens
    context_saving: float  # share of the context's tokens, with its 95 % interval
    context_saving_lo: float
    context_saving_hi: float
    metric: str
    quality: float
    quality_full: float
    over_full: float  # mean of (own - full's), with its 95 % interval
    over_full_lo: float
    over_full_hi: float
    run_ids: str  # of both


def saving_rows(points: Sequence[Point]) -> list[SavingRow]:
    """One row for each run of a grid that has a run of the whole document."""
    import numpy as np

    from outlay.score.statistics import paired_difference, ratio_of_means

    rows = []
    for grid in grids(points):
        whole = grid.full
        if whole is None:
            continue
        metric = (panel_metrics(grid) or [headline([*grid.runs.values(), whole]).removeprefix("quality/")])[0]
        full = read_scores(whole.folder)
        for (unitizer, selector, budget), run in grid.runs.items():
            own = read_scores(run.folder)
            pair = aligned([run, whole], metric)
            if own is None or full is None or own.ids != full.ids or pair is None:
                continue
            kept = ratio_of_means(own.context_tokens, full.context_tokens, resamples=RESAMPLES)
            values, ids = pair
            over = paired_difference(
                values[0], values[1], resamples=RESAMPLES, clusters=documents_of(run.folder, ids)
            )
            ours, theirs = (
                one.metrics["cost/tokens_prompt"] / one.metrics["data/examples"] for one in (run, whole)
            )
            rows.append(
                SavingRow(
                    grid.dataset,
                    grid.rest,
                    unitizer,
                    selector,
                    run.oracle,
                    budget,
                    ours,
                    theirs,
                    1 - ours / theirs,
                    1 - kept.value,
                    1 - kept.hi,
                    1 - kept.lo,
                    metric,
                    float(np.mean(pair[0][0])),
                    float(np.mean(pair[0][1])),
                    over.value,
                    over.lo,
                    over.hi,
                    run_ids([run, whole]),
                )
            )
    return rows


def savings(points: Sequence[Point], folder: Path) -> list[Path]:
    """savings.csv: input tokens saved, and quality lost or won, against the run that sends the whole document."""
    rows = saving_rows(points)
    return write_rows(rows, folder / "savings.csv") if rows else []
