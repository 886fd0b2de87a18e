"""Charts of the page: SVG drawn from the figures' own CSV, in the page's colours, each point to be pointed at or tabbed to."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 44
COLORS = 10
"""Colours of the page's palette; further lines take the next marker."""
MOST = 12
"""Lines of a chart that are told apart; the others are grey."""
PANELS = 12
"""Charts that one figure may have in the page; its CSV has all."""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Spec:
    """How a CSV becomes charts."""

    title: str
    says: str  # a sentence under the title
    x: str  # the columns
    y: str
    series: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    x_label: str = ""  # empty: the column's name
    y_label: str = ""
    percent: bool = True  # y is a share
    log: bool = False
    tip: tuple[str, ...] = ()  # further columns that a point says
    hull: str = ""  # a column that marks the corners of a hull
    diagonal: bool = False
    joined: bool = True
    only: Mapping[str, str] = field(default_factory=dict)  # rows to keep
    forest: bool = False  # one row for each value of `series`, x with its interval
    mark: str = ""  # a column of marks, or of True


SPECS: Mapping[str, Spec] = {
    "accuracy_over_cost": Spec(
        "Quality over cost",
        "A point is a run; the grey band is the hull, what mixing deployable runs at random can buy.",
        "cost", "quality", ("line",), ("dataset",), "{unit} a query", "{metric}", tip=("run",), hull="on_hull",
    ),
    "quality_over_budget": Spec(
        "Quality over the token budget",
        "A line for each selector, a chart for each way to cut the document.",
        "budget", "quality", ("selector",), ("dataset", "setting", "metric", "unitizer"), "budget, tokens", "{metric}",
        log=True, mark="reads_gold",
    ),
    "inflation_by_difficulty": Spec(
        "Inflation by difficulty",
        "Tokens of all attempts over those of the first.",
        "difficulty", "inflation", ("setting",), ("dataset",), percent=False, tip=("accuracy",),
    ),
    "retry_curves": Spec(
        "Retry curves",
        "Share of queries with a right answer among the first k attempts: what stopping on the answer key * would give.",
        "attempts", "solved", ("setting",), ("dataset",), "attempts allowed", "solved *", tip=("voted", "inflation"),
    ),
    "calibration": Spec(
        "Calibration of the inflation predictor",
        "Foretold P(inflation ≥ 2) against the share that was seen; a point is a tenth of the range.",
        "predicted", "observed", (), ("tier",), "foretold P(inflation ≥ 2)", "seen", tip=("queries",), diagonal=True,
    ),
    "contamination": Spec(
        "Contamination: a shown chain against a fresh retry",
        "Paired difference in accuracy on the same queries; left of the line the shown chain hurts.",
        "difference", "", ("arm",), ("setting",), "difference to a fresh retry, points", only={"chains": "all"},
        tip=("cases", "p_holm"), forest=True,
    ),
    "regret": Spec(
        "Router regret",
        "Mean distance to the best fixed selector per example.",
        "regret", "", ("policy",), ("dataset", "setting"), "regret, points", tip=("mean",), forest=True,
        mark="reads_gold",
    ),
    "routing_points": Spec(
        "Routing: accuracy over cost",
        "Every routing policy on the same queries and draws; probes, verifiers and failed calls are paid for.",
        "cost", "accuracy", ("policy",), ("dataset", "setting", "reads_gold"), "compute units a query", "right", log=True,
        tip=("budget", "tokens"), mark="reads_gold",
    ),
}  # fmt: skip
"""Stem of a CSV -> its charts, in the order of the page."""

FROM = {"regret": "router_regret", "routing_points": "routing"}
"""CSV -> the figure that shows the same, where their names differ."""
METRICS = ("fact_recall", "accuracy", "bertscore_f1", "rouge1")
"""Where a CSV has several metrics, the first of these that it has is drawn."""


@dataclass(frozen=True)
class Figure:
    """A figure of the page: its charts as SVG, and the buttons that hide a line."""

    stem: str
    title: str
    says: str
    panels: tuple[tuple[str, str], ...]  # title, SVG
    legend: tuple[tuple[int, int, str], ...]  # colour, place, line
    left_out: int = 0  # charts


def figure(path: Path) -> Figure | None:
    """The charts of a CSV; None where it has nothing to draw."""
    spec = SPECS[path.stem]
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row.get(k) == v for k, v in spec.only.items())]
    rows = [row for row in rows if _number(row.get(spec.x)) is not None]
    if "metric" in spec.panels:
        known = {row["metric"] for row in rows}
        shown = next((name for name in METRICS if name in known), None)
        rows = [row for row in rows if shown is None or row["metric"] == shown]
    if not rows:
        return None
    names = list(dict.fromkeys(_named(row, spec) for row in rows))
    if len(names) > MOST:
        corners = [_named(row, spec) for row in rows if spec.hull and row[spec.hull] == "True"]
        names = list(dict.fromkeys([*corners, *names]))[:MOST]
    place = {name: at for at, name in enumerate(names)}
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_panel(row, spec, rows), []).append(row)
    draw = _forest if spec.forest else _chart
    panels = tuple((title, draw(group, spec, place, title)) for title, group in list(groups.items())[:PANELS])
    legend = tuple((at % COLORS, at, name) for name, at in place.items())
    others = {_named(row, spec) for row in rows} - set(names)
    if others:
        legend += ((-1, -1, f"{len(others)} others"),)
    if spec.forest or not spec.series:
        legend = ()
    return Figure(path.stem, spec.title, spec.says, panels, legend, max(0, len(groups) - PANELS))


