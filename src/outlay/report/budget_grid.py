"""Figures and tables of a grid over unitizer, selector and budget: what each of the three buys.

Every figure is drawn from rows that are written beside it as CSV. Runs compare that differ in these three only; an
interval resamples whole documents, since several questions on one document stand or fall together.
"""

import csv
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.data import Span
from outlay.report.figures import COLORS, MARKERS
from outlay.report.regret import DOCUMENT
from outlay.report.tables import Point, by_dataset, headline, labels, varying

if TYPE_CHECKING:
    import numpy as np

# ---------------------------------------------------------------- selection under a budget

METRICS = ("bertscore_f1", "rouge1", "rouge2", "rougeL", "token_f1", "fact_recall", "accuracy")
SELECTORS = (
    "lead",
    "mmr",
    "rcd",
    "routed",
    "sliding",
    "hierarchical",
    "graphcluster",
    "shuffled",
    "learned",
    "oracle",
    "full",
)
UNITIZERS = ("sentence", "section", "window", "cluster")
REFERENCES = ("full", "none", "oracle", "learned", "routed")
"""Selectors that are no method of their own: the ends of the scale, and those that choose among others."""
RESAMPLES = 1000
BINS = 20


@dataclass(frozen=True)
class Scores:
    """A run's predictions as columns: (n,) per metric, nan where undefined; ids in the run's order."""

    ids: tuple[str, ...]
    metrics: Mapping[str, "np.ndarray"]
    context_tokens: "np.ndarray"


@dataclass(frozen=True)
class Grid:
    """Runs of one data set that differ in unitizer, selector and budget only."""

    dataset: str
    rest: str  # what else tells them from the sweep's other runs
    runs: Mapping[tuple[str, str, int], Point]  # by unitizer, selector, budget
    full: Point | None  # the whole document

    @property
    def name(self) -> str:
        return " · ".join(part for part in (self.dataset, self.rest) if part)

    @property
    def unitizers(self) -> list[str]:
        return _ordered({unitizer for unitizer, _, _ in self.runs}, UNITIZERS)

    @property
    def selectors(self) -> list[str]:
        return _ordered({selector for _, selector, _ in self.runs}, SELECTORS)

    @property
    def budgets(self) -> list[int]:
        return sorted({budget for _, _, budget in self.runs})

    def at(self, budget: int) -> dict[tuple[str, str], Point]:
        return {
            (unitizer, selector): run for (unitizer, selector, b), run in self.runs.items() if b == budget
        }


def grids(points: Sequence[Point]) -> list[Grid]:
    """The points as grids over unitizer, selector and budget, each under everything else that varies."""
    found: dict[tuple[str, str, str], dict[tuple[str, str, int], Point]] = {}
    fulls: dict[tuple[str, str], Point] = {}
    for dataset, group in by_dataset(points).items():
        settings = varying(group)
        for point in group:
            own = labels(point)
            others = [key for key in settings if key in own and key.partition(".")[0] not in CONTEXT_GROUPS]
            rest = _settings(own, others)
            if point.choices.get("selector") == "full":
                fulls[dataset, rest] = point
            elif "budget.tokens" in own:
                kind = _settings(own, [key for key in settings if key in own and key in BUDGET_KINDS])
                key = (
                    _named(own, settings, "unitizer"),
                    _named(own, settings, "selector"),
                    int(own["budget.tokens"]),
                )
                found.setdefault((dataset, rest, kind), {})[key] = point
    return [
        Grid(dataset, " · ".join(part for part in (rest, kind) if part), runs, fulls.get((dataset, rest)))
        for (dataset, rest, kind), runs in found.items()
    ]


BUDGET_KINDS = ("budget.truncate", "budget.tokenizer")
CONTEXT_GROUPS = ("unitizer", "selector", "budget")


def _settings(own: Mapping[str, Any], keys: Sequence[str]) -> str:
    return " · ".join(f"{key}={own[key]}" for key in keys)


def _named(own: Mapping[str, Any], settings: Sequence[str], group: str) -> str:
    """A choice with those of its options that vary: "mmr weight=0.7"."""
    options = [key for key in settings if key.startswith(f"{group}.") and key in own]
    return " ".join([str(own[group]), *(f"{key.removeprefix(group + '.')}={own[key]}" for key in options)])


