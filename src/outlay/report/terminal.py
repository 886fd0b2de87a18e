"""What a command prints at its end: a table that says what each setting bought, and at what cost."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from outlay.report.agent.checks import notices
from outlay.report.tables import (
    CHECKS,
    Point,
    answers,
    by_dataset,
    count,
    headline,
    labels,
    legend,
    marks,
    metric,
    said,
    size,
    sizes_differ,
    varying,
    with_interval,
)

if TYPE_CHECKING:
    from outlay.plan import Plan
    from outlay.report.sheets import Sheet

Cell = Callable[[Mapping[str, float]], str]


def _tokens(name: str) -> Cell:
    return lambda metrics: count(metrics.get(name, math.nan))


def _between(metrics: Mapping[str, float], name: str) -> str:
    if not math.isfinite(metrics[name]):
        return count(metrics[name])
    low, high = (count(metrics.get(f"{name}_{end}", math.nan)) for end in ("lo", "hi"))
    return f"{count(metrics[name])} [{low}, {high}]"


COLUMNS: tuple[tuple[str, str, Cell], ...] = (
    ("fact recall", "quality/fact_recall", lambda m: with_interval(m, "quality/fact_recall")),
    ("context\ntokens", "context/tokens_mean", _tokens("context/tokens_mean")),
    ("proven\noptimal", "context/optimality_mean", lambda m: f"≥ {100 * m['context/optimality_mean']:.0f} %"),
    ("tokens\na query", "cost/tokens_per_query", _tokens("cost/tokens_per_query")),
    ("… for\nprobes", "cost/tokens_probe", lambda m: count(m["cost/tokens_probe"] / m["data/examples"])),
    ("… for\nchecks", CHECKS, lambda m: count(metric(m, CHECKS) / m["data/examples"])),
    ("… for\nretries", "cost/tokens_retry", lambda m: count(m["cost/tokens_retry"] / m["data/examples"])),
    ("infla-\ntion", "inflation/mean", lambda m: f"{m['inflation/mean']:.2f} ×"),
    ("tokens a\nright answer", "cost/per_correct", lambda m: _between(m, "cost/per_correct")),
    ("tokens\nto fit", "fit/tokens", _tokens("fit/tokens")),
)
"""Heading, the metric that must say something for the column to be shown, cell."""

OF_ANSWERS = ("quality/accuracy", "quality/exact_match")
"""Of what no model answered, these say nothing."""

NOTHING = {"inflation/mean": 1.0, "cost/tokens_probe": 0.0, CHECKS: 0.0, "cost/tokens_retry": 0.0}
"""Values at which a column says nothing."""

SHORT = {
    "budget.tokens": "budget",
    "retry.stop": "stops on",
    "retry": "retry",
    "retry.max_attempts": "attempts",
}


def sweep_starts(points: int, done: int, folder: Path, trials: int = 0) -> None:
    """trials: of a tuned sweep, whose points are not known yet."""
    if trials:
        before = f" ({done} runs finished before)" if done else ""
        text = f"A study of {trials} trials{before}; their files go to {folder}"
        _console().print(text, markup=False, highlight=False)
        return
    finished = f", {done} of them finished before" if done else ""
    _console().print(
        f"{points} {'run' if points == 1 else 'runs'}{finished}; their files go to {folder}", highlight=False
    )


def plan(found: "Plan") -> None:
    """What a sweep needs, before anything is paid."""
    console = _console()
    _title(
        console, f"Plan: {found.points} {'run' if found.points == 1 else 'runs'}, {found.queries:,} queries"
    )
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in ("if every first\nanswer is accepted", "if none is, and\nreplies are full"):
        table.add_column(heading, justify="right")
    best, worst = found.best, found.worst
    table.add_row("completions to generate", f"{len(best.rows):,}", f"{len(worst.rows):,}")
    table.add_row("their prompt and reply tokens", f"{best.tokens:,}", f"{worst.tokens:,}")
    table.add_row("US dollars", f"{best.usd:,.4f}", f"{worst.usd:,.4f}")
    console.print(table)
    console.print(
        f"{found.stored:,} completions are in the store already, and cost nothing.", highlight=False
    )
    if found.learning:
        console.print(
            f"{found.learning} of the runs fit a policy first: the train and tune splits are in the plan, what the "
            "fitted policy asks of the test split is not.",
            highlight=False,
        )
    for line in found.failed:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(
        "Each distinct completion is counted once. Reply lengths on the left: the mean of the model's rows in the "
        "store, or half of the most.",
        style="dim",
        highlight=False,
    )


def point(ended: Any, place: str, varies: str = "") -> None:
    """One line as a point of a sweep ends. place: 2/3, or its trial; varies: what tells it from the others, where its name
    does not."""
    of = f"[{place}]"
    name = f"{ended.name} ({varies})" if varies else ended.name
    if ended.status != "FINISHED":
        # What kills points kills many in the same way: in full it stands in the table at the end.
        error = ended.error.partition(":")[0] if ended.status == "KILLED" else ended.error
        _console().print(
            f"{of} {name}: {ended.status}: {error}",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return
    metrics = ended.metrics
    quality = headline([ended])
    made, hits, misses = (metrics[f"cache/{name}"] for name in ("generated_tokens", "hits", "misses"))
    source = (
        f"{count(made)} reply tokens generated"
        if misses or made
        else "all from the store"
        if hits
        else "no model ran"
    )
    text = f"{of} {name}: {_spoken(quality)} {with_interval(metrics, quality)}, {count(metrics['cost/tokens_total'])} tokens ({source})"
    _console().print(text, markup=False, highlight=False, soft_wrap=True)


def single(ended: Any) -> None:
    """One run's metrics, those that say something, and where its files are."""
    console = _console()
    metrics = ended.metrics
    _title(
        console,
        f"{ended.name} {marks(ended)}".rstrip()
        + f" ({int(metrics['data/examples'])} examples, 95 % intervals)",
    )
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in metrics:
        judged = answers(ended) or name not in OF_ANSWERS
        if name.startswith("quality/") and judged and not math.isnan(metrics.get(f"{name}_lo", math.nan)):
            table.add_row(_spoken(name), with_interval(metrics, name))
    for heading, name, cell in COLUMNS:
        if name != "quality/fact_recall" and _says_something([ended], name):
            table.add_row(heading.replace("-\n", "").replace("\n", " "), cell(metrics))
    table.add_row("tokens in all", count(metrics["cost/tokens_total"]))
    table.add_row("reply tokens generated now", count(metrics["cache/generated_tokens"]))
    console.print(table)
    for line in [*legend([ended]), *_warnings([ended])]:
        console.print(line, style="dim", highlight=False)
    console.print(f"Files: {ended.folder}", markup=False, highlight=False, soft_wrap=True)


