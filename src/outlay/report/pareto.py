"""What a tuned sweep leaves: trials.csv, and the front as a table, a CSV and a figure."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.report.figures import COLORS
from outlay.report.grid.drawing import panels, save
from outlay.report.sheets import Cell, Sheet, number, percent, write_sheet
from outlay.report.tables import labels, legend, marks, varying
from outlay.tune import Search, Trial, hypervolume

if TYPE_CHECKING:
    from outlay.record import Ended


def files(
    search: Search, ended: Mapping[int, "Ended"], folder: Path
) -> tuple[list[Path], Sheet | None, dict[str, float]]:
    """trials.csv, pareto.csv, .md, .tex and the figure; the front's table; and the parent's metrics. Nothing before a trial is told."""
    known = [one for one in search.trials() if one.values is not None]
    counted = {"tune/trials": float(len(search.trials())), "tune/passed_over": float(len(search.passed_over))}
    if not known:
        return [], None, counted
    names = search.names(list(ended.values()))
    best = search.front()
    on = {one.number for one in best}
    held = {
        trial: ended[point]
        for point, trial in search.held_out.items()
        if trial in on and _finished(ended.get(point))
    }
    sheet = _sheet(search, names, best, ended, held)
    written = [
        _write_trials(search, names, best, ended, folder / "trials.csv"),
        _write_front(search, names, best, ended, held, folder / "pareto.csv"),
        *write_sheet(sheet, folder),
        *_figure(search, names, best, held, folder),
    ]
    volume = hypervolume([one.values or () for one in known], search.directions)
    return written, sheet, {**counted, "tune/front": float(len(best)), "tune/hypervolume": volume}


def _finished(one: "Ended | None") -> bool:
    return one is not None and one.status == "FINISHED"


def _split_of(one: "Ended") -> str:
    data = one.config.get("dataset", {})
    return str(data.get("split", "")) if isinstance(data, Mapping) else ""


def _settings(ended: Mapping[int, "Ended"], trials: Sequence[Trial]) -> dict[int, dict[str, Any]]:
    """Trial -> what it varies: key -> value, for the keys that vary among all trials."""
    points = {one.number: ended[one.point] for one in trials if one.point is not None and one.point in ended}
    points = {number: one for number, one in points.items() if _finished(one)}
    keys = varying(list(points.values()))
    own = {number: labels(one) for number, one in points.items()}
    return {number: {key: one[key] for key in keys if key in one} for number, one in own.items()}


def _said(settings: Mapping[str, Any]) -> str:
    words = [
        str(value) if "." not in key or isinstance(value, str) else f"{key.rpartition('.')[2]} {value}"
        for key, value in settings.items()
        if value is not None
    ]
    return " · ".join(dict.fromkeys(words)) or "–"


def _cell(metrics: Mapping[str, float], name: str) -> Cell:
    value, low, high = (metrics.get(f"{name}{end}", math.nan) for end in ("", "_lo", "_hi"))
    if name.startswith("quality/"):
        return percent(value, low, high)
    return number(value, low, high, ",.0f" if abs(value) >= 100 else ".4g")


def _spoken(name: str) -> str:
    return name.rpartition("/")[2].replace("_", " ")


def _sheet(
    search: Search,
    names: Sequence[str],
    best: Sequence[Trial],
    ended: Mapping[int, "Ended"],
    held: Mapping[int, "Ended"],
) -> Sheet:
    known = search.trials()
    told = sum(one.values is not None for one in known)
    settings = _settings(ended, known)
    own = {one.number: ended[one.point] for one in best if one.point is not None}
    split = _split_of(next(iter(own.values())))
    other = _split_of(next(iter(held.values()))) if held else ""
    chosen = f"{split}, chosen by" if held else split
    headings = ["trial", "setting", *(f"{_spoken(name)} ({chosen})" for name in names)]
    headings += [f"{_spoken(name)} ({other}, held out)" for name in names] if held else []

    def row(trial: int, run: "Ended") -> tuple[Cell, ...]:
        again = held.get(trial)
        there = [_cell(again.metrics, name) if again else Cell("–") for name in names] if held else []
        said = Cell(f"{_said(settings[trial])} {marks(run)}".rstrip())
        return (Cell(str(trial), trial), said, *(_cell(run.metrics, name) for name in names), *there)

    return Sheet(
        "pareto",
        f"The front: {len(best)} of {told} trials",
        tuple(headings),
        tuple(row(trial, run) for trial, run in own.items()),
        tuple((run.run_id, *([held[trial].run_id] if trial in held else [])) for trial, run in own.items()),
        (*_notes(search, names, told, split, other), *legend(list(own.values()))),
        words=2,
    )


def _notes(search: Search, names: Sequence[str], told: int, split: str, other: str) -> Iterator[str]:
    """What a reader of the front must know. told: trials with values; other: the held-out split, "" for none."""
    aims = (f"{_spoken(name)} ({way[:3]}.)" for name, way in zip(names, search.directions, strict=True))
    yield f"No other of {told} trials is as good in all of {', '.join(aims)} and better in one."
    if other:
        yield f"The settings were chosen by the figures of split {split}, which flatter them: judge them by split {other}."
    else:
        yield f"Chosen and judged on split {split}: what was chosen by these figures is flattered by them."
    for trials, what in (
        (search.not_held_out, "of the front cannot be run on the held-out split"),
        (search.passed_over, "asked for what cannot run, and cost nothing"),
        (search.without, "ran without an objective, and count as failed"),
    ):
        if trials:
            number, why = next(iter(trials.items()))
            yield f"{len(trials)} {'trial' if len(trials) == 1 else 'trials'} {what} (trial {number}: {why})"


def _write_trials(
    search: Search, names: Sequence[str], best: Sequence[Trial], ended: Mapping[int, "Ended"], path: Path
) -> Path:
    """Every trial: its point and run, its settings, its objectives, whether it is on the front. The figure's data."""
    trials, on = search.trials(), {one.number for one in best}
    settings = _settings(ended, trials)
    keys = list(dict.fromkeys(key for one in settings.values() for key in one))
    passed = search.passed_over
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "point", "status", *keys, *names, "front", "run_id"])
        for one in trials:
            run = ended.get(one.point) if one.point is not None else None
            status = "impossible" if one.number in passed else run.status if run else "not run"
            row = settings.get(one.number, {})
            values = one.values or [""] * len(names)
            where = "" if one.point is None else one.point
            cells = [row.get(key, "") for key in keys]
            writer.writerow(
                [one.number, where, status, *cells, *values, one.number in on, run.run_id if run else ""]
            )
    return path


