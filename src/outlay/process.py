"""Naming a process so that it can be told later whether it still runs: host, number and start."""

import os
import socket


def this_process() -> str:
    """The name of this process. A number alone is used again; with its start it is not."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def alive(process: str) -> bool:
    """Whether a process named by `this_process` still runs; one on another machine counts as running."""
    host, pid, started = process.rsplit(":", 2)
    return host != socket.gethostname() or (started != "" and _started(int(pid)) == started)


def _started(pid: int) -> str:
    """When a process began, "" where there is none."""
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""