def sweep_ends(
    ended: Sequence[Any],
    folder: Path,
    ui: str,
    front: "Sheet | None" = None,
    tokens: tuple[int, int] | None = None,
) -> None:
    """A table for each data set, what it means in a sentence, and where to look next.

    ui: where every run is. front: of a tuned sweep, in the tables' place. tokens: generated by this command, and how many of them in what all points asked first.
    """
    console = _console()
    finished = [one for one in ended if one.status == "FINISHED"]
    if front is not None:
        console.print()
        _front(console, front)
    for dataset, points in by_dataset(finished).items() if front is None else ():
        console.print()
        _table(console, dataset, points)
    if tokens is not None and tokens[0]:
        together = (
            f", {count(tokens[1])} of them before the points, in what they ask first" if tokens[1] else ""
        )
        console.print(f"Reply tokens generated now: {count(tokens[0])}{together}.", highlight=False)
    if finished:
        console.print()
        console.print("[bold]Look next[/bold]")
        for what, where in (
            ("figure", folder / ("pareto.png" if front is not None else "quality_over_cost.png")),
            ("all trials", folder / "trials.csv" if front is not None else None),
            ("all metrics", folder / "results.csv"),
            ("every run", ui),
        ):
            if where is None:
                continue
            console.print(f"  {what + ':':12} {where}", markup=False, highlight=False, soft_wrap=True)


def _front(console: Console, sheet: "Sheet") -> None:
    """The settings that no other beats."""
    _title(console, sheet.title)
    table = Table(box=box.SIMPLE_HEAD if console.width < WIDE else box.HEAVY_HEAD)
    for at, heading in enumerate(sheet.headings):
        words = at < sheet.words and at > 0
        table.add_column(heading.replace(" (", "\n("), justify="left" if words else "right", overflow="fold")
    for row in sheet.rows:
        table.add_row(*(cell.text for cell in row))
    console.print(table)
    for line in sheet.notes:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def plan_of_a_study(options: Any, drawn: int) -> None:
    """What a plan of a tuned sweep is, and is not."""
    held = f"; the front's runs on split {options.held_out} come on top" if options.held_out else ""
    console = _console()
    console.print(
        f"A study chooses as it goes: up to {options.trials} trials, {options.batch} a round. The figures are of "
        f"{drawn} different settings drawn from its space at random{held}.",
        highlight=False,
    )


def failures(ended: Sequence[Any], sweep_id: str) -> None:
    """The points that did not finish, each with its error, and how to go on."""
    failed = [one for one in ended if one.status != "FINISHED"]
    by_status = Counter(one.status.lower() for one in failed)
    what = ", ".join(f"{number} {status}" for status, number in by_status.items())
    table = Table(
        title=f"{len(failed)} of {len(ended)} runs did not finish ({what})",
        title_style="bold red",
        title_justify="left",
    )
    table.add_column("run")
    table.add_column("error", overflow="fold")
    table.add_column("log", overflow="fold")
    said = set[str]()
    for one in failed:
        alike = re.sub(r"\d+", "#", one.error) if one.status == "KILLED" else one.error
        table.add_row(one.name, "as above" if alike in said else one.error, f"{one.folder}/run.log")
        said.add(alike)
    console = Console(stderr=True)
    console.print(table)
    console.print(f"Go on with these alone: outlay -m resume={sweep_id}", markup=False, highlight=False)


