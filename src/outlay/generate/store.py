"""The content-addressed generation store: a completion is generated once per (model, prompt, sampling, seed, sample).

SQLite in WAL mode, shared by every process of a machine. A row that is being generated is claimed, so no two processes
or threads pay for it; each finished batch is one transaction, so a killed run loses at most the batch in flight. Only answered rows
are kept: an error is never served again as an answer.
"""

import json
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple
from pathlib import Path

from outlay.errors import GenerationError
from outlay.generate import Completion, Failure, Generator, Request, Tally
from outlay.generate.spend import UNLIMITED, Spend
from outlay.process import alive, this_process

VERSION = 1
LEASE_S = 120.0
"""How long a claim stands without a sign of life from its owner, where its process cannot be looked up."""
POLL_S = 0.2
"""How often a row that another claimant is generating is looked for."""
CLAIMANT = "#"
"""Between the process and the claimant in the owner of a claim."""
_left: set[tuple[Path, str]] = set()
"""Stores and owners, of this process, whose claims are still to be given up: on a full disk they stay, and go first later."""

_COLUMNS = (
    "text, prompt_tokens, completion_tokens, finish_reason, cached_tokens, latency_s, logprob, failures"
)
# Rows are appended and found through an index of 32-byte keys: rows kept in the order of random keys would
# touch a page each, and slow down as the store outgrows its cache.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS completions (
    key BLOB NOT NULL, model TEXT NOT NULL, created REAL NOT NULL,
    text TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    finish_reason TEXT NOT NULL, cached_tokens INTEGER NOT NULL, latency_s REAL NOT NULL,
    logprob REAL, failures TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS by_key ON completions (key);
