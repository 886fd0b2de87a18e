"""Tokenizers by the name of their model, loaded once per process."""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from outlay.errors import GenerationError
from outlay.generate.weights import model_folder


@cache
def load_tokenizer(model: str, revision: str = "main") -> Any:
    """The fast tokenizer of a model (folder, hub id or package:NAME).

    Raises:
        GenerationError: it cannot be loaded.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # Outlay has its own; every model comes by here first
    folder = model_folder(model)
    try:
        return AutoTokenizer.from_pretrained(folder, revision=revision)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0].rstrip(".")
        raise GenerationError(
            f"tokenizer of {model}: {first}. Give a folder that holds tokenizer.json"
        ) from error


@cache
def tokenizer_hash(model: str, revision: str = "main") -> str:
    """sha256 over the tokenizer itself: the same weights behind another one are another model."""
    return hashlib.sha256(load_tokenizer(model, revision).backend_tokenizer.to_str().encode()).hexdigest()[
        :16
    ]


def count_tokens(model: str, texts: Sequence[str], revision: str = "main") -> list[int]:
    """Tokens of each text, without special tokens."""
    if not texts:
        return []
    tokenizer = load_tokenizer(model, revision)
    # The Rust tokenizer itself: no per-text Python objects, and no warning above the model's window.
    return [
        len(encoded.ids)
        for encoded in tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ]
