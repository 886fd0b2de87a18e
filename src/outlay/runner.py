"""One run, in the order of DESIGN section 1: examples, contexts, traces, scores, files, tracked run."""

import json
import logging
import math
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.agent import Policy, verifiers
from outlay.agent.executor import Asked, Limits, Task, Verifier, execute, scored
from outlay.agent.grow import Grow
from outlay.agent.ledger import Ledger, Line, Query, ledger_schema, ledger_table, read_ledger
from outlay.agent.scorer import WithScorer
from outlay.cache import cache_dir
from outlay.context.stage import Sent, Stage
from outlay.data import Example
from outlay.errors import ConfigError, DataError, GenerationError, OutlayError, SpendLimitReached
from outlay.generate import FRESH, Earlier, Message, Prompt, Tally
from outlay.generate.prompting import Prompting
from outlay.generate.spend import Spend
from outlay.generate.store import Store
from outlay.progress import Progress
from outlay.routers import Setting
from outlay.routers.embedding import remembered
from outlay.schema import Parts, choices, component, judged_on_fitted
from outlay.score.correct import grader
from outlay.score.match import is_exact, parse
from outlay.sweep import config_hash, flat
from outlay.track.origins import Digest, changes, origins

if TYPE_CHECKING:
    import pandas as pd

    from outlay.report.examples import Shown
    from outlay.score.predictions import Prediction

CHUNK = 256
"""Examples in memory at once; a chunk's queries share batches."""

ORIGINS = "origins.json"
WITH_TEXT = ("ledger.parquet", "predictions.jsonl", "examples.html", "run.log")
FILES = ("config.yaml", "metrics.json", ORIGINS, *WITH_TEXT)
"""A run's files, which are the tracked run's artifacts too; those with text only where it may leave the folder."""

log = logging.getLogger("outlay")


@dataclass(frozen=True)
class Finished:
    """What a run's flow gives back."""

    metrics: Mapping[str, float]
    oracle: bool  # its ledger has lines that read gold
    warnings: tuple[str, ...] = ()  # what its policy says of itself, with the numbers
    data: Mapping[str, str] = field(default_factory=dict)  # name, digest, split, source of the examples
    shown: Sequence["Shown"] = ()  # its first examples, for traces