CREATE TABLE IF NOT EXISTS claims (key BLOB PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS accounts (account TEXT PRIMARY KEY, tokens INTEGER NOT NULL, usd REAL NOT NULL);
"""
_INSERT = f"INSERT OR IGNORE INTO completions VALUES ({','.join('?' * 11)})"


class Store:
    """Completions on disk, by key (64 hex digits).

    Raises:
        GenerationError: the file cannot be opened or written (no room, no permission, not a store).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Processes wait for each other's commits rather than fail; threads of one share the connection.
            self._db = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._lock = threading.RLock()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA cache_size=-65536")
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            raise self._explained(error) from error

    def _prepare(self) -> None:
        if self._db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
            return
        with self._transaction():
            if self._db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
                return  # another process was first
            tables = {
                name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type='table'")
            }
            old = "completions" in tables
            if old:  # the first layout, whose rows stood in the order of their keys, as text
                self._db.execute("ALTER TABLE completions RENAME TO old_completions")
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._db.execute(statement)
            if old:
                rows = self._db.execute("SELECT * FROM old_completions").fetchall()
                self._db.executemany(
                    _INSERT, [(bytes.fromhex(key), *rest, None, "[]") for key, *rest in rows]
                )
                self._db.execute("DROP TABLE old_completions")
            self._db.execute(f"PRAGMA user_version={VERSION}")

    def get(self, keys: Sequence[str]) -> dict[str, Completion]:
        """The completions known among the keys."""
        found: dict[str, Completion] = {}
        with self._reading():
            for part in _parts(keys):
                marks = ",".join("?" * len(part))
                query = f"SELECT key, {_COLUMNS} FROM completions WHERE key IN ({marks})"
                for key, *row, failures in self._db.execute(query, part):
                    tried = tuple(Failure(*one) for one in json.loads(failures)) if failures != "[]" else ()
                    text, prompt, completion, reason, cached, latency, logprob = row
                    found[key.hex()] = Completion(
                        text, prompt, completion, reason, cached, latency, logprob=logprob, failures=tried
                    )
        return found

    def put(self, rows: Iterable[tuple[str, str, Completion]]) -> None:
        """Keep (key, model, completion) rows, and end the claims on them, in one transaction."""
        now, kept = time.time(), []
        for key, model, c in rows:
            if not c.error:
                failures = json.dumps([astuple(one) for one in c.failures])
                kept.append(
                    (
                        bytes.fromhex(key),
                        model,
                        now,
                        c.text,
                        c.prompt_tokens,
                        c.completion_tokens,
                        c.finish_reason,
                        c.cached_tokens,
                        c.latency_s,
                        c.logprob,
                        failures,
                    )
                )
        with self._transaction():
            self._db.executemany(_INSERT, kept)
            self._db.executemany("DELETE FROM claims WHERE key=?", [row[:1] for row in kept])

    @contextmanager
    def claiming(self, keys: Sequence[str]) -> Iterator[list[str]]:
        """Those of the keys that are the caller's to generate: neither answered nor claimed by another that lives.

        The claims are kept alive meanwhile, and what is left of them is given up at the end. Each call is a claimant of
        its own, so threads of one process keep out of each other's way as processes do.
        """
        owner = f"{this_process()}{CLAIMANT}{secrets.token_hex(8)}"
        mine = self._claim(keys, owner)
        try:
            with self._beating(owner) if mine else nullcontext():
                yield mine
        finally:
            if mine:
                _left.add((self.path, owner))
                with suppress(GenerationError):  # why the caller ends is told, not this
                    self._give_up()

    def _give_up(self) -> None:
        if over := {one for one in _left.copy() if one[0] == self.path}:
            with self._transaction():
                self._db.executemany("DELETE FROM claims WHERE owner=?", [(owner,) for _, owner in over])
            _left.difference_update(over)

    def _claim(self, keys: Sequence[str], owner: str) -> list[str]:
        self._give_up()
        now, mine = time.time(), []
        with self._transaction():
            answered = set(self.get(keys))
            claims: dict[str, tuple[str, float]] = {}
            for part in _parts(keys):
                marks = ",".join("?" * len(part))
                query = f"SELECT key, owner, until FROM claims WHERE key IN ({marks})"
                claims |= {
                    key.hex(): (other.partition(CLAIMANT)[0], until)
                    for key, other, until in self._db.execute(query, part)
                }
            living = {process: alive(process) for process in {process for process, _ in claims.values()}}
            for key in keys:
                process, until = claims.get(key, ("", 0.0))
                stands = process and living[process] and (until >= now or _is_here(process))
                if key not in answered and not stands:
                    mine.append(key)
            self._db.executemany(
                "INSERT OR REPLACE INTO claims VALUES (?,?,?)",
                [(bytes.fromhex(key), owner, now + LEASE_S) for key in mine],
            )
        return mine

    @contextmanager
    def _beating(self, owner: str) -> Iterator[None]:
        """Renew an owner's claims while their rows are generated."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(LEASE_S / 4):
                # A store that is busy or full for a while: the next beat tries again.
                with suppress(GenerationError), self._transaction():
                    until = time.time() + LEASE_S
                    self._db.execute("UPDATE claims SET until=? WHERE owner=?", (until, owner))

        heart = threading.Thread(target=beat, daemon=True)
        heart.start()
        try:
            yield
        finally:
            ended.set()
            heart.join()

    def spend(
        self, account: str, tokens: int, usd: float, most_tokens: int | None, most_usd: float | None
    ) -> tuple[int, float] | None:
        """Add to an account unless that would pass a limit; then nothing is added, and what is spent is returned."""
        with self._transaction():
            row = self._db.execute("SELECT tokens, usd FROM accounts WHERE account=?", (account,)).fetchone()
            spent_tokens, spent_usd = row or (0, 0.0)
            too_many = most_tokens is not None and spent_tokens + tokens > most_tokens
            too_much = most_usd is not None and spent_usd + usd > most_usd * (1 + 1e-12)
            if too_many or too_much:
                return spent_tokens, spent_usd
            self._db.execute(
                "INSERT OR REPLACE INTO accounts VALUES (?,?,?)",
                (account, spent_tokens + tokens, spent_usd + usd),
            )
        return None

    def spent(self, account: str) -> tuple[int, float]:
        """(tokens, USD) that an account has paid or set aside."""
        with self._reading():
            row = self._db.execute("SELECT tokens, usd FROM accounts WHERE account=?", (account,)).fetchone()
        return row or (0, 0.0)

    def mean_reply(self, model: str) -> float | None:
        """Mean completion tokens of a model's latest thousand rows; None without any."""
        with self._reading():
            query = (
                "SELECT avg(completion_tokens) FROM (SELECT completion_tokens FROM completions WHERE model=? "
                "ORDER BY rowid DESC LIMIT 1000)"
            )
            mean: float | None = self._db.execute(query, (model,)).fetchone()[0]
        return mean

    def models(self) -> list[tuple[str, int, int, float]]:
        """(model, rows, completion tokens, time of the latest row), by model."""
        with self._reading():
            query = (
                "SELECT model, count(*), sum(completion_tokens), max(created) FROM completions GROUP BY model"
            )
            return self._db.execute(query).fetchall()

    def export(self) -> Iterator[dict[str, object]]:
        """Every row, oldest first, as plain values."""
        with self._reading():
            cursor = self._db.execute(
                f"SELECT key, model, created, {_COLUMNS} FROM completions ORDER BY rowid"
            )
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(1000):
                for key, *rest in rows:
                    yield dict(zip(names, (key.hex(), *rest), strict=True))

    def prune(self, model: str | None, before: float | None, dry: bool) -> int:
        """Delete the rows of a model, those made before a time (seconds since 1970), or both; how many there are."""
        where = "(?1 IS NULL OR model=?1) AND (?2 IS NULL OR created<?2)"
        with self._transaction():
            query = f"SELECT count(*) FROM completions WHERE {where}"
            count = int(self._db.execute(query, (model, before)).fetchone()[0])
            if not dry:
                self._db.execute(f"DELETE FROM completions WHERE {where}", (model, before))
        if count and not dry:
            with self._reading():
                self._db.execute("VACUUM")
        return count

    def take(self, other: Path) -> int:
        """Copy every row of another store that this one has not; how many."""
        if not other.is_file():
            raise GenerationError(f"{other}: no such store")
        before = len(self)
        Store(other).close()  # brings it to this layout, or says that it is none
        with self._reading():
            self._db.execute("ATTACH ? AS other", (str(other),))
            try:
                with self._transaction():
                    self._db.execute("INSERT OR IGNORE INTO main.completions SELECT * FROM other.completions")
            finally:
                self._db.execute("DETACH other")
        return len(self) - before

    def __len__(self) -> int:
        with self._reading():
            return int(self._db.execute("SELECT count(*) FROM completions").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reading():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise self._explained(error) from error

    def _explained(self, error: Exception) -> GenerationError:
        return GenerationError(
            f"generation store {self.path}: {error}. Free some room, or set OUTLAY_CACHE_DIR to another folder"
        )


def _is_here(process: str) -> bool:
    """Whether it is a process of this machine, so that being alive is known and needs no sign."""
    return process.rsplit(":", 2)[0] == socket.gethostname()


def _parts(keys: Sequence[str]) -> Iterator[list[bytes]]:
    for first in range(0, len(keys), 500):  # SQLite's limit on variables
        yield [bytes.fromhex(key) for key in keys[first : first + 500]]


def complete(
    requests: Sequence[Request],
    generator: Generator,
    store: Store,
    tally: Tally,
    on_batch: Callable[[int, int], None] = lambda rows, tokens: None,
    spend: Spend = UNLIMITED,
) -> list[Completion]:
    """One completion per request, in order: from the store where known, else generated and kept.

    What is generated is on disk before it is used. What another process or thread is generating is waited for.
    `on_batch(rows, tokens)` is told of every finished batch.
    """
    identities = {tier: generator.identity(tier) for tier in dict.fromkeys(one.tier for one in requests)}
    keys = [request.key(identities[request.tier]) for request in requests]
    by_key = dict(zip(keys, requests, strict=True))
    known = store.get(list(by_key)) if generator.stored else {}
    missing = [key for key in by_key if key not in known]
    started, generated = time.perf_counter(), 0
    while missing:
        with store.claiming(missing) if generator.stored else nullcontext(missing) as mine:
            generated += len(mine)
            wanted = [by_key[key] for key in mine]
            for batch in generator.generate(wanted, spend) if wanted else ():
                if generator.stored:
                    store.put(
                        (mine[at], identities[wanted[at].tier].get("model", ""), completion)
                        for at, completion in batch
                    )
                known |= {mine[at]: completion for at, completion in batch}
                if (
                    generator.stored
                ):  # a row that was taken over may have been first: it is the one that stays
                    known |= store.get([mine[at] for at, _ in batch])
                tokens = sum(completion.completion_tokens for _, completion in batch)
                tally.generated_tokens += tokens if generator.stored else 0  # else nothing is made anew
                on_batch(len(batch), tokens)
        missing = [key for key in missing if key not in known]
        if (
            missing
        ):  # others are generating them: their rows are awaited, or taken over where they end without
            known |= store.get(missing)
            missing = [key for key in missing if key not in known]
            if missing and not mine:
                time.sleep(POLL_S)
    tally.hits += len(keys) - generated if generator.stored else 0
    tally.misses += generated if generator.stored else 0
    tally.seconds += time.perf_counter() - started
    return [known[key] for key in keys]
