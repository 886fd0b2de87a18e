"""Samples logged by lm-evaluation-harness (--log_samples): <model>/samples_<task>_<time>.jsonl."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlay.data.files import Row
from outlay.errors import DataError
from outlay.imports.log import Log, Options, Question, Reply, cell, flag, opaque, rows, sources

METRICS = ("exact_match", "acc", "em", "acc_norm", "pass@1")
"""What may say whether a reply was right; the first that a row has."""


def read(paths: Sequence[str], options: Options) -> Log:
    """doc_id, doc, target, arguments, resps, filter and a metric. Of several filters the first is taken.

    Tasks that compare log-likelihoods have no replies: a token stands for each.
    """
    log: Log | None = None
    for path in sources(paths, "samples_*.jsonl"):
        task = re.sub(r"_\d{4}-\d\d-\d\dT.*", "", path.stem.removeprefix("samples_"))
        first: Any = None
        for row in rows(path):
            first = row.value.get("filter") if first is None else first
            if row.value.get("filter") != first:
                continue
            target, replies = row.value.get("target"), _replies(row)
            log = log or Log(options.kind or ("number" if "####" in str(target) else "span"))
            example_id = f"{task}-{cell(row, 'doc_id', (int, str))}"
            metric = next((name for name in METRICS if name in row.value), None)
            said = flag(row, metric, row.value[metric]) if metric else None
            tier = options.tier or _tier(path)
            if replies is None:
                if said is None:
                    raise DataError(f"{row.place}: has neither replies nor one of {', '.join(METRICS)}")
                gold, replies = opaque(example_id, True, ""), [opaque(example_id, said == 1, tier)]
            else:
                gold = str(target[0] if isinstance(target, list) and target else target)
            references = (gold,) if target is not None and gold.strip() else ()
            log.ask(Question(example_id, _question(row), references, options.labels), row.place)
            for text in replies:
                # The metric is of the filtered whole: with several samples it says nothing of one.
                log.replies.append(Reply(example_id, tier, text, said if len(replies) == 1 else None))
        if first is not None and log:
            log.notes.append(f"{path.name}: scores under the filter '{first}'.")
    assert log is not None
    return log


def _tier(path: Path) -> str:
    """The folder that the harness names after the model."""
    return path.resolve().parent.name.replace("__", "/")


def _replies(row: Row) -> list[str] | None:
    """The samples of a row; None where its requests were log-likelihoods."""
    requests = cell(row, "resps", list)
    samples = requests[0] if len(requests) == 1 and isinstance(requests[0], list) else requests
    return list(samples) if samples and all(isinstance(one, str) for one in samples) else None


def _question(row: Row) -> str:
    doc = row.value.get("doc")
    if isinstance(doc, dict) and isinstance(doc.get("question"), str) and doc["question"].strip():
        return str(doc["question"]).strip()
    arguments = row.value.get("arguments")
    first = next(iter(arguments.values()), "") if isinstance(arguments, dict) else arguments
    while isinstance(first, dict | list) and first:
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    if not isinstance(first, str) or not first.strip():
        raise DataError(f"{row.place}: has neither doc.question nor a prompt in 'arguments'")
    return first.strip()