@dataclass(frozen=True)
class Result:
    """A finished run. The frames are read from the run's files when asked for."""

    name: str
    run_id: str
    folder: Path
    metrics: Mapping[str, float]
    config: Mapping[str, Any]
    oracle: bool  # its ledger has lines that read gold
    warnings: tuple[str, ...] = ()

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
        config: the config, resolved but for what comes from the environment; config_yaml: the same as YAML.
        choices: each group's named option.
        folder: where its files go; parent: the sweep's tracked run.

    Raises:
        OutlayError, or what the run raised; it has been recorded.
    """
    from outlay import track
    from outlay.track.traces import log_traces

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
            done = _run(parts, folder, name, choices, tags.get("sweep_id") or tracked.run_id)
            result = Result(name, tracked.run_id, folder, done.metrics, config, done.oracle, done.warnings)
            tracked.metrics(done.metrics)
            log_traces(tracked, done.shown, _private(parts))
            tracked.data(**done.data)
            if done.warnings:
                tracked.tags({"warnings": "\n".join(done.warnings)})
            tracked.tags(
                {"oracle": str(done.oracle).lower(), "leak": str(parts.dataset.query == "reference").lower()}
            )
            log.info("run %s finished", name)
            if parent is None and changes():
                (folder / "changes.diff").write_text(changes())
                tracked.artifact(folder / "changes.diff")
            _keep_artifacts(tracked, parts, folder)
            tracked.end()
        except BaseException as error:
            stopped = isinstance(error, SpendLimitReached) or not isinstance(error, Exception)
            status = "KILLED" if stopped else "FAILED"
            log.error("run %s %s: %s\n%s", name, status, error, traceback.format_exc())
            tracked.end(status, error, private=_private(parts))  # first: what follows may fail as well
            try:
                _keep_artifacts(tracked, parts, folder)
            except Exception as second:
                log.error("its files stay in %s: %s", folder, second)
            raise
    return result


def run_name(parts: Parts) -> str:
    """What a person calls a run: rcd · 256 · smollm2 · fixed to vote · notes. What differs most stands first.

    A choice is followed by its options that are not as usual, where they are short: lab small, vote max_attempts=3.
    """
    retry, router, tiers = parts.retry, parts.router, parts.generator.tiers
    words = []
    if parts.dataset.has_document:
        words.append(_said("selector", parts.selector))
        if parts.selector.name not in ("none", "full"):
            label, unusual = parts.budget.label, _nearest("budget", parts.budget)[1]
            words.append(label + _options([one for one in unusual if str(one[1]) not in label]))
            words += [_said(group, getattr(parts, group)) for group in ("unitizer", "embedder")]
    single = router.name != "static" or len(tiers) == 1
    words.append(parts.generator.name + ("" if single else f" {router.tier or tiers[0].name}"))
    stop = f" to {retry.stop}" if hasattr(retry, "stop") else ""
    words += [_said("retry", retry, stop), *(_said(one, getattr(parts, one)) for one in ("router", "probe"))]
    words += [_said("prompt", parts.prompt), _said("metrics", parts.metrics), _said("dataset", parts.dataset)]
    words.append(f"seed {parts.settings.seed}" if parts.settings.seed else "")
    return " · ".join(word for word in words if word)


USUAL = {
    "unitizer": "sentence",
    "embedder": "tfidf",
    "retry": "none",
    "router": "static",
    "probe": "none",
    "prompt": "auto",
    "metrics": "auto",
}
"""Choices that a name leaves out."""
UNSAID = {
    *("path", "limit", "fit_limit", "count", "questions", "on_bad_row", "columns"),  # of the whole sweep
    *("seed", "tier", "tiers", "stop", "tokens", "fraction"),  # in the name without their option
}
"""Options that a name does not repeat."""
SHORT = 20
"""Characters of a value that a name still shows."""


def _said(group: str, part: Any, more: str = "") -> str:
    """The choice with what is unusual in it; nothing of a usual one."""
    choice, told = _nearest(group, part)
    return "" if choice == USUAL.get(group) and not told else f"{choice}{more}{_options(told)}"


def _has_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | dict) and any(map(_has_text, value)))


def _closed(part: Any) -> set[str]:
    """Its options with a list of choices. Free text is not for a name: it may come from the environment, a secret."""
    own = {one.name for one in fields(part) if "choices" in one.metadata}
    inner = [(one.name, getattr(part, one.name)) for one in fields(part) if one.init]
    return own | {f"{name}.{k}" for name, value in inner if is_dataclass(value) for k in _closed(value)}


def _options(unusual: Sequence[tuple[str, Any]]) -> str:
    return "".join(f" {name}={value}" for name, value in unusual if len(str(value)) <= SHORT)


def _nearest(group: str, part: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The named choice that a component has most in common with, and what may be said of its options that differ."""
    own = _flat(part)
    alike = [
        (choice, [(name, value) for name, value in own.items() if known.get(name, value) != value])
        for choice, kind, known in _defaults(group)
        if kind is type(part)
    ]
    choice, unusual = min(alike, key=lambda one: len(one[1]), default=(str(getattr(part, "name", group)), []))
    closed = _closed(part)
    return choice, [(name, value) for name, value in unusual if name in closed or not _has_text(value)]


def _flat(part: Any) -> dict[str, Any]:
    """Its options by name, those within an option too."""
    found: dict[str, Any] = {}
    for name in (one.name for one in fields(part) if one.init and one.name not in UNSAID):
        value = getattr(part, name)
        found |= {f"{name}.{k}": x for k, x in _flat(value).items()} if is_dataclass(value) else {name: value}
    return found


@cache
def _defaults(group: str) -> list[tuple[str, type, dict[str, Any]]]:
    """Each choice with its class and its default options; those that need options are left out."""
    found = []
    for choice in choices(group):
        try:
            usual = component(group, choice)
        except ConfigError:
            continue
        found.append((choice, type(usual), _flat(usual)))
    return found


