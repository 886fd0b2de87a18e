"""What finished runs say: the terminal's table, CSV, figures. Works on plain records, knows no tracker."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.report.tables import Point

if TYPE_CHECKING:
    from outlay.report.sheets import Sheet

FILES = ("predictions.jsonl", "ledger.parquet")
"""Of a run, what most tables and figures are made from; a run whose text is private may lack them."""


def sweep_files(points: Sequence[Point], folder: Path) -> list[Path]:
    """Write every table and figure that a sweep's finished points allow; a new one is one more row of the list.

    One that cannot be written is named on the terminal and hides no other: the runs are paid for and finished.
    """
    from outlay.report import figures, regret, tables
    from outlay.report.agent import contamination, prediction, retries, routing
    from outlay.report.grid import curves, effects, positions, savings, separation

    of_metrics = (tables.results, figures.quality_over_cost, retries.inflation_table)
    of_files = (
        regret.regret,
        curves.quality_over_budget,
        effects.selector_against_unitizer,
        separation.metric_separation,
        positions.kept_positions,
        savings.savings,
        retries.retry_curves,
        prediction.foretelling,
        contamination.contamination,
        routing.routing,
    )
    whole = [point for point in points if (Path(point.folder) / FILES[0]).is_file()]
    written = [path for writer in of_metrics for path in _tried(writer, points, folder) or ()]
    return written + [path for writer in of_files for path in _tried(writer, whole, folder) or ()]


def report_files(
    points: Sequence[Point], folder: Path, against: str | None = None
) -> "tuple[list[Path], list[Sheet]]":
    """What a sweep's end writes, and what compares runs: pairs, single factors, the hull; the tables as sheets too.

    against: the runs that the others are compared with; see `comparison.comparison_rows`.
    """
    from outlay.report import ablation, comparison, hull, sheets, trials
    from outlay.report.agent import calibration, checks, difficulty

    whole = [point for point in points if all((Path(point.folder) / name).is_file() for name in FILES)]
    written = sweep_files(points, folder)
    for writer in (hull.quality_over_cost_data, hull.accuracy_over_cost):
        written += _tried(writer, points, folder) or ()
    if any(path.parent.name == "predictor" for path in written):  # not one that an earlier report left there
        written += _tried(calibration.calibration, whole, folder) or ()
    written += _tried(trials.front, points, folder) or ()
    shown = sheets.overview(points)
    written += sheets.overview_data(points, folder)
    for compared, options in (
        (comparison.comparison, {"against": against}),
        (ablation.ablation, {}),
        (difficulty.inflation_by_difficulty, {}),
        (checks.verifiers, {}),
    ):
        paths, more = _tried(compared, whole, folder, **options) or ([], [])
        written += paths
        shown += more
    return written + [path for sheet in shown for path in sheets.write_sheet(sheet, folder)], shown


def _tried(writer: Callable[..., Any], points: Sequence[Point], folder: Path, **options: Any) -> Any:
    """What a writer gives; None where there is nothing to write from, or where it failed, which is said."""
    from outlay.errors import ConfigError

    if not points:
        return None
    try:
        return writer(points, folder, **options)
    except ConfigError:
        raise
    except Exception as error:
        print(
            f"outlay: {writer.__name__} could not be written: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return None
