"""One factor at a time: what a setting's value changes, all other settings held."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.report.agent.lines import spent
from outlay.report.comparison import few, floored
from outlay.report.grid.drawing import write_rows
from outlay.report.grid.runs import aligned, documents_of, named
from outlay.report.sheets import Cell, Sheet, chance, notes, number, percent, spoken
from outlay.report.tables import Point, by_dataset, headline, labels, marks, varying

VALUES = 40
"""Values that a factor's table may have."""


@dataclass(frozen=True)
class AblationRow:
    """One value of a factor against the factor's first, averaged over the contexts that hold all else. 95 % intervals."""

    dataset: str
    metric: str
    factor: str
    value: str
    base: str
    contexts: int  # settings of everything else under which both ran
    queries: int  # distinct
    documents: int
    effect: float  # mean of (value - base), over queries and contexts; resamples draw documents whole
    effect_lo: float
    effect_hi: float
    tokens: float  # tokens a query, value - base
    tokens_lo: float
    tokens_hi: float
    p: float
    p_holm: float  # over all rows of the table
    marks: str
    run_ids: str  # of both, separated by blanks


def ablation_rows(points: Sequence[Point]) -> list[AblationRow]:
    """A row for each data set, factor and value but the first, where two runs or more differ in that factor alone."""
    from outlay.score.statistics import holm

    rows = [
        row
        for dataset, group in by_dataset(points).items()
        for factor in varying(group)
        if factor != "dataset" and not _follows(factor, group)
        for row in _rows(dataset, factor, group)
    ]
    return [replace(row, p_holm=float(p)) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def _follows(factor: str, points: Sequence[Point]) -> bool:
    """An option that says which value a choice has (a model's name) is no factor of its own."""
    return factor.rpartition(".")[2] in ("name", "path")


def _rows(dataset: str, factor: str, points: Sequence[Point]) -> Iterator[AblationRow]:
    contexts = list(_contexts(factor, points))
    values = list(dict.fromkeys(value for one in contexts for value in one))
    if len(values) < 2 or len(values) > VALUES:
        return
    base = values[0]
    metric = headline(points).partition("/")[2]
    for value in values[1:]:
        pairs = [(one[value], one[base]) for one in contexts if value in one and base in one]
        row = _row(dataset, metric, factor, value, base, pairs)
        if row:
            yield row


def _contexts(factor: str, points: Sequence[Point]) -> Iterator[Mapping[str, Point]]:
    """Value -> run, for each setting of everything else. A choice brings its own options with it."""
    settings = varying(points)
    groups: dict[str, dict[str, Point]] = {}
    for point in points:
        own = labels(point)
        if factor not in own:
            continue
        rest = {
            key: value
            for key, value in own.items()
            if key != factor and not ("." not in factor and key.startswith(f"{factor}."))
        }
        value = named(own, settings, factor) if "." not in factor else str(own[factor])
        groups.setdefault(json.dumps(rest, sort_keys=True, default=str), {})[value] = point
    yield from (group for group in groups.values() if len(group) > 1)


def _row(
    dataset: str, metric: str, factor: str, value: str, base: str, pairs: Sequence[tuple[Point, Point]]
) -> AblationRow | None:
    import numpy as np

    from outlay.score.statistics import interval, paired_difference

    gaps, tokens, documents, queries, used = [], [], [], [], []
    for own, other in pairs:
        found = aligned([own, other], metric)
        if found is None:
            continue
        values, ids = found
        bills = spent(own.folder), spent(other.folder)
        gaps.append(values)
        tokens.append([bills[0][one].tokens - bills[1][one].tokens for one in ids])
        documents += documents_of(own.folder, ids)
        queries += ids
        used.append((own, other))
    if not gaps:
        return None
    first, second = np.concatenate(gaps, axis=1)
    gap = paired_difference(first, second, clusters=documents, resamples=10_000)
    return AblationRow(
        dataset,
        metric,
        factor,
        value,
        base,
        len(used),
        len(set(queries)),
        len(set(documents)),
        gap.value,
        gap.lo,
        gap.hi,
        *interval(np.concatenate(tokens).astype(float), clusters=documents),
        floored(gap.p, len(set(documents))),
        float("nan"),
        "".join(mark for mark in "*†" if any(mark in marks(one) for pair in used for one in pair)),
        " ".join(dict.fromkeys(one.run_id for pair in used for one in pair)),
    )


def ablation_sheet(rows: Sequence[AblationRow], points: Sequence[Point]) -> Sheet:
    """The rows as a table."""
    several = len({row.dataset for row in rows}) > 1
    return Sheet(
        "ablation",
        "One factor at a time, all others held",
        (("data set",) if several else ())
        + ("factor", "value", "against", "contexts", "queries", "effect, points", "tokens a query")
        + ("p", "p (Holm)"),
        tuple(
            (
                *((Cell(row.dataset),) if several else ()),
                Cell(row.factor),
                Cell(f"{row.value} {row.marks}".rstrip()),
                Cell(row.base),
                Cell(str(row.contexts), row.contexts),
                Cell(str(row.queries), row.queries),
                percent(row.effect, row.effect_lo, row.effect_hi, signed=True),
                number(row.tokens, row.tokens_lo, row.tokens_hi, "+,.1f"),
                chance(row.p),
                chance(row.p_holm),
            )
            for row in rows
        ),
        tuple(tuple(row.run_ids.split()) for row in rows),
        (
            f"Metric: {_metrics(rows)}. Mean over the contexts of the paired difference to the factor's first value; 95 % intervals and p by a "
            f"bootstrap over documents; Holm's correction is over all {len(rows)} rows. A mark stands where either of the two "
            "runs has it.",
            *few([row.documents for row in rows]),
            *notes(points),
        ),
        4 if several else 3,
    )


def _metrics(rows: Sequence[AblationRow]) -> str:
    return "; ".join(dict.fromkeys(f"{spoken(row.metric)} ({row.dataset})" for row in rows))


def ablation(points: Sequence[Point], folder: Path) -> tuple[list[Path], list[Sheet]]:
    """ablation.csv and its sheet; nothing where no two runs differ in one setting alone."""
    rows = ablation_rows(points)
    if not rows:
        return [], []
    return write_rows(rows, folder / "ablation.csv"), [ablation_sheet(rows, points)]
