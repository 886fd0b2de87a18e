"""A run's attempts as arrays, read from its ledger; what every table of the agent side starts from."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from outlay.report.tables import Point, labels, varying, word


@dataclass(frozen=True)
class Tried:
    """One attempt, in its query's order."""

    tier: str
    answer: str | None
    right: bool
    tokens: int
    prompt_tokens: int
    completion_tokens: int
    units: float
    usd: float
    context: str
    text: str


@lru_cache(maxsize=64)
def attempts(folder: str) -> dict[str, list[Tried]]:
    """Example id -> its attempts, failed ones included; in the order of the ledger."""
    import pyarrow.parquet as pq

    names = (
        "example_id", "kind", "attempt", "tier", "answer", "score", "prompt_tokens", "completion_tokens",
        "cost_units", "usd", "context", "text",
    )  # fmt: skip
    found: dict[str, list[Tried]] = {}
    for batch in pq.ParquetFile(Path(folder) / "ledger.parquet").iter_batches(columns=list(names)):
        for row in batch.to_pylist():
            found.setdefault(row["example_id"], [])
            if row["kind"] == "verify" or not row["attempt"]:
                continue
            found[row["example_id"]].append(
                Tried(
                    row["tier"],
                    row["answer"],
                    bool(row["score"] and row["score"] > 0),
                    row["prompt_tokens"] + row["completion_tokens"],
                    row["prompt_tokens"],
                    row["completion_tokens"],
                    row["cost_units"],
                    row["usd"],
                    row["context"],
                    row["text"],
                )
            )
    return found


def grouped(points: Sequence[Point], axis: str) -> Iterator[tuple[str, dict[str, Point]]]:
    """Points that differ in one setting only: (what the others are, the setting's value -> point)."""
    groups: dict[str, dict[str, Point]] = {}
    named: dict[str, str] = {}
    each = [labels(point) for point in points]
    keys = [key for key in sorted({key for one in each for key in one}) if key != axis]
    varies = [key for key in keys if len({str(one.get(key)) for one in each}) > 1]
    telling = set(varying(points))
    for point, own in zip(points, each, strict=True):
        rest = {key: own[key] for key in varies if key in own}
        group = repr({key: str(value) for key, value in rest.items()})
        groups.setdefault(group, {})[str(own.get(axis))] = point
        said = [
            word(key, value)
            for key, value in sorted(rest.items(), key=_choices_first)
            if key in telling and value is not None
        ]
        named[group] = " · ".join(dict.fromkeys(said)) or str(own.get("dataset"))
    for group, found in groups.items():
        yield named[group], found


def _choices_first(one: tuple[str, Any]) -> tuple[bool, str]:
    return "." in one[0], one[0]


@dataclass(frozen=True)
class Spent:
    """One query's whole bill, probes, verifiers and failed calls included, and what came of it."""

    right: bool
    tier: str  # that answered
    tokens: int
    checks: int  # of these, tokens of verifiers' calls
    units: float
    usd: float


@lru_cache(maxsize=256)
def spent(folder: str) -> dict[str, Spent]:
    """Example id -> its bill and its end."""
    import pyarrow.parquet as pq

    units: dict[str, float] = {}
    checks: dict[str, int] = {}
    names = ("example_id", "kind", "cost_units", "prompt_tokens", "completion_tokens")
    table = pq.read_table(Path(folder) / "ledger.parquet", columns=list(names))
    columns = (table[name].to_pylist() for name in names)
    for example, kind, cost, prompt, completion in zip(*columns, strict=True):
        units[example] = units.get(example, 0.0) + cost
        if kind == "verify":
            checks[example] = checks.get(example, 0) + prompt + completion
    found = {}
    with (Path(folder) / "predictions.jsonl").open(encoding="utf-8") as file:
        for one in map(json.loads, file):
            name = str(one["id"])
            found[name] = Spent(
                bool(one["correct"]),
                one["tier"],
                one["tokens"],
                checks.get(name, 0),
                units.get(name, 0.0),
                one["usd"],
            )
    return found
