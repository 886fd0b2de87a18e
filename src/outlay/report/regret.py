"""What routing between selectors buys: every policy against the per-example best, and against the best fixed selector.

Runs compare that differ in their selector only. Their questions are paired by example, and intervals resample whole
documents, since several questions on one document stand or fall together.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.report.tables import Point, by_dataset, headline, labels, legend, varying

if TYPE_CHECKING:
    import numpy as np

ROUTERS = ("routed", "learned", "oracle")
"""Selectors that choose among others; all others are fixed."""


ALL = "all settings"
PER_EXAMPLE = "best fixed per example"
BEST = "best fixed"
HELD_OUT = "best fixed, held out"
EACH = "best fixed per setting, held out"
RANDOM = "random fixed"

MEANING = {
    PER_EXAMPLE: "per example, the best of the fixed selectors; regret is counted from it",
    BEST: "the fixed selector with the best mean, chosen on these very examples: a little too good",
    HELD_OUT: "for each document, the fixed selector that is best on the other documents",
    EACH: "the same, chosen anew for every setting (e.g. every budget)",
    RANDOM: "a fixed selector drawn for each example: the mean over them",
}

COLORS = {
    RANDOM: "#999999",
    HELD_OUT: "#000000",
    EACH: "#CC79A7",
    "routed": "#0072B2",
    "learned": "#D55E00",
    "oracle": "#009E73",
}
"""Okabe and Ito's palette: told apart by colour-blind readers too."""
MARKERS = {RANDOM: "X", HELD_OUT: "s", EACH: "D", "routed": "o", "learned": "^", "oracle": "v"}


@dataclass(frozen=True)
class Row:
    """One policy under one setting. Every interval is 95 %, by a bootstrap over documents; nan where there is none."""

    dataset: str
    setting: str  # what else varies in the sweep, or ALL: every setting together
    quality: str  # the metric, higher is better
    policy: str  # a selector, or a key of MEANING
    kind: str  # fixed | reference | router
    reads_gold: bool
    examples: int
    documents: int
    mean: float
    mean_lo: float
    mean_hi: float
    regret: float  # mean of (best fixed per example - own); below 0 where a router beats every fixed selector
    regret_lo: float
    regret_hi: float
    over_best: float  # mean of (own - best fixed, chosen on these examples)
    over_best_lo: float
    over_best_hi: float
    over_held_out: float  # mean of (own - best fixed, held out)
    over_held_out_lo: float
    over_held_out_hi: float
    note: str = ""  # which fixed selector is the best
    run_ids: str = ""  # of all its setting's runs, separated by blanks: regret is against the best of them


@dataclass(frozen=True)
class Setting:
    """Runs that differ in their selector only: each policy's quality per example, aligned."""

    name: str
    quality: str
    values: "Mapping[str, np.ndarray]"  # policy -> (n,)
    documents: tuple[str, ...]  # (n,)
    oracles: frozenset[str] = frozenset()  # policies that read gold
    run_ids: tuple[str, ...] = ()

    @property
    def fixed(self) -> tuple[str, ...]:
        return tuple(name for name in self.values if name.split(" ")[0] not in ROUTERS)


# ---------------------------------------------------------------- files


def regret(points: Sequence[Point], folder: Path) -> list[Path]:
    """regret.csv, regret.md and router_regret.png/.svg; nothing where no two fixed selectors meet a routing one."""
    rows = regret_rows(points)
    if not rows:
        return []
    table = folder / "regret.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    text = folder / "regret.md"
    text.write_text(_markdown(rows, legend(points)), encoding="utf-8")
    return [table, text, *_figure(rows, legend(points), folder)]


def regret_rows(points: Sequence[Point]) -> list[Row]:
    """A row for each data set, setting and policy; where there are several settings, first those of all together."""
    rows: list[Row] = []
    for dataset, group in by_dataset(points).items():
        settings = [one for one in _settings(group) if _routes(one)]
        if len(settings) > 1 and len({(*one.values, one.quality) for one in settings}) == 1:
            rows += _rows(dataset, _together(settings), settings)
        for one in settings:
            rows += _rows(dataset, one, [one])
    return rows


def _routes(setting: Setting) -> bool:
    return len(setting.fixed) > 1 and len(setting.fixed) < len(setting.values) and len(setting.documents) > 0


# ---------------------------------------------------------------- from points to aligned values


