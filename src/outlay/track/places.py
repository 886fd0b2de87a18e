"""Where SQLite files may lie: its locks do not hold across machines, and on network file systems not surely within one."""

import sys
from pathlib import Path

from outlay.errors import ConfigError

SHARED = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "lustre",
        "gpfs",
        "beegfs",
        "pvfs2",
        "orangefs",
        "panfs",
        "wekafs",
    }
    | {
        "ceph",
        "fuse.ceph",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.gcsfuse",
    }
)
"""Types of file systems that several machines may mount at once."""


def shared_filesystem(path: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that a path lies on; None for a local one.

    mounts: the text of /proc/mounts; None reads it (where there is none, every path counts as local).
    """
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    place, longest, kind = path.absolute().resolve(), -1, ""
    for row in mounts.splitlines():
        _, at, type_, *_ = (*row.split(" "), "", "", "")
        point = Path(at.encode().decode("unicode_escape", errors="replace")) if "\\" in at else Path(at)
        # Of two mounts at one point the later one lies on top.
        if at.startswith("/") and place.is_relative_to(point) and len(point.parts) >= longest:
            longest, kind = len(point.parts), type_
    return kind if kind in SHARED else None


def check_places(uri: str, store: Path, launcher: str, mounts: str | None = None) -> None:
    """Refuse SQLite on a shared file system where the jobs of a launcher would share it; warn of it otherwise.

    Args:
        uri: the tracking store's address; store: the folder of the generation store.

    Raises:
        ConfigError: names the folder, the file system, and the way out.
    """
    if uri.startswith("sqlite:///"):
        place = Path(uri.removeprefix("sqlite:///"))
        kind = shared_filesystem(place, mounts)
        why = f"{place} is SQLite on a shared file system ({kind}), where its locks do not hold"
        out = "Use tracking=server tracking.uri=http://... (docs/sweeps.md says how to start one), or output_dir=<a local disk>"
        if kind and launcher != "basic":
            raise ConfigError(f"tracking.uri with hydra/launcher={launcher}: {why}. {out}")
        if kind:
            print(f"outlay: warning: {why}. {out}", file=sys.stderr)
    kind = shared_filesystem(store, mounts)
    if kind and launcher != "basic":
        raise ConfigError(
            f"OUTLAY_CACHE_DIR with hydra/launcher={launcher}: the generation store in {store} is SQLite on a shared file "
            f"system ({kind}), where its locks do not hold. Set OUTLAY_CACHE_DIR to a folder on a local disk"
        )
