"""Tables as people read them: one table as Markdown, LaTeX (booktabs) and, in the report's page, HTML; with its runs."""

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.report.tables import (
    CHECKS,
    SPOKEN,
    Point,
    answers,
    by_dataset,
    count,
    headline,
    labels,
    legend,
    marks,
    metric,
    needed,
    size,
    sizes_differ,
    varying,
    word,
)
from outlay.report.trials import SPLIT, trials


@dataclass(frozen=True)
class Cell:
    """One cell: what it says, and what it sorts by (a text sorts by itself)."""

    text: str
    value: float = math.nan


@dataclass(frozen=True)
class Sheet:
    """One table. sources: of each row, the runs that its numbers come from."""

    name: str  # of its files
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sources: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    words: int = 1  # columns from the left that hold words, not numbers


def write_sheet(sheet: Sheet, folder: Path) -> list[Path]:
    """NAME.md and NAME.tex."""
    written = [folder / f"{sheet.name}.{ending}" for ending in ("md", "tex")]
    for path, text in zip(written, (markdown(sheet), latex(sheet)), strict=True):
        path.write_text(text, encoding="utf-8")
    return written


def markdown(sheet: Sheet) -> str:
    ends = ["---"] * sheet.words + ["---:"] * (len(sheet.headings) - sheet.words)
    rows = [sheet.headings, *([cell.text for cell in row] for row in sheet.rows)]
    first, *others = ["| " + " | ".join(_plain(text) for text in row) + " |" for row in rows]
    notes = ["", *(f"- {_plain(note)}" for note in sheet.notes)] if sheet.notes else []
    return "\n".join([f"# {sheet.title}", "", first, "|" + "|".join(ends) + "|", *others, *notes]) + "\n"


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("\n", " ")


SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "*": r"\textsuperscript{*}", "†": r"\textsuperscript{\textdagger}", "×": r"$\times$", "≥": r"$\geq$",
    "≤": r"$\leq$", "∞": r"$\infty$", "−": "$-$", "–": "--", "·": r"$\cdot$", "α": r"$\alpha$", "→": r"$\to$",
    "½": r"$\frac12$", "…": r"\ldots{}", "|": r"\textbar{}", '"': "''",
}  # fmt: skip
"""Characters that LaTeX reads otherwise, or that its fonts lack."""


