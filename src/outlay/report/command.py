"""`outlay report`: tables, figures and one page from tracked runs."""

import argparse
import csv
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from outlay import __version__
from outlay.errors import ConfigError, nearest
from outlay.record import Ended, read_ended
from outlay.report.agent.checks import notices
from outlay.report.sheets import Sheet, judged, notes
from outlay.report.tables import Point, labels
from outlay.track import Kept, Tracking, artifacts, summary
from outlay.track import points as tracked_points

NEEDED = ("config.yaml", "metrics.json", "predictions.jsonl", "ledger.parquet")
"""A run's artifacts that a report is made from."""


def report(words: Sequence[str]) -> int:
    """The command. Every file goes to --out; runs whose folder is not here are copied into OUT/runs first.

    Raises:
        ConfigError: no such sweep, experiment or setting; names the nearest.
        OutlayError: the tracking store or a run's files cannot be read.
    """
    given = _parser().parse_args(list(words))
    output_dir = given.output_dir or Path(os.environ.get("OUTLAY_OUTPUT_DIR", "multirun_outputs"))
    tracking = Tracking(uri=given.tracking_uri)
    experiments = [name for word in given.experiment for name in word.split(",") if name]
    sweeps = [name for word in given.sweep for name in word.split(",") if name]
    if "all" in sweeps:
        sweeps = list(_sweeps(tracking, output_dir))
    found = tracked_points(tracking, output_dir, sweeps, experiments)
    if not found:
        raise ConfigError(
            "no finished run among these. outlay doctor lists the sweeps and how their runs ended"
        )
    kept = filtered(found, given.filter)
    runs, doubles = latest(kept)
    out = _made(given.out)
    folders = _folders(output_dir)
    points = [_point(run, folders, tracking, output_dir, out) for run in runs]
    said = _notes(points, runs, len(found) - len(kept), doubles)
    title = given.title or "Outlay report: " + ", ".join(dict.fromkeys(run.experiment for run in runs))
    written, sheets = _files(points, out, given.against)
    sources = sources_of(written, sheets, points)
    page = _page(out / "report.html", title, said, sheets, written, points, runs, sources, given.examples)
    _write_sources(out / "sources.json", runs, points, sources, sheets)
    print(f"{len(points)} {'run' if len(points) == 1 else 'runs'}, {len(written) + 2} files in {out}")
    for line in said:
        print(f"  {line}")
    warned = sum(bool(point.warnings) for point in points)
    if warned:
        what = "1 run carries" if warned == 1 else f"{warned} runs carry"
        print(f"  {what} warnings of their policies; the page lists them")
    print(f"Open {page} ({page.stat().st_size / 1e6:.1f} MB; it needs no network)")
    if not given.sweep and not given.experiment:
        _say_others(_sweeps(tracking, output_dir), {run.sweep_id for run in runs})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="outlay report", description="Tables, figures and one page from tracked runs.")
    parser.add_argument(
        "--sweep",
        nargs="+",
        action="extend",
        default=[],
        metavar="ID",
        help="sweeps by id, last (the default), or all",
    )
    parser.add_argument(
        "--experiment",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="all runs of experiments, single runs too; a,b or a b",
    )
    parser.add_argument(
        "--filter",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this param or tag; several values of one key: any of them",
    )
    parser.add_argument(
        "--against",
        metavar="KEY=VALUE[,...]",
        help="compare each run with the nearest of the runs that have these settings, not with every other",
    )
    parser.add_argument("--examples", type=int, default=20, metavar="N", help="examples a run shows (20)")
    parser.add_argument("--title", help="of the page")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="where the runs are (multirun_outputs)"
    )
    parser.add_argument(
        "--tracking-uri", metavar="URI", help="the tracking store, where it is not mlflow.db there"
    )
    return parser


def _sweeps(tracking: Tracking, output_dir: Path) -> dict[str, str]:
    """Id of each sweep of the store -> its experiment."""
    return {one["sweep_id"]: one["experiment"] for one in summary(tracking, output_dir) if one["sweep"]}


def _say_others(sweeps: Mapping[str, str], shown: Collection[str]) -> None:
    """What this report leaves out because nothing was asked for by name."""
    others = {sweep: experiment for sweep, experiment in sweeps.items() if sweep not in shown}
    if not others:
        return
    names = list(dict.fromkeys(others.values()))
    listed = ",".join(names[:NAMED]) + (",..." if len(names) > NAMED else "")
    what = "sweep is" if len(others) == 1 else "sweeps are"
    print(f"{len(others)} other {what} not in it: --experiment {listed}, or --sweep all")


