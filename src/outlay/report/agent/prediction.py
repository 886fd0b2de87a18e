"""What foretells inflation: the predictor against its features alone, fitted on a sweep's train runs, judged on test."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.report.grid.drawing import save, write_rows
from outlay.report.sheets import notes
from outlay.report.tables import Point, labels, said

if TYPE_CHECKING:
    from outlay.agent.ledger import Trace
    from outlay.inflation.evaluate import Row
    from outlay.inflation.features import KRow

KS = (2, 3, 5, 10)
FIGURES = ("auroc", "pearson", "spearman", "brier", "ece")


def foretelling(points: Sequence[Point], folder: Path) -> list[Path]:
    """predictor.csv, .md, figure and the saved predictor; nothing without probed, gold-stopped runs of train and test."""
    from outlay.inflation.cases import Cases, cases, joined
    from outlay.inflation.evaluate import evaluate, tracked
    from outlay.inflation.predictor import Training, train

    runs = [point for point in points if foretellable(point)]
    asking = [point for point in runs if not _learns(point)]
    tables: dict[bool, list[Cases]] = {True: [], False: []}
    sweeps: list[tuple[Point, str, KRow]] = []
    for point in runs:
        learns = _learns(point)
        found = traces(point)
        own = cases(found, point.choices["dataset"])
        if len(own):
            tables[learns].append(own)
        if not learns:
            sweeps += _k_rows(point, asking, found)
    if not tables[True] or not tables[False]:
        return []
    known, asked = joined(tables[True]), joined(tables[False])
    rows = evaluate(known, asked)
    saved = train(known, Training()).save(folder / "predictor")
    path = folder / "predictor.csv"
    import pandas as pd

    run_ids = " ".join(
        point.run_id for point in runs
    )  # a fit learns from all that learn, and is judged by all others
    pd.DataFrame([{**row.flat(), "run_ids": run_ids} for row in rows]).to_csv(path, index=False)
    text = folder / "predictor.md"
    told = [
        f"{len(known)} cases to learn from, {len(asked)} to judge by.",
        *known.notes,
        *asked.notes,
        *notes(runs),
    ]
    text.write_text(_markdown(rows, [(name, row) for _, name, row in sweeps], told), encoding="utf-8")
    numbers = folder / "predictor_metrics.json"
    numbers.write_text(json.dumps(tracked(rows), indent=1) + "\n", encoding="utf-8")
    written = [path, text, numbers, *sorted(saved.iterdir()), *_figure(rows, folder)]
    if sweeps:
        kept = [KSweepRow(name, *row, point.run_id) for point, name, row in sweeps]
        written += write_rows(kept, folder / "k_sweep.csv")
    return written


def foretellable(point: Point) -> bool:
    own = labels(point)
    return (
        point.choices.get("probe") == "cbe"
        and point.choices.get("retry") == "fixed"
        and own.get("retry.stop") == "gold"
        and own.get("retry.context") == "fresh"
        and not own.get("probe.reuse")
    )


def _learns(point: Point) -> bool:
    return labels(point)["dataset.split"] in ("train", "tune")


def traces(point: Point) -> "list[Trace]":
    """A run's queries with their scored lines; the question itself is not on the ledger."""
    from outlay.agent.ledger import Ledger, Query, read_ledger

    lines = read_ledger(Path(point.folder) / "ledger.parquet").lines
    queries: dict[str, Query] = {}
    for line in lines:
        if line.example_id not in queries and line.prompt_tokens:
            queries[line.example_id] = Query(line.example_id, "", 0, line.prompt_tokens)
    return Ledger([line for line in lines if line.example_id in queries], queries).traces()


def _k_rows(point: Point, among: Sequence[Point], found: "list[Trace]") -> "list[tuple[Point, str, KRow]]":
    from outlay.inflation.features import k_sweep

    most = int(labels(point)["probe.k"])
    ks = [k for k in KS if k <= most]
    name = f"{point.choices['dataset']}, {said(point, among, leave_out=('dataset.split',))}"
    return [(point, name, row) for row in k_sweep(found, ks)] if len(ks) > 1 else []


