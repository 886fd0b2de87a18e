"""Progress that a person can read: a bar with throughput in a terminal, elsewhere a line now and then."""

import sys
import time
from types import TracebackType
from typing import Any, Self

EVERY = 20
"""Seconds between two plain lines."""


class Progress:
    """One bar: what has finished, completions and reply tokens generated. Silent where not verbose.

    counts: what is finished, queries or completions.
    """

    def __init__(self, title: str, total: int | None, verbose: bool, counts: str = "queries") -> None:
        self._bar: Any = None
        self._title, self._total, self._counts = title, total, counts
        self._shown = verbose and sys.stderr.isatty()
        self._plain = verbose and not self._shown
        self._tokens = self._finished = self._rows = 0
        self._said = time.perf_counter()
        self._started = time.perf_counter()

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn(self._counts),
                TextColumn("{task.fields[rate]}", style="dim"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=self._total, rate="")
            self._bar.start()
        return self

    def __call__(self, finished: int, rows: int, tokens: int) -> None:
        """Told by the executor: what has finished, completions and their tokens generated, since the last call."""
        self._tokens += tokens
        self._rows += rows
        self._finished += finished
        now = time.perf_counter()
        if self._plain and now - self._said > EVERY:
            self._said = now
            of = f" of {self._total}" if self._total else ""
            print(
                f"  {self._title}: {self._finished}{of} {self._counts}, {self._made(now)}",
                file=sys.stderr,
                flush=True,
            )
        if self._bar is not None:
            self._bar.update(
                self._task, advance=finished, rate=self._made(time.perf_counter()) if self._tokens else ""
            )

    def of(self, total: int) -> None:
        """How many there will be, where it was not known at the start."""
        self._total = total
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def _made(self, now: float) -> str:
        """Queries may finish long after their first completions, so those are counted beside them."""
        rows = f"{self._rows} completions, " if self._counts != "completions" else ""
        return f"{rows}{self._tokens / (now - self._started):.0f} reply tokens/s"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