def _ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    rank = {name: at for at, name in enumerate(known)}
    return sorted(names, key=lambda name: (rank.get(name.partition(" ")[0], len(known)), name))


@lru_cache(maxsize=1024)
def _read(folder: str) -> Scores | None:
    """A run's predictions; None where its files are not here."""
    import numpy as np

    path = Path(folder) / "predictions.jsonl"
    if not path.is_file():
        return None
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            one = json.loads(line)
            rows.append((sys.intern(str(one["id"])), one["metrics"], one["context_tokens"]))
    names = dict.fromkeys(name for _, metrics, _ in rows for name in metrics)

    def column(name: str) -> "np.ndarray":
        values = (metrics.get(name) for _, metrics, _ in rows)
        return np.array([math.nan if value is None else value for value in values], float)

    return Scores(
        tuple(name for name, _, _ in rows),
        {name: column(name) for name in names},
        np.array([tokens for _, _, tokens in rows], float),
    )


def _aligned(points: Sequence[Point], metric: str) -> "tuple[np.ndarray, list[str]] | None":
    """(points, n) values of the examples that every point scored, and their ids; None without two such examples."""
    import numpy as np

    read = [_read(point.folder) for point in points]
    if any(one is None or metric not in one.metrics for one in read):
        return None
    tables = [dict(zip(one.ids, one.metrics[metric].tolist(), strict=True)) for one in read if one]
    ids = [name for name in tables[0] if all(not math.isnan(table.get(name, math.nan)) for table in tables)]
    if len(ids) < 2:
        return None
    return np.array([[table[name] for name in ids] for table in tables]), ids


def _weights(dataset: str, ids: Sequence[str], seed: int = 0) -> "np.ndarray":
    """(RESAMPLES, n) bootstrap weights that sum to 1 a row; the questions of one document are drawn together."""
    import numpy as np

    shared = DOCUMENT.get(dataset)
    names = [shared.sub("", name) if shared else name for name in ids]
    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    draws = np.random.default_rng(seed).multinomial(
        len(place), np.full(len(place), 1 / len(place)), size=RESAMPLES
    )
    weights = draws[:, [place[name] for name in names]].astype(float)
    normal: np.ndarray = weights / weights.sum(axis=1, keepdims=True)
    return normal


def _ends(draws: "np.ndarray") -> tuple[float, float]:
    import numpy as np

    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def _metrics(grid: Grid, wanted: Sequence[str] = METRICS) -> list[str]:
    """Metrics that every run has and that tell any two runs apart."""
    found = []
    for name in wanted:
        values = {round(run.metrics.get(f"quality/{name}", math.nan), 6) for run in grid.runs.values()}
        if len(values) > 1 and not any(map(math.isnan, values)):
            found.append(name)
    return found


def _panels(grid: Grid) -> list[str]:
    """The metrics that get panels of their own: a semantic and a lexical one where there are both."""
    metrics = _metrics(grid)
    if "fact_recall" in metrics:  # gold facts, where there are any, say more than words in common
        return ["fact_recall"]
    return [name for name in ("accuracy", "bertscore_f1", "rouge1") if name in metrics] or metrics[:1]


# Quality over budget


@dataclass(frozen=True)
class CurveRow:
    """A run's mean quality and its difference to lead's under the same unitizer and budget, with 95 % intervals."""

    dataset: str
    setting: str
    metric: str
    unitizer: str
    selector: str
    reads_gold: bool
    budget: int
    tokens_mean: float
    examples: int
    quality: float
    quality_lo: float
    quality_hi: float
    over_lead: float  # paired by example; nan for lead itself and where there is no lead
    over_lead_lo: float
    over_lead_hi: float
    over_lead_p: float  # two-sided, not adjusted for the number of comparisons


def curve_rows(points: Sequence[Point]) -> list[CurveRow]:
    """Every run of every grid, under every metric that tells runs apart."""
    rows = []
    for grid in grids(points):
        if len(grid.budgets) < 2:
            continue
        for metric in _metrics(grid):
            for unitizer in grid.unitizers:
                for selector in grid.selectors:
                    rows += [
                        _curve_row(grid, metric, unitizer, selector, budget)
                        for budget in grid.budgets
                        if (unitizer, selector, budget) in grid.runs
                    ]
    return rows


