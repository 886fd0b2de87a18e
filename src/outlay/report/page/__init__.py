"""report.html: one file that needs no network. Tables that sort, charts that answer, and the runs' examples."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlay.report.page.browser import Examples
from outlay.report.page.charts import FROM, SPECS, figure, marker
from outlay.report.sheets import Cell, Sheet
from outlay.report.tables import MARKS, Point, marks

HERE = Path(__file__).parent
MOST_CSV = 300_000
"""Bytes of a CSV that the page carries; a larger one lies beside it only."""

IMAGES = {
    "pareto": "The front of the search: all trials, and those that no other beats",
    "kept_positions": "Where in the document the kept units stand",
    "metric_separation": "How far each metric tells selectors apart, in standard errors",
    "selector_against_unitizer": "How much of the differences is the selector, how much the unitizer",
    "predictor": "What foretells inflation: AUROC of the predictor and of its features alone",
}
"""Figures that the page shows as drawn, stem -> title."""


@dataclass(frozen=True)
class Image:
    """A figure as drawn."""

    stem: str
    title: str
    source: str  # a data URI


@dataclass(frozen=True)
class Text:
    """A writer's Markdown page, as tables and paragraphs."""

    name: str
    title: str
    blocks: tuple[tuple[str, Any], ...]  # heading | text | item | table, and what it holds


@dataclass(frozen=True)
class Run:
    """One run, as the last section lists it."""

    point: Point
    sweep: str
    number: str
    experiment: str
    text_kept: bool


def write_page(
    path: Path,
    title: str,
    notes: Sequence[str],
    sheets: Sequence[Sheet],
    written: Sequence[Path],
    runs: Sequence[Run],
    examples: Examples,
    sources: Mapping[str, Sequence[str]],
) -> Path:
    """Write the page.

    Args:
        notes: what a reader must know first.
        written: the files beside the page, whose figures and tables it shows.
        sources: a file's name -> the runs that it was made from.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((HERE / "report.html.jinja").read_text(encoding="utf-8"))
    csvs = {one.stem: one for one in written if one.suffix == ".csv"}
    figures = [found for stem in SPECS if stem in csvs and (found := figure(csvs[stem]))]
    shown = {*(one.stem for one in figures), *(FROM.get(one.stem, one.stem) for one in figures)}
    images = [
        Image(one.stem, IMAGES[kind], _uri(one, "image/png"))
        for one in written
        if one.suffix == ".png" and (kind := _kind(one)) in IMAGES and one.stem not in shown
    ]
    names = {sheet.name for sheet in sheets}
    texts = [read_markdown(one) for one in written if one.suffix == ".md" and one.stem not in names]
    page = template.render(
        title=title,
        notes=notes,
        warnings=_warnings([run.point for run in runs]),
        sheets=sheets,
        figures=figures,
        images=images,
        texts=texts,
        runs=runs,
        examples=examples,
        sources=sources,
        names={run.point.run_id: run.point.name for run in runs},
        marks=marks,
        marked=_marked([run.point for run in runs]),
        csv={stem: _download(one) for stem, one in csvs.items()},
        key=lambda at, colour: Markup(_key(at, colour)),
        charts=lambda svg: Markup(svg),
        style=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "report.js").read_text(encoding="utf-8")),
        data=Markup(as_script(examples.data())),
    )
    path.write_text(page, encoding="utf-8", errors="replace")
    return path


def _marked(points: Sequence[Point]) -> str:
    """The sentence on the marks that stand in this page, which is only there where one does."""
    used = [mark for mark in MARKS if any(mark in marks(point) for point in points)]
    return f"{' and '.join(used)} {'are' if len(used) > 1 else 'is'} explained at the top." if used else ""


def _warnings(points: Sequence[Point]) -> list[tuple[str, list[str]]]:
    """What policies say of themselves, each with the runs that say it."""
    found: dict[str, list[str]] = {}
    for point in points:
        for warning in getattr(point, "warnings", ()):
            found.setdefault(warning, []).append(point.run_id)
    return list(found.items())


def as_script(value: Any) -> str:
    """JSON inside a <script>: no text in it can end the element, or open a comment."""
    return json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _kind(path: Path) -> str:
    """What an image is of: of several tuned sweeps, each has its own front."""
    return "pareto" if path.stem.startswith("pareto_") else path.stem


def _key(at: int, colour: int) -> str:
    classes = f"series c{colour}" if colour >= 0 else "series other"
    return f'<svg class="key" viewBox="-8 -8 16 16" aria-hidden="true"><g class="{classes}">{marker(at, 0, 0)}</g></svg>'


def _uri(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _download(path: Path) -> tuple[str, str]:
    """A CSV's name, and its data; no data where it is too large for the page."""
    small = path.stat().st_size <= MOST_CSV
    return path.name, _uri(path, "text/csv") if small else ""


def read_markdown(path: Path) -> Text:
    """Our own writers' Markdown: headings, paragraphs, items and tables. Nothing of it is read as HTML."""
    blocks: list[tuple[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, text = "text", line.strip()
        if text.startswith("|"):
            cells = [_unescaped(cell.strip()) for cell in text.strip("|").replace("\\|", "\0").split("|")]
            if set("".join(cells)) <= set("-: "):
                continue
            if blocks and blocks[-1][0] == "table":
                blocks[-1][1].append([Cell(cell) for cell in cells])
            else:
                blocks.append(("table", [[Cell(cell) for cell in cells]]))
            continue
        if text.startswith("#"):
            kind, text = "heading", text.lstrip("# ")
        elif text.startswith("- "):
            kind, text = "item", text[2:]
        if kind == "text" and text and blocks and blocks[-1][0] == "text":
            blocks[-1] = ("text", f"{blocks[-1][1]} {_unescaped(text)}".strip())
        else:
            blocks.append((kind, _unescaped(text)))
    title = next((text for kind, text in blocks if kind == "heading"), path.stem)
    rest = [block for block in blocks if block[1] and block != ("heading", title)]
    return Text(path.stem, title, tuple(rest))


def _unescaped(text: str) -> str:
    return text.replace("\0", "|").replace("**", "").replace("\\*", "*").replace("\\\\", "\\")
