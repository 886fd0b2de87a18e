"""Progress that a person can read: a bar with throughput in a terminal, elsewhere a line now and then."""

import sys
import time
from types import TracebackType
from typing import Any, Self

EVERY = 20
"""Seconds between two plain lines."""


class Progress:
    """One run's bar: queries finished, tokens generated a second. Silent where not verbose."""

    def __init__(self, title: str, total: int | None, verbose: bool) -> None:
        self._bar: Any = None
        self._title, self._total = title, total
        self._shown = verbose and sys.stderr.isatty()
        self._plain = verbose and not self._shown
        self._tokens = self._finished = 0
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
                TextColumn("queries"),
                TextColumn("{task.fields[rate]}", style="dim"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=self._total, rate="")
            self._bar.start()
        return self

    def __call__(self, finished: int, rows: int, tokens: int) -> None:
        """Told by the executor: queries finished, samples and tokens generated since the last call."""
        self._tokens += tokens
        self._finished += finished
        now = time.perf_counter()
        if self._plain and now - self._said > EVERY:
            self._said = now
            of = f" of {self._total}" if self._total else ""
            speed = self._tokens / (now - self._started)
            print(
                f"  {self._title}: {self._finished}{of} queries, {speed:.0f} tokens/s",
                file=sys.stderr,
                flush=True,
            )
        if self._bar is not None:
            seconds = time.perf_counter() - self._started
            rate = f"{self._tokens / seconds:.0f} tokens/s" if self._tokens else ""
            self._bar.update(self._task, advance=finished, rate=rate)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