def _curve_row(grid: Grid, metric: str, unitizer: str, selector: str, budget: int) -> CurveRow:
    from outlay.score.statistics import paired_difference

    run = grid.runs[unitizer, selector, budget]
    lead = grid.runs.get((unitizer, "lead", budget))
    pair = _aligned([run, lead], metric) if lead is not None and selector != "lead" else None
    against = paired_difference(pair[0][0], pair[0][1], resamples=RESAMPLES) if pair else (math.nan,) * 4
    mean, low, high = (run.metrics.get(f"quality/{metric}{end}", math.nan) for end in ("", "_lo", "_hi"))
    examples = int(run.metrics["data/examples"])
    tokens = run.metrics.get("context/tokens_mean", math.nan)
    return CurveRow(
        grid.dataset,
        grid.rest,
        metric,
        unitizer,
        selector,
        run.oracle,
        budget,
        tokens,
        examples,
        mean,
        low,
        high,
        *against,
    )


def quality_over_budget(points: Sequence[Point], folder: Path) -> list[Path]:
    """Quality over the token budget, a line for each selector with its 95 % band; below, its paired lead over `lead`.

    A panel for each unitizer, a pair of rows for each data set and metric.
    """
    rows = curve_rows(points)
    if not rows:
        return []
    written = _csv(rows, folder / "quality_over_budget.csv")
    shown = {grid.name: _panels(grid) for grid in grids(points)}
    bands = [
        (name, metric)
        for name, metrics in shown.items()
        for metric in metrics
        if any((_name(row), row.metric) == (name, metric) for row in rows)
    ]
    unitizers = _ordered({row.unitizer for row in rows}, UNITIZERS)
    figure, axes = _axes(2 * len(bands), len(unitizers), width=3.6, height=2.7)
    for at, (name, metric) in enumerate(bands):
        for column, unitizer in enumerate(unitizers):
            mine = [row for row in rows if (_name(row), row.metric, row.unitizer) == (name, metric, unitizer)]
            upper, lower = axes[2 * at][column], axes[2 * at + 1][column]
            drawn = _ordered({row.selector for row in mine}, SELECTORS)
            for number, selector in enumerate(drawn):
                line = [row for row in mine if row.selector == selector]
                banded = len(drawn) <= len(BANDED) or selector in BANDED
                _band(upper, line, selector, "quality", _style(selector, number), banded)
                _band(lower, line, selector, "over_lead", _style(selector, number), banded)
            lower.axhline(0, color=_style("lead")["color"], linewidth=1.2)
            upper.set_title(f"{name}: {unitizer}" if column == 0 else unitizer, loc="left", fontsize=10)
            lower.set_xlabel("budget, tokens")
            for axis in (upper, lower):
                _budget_axis(axis, sorted({row.budget for row in rows}))
        axes[2 * at][0].set_ylabel(_spoken(metric))
        axes[2 * at + 1][0].set_ylabel(f"{_spoken(metric)},\ndifference to lead")
        for row_of in (2 * at, 2 * at + 1):
            _share_y(axes[row_of])
    _legend(figure, axes)
    _footnote(figure, points)
    return written + _save(figure, folder / "quality_over_budget")


# Selector against unitizer


@dataclass(frozen=True)
class EffectRow:
    """What part of the differences between runs of one budget is due to the selector, the unit, and their interplay.

    Two-way analysis of variance of the mean quality M over selector × unitizer: share = sum of squares / total;
    spread = standard deviation of the marginal means, in the metric's units. 95 % intervals by a bootstrap over
    documents. Noise counts as interplay, and as effect: with few examples every share is pulled to its degrees of
    freedom.
    """

    dataset: str
    setting: str
    metric: str
    budget: int
    source: str  # selector | unitizer | both
    share: float
    share_lo: float
    share_hi: float
    spread: float
    spread_lo: float
    spread_hi: float
    selectors: int
    unitizers: int
    examples: int


