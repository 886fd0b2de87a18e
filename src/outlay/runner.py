"""One run, in the order of DESIGN section 1: examples, contexts, traces, scores, files, tracked run."""

import json
import logging
import math
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay import inflation
from outlay.agent import Policy, verifiers
from outlay.agent.executor import Limits, Outcome, Task, Verifier, execute, scored
from outlay.agent.grow import Grow
from outlay.agent.ledger import Ledger, Line, Query, ledger_schema, ledger_table, read_ledger
from outlay.cache import cache_dir
from outlay.context.stage import Sent, Stage
from outlay.data import Example
from outlay.errors import DataError, OutlayError
from outlay.generate import Message, Prompt, Tally
from outlay.generate.prompting import Prompting
from outlay.generate.store import Store
from outlay.progress import Progress
from outlay.schema import Parts
from outlay.score.match import is_exact, matches, parse
from outlay.sweep import config_hash, flat

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 256
"""Examples in memory at once; a chunk's queries share batches."""

log = logging.getLogger("outlay")


@dataclass(frozen=True)
class Result:
    """A finished run. The frames are read from the run's files when asked for."""

    name: str
    run_id: str
    folder: Path
    metrics: Mapping[str, float]
    config: Mapping[str, Any]
    oracle: bool  # its ledger has lines that read gold

    @property
    def ledger(self) -> "pd.DataFrame":
        return read_ledger(self.folder / "ledger.parquet").frame()

    @property
    def predictions(self) -> "pd.DataFrame":
        import pandas as pd

        return pd.read_json(
            self.folder / "predictions.jsonl", lines=True, dtype={"id": str, "prediction": str}
        )


def run_point(
    parts: Parts,
    config: Mapping[str, Any],
    config_yaml: str,
    choices: Mapping[str, str],
    folder: Path,
    tags: Mapping[str, str],
    parent: str | None,
) -> Result:
    """Run one point and track it, whatever its end: FINISHED, FAILED (its error as a tag) or KILLED.

    Args:
        config: the resolved config; config_yaml: the same as kept, with secrets as their names.
        choices: each group's named option.
        folder: where its files go; parent: the sweep's tracked run.

    Raises:
        OutlayError, or what the run raised; it has been recorded.
    """
    from outlay import track

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config_yaml)
    output_dir = Path(parts.settings.output_dir)
    name = run_name(parts)
    tracked = track.start_run(
        parts.tracking, output_dir, name, {**tags, "kind": "run", "config_hash": config_hash(config)}, parent
    )
    with _log_file(folder / "run.log"):
        log.info("run %s (%s) starts", name, tracked.run_id)
        try:
            tracked.params(_params(config, choices))
            metrics, ledger_oracle = _run(parts, folder, name)
            result = Result(name, tracked.run_id, folder, metrics, config, ledger_oracle)
            tracked.metrics(metrics)
            tracked.tags(
                {
                    "oracle": str(ledger_oracle).lower(),
                    "leak": str(parts.dataset.query == "reference").lower(),
                }
            )
        except BaseException as error:
            status = "FAILED" if isinstance(error, Exception) else "KILLED"
            log.error("run %s %s: %s\n%s", name, status, error, traceback.format_exc())
            _keep_artifacts(tracked, parts, folder)
            tracked.end(status, error)
            raise
        log.info("run %s finished", name)
    _keep_artifacts(tracked, parts, folder)
    tracked.end()
    return result


def run_name(parts: Parts) -> str:
    """What a person calls a run: rcd · 256 · smollm2 · fixed to vote · notes. What differs most stands first."""
    words = []
    if parts.dataset.has_document:
        words += [parts.selector.name] + (
            [] if parts.selector.name in ("none", "full") else [parts.budget.label]
        )
    words.append(parts.generator.name)
    if parts.retry.name != "none":
        words.append(
            f"{parts.retry.name} to {parts.retry.stop}" if hasattr(parts.retry, "stop") else parts.retry.name
        )
    if parts.router.name != "static":
        words.append(parts.router.name)
    words.append(parts.dataset.name)
    return " · ".join(words)


