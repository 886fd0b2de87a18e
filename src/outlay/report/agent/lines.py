"""A run's attempts as arrays, read from its ledger; what every table of the agent side starts from."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from outlay.report.tables import Point, labels


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
    keys = {key for one in each for key in one}
    varies = [key for key in keys if key != axis and len({str(one.get(key)) for one in each}) > 1]
    for point, own in zip(points, each, strict=True):
        rest = {key: str(own[key]) for key in sorted(varies) if key in own}
        group = repr(rest)
        groups.setdefault(group, {})[str(own.get(axis))] = point
        named[group] = " · ".join(_worth_saying(rest)) or str(own.get("dataset"))
    for group, found in groups.items():
        yield named[group], found


def _worth_saying(rest: dict[str, Any]) -> list[str]:
    """A choice before its options; an option that only says again what its group's choice is, is left out."""
    return [str(value) for key, value in sorted(rest.items(), key=lambda one: ("." in one[0], one[0]))]


@dataclass(frozen=True)
class Spent:
    """One query's whole bill, probes, verifiers and failed calls included, and what came of it."""

    right: bool
    tier: str  # that answered
    tokens: int
    units: float
    usd: float


@lru_cache(maxsize=256)
def spent(folder: str) -> dict[str, Spent]:
    """Example id -> its bill and its end."""
    import pyarrow.parquet as pq

    units: dict[str, float] = {}
    table = pq.read_table(Path(folder) / "ledger.parquet", columns=["example_id", "cost_units"])
    for example, cost in zip(table["example_id"].to_pylist(), table["cost_units"].to_pylist(), strict=True):
        units[example] = units.get(example, 0.0) + cost
    found = {}
    with (Path(folder) / "predictions.jsonl").open(encoding="utf-8") as file:
        for one in map(json.loads, file):
            found[str(one["id"])] = Spent(
                bool(one["correct"]), one["tier"], one["tokens"], units.get(str(one["id"]), 0.0), one["usd"]
            )
    return found
