"""Every test has its own cache and output folder, unless it asks for the real weights."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared() -> Path:
    """The folder of real data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data is not here")
    return SHARED


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty generation store; converted weights are taken from the user's cache."""
    from outlay.cache import cache_dir

    weights = cache_dir() / "weights"
    weights.mkdir(exist_ok=True)
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "weights").symlink_to(weights)
    monkeypatch.setenv("OUTLAY_CACHE_DIR", str(folder))
    return folder
