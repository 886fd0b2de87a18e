"""Runs against each other on the same queries: paired differences with intervals, exact tests, Holm's correction."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from outlay.errors import ConfigError
from outlay.report.grid.drawing import write_rows
from outlay.report.grid.runs import aligned, documents_of
from outlay.report.sheets import Cell, Sheet, chance, names, notes, percent, spoken
from outlay.report.tables import Point, by_dataset, headline, labels

PAIRS = 120
"""Comparisons that a data set's table may have; of more runs, each is compared with one."""


@dataclass(frozen=True)
class ComparisonRow:
    """Two runs of one data set over the queries that both answered. Intervals are 95 %."""

    dataset: str
    metric: str
    first: str
    second: str
    examples: int
    documents: int
    first_mean: float
    second_mean: float
    difference: float  # mean of (first - second), by a paired bootstrap over documents
    difference_lo: float
    difference_hi: float
    losses: int  # second right, first wrong; -1 where answers are not right or wrong
    gains: int
    test: str  # exact McNemar, or the bootstrap where answers are graded or share documents
    p: float
    p_holm: float  # over all rows of the table
    first_run: str
    second_run: str


def comparison_rows(points: Sequence[Point], against: str | None = None) -> list[ComparisonRow]:
    """Every pair of runs of a data set; where that is more than PAIRS, each with the data set's first run.

    against: key=value[,key=value...]: each run with the one of these that it has most settings in common with.

    Raises:
        ConfigError: no run has these settings.
    """
    from outlay.score.statistics import holm

    if against and not any(has(point, against) for point in points):
        raise ConfigError(f"--against {against}: no run of the report has these settings")
    pairs = [
        (dataset, headline(group).partition("/")[2], named, first, second)
        for dataset, group in by_dataset(points).items()
        for named in (names(group),)
        for first, second in _pairs(group, against)
    ]
    # A bootstrap's least p is 2 / (resamples + 1): enough of them that Holm's correction leaves something.
    resamples = max(2000, min(20_000, 100 * len(pairs)))
    rows = [row for pair in pairs if (row := _row(*pair, resamples))]
    return [replace(row, p_holm=float(p)) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def has(point: Point, wanted: str) -> bool:
    """Whether a run has the settings "key=value,key=value"; `run=ID` names it by its id."""
    own = {key: str(value) for key, value in labels(point).items()}
    pairs = [one.partition("=")[::2] for one in wanted.split(",")]
    return all(
        point.run_id.startswith(value) if key == "run" else own.get(key) == value for key, value in pairs
    )


def _pairs(points: Sequence[Point], against: str | None) -> Iterator[tuple[Point, Point]]:
    if against is None and len(points) * (len(points) - 1) / 2 <= PAIRS:
        yield from ((second, first) for first, second in combinations(points, 2))
        return
    bases = [point for point in points if has(point, against)] if against else [points[0]]
    for point in points:
        if bases and point not in bases:
            own = labels(point)
            nearest = min(
                bases, key=lambda base: sum(own.get(key) != value for key, value in labels(base).items())
            )
            yield point, nearest


def floored(p: float, documents: int) -> float:
    """A bootstrap's p, no less than an exact sign-flip test of so few documents could give: 2 / 2^documents. Ours."""
    return max(p, 2.0 ** (1 - min(documents, 60)))


FEW = 10


def few(documents: Sequence[int]) -> list[str]:
    """What to know of intervals over few documents."""
    least = min(documents)
    what = "document" if least == 1 else "documents"
    return [f"Only {least} {what} in some rows: their intervals are too narrow."] if least < FEW else []


def _row(
    dataset: str, metric: str, named: Mapping[str, str], first: Point, second: Point, resamples: int
) -> ComparisonRow | None:
    from outlay.score.statistics import discordant, mcnemar, paired_difference

    found = aligned([first, second], metric)
    if found is None:
        return None
    values, ids = found
    documents = documents_of(first.folder, ids)
    exact = metric == "accuracy" and len(set(documents)) == len(ids)
    gap = paired_difference(values[0], values[1], resamples=2000 if exact else resamples, clusters=documents)
    losses, gains = discordant(values[1], values[0]) if metric == "accuracy" else (-1, -1)
    return ComparisonRow(
        dataset,
        metric,
        named[first.run_id],
        named[second.run_id],
        len(ids),
        len(set(documents)),
        float(values[0].mean()),
        float(values[1].mean()),
        gap.value,
        gap.lo,
        gap.hi,
        losses,
        gains,
        "McNemar" if exact else "bootstrap",
        mcnemar(losses, gains) if exact else floored(gap.p, len(set(documents))),
        math.nan,
        first.run_id,
        second.run_id,
    )


def comparison_sheet(rows: Sequence[ComparisonRow], points: Sequence[Point]) -> Sheet:
    """The rows as a table."""
    several = len({row.dataset for row in rows}) > 1
    shown = tuple(
        (
            *((Cell(row.dataset),) if several else ()),
            Cell(row.first),
            Cell(row.second),
            Cell(str(row.examples), row.examples),
            percent(row.first_mean),
            percent(row.second_mean),
            percent(row.difference, row.difference_lo, row.difference_hi, signed=True),
            Cell("–" if row.losses < 0 else f"{row.gains} : {row.losses}"),
            Cell(row.test),
            chance(row.p),
            chance(row.p_holm),
        )
        for row in rows
    )
    headings = (
        *("run", "against", "queries", "run's", "the other's", "difference, points"),
        *("won : lost", "test", "p", "p (Holm)"),
    )
    return Sheet(
        "comparison",
        "Runs against each other, on the same queries",
        (*(("data set",) if several else ()), *headings),
        shown,
        tuple((row.first_run, row.second_run) for row in rows),
        (
            f"Metric: {_metrics(rows)}. Differences in points with 95 % intervals by a paired bootstrap over documents; p by McNemar's exact test where "
            "answers are right or wrong and each has its own document, else by the bootstrap; Holm's correction is "
            f"over all {len(rows)} rows.",
            *(_baseline(rows, points)),
            *few([row.documents for row in rows]),
            *notes(points),
        ),
        3 if several else 2,
    )


def _baseline(rows: Sequence[ComparisonRow], points: Sequence[Point]) -> list[str]:
    """Said where not every pair is compared."""
    pairs = sum(len(group) * (len(group) - 1) // 2 for group in by_dataset(points).values())
    if len(rows) == pairs:
        return []
    return [
        f"Not all {pairs} pairs: each run of a large group is compared with the group's first, or with the nearest of "
        "those that --against KEY=VALUE names."
    ]


def _metrics(rows: Sequence[ComparisonRow]) -> str:
    return "; ".join(dict.fromkeys(f"{spoken(row.metric)} ({row.dataset})" for row in rows))


def comparison(
    points: Sequence[Point], folder: Path, against: str | None = None
) -> tuple[list[Path], list[Sheet]]:
    """comparison.csv and its sheet; nothing where no two runs answered the same queries."""
    rows = comparison_rows(points, against)
    if not rows:
        return [], []
    return write_rows(rows, folder / "comparison.csv"), [comparison_sheet(rows, points)]
