"""Where caches live: the generation store, converted weights, embeddings."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """OUTLAY_CACHE_DIR, else the user's cache folder; made on first use."""
    base = os.environ.get("OUTLAY_CACHE_DIR")
    if base:
        folder = Path(base).expanduser()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlay"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
