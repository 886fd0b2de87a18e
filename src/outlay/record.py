"""What a sweep leaves on disk, so that it can go on where it was killed: its plan, and how each point ended.

<sweep>/plan.jsonl          a line for the sweep, then one for each point: number, overrides, hash, settings; grows by
                            each round of a tuned sweep
<sweep>/study.db            of a tuned sweep: its study; see `tune.py`
<sweep>/<number>/ended.json how the point ended; written last, so a point without it has not ended
<sweep>/earlier/            the folders of points that failed or were killed, before they were run again
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlay.errors import ConfigError, OutlayError, nearest
from outlay.sweep import LIMITS, TRANSPORT, config_hash, flat

PLAN, ENDED, STOPPED = "plan.jsonl", "ended.json", "stopped"


@dataclass(frozen=True)
class Ended:
    """How one point ended; crosses process borders, so it is plain."""

    name: str
    status: str  # FINISHED | FAILED | KILLED | SKIPPED (fail_fast=true, after a failure)
    config: Mapping[str, Any]
    choices: Mapping[str, str]  # group -> named option
    metrics: Mapping[str, float]
    folder: str
    run_id: str = ""
    oracle: bool = False
    error: str = ""
    warnings: tuple[str, ...] = ()
    code: str = ""  # the version, and the commit, that ran it


@dataclass(frozen=True)
class PlanPoint:
    """One point as planned. settings: its config, flat, without what only says where a run goes."""

    number: int
    overrides: tuple[str, ...]
    hash: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """A sweep as planned."""

    sweep_id: str
    words: tuple[str, ...]  # the command's overrides
    parent: str  # the tracked run
    process: str  # of the sweep: host, number and start
    points: tuple[PlanPoint, ...]


def planned(
    overrides: Sequence[Sequence[str]], configs: Sequence[Mapping[str, Any]], start: int = 0
) -> tuple[PlanPoint, ...]:
    """The points of a plan, numbered from `start`, from their overrides and resolved configs."""
    return tuple(
        PlanPoint(number, tuple(words), config_hash(config), _settings(config))
        for number, (words, config) in enumerate(zip(overrides, configs, strict=True), start)
    )


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in flat({key: value for key, value in config.items() if key not in TRANSPORT}).items()
        if key.rpartition(".")[2] not in LIMITS
    }


def write_plan(folder: Path, plan: Plan) -> None:
    """Raises OSError where the folder cannot be written."""
    head = {"sweep_id": plan.sweep_id, "words": plan.words, "parent": plan.parent, "process": plan.process}
    rows = [head, *(asdict(point) for point in plan.points)]
    _whole(folder / PLAN, "".join(json.dumps(row, default=str) + "\n" for row in rows))


def read_plan(folder: Path) -> Plan:
    """Raises OutlayError where there is none, or it is not whole."""
    path = folder / PLAN
    try:
        head, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        points = tuple(PlanPoint(**{**row, "overrides": tuple(row["overrides"])}) for row in rows)
        return Plan(head["sweep_id"], tuple(head["words"]), head["parent"], head["process"], points)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutlayError(
            f"{path}: no plan of a sweep that can be resumed ({error}). Start it anew"
        ) from error


def find(output_dir: Path, wanted: str) -> Path:
    """The folder of a sweep by its id, or of the latest (wanted "last").

    Raises:
        ConfigError: there is none; names the nearest.
    """
    folders = sorted(
        output_dir.glob(f"*/*/{PLAN}"), key=lambda path: (path.parent.name, path.stat().st_mtime)
    )
    known = {path.parent.name: path.parent for path in folders}
    if not known:
        raise ConfigError(f"resume={wanted}: no sweep in {output_dir} yet. Leave resume out to start one")
    if wanted == "last":
        return folders[-1].parent
    if wanted not in known:
        raise ConfigError(
            f"resume={wanted}: no such sweep in {output_dir}. {nearest(wanted, [*known, 'last'])}"
        )
    return known[wanted]


def same(plan: Plan, points: Sequence[PlanPoint]) -> None:
    """Refuse to resume a sweep as another one.

    Raises:
        ConfigError: says in which keys they differ.
    """
    if len(points) != len(plan.points):
        raise ConfigError(
            f"resume={plan.sweep_id}: it has {len(plan.points)} points, this command {len(points)}. "
            "Give only resume=..., or start a new sweep"
        )
    for old, new in zip(plan.points, points, strict=True):
        if old.hash != new.hash:
            now = json.loads(json.dumps(dict(new.settings), default=str))
            keys = [key for key in {**old.settings, **now} if old.settings.get(key) != now.get(key)]
            said = "; ".join(f"{key}: {old.settings.get(key)} then, {now.get(key)} now" for key in keys[:3])
            raise ConfigError(
                f"resume={plan.sweep_id}: point {new.number + 1} is another one ({said or 'its hash differs'}). "
                "Give only resume=..., or start a new sweep"
            )


def write_ended(ended: Ended) -> None:
    """The last thing that a point writes."""
    Path(ended.folder).mkdir(parents=True, exist_ok=True)
    _whole(Path(ended.folder) / ENDED, json.dumps(asdict(ended), default=str))


def read_ended(folder: Path) -> Ended | None:
    """How a point ended; None where it has not, or the record is not whole."""
    try:
        kept = json.loads((folder / ENDED).read_text(encoding="utf-8"))
        return Ended(**{**kept, "warnings": tuple(kept.get("warnings", ()))})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def finished(folder: Path, plan: Plan) -> dict[int, Ended]:
    """Number -> the points of a sweep that have finished, with all their files."""
    found = {point.number: read_ended(folder / str(point.number)) for point in plan.points}
    return {number: one for number, one in found.items() if one is not None and one.status == "FINISHED"}


def elsewhere(output_dir: Path, hashes: set[str], code: str, but: str) -> dict[str, Ended]:
    """Hash -> a finished point of another sweep with the same config, run by the same code."""
    found: dict[str, Ended] = {}
    for path in sorted(output_dir.glob(f"*/*/{PLAN}")):
        if path.parent.name == but:
            continue
        try:
            plan = read_plan(path.parent)
        except OutlayError:
            continue
        for point in plan.points:
            if point.hash in hashes:
                ended = read_ended(path.parent / str(point.number))
                if ended is not None and ended.status == "FINISHED" and ended.code == code:
                    found[point.hash] = ended
    return found


def put_aside(folder: Path, number: int) -> None:
    """Move what a point that did not finish has left, so that its number and folder are free again."""
    left = folder / str(number)
    if not left.exists():
        return
    aside = folder / "earlier"
    aside.mkdir(exist_ok=True)
    taken = sum(path.name.startswith(f"{number}-") for path in aside.iterdir())
    left.replace(aside / f"{number}-{taken + 1}")


def _whole(path: Path, text: str) -> None:
    """A file that is there with all of its text, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