def escaped(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(SPECIAL.get(character, character) for character in text if character.isprintable())


def latex(sheet: Sheet) -> str:
    """A table for `\\usepackage{booktabs}`."""
    ends = "l" * sheet.words + "r" * (len(sheet.headings) - sheet.words)
    lines = [
        f"% runs: {', '.join(dict.fromkeys(run for row in sheet.sources for run in row))}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(sheet.title)}. {' '.join(escaped(note) for note in sheet.notes)}}}",
        rf"\label{{tab:{sheet.name}}}",
        rf"\begin{{tabular}}{{{ends}}}",
        r"\toprule",
        " & ".join(escaped(heading) for heading in sheet.headings) + r" \\",
        r"\midrule",
        *(" & ".join(escaped(cell.text) for cell in row) + r" \\" for row in sheet.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- cells


def number(value: float, low: float = math.nan, high: float = math.nan, form: str = ".2f") -> Cell:
    """ "1.23 [1.02, 1.41]", sorted by the value; "∞ [8.02, ∞]" where it is a price of what is not always bought."""
    if math.isnan(value):
        return Cell("–")

    def written(one: float) -> str:
        text = f"{one:{form}}"
        return "∞" if math.isinf(one) else text if text.strip("-+0.,") else f"{0.0:{form}}"

    # No minus before what rounds to zero; and an interval from ∞ to ∞ says nothing more.
    text, *ends = map(written, (value, low, high))
    known = not math.isnan(low) and not math.isnan(high) and not math.isinf(low)
    return Cell(f"{text}{f' [{ends[0]}, {ends[1]}]' if known else ''}".replace("-", "−"), value)


def percent(value: float, low: float = math.nan, high: float = math.nan, signed: bool = False) -> Cell:
    """ "41.0 % [29.1, 54.0]"; signed: a difference in points."""
    text = number(100 * value, 100 * low, 100 * high, "+.1f" if signed else ".1f").text
    if signed or math.isnan(value):
        return Cell(text, value)
    first, *rest = text.split(" [")
    return Cell(" [".join([f"{first} %", *rest]), value)


def chance(p: float) -> Cell:
    """A p-value."""
    return Cell("–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}", p)


def spoken(name: str) -> str:
    return name.removeprefix("quality/").replace("_", " ")


# ---------------------------------------------------------------- what each setting bought

COLUMNS = (
    ("fact recall", "quality/fact_recall", "percent"),
    ("context tokens", "context/tokens_mean", "tokens"),
    ("tokens a query", "cost/tokens_per_query", "tokens"),
    ("… for probes", "cost/tokens_probe", "each"),
    ("… for checks", CHECKS, "each"),
    ("… for retries", "cost/tokens_retry", "each"),
    ("inflation", "inflation/mean", "times"),
    ("inflation ≥ 2", "inflation/share_ge_2", "percent"),
    ("tokens a right answer", "cost/per_correct", "tokens"),
)
NOTHING = {
    "inflation/mean": 1.0,
    "inflation/share_ge_2": 0.0,
    "cost/tokens_probe": 0.0,
    CHECKS: 0.0,
    "cost/tokens_retry": 0.0,
}
"""Values at which a column says nothing."""
SETTINGS = 6
"""Settings that get columns of their own; of more, a run's name says those that tell it from the others."""
HEADED = {"retry.stop": "stops on"}
"""Settings whose heading is not how a name says them."""


def _parts(points: Sequence[Point]) -> list[tuple[str, str, list[Point]]]:
    """(name, title, runs) of each table: one a data set; of a tuned sweep, what was held out stands apart from the search."""
    found = []
    several = len(by_dataset(points)) > 1
    for dataset, group in by_dataset(points).items():
        of = trials(group)
        stem = f"overview_{re.sub(r'[^a-zA-Z0-9]+', '_', dataset).strip('_')}" if several else "overview"
        held = [point for point in group if point.run_id in of and of[point.run_id].held_out]
        searched = [point for point in group if point.run_id in of and not of[point.run_id].held_out]
        others = [point for point in group if point.run_id not in of]
        for end, title, own in (
            ("", f"{dataset}: what each setting bought", others),
            ("_held_out", f"{dataset}: the front, held out", held),
            ("_trials", f"{dataset}: the search's trials", searched),
        ):
            if own:
                found.append((f"{stem}{end}", title, own))
    return found


CHOSEN = "The front was chosen by these figures, which flatter it: judge it by the held-out runs."


def overview(points: Sequence[Point]) -> list[Sheet]:
    """A table for each data set: each run's settings, quality and cost, with 95 % intervals."""
    sheets = []
    for stem, title, group in _parts(points):
        settings = _settings_of(group)
        tuned = trials(group)
        named = names(group) if tuned or len(settings) > SETTINGS else {}
        quality = headline(group)
        sizes = sizes_differ(group)
        shown = _columns(group, quality)
        rows = []
        for point in group:
            own = labels(point)
            said = [_setting(own.get(key)) for key in settings]
            said[-1] = f"{said[-1]} {marks(point)}".rstrip()
            said = [named[point.run_id]] if named else said
            cells = [_metric(point, name, kind) for _, name, kind in shown]
            counted = [_metric(point, "data/examples", "tokens")] if sizes else []
            rows.append((*map(Cell, said), *counted, _metric(point, quality, "percent"), *cells))
        chosen = [CHOSEN] if any(not one.held_out for one in tuned.values()) else []
        sheets.append(
            Sheet(
                stem,
                title,
                (
                    *(["run"] if named else [short(key, settings) for key in settings]),
                    *(["examples"] if sizes else []),
                    spoken(quality),
                    *(c[0] for c in shown),
                ),
                tuple(rows),
                tuple((point.run_id,) for point in group),
                (f"{size(group)}; 95 % intervals by a bootstrap over examples.", *chosen, *notes(group)),
                1 if named else len(settings),
            )
        )
    return sheets


def overview_data(points: Sequence[Point], folder: Path) -> list[Path]:
    """overview.csv, or overview_DATASET.csv where there are several: what the sheets show, as numbers."""
    written = []
    for stem, _, group in _parts(points):
        settings, quality = _settings_of(group), headline(group)
        metrics = ["data/examples", quality, *(name for _, name, _ in _columns(group, quality))]
        measured = [f"{name}{end}" for name in metrics for end in ("", "_lo", "_hi")]
        measured = [
            name for name in measured if any(not math.isnan(metric(one.metrics, name)) for one in group)
        ]
        path = folder / f"{stem}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["dataset", "run", "marks", *settings, *measured, "run_id"])
            named = names(group)
            for point in group:
                own = labels(point)
                values = (metric(point.metrics, name) for name in measured)
                writer.writerow(
                    [
                        point.choices.get("dataset", ""),
                        named[point.run_id],
                        marks(point),
                        *(own.get(key, "") for key in settings),
                        *("" if math.isnan(value) else value for value in values),
                        point.run_id,
                    ]
                )
        written.append(path)
    return written


def _settings_of(points: Sequence[Point]) -> list[str]:
    return [key for key in varying(points) if key != "dataset"] or ["generator", "selector", "retry"]


def _columns(points: Sequence[Point], quality: str) -> list[tuple[str, str, str]]:
    """Those of COLUMNS that say something of these runs."""
    return [
        (heading, name, kind)
        for heading, name, kind in COLUMNS
        if name != quality
        and (name != "cost/per_correct" or any(map(answers, points)))
        and any(
            math.isfinite(value := metric(point.metrics, name)) and value != NOTHING.get(name)
            for point in points
        )
    ]


def names(points: Sequence[Point], leave_out: Sequence[str] = ()) -> dict[str, str]:
    """Run id -> what tells it from the other runs, in as few settings as do; without those of `leave_out`."""
    keys = [key for key in varying(points) if key != "dataset" and key not in leave_out]
    each = [labels(point) for point in points]
    tuned = trials(points)
    keys = needed(keys, each)
    found = {}
    for point, own in zip(points, each, strict=True):
        trial = tuned.get(point.run_id)
        # A trial is told by its number, and says all that was searched for.
        told = list(dict.fromkeys([*trial.searched, *keys])) if trial else keys
        told = [key for key in told if not trial or key not in SPLIT]
        said = [f"trial {trial.number}{' held out' if trial.held_out else ''}"] if trial else []
        said += [word(key, own[key]) for key in told if own.get(key) is not None]
        found[point.run_id] = f"{' · '.join(said) or point.name} {marks(point)}".rstrip()
    return found


def judged(points: Sequence[Point]) -> list[Point]:
    """The runs that figures are of: those that learn from (train, tune) are left out, where there are others."""
    found = [point for point in points if labels(point).get("dataset.split") not in ("train", "tune")]
    return found or list(points)


def only_held_out(points: Sequence[Point]) -> str:
    """Said behind a figure's title where `judged` leaves runs out."""
    return ", held-out runs only" if len(judged(points)) < len(points) else ""


def notes(points: Sequence[Point]) -> list[str]:
    """What a table must say of these runs: the marks among them, and what kind of models answered."""
    return legend(points)


def short(key: str, among: Sequence[str] = ()) -> str:
    """A setting's heading: its last part where no other setting ends so."""
    last = HEADED.get(key) or SPOKEN.get(key, key.rpartition(".")[2])
    return last if sum(one.rpartition(".")[2] == last for one in among) < 2 else key


def _metric(point: Point, name: str, kind: str) -> Cell:
    value, low, high = (metric(point.metrics, f"{name}{end}") for end in ("", "_lo", "_hi"))
    if kind == "each":  # a total, of which a query has its share
        value /= point.metrics["data/examples"]
        return Cell(count(value), value)
    if kind == "percent":
        return percent(value, low, high)
    if kind == "times":
        return number(value, low, high)
    between = (
        "" if math.isnan(low) or math.isnan(high) or math.isinf(value) else f" [{count(low)}, {count(high)}]"
    )
    return Cell(f"{count(value)}{between}", value)


def _setting(value: object) -> str:
    return "–" if value is None else str(value)
