"""`outlay store`: what the generation store holds, and moving it about."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from outlay.cache import cache_dir
from outlay.errors import ConfigError
from outlay.generate.store import Store

DAY_S = 86400.0


def store(words: Sequence[str]) -> int:
    """The command's actions: list, export, prune, take."""
    parser = _Parser(prog="outlay store", description="What was generated, each completion once.")
    parser.add_argument(
        "--path", type=Path, default=cache_dir() / "completions.sqlite", help="the store's file"
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="rows and tokens by model")
    export = actions.add_parser("export", help="every row as JSON lines")
    export.add_argument("--out", type=Path, help="a file; else the terminal")
    prune = actions.add_parser(
        "prune", help="delete rows; they are generated, and paid for, again when asked for"
    )
    prune.add_argument("--model", help="only this model's")
    prune.add_argument("--older-than-days", type=float, help="only rows made before that")
    prune.add_argument("--yes", action="store_true", help="do it; else only say what would go")
    take = actions.add_parser(
        "take", help="copy the rows of another store into this one, to move or merge them"
    )
    take.add_argument("file", type=Path)
    given = parser.parse_args(list(words))
    if given.action != "take" and not given.path.is_file():
        raise ConfigError(f"{given.path}: no store yet; it is made by the first run that generates")
    held = Store(given.path)
    try:
        return {"list": _list, "export": _export, "prune": _prune, "take": _take}[given.action](held, given)
    finally:
        held.close()


def _list(held: Store, given: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{held.path} ({held.path.stat().st_size / 1e6:.1f} MB)", title_justify="left")
    table.add_column("model", overflow="fold")
    for heading in ("completions", "tokens", "latest"):
        table.add_column(heading, justify="right")
    for model, rows, tokens, latest in held.models():
        table.add_row(model, f"{rows:,}", f"{tokens:,}", f"{datetime.fromtimestamp(latest):%Y-%m-%d %H:%M}")
    Console().print(table)
    return 0


def _export(held: Store, given: argparse.Namespace) -> int:
    out = given.out.open("w", encoding="utf-8") if given.out else sys.stdout
    count = 0
    try:
        for row in held.export():
            out.write(json.dumps(row) + "\n")
            count += 1
    finally:
        if given.out:
            out.close()
    print(f"{count} completions", file=sys.stderr)
    return 0


def _prune(held: Store, given: argparse.Namespace) -> int:
    if given.model is None and given.older_than_days is None:
        raise ConfigError("outlay store prune: name what may go, --model NAME or --older-than-days N")
    known = [model for model, *_ in held.models()]
    if given.model is not None and given.model not in known:
        raise ConfigError(f"--model {given.model}: no rows of it. Models: {', '.join(known)}")
    before = None if given.older_than_days is None else time.time() - given.older_than_days * DAY_S
    count = held.prune(given.model, before, dry=not given.yes)
    print(f"{count} completions {'deleted' if given.yes else 'would go; add --yes to delete them'}")
    return 0


def _take(held: Store, given: argparse.Namespace) -> int:
    print(f"{held.take(given.file)} completions copied into {held.path}; {given.file} is as it was")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}")