def effect_rows(points: Sequence[Point]) -> list[EffectRow]:
    """The split for each grid, metric and budget that has every selector under every unitizer, two or more of either."""
    rows = []
    for grid in grids(points):
        for metric in _metrics(grid):
            for budget in grid.budgets:
                runs = grid.at(budget)
                unitizers = _ordered({unitizer for unitizer, _ in runs}, UNITIZERS)
                selectors = [
                    name
                    for name in grid.selectors
                    if name.partition(" ")[0] not in REFERENCES
                    and all((unit, name) in runs for unit in unitizers)
                ]
                if len(unitizers) < 2 or len(selectors) < 2:
                    continue
                found = _aligned([runs[unit, name] for name in selectors for unit in unitizers], metric)
                if found is None:
                    continue
                values, ids = found
                whole = variance_split(values.mean(axis=1).reshape(len(selectors), -1))
                draws = (_weights(grid.dataset, ids) @ values.T).reshape(RESAMPLES, len(selectors), -1)
                again = variance_split(draws)
                rows += [
                    EffectRow(
                        grid.dataset,
                        grid.rest,
                        metric,
                        budget,
                        source,
                        float(whole[source][0]),
                        *_ends(again[source][0]),
                        float(whole[source][1]),
                        *_ends(again[source][1]),
                        len(selectors),
                        len(unitizers),
                        len(ids),
                    )
                    for source in whole
                ]
    return rows


def variance_split(means: "np.ndarray") -> "dict[str, tuple[np.ndarray, np.ndarray]]":
    """(…, s, u) cell means into {source: (share of the variance, spread)}; shares are 0 where all cells are equal."""
    import numpy as np

    grand = means.mean(axis=(-2, -1), keepdims=True)
    selector = means.mean(axis=-1, keepdims=True) - grand
    unitizer = means.mean(axis=-2, keepdims=True) - grand
    both = means - grand - selector - unitizer
    parts = {"selector": selector, "unitizer": unitizer, "both": both}
    variance = {name: (part**2).mean(axis=(-2, -1)) for name, part in parts.items()}
    total = sum(variance.values())
    return {
        name: (np.divide(one, total, out=np.zeros_like(one), where=total > 1e-18), np.sqrt(one))
        for name, one in variance.items()
    }


def selector_against_unitizer(points: Sequence[Point], folder: Path) -> list[Path]:
    """Above, each source's share of the variance between runs, over the budget; below, how large it is at all."""
    rows = effect_rows(points)
    if not rows:
        return []
    written = _csv(rows, folder / "selector_against_unitizer.csv")
    columns = [
        (grid.name, metric)
        for grid in grids(points)
        for metric in _panels(grid)
        if any((_name(row), row.metric) == (grid.name, metric) for row in rows)
    ]
    figure, axes = _axes(2, len(columns), width=4.2, height=2.7)
    for at, (name, metric) in enumerate(columns):
        mine = [row for row in rows if (_name(row), row.metric) == (name, metric)]
        budgets = sorted({row.budget for row in mine})
        for step, source in enumerate(("selector", "unitizer", "both")):
            line = [row for row in mine if row.source == source]
            for axis, column, scale in ((axes[0][at], "share", 100), (axes[1][at], "spread", 100)):
                _dots(
                    axis, line, column, scale, SOURCES[source], COLORS[step], MARKERS[step], (step - 1) * 0.05
                )
        axes[0][at].set_title(f"{name}: {_spoken(metric)}", loc="left", fontsize=10)
        axes[1][at].set_xlabel("budget, tokens")
        for axis in (axes[0][at], axes[1][at]):
            _budget_axis(axis, budgets)
            axis.set_ylim(bottom=0)
    axes[0][0].set_ylabel("share of the variance\nbetween runs, %")
    axes[1][0].set_ylabel("spread of the means,\npoints")
    _legend(figure, axes)
    return written + _save(figure, folder / "selector_against_unitizer")


SOURCES = {"selector": "selector", "unitizer": "unitizer", "both": "interplay of the two"}


# How well a metric tells selectors apart


@dataclass(frozen=True)
class SeparationRow:
    """How far two selectors are apart under a metric: |mean difference| / its standard error, paired by example.

    separation: the mean over pairs of selectors, 0 for two that gave the same texts; about 0.8 where there is nothing
    but noise. 95 % interval by the jackknife over documents. apart: share of the pairs above 1.96.
    """

    dataset: str
    setting: str
    metric: str
    unitizer: str
    budget: int
    separation: float
    separation_lo: float
    separation_hi: float
    apart: float
    pairs: int
    examples: int