def _panel(row: Row, spec: Spec, rows: Sequence[Row]) -> str:
    said = []
    for name in spec.panels:
        if name == "reads_gold":
            said.append("stops on the answer key (bounds)" if row[name] == "True" else "deployable")
        elif row[name] and (len({one[name] for one in rows}) > 1 or name == "dataset"):
            said.append(row[name].replace("_", " "))
    return " · ".join(said)


def _named(row: Row, spec: Spec) -> str:
    name = " ".join(row[one] for one in spec.series if row[one]) or "all"
    return f"{name} *" if spec.mark and row[spec.mark] == "True" else name


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _value(row: Row, name: str) -> float:
    value = _number(row.get(name))
    return math.nan if value is None else value


# ---------------------------------------------------------------- scales


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers over a range."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw)
    first = math.ceil(low / step - 1e-9)
    return [round(step * at, 10) for at in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers over a range of powers; few, and none that crowd."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 4, 6, 8)):
        found = [
            step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high
        ]
        if len(found) >= 3:
            return found
    return found or [low, high]


def _said(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}".replace("-", "−")


# ---------------------------------------------------------------- drawing


def _chart(rows: Sequence[Row], spec: Spec, place: Mapping[str, int], title: str) -> str:
    scale = 100 if spec.percent else 1
    ends = [
        value
        for row in rows
        for end in ("", "_lo", "_hi")
        if not math.isnan(value := scale * _value(row, spec.y + end))
    ]
    costs = [_value(row, spec.x) for row in rows]
    if not ends:
        return ""
    low_y, high_y = min(0.0, *ends) if spec.percent else min(1.0, *ends), max(ends)
    high_y += 0.05 * (high_y - low_y or 1)
    low_x, high_x = min(costs), max(costs)
    log = spec.log and low_x > 0 and high_x > 3 * low_x
    if spec.diagonal:
        low_x, high_x, low_y, high_y = 0.0, 1.0, 0.0, 100.0
    elif log:
        low_x, high_x = low_x / 1.1, high_x * 1.1
    else:
        gap = 0.05 * (high_x - low_x or abs(high_x) or 1)
        low_x, high_x = (max(0.0, low_x - gap) if low_x >= 0 else low_x - gap), high_x + gap

    def x(value: float) -> float:
        share = (
            (math.log(value) - math.log(low_x)) / (math.log(high_x) - math.log(low_x))
            if log
            else (value - low_x) / (high_x - low_x)
        )
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low_y) / (high_y - low_y) * (HEIGHT - TOP - BOTTOM)

    known = sorted(set(costs))
    # Where all runs share a few places (budgets, attempts), those are the ticks.
    at_x = (
        known
        if len(known) <= 7 and not spec.hull
        else log_ticks(low_x, high_x)
        if log
        else ticks(low_x, high_x)
    )
    parts = [_grid_y(y(value), _said(value)) for value in ticks(low_y, high_y)]
    parts += [_tick_x(x(value), _said(value)) for value in at_x]
    parts.append(_labels(rows[0], spec))
    if spec.diagonal:
        parts.append(
            f'<line class="guide" x1="{x(0):.1f}" y1="{y(0):.1f}" x2="{x(1):.1f}" y2="{y(100):.1f}"/>'
        )
    if spec.hull:
        corners = sorted(
            (_value(row, spec.x), scale * _value(row, spec.y)) for row in rows if row[spec.hull] == "True"
        )
        parts.append(_path([(x(a), y(b)) for a, b in corners], "hull"))
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(_named(row, spec), []).append(row)
    first = True
    for name, line in sorted(lines.items(), key=lambda one: -place.get(one[0], len(place))):
        at = place.get(name, -1)
        points = sorted(line, key=lambda row: _value(row, spec.x))
        spots = [(x(_value(row, spec.x)), y(scale * _value(row, spec.y))) for row in points]
        classes = f"series c{at % COLORS}" if at >= 0 else "series other"
        parts.append(f'<g class="{classes}" data-line="{escape(name if at >= 0 else "others")}">')
        if at >= 0 and spec.joined and len(points) > 1:
            parts.append(_path(spots, "line"))
        for row, (px, py) in zip(points, spots, strict=True):
            low, high = scale * _value(row, f"{spec.y}_lo"), scale * _value(row, f"{spec.y}_hi")
            if math.isnan(px) or math.isnan(py):
                continue
            arm = (
                ""
                if math.isnan(low) or math.isnan(high)
                else f'<path class="arm" d="M{px:.1f} {y(low):.1f}V{y(high):.1f}"/>'
            )
            parts.append(_point(px, py, at, arm, _tip(row, spec, name, spec.y, scale), first))
            first = False
        parts.append("</g>")
    return _svg(parts, HEIGHT, f"{spec.title}{f': {title}' if title else ''}")


