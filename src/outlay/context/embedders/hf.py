"""Dense vectors of any sentence-transformers model; a text is encoded once per content and model."""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from outlay.context.vectors import open_store
from outlay.errors import OutlayError
from outlay.schema import option

if TYPE_CHECKING:
    import numpy as np

_VERSION = "1"  # of `_encode`: raise it when the vector of a text changes


@dataclass(frozen=True)
class HuggingFace:
    """A sentence-transformers model as published; a bare transformer gets mean pooling.

    A text longer than the model's window is encoded in windows, and its vector is their mean weighted by
    tokens (ours): cut off silently, a section would be known by its first half alone.
    """

    model: str = "sentence-transformers/all-MiniLM-L6-v2"  # a hub id or a local folder
    revision: str = "main"
    unit_prefix: str = ""
    query_prefix: str = ""
    batch_size: int = option(32, least=1)
    device: str = option("auto", choices=("auto", "cpu", "cuda", "mps"))

    name: ClassVar[str] = "hf"

    def embed(self, units: Sequence[str], queries: Sequence[str]) -> "tuple[np.ndarray, np.ndarray]":
        """(n, d) and (q, d) float32 rows of length 1, or 0 for a text of white space only.

        Raises:
            OutlayError: the model cannot be loaded, or the store of vectors cannot be written.
        """
        import numpy as np

        texts = [self.unit_prefix + text.strip() if text.strip() else "" for text in units]
        texts += [self.query_prefix + text.strip() if text.strip() else "" for text in queries]
        wanted = [text for text in texts if text]
        rows = np.zeros((len(texts), 1), dtype=np.float32)
        if wanted:
            found = open_store().vectors(
                _fingerprint(self.model, self.revision),
                wanted,
                lambda missing: _encode(
                    _load(self.model, self.revision, self.device), missing, self.batch_size
                ),
            )
            rows = np.zeros((len(texts), found.shape[1]), dtype=np.float32)
            rows[[at for at, text in enumerate(texts) if text]] = found
        return rows[: len(units)], rows[len(units) :]


@cache
def _fingerprint(model: str, revision: str) -> str:
    """What decides the vector of a text, wherever the model's folder lies."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return f"{_VERSION}:{model}@{revision}"
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".safetensors" or file.name in _DECIDING:
            digest.update(f"{file.relative_to(folder)}\0{file.stat().st_size}\0".encode())
            with file.open("rb") as stream:
                while block := stream.read(1 << 22):
                    digest.update(block)
    return f"{_VERSION}:{digest.hexdigest()}"


_DECIDING = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "vocab.txt",
)


@cache
def _load(model: str, revision: str, device: str) -> Any:
    folder = Path(model).expanduser()
    if model.startswith((".", "/", "~")) and not folder.is_dir():
        raise OutlayError(
            f"embedder.model={model}: no such folder. Give a folder with safetensors, or a hub id"
        )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # It reports that a bare transformer gets mean pooling, which is meant.
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    from sentence_transformers import SentenceTransformer

    from outlay.models import quiet

    quiet()
    try:
        return SentenceTransformer(
            str(folder) if folder.is_dir() else model,
            revision=revision,
            device=None if device == "auto" else device,
            model_kwargs={"use_safetensors": True},  # nothing is unpickled
        )
    except (OSError, ValueError, RuntimeError, KeyError, json.JSONDecodeError) as error:
        lines = str(error).strip(" .\n").splitlines() or [type(error).__name__]
        raise OutlayError(
            f"embedder.model={model}: {lines[0]}. Give a local folder with config.json, a tokenizer and "
            "*.safetensors, or use embedder=minilm or embedder=tfidf"
        ) from error


def _encode(model: Any, texts: Sequence[str], batch_size: int) -> "np.ndarray":
    """(n, d) float32 rows of length 1."""
    import numpy as np

    pieces, owners, weights = [], [], []
    for owner, text in enumerate(texts):
        for piece, tokens in _windows(model, text):
            pieces.append(piece)
            owners.append(owner)
            weights.append(tokens)
    encoded = model.encode(
        pieces,
        batch_size=batch_size,
        show_progress_bar=False,
        convert_to_numpy=True,
        normalize_embeddings=True,
    ).astype(np.float32)
    rows = np.zeros((len(texts), encoded.shape[1]), dtype=np.float32)
    np.add.at(rows, owners, encoded * np.asarray(weights, dtype=np.float32)[:, None])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths > 0, lengths, 1)
    return rows


def _windows(model: Any, text: str) -> list[tuple[str, int]]:
    """The text in pieces that fit the model's window, each with its tokens."""
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None or not model.max_seq_length:
        return [(text, 1)]
    room = model.max_seq_length - model.tokenizer.num_special_tokens_to_add()
    offsets = _offsets(backend, text)
    if len(offsets) <= room:
        return [(text, max(1, len(offsets)))]
    cuts = list(range(0, len(offsets), room))
    edges = [0, *(offsets[cut][0] for cut in cuts[1:]), len(text)]
    return [
        (text[start:end], min(room, len(offsets) - cut))
        for start, end, cut in zip(edges[:-1], edges[1:], cuts, strict=True)
        if start < end
    ]


def _offsets(backend: Any, text: str) -> list[tuple[int, int]]:
    # The model's tokenizer cuts and pads; here the whole text counts, so both are off for one call.
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    try:
        return list(backend.encode(text, add_special_tokens=False).offsets)
    finally:
        if truncation:
            backend.enable_truncation(**truncation)
        if padding:
            backend.enable_padding(**padding)