def separation_rows(points: Sequence[Point]) -> list[SeparationRow]:
    """One row for each metric, unitizer and budget with two selectors or more."""
    rows = []
    for grid in grids(points):
        for metric in _metrics(grid):
            for unitizer in grid.unitizers:
                for budget in grid.budgets:
                    names = [name for name in grid.selectors if name.partition(" ")[0] not in REFERENCES]
                    runs = [
                        grid.runs[unitizer, name, budget]
                        for name in names
                        if (unitizer, name, budget) in grid.runs
                    ]
                    found = _aligned(runs, metric) if len(runs) > 1 else None
                    if found is None:
                        continue
                    values, ids = found
                    each = separations(values)
                    held_out = _held_out(grid.dataset, ids)
                    again = (
                        [float(separations(values[:, kept]).mean()) for kept in held_out]
                        if len(held_out) > 2
                        else []
                    )
                    half = (
                        1.96 * math.sqrt((len(again) - 1) * statistics.pvariance(again))
                        if again
                        else math.nan
                    )
                    mean = float(each.mean())
                    rows.append(
                        SeparationRow(
                            grid.dataset,
                            grid.rest,
                            metric,
                            unitizer,
                            budget,
                            mean,
                            max(0.0, mean - half),
                            mean + half,
                            float((each > 1.96).mean()),
                            len(each),
                            len(ids),
                        )
                    )
    return rows


def separations(values: "np.ndarray") -> "np.ndarray":
    """(pairs,) |mean| / standard error of the paired differences between the rows of (selectors, n) values."""
    import numpy as np

    first, second = np.triu_indices(len(values), 1)
    differences = values[first] - values[second]
    error = differences.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
    apart = np.abs(differences.mean(axis=1))
    found: np.ndarray = np.divide(apart, error, out=np.zeros_like(apart), where=error > 1e-12)
    return found


def _held_out(dataset: str, ids: Sequence[str]) -> "list[np.ndarray]":
    """For each document, the places of the other documents' examples."""
    import numpy as np

    shared = DOCUMENT.get(dataset)
    names = np.array([shared.sub("", name) if shared else name for name in ids])
    return [np.flatnonzero(names != name) for name in dict.fromkeys(names.tolist())]


def metric_separation(points: Sequence[Point], folder: Path) -> list[Path]:
    """How far selectors are apart, in standard errors, under each metric; a panel for each data set and unitizer."""
    rows = separation_rows(points)
    if len({row.metric for row in rows}) < 2:
        return []
    written = _csv(rows, folder / "metric_separation.csv")
    names = list(dict.fromkeys(_name(row) for row in rows))
    unitizers = _ordered({row.unitizer for row in rows}, UNITIZERS)
    figure, axes = _axes(len(names), len(unitizers), width=3.4, height=2.9)
    for at, name in enumerate(names):
        for column, unitizer in enumerate(unitizers):
            axis = axes[at][column]
            mine = [row for row in rows if (_name(row), row.unitizer) == (name, unitizer)]
            metrics = [metric for metric in METRICS if any(row.metric == metric for row in mine)]
            for metric in metrics:
                step = METRICS.index(metric)
                line = [row for row in mine if row.metric == metric]
                shift = (metrics.index(metric) - (len(metrics) - 1) / 2) * 0.05
                _dots(axis, line, "separation", 1, _spoken(metric), COLORS[step], MARKERS[step], shift)
            axis.axhline(0.8, color="#888888", linewidth=0.8, linestyle=":")
            axis.set_title(f"{name}: {unitizer}" if column == 0 else unitizer, loc="left", fontsize=10)
            _budget_axis(axis, sorted({row.budget for row in rows}))
            axis.set_ylim(bottom=0)
            axis.set_xlabel("budget, tokens")
        axes[at][0].set_ylabel("distance of two selectors,\nstandard errors")
        _share_y(axes[at])
    figure.supxlabel("dotted: what noise alone gives", fontsize=8, color="#555555")
    _legend(figure, axes)
    return written + _save(figure, folder / "metric_separation")


