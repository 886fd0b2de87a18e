"""Where caches live: the generation store, converted weights, embeddings."""

import os
from pathlib import Path

from outlay.errors import OutlayError


def cache_dir() -> Path:
    """OUTLAY_CACHE_DIR, else the user's cache folder; made on first use."""
    base = os.environ.get("OUTLAY_CACHE_DIR")
    if base:
        folder = Path(base).expanduser()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outlay"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutlayError(
            f"cache folder {folder}: {error.strerror}. Set OUTLAY_CACHE_DIR to a folder that can be written"
        ) from error
    return folder