NAMED = 6
"""Experiments that a line names."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"report: {message}. outlay report --help lists the options")


def _made(out: Path) -> Path:
    """Raises ConfigError where the folder cannot be made."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}. Name a folder that can be written") from error
    return out


# ---------------------------------------------------------------- which runs


def filtered(runs: Sequence[Kept], wanted: Sequence[str]) -> list[Kept]:
    """The runs that have, for each key, one of the values asked for; keys are params or tags.

    Raises:
        ConfigError: no KEY=VALUE, a key that no run has, or no run left.
    """
    asked: dict[str, set[str]] = {}
    for word in wanted:
        key, given, value = word.partition("=")
        if not given:
            raise ConfigError(f"--filter {word}: expected KEY=VALUE, such as retry=fixed")
        asked.setdefault(key, set()).update(value.split(","))
    kept = list(runs)
    for key, values in asked.items():
        known = [one for one in ({**run.tags, **run.params}.get(key) for run in kept) if one is not None]
        if not known:
            names = {name for run in runs for name in (*run.params, *run.tags)}
            raise ConfigError(f"--filter {key}: no run has such a param or tag. {nearest(key, names)}")
        kept = [run for run in kept if {**run.tags, **run.params}.get(key) in values]
        if not kept:
            said = ", ".join(sorted(set(known))[:8])
            raise ConfigError(
                f"--filter {key}={','.join(sorted(values))}: no run has it. It is one of: {said}"
            )
    return kept


def latest(runs: Sequence[Kept]) -> tuple[list[Kept], int]:
    """Of runs with the same config the latest, in the place of the first; and how many are left out."""
    newest: dict[str, Kept] = {}
    for run in runs:
        key = run.tags.get("config_hash", run.run_id)
        if key not in newest or run.started_ms > newest[key].started_ms:
            newest[key] = run
    return list(newest.values()), len(runs) - len(newest)


# ---------------------------------------------------------------- their files


def _folders(output_dir: Path) -> dict[str, Ended]:
    """Run id -> how it ended, of the runs whose folders are here."""
    found = (read_ended(path.parent) for path in output_dir.glob("*/*/*/ended.json"))
    return {one.run_id: one for one in found if one is not None and one.status == "FINISHED"}


def _point(run: Kept, here: Mapping[str, Ended], tracking: Tracking, output_dir: Path, out: Path) -> Ended:
    """A run as tables need it: from its folder where that is here, else from its artifacts."""
    from outlay.schema import GROUPS

    ended = here.get(run.run_id)
    if ended is not None:
        # As it is here now, not as it was called where it ran.
        return Ended(**{**vars(ended), "folder": str(_folder_of(ended, output_dir))})
    folder = out / "runs" / run.run_id
    artifacts(tracking, output_dir, run.run_id, NEEDED, folder)
    warnings = run.tags.get("warnings", "")
    return Ended(
        run.name,
        "FINISHED",
        _config(folder / "config.yaml", run),
        {group: run.params[group] for group in GROUPS if group in run.params},
        _metrics(folder / "metrics.json", run),
        str(folder),
        run.run_id,
        run.tags.get("oracle") == "true",
        warnings=tuple(warnings.split("\n")) if warnings else (),
    )


def _folder_of(ended: Ended, output_dir: Path) -> Path:
    said = Path(ended.folder)
    return said if said.is_dir() else output_dir.joinpath(*said.parts[-3:])


def _config(path: Path, run: Kept) -> dict[str, Any]:
    """The config, resolved but for what comes from the environment. Without the artifact: nothing but its params."""
    from omegaconf import OmegaConf

    if not path.is_file():
        return {key: value for key, value in run.params.items() if "." in key}

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: kept(one) for key, one in value.items()}
        return value.replace("${oc.env:", "\\${oc.env:") if isinstance(value, str) else value

    raw = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    plain: dict[str, Any] = OmegaConf.to_container(OmegaConf.create(kept(raw)), resolve=True)  # type: ignore[assignment]
    return plain


def _metrics(path: Path, run: Kept) -> dict[str, float]:
    """The run's metrics; null, which JSON has for what is no number, is not a number."""
    if not path.is_file():
        return dict(run.metrics)
    read = json.loads(path.read_text(encoding="utf-8"))
    return {name: math.nan if value is None else float(value) for name, value in read.items()}


# ---------------------------------------------------------------- what they say


