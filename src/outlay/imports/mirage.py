"""MIRAGE's replies on PubMedQA, of models with and without retrieval (Xiong et al. 2024, prediction/pubmedqa)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from outlay.errors import DataError
from outlay.imports.log import Log, Options, Question, Reply, cell, flag, one_gold, rows, sources

CHOICES = ("yes", "no", "maybe")  # A, B, C in the replies


def read(paths: Sequence[str], options: Options) -> Log:
    """A table of outcomes (JSONL), or the original tree of test_<PMID>.json, whose gold is PubMedQA's ori_pqal.json."""
    known = _gold(options) if options.gold else {}
    log = Log("label")
    for path in sources(paths, "test_*.json"):
        found = _outcomes(path) if path.suffix == ".jsonl" else _original(path, known, options)
        for place, pmid, tier, text, gold, said in found:
            if gold not in CHOICES:
                raise DataError(f"{place}: the gold answer is none of {', '.join(CHOICES)}")
            asked = known.get(pmid, {}).get("QUESTION") or f"PubMedQA {pmid}"
            log.ask(Question(pmid, asked, (gold,), CHOICES), place)
            log.replies.append(Reply(pmid, options.tier or tier, text, said))
    if not known:
        log.notes.append(
            "The log names questions by PMID alone: --gold ori_pqal.json gives their text and better token counts."
        )
    log.notes.append("The retrieved passages are not in the log: prompt tokens are of the question alone.")
    return log


Outcome = tuple[str, str, str, str, str, float | None]
"""place, PMID, tier, reply, gold, the log's flag."""


def _outcomes(path: Path) -> Iterator[Outcome]:
    for row in rows(path):
        said = flag(row, "correct", row.value.get("correct"))
        yield (
            row.place,
            cell(row, "pmid"),
            cell(row, "setting"),
            cell(row, "response"),
            cell(row, "gold"),
            said,
        )


def _original(path: Path, known: Mapping[str, Any], options: Options) -> Iterator[Outcome]:
    """<mode>/<vendor>/<model>/…/test_<PMID>.json, a list of one reply."""
    if not known:
        one_gold(options, "PubMedQA's ori_pqal.json")
    pmid = path.stem.removeprefix("test_")
    parts = path.parts
    modes = [at for at, part in enumerate(parts) if part == "cot" or part.startswith("rag")]
    if not modes or len(parts) < modes[-1] + 4:
        raise DataError(f"{path}: lies in no folder cot or rag_<n>, as in MIRAGE's prediction/pubmedqa")
    try:
        replies = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(replies, list) or len(replies) != 1 or not isinstance(replies[0], str):
        raise DataError(f"{path}: is not a list of one text")
    if pmid not in known:
        raise DataError(f"{path}: {options.gold} has no PMID {pmid}")
    gold = str(known[pmid].get("final_decision", ""))
    yield str(path), pmid, f"{parts[modes[-1] + 2]}/{parts[modes[-1]]}", replies[0], gold, None


def _gold(options: Options) -> dict[str, Any]:
    found = {}
    for row in rows(one_gold(options, "")):
        cell(row, "QUESTION")
        found[row.key] = row.value
    return found
