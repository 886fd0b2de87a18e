"""LLMRouterBench's results: one JSON file a data set, split and model, or its flat records (baselines/schema.py)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from outlay.data import SPLITS
from outlay.data.files import Row
from outlay.errors import DataError
from outlay.imports.log import Log, Options, Question, Reply, cell, flag, rows, sources


def read(paths: Sequence[str], options: Options) -> Log:
    """origin_query, prompt, prediction, raw_output, ground_truth, score, prompt_tokens, completion_tokens, cost."""
    log = Log(options.kind or "span")
    for path in sources(paths, "*.json"):
        for row in _records(path):
            value = row.value
            example_id = f"{cell(row, 'dataset_id')}-{cell(row, 'record_index', (int, str))}"
            gold, split = _text(value.get("ground_truth")), str(value.get("split") or "")
            log.ask(
                Question(
                    example_id,
                    _text(value.get("origin_query")) or _text(value.get("prompt")),
                    (gold,) if gold.strip() else (),
                    options.labels,
                    split=split if split in SPLITS else "",
                ),
                row.place,
            )
            log.replies.append(
                Reply(
                    example_id,
                    options.tier or cell(row, "model_name"),
                    _text(value.get("raw_output")) or _text(value.get("prediction")),
                    flag(row, "score", value.get("score")),
                    prompt_tokens=_tokens(row, "prompt_tokens"),
                    completion_tokens=_tokens(row, "completion_tokens"),
                    usd=float(value["cost"]) if value.get("cost") is not None else float("nan"),
                )
            )
    return log


def _records(path: Path) -> Iterator[Row]:
    """Flat records; those of a results file take its data set, split and model."""
    found = list(rows(path))
    if not any(row.key for row in found):
        yield from found
        return
    whole = {row.key: row.value for row in found}
    if not isinstance(whole.get("records"), list):
        raise DataError(f"{path}: has no list 'records', as a results file of LLMRouterBench has")
    for number, record in enumerate(whole["records"]):
        place = f"{path}: record {number + 1}"
        if not isinstance(record, dict):
            raise DataError(f"{place}: is not an object")
        of_file = {
            "dataset_id": whole.get("dataset_name"),
            "split": whole.get("split"),
            "model_name": whole.get("model_name"),
            "record_index": record.get("index"),
        }
        yield Row(number, place, {**record, **of_file})


def _text(value: Any) -> str:
    """A text; of a list, its first: some records hold a list of one."""
    if isinstance(value, list):
        value = value[0] if value else ""
    return "" if value is None else str(value)


def _tokens(row: Row, name: str) -> int | None:
    """0 stands for a count that was not kept."""
    return cell(row, name, (int, float, type(None))) or None if name in row.value else None