def _run(parts: Parts, folder: Path, name: str, choices: Mapping[str, str], account: str = "") -> Finished:
    """The flow; files are written chunk by chunk. account: whose spend limit the run draws on."""
    import pyarrow.parquet as pq

    from outlay.report import examples
    from outlay.score import verification
    from outlay.score.metrics import run_metrics
    from outlay.score.predictions import line_numbers, predictions

    tally, skipped = Tally(), list[DataError]()
    rows: list[Mapping[str, Any]] = []  # without texts: the statistics need numbers only
    line_rows: list[Mapping[str, Any]] = []
    shown: list[Shown] = []
    checks: Counter[Any] = Counter()
    # Tokens, of queries without an attempt: of the call that the budget did not allow.
    refused: list[int] = []
    unfit: list[int] = []  # tokens of the smallest unit, of queries in whose budget not one fits
    replies, failed = 0, Counter[str]()
    digest = Digest()
    oracle = False
    store = Store(cache_dir() / "completions.sqlite")
    started = time.perf_counter()
    try:
        with (
            pq.ParquetWriter(folder / "ledger.parquet", ledger_schema()) as ledger_file,
            (folder / "predictions.jsonl").open("w", encoding="utf-8") as prediction_file,
            Progress(name, parts.dataset.limit, parts.settings.verbose) as progress,
        ):
            stage = _stage(parts)
            shots = _shots(stage, parts)
            spend = Spend(parts.spend_limit, parts.generator.tiers, store, account)
            policy, fitted = _fitted(_policy(parts), stage, shots, parts, store, tally, spend, progress)
            for chunk, sent, tasks in _asked(parts.dataset.examples(skipped), stage, shots, parts):
                ledger = Ledger()
                digest.add(chunk)
                if fitted:  # what learned policies look at, in one batch
                    remembered(_embedder(parts))([example.question for example in chunk])
                outcomes = execute(
                    tasks,
                    policy,
                    parts.generator,
                    store,
                    tally,
                    {**_verifiers(chunk, sent, parts), **getattr(policy, "verifiers", {})},
                    _limits(parts),
                    parts.settings.seed,
                    ledger,
                    progress,
                    spend,
                )
                lines = scored(ledger.lines, grader(chunk, parts))
                ledger_file.write_table(ledger_table(lines))
                refused += [one.refused for one in outcomes if one.refused and not one.trace.attempts]
                unfit += _unfit(chunk, sent, stage)
                asked = [x for x in lines if x.tier and x.finish_reason not in ("", "retried")]
                replies += len(asked)
                failed.update(line.error for line in asked if line.error)
                oracle = oracle or ledger.oracle or (stage is not None and stage.selector.oracle)
                checks.update(verification.counts(lines))
                line_rows += [line_numbers(line) for line in lines]
                for example, one in zip(chunk, predictions(chunk, sent, outcomes, parts), strict=True):
                    prediction_file.write(json.dumps(one.public, ensure_ascii=False) + "\n")
                    rows.append(one.numbers)
                    if len(shown) < max(examples.LIMIT, parts.tracking.traces):
                        shown.append(_shown(example, one, [x for x in lines if x.example_id == example.id]))
                log.info("%d examples, %d tokens", len(rows), sum(row["tokens"] for row in rows))
    finally:
        store.close()
    if not rows:
        raise DataError(
            f"dataset={parts.dataset.name}: no example in split '{parts.dataset.split}'"
            + (f" ({len(skipped)} bad rows were skipped)" if skipped else "")
            + ". Use dataset.split=all or another file"
        )
    failures = _failed(failed, replies, _private(parts))
    if failures and failed.total() == replies:
        raise GenerationError(failures)
    metrics = {
        **fitted,
        **run_metrics(rows, line_rows, tally, len(skipped), parts.metrics.resamples, parts.settings.seed),
        **verification.metrics(checks),
        **_over_budget([row["tokens"] for row in rows], parts),
    }
    warnings = (
        *([failures] if failures else []),
        *_context_warnings(unfit, len(rows), parts),
        *getattr(policy, "warnings", ()),
        *_budget_warnings(metrics, refused, len(rows), parts),
    )
    for warning in warnings:
        log.warning(warning)
    written = pq.read_table(folder / "ledger.parquet", columns=["prompt_tokens", "completion_tokens"])
    ledger_tokens = sum(sum(column.to_pylist()) for column in written.columns)
    bill = sum(row["tokens"] for row in rows)
    if ledger_tokens != bill:
        raise OutlayError(
            f"the ledger's {ledger_tokens} tokens are not the bill's {bill}; please report this"
        )
    data = {"name": parts.dataset.name, "digest": digest.value(), "split": parts.dataset.split}
    data["source"] = str(
        parts.dataset.path or "made here" if parts.dataset.embedded else parts.dataset.path or "hub"
    )
    models = {
        tier: parts.generator.identity(tier) for tier in sorted({row["tier"] for row in line_rows} - {""})
    }
    (folder / ORIGINS).write_text(json.dumps(origins(data, models, parts.settings.seed), indent=1) + "\n")
    examples.write_examples(folder / "examples.html", name, choices, shown)
    finite = {
        name: value if math.isfinite(value) else None for name, value in metrics.items()
    }  # as JSON has it
    (folder / "metrics.json").write_text(json.dumps(finite, indent=1, sort_keys=True) + "\n")
    log.info("%.1f s", time.perf_counter() - started)
    return Finished(metrics, oracle, warnings, data, shown[: parts.tracking.traces])