# Where kept text stands


@dataclass(frozen=True)
class PositionRow:
    """The share of a document's text that is kept, by place: bin b of BINS covers [b, b + 1) / BINS of its length."""

    dataset: str
    setting: str
    unitizer: str
    selector: str
    budget: int
    bin: int
    kept: float
    kept_lo: float
    kept_hi: float
    examples: int


def position_rows(points: Sequence[Point]) -> list[PositionRow]:
    """Means over examples, with a 95 % bootstrap interval over documents.

    A document's length is its predictions' `document_characters`, else the last character that any run kept.
    """
    rows = []
    for grid in grids(points):
        runs = [*grid.runs.values(), *([grid.full] if grid.full else [])]
        spans = {run.folder: _spans(run.folder) for run in runs}
        lengths: dict[str, int] = {}
        for found in spans.values():
            for name, (length, kept) in found.items():
                lengths[name] = max([lengths.get(name, 0), length, *(end for _, end in kept)])
        for (unitizer, selector, budget), run in grid.runs.items():
            own = {name: kept for name, (_, kept) in spans[run.folder].items() if lengths[name]}
            if own:
                rows += _position_rows(grid, unitizer, selector, budget, own, lengths)
    return rows


def _position_rows(
    grid: Grid,
    unitizer: str,
    selector: str,
    budget: int,
    found: Mapping[str, Sequence[Span]],
    lengths: Mapping[str, int],
) -> list[PositionRow]:
    import numpy as np

    kept = np.array([kept_by_place(spans, lengths[name]) for name, spans in found.items()])
    draws = _weights(grid.dataset, list(found)) @ kept
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return [
        PositionRow(
            grid.dataset,
            grid.rest,
            unitizer,
            selector,
            budget,
            at,
            float(mean),
            float(low[at]),
            float(high[at]),
            len(kept),
        )
        for at, mean in enumerate(kept.mean(axis=0))
    ]


def kept_by_place(spans: Sequence[Span], length: int) -> "np.ndarray":
    """(BINS,) share of the characters of each stretch of a document of `length` that the spans (disjoint) hold."""
    import numpy as np

    edges = np.linspace(0, length, BINS + 1)
    kept = np.zeros(BINS)
    for start, end in spans:
        kept += np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0, None)
    share: np.ndarray = kept / (length / BINS)
    return share


def _spans(folder: str) -> dict[str, tuple[int, list[Span]]]:
    """Example id -> (the document's characters, 0 where unknown; kept spans)."""
    path = Path(folder) / "predictions.jsonl"
    found: dict[str, tuple[int, list[Span]]] = {}
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                one = json.loads(line)
                spans = [(start, end) for start, end in one["context_spans"]]
                found[str(one["id"])] = (int(one.get("document_characters") or 0), spans)
    return found


def kept_positions(points: Sequence[Point], folder: Path) -> list[Path]:
    """Where in the document each selector's text comes from: shade is the share kept of each twentieth.

    A panel for each budget, a row of panels for each data set and unitizer.
    """
    import matplotlib

    rows = position_rows(points)
    if not rows:
        return []
    written = _csv(rows, folder / "kept_positions.csv")
    bands = list(dict.fromkeys((_name(row), row.unitizer) for row in rows))
    budgets = sorted({row.budget for row in rows})
    drawn = {
        band: _ordered({row.selector for row in rows if (_name(row), row.unitizer) == band}, SELECTORS)
        for band in bands
    }
    table = {(_name(row), row.unitizer, row.selector, row.budget, row.bin): row.kept for row in rows}
    height = 0.62 + 0.2 * max(map(len, drawn.values()))
    figure, axes = _axes(len(bands), len(budgets), width=2.0, height=height, left=0.6)
    shades = matplotlib.colors.LinearSegmentedColormap.from_list("kept", ("#f4f6f8", COLORS[0], "#00263f"))
    image = None
    for at, (name, unitizer) in enumerate(bands):
        for column, budget in enumerate(budgets):
            axis, selectors = axes[at][column], drawn[name, unitizer]
            shown = [
                [table.get((name, unitizer, one, budget, b), math.nan) for b in range(BINS)]
                for one in selectors
            ]
            image = axis.imshow(
                shown, aspect="auto", cmap=shades, vmin=0, vmax=1, extent=(0, 100, len(selectors), 0)
            )
            axis.set_yticks(
                [i + 0.5 for i in range(len(selectors))], selectors if column == 0 else [], fontsize=8
            )
            axis.set_xticks([0, 50, 100])
            axis.tick_params(length=0, labelsize=8)
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
            for edge in range(1, len(selectors)):
                axis.axhline(edge, color="white", linewidth=1.5)
            if at == 0:
                axis.set_title(f"{budget:,} tokens", loc="left", fontsize=9)
        axes[at][0].set_ylabel(f"{name}\n{unitizer}", fontsize=9)
    figure.supxlabel("place in the document, % of its length", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, pad=0.01)
    bar.set_label("share of the text kept", fontsize=9)
    bar.outline.set_visible(False)
    return written + _save(figure, folder / "kept_positions")


