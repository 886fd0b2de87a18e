"""Tables as people read them: one table as Markdown, LaTeX (booktabs) and, in the report's page, HTML; with its runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlay.report.tables import Point, by_dataset, count, headline, labels, legend, marks, varying


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
    """ "1.23 [1.02, 1.41]", sorted by the value."""
    if math.isnan(value):
        return Cell("–")
    between = "" if math.isnan(low) or math.isnan(high) else f" [{low:{form}}, {high:{form}}]"
    value += 0.0  # no minus before a zero
    return Cell(("∞" if math.isinf(value) else f"{value:{form}}{between}").replace("-", "−"), value)


def percent(value: float, low: float = math.nan, high: float = math.nan, signed: bool = False) -> Cell:
    """ "41.0 % [29.1, 54.0]"; signed: a difference in points."""
    if math.isnan(value):
        return Cell("–")
    form = "+.1f" if signed else ".1f"
    between = "" if math.isnan(low) or math.isnan(high) else f" [{100 * low:{form}}, {100 * high:{form}}]"
    return Cell(f"{100 * value:{form}}{'' if signed else ' %'}{between}".replace("-", "−"), value)


def chance(p: float) -> Cell:
    """A p-value."""
    return Cell("–" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}", p)


def spoken(metric: str) -> str:
    return metric.removeprefix("quality/").replace("_", " ")


# ---------------------------------------------------------------- what each setting bought

COLUMNS = (
    ("facts kept", "quality/fact_recall", "percent"),
    ("context tokens", "context/tokens_mean", "tokens"),
    ("tokens a query", "cost/tokens_per_query", "tokens"),
    ("inflation", "inflation/mean", "times"),
    ("inflation ≥ 2", "inflation/share_ge_2", "percent"),
    ("tokens a right answer", "cost/per_correct", "tokens"),
)
NOTHING = {"inflation/mean": 1.0, "inflation/share_ge_2": 0.0}
"""Values at which a column says nothing."""
SETTINGS = 6
"""Settings that get columns of their own; of more, a run's name says those that tell it from the others."""
SPOKEN = {"budget.tokens": "budget", "retry.stop": "stops on"}
"""Settings whose last part says too little."""
INSTRUMENT = "generator=lab: small models of the project's own, an instrument; no claim about large ones"


def overview(points: Sequence[Point]) -> list[Sheet]:
    """A table for each data set: each run's settings, quality and cost, with 95 % intervals."""
    sheets = []
    several = len(by_dataset(points)) > 1
    for dataset, group in by_dataset(points).items():
        settings = [key for key in varying(group) if key != "dataset"] or ["generator", "selector", "retry"]
        named = names(group) if len(settings) > SETTINGS else {}
        quality = headline(group)
        shown = [
            (heading, name, kind)
            for heading, name, kind in COLUMNS
            if name != quality
            and any(
                math.isfinite(point.metrics.get(name, math.nan)) and point.metrics[name] != NOTHING.get(name)
                for point in group
            )
        ]
        rows = []
        for point in group:
            own = labels(point)
            said = [_setting(own.get(key)) for key in settings]
            said[-1] = f"{said[-1]} {marks(point)}".rstrip()
            said = [named[point.run_id]] if named else said
            cells = [_metric(point, name, kind) for _, name, kind in shown]
            rows.append((*map(Cell, said), _metric(point, quality, "percent"), *cells))
        first = group[0].metrics
        examples, documents = (int(first.get(f"data/{what}", 0)) for what in ("examples", "documents"))
        size = f"{examples} examples" + (f" on {documents} documents" if 0 < documents < examples else "")
        sheets.append(
            Sheet(
                f"overview_{dataset}" if several else "overview",
                f"{dataset}: what each setting bought",
                (
                    *(["run"] if named else [short(key, settings) for key in settings]),
                    spoken(quality),
                    *(c[0] for c in shown),
                ),
                tuple(rows),
                tuple((point.run_id,) for point in group),
                (f"{size}; 95 % intervals by a bootstrap over examples.", *notes(group)),
                1 if named else len(settings),
            )
        )
    return sheets


def names(points: Sequence[Point], leave_out: Sequence[str] = ()) -> dict[str, str]:
    """Run id -> what tells it from the other runs, in as few settings as do; without those of `leave_out`."""
    keys = [key for key in varying(points) if key != "dataset" and key not in leave_out]
    each = [labels(point) for point in points]

    def told_apart(by: Sequence[str]) -> int:
        return len({tuple(str(own.get(key)) for key in by) for own in each})

    whole = told_apart(keys)
    for key in sorted(keys, key=lambda key: "." in key, reverse=True):  # options before choices
        rest = [one for one in keys if one != key]
        has_options = any(one.startswith(f"{key}.") for one in rest)
        if not has_options and told_apart(rest) == whole:
            keys = rest
    found = {}
    for point, own in zip(points, each, strict=True):
        said = [_said(key, own[key]) for key in keys if own.get(key) is not None]
        found[point.run_id] = f"{' · '.join(said) or point.name} {marks(point)}".rstrip()
    return found


def _said(key: str, value: object) -> str:
    if "." not in key or (isinstance(value, str) and len(value) > 1):
        return str(value)
    return f"{short(key)} {value}"


def judged(points: Sequence[Point]) -> list[Point]:
    """The runs that figures are of: those that learn from (train, tune) are left out, where there are others."""
    found = [point for point in points if labels(point).get("dataset.split") not in ("train", "tune")]
    return found or list(points)


def notes(points: Sequence[Point]) -> list[str]:
    """The marks among these runs, and what kind of models answered."""
    said = [*legend(points)]
    if any(point.choices.get("generator") == "lab" for point in points):
        said.append(INSTRUMENT)
    return said


def short(key: str, among: Sequence[str] = ()) -> str:
    """A setting's heading: its last part where no other setting ends so."""
    last = SPOKEN.get(key, key.rpartition(".")[2])
    return last if sum(one.rpartition(".")[2] == last for one in among) < 2 else key


def _metric(point: Point, name: str, kind: str) -> Cell:
    value, low, high = (point.metrics.get(f"{name}{end}", math.nan) for end in ("", "_lo", "_hi"))
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