def _failed(errors: Mapping[str, int], replies: int, private: bool) -> str:
    """What most of the failed replies failed of; errors that differ in numbers alone are one. "" where none failed.

    private: an error may repeat what was sent, so it is said in the ledger alone.
    """
    if not errors:
        return ""
    alike: dict[str, Counter[str]] = {}
    for error, number in errors.items():
        alike.setdefault(re.sub(r"\d+", "#", error), Counter())[error] += number
    most = max(alike.values(), key=lambda kind: kind.total())
    (example, _), *_ = most.most_common(1)
    said = "their errors are in ledger.parquet" if private else f"{most.total()} of them so: {example}"
    return f"{sum(errors.values())} of {replies} replies failed, {said}"


def _unfit(chunk: Sequence[Example], sent: Sequence[Sequence[Sent]], stage: Stage | None) -> list[int]:
    """The smallest unit's tokens, of each example of whose document nothing was sent though something was to be."""
    if stage is None or stage.selector.name == "none":
        return []
    return [
        stage.smallest_unit(example)
        for example, each in zip(chunk, sent, strict=True)
        if not each[-1].context.tokens
    ]


def _context_warnings(unfit: Sequence[int], queries: int, parts: Parts) -> list[str]:
    """unfit: see `_unfit`."""
    if not unfit:
        return []
    return [
        f"budget {parts.budget.label}: in {len(unfit)} of {queries} queries no unit fitted, so nothing of the document was "
        f"sent: the smallest unit has {min(unfit)} tokens at least, {max(unfit)} at most. Raise the budget, cut smaller units "
        f"(unitizer={parts.unitizer.name} now), or use budget.truncate=true"
    ]


def _over_budget(tokens: Sequence[int], parts: Parts) -> dict[str, float]:
    """What passed the token budget all the same: failed tries and a server's own template are known by their bill only."""
    budget = _limits(parts).tokens_per_query
    if budget is None:
        return {}
    over = [one - budget for one in tokens if one > budget]
    return {"cost/over_budget_queries": float(len(over)), "cost/over_budget_tokens": float(sum(over))}


