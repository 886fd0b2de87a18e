"""Runs of a tuned sweep: which trial each is of, which were held out, and the front that the sweep left."""

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from outlay.record import read_ended
from outlay.report.tables import Point, labels
from outlay.schema import GROUPS

SPLIT = ("dataset.split", "dataset.limit", "dataset.fit_limit")
"""Settings that a held-out run may have otherwise than its trial."""


@dataclass(frozen=True)
class Trial:
    """What a run of a tuned sweep is."""

    number: int
    held_out: bool  # run once more, on a split that chose nothing
    searched: tuple[str, ...] = ()  # the settings that the search chose among


def trials(points: Sequence[Point]) -> dict[str, Trial]:
    """Run id -> its trial; of runs whose sweep left trials.csv. A held-out run is of the trial that has its settings."""
    every: dict[str, Trial] = {}
    for folder in dict.fromkeys(Path(point.folder).parent for point in points):
        every |= _of_sweep(folder)
    return {point.run_id: every[point.run_id] for point in points if point.run_id in every}


@lru_cache(maxsize=64)
def _of_sweep(folder: Path) -> dict[str, Trial]:
    path = folder / "trials.csv"
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("run_id")]
    # Of equal trials, which share a run, the first.
    axes = tuple(key for row in rows[:1] for key in row if "." in key or key in GROUPS)
    searched = {row["run_id"]: Trial(int(row["trial"]), False, axes) for row in reversed(rows)}
    ended = [one for path in folder.glob("*/ended.json") if (one := read_ended(path.parent)) is not None]
    tried = {_settings(one): searched[one.run_id].number for one in ended if one.run_id in searched}
    again = {
        one.run_id: Trial(tried[_settings(one)], True, axes)
        for one in ended
        if one.run_id not in searched and _settings(one) in tried
    }
    return searched | again


def _settings(point: Point) -> str:
    own = {key: value for key, value in labels(point).items() if key not in SPLIT}
    return json.dumps(own, sort_keys=True, default=str)


def front(points: Sequence[Point], folder: Path) -> list[Path]:
    """Each tuned sweep's pareto.csv, .md and figure, beside the report; of several sweeps, with the sweep's id."""
    sweeps = dict.fromkeys(Path(point.folder).parent for point in points)
    tuned = [sweep for sweep in sweeps if (sweep / "pareto.csv").is_file()]
    written = []
    for sweep in tuned:
        stem = "pareto" if len(tuned) == 1 else f"pareto_{sweep.name}"
        for ending in ("csv", "md", "tex", "png", "svg"):
            source = sweep / f"pareto.{ending}"
            if source.is_file():
                written.append(Path(shutil.copyfile(source, folder / f"{stem}.{ending}")))
    return written