def _settings(points: Sequence[Point]) -> list[Setting]:
    """The points of one data set, grouped by everything but the selector."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        same = {key: value for key, value in labels(point).items() if key.partition(".")[0] != "selector"}
        groups.setdefault(json.dumps(same, sort_keys=True, default=str), []).append(point)
    spoken = [key for key in varying(points) if key.partition(".")[0] != "selector"]
    settings = []
    for group in groups.values():
        own = labels(group[0])
        name = " · ".join(f"{key.partition('.')[2] or key} {own[key]}" for key in spoken if key in own)
        settings.append(_setting(name or ALL, group))
    return settings


def _setting(name: str, points: Sequence[Point]) -> Setting:
    import numpy as np

    quality = _quality(points)
    names = _policies(points)
    scores = [_scores(point, quality.partition("/")[2]) for point in points]
    document = _documents(points[0])
    ids = [one for one in scores[0] if all(not math.isnan(other.get(one, math.nan)) for other in scores)]
    return Setting(
        name,
        quality.partition("/")[2],
        {policy: np.array([score[one] for one in ids]) for policy, score in zip(names, scores, strict=True)},
        tuple(document[one] for one in ids),
        frozenset(policy for policy, point in zip(names, points, strict=True) if point.oracle),
        tuple(point.run_id for point in points),
    )


def _quality(points: Sequence[Point]) -> str:
    """The headline metric; of a run without a model, whose context is no answer, the facts that it holds."""
    kept = "quality/fact_recall"
    extracts = all(point.choices.get("generator") == "extract" for point in points)
    return (
        kept
        if extracts and all(not math.isnan(point.metrics.get(kept, math.nan)) for point in points)
        else headline(points)
    )


def _policies(points: Sequence[Point]) -> list[str]:
    """Each point's selector; its options too where they tell two points of one selector apart."""
    choices = [str(point.choices.get("selector")) for point in points]
    keys = [key for key in varying(points) if key.startswith("selector.")]
    names = []
    for point, choice in zip(points, choices, strict=True):
        own = labels(point)
        several = choices.count(choice) > 1
        options = [f"{key.partition('.')[2]}={own[key]}" for key in keys if key in own] if several else []
        names.append(" ".join([choice, *options]))
    return names


def _scores(point: Point, metric: str) -> dict[str, float]:
    """Example id -> the metric; nan where it is undefined."""
    found = {}
    with (Path(point.folder) / "predictions.jsonl").open(encoding="utf-8") as file:
        for line in file:
            one = json.loads(line)
            value = one["metrics"].get(metric)
            found[str(one["id"])] = math.nan if value is None else float(value)
    return found


def _documents(point: Point) -> dict[str, str]:
    """Example id -> what names its document."""
    with (Path(point.folder) / "predictions.jsonl").open(encoding="utf-8") as file:
        rows = map(json.loads, file)
        return {str(one["id"]): str(one.get("document") or one["id"]) for one in rows}


def _together(settings: Sequence[Setting]) -> Setting:
    """All settings as one. A document under two budgets, or written twice from one case, stays one document."""
    import numpy as np

    return Setting(
        ALL,
        settings[0].quality,
        {name: np.concatenate([one.values[name] for one in settings]) for name in settings[0].values},
        tuple(document for one in settings for document in one.documents),
        frozenset(name for one in settings for name in one.oracles),
        tuple(run for one in settings for run in one.run_ids),
    )


# ---------------------------------------------------------------- figures of merit


def held_out_best(fixed: "np.ndarray", documents: Sequence[str]) -> "np.ndarray":
    """(n,) the quality of the row of (k, n) that is best on all other documents; ties go to the earlier row."""
    import numpy as np

    _, of_row = np.unique(np.asarray(documents), return_inverse=True)
    sums = np.stack([np.bincount(of_row, weights=values) for values in fixed])
    sizes = np.bincount(of_row)
    others = (sums.sum(axis=1, keepdims=True) - sums) / np.maximum(sizes.sum() - sizes, 1)
    choice = np.round(others, 12).argmax(axis=0)  # a sum's last bit is no preference
    chosen: np.ndarray = fixed[choice[of_row], np.arange(fixed.shape[1])]
    return chosen


def _rows(dataset: str, whole: Setting, parts: Sequence[Setting]) -> list[Row]:
    import numpy as np

    from outlay.score.statistics import interval

    names = whole.fixed
    fixed = np.stack([whole.values[name] for name in names])
    top = names[int(fixed.mean(axis=1).argmax())]
    held_out = held_out_best(fixed, whole.documents)
    references = {
        PER_EXAMPLE: fixed.max(axis=0),
        BEST: whole.values[top],
        HELD_OUT: held_out,
        RANDOM: fixed.mean(axis=0),
    }
    if len(parts) > 1:
        references[EACH] = np.concatenate(
            [held_out_best(np.stack([one.values[name] for name in names]), one.documents) for one in parts]
        )
    kinds = {name: "fixed" if name in names else "router" for name in whole.values}
    documents = len(set(whole.documents))
    rows = []
    for policy, values in {**references, **whole.values}.items():
        compared = {
            "mean": values,
            "regret": references[PER_EXAMPLE] - values,
            "over_best": values - references[BEST],
            "over_held_out": values - held_out,
        }
        figures = {
            f"{name}{end}": bound
            for name, one in compared.items()
            for end, bound in zip(("", "_lo", "_hi"), interval(one, clusters=whole.documents), strict=True)
        }
        rows.append(
            Row(
                dataset=dataset,
                setting=whole.name,
                quality=whole.quality,
                policy=policy,
                kind=kinds.get(policy, "reference"),
                reads_gold=policy == PER_EXAMPLE or policy in whole.oracles,
                examples=len(values),
                documents=documents,
                note=top if policy == BEST else "",
                run_ids=" ".join(dict.fromkeys(whole.run_ids)),
                **figures,
            )
        )
    return rows