def _budget_warnings(
    metrics: Mapping[str, float], refused: Sequence[int], queries: int, parts: Parts
) -> list[str]:
    """refused: the most tokens of the call that each query without an attempt was to make next."""
    budget = _limits(parts).tokens_per_query
    found = []
    if refused:
        found.append(
            f"router.token_budget={budget}: {len(refused)} of {queries} queries got no attempt, and count as wrong: the "
            f"call that was refused may take {min(refused)} tokens at least, {max(refused)} at most (prompt and replies of "
            "full length). Raise router.token_budget, or lower budget.tokens or prompt.max_new_tokens"
        )
    if over := metrics.get("cost/over_budget_queries"):
        found.append(
            f"router.token_budget={budget}: {over:.0f} of {queries} queries passed it, by "
            f"{metrics['cost/over_budget_tokens']:.0f} tokens in all: tries that failed and were billed, or tokens that the "
            "server adds to a prompt, are known after the call only"
        )
    return found


def _policy(parts: Parts) -> Policy:
    setting = Setting(
        retry=parts.retry,
        probe=parts.probe,
        tiers=parts.generator.tiers,
        embed=remembered(_embedder(parts)),
        max_new_tokens=_limits(parts).max_new_tokens,
        seed=parts.settings.seed,
    )
    policy: Policy = parts.router.policy(setting)
    if getattr(parts.retry, "asks", "") != "scorer":
        return policy
    explorer = parts.router.policy(replace(setting, retry=parts.retry.exploring()))
    return WithScorer(policy, explorer, setting.embed, setting.seed, parts.retry.threshold)


def _grown(policy: Policy, parts: Parts) -> Policy:
    """Under a budget that answers decide, the policy on growing contexts; it explores, and is fitted, on the smallest."""
    grows = getattr(parts.budget, "verifier", None)
    return Grow(policy, grows) if grows else policy


def _embedder(parts: Parts) -> Any:
    """Vectors that are comparable across texts, for policies that learn from the question."""
    return component("embedder", "minilm") if parts.embedder.name == "tfidf" else parts.embedder


def _explorer(policy: Policy, parts: Parts) -> Policy | None:
    """What a policy that learns explores with; None for one that does not.

    Raises:
        ConfigError: the queries that it is judged on would be those that it is fitted on. A router of one's own that learns,
            and does not say so by `learns`, is found out here; the others by the schema.
    """
    explore = getattr(policy, "explore", None)
    if explore is None:
        return None
    if parts.dataset.split != "test":
        raise ConfigError(judged_on_fitted(f"router={parts.router.name}", parts.dataset.split))
    found: Policy = explore()
    return found


def _fitted(
    policy: Policy,
    stage: Stage | None,
    shots: Sequence[Message],
    parts: Parts,
    store: Store,
    tally: Tally,
    spend: Spend,
    progress: Progress,
) -> tuple[Policy, dict[str, float]]:
    """The policy, fitted where it learns, and what that cost: it explores the train and tune splits, scored by gold.

    tally: what is generated for it is added to the run's.
    """
    explorer = _explorer(policy, parts)
    if explorer is None:
        return _grown(policy, parts), {}
    key = _asking(parts, explorer)
    if key not in _explored:  # routers that learn from the same samples share them within a process
        if len(_explored) >= EXPLORED:
            del _explored[next(iter(_explored))]
        _explored[key] = _exploration(explorer, stage, shots, parts, store, tally, spend, progress)
    ledger = _explored[key]
    log.info("fitted on %d queries, %d tokens", len(ledger.queries), ledger.tokens)
    return _grown(policy.fit(ledger), parts), {
        "fit/queries": float(len(ledger.queries)),
        "fit/tokens": float(ledger.tokens),
        "fit/usd": ledger.usd,
    }


def _asking(parts: Parts, policy: Policy) -> str:
    """What decides which requests a policy makes first: points that agree in it make the same ones."""
    context = [parts.dataset, parts.unitizer, parts.embedder, parts.selector, parts.retention, parts.budget]
    agent = [parts.generator, parts.prompt, parts.metrics, parts.settings.seed, _exploring(parts), policy]
    return repr([*context, *agent])


EXPLORED = 4
"""Explorations held at once."""
_explored: dict[str, Ledger] = {}


