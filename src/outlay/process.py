"""Processes: how one is named so that it can be told later whether it still runs, by host, number and start; how one ends."""

import os
import signal
import socket


def this_process() -> str:
    """The name of this process. A number alone is used again; with its start it is not."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def alive(process: str) -> bool:
    """Whether a process named by `this_process` still runs; one on another machine counts as running."""
    host, pid, started = process.rsplit(":", 2)
    return host != socket.gethostname() or (started != "" and _started(int(pid)) == started)


def sigterm_interrupts() -> None:
    """From here on SIGTERM ends this process as Ctrl-C does: runs are KILLED, and nothing is lost."""

    def terminated(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminated)


def _started(pid: int) -> str:
    """When a process began, "" where there is none."""
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""