@dataclass(frozen=True)
class KSweepRow:
    """AUROC of CBE alone by the samples of the probe; see `inflation.features.KRow`."""

    run: str
    k: int
    queries: int
    auroc: float
    auroc_lo: float
    auroc_hi: float
    distinct: int
    ties: float
    run_id: str


def _markdown(rows: "Sequence[Row]", sweeps: "Sequence[tuple[str, KRow]]", told: Sequence[str]) -> str:
    lines = [
        "# What foretells inflation",
        "",
        "Fitted on the train and tune runs, judged on the test runs; per tier. AUROC, Brier score and calibration error are of",
        "inflation ≥ 2, correlations of inflation itself. 95 % intervals by a bootstrap over queries; the difference is paired.",
        "A pooled figure may only tell data sets apart: see the figures within each. Inflation here is that of stopping on the",
        "answer key, as in the paper.",
        "",
        *(f"- {note}".replace("*", "\\*") for note in told),
    ]
    for tier in dict.fromkeys(row.tier for row in rows):
        lines += [
            "",
            f"## {tier}",
            "",
            "| scope | model | queries | share ≥ 2 | AUROC | Pearson | Spearman | Brier | ECE |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in (one for one in rows if one.tier == tier):
            cells = [_cell(getattr(row, name)) for name in FIGURES]
            lines.append(
                f"| {row.scope} | {row.model} | {row.n} | {100 * row.share_high:.0f} % | "
                + " | ".join(cells)
                + " |"
            )
    if sweeps:
        lines += [
            "",
            "## How many samples a probe needs",
            "",
            "CBE alone, on the first K samples of the same probes.",
            "",
            "| run | K | queries | AUROC | values CBE takes | share of pairs it cannot tell apart |",
            "|---|---:|---:|---:|---:|---:|",
            *(
                f"| {name} | {row.k} | {row.queries} | {row.auroc:.2f} [{row.lo:.2f}, {row.hi:.2f}] | {row.distinct} | "
                f"{100 * row.ties:.0f} % |"
                for name, row in sweeps
            ),
        ]
    return "\n".join(lines) + "\n"


def _cell(estimate: Any) -> str:
    value, low, high = estimate
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" + ("" if math.isnan(low) else f" [{low:.3f}, {high:.3f}]")


def _figure(rows: "Sequence[Row]", folder: Path) -> list[Path]:
    """AUROC with its interval by model, a panel for each tier; pooled, within and left out in one colour each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from outlay.report.figures import COLORS

    shown = [row for row in rows if " - " not in row.model and not math.isnan(row.auroc.value)]
    if not shown:
        return []
    tiers = list(dict.fromkeys(row.tier for row in shown))
    scopes = list(dict.fromkeys(row.scope for row in shown))
    models = list(dict.fromkeys(row.model for row in shown))
    figure, axes = plt.subplots(
        1,
        len(tiers),
        figsize=(3.6 * len(tiers) + 2.4, 0.32 * len(models) * len(scopes) / 2 + 2.2),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for axis, tier in zip(axes[0], tiers, strict=True):
        for at, scope in enumerate(scopes):
            own = [row for row in shown if row.tier == tier and row.scope == scope]
            y = [-models.index(row.model) - 0.7 * (at + 0.5) / len(scopes) + 0.35 for row in own]
            x = [row.auroc.value for row in own]
            low = [max(0.0, row.auroc.value - row.auroc.lo) for row in own]
            high = [max(0.0, row.auroc.hi - row.auroc.value) for row in own]
            axis.errorbar(
                x,
                y,
                xerr=[low, high],
                fmt="o",
                markersize=4,
                capsize=2,
                color=COLORS[at % len(COLORS)],
                label=scope,
            )
        axis.axvline(0.5, color="#555555", linewidth=0.8)
        axis.set_yticks([-at for at in range(len(models))], models, fontsize=8)
        axis.set_xlabel("AUROC for inflation ≥ 2")
        axis.set_title(tier, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", frameon=False, fontsize=8)
    return save(figure, folder / "predictor")
