"""The GPU against the CPU of one machine: PYTHONPATH=src python benchmarks/gpu.py [--model FOLDER] [--small]

Three things run in each column: the transformers generator, batched selection (selector.engine=torch) and the training of
the inflation predictor. Results are compared, then times; a check that fails ends with exit code 1. The columns are
processes of their own, so that the CPU's sees no GPU. With vLLM installed, it is timed on the same prompts. Without a GPU
the CPU's column runs alone, on small sizes. The whole takes under five minutes.

Weights are random unless --model names some: a Llama of SmolLM2-135M's shape is written to a temporary folder, and nothing
is downloaded. Times are one run after one warm-up.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from selection import BUDGETS, note

from outlay.context import engine
from outlay.context.batch import solve_batch
from outlay.context.selectors.rcd import Rcd
from outlay.generate import Request, Sampling
from outlay.generate.spend import UNLIMITED
from outlay.inflation.cases import Cases
from outlay.inflation.features import FOUR
from outlay.inflation.predictor import Training, train
from outlay.models import quiet
from outlay.score.statistics import auroc

EQUAL_ROWS = 0.9
"""The least share of greedy replies that must be the same in float32: sums round differently, and a near-tie may fall."""
EQUAL_VALUE = 1e-6
"""The largest relative difference between the objectives of two selections that are not the same."""
LONGEST_S = 140
"""Seconds that a column may take."""


@dataclass(frozen=True)
class Sizes:
    layers: int  # of the random model
    rows: int  # prompts
    new_tokens: int
    many_rows: int  # sampled replies for the GPU's throughput in bfloat16
    documents: int
    units: int  # of the longest document
    cases: int
    many_cases: int


FULL = Sizes(30, 64, 32, 1024, 32, 256, 4000, 100_000)
SMALL = Sizes(4, 8, 12, 16, 4, 80, 600, 4000)


@dataclass(frozen=True)
class Timed:
    """One measurement of one column: its name, seconds, what was done per second, and what it found."""

    name: str
    seconds: float
    rate: str
    found: Any


# ---------------------------------------------------------------- what is run


def random_model(folder: Path, layers: int) -> Path:
    """A Llama with random weights, and a tokenizer of bytes whose other tokens all have names of their own."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    quiet()
    size = 49_152
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: at for at, token in enumerate([*letters, "<end>"])}
    vocabulary |= {f"~{at}": at for at in range(len(vocabulary), size)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        initializer_range=0.04,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=vocabulary["<end>"],
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def requests(count: int, new_tokens: int, temperature: float) -> list[Request]:
    """One sample each of prompts of unequal length."""
    rng = np.random.default_rng(0)
    words = np.array("a patient was seen in clinic today with cough fever and no pain at rest".split())  # noqa: SIM905
    texts = [" ".join(rng.choice(words, rng.integers(8, 40))) + f" {at}" for at in range(count)]
    sampling = Sampling(temperature, new_tokens)
    return [Request("benchmark", text, sampling, "attempt", 0, 0) for text in texts]


def replies(generator: Any, asked: Sequence[Request]) -> tuple[list[str], int]:
    """Texts in order, and the tokens generated."""
    texts, tokens = [""] * len(asked), 0
    for batch in generator.generate(asked, UNLIMITED):
        for at, one in batch:
            texts[at] = one.text
            tokens += one.completion_tokens
    return texts, tokens


def generation(model: str, device: str, sizes: Sizes) -> Iterator[Timed]:
    from outlay.generate.transformers import Transformers

    plain = Transformers(model, "benchmark", dtype="float32", device=device)
    for name, temperature in (("greedy", 0.0), ("T = 0.7", 0.7)):
        asked = requests(sizes.rows, sizes.new_tokens, temperature)
        replies(plain, asked[:2])
        start = time.perf_counter()
        texts, tokens = replies(plain, asked)
        spent = time.perf_counter() - start
        yield Timed(
            f"transformers, float32, {name}, {sizes.rows} rows",
            spent,
            f"{tokens / spent:,.0f} tokens/s",
            texts,
        )
    if device == "cuda":
        large = replace(plain, dtype="bfloat16", batch_rows=256, batch_tokens=65_536)
        asked = requests(sizes.many_rows, sizes.new_tokens, 0.7)
        replies(large, asked[:2])
        start = time.perf_counter()
        _, tokens = replies(large, asked)
        spent = time.perf_counter() - start
        yield Timed(
            f"transformers, bfloat16, T = 0.7, {sizes.many_rows} rows",
            spent,
            f"{tokens / spent:,.0f} tokens/s",
            None,
        )


def vllm(model: str, sizes: Sizes) -> Iterator[Timed]:
    """The vLLM generator on the same prompts; its engine starts before the clock does."""
    from outlay.generate.vllm import Vllm

    served = Vllm(model, "benchmark", dtype="bfloat16", gpu_memory_utilization=0.3, max_model_len=2048)
    for name, temperature, rows in (("greedy", 0.0, sizes.rows), ("T = 0.7", 0.7, sizes.many_rows)):
        asked = requests(rows, sizes.new_tokens, temperature)
        replies(served, asked[:2])
        start = time.perf_counter()
        _, tokens = replies(served, asked)
        spent = time.perf_counter() - start
        yield Timed(f"vLLM, bfloat16, {name}, {rows} rows", spent, f"{tokens / spent:,.0f} tokens/s", None)


def selection(device: str, sizes: Sizes) -> Iterator[Timed]:
    """All documents in one padded batch; on the CPU also as a run does it there, compiled and one by one."""
    rcd = Rcd(weights="uniform", bound="online")
    rng = np.random.default_rng(0)
    lengths = [sizes.units, *rng.integers(sizes.units // 2, sizes.units, sizes.documents - 1).tolist()]
    problems = [note(length, seed) for seed, length in enumerate(lengths)]
    documents = [
        (
            rcd.objective(problem),
            problem.costs,
            [budget for budget in BUDGETS if budget < problem.costs.sum()],
        )
        for problem in problems
    ]
    batch = [list(column) for column in zip(*documents, strict=True)]
    solve_batch(*[column[:2] for column in batch], [(), ()])
    start = time.perf_counter()
    solved = solve_batch(*batch, [()] * len(documents))
    spent = time.perf_counter() - start
    found = [[(sorted(map(int, one.order)), one.value) for one in own] for own in solved]
    yield Timed(
        f"selection, torch, {sizes.documents} notes of ≤ {sizes.units} units, {len(BUDGETS)} budgets",
        spent,
        f"{len(documents) / spent:,.1f} notes/s",
        found,
    )
    if device == "cpu" and find_spec("numba"):
        engine.solve(*documents[0], bounded=True, steps=0)
        start = time.perf_counter()
        for document in documents:
            engine.solve(*document, bounded=True, steps=0)
        spent = time.perf_counter() - start
        yield Timed(
            "selection, compiled engine, one note after the other",
            spent,
            f"{len(documents) / spent:,.1f} notes/s",
            None,
        )


def known_cases(count: int, seed: int) -> Cases:
    """Retries of known chance, which the first feature determines."""
    rng = np.random.default_rng(seed)
    entropy = rng.uniform(0, 1.6, count)
    chance = 0.02 + 0.96 * (1 - entropy / 1.6) ** 1.5
    tries = np.minimum(rng.geometric(chance), 6).astype(float)
    noise = (rng.uniform(0.3, 1, count), rng.lognormal(4, 0.5, count), rng.lognormal(5, 0.5, count))
    return Cases(
        features=np.column_stack([entropy, *noise]),
        names=FOUR,
        tier=np.full(count, "small"),
        dataset=np.full(count, "known"),
        inflation=tries,
        solved=tries < 6,
        ids=np.array([f"{seed}-{at}" for at in range(count)]),
    )


def training(device: str, sizes: Sizes) -> Iterator[Timed]:
    test = known_cases(2000, 1)
    for count, batch in ((sizes.cases, 64), (sizes.many_cases, 4096)):
        table, settings = known_cases(count, 0), Training(batch=batch, device=device)
        train(table, replace(settings, epochs=1))
        start = time.perf_counter()
        predictor = train(table, settings)
        spent = time.perf_counter() - start
        epochs = len(predictor.fits["small"].losses)
        yield Timed(
            f"predictor, {count:,} cases, batches of {batch:,}",
            spent,
            f"{1000 * spent / epochs:,.0f} ms/epoch, {epochs} epochs",
            auroc(predictor.predict("small", test.features), test.high, resamples=500),
        )


def column(device: str, model: str, sizes: Sizes) -> list[Timed]:
    """device: cpu, cuda, or vllm for vLLM's part of the GPU's column."""
    if device == "vllm":
        return [*vllm(model, sizes)]
    return [*generation(model, device, sizes), *selection(device, sizes), *training(device, sizes)]


# ---------------------------------------------------------------- how the columns compare


def compared(name: str, cpu: Any, gpu: Any) -> tuple[bool, str]:
    """Whether two columns found the same, and in what sense."""
    if name.startswith("transformers"):
        share = sum(one == other for one, other in zip(cpu, gpu, strict=True)) / len(cpu)
        return share >= EQUAL_ROWS or "greedy" not in name, f"{share:.1%} of replies equal"
    if name.startswith("selection"):
        pairs = [pair for one, other in zip(cpu, gpu, strict=True) for pair in zip(one, other, strict=True)]
        same = sum(ours[0] == theirs[0] for ours, theirs in pairs)
        gap = max(abs(ours[1] - theirs[1]) / abs(ours[1]) for ours, theirs in pairs)
        right = all(
            ours[0] == theirs[0] or abs(ours[1] - theirs[1]) <= EQUAL_VALUE * abs(ours[1])
            for ours, theirs in pairs
        )
        return right, f"{same} of {len(pairs)} sets equal, values within {gap:.0e}"
    (ours, lo, hi), theirs = cpu, gpu[0]
    return abs(ours - theirs) <= (
        hi - lo
    ) / 2, f"AUROC {ours:.4f} and {theirs:.4f}, interval ± {(hi - lo) / 2:.4f}"


def table(cpu: Mapping[str, Timed], gpu: Mapping[str, Timed]) -> tuple[Table, bool]:
    """What both columns measured, and whether every check holds."""
    shown, right = Table("", "CPU", "GPU", "GPU / CPU", "the same?"), True
    for name in dict.fromkeys([*cpu, *gpu]):
        ours, theirs = cpu.get(name), gpu.get(name)
        cells = [f"{one.seconds:.2f} s ({one.rate})" if one else "-" for one in (ours, theirs)]
        ratio, said = "-", "-"
        if ours and theirs and ours.found is not None:
            ratio = f"{ours.seconds / theirs.seconds:.1f}× as fast"
            holds, said = compared(name, ours.found, theirs.found)
            right = right and holds
            said = said if holds else f"[red]NO: {said}"
        shown.add_row(name, *cells, ratio, said)
    return shown, right


def machine() -> str:
    import torch
    import transformers

    there = torch.cuda.is_available()
    device = torch.cuda.get_device_name() if there else "no CUDA device: the CPU's column alone, small sizes"
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}"
    return f"{versions}, {len(os.sched_getaffinity(0))} CPU cores; {device}; vLLM {'there' if find_spec('vllm') else 'not installed'}"


def in_a_process(device: str, model: str, sizes: Sizes, folder: Path) -> dict[str, Timed]:
    """One column, run by this script in a process that sees only its device; empty where that failed, and says so."""
    out = folder / f"{device}.json"
    order = {"device": device, "model": model, "sizes": asdict(sizes), "out": str(out)}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    words = [sys.executable, __file__, "--column", json.dumps(order)]
    try:
        subprocess.run(words, check=True, timeout=LONGEST_S, env={**os.environ, **hidden})
    except subprocess.SubprocessError as error:  # one column must not hide what the others measured
        print(f"the column of {device} failed: {type(error).__name__}", file=sys.stderr)
        return {}
    return {one["name"]: Timed(**one) for one in json.loads(out.read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a folder with safetensors; random weights otherwise")
    parser.add_argument("--small", action="store_true", help="small sizes with a GPU too")
    parser.add_argument("--column", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.column:
        order = json.loads(args.column)
        quiet()
        sizes = Sizes(**order["sizes"])
        found = column(order["device"], order["model"], sizes)
        Path(order["out"]).write_text(json.dumps([asdict(one) for one in found]))
        return

    import torch

    started = time.perf_counter()
    console = Console(width=170)
    console.print(machine())
    there = torch.cuda.is_available()
    sizes = FULL if there and not args.small else SMALL
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = args.model or str(random_model(folder / "model", sizes.layers))
        cpu = in_a_process("cpu", model, sizes, folder)
        gpu = in_a_process("cuda", model, sizes, folder) if there else {}
        if there and find_spec("vllm"):
            gpu |= in_a_process("vllm", model, sizes, folder)
    shown, right = table(cpu, gpu)
    console.print(shown)
    console.print(f"{time.perf_counter() - started:.0f} s in all")
    sys.exit(0 if right and cpu and (gpu or not there) else 1)


if __name__ == "__main__":
    main()
