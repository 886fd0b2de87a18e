"""What `outlay generate` makes a second, by workers: python benchmarks/offline.py [--generator vllm] [--workers 1 2]

Each number of workers starts on an empty store of its own, with one thread a worker, on the same sums (three samples
each). The start, engines included, stands apart from what follows the first finished batch. Workers on one machine share
its memory bandwidth, which is what decoding waits for: two on two cores make less than twice of one.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before a library counts the cores; Ray hands it to its workers

from outlay.compose import preflight
from outlay.generate.store import Store
from outlay.offline import Workers, into_store

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--generator", default="smollm2")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    given = parser.parse_args()
    console = Console(width=120)
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