def _exploration(
    explorer: Policy,
    stage: Stage | None,
    shots: Sequence[Message],
    parts: Parts,
    store: Store,
    tally: Tally,
    spend: Spend,
    progress: Progress,
) -> Ledger:
    """What a policy learns from: the train and tune splits, asked in its explorer's way and scored by gold."""
    ledger, explored = Ledger(), Tally()  # the run's hits and misses are of the queries that it is judged on
    for split in ("train", "tune"):
        data = replace(parts.dataset, split=split, limit=parts.dataset.fit_limit)
        for chunk, sent, tasks in _asked(data.examples([]), stage, shots, parts):
            execute(
                tasks,
                explorer,
                parts.generator,
                store,
                explored,
                _verifiers(chunk, sent, parts),
                _exploring(parts),
                parts.settings.seed,
                part := Ledger(),
                lambda finished, rows, tokens: progress(0, rows, tokens),
                spend,
            )
            ledger.lines += scored(part.lines, grader(chunk, parts))
            ledger.queries |= part.queries
    tally.generated_tokens += explored.generated_tokens
    return ledger


Asking = tuple[list[Example], list[Sequence[Sent]], list[Task]]
"""A chunk of examples, the contexts that each could be answered with, and their tasks."""


def _asked(
    examples: Iterator[Example], stage: Stage | None, shots: Sequence[Message], parts: Parts
) -> Iterator[Asking]:
    while chunk := list(islice(examples, CHUNK)):
        sent: list[Sequence[Sent]] = [stage.contexts(example) if stage else [] for example in chunk]
        yield chunk, sent, _tasks(chunk, sent, shots, parts)


@dataclass(frozen=True)
class Asks:
    """What a point asks before it has seen an answer: what a plan, and the union of a sweep's points, is made of."""

    tasks: Sequence[Task]
    policy: Policy  # explores, where `fits`
    verifiers: Mapping[str, Verifier | Asked]
    limits: Limits
    fits: bool  # of the train and tune splits, for a policy that learns from them


def asking(parts: Parts) -> str:
    """Points with the same ask the same at first, and need be prepared once; "" where only the point itself knows."""
    explorer = _explorer(_policy(parts), parts)
    return _asking(parts, explorer) if explorer else ""


def asks(parts: Parts) -> Iterator[Asks]:
    """Chunk by chunk; what a fitted policy asks of the test split is not known before the fit, and is left out."""
    stage = _stage(parts)
    shots, policy = _shots(stage, parts), _policy(parts)
    explorer, data = _explorer(policy, parts), parts.dataset
    splits = (
        [replace(data, split=one, limit=data.fit_limit) for one in ("train", "tune")] if explorer else [data]
    )
    for split in splits:
        for chunk, sent, tasks in _asked(split.examples([]), stage, shots, parts):
            yield Asks(
                tasks,
                explorer or _grown(policy, parts),
                _verifiers(chunk, sent, parts),
                _exploring(parts) if explorer else _limits(parts),
                fits=explorer is not None,
            )


def _stage(parts: Parts) -> Stage | None:
    """The context side, its selector fitted; None for a closed-book task."""
    if not parts.dataset.has_document:
        return None
    tier = parts.generator.tiers[0].name
    tokenizer = parts.budget.tokenizer

    def count(texts: Sequence[str]) -> list[int]:
        from outlay.models import count_tokens

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
    first = parts.generator.tiers[0]

    def task(example: Example, each: Sequence[Sent]) -> Task:
        contexts = [one.context.text for one in each] or [""]

        def prompt(shown: Earlier, step: int, prefill: str | None) -> Prompt:
            prompting: Prompting = parts.prompt
            return prompting.prompt(text, example, contexts[step], shots, shown, prefill)

        def read(reply: str) -> str | None:
            return parse(reply, parts.dataset.answer, example.choices, parts.prompt.answer_pattern)

        rendered = parts.generator.render(prompt(FRESH, 0, first.prefill), first.name)
        (prompt_tokens,) = parts.generator.count([rendered], first.name)
        context_tokens = each[0].context.tokens if each else 0
        query = Query(
            example.id, example.question, context_tokens, prompt_tokens, len(contexts), example.split
        )
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