def _forest(rows: Sequence[Row], spec: Spec, place: Mapping[str, int], title: str) -> str:
    rows = [row for row in rows if row.get("arm") != "fresh"]
    ends = [
        0.0,
        *(
            100 * v
            for row in rows
            for end in ("", "_lo", "_hi")
            if not math.isnan(v := _value(row, spec.x + end))
        ),
    ]
    low, high = min(ends), max(ends)
    gap = 0.05 * (high - low or 1)
    low, high = low - gap, high + gap
    left, height = 196, TOP + BOTTOM + 22 * len(rows)

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (WIDTH - left - RIGHT)

    parts = [_tick_x(x(value), _said(value), height) for value in ticks(low, high)]
    parts.append(f'<line class="zero" x1="{x(0):.1f}" y1="{TOP}" x2="{x(0):.1f}" y2="{height - BOTTOM}"/>')
    parts.append(
        f'<text class="axis" x="{(left + WIDTH - RIGHT) / 2}" y="{height - 8}" text-anchor="middle">{escape(spec.x_label)}</text>'
    )
    for at, row in enumerate(rows):
        name, py = _named(row, spec), TOP + 22 * at + 11
        value, lo, hi = (100 * _value(row, spec.x + end) for end in ("", "_lo", "_hi"))
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{py + 4}" text-anchor="end">{escape(name[:32])}</text>'
        )
        arm = "" if math.isnan(lo) else f'<path class="arm" d="M{x(lo):.1f} {py}H{x(hi):.1f}"/>'
        parts.append(f'<g class="series c{place.get(name, 0) % COLORS}">')
        parts.append(
            _point(x(value), py, place.get(name, 0), arm, _tip(row, spec, name, spec.x, 100), at == 0)
        )
        parts.append("</g>")
    return _svg(parts, height, f"{spec.title}{f': {title}' if title else ''}")


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    """One stop for the Tab key; the arrows go from point to point."""
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="group" aria-label="{escape(title)}; arrow keys go '
        f'from point to point">{"".join(parts)}</svg>'
    )


def _point(x: float, y: float, at: int, arm: str, tip: str, first: bool) -> str:
    return (
        f'<g class="pt" tabindex="{0 if first else -1}" role="img" aria-label="{escape(tip)}">{arm}'
        f'<circle class="hit" cx="{x:.1f}" cy="{y:.1f}" r="11"/>{marker(at, x, y)}</g>'
    )


def marker(at: int, x: float, y: float) -> str:
    """A point's shape: colours alone are not told apart by all."""
    shape = (at + at // COLORS) % 4 if at >= 0 else 0
    if shape == 0:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{4.5 if at >= 0 else 3}"/>'
    path = ("", "M-4-4h8v8h-8z", "M0-5.5L5 4H-5z", "M0-5.5L5.5 0 0 5.5-5.5 0z")[shape]
    return f'<path class="dot" transform="translate({x:.1f} {y:.1f})" d="{path}"/>'


def _tip(row: Row, spec: Spec, name: str, column: str, scale: float) -> str:
    """What a point says, a line each."""
    unit = " %" if scale == 100 and not spec.forest else ""
    value, low, high = (scale * _value(row, column + end) for end in ("", "_lo", "_hi"))
    between = "" if math.isnan(low) else f" [{_said(low)}, {_said(high)}]"
    lines = [name, f"{_filled(spec.y_label or column, row)}: {_said(value)}{unit}{between}"]
    if not spec.forest:
        lines.append(f"{_filled(spec.x_label or spec.x, row)}: {_said(_value(row, spec.x))}")
    for one in spec.tip:
        if row.get(one):
            found = _number(row[one])
            lines.append(f"{one.replace('_', ' ')}: {row[one] if found is None else _said(found)}")
    if row.get("run_id"):
        lines.append(f"run {row['run_id'][:8]}")
    return "\n".join(lines)


def _filled(text: str, row: Row) -> str:
    for name in ("unit", "metric"):
        text = text.replace("{" + name + "}", row.get(name, ""))
    return text.replace("_", " ")


def _labels(row: Row, spec: Spec) -> str:
    across, up = _filled(spec.x_label or spec.x, row), _filled(spec.y_label or spec.y, row)
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return (
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>'
        f'<text class="axis" transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(up)}{', %' if spec.percent else ''}</text>"
    )


def _grid_y(y: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    )


def _tick_x(x: float, text: str, height: float = HEIGHT) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" y1="{height - BOTTOM}" x2="{x:.1f}" y2="{height - BOTTOM + 4}"/>'
        f'<text class="tick" x="{x:.1f}" y="{height - BOTTOM + 17}" text-anchor="middle">{text}</text>'
    )


def _path(spots: Sequence[tuple[float, float]], name: str) -> str:
    known = [spot for spot in spots if not any(map(math.isnan, spot))]
    return f'<path class="{name}" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in known)}"/>' if known else ""