# What is saved against the whole document


@dataclass(frozen=True)
class SavingRow:
    """A run's input tokens and quality against those of the run that sends the whole document, paired by example."""

    dataset: str
    setting: str
    unitizer: str
    selector: str
    reads_gold: bool
    budget: int
    input_tokens: float  # a query, prompt and context, retries included
    input_tokens_full: float
    saving: float  # share of the input tokens
    context_saving: float  # share of the context's tokens, with its 95 % interval
    context_saving_lo: float
    context_saving_hi: float
    metric: str
    quality: float
    quality_full: float
    over_full: float  # mean of (own - full's), with its 95 % interval
    over_full_lo: float
    over_full_hi: float


def saving_rows(points: Sequence[Point]) -> list[SavingRow]:
    """One row for each run of a grid that has a run of the whole document."""
    import numpy as np

    from outlay.score.statistics import paired_difference, ratio_of_means

    rows = []
    for grid in grids(points):
        whole = grid.full
        if whole is None:
            continue
        metric = (_panels(grid) or [headline([*grid.runs.values(), whole]).removeprefix("quality/")])[0]
        full = _read(whole.folder)
        for (unitizer, selector, budget), run in grid.runs.items():
            own = _read(run.folder)
            pair = _aligned([run, whole], metric)
            if own is None or full is None or own.ids != full.ids or pair is None:
                continue
            kept = ratio_of_means(own.context_tokens, full.context_tokens, resamples=RESAMPLES)
            over = paired_difference(pair[0][0], pair[0][1], resamples=RESAMPLES)
            ours, theirs = (
                one.metrics["cost/tokens_prompt"] / one.metrics["data/examples"] for one in (run, whole)
            )
            rows.append(
                SavingRow(
                    grid.dataset,
                    grid.rest,
                    unitizer,
                    selector,
                    run.oracle,
                    budget,
                    ours,
                    theirs,
                    1 - ours / theirs,
                    1 - kept.value,
                    1 - kept.hi,
                    1 - kept.lo,
                    metric,
                    float(np.mean(pair[0][0])),
                    float(np.mean(pair[0][1])),
                    over.value,
                    over.lo,
                    over.hi,
                )
            )
    return rows


def savings(points: Sequence[Point], folder: Path) -> list[Path]:
    """savings.csv: input tokens saved, and quality lost or won, against the run that sends the whole document."""
    rows = saving_rows(points)
    return _csv(rows, folder / "savings.csv") if rows else []


# ---------------------------------------------------------------- drawing


STYLES = {
    "lead": (COLORS[0], "o", "-"),
    "mmr": (COLORS[1], "s", "-"),
    "rcd": (COLORS[2], "^", "-"),
    "routed": (COLORS[3], "D", "-"),
    "sliding": (COLORS[4], "v", "-"),
    "hierarchical": (COLORS[5], "P", "-"),
    "graphcluster": (COLORS[6], "X", "-"),
    "shuffled": ("#999999", "o", "--"),
    "learned": (COLORS[1], "D", ":"),
    "oracle": (COLORS[6], "v", ":"),
}
"""The same colour, marker and line for a selector in every figure."""
BANDED = ("lead", "mmr", "rcd", "routed")
"""Whose bands are drawn where many selectors meet: eight bands on each other are a fog. The CSV has them all."""