def _write_front(
    search: Search,
    names: Sequence[str],
    best: Sequence[Trial],
    ended: Mapping[int, "Ended"],
    held: Mapping[int, "Ended"],
    path: Path,
) -> Path:
    """A row for each setting of the front and each split that it was run on, with intervals."""
    settings = _settings(ended, search.trials())
    keys = list(dict.fromkeys(key for one in best for key in settings[one.number]))
    columns = [f"{name}{end}" for name in names for end in ("", "_lo", "_hi")]
    columns = [one for one in columns if any(one in run.metrics for run in ended.values())]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["trial", "split", "held_out", *keys, *columns, "oracle", "run_id"])
        for one in best:
            runs = [ended[one.point]] if one.point is not None else []
            for run in [*runs, *([held[one.number]] if one.number in held else [])]:
                row = [settings[one.number].get(key, "") for key in keys]
                row += [run.metrics.get(column, "") for column in columns]
                out = run is not runs[0]
                writer.writerow([one.number, _split_of(run), out, *row, run.oracle, run.run_id])
    return path


def _figure(
    search: Search, names: Sequence[str], best: Sequence[Trial], held: Mapping[int, "Ended"], folder: Path
) -> list[Path]:
    """Quality over cost: all trials, the front joined, and its settings on the held-out split. One objective: over trials."""
    across, up = _plotted(search.directions)
    scale = 100.0 if names[up].startswith("quality/") else 1.0

    def place(trial: int, values: Sequence[float]) -> tuple[float, float]:
        return (trial if across is None else values[across], scale * values[up])

    figure, axes = panels(1, 1, 5.1, 4.0)
    axis = axes.flat[0]
    spots = [place(one.number, one.values) for one in search.trials() if one.values is not None]
    axis.scatter(*zip(*spots, strict=True), s=18, color="#999999", label=f"{len(spots)} trials")
    own = {one.number: place(one.number, one.values or ()) for one in best}
    axis.plot(
        *zip(*sorted(own.values()), strict=True),
        color=COLORS[0],
        marker="o",
        linewidth=1.4,
        drawstyle="steps-post",  # between two settings only the cheaper one can be had
        label=f"the front ({len(best)})",
    )
    for trial, spot in own.items():
        axis.annotate(f"{trial}", spot, xytext=(4, 5), textcoords="offset points", fontsize=8)
    for trial, run in held.items():
        there = place(trial, [float(run.metrics.get(name, math.nan)) for name in names])
        axis.plot(*zip(own[trial], there, strict=True), color=COLORS[1], linewidth=0.6, alpha=0.7)
        axis.plot(*there, color=COLORS[1], marker="s", markerfacecolor="white")
    if held:
        label = f"the same on {_split_of(next(iter(held.values())))}, held out"
        axis.plot([], [], "s", color=COLORS[1], markerfacecolor="white", label=label)
    axis.set_xlabel("trial" if across is None else _spoken(names[across]))
    axis.set_ylabel(_spoken(names[up]) + (" (%)" if scale == 100 else ""))
    axis.legend(frameon=False, fontsize=9)
    return save(figure, folder / "pareto")


def _plotted(directions: Sequence[str]) -> tuple[int | None, int]:
    """Which objectives are drawn: across the first that is minimised, up the first that is maximised."""
    if len(directions) == 1:
        return None, 0
    across = directions.index("minimize") if "minimize" in directions else 1
    up = directions.index("maximize") if "maximize" in directions else 0
    return (across, up) if across != up else (1 - up, up)