def _exploring(parts: Parts) -> Limits:
    """While a policy learns: a hard limit would cut short what is learned from."""
    return replace(_limits(parts), tokens_per_query=None)


def _verifiers(
    chunk: Sequence[Example], sent: Sequence[Sequence[Sent]], parts: Parts
) -> dict[str, Verifier | Asked]:
    """Gold is known to its verifier and to the scorer, to nothing else."""
    contexts = {
        example.id: [one.context.text for one in each] for example, each in zip(chunk, sent, strict=True)
    }
    known: dict[str, Verifier | Asked] = {
        "grounded": verifiers.grounded(contexts, getattr(parts.budget, "threshold", 0.0))
    }
    if is_exact(parts.dataset.answer):
        gold = grader(chunk, parts)
        known["gold"] = Verifier(lambda _, line: gold.verdict(line), oracle=True)
    return known | _checks(chunk, sent, parts)


def _checks(
    chunk: Sequence[Example], sent: Sequence[Sequence[Sent]], parts: Parts
) -> dict[str, Verifier | Asked]:
    """Verifiers that see no gold. An attempt is judged on the context that it had, without worked examples."""
    text, prompting = parts.prompt.over(parts.dataset.prompt), parts.prompt
    known = {example.id: (example, each) for example, each in zip(chunk, sent, strict=True)}
    prefills = {tier.name: tier.prefill for tier in parts.generator.tiers}

    def ask(line: Line) -> Prompt:
        example, each = known[line.example_id]
        context = each[line.step].context.text if each else ""
        asked: Prompt = prompting.prompt(text, example, context, (), FRESH, prefills.get(line.tier))
        return asked

    replies = getattr(
        parts.router, "verifier_samples", getattr(parts.retry, "verifier_samples", 3)
    )  # a router may ask too
    judge = getattr(parts.retry, "judge", None) or parts.generator.tiers[-1].name
    checks: dict[str, Verifier | Asked] = {
        "agreement": verifiers.agreement(),
        "parse": verifiers.parsed(),
        "logprob": verifiers.logprob(),
        "self_verify": verifiers.self_verify(ask, replies),
        "judge": verifiers.judge(ask, judge, replies),
        "reflect": verifiers.reflect(ask),
    }
    asked, threshold = getattr(parts.retry, "asks", None), getattr(parts.retry, "threshold", None)
    if asked in checks and threshold is not None:
        checks[asked] = replace(checks[asked], threshold=threshold)
    return checks


def _shown(example: Example, one: "Prediction", lines: Sequence[Line]) -> "Shown":
    """One example of the run's page."""
    from outlay.report.examples import Shown
    from outlay.score.provenance import Link

    public = one.public
    return Shown(
        example=example,
        reply=one.reply,
        spans=[(start, end) for start, end in public["context_spans"]],
        context_tokens=public["context_tokens"],
        lines=lines,
        metrics=public["metrics"],
        answer=public["prediction"] if public["correct"] is not None else None,
        correct=public["correct"],
        links=[Link(*link) for link in public["links"]],
    )


def _params(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Flat options, and each group's choice under the group's own name."""
    values = flat({key: value for key, value in config.items() if key != "sweep"})
    return {**choices, **{key: value for key, value in values.items() if not key.endswith("_target_")}}


def _private(parts: Parts) -> bool:
    """Whether text must stay out of the tracking store."""
    return bool(not parts.tracking.log_text or parts.dataset.credentialed)


def _keep_artifacts(tracked: Any, parts: Parts, folder: Path) -> None:
    """The run's files, as far as it got. Text stays out of the tracking store where the config or the data say so."""
    private = _private(parts)
    for file in FILES:
        path = folder / file
        if not path.is_file() or path.stat().st_size == 0:
            continue
        if private and file in WITH_TEXT:
            log.info("%s stays in %s: its text may not go into the tracking store", file, folder)
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