# ---------------------------------------------------------------- how they are shown


def _markdown(rows: Sequence[Row], notes: Sequence[str]) -> str:
    lines = [
        "# Routing between selectors",
        "",
        "Regret is the mean distance to the best fixed selector per example. 95 % intervals by a bootstrap over",
        "documents, paired by example; they leave out that a best one was chosen. * reads the answer key.",
        "",
        *(
            f"- **{name}**: {meaning}."
            for name, meaning in MEANING.items()
            if any(row.policy == name for row in rows)
        ),
    ]
    tables: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        tables.setdefault((row.dataset, row.setting), []).append(row)
    for (dataset, setting), group in tables.items():
        first = group[0]
        lines += [
            "",
            f"## {dataset}, {setting}",
            "",
            f"{first.quality.replace('_', ' ')} of {first.examples} examples on {first.documents} documents",
            "",
            "| policy | mean | regret | over the best fixed | over the best fixed, held out |",
            "|---|---:|---:|---:|---:|",
        ]
        for row in sorted(group, key=lambda row: row.regret):
            name = row.policy + (" \\*" if row.reads_gold else "") + (f" ({row.note})" if row.note else "")
            cells = (
                (row.mean, row.mean_lo, row.mean_hi),
                (row.regret, row.regret_lo, row.regret_hi),
                (row.over_best, row.over_best_lo, row.over_best_hi),
                (row.over_held_out, row.over_held_out_lo, row.over_held_out_hi),
            )
            lines.append(f"| {name} | " + " | ".join(_cell(*cell) for cell in cells) + " |")
    return "\n".join([*lines, *("", *notes)]) + "\n"


def _cell(value: float, low: float, high: float) -> str:
    return f"{value:.3f}" + ("" if math.isnan(low) else f" [{low:.3f}, {high:.3f}]")


def _figure(rows: Sequence[Row], notes: Sequence[str], folder: Path) -> list[Path]:
    """Regret with its interval, a line for each setting and a dot for each policy; a panel for each data set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        panels.setdefault(row.dataset, {}).setdefault(row.setting, []).append(row)
    longest = max(map(len, panels.values()))
    # By name, so that `learned` keeps its colour where it ran with options.
    shown = [
        name for name in COLORS if any(row.policy.split(" ")[0] == name or row.policy == name for row in rows)
    ]
    height = 0.085 * (len(shown) + 1)
    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(1 + 6.5 * len(panels), 1.9 + height * longest),
        squeeze=False,
        layout="constrained",
    )
    for axis, (dataset, settings) in zip(axes[0], panels.items(), strict=True):
        for line, group in enumerate(settings.values()):
            drawn = [
                (name, row)
                for name in shown
                for row in group
                if name in (row.policy, row.policy.split(" ")[0])
            ]
            for at, (name, row) in enumerate(drawn):
                axis.errorbar(
                    row.regret,
                    line + 0.8 * ((at + 0.5) / len(drawn) - 0.5),
                    xerr=[[max(0.0, row.regret - row.regret_lo)], [max(0.0, row.regret_hi - row.regret)]],
                    color=COLORS[name],
                    marker=MARKERS[name],
                    markersize=4.5,
                    elinewidth=1.0,
                    capsize=2,
                    linestyle="none",
                    label=name + (" *" if row.reads_gold else "") if line == 0 else None,
                )
            if line % 2:
                axis.axhspan(line - 0.5, line + 0.5, color="#F4F4F4", zorder=0)
        first = next(iter(settings.values()))[0]
        axis.axvline(0, color="#555555", linewidth=0.8)
        axis.set_yticks(range(len(settings)), list(settings), fontsize=9)
        axis.set_ylim(len(settings) - 0.5, -0.5)
        axis.set_xlabel(
            f"regret in {first.quality.replace('_', ' ')}\nto the best fixed selector per example, 95 % interval"
        )
        axis.set_title(f"{dataset} ({first.documents} documents)", loc="left", fontsize=11)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", linewidth=0.4, alpha=0.6)
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(
        handles, names, frameon=False, fontsize=9, loc="outside upper center", ncols=min(len(names), 3)
    )
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=8, color="#555555")
    written = [folder / f"router_regret.{ending}" for ending in ("png", "svg")]
    for path in written:
        figure.savefig(path, dpi=160)
    plt.close(figure)
    return written