def _style(selector: str, at: int = 0) -> dict[str, Any]:
    known = STYLES.get(selector)
    color, marker, line = known or (COLORS[at % len(COLORS)], MARKERS[(at + 3) % len(MARKERS)], "--")
    return {"color": color, "marker": marker, "linestyle": line}


def _axes(rows: int, columns: int, width: float, height: float, left: float = 0.0) -> "tuple[Any, Any]":
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (max(5.4, width * columns + left + 1.3), max(3.0, height * rows + 0.4))
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.4, alpha=0.6)
    return figure, axes


def _band(
    axis: Any, rows: Sequence[Any], selector: str, column: str, style: Mapping[str, Any], banded: bool
) -> None:
    """A line over the budget, with its 95 % band or without."""
    rows = [row for row in rows if not math.isnan(getattr(row, column))]
    if not rows:
        return
    x = [row.budget for row in rows]
    star = " *" if any(row.reads_gold for row in rows) else ""
    width = 1.6 if banded else 1.0
    axis.plot(
        x,
        [getattr(row, column) for row in rows],
        label=selector + star,
        markersize=4,
        linewidth=width,
        **style,
    )
    if banded:
        ends = ([getattr(row, f"{column}_{end}") for row in rows] for end in ("lo", "hi"))
        axis.fill_between(x, *ends, color=style["color"], alpha=0.12, linewidth=0)


def _dots(
    axis: Any,
    rows: Sequence[Any],
    column: str,
    scale: float,
    label: str,
    color: str,
    marker: str,
    shift: float,
) -> None:
    """Points joined over the budget with their intervals; `shift`, in octaves, keeps intervals from hiding each other."""
    x = [row.budget * 2**shift for row in rows]
    y = [scale * getattr(row, column) for row in rows]
    low = [max(0.0, value - scale * getattr(row, f"{column}_lo")) for value, row in zip(y, rows, strict=True)]
    high = [
        max(0.0, scale * getattr(row, f"{column}_hi") - value) for value, row in zip(y, rows, strict=True)
    ]
    axis.errorbar(
        x,
        y,
        yerr=[low, high],
        label=label,
        color=color,
        marker=marker,
        markersize=4.5,
        linewidth=1.2,
        elinewidth=0.8,
        capsize=2,
        alpha=0.9,
    )


def _budget_axis(axis: Any, budgets: Sequence[int]) -> None:
    from matplotlib.ticker import NullLocator

    axis.set_xscale("log", base=2)
    axis.set_xticks(budgets, [f"{budget:,}" for budget in budgets], fontsize=8)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.tick_params(axis="y", labelsize=8)


def _share_y(axes: Sequence[Any]) -> None:
    limits = [axis.get_ylim() for axis in axes if axis.lines or axis.containers]
    for axis in axes if limits else ():
        axis.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, at their right."""
    handles = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    order = _ordered(handles, SELECTORS) if any(name in SELECTORS for name in handles) else list(handles)
    figure.legend(
        [handles[name] for name in order], order, loc="outside right upper", frameon=False, fontsize=9
    )


def _footnote(figure: Any, points: Sequence[Point]) -> None:
    if any(point.oracle for point in points):
        figure.supxlabel(
            "* reads the answer key: a bound, not a policy that can be deployed", fontsize=8, color="#555555"
        )


def _name(row: Any) -> str:
    return " · ".join(part for part in (row.dataset, row.setting) if part)


def _spoken(metric: str) -> str:
    return {"bertscore_f1": "BERTScore", "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}.get(
        metric, metric.replace("_", " ").replace(" f1", " F1")
    )


def _csv(rows: Sequence[Any], path: Path) -> list[Path]:
    """The figure's own data, one line per row; an empty cell is not a number."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in fields(rows[0])])
        for row in rows:
            values = (getattr(row, column.name) for column in fields(row))
            writer.writerow(
                ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
            )
    return [path]


def _save(figure: Any, stem: Path) -> list[Path]:
    from matplotlib import pyplot as plt

    written = [stem.with_suffix(f".{ending}") for ending in ("png", "svg")]
    for path in written:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return written
