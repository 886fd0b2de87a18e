"""The content-addressed store of embeddings: a text is embedded once per model and content.

One SQLite file in WAL mode under the cache folder, one transaction per encoded batch, a bounded
in-process cache in front. Vectors are raw little-endian float32; nothing is unpickled.
"""

import hashlib
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from outlay.cache import cache_dir
from outlay.errors import OutlayError

if TYPE_CHECKING:
    import numpy as np

_BATCH = 512  # texts per transaction
_RECENT = 50_000  # vectors kept in memory, 77 MB at d = 384


class VectorStore:
    """Vectors on disk, by sha256 of the model's fingerprint and the text.

    Raises:
        OutlayError: the file cannot be opened, read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recent: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from error

    def vectors(
        self, fingerprint: str, texts: Sequence[str], encode: Callable[[list[str]], "np.ndarray"]
    ) -> "np.ndarray":
        """(n, d) float32 rows of the texts, in order; only texts never seen go to `encode` (k texts -> (k, d))."""
        import numpy as np

        keys = [hashlib.sha256(f"{fingerprint}\0{text}".encode()).digest() for text in texts]
        with self._lock:
            found = self._known(keys)
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
            # Texts of like length together: less padding.
            todo = sorted(missing.items(), key=lambda item: len(item[1]))
            for first in range(0, len(todo), _BATCH):
                part = todo[first : first + _BATCH]
                rows = np.ascontiguousarray(encode([text for _, text in part]), dtype="<f4")
                fresh = {key: row.tobytes() for (key, _), row in zip(part, rows, strict=True)}
                self._keep(fresh)
                found.update(fresh)
            self._remember(found)
        return np.frombuffer(b"".join(found[key] for key in keys), dtype="<f4").reshape(len(keys), -1).copy()

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = {key: self._recent[key] for key in keys if key in self._recent}
        asked = sorted({key for key in keys if key not in found})
        try:
            for first in range(0, len(asked), 500):  # SQLite's limit on variables
                part = asked[first : first + 500]
                marks = ",".join("?" * len(part))
                found.update(
                    self._db.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                )
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return found

    def _keep(self, fresh: dict[bytes, bytes]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", fresh.items())
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._explained(error) from error

    def _remember(self, found: dict[bytes, bytes]) -> None:
        for key, vector in found.items():
            self._recent[key] = vector
            self._recent.move_to_end(key)
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM vectors").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def _explained(self, error: Exception) -> OutlayError:
        return OutlayError(
            f"vector store {self.path}: {error}. Free some room, or set OUTLAY_CACHE_DIR to another folder"
        )


def open_store() -> VectorStore:
    """The store of this machine's cache folder, opened once per process."""
    return _opened(cache_dir() / "vectors.sqlite")


@cache
def _opened(path: Path) -> VectorStore:
    return VectorStore(path)
