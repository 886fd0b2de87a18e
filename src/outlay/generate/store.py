"""The content-addressed generation store: a completion is generated once per (model, prompt, sampling, seed, sample).

SQLite in WAL mode; each finished batch is one transaction, so a killed run loses at most the batch in flight.
Only answered rows are kept: an error is never served again as an answer.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from outlay.errors import GenerationError
from outlay.generate import Completion, Generator, Request, Tally

_COLUMNS = "text, prompt_tokens, completion_tokens, finish_reason, cached_tokens, latency_s"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS completions (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, created REAL NOT NULL,
    text TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    finish_reason TEXT NOT NULL, cached_tokens INTEGER NOT NULL, latency_s REAL NOT NULL
) WITHOUT ROWID
"""


class Store:
    """Completions on disk, by key.

    Raises:
        GenerationError: the file cannot be opened or written (no room, no permission, not a store).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Executors wait for each other's commits rather than fail.
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from error

    def get(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The completions known among the keys."""
        found: dict[str, Completion] = {}
        try:
            for first in range(0, len(keys), 500):  # SQLite's limit on variables
                part = keys[first : first + 500]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, {_COLUMNS} FROM completions WHERE key IN ({marks})"
                for key, *row in self._db.execute(query, part):
                    found[key] = Completion(*row)
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return found

    def put(self, rows: Iterable[tuple[str, str, Completion]]) -> None:
        """Keep (key, model, completion) rows in one transaction."""
        now = time.time()
        values = [
            (
                key,
                model,
                now,
                c.text,
                c.prompt_tokens,
                c.completion_tokens,
                c.finish_reason,
                c.cached_tokens,
                c.latency_s,
            )
            for key, model, c in rows
            if not c.error
        ]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR IGNORE INTO completions VALUES (?,?,?,?,?,?,?,?,?)", values)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._explained(error) from error

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM completions").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def _explained(self, error: Exception) -> GenerationError:
        return GenerationError(
            f"generation store {self.path}: {error}. Free some room, or set OUTLAY_CACHE_DIR to another folder"
        )


def complete(
    requests: Sequence[Request],
    generator: Generator,
    store: Store,
    tally: Tally,
    on_batch: Callable[[int, int], None] = lambda rows, tokens: None,
) -> list[Completion]:
    """One completion per request, in order: from the store where known, else generated and kept.

    What is generated is on disk before it is used. `on_batch(rows, tokens)` is told of every finished batch.
    """
    identities: dict[str, Mapping[str, str]] = {}
    for request in requests:
        if request.tier not in identities:
            identities[request.tier] = generator.identity(request.tier)
    keys = [request.key(identities[request.tier]) for request in requests]
    known = store.get(sorted(set(keys))) if generator.stored else {}
    missing = {key: at for at, key in reversed(list(enumerate(keys))) if key not in known}
    wanted = [requests[at] for at in missing.values()]
    wanted_keys = list(missing)
    tally.hits += len(keys) - len(wanted)
    tally.misses += len(wanted)
    started = time.perf_counter()
    for batch in generator.generate(wanted) if wanted else ():
        if generator.stored:
            store.put(
                (wanted_keys[at], identities[wanted[at].tier].get("model", ""), completion)
                for at, completion in batch
            )
            # Another process may have been first: its row is the one that stays, and the one that is used.
            known |= store.get([wanted_keys[at] for at, _ in batch])
        for at, completion in batch:
            known.setdefault(wanted_keys[at], completion)
        tokens = sum(completion.completion_tokens for _, completion in batch)
        tally.generated_tokens += tokens
        on_batch(len(batch), tokens)
    tally.seconds += time.perf_counter() - started
    return [known[key] for key in keys]
