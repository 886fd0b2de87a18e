"""The command line, started as a user starts it: a process of its own, which a test may kill with all that it started."""

import os
import subprocess
import sys
from pathlib import Path


def command(cwd: Path, cache: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "outlay", *words],
        cwd=cwd,
        env={**os.environ, "OUTLAY_CACHE_DIR": str(cache), "COLUMNS": "150"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    """What it printed, once it has ended well."""
    out, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    return out
