"""Tokenizers by the name of their model, loaded once per process."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from outlay.errors import GenerationError
from outlay.generate.weights import model_folder


@cache
def load_tokenizer(model: str) -> Any:
    """The fast tokenizer of a model (folder, hub id or package:NAME).

    Raises:
        GenerationError: it cannot be loaded.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # Outlay has its own; every model comes by here first
    folder = model_folder(model)
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise GenerationError(
            f"tokenizer of {model}: {first}. Give a folder that holds tokenizer.json"
        ) from error


def count_tokens(model: str, texts: Sequence[str]) -> list[int]:
    """Tokens of each text, without special tokens."""
    if not texts:
        return []
    tokenizer = load_tokenizer(model)
    # The Rust tokenizer itself: no per-text Python objects, and no warning above the model's window.
    return [
        len(encoded.ids)
        for encoded in tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    ]
