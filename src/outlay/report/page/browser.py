"""What the page's example browser shows: documents once, and each run's kept spans, calls, answer and links."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlay.report.sheets import names
from outlay.report.tables import Point, by_dataset

LIMIT = 20
"""Examples that a run shows."""
MOST_BYTES = 8_000_000
"""Of the page's example data: a browser opens it at once, and a mail carries it."""

Record = dict[str, Any]


@dataclass
class Examples:
    """The browser's data, as the page's script reads it; see `report.js`."""

    runs: list[Record] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)  # each once, whichever runs share it
    examples: list[Record] = field(default_factory=list)
    answers: list[Record] = field(default_factory=list)  # one a run and example
    notes: list[str] = field(default_factory=list)  # what was left out, and why

    def data(self) -> Record:
        return {
            "runs": self.runs,
            "documents": self.documents,
            "examples": self.examples,
            "answers": self.answers,
        }


def gather(points: Sequence[Point], limit: int = LIMIT) -> Examples:
    """The first examples of every run, as many of each as fit. Texts of private runs are left out."""
    found = Examples()
    private = [point for point in points if is_private(point)]
    if private:
        found.notes.append(
            f"{len(private)} of {len(points)} runs are private (credentialed data, or tracking.log_text=false): their "
            "texts are left out, their numbers are not."
        )
    open_runs = [
        point
        for point in points
        if point not in private and (Path(point.folder) / "predictions.jsonl").is_file()
    ]
    missing = len(points) - len(private) - len(open_runs)
    if missing:
        found.notes.append(
            f"{missing} runs have no predictions in the tracking store: no examples of theirs."
        )
    sources: dict[str, Mapping[str, Any]] = {}
    turns: list[Iterator[tuple[Record, Mapping[str, Any] | None]]] = []
    for group in by_dataset(open_runs).values():
        named = names(group)
        for point in group:
            of = point.choices.get("dataset", "")
            at = len(found.runs)
            found.runs.append({"id": point.run_id, "name": named[point.run_id], "dataset": of})
            turns.append(_answers(point, at, limit, sources))
    _fill(found, turns, limit)
    return found


def is_private(point: Point) -> bool:
    """Whether a run's text must not leave its folder; so also where its data set is not known here."""
    from outlay.errors import OutlayError
    from outlay.schema import build_one

    tracking = point.config.get("tracking") or {}
    if not tracking.get("log_text", True):
        return True
    try:
        return bool(build_one("dataset", point.config["dataset"]).credentialed)
    except (OutlayError, KeyError):
        return True


def _fill(found: Examples, turns: Sequence[Iterator[tuple[Record, Any]]], limit: int) -> None:
    """Round by round, an example of every run, until the page is full."""
    known: dict[tuple[Any, ...], int] = {}
    texts: dict[str, int] = {}
    size = shown = 0
    missing = False
    for _ in range(limit):
        took = [next(turn, None) for turn in turns]
        for one in took:
            if one is None:
                continue
            answer, example = one
            dataset = found.runs[answer["run"]]["dataset"]
            document = example["document"] if example else ""
            missing = missing or example is None
            key = (dataset, answer["id"], document, example["question"] if example else "")
            if key not in known:
                known[key] = len(found.examples)
                at = -1
                if document:
                    if document not in texts:
                        texts[document] = len(found.documents)
                        found.documents.append(document)
                        size += len(document)
                    at = texts[document]
                entry = {
                    "id": answer["id"],
                    "dataset": dataset,
                    "document": at,
                    "question": example["question"] if example else "",
                    "references": answer["references"],
                    "difficulty": answer["difficulty"],
                }
                found.examples.append(entry)
                size += len(json.dumps(entry))
            kept = {
                name: value
                for name, value in answer.items()
                if name not in ("id", "references", "difficulty")
            }
            found.answers.append({**kept, "example": known[key]})
            size += len(json.dumps(kept))
        if not any(took):
            break
        shown += 1
        if size > MOST_BYTES:
            found.notes.append(f"The page is full: only the first {shown} examples of each run are here.")
            break
    if missing:
        found.notes.append(
            "Some documents are not here any more, or have changed since the run: they are not shown."
        )


def _answers(
    point: Point, run: int, limit: int, sources: dict[str, Mapping[str, Any]]
) -> Iterator[tuple[Record, Mapping[str, Any] | None]]:
    """A run's first examples: what it answered, and the example as the data set has it now."""
    predictions = []
    with (Path(point.folder) / "predictions.jsonl").open(encoding="utf-8") as file:
        for line in file:
            predictions.append(json.loads(line))
            if len(predictions) == limit:
                break
    ids = [str(one["id"]) for one in predictions]
    lines = _lines(point, ids)
    examples = _examples(point, ids, sources)
    for one in predictions:
        example = examples.get(str(one["id"]))
        if example and len(example["document"]) != one.get("document_characters", len(example["document"])):
            example = None
        yield _answer(one, run, lines.get(str(one["id"]), [])), example


def _answer(one: Mapping[str, Any], run: int, lines: Sequence[Record]) -> Record:
    prediction, correct = one["prediction"], one["correct"]
    reply = prediction or ""
    if correct is not None:  # the answer was read from a reply, which the ledger has
        tries = [line for line in lines if line["attempt"] and line["kind"] != "verify"]
        reply = next((line["text"] for line in reversed(tries) if line["answer"] == prediction), "")
    return {
        "run": run,
        "id": str(one["id"]),
        "references": list(one["references"]),
        "difficulty": one.get("difficulty"),
        "answer": prediction if correct is not None else None,
        "correct": correct,
        "reply": reply,
        "spans": one["context_spans"],
        "context_tokens": one["context_tokens"],
        "tokens": one["tokens"],
        "usd": one["usd"],
        "inflation": one["inflation"],
        "metrics": {name: value for name, value in one["metrics"].items() if value is not None},
        "links": one.get("links", []),
        "calls": lines,
    }


COLUMNS = (
    "kind", "tier", "attempt", "context", "prompt_tokens", "completion_tokens", "cost_units", "usd", "latency_s",
    "answer", "verifier", "verdict", "oracle", "score", "error", "text",
)  # fmt: skip


def _lines(point: Point, ids: Sequence[str]) -> dict[str, list[Record]]:
    """Example id -> its ledger lines, in order."""
    import pyarrow.parquet as pq

    path = Path(point.folder) / "ledger.parquet"
    if not path.is_file():
        return {}
    table = pq.read_table(path, columns=["example_id", *COLUMNS], filters=[("example_id", "in", list(ids))])
    found: dict[str, list[Record]] = {}
    for row in table.to_pylist():
        found.setdefault(row.pop("example_id"), []).append(row)
    return found


def _examples(
    point: Point, ids: Sequence[str], sources: dict[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Id -> document and question, read again from the run's data set; nothing where that is not here."""
    from outlay.errors import OutlayError
    from outlay.schema import build_one

    node = point.config.get("dataset", {})
    key = json.dumps([node, list(ids)], sort_keys=True, default=str)
    if key in sources:
        return sources[key]
    wanted, found = set(ids), dict[str, Mapping[str, Any]]()
    try:
        for example in build_one("dataset", node).examples([]):
            if example.id in wanted:
                found[example.id] = {"document": example.document, "question": example.question}
                if len(found) == len(wanted):
                    break
    except (OutlayError, OSError, ValueError, KeyError):
        pass
    sources[key] = found
    return found
