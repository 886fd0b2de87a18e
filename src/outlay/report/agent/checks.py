"""What the verifiers of a sweep let through, and which of them check nothing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.report.grid.drawing import write_rows
from outlay.report.sheets import Cell, Sheet, names, notes, number, percent
from outlay.report.tables import Point, by_dataset, marks

RATES = ("tpr", "fpr", "accepted_wrong")
JUDGELESS = ("gold", "reflect")
"""Verifiers that no table need judge: the answer key is right by definition, and a reflection has no verdict."""
FIXED = ("parse",)
"""Verifiers whose verdict no threshold moves."""
NAMED = 3
"""Runs that a notice names."""


@dataclass(frozen=True)
class CheckRow:
    """One verifier of one run, judged by the answer key after the run. Intervals are Clopper and Pearson's, 95 %."""

    dataset: str
    run: str
    marks: str
    verifier: str
    checks: int  # attempts that it judged
    tpr: float  # accepted, of the right; nan: it judged none
    tpr_lo: float
    tpr_hi: float
    fpr: float  # accepted, of the wrong; nan: it judged none
    fpr_lo: float
    fpr_hi: float
    accepted_wrong: float  # wrong, of the accepted; nan: it accepted none
    accepted_wrong_lo: float
    accepted_wrong_hi: float
    tokens: float  # that its calls cost, a query
    run_id: str


def check_rows(points: Sequence[Point]) -> list[CheckRow]:
    """A row for each run and verifier that does not read gold."""
    rows = []
    for dataset, group in by_dataset(points).items():
        named = names(group)
        for point in group:
            for verifier in _verifiers(point.metrics):
                own = {
                    key.removeprefix(f"verifier/{verifier}/"): value
                    for key, value in point.metrics.items()
                    if key.startswith(f"verifier/{verifier}/")
                }
                rates = {
                    f"{name}{end}": own.get(f"{name}{end}", math.nan)
                    for name in RATES
                    for end in ("", "_lo", "_hi")
                }
                rows.append(
                    CheckRow(
                        dataset=dataset,
                        run=named[point.run_id],
                        marks=marks(point),
                        verifier=verifier,
                        checks=int(own.get("checks", 0)),
                        tokens=own["tokens"] / point.metrics.get("data/examples", math.nan),
                        run_id=point.run_id,
                        **rates,
                    )
                )
    return rows


def _verifiers(metrics: Mapping[str, float]) -> Iterator[str]:
    for key in metrics:
        _, verifier, *last = key.split("/") if key.startswith("verifier/") else ("", "")
        if last == ["tokens"] and verifier not in JUDGELESS:
            yield verifier


def notices(points: Sequence[Point]) -> list[str]:
    """A line for each way in which verifiers tell nothing, with the numbers and the runs."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in check_rows(points):
        for what, numbers in _fault(row):
            found.setdefault((row.verifier, what), []).append(
                f"{row.run} ({numbers})" if numbers else row.run
            )
    lines = []
    for (verifier, what), runs in found.items():
        left = len(runs) - NAMED
        more = f" and {left} more {'run' if left == 1 else 'runs'}" if left > 0 else ""
        lines.append(f"verifier {verifier} {what}: {'; '.join(runs[:NAMED])}{more}")
    return lines


def _fault(row: CheckRow) -> Iterator[tuple[str, str]]:
    """What is wrong with a verifier in a run, and its numbers there."""
    if not row.checks:
        yield (
            "gave no verdict (none could be read, or no answer is simply right or wrong), so it has no rates",
            "",
        )
        return
    known = {value for value in (row.tpr, row.fpr) if not math.isnan(value)}
    moved = "" if row.verifier in FIXED else "; retry.threshold moves it"
    if known == {1.0}:
        wrong = round(row.accepted_wrong * row.checks)
        yield (
            f"accepted every attempt, right or wrong{moved}",
            f"{row.checks:,} of {row.checks:,}, {wrong:,} of them wrong",
        )
    elif known == {0.0}:
        yield f"rejected every attempt, right or wrong{moved}", f"{row.checks:,} of {row.checks:,}"
    for rate, which in ((row.tpr, "right"), (row.fpr, "wrong")):
        if math.isnan(rate):
            name = "true" if which == "right" else "false"
            yield (
                f"met no {which} attempt, so its {name} positive rate is undefined",
                f"{row.checks:,} checks",
            )


def verifiers(points: Sequence[Point], folder: Path) -> tuple[list[Path], list[Sheet]]:
    """verifiers.csv and its sheet; nothing where no run asked a verifier that does not read gold."""
    rows = check_rows(points)
    if not rows:
        return [], []
    several = len({row.dataset for row in rows}) > 1
    sheet = Sheet(
        "verifiers",
        "What the verifiers let through",
        (
            *(("data set",) if several else ()),
            *("run", "verifier", "attempts judged", "accepted of the right", "accepted of the wrong"),
            *("wrong of the accepted", "tokens a query"),
        ),
        tuple(
            (
                *((Cell(row.dataset),) if several else ()),
                Cell(row.run),
                Cell(row.verifier),
                Cell(f"{row.checks:,}", row.checks),
                *(percent(*(getattr(row, f"{name}{end}") for end in ("", "_lo", "_hi"))) for name in RATES),
                number(row.tokens, form=",.1f"),
            )
            for row in rows
        ),
        tuple((row.run_id,) for row in rows),
        (
            "Judged by the answer key after the run; a verdict that could not be read is a rejection. 95 % intervals "
            "(Clopper and Pearson) over attempts, which of one query are not independent.",
            *notices(points),
            *notes(points),
        ),
        3 if several else 2,
    )
    return write_rows(rows, folder / "verifiers.csv"), [sheet]