def _run(parts: Parts, folder: Path, name: str) -> tuple[dict[str, float], bool]:
    """The flow; files are written chunk by chunk."""
    import pyarrow.parquet as pq

    from outlay.score.metrics import run_metrics

    tally, skipped = Tally(), list[DataError]()
    predictions: list[dict[str, Any]] = []  # without texts: the statistics need numbers only
    numbers: list[dict[str, Any]] = []
    oracle = False
    store = Store(cache_dir() / "completions.sqlite")
    started = time.perf_counter()
    try:
        with (
            pq.ParquetWriter(folder / "ledger.parquet", ledger_schema()) as ledger_file,
            (folder / "predictions.jsonl").open("w", encoding="utf-8") as prediction_file,
            Progress(name, parts.dataset.limit, parts.settings.verbose) as progress,
        ):
            policy = _policy(parts)
            stage = _stage(parts)
            shots = _shots(stage, parts)
            for chunk in _chunks(parts.dataset.examples(skipped)):
                sent = [stage.contexts(example) if stage else [] for example in chunk]
                ledger = Ledger()
                outcomes = execute(
                    _tasks(chunk, sent, shots, parts),
                    policy,
                    parts.generator,
                    store,
                    tally,
                    _verifiers(chunk, sent, parts),
                    _limits(parts),
                    parts.settings.seed,
                    ledger,
                    progress,
                )
                lines = scored(ledger.lines, _scorer(chunk, parts))
                ledger_file.write_table(ledger_table(lines))
                oracle = oracle or ledger.oracle or (stage is not None and stage.selector.oracle)
                numbers += [_line_numbers(line) for line in lines]
                for one in _predictions(chunk, sent, outcomes, parts):
                    public = {key: value for key, value in one.items() if key in PREDICTION_KEYS}
                    prediction_file.write(json.dumps(public, ensure_ascii=False) + "\n")
                    predictions.append({key: value for key, value in one.items() if key not in TEXT_KEYS})
                log.info(
                    "%d examples, %d tokens on the ledger",
                    len(predictions),
                    sum(n["tokens"] for n in numbers),
                )
    finally:
        store.close()
    if not predictions:
        raise DataError(
            f"dataset={parts.dataset.name}: no example in split '{parts.dataset.split}'"
            + (f" ({len(skipped)} bad rows were skipped)" if skipped else "")
            + ". Use dataset.split=all or another file"
        )
    metrics = run_metrics(
        predictions, numbers, tally, len(skipped), parts.metrics.resamples, parts.settings.seed
    )
    bill = read_ledger(folder / "ledger.parquet")
    if bill.tokens != metrics["cost/tokens_total"]:
        raise OutlayError(
            f"the ledger's {bill.tokens} tokens are not the bill's {metrics['cost/tokens_total']}"
        )
    finite = {
        name: value if math.isfinite(value) else None for name, value in metrics.items()
    }  # as JSON has it
    (folder / "metrics.json").write_text(json.dumps(finite, indent=1, sort_keys=True) + "\n")
    log.info("%.1f s", time.perf_counter() - started)
    return metrics, oracle


PREDICTION_KEYS = (
    "id",
    "prediction",
    "references",
    "correct",
    "context_tokens",
    "context_spans",
    "attempts",
    "tier",
    "tokens",
    "usd",
    "inflation",
    "metrics",
)
"""The keys of predictions.jsonl, as other people's scripts read them."""

TEXT_KEYS = ("prediction", "references", "context_spans")


def _policy(parts: Parts) -> Policy:
    policy: Policy = parts.router.policy(
        parts.retry, parts.probe, [tier.name for tier in parts.generator.tiers]
    )
    grows = getattr(parts.budget, "verifier", None)  # a budget that answers decide
    return Grow(policy, grows) if grows else policy


def _chunks(examples: Iterator[Example]) -> Iterator[list[Example]]:
    while chunk := list(islice(examples, CHUNK)):
        yield chunk


