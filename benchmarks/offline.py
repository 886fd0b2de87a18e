"""What `outlay generate` makes a second, by workers: python benchmarks/offline.py [--generator vllm] [--workers 1 2]; and
what the command itself can feed to workers and keep: python benchmarks/offline.py --host

Each number of workers starts on an empty store of its own, with one thread a worker, on the same sums (three samples
each). The start, engines included, stands apart from what follows the first finished batch. Workers on one machine share
its memory bandwidth, which is what decoding waits for: two on two cores make less than twice of one.

--host leaves engines and Ray out: every call gets a fixed reply at once, and what is counted is the time that this process
computes (not what it waits for, so other jobs matter less) to prepare, claim and keep the rows.
"""

import argparse
import os
import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before a library counts the cores; Ray hands it to its workers

from outlay import offline
from outlay.compose import preflight
from outlay.generate import Completion
from outlay.generate.store import Store
from outlay.offline import Answered, Call, Made, Workers, _Work, into_store

MILLION = 1_000_000


def measured(
    generator: str, workers: int, queries: int, seeds: int, batch: int, folder: Path
) -> dict[str, float]:
    words = ["dataset=arithmetic", f"dataset.limit={queries}", "probe=cbe", f"generator={generator}"]
    words += ["seed=" + ",".join(map(str, range(seeds)))]
    points = preflight(words, multirun=True)
    store = Store(folder / f"{workers}.sqlite")
    began = time.perf_counter()
    heard: list[tuple[float, int]] = []
    made = into_store(
        points,
        store,
        Workers(count=workers, batch=batch),
        f"benchmark {workers}",
        lambda calls, rows, tokens: heard.append((time.perf_counter() - began, rows)),
    )
    rows = list(store.export())
    store.close()
    first, last = heard[0][0], heard[-1][0]
    # What came back with the first batch, or at once after it, was made before it.
    before = sum(count for at, count in heard if at - first < 0.5)
    per_row = {
        name: sum(int(str(row[name])) for row in rows) / len(rows)
        for name in ("prompt_tokens", "completion_tokens")
    }
    return {
        "rows": made.rows,
        "start": first,
        "wall": last,
        "rows/s": (made.rows - before) / (last - first) if last > first else float("nan"),
        "prompt": per_row["prompt_tokens"],
        "reply": per_row["completion_tokens"],
    }


HOST = {
    "sums, three samples each": (
        "dataset=arithmetic",
        "dataset.limit={limit}",
        "dataset.count={count}",
        "probe=cbe",
    ),
    "notes, a context selected for each": ("dataset=notes", "dataset.limit={limit}", "dataset.count={count}"),
}
"""What the command prepares, by its overrides. limit: queries; count: what is drawn over all splits."""


def _fixed(calls: Sequence[Call], work: _Work) -> Iterator[list[Answered]]:
    """In the place of workers; the requests travel as they would."""
    for at in range(0, len(calls), work.workers.batch):
        part = calls[at : at + work.workers.batch]
        asked = [pickle.loads(pickle.dumps(call.requests)) for call in part]
        replies = [[Completion("The answer is 4.", 50, 5, "stop") for _ in one] for one in asked]
        yield list(zip(part, replies, [""] * len(part), strict=True))


def hosted(words: Sequence[str], queries: int, folder: Path) -> tuple[int, float]:
    """(rows, seconds that this process computed), after a few queries that load what is loaded once."""
    offline._through = _fixed
    rows, seconds = 0, 0.0
    for limit in (8, queries):
        points = preflight([word.format(limit=limit, count=4 * queries) for word in words], multirun=True)
        store, made = Store(folder / f"{words[0]}-{limit}.sqlite"), Made()
        began = time.process_time()
        offline._generated(list(enumerate(points)), store, Workers(), "host", lambda *_: None, made)
        rows, seconds = made.rows, time.process_time() - began
        assert len(store) == rows and not made.skipped, made.skipped
        store.close()
    return rows, seconds


def host(queries: int, console: Console) -> None:
    table = Table("what is asked", "rows", "computed, s", "rows a second of one core")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in HOST.items():
            rows, seconds = hosted(words, queries, Path(folder))
            table.add_row(name, f"{rows:,}", f"{seconds:.2f}", f"{rows / seconds:,.0f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--generator", default="smollm2")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--host", action="store_true", help="what the command itself can prepare and keep")
    given = parser.parse_args()
    console = Console(width=120)
    if given.host:
        return host(given.queries, console)
    console.print(
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores before; {given.generator}"
    )
    table = Table(
        "workers", "rows", "start, s", "then rows/s", "reply tokens/s", "× one worker", "a million rows, h"
    )
    one = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for workers in given.workers:
            found = measured(given.generator, workers, given.queries, given.seeds, given.batch, Path(folder))
            rate = found["rows/s"]
            one = one or rate
            table.add_row(
                str(workers),
                f"{found['rows']:.0f}",
                f"{found['start']:.0f}",
                f"{rate:.1f}",
                f"{rate * found['reply']:.0f}",
                f"{rate / one:.2f}",
                f"{MILLION / rate / 3600:.1f}",
            )
    console.print(table)
    console.print(
        f"A row: a prompt of {found['prompt']:.0f} tokens (one for three rows), a reply of {found['reply']:.1f}."
    )
    console.print(
        f"load average {os.getloadavg()[0]:.1f} after. Two workers on two cores share the memory bandwidth."
    )


if __name__ == "__main__":
    main()
