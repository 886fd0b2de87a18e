"""What finished runs say: the terminal's table, CSV, figures. Works on plain records, knows no tracker."""

import sys
from collections.abc import Sequence
from pathlib import Path

from outlay.report.tables import Point


def sweep_files(points: Sequence[Point], folder: Path) -> list[Path]:
    """Write every table and figure that a sweep's finished points allow; a new one is one more row of the list.

    One that cannot be written is named on the terminal and hides no other: the runs are paid for and finished.
    """
    from outlay.report import figures, regret, tables
    from outlay.report.agent import contamination, prediction, retries, routing
    from outlay.report.grid import curves, effects, positions, savings, separation

    writers = (
        tables.results,
        figures.quality_over_cost,
        regret.regret,
        curves.quality_over_budget,
        effects.selector_against_unitizer,
        separation.metric_separation,
        positions.kept_positions,
        savings.savings,
        retries.inflation_table,
        retries.retry_curves,
        prediction.foretelling,
        contamination.contamination,
        routing.routing,
    )
    written: list[Path] = []
    for writer in writers if points else ():
        try:
            written += writer(points, folder)
        except Exception as error:
            print(
                f"outlay: {writer.__name__} could not be written: {type(error).__name__}: {error}",
                file=sys.stderr,
            )
    return written
