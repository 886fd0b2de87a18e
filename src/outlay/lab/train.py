"""Train the lab's models from a seed: `python -m outlay.lab.train [--tier NAME] [--steps N] [--out DIR]`.

Llama-architecture models over characters, for the questions of `outlay.data.chains` that are not held out. Many of
them are retries: they come after an earlier chain, right or wrong, and the right chain follows. The earlier chain is
a sample of the model itself as it was a while before (its own turn), or one with a wrong step half of the time
(someone else's). One thread and a seeded stream: the same weights each time on one machine.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from outlay.data.chains import held_out, make_question, solve, split_question, step
from outlay.data.draw import Draw
from outlay.generate import Completion, Request, Sampling

CHARACTERS = "0123456789+-*=;?!~"
OWN, OTHERS = "!", "~"  # ends a chain that is shown again: one's own, someone else's
PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ message['content'] }}{%- if message['role'] == 'assistant' -%}" + OWN + "{%- endif -%}"
    "{%- endfor -%}"
)
MAX_STEPS = 5
WINDOW = 192  # a retry at five steps takes up to 155 tokens
BATCH_TOKENS = 3072  # trained on at once, padding included
CHUNK = 1024  # questions sorted by length together
SHORT = 0.2  # share of the batches that hold one and two steps only
RETRIES = 0.4  # share of questions, after that, that come after an earlier chain
POOL = 768  # chains sampled from the model
POOLS = 20  # how often, in equal parts of the training
ATTEMPT = Sampling(temperature=0.7, max_new_tokens=64)


@dataclass(frozen=True)
class Size:
    """One model, and how long it is trained. Heads are 32 wide: the smallest that vLLM runs on a CPU."""

    hidden: int
    inner: int
    layers: int
    heads: int
    steps: int
    rate: float


SIZES = {
    "small": Size(hidden=32, inner=64, layers=2, heads=2, steps=4500, rate=6e-3),
    "medium": Size(hidden=64, inner=128, layers=2, heads=2, steps=2700, rate=4e-3),
    "large": Size(hidden=96, inner=192, layers=3, heads=3, steps=2700, rate=3e-3),
}


def tokenizer() -> Any:
    """One token a character; white space is dropped."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: at for at, token in enumerate([PAD, END, UNKNOWN, *CHARACTERS])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    plain.normalizer = normalizers.Replace(Regex(r"\s"), "")
    plain.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    plain.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        chat_template=TEMPLATE,
        model_max_length=WINDOW,
        clean_up_tokenization_spaces=False,
    )


def new_model(size: Size, seed: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    ends = tokenizer()
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(ends),
            hidden_size=size.hidden,
            intermediate_size=size.inner,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            head_dim=32,
            max_position_embeddings=WINDOW,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=ends.eos_token_id,
            pad_token_id=ends.pad_token_id,
        )
    )


def questions(draw: Draw, most: int) -> Iterator[str]:
    """Questions to train on: one to `most` steps, each as likely, none of them held out."""
    while True:
        question = make_question(draw, draw.between(1, most))
        if not held_out(question):
            yield question


def wrong_chain(draw: Draw, question: str) -> str:
    """The chain of someone who takes one wrong step and goes on from it."""
    value, rest = split_question(question)
    slip = draw.between(0, len(rest) - 1)
    chain = []
    for at, (operation, operand) in enumerate(rest):
        result = step(value, operation, operand)
        if at == slip:
            result = (result + draw.between(1, 99)) % 100
        chain.append(f"{value}{operation}{operand}={result}")
        value = result
    return ";".join(chain)


def retry(question: str, chain: str, mark: str) -> str:
    """The prompt of a question that comes after an earlier chain."""
    return question + chain + mark + question