def _stage(parts: Parts) -> Stage | None:
    """The context side, its selector fitted; None for a closed-book task."""
    if not parts.dataset.has_document:
        return None
    tier = parts.generator.tiers[0].name
    tokenizer = parts.budget.tokenizer

    def count(texts: Sequence[str]) -> list[int]:
        from outlay.generate.tokenizers import count_tokens

        return count_tokens(tokenizer, texts) if tokenizer else parts.generator.count(texts, tier)

    return Stage(
        dataset=parts.dataset,
        unitizer=parts.unitizer,
        embedder=parts.embedder,
        selector=parts.selector,
        retention=parts.retention,
        budget=parts.budget,
        count=count,
        tokenizer=tokenizer or f"{parts.generator!r}/{tier}",
        seed=parts.settings.seed,
    ).fitted()


def _tasks(
    chunk: Sequence[Example], sent: Sequence[Sequence[Sent]], shots: Sequence[Message], parts: Parts
) -> list[Task]:
    text = parts.prompt.over(parts.dataset.prompt)
    tier = parts.generator.tiers[0].name

    def task(example: Example, each: Sequence[Sent]) -> Task:
        contexts = [one.context.text for one in each] or [""]

        def prompt(shown: str | None, step: int) -> Prompt:
            prompting: Prompting = parts.prompt
            return prompting.prompt(text, example, contexts[step], shots, shown)

        def read(reply: str) -> str | None:
            return parse(reply, parts.dataset.answer, example.choices, parts.prompt.answer_pattern)

        (prompt_tokens,) = parts.generator.count([parts.generator.render(prompt(None, 0), tier)], tier)
        context_tokens = each[0].context.tokens if each else 0
        query = Query(example.id, example.question, context_tokens, prompt_tokens, len(contexts))
        return Task(query, prompt, read)

    return [task(example, each) for example, each in zip(chunk, sent, strict=True)]


def _shots(stage: Stage | None, parts: Parts) -> list[Message]:
    """Worked examples of the train split, their contexts chosen as those of the run."""
    if not parts.prompt.shots:
        return []
    found = list(replace(parts.dataset, split="train", limit=parts.prompt.shots).examples([]))
    if len(found) < parts.prompt.shots:
        raise OutlayError(
            f"prompt.shots={parts.prompt.shots}: the train split of dataset={parts.dataset.name} has {len(found)} examples"
        )
    prompting: Prompting = parts.prompt
    contexts = [stage.contexts(one)[0].context.text if stage else "" for one in found]
    return prompting.worked(prompting.over(parts.dataset.prompt), list(zip(found, contexts, strict=True)))


def _limits(parts: Parts) -> Limits:
    text = parts.prompt.over(parts.dataset.prompt)
    return Limits(
        max_new_tokens=text.max_new_tokens,
        stop=text.stop,
        top_p=parts.prompt.top_p,
        tokens_per_query=getattr(parts.router, "token_budget", None),
        reuse_probe=getattr(parts.probe, "reuse", False),
    )


def _verifiers(chunk: Sequence[Example], sent: Sequence[Sequence[Sent]], parts: Parts) -> dict[str, Verifier]:
    """Gold is known to its verifier and to the scorer, to nothing else."""
    contexts = {
        example.id: [one.context.text for one in each] for example, each in zip(chunk, sent, strict=True)
    }
    known = {"grounded": verifiers.grounded(contexts, getattr(parts.budget, "threshold", 0.0))}
    if is_exact(parts.dataset.answer):
        references = {example.id: example.references for example in chunk}
        known["gold"] = verifiers.gold(references, parts.dataset.answer)
    return known


def _scorer(chunk: Sequence[Example], parts: Parts) -> Any:
    """Line -> score: 1 or 0 for answers that can be right, token F1 for free text; a failed call scores 0."""
    from outlay.score.quality import token_f1

    gold = {example.id: example.references for example in chunk}
    exact = is_exact(parts.dataset.answer)

    def score(line: Line) -> float:
        references = gold[line.example_id]
        if exact:
            return float(matches(line.answer, references, parts.dataset.answer))
        return token_f1(line.text, references) if references else float("nan")

    return score


