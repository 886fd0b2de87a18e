"""L-Eval's published predictions: one file a model and task (Predictions/{exam,ngram}_eval/<model>/<task>.pred.jsonl).

They cover fewer items than the data, so they are joined by question and gold, never by position.
"""

import re
from collections.abc import Sequence

from outlay.data.files import kind_of
from outlay.errors import ConfigError, DataError
from outlay.imports.log import Log, Options, Question, Reply, cell, digest, rows, sources

_PRED = "_pred"
_KINDS = {"gsm100": "number"}  # else by `evaluation`
_LETTERS = ("A", "B", "C", "D")


def read(paths: Sequence[str], options: Options) -> Log:
    """query, gt, prompt, evaluation and `<model>_pred`. The log has no flags."""
    log: Log | None = None
    for path in sources(paths, "*.pred.jsonl"):
        task = path.name.removesuffix(".pred.jsonl")
        for row in rows(path):
            kind = options.kind or _KINDS.get(task) or _by_evaluation(cell(row, "evaluation"))
            log = log or Log(kind)
            if kind != log.kind:
                raise ConfigError(
                    f"{path}: its answers are of kind {kind}, those of the files before of kind {log.kind}; "
                    "import each task by itself"
                )
            asked, gold = _question(task, cell(row, "query")), cell(row, "gt").strip()
            example_id = f"{task}-{digest(asked, gold)}"
            choices = _LETTERS if kind == "label" else ()
            if kind == "label":
                gold = _letter(gold, row.place)
            log.ask(Question(example_id, asked, (gold,), choices), row.place)
            tiers = [name for name in row.value if name.endswith(_PRED)]
            if len(tiers) != 1:
                raise DataError(f"{row.place}: has {len(tiers) or 'no'} fields '<model>{_PRED}', not one")
            tier = options.tier or tiers[0].removesuffix(_PRED)
            text = row.value[tiers[0]]
            if not isinstance(text, str):
                raise DataError(f"{row.place}: field '{tiers[0]}' is {kind_of(text)}, not text")
            log.replies.append(Reply(example_id, tier, text))
    assert log is not None
    log.notes.append("The document that was sent is not in the log: prompt tokens are of the question alone.")
    return log


def _by_evaluation(evaluation: str) -> str:
    return "label" if evaluation == "exam" else "text"


def _question(task: str, query: str) -> str:
    """One model's gsm100 file holds the whole 16-shot prompt as its query."""
    asked = query.rsplit("Question:", 1)[-1] if task == "gsm100" else query
    return asked.removesuffix("Let's think step by step\n").strip()


def _letter(gold: str, place: str) -> str:
    found = re.match(r"\(?([A-D])\b", gold)
    if not found:
        raise DataError(f"{place}: field 'gt' does not begin with one of {', '.join(_LETTERS)}")
    return found[1]
