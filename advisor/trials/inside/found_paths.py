"""Finds what a new root has to treat by itself: entries of folders, sockets and pipes that somebody answers at."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

UNIX_SOCKETS = Path("/proc/net/unix")
_ENTRIES_MAX = 20_000
_SOCKETS_MAX = 500
_MPS_PIPES = "/tmp/nvidia-mps"  # where CUDA looks without CUDA_MPS_PIPE_DIRECTORY


def sockets(listed: Path = UNIX_SOCKETS) -> list[str]:
    """Sockets of services, which only answer at the file that they made: through an overlay a connection is refused."""
    try:
        lines = listed.read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    paths = {fields[7] for line in lines if len(fields := line.split(maxsplit=7)) == 8}
    found = sorted(path for path in paths if path.startswith("/") and _is(path, stat.S_ISSOCK))
    return found[:_SOCKETS_MAX]


def pipes(environment: Mapping[str, str]) -> list[str]:
    """The folder of named pipes through which CUDA reaches NVIDIA's MPS; empty if there is none."""
    path = os.path.realpath(environment.get("CUDA_MPS_PIPE_DIRECTORY", _MPS_PIPES))
    return [path] if _is(path, stat.S_ISDIR) else []


def entries(folder: str) -> list[os.DirEntry[str]]:
    """By name; none of a folder that cannot be read."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def all_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Entries of a folder, level by level, as far as they can be looked at in a moment."""
    waiting, seen = [folder], 0
    while waiting and seen < _ENTRIES_MAX:
        for entry in entries(waiting.pop(0)):
            seen += 1
            yield entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def way_to(path: str) -> list[str]:
    """The folders that lead to a path, and the path itself, without the root."""
    names = [name for name in path.split("/") if name]
    return ["/" + "/".join(names[:count]) for count in range(1, len(names) + 1)]


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False
