"""Rows of a sweep: what varied, what it bought, what it cost."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from outlay.sweep import flat


class Point(Protocol):
    """A finished run, as far as tables need it."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def choices(self) -> Mapping[str, str]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...
    @property
    def run_id(self) -> str: ...
    @property
    def oracle(self) -> bool: ...
    @property
    def folder(self) -> str: ...


def labels(point: Point) -> dict[str, Any]:
    """A point's settings, flat: each group's choice under its name, each option under group.option."""
    options = {
        key: value
        for key, value in flat(point.config).items()
        if not key.endswith("_target_")
        and key.partition(".")[0] not in ("verbose", "output_dir", "tracking", "sweep")
    }
    return {**{group: choice for group, choice in point.choices.items() if group != "experiment"}, **options}


def varying(points: Sequence[Point]) -> list[str]:
    """Settings with two values or more among the points that have them; in the order of the config."""
    each = [labels(point) for point in points]
    keys = dict.fromkeys(key for one in each for key in one)
    return [key for key in keys if len({json.dumps(one[key], default=str) for one in each if key in one}) > 1]


def said(point: Point, points: Sequence[Point], leave_out: Sequence[str] = ()) -> str:
    """What tells a run from the sweep's others, in a few words."""
    own = labels(point)
    keys = [key for key in varying(points) if own.get(key) is not None and key not in ("dataset", *leave_out)]
    words = [
        str(own[key])
        if key in point.choices or isinstance(own[key], str)
        else f"{key.rpartition('.')[2]} {own[key]}"
        for key in keys
    ]
    return " · ".join(dict.fromkeys(words)) or point.name


MARKS = {
    "*": "reads the answer key: a bound, not a policy that can be deployed",
    "†": "the query is the reference text: a leak, as in the published code",
}
"""What a table or figure puts behind a setting, and its meaning."""


INSTRUMENT = "generator=lab: small models made for dataset=chains, an instrument; what holds of them need not hold of others"


def marks(point: Point) -> str:
    """The marks that a point must carry wherever it is shown."""
    leak = labels(point).get("dataset.query") == "reference"
    return ("*" if point.oracle else "") + ("†" if leak else "")


def legend(points: Sequence[Point]) -> list[str]:
    """The meaning of each mark among the points, a line each."""
    used = "".join(marks(point) for point in points)
    lines = [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]
    if any(point.choices.get("generator") == "lab" for point in points):
        lines.append(INSTRUMENT)
    return lines


def by_dataset(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each data set, in order: figures of different data sets do not compare."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.choices.get("dataset", ""), []).append(point)
    return groups


ANSWERS = ("accuracy", "bertscore_f1", "rougeL", "token_f1", "fact_recall")
CONTEXTS = ("fact_recall", "rouge1", "token_f1")
"""Quality metrics, the one that tells most first: of a model's answers, and of contexts that no model has read."""


def headline(points: Sequence[Point]) -> str:
    """The quality metric that a table leads with: the first that every point has a value of."""
    extractive = all(point.choices.get("generator") == "extract" for point in points)
    for name in CONTEXTS if extractive else ANSWERS:
        # A data set without gold facts has a fact recall that is not a number.
        if not any(math.isnan(point.metrics.get(f"quality/{name}", math.nan)) for point in points):
            return f"quality/{name}"
    return "quality/token_f1"


def results(points: Sequence[Point], folder: Path) -> list[Path]:
    """results.csv: every varying setting and every metric of every point, with its run id."""
    path = folder / "results.csv"
    settings = varying(points) or ["dataset"]
    metrics = sorted({name for point in points for name in point.metrics})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *settings, "oracle", "leak", *metrics, "run_id"])
        for point in points:
            values = labels(point)
            writer.writerow(
                [
                    point.name,
                    *(values.get(key, "") for key in settings),
                    point.oracle,
                    "†" in marks(point),
                    *(point.metrics.get(name, "") for name in metrics),
                    point.run_id,
                ]
            )
    return [path]


def with_interval(metrics: Mapping[str, float], name: str, percent: bool = True) -> str:
    """ "41 % [29, 54]": a mean and its 95 % interval."""
    scale, unit = (100, " %") if percent else (1, "")
    digits = 0 if percent else 2
    mean, low, high = (metrics.get(f"{name}{end}", math.nan) * scale for end in ("", "_lo", "_hi"))
    if math.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"


def count(value: float) -> str:
    """A number of tokens: 1,234; – where there is none."""
    if math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{value:,.0f}"
