"""One vLLM server for all processes of a machine that ask for the same model in the same way.

A file in the cache says which server runs and which processes use it. Who comes first starts it, and the last to leave
ends it. A process that is killed cannot leave: a watch, started beside it, leaves in its place.
"""

import atexit
import hashlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.cache import cache_dir
from outlay.errors import GenerationError

if TYPE_CHECKING:
    import psutil

START_S = 1800.0
"""The longest that a server may take to load its model."""
END_S = 10.0
"""How long a server may take to end by itself before it is killed."""
WATCH_S = 0.5
"""How often a watch looks after its process."""

WAYS_OUT = (
    (
        r"less than desired|free memory on device",
        "lower generator.gpu_memory_utilization, or set generator.kv_cache_gib",
    ),
    (
        r"kv cache|cache blocks",
        "raise generator.kv_cache_gib (or generator.gpu_memory_utilization), or lower generator.max_model_len",
    ),
    (r"max_model_len", "lower generator.max_model_len"),
    (
        r"out of memory|can't allocate memory",
        "lower generator.gpu_memory_utilization or generator.max_num_seqs",
    ),
    (r"address already in use", "set generator.port=0 for a free one"),
    (r"torchvision|torchaudio|torchcodec", "run: pip uninstall -y torchvision torchaudio torchcodec"),
    (r"world.size|tensor.parallel|local rank|local cpuworkers", "lower generator.tensor_parallel_size"),
)
"""What vLLM says when it does not start (a pattern, in lower case), and what to do."""

Ident = tuple[int, float]
"""A process: its number, and when it began, since a number alone is used again."""
SAME_S = 5.0
"""How far apart two looks at a process may see it begin: the clock may have been set in between."""


@dataclass(frozen=True)
class Server:
    key: str
    model: str
    url: str
    process: Ident  # the leader of its own process group
    users: tuple[Ident, ...]

    @property
    def file(self) -> Path:
        return _folder() / f"{self.key}.json"

    @property
    def log(self) -> Path:
        return _folder() / f"{self.key}.log"

    def write(self) -> "Server":
        work = self.file.with_suffix(".part")
        work.write_text(json.dumps(asdict(self)))
        work.replace(self.file)
        return self


def join(model: str, args: Mapping[str, Any], port: int) -> str:
    """The address of the server with these arguments, started if need be; this process uses it until it ends.

    Raises:
        GenerationError: it does not start.
    """
    key = hashlib.sha256(json.dumps([model, args, port], sort_keys=True).encode()).hexdigest()[:12]
    me = _me()
    known = _joined.get((me[0], key))
    if known and _alive(known.process):
        return known.url
    if me[0] not in _watches:
        _watches[me[0]] = watch("leave")
        atexit.unregister(leave)
        atexit.register(leave)
    with _lock():
        server = next((one for one in running() if one.key == key), None)
        for other in running():
            if other.key != key and not living_users(other):
                _end(other)
        if server is None or not _alive(server.process):
            if server:
                _end(server)
            server = _start(key, model, args, port, me)
        else:
            server = replace(server, users=(*_others(server), me)).write()
        _wait(server)
    _joined[me[0], key] = server
    return server.url


_joined: dict[tuple[int, str], Server] = {}  # by process too: a fork has not joined
_watches: dict[int, "subprocess.Popen[bytes]"] = {}  # by process


def leave() -> None:
    """This process uses no server any more; those without a user are ended."""
    _joined.clear()
    with _lock():
        for server in running():
            left = _others(server)
            if left:
                replace(server, users=left).write()
            else:
                _end(server)
    if watching := _watches.pop(os.getpid(), None):
        unwatch(watching)