def _table(console: Console, dataset: str, points: Sequence[Point]) -> None:
    settings = [key for key in varying(points) if key != "dataset"] or ["selector", "retry"]
    together = len(settings) > MOST_COLUMNS
    quality = headline(points)
    _title(console, f"{dataset}: what each setting bought ({size(points)}, 95 % intervals)")
    narrow = console.width < WIDE
    table = Table(box=box.SIMPLE_HEAD if narrow else box.HEAVY_HEAD)
    for key in ["setting"] if together else settings:
        table.add_column(SHORT.get(key, key), no_wrap=not together, overflow="fold")
    sizes = sizes_differ(points)
    if sizes:
        table.add_column("examples", justify="right")
    table.add_column(_spoken(quality), justify="right", no_wrap=True)
    shown = [column for column in COLUMNS if column[1] != quality and _says_something(points, column[1])]
    if narrow:  # the budget tells about the same
        shown = [column for column in shown if column[1] != "context/tokens_mean"]
    for heading, _, _ in shown:
        table.add_column(heading, justify="right")
    for one in points:
        values = labels(one)
        cells = [said(one, points)] if together else [_setting(values.get(key)) for key in settings]
        cells[-1] = f"{cells[-1]} {marks(one)}".rstrip()
        metrics = one.metrics
        row = ["–" if name != CHECKS and name not in metrics else cell(metrics) for _, name, cell in shown]
        counted = [count(metrics.get("data/examples", math.nan))] if sizes else []
        row = [*cells, *counted, with_interval(metrics, quality), *row]
        table.add_row(*(cell.replace(" [", "\n[") if narrow else cell for cell in row))
    console.print(table)
    for line in [*legend(points), *_warnings(points)]:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    sentence = _sentence(points, settings)
    if sentence and not together:
        console.print(sentence, markup=False, highlight=False)


def _warnings(points: Sequence[Point]) -> list[str]:
    """What a reader must know of the data, and of the policies, before believing a row."""
    told = {warning: one.name for one in points for warning in getattr(one, "warnings", ())}
    lines = [f"{name}: {warning}" for warning, name in told.items()] + notices(points)
    skipped = max(int(point.metrics.get("data/skipped_rows", 0)) for point in points)
    if skipped:
        lines.append(f"{skipped} bad rows were left out (dataset.on_bad_row=skip)")
    for what, meaning in (
        ("cut_replies", "were cut at the limit; raise prompt.max_new_tokens if answers are missing"),
        ("failed_calls", "failed; they are on the ledger, and their queries count as wrong"),
    ):
        worst = max(points, key=lambda point: point.metrics.get(f"data/{what}", 0.0))
        number, calls = (
            worst.metrics.get(f"data/{what}", 0.0),
            sum(worst.metrics.get(f"cache/{x}", 0.0) for x in ("hits", "misses")),
        )
        if (calls and number > 0.2 * calls) or (number and what == "failed_calls"):
            of = f" of {calls:.0f}" if calls else ""
            lines.append(f"{number:.0f}{of} replies ({worst.name}) {meaning}")
    return lines


def _title(console: Console, text: str) -> None:
    console.print(text, style="bold", markup=False, highlight=False, soft_wrap=True)


def _says_something(points: Sequence[Point], name: str) -> bool:
    if name == "cost/per_correct" and not any(map(answers, points)):
        return False  # no answer is judged
    values = [metric(point.metrics, name) for point in points]
    return any(not math.isnan(value) and value != NOTHING.get(name) for value in values)


def _sentence(points: Sequence[Point], settings: Sequence[str]) -> str:
    """The cheapest right answer among policies that could be deployed."""
    known = [
        one
        for one in points
        if not marks(one) and math.isfinite(one.metrics.get("cost/per_correct", math.nan))
    ]
    if len(known) < 2 or len({str(labels(one).get("router.tier")) for one in points}) > 1:
        return ""  # tokens of different tiers are not the same good
    best = min(known, key=lambda one: one.metrics["cost/per_correct"])
    values = labels(best)
    what = ", ".join(f"{SHORT.get(key, key)} {_setting(values[key])}" for key in settings if key in values)
    return (
        f"Cheapest right answers here: {what}, at {_between(best.metrics, 'cost/per_correct')} tokens each."
    )


def _setting(value: Any) -> str:
    return "–" if value is None else str(value)


def _spoken(name: str) -> str:
    return name.removeprefix("quality/").replace("_", " ")


def _console() -> Console:
    """The terminal; where it is none (a file, a pipe), wide enough that no table is broken."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


MOST_COLUMNS = 5
"""Settings that get a column each; more are said in one."""
WIDE = 112
"""Columns that a table of a grid needs; a narrower terminal gets its intervals on lines of their own."""