def _predictions(
    chunk: Sequence[Example], steps: Sequence[Sequence[Sent]], outcomes: Sequence[Outcome], parts: Parts
) -> Iterator[dict[str, Any]]:
    from outlay.score.quality import score_batch

    answers = [outcome.stop.answer for outcome in outcomes]
    finals = [_final(outcome) for outcome in outcomes]
    texts = [final.text if final else "" for final in finals]
    # The context that the answer was given on; without an answer, the last one that was tried.
    sent = [
        each[final.step if final else max((line.step for line in outcome.trace.attempts), default=0)]
        if each
        else None
        for each, final, outcome in zip(steps, finals, outcomes, strict=True)
    ]
    exact = is_exact(parts.dataset.answer)
    scores = score_batch(
        parts.metrics.choice,
        parts.dataset.answer,
        chunk,
        [answer or "" for answer in answers] if exact else texts,
        [one.context.spans if one else () for one in sent],
        parts.metrics.bertscore_model,
    )
    for example, one, outcome, final, metrics in zip(chunk, sent, outcomes, finals, scores, strict=True):
        answer, text = outcome.stop.answer, final.text if final else ""
        trace = outcome.trace
        attempts = trace.attempts
        probes = [line.answer for line in trace.probes]
        correct = (
            matches(answer, example.references, parts.dataset.answer)
            if exact and example.references
            else None
        )
        if correct is not None:
            metrics = {"accuracy": float(correct), **metrics}
        yield {
            "id": example.id,
            "prediction": answer if exact else text,
            "references": list(example.references),
            "correct": correct,
            "context_tokens": one.context.tokens if one else 0,
            "context_spans": [list(span) for span in one.context.spans] if one else [],
            "attempts": len(attempts),
            "tier": final.tier if final else "",
            "tokens": trace.tokens,
            "usd": sum(line.usd for line in trace.lines),
            "inflation": _number(inflation.inflation(attempts)),
            "metrics": {name: _number(value) for name, value in metrics.items()},
            # below: for the run's statistics only
            "document_tokens": one.document_tokens if one else 0,
            "context": {"optimality": one.selection.optimality, **one.selection.info} if one else {},
            "solved": outcome.stop.solved,
            "attempt_tokens": sum(line.tokens for line in attempts),
            "direct_tokens": attempts[0].tokens if attempts else 0,
            "cbe": inflation.branching_entropy(probes) if probes else None,
        }


def _final(outcome: Outcome) -> Line | None:
    """The attempt that the final answer was read from."""
    for line in reversed(outcome.trace.attempts):
        if line.answer == outcome.stop.answer:
            return line
    return None


def _line_numbers(line: Line) -> dict[str, Any]:
    names = (
        "kind",
        "attempt",
        "prompt_tokens",
        "completion_tokens",
        "cost_units",
        "usd",
        "latency_s",
        "error",
        "tokens",
    )
    return {name: getattr(line, name) for name in names}


def _number(value: float) -> float | None:
    """JSON has no not-a-number."""
    return None if value != value else value


def _params(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Flat options, and each group's choice under the group's own name."""
    values = flat({key: value for key, value in config.items() if key != "sweep"})
    return {**choices, **{key: value for key, value in values.items() if not key.endswith("_target_")}}


def _keep_artifacts(tracked: Any, parts: Parts, folder: Path) -> None:
    """The run's files, as far as it got. Text stays out of the tracking store where the config or the data say so."""
    private = not parts.tracking.log_text or parts.dataset.credentialed
    for file in ("config.yaml", "metrics.json", "run.log", "ledger.parquet", "predictions.jsonl"):
        path = folder / file
        if not path.is_file() or path.stat().st_size == 0:
            continue
        if private and file in ("ledger.parquet", "predictions.jsonl"):
            log.info("%s stays in %s: its text may not leave this machine", file, folder)
            continue
        tracked.artifact(path)


class _log_file:
    """Lines of the `outlay` logger into a run's own file."""

    def __init__(self, path: Path) -> None:
        self._handler = logging.FileHandler(path, encoding="utf-8")
        self._handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def __enter__(self) -> None:
        log.setLevel(logging.INFO)
        log.propagate = False
        log.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        log.removeHandler(self._handler)
        self._handler.close()
