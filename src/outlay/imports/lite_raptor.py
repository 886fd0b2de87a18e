"""HotpotQA runs of lite_raptor: one file a model and way of retrieval (hexuan21/lite_raptor, eval/res*)."""

from collections.abc import Sequence
from pathlib import Path

from outlay.data.files import stem
from outlay.imports.log import Log, Options, Question, Reply, cell, rows, sources

_ASKED = "DO NOT include anything else before or after your answer."


def read(paths: Sequence[str], options: Options) -> Log:
    """hotpotqa_res*.json: id, question (with its instruction in one mode), ref_answer, model_answer. No flags."""
    log = Log(
        "span", notes=["What was retrieved is not in the log: prompt tokens are of the question alone."]
    )
    for path in sources(paths, "hotpotqa_res*.json"):
        tier = options.tier or _tier(path)
        for row in rows(path):
            asked = cell(row, "question").rpartition(_ASKED)[2].strip()
            log.ask(Question(cell(row, "id"), asked, (cell(row, "ref_answer").strip(),)), row.place)
            log.replies.append(Reply(cell(row, "id"), tier, cell(row, "model_answer")))
    return log


def _tier(path: Path) -> str:
    """gpt-4o-mini/bm25 of res_gpt-4o-mini/hotpotqa_res_bsline_bm25.json; a folder `res` does not say which model."""
    model = path.parent.name.removeprefix("res").removeprefix("_") or "recorded"
    mode = stem(path).removeprefix("hotpotqa_res").removeprefix("_").removeprefix("bsline_")
    mode = {"": "tree", f"llm_{model}_wo_ctx": "no-context"}.get(mode, mode)
    return f"{model}/{mode}"