def _notes(points: Sequence[Point], runs: Sequence[Kept], filtered_out: int, doubles: int) -> list[str]:
    sweeps = list(dict.fromkeys(run.sweep_id for run in runs if run.sweep_id))
    one = "run" if len(points) == 1 else "runs"
    of = f"of {'sweep' if len(sweeps) == 1 else 'sweeps'} {', '.join(sweeps)}" if sweeps else "by themselves"
    said = [f"{len(points)} {one} {of}; made {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by outlay {__version__}."]
    if filtered_out:
        said.append(f"{filtered_out} runs were left out by --filter.")
    if doubles:
        said.append(f"{doubles} earlier runs with the same config were left out: the latest counts.")
    held = len(judged(points))
    if held < len(points):
        said.append(
            f"Figures over cost and difficulty are of the {held} held-out runs; the {len(points) - held} on which settings "
            "were chosen (splits train, tune) are in the tables."
        )
    bad = sum(int(point.metrics.get("data/skipped_rows", 0)) for point in points)
    if bad:
        said.append(f"{bad} bad rows were left out by the runs (dataset.on_bad_row=skip).")
    return [*said, *notes(points), *notices(points)]


def _files(points: Sequence[Ended], out: Path, against: str | None) -> tuple[list[Path], list[Sheet]]:
    from outlay.report import report_files

    return report_files(points, out, against)


def sources_of(
    written: Iterable[Path], sheets: Sequence[Sheet], points: Sequence[Point]
) -> dict[str, list[list[str]]]:
    """A CSV's name -> of each of its rows, the ids of the runs that it can have come from; a Markdown page's as one row.

    A row that names its runs is taken at its word; another has those whose settings are the row's.
    """
    found: dict[str, list[list[str]]] = {}
    every = [point.run_id for point in points]
    paths = list(written)
    for path in paths:
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                found[path.name] = [_of_row(row, points) for row in csv.DictReader(file)]
    own = {sheet.name: sheet for sheet in sheets}
    for path in paths:
        if path.suffix == ".md" and path.stem in own:
            found[path.name] = [list(row) for row in own[path.stem].sources]
        elif path.suffix == ".md":
            beside = found.get(f"{path.stem}.csv")
            found[path.name] = [
                list(dict.fromkeys(run for row in beside for run in row)) if beside else every
            ]
    return found


def _of_row(row: Mapping[str, str], points: Sequence[Point]) -> list[str]:
    named = [row[key] for key in ("run_id", "first_run", "second_run") if row.get(key)]
    named += (row.get("run_ids") or "").split()
    if named:
        return list(dict.fromkeys(named))
    columns = {
        "dataset": "dataset",
        "unitizer": "unitizer",
        "selector": "selector",
        "budget": "budget.tokens",
    }
    wanted = {key: row[column].split(" ")[0] for column, key in columns.items() if row.get(column)}
    choices = {point.choices.get("selector") for point in points}
    if row.get("policy", "").split(" ")[0] in choices:
        wanted["selector"] = row["policy"].split(" ")[0]

    def same(point: Point) -> bool:
        settings = labels(point)
        return all(str(settings[key]) == value for key, value in wanted.items() if key in settings)

    return [point.run_id for point in points if same(point)]


def _page(
    path: Path,
    title: str,
    said: Sequence[str],
    sheets: Sequence[Sheet],
    written: Sequence[Path],
    points: Sequence[Ended],
    runs: Sequence[Kept],
    sources: Mapping[str, Sequence[Sequence[str]]],
    limit: int,
) -> Path:
    from outlay.report.page import Run, write_page
    from outlay.report.page.browser import gather, is_private

    listed = [
        Run(point, run.sweep_id, run.point, run.experiment, not is_private(point))
        for point, run in zip(points, runs, strict=True)
    ]
    flat = {name: list(dict.fromkeys(run for row in rows for run in row)) for name, rows in sources.items()}
    return write_page(path, title, said, sheets, written, listed, gather(points, limit), flat)


def _write_sources(
    path: Path,
    runs: Sequence[Kept],
    points: Sequence[Ended],
    sources: Mapping[str, Sequence[Sequence[str]]],
    sheets: Sequence[Sheet],
) -> None:
    """sources.json: the runs, and of each row of each file those that its numbers come from."""
    listed = [
        {
            "run_id": run.run_id,
            "name": run.name,
            "experiment": run.experiment,
            "sweep": run.sweep_id,
            "point": run.point,
            "warnings": list(point.warnings),
            "git_sha": run.tags.get("git_sha", ""),
            "config_hash": run.tags.get("config_hash", ""),
            "folder": point.folder,
        }
        for run, point in zip(runs, points, strict=True)
    ]
    held = dict(sources) | {f"{sheet.name}.tex": [list(row) for row in sheet.sources] for sheet in sheets}
    path.write_text(json.dumps({"runs": listed, "files": held}, indent=1) + "\n", encoding="utf-8")