def running() -> list[Server]:
    """The servers that this machine's processes have started and not ended, orphans included."""
    found = []
    for file in sorted(_folder().glob("*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            raw = json.loads(file.read_text())
            process, users = tuple(raw["process"]), tuple(tuple(one) for one in raw["users"])
            found.append(Server(**{**raw, "process": process, "users": users}))
    return found


def explained(model: str, error: Exception | None, log: Path | None) -> str:
    """Why vLLM ended, in one line: the first error in its log, else the exception; and the way out."""
    text = log.read_text(errors="replace") if log and log.is_file() else ""
    said = re.findall(r"\b(?:[A-Z]\w*Error|OutOfMemory\w*): *(.+)", text)
    said += [f"{type(error).__name__}: {error}"] if error else ["it ended without a word"]
    known = [(one, way) for one in said for pattern, way in WAYS_OUT if re.search(pattern, one.lower())]
    reason, way = known[0] if known else (said[0], "")
    where = f". Its log: {log}" if text else ""
    return f"vLLM with generator.model={model}: {_plain(reason)}{way and f'; {way}'}{where}"


def _plain(said: str) -> str:
    """The first sentence of an error, in one line."""
    return re.split(r"\.\s", " ".join(said.split()))[0][:300].rstrip(".")


def _start(key: str, model: str, args: Mapping[str, Any], port: int, me: Ident) -> Server:
    port = port or _free_port()
    flags = [*_flags(args), "--served-model-name", model, "--host", "127.0.0.1", "--port", str(port)]
    # Not the script `vllm serve`: in the CPU builds it looks for a package by the name of vllm.
    module = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    print("Starting a vLLM server ...", file=sys.stderr, flush=True)
    with (_folder() / f"{key}.log").open("wb") as log:
        process = subprocess.Popen(
            [*module, *flags, "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal reaches its users, who end it when they have ended
            env={"VLLM_NO_USAGE_STATS": "1", **os.environ},  # nothing is reported to anyone
        )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it does not stay as a zombie
    began = _ident(process.pid) or (process.pid, time.time())
    return Server(key, model, f"http://127.0.0.1:{port}/v1", began, (me,)).write()


def _flags(args: Mapping[str, Any]) -> Iterator[str]:
    for name, value in args.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield from (f"--{flag}", str(value))


def _wait(server: Server) -> None:
    """Until it answers. A server that ends instead, or a wait that is broken off, leaves nothing behind."""
    until = time.monotonic() + START_S
    try:
        while not _answers(server):
            if not _alive(server.process):
                raise GenerationError(explained(server.model, None, server.log))
            if time.monotonic() > until:
                raise GenerationError(
                    f"vLLM with generator.model={server.model}: no answer from {server.url} after "
                    f"{START_S:.0f} s. Its log: {server.log}"
                )
            time.sleep(0.2)
    except BaseException as error:
        _end(server, keep_log=isinstance(error, GenerationError))
        raise


def _answers(server: Server) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
    try:
        with opener.open(server.url.removesuffix("/v1") + "/health", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def _end(server: Server, keep_log: bool = False) -> None:
    """End its whole process group: the engine's processes hold the memory."""
    group = _group(server.process)
    leader = [one for one in group if one.pid == server.process[0]]
    _send("terminate", leader or group)  # the leader ends the others in order
    _await_end(server.process)
    _send("kill", _group(server.process))
    _await_end(server.process)
    server.file.unlink(missing_ok=True)
    if not keep_log:
        server.log.unlink(missing_ok=True)


def _group(leader: Ident) -> list["psutil.Process"]:
    """The living processes of a group, also of one whose leader is gone."""
    import psutil

    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if (
                os.getpgid(one.pid) == leader[0]
                and one.create_time() > leader[1] - SAME_S
                and one.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(one)
    return found


def _send(what: str, processes: Iterable["psutil.Process"]) -> None:
    import psutil

    for one in processes:
        with suppress(psutil.Error):
            getattr(one, what)()


def _await_end(leader: Ident) -> None:
    until = time.monotonic() + END_S
    while _group(leader) and time.monotonic() < until:
        time.sleep(0.1)


def living_users(server: Server) -> tuple[Ident, ...]:
    """Those of its users that live."""
    return tuple(one for one in server.users if _alive(one))


def _others(server: Server) -> tuple[Ident, ...]:
    return tuple(one for one in living_users(server) if one[0] != os.getpid())


def _me() -> Ident:
    me = _ident(os.getpid())
    assert me is not None
    return me


def _ident(pid: int) -> Ident | None:
    import psutil

    try:
        return pid, psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _alive(one: Ident) -> bool:
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(one[0])
        same = abs(process.create_time() - one[1]) < SAME_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    return False


# ---------------------------------------------------------------- the watch


def watch(what: str) -> "subprocess.Popen[bytes]":
    """A process that ends what is left of vLLM, should this one be killed.

    An engine does not notice that its parent is gone, and would hold its memory for good.

    what: leave (the servers that this process uses), or engine (the children that it starts until `settled`).
    """
    (pid, began), package = _me(), Path(__file__).parents[2]
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", __name__, what, str(pid), str(began)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # it outlives Ctrl-C, to see whether the others do
        env={**os.environ, "PYTHONPATH": path},
    )


def settled(watching: "subprocess.Popen[bytes]") -> None:
    """The engine stands: from here on this process's new children are none of vLLM's."""
    assert watching.stdin
    with suppress(OSError):  # said, not by closing alone: the engine may have been forked with this pipe open
        watching.stdin.write(b"\n")
        watching.stdin.flush()


def unwatch(watching: "subprocess.Popen[bytes]") -> None:
    watching.kill()
    with watching:  # its pipe is closed, its end is waited for
        pass


def _watch(what: str, owner: Ident) -> None:
    import psutil

    engine: set[Ident] = set()
    starting = what == "engine"
    mine = psutil.Process()
    while _alive(owner):
        if not starting:
            time.sleep(WATCH_S)
            continue
        starting = not select.select([sys.stdin], [], [], WATCH_S)[0]
        with suppress(psutil.Error):
            for child in psutil.Process(owner[0]).children(recursive=True):
                if child != mine and child.create_time() >= mine.create_time():
                    engine.add((child.pid, child.create_time()))
    for pid, _ in filter(_alive, engine):
        with suppress(psutil.Error):
            psutil.Process(pid).kill()
    leave()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _folder() -> Path:
    """This machine's: the cache may lie on a disk that others share, and loopback is each one's own."""
    folder = cache_dir() / "vllm" / socket.gethostname()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _lock() -> Iterator[None]:
    from filelock import FileLock

    with FileLock(_folder() / "lock"):
        yield


if __name__ == "__main__":
    _watch(sys.argv[1], (int(sys.argv[2]), float(sys.argv[3])))