def stream(draw: Draw, most: int, pool: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(prompt, reply) without end."""
    for question in questions(draw, most):
        kind = draw.uniform(0, 1)
        if pool and kind < RETRIES * 2 / 3:
            question, chain = draw.choice(pool)
            yield retry(question, chain, OWN), solve(question)[0]
        elif pool and kind < RETRIES:
            chain = wrong_chain(draw, question) if draw.chance(0.5) else solve(question)[0]
            yield retry(question, chain, OTHERS), solve(question)[0]
        else:
            yield question, solve(question)[0]


def batches(pairs: Iterator[tuple[str, str]], draw: Draw, ids: dict[str, int]) -> Iterator[tuple[Any, Any]]:
    """Token ids and labels, both (rows, length); rows of like length together. Prompts are not learnt."""
    import torch

    while True:
        chunk = sorted((next(pairs) for _ in range(CHUNK)), key=lambda pair: len(pair[0]) + len(pair[1]))
        rows: list[list[tuple[str, str]]] = [[]]
        for pair in chunk:
            if (len(rows[-1]) + 1) * (len(pair[0]) + len(pair[1]) + 1) > BATCH_TOKENS:
                rows.append([])
            rows[-1].append(pair)
        for batch in draw.shuffled(rows):
            length = max(len(prompt) + len(reply) for prompt, reply in batch) + 1
            tokens = torch.full((len(batch), length), ids[PAD])
            labels = torch.full((len(batch), length), -100)
            for at, (prompt, reply) in enumerate(batch):
                line = torch.tensor([ids[character] for character in prompt + reply] + [ids[END]])
                tokens[at, : len(line)] = line
                labels[at, len(prompt) : len(line)] = line[len(prompt) :]
            yield tokens, labels


def attempts(
    model: Any, prompts: Sequence[str], seed: int, sample: int = 0, rows: int = 512
) -> list[Completion]:
    """One sampled reply a prompt, drawn as the generator draws them."""
    from outlay.generate.transformers import _decode

    words = tokenizer()
    encoded = words.backend_tokenizer.encode_batch(list(prompts), add_special_tokens=False)
    order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    replies: dict[int, Completion] = {}
    for start in range(0, len(order), rows):
        part = order[start : start + rows]
        requests = [Request("lab", prompts[at], ATTEMPT, "attempt", sample, seed) for at in part]
        ids = {prompts[at]: encoded[at].ids for at in part}
        replies.update(zip(part, _decode(model, words, requests, ids), strict=True))
    return [replies[at] for at in range(len(prompts))]


def train(size: Size, seed: int, steps: int, report: int = 0) -> Any:
    """A model after `steps` batches: one or two steps at first, then all lengths, and retries among them."""
    import torch

    torch.set_num_threads(1)
    model = new_model(size, seed)
    ids = tokenizer().get_vocab()
    draw = Draw(f"{seed}:lab")
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.rate, betas=(0.9, 0.98), weight_decay=0.01)
    pool: list[tuple[str, str]] = []
    feed = batches(stream(draw, 2, pool), draw, ids)
    started = time.perf_counter()
    warm_up = int(steps * SHORT)
    for number in range(steps):
        if number == warm_up:
            feed = batches(stream(draw, MAX_STEPS, pool), draw, ids)
        if number >= warm_up and (number - warm_up) % max(1, steps // POOLS) == 0:
            asked = list(islice(questions(draw, MAX_STEPS), POOL))
            pool[:] = [
                (q, reply.text) for q, reply in zip(asked, attempts(model, asked, number), strict=True)
            ]
        rise = min(1.0, (number + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = size.rate * rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * number / steps)))
        tokens, labels = next(feed)
        loss = model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if report and (number + 1) % report == 0:
            right = accuracy(model, 40, seed)
            print(
                f"step {number + 1} loss {loss.item():.4f} {time.perf_counter() - started:.0f} s "
                + " ".join(f"{share:.2f}" for share in right),
                flush=True,
            )
    return model


def accuracy(model: Any, count: int, seed: int) -> list[float]:
    """Share of right answers at 1, 2, ... 5 steps, on `count` held-out questions each."""
    draw = Draw(f"{seed}:accuracy")
    asked = []
    for length in range(1, MAX_STEPS + 1):
        found: list[str] = []
        while len(found) < count:
            question = make_question(draw, length)
            if held_out(question):
                found.append(question)
        asked += found
    replies = attempts(model, asked, seed)
    right = [
        reply.text.rpartition("=")[2] == str(solve(question)[1])
        for question, reply in zip(asked, replies, strict=True)
    ]
    return [sum(right[at : at + count]) / count for at in range(0, len(right), count)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train the lab's models.")
    parser.add_argument("--tier", choices=[*SIZES, "all"], default="all")
    parser.add_argument("--steps", type=int, default=None, help="batches; default: those of the tier")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--report", type=int, default=250, help="batches between two lines of progress")
    parser.add_argument("--check", type=int, default=400, help="questions of each length, asked at the end")
    given = parser.parse_args(arguments)
    for tier in SIZES if given.tier == "all" else [given.tier]:
        size = SIZES[tier]
        model = train(size, given.seed, given.steps or size.steps, given.report)
        folder = given.out / tier
        model.eval().save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        print(
            json.dumps(
                {"tier": tier, "parameters": model.num_parameters(), "right": accuracy(model, given.check, 1)}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
