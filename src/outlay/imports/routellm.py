"""RouteLLM's evaluation logs: GSM8K with replies, MMLU with flags alone (routellm/evals)."""

from collections.abc import Sequence
from pathlib import Path

from outlay.data import files
from outlay.data.gsm8k import Gsm8k
from outlay.errors import DataError
from outlay.imports.log import (
    Log,
    Options,
    Question,
    Reply,
    cell,
    flag,
    header,
    one_gold,
    opaque,
    rows,
    sources,
)

_REPLY = "_response"


def gsm8k(paths: Sequence[str], options: Options) -> Log:
    """gsm8k_responses.csv: prompt, a flag for each model, and `<model>_response`. Gold is GSM8K's own test.jsonl."""
    gold = Gsm8k(path=str(one_gold(options, "GSM8K's test.jsonl")), split="all")
    known = {one.question: one for one in gold.examples()}
    log = Log("number")
    for path in sources(paths, "gsm8k_responses.csv"):
        tiers = [name for name in header(path) if name + _REPLY in header(path)]
        if not tiers:
            raise DataError(f"{path}: the header has no pair of columns MODEL and MODEL{_REPLY}")
        for row in rows(path):
            example = known.get(cell(row, "prompt").strip())
            if example is None:
                raise DataError(f"{row.place}: its prompt is no question of {gold.path}")
            log.ask(Question(example.id, example.question, example.references), row.place)
            for tier in tiers:
                said = flag(row, tier, cell(row, tier))
                log.replies.append(Reply(example.id, tier, cell(row, tier + _REPLY), said))
    return log


def mmlu(paths: Sequence[str], options: Options) -> Log:
    """mmlu_<subject>.csv: prompt and a flag for each model. No text was logged: a token stands for each reply."""
    log = Log("span", notes=["The log has flags and no replies: a token stands for each, right ones equal."])
    for path in sources(paths, "mmlu_*.csv"):
        tiers = [name for name in header(path) if name and name != "prompt"]
        for row in rows(path):
            example_id = f"{_subject(path)}-{row.number}"
            question = cell(row, "prompt").strip()
            log.ask(Question(example_id, question, (opaque(example_id, True, ""),)), row.place)
            for tier in tiers:
                said = flag(row, tier, cell(row, tier))
                token = opaque(example_id, said == 1, tier)
                log.replies.append(Reply(example_id, tier, token, said, completion_tokens=1))
    return log


def _subject(path: Path) -> str:
    return files.stem(path).removeprefix("mmlu_")
