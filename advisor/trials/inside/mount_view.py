"""The mounts that a path can lead to, from /proc/self/mountinfo. Standard library only: the job waits for it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = Path("/proc/self/mountinfo")
# File systems that hold no data of a user. What a job writes there is about processes and devices, and goes with them.
PSEUDO = frozenset(
    {
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    }
)
AS_THEY_ARE = ("/proc", "/sys", "/dev")  # with all that is mounted below, but for shared memory
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountLine:
    """One line. `options` are the mount's own, not the file system's."""

    number: int
    parent: int
    point: str
    options: frozenset[str]
    fs_type: str
    source: str
    read_only: bool


def parse(text: str) -> list[MountLine]:
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(tail) < 2:
            continue
        own, system = fields[5].split(","), (tail[2] if len(tail) > 2 else "").split(",")
        mounts.append(
            MountLine(
                int(fields[0]),
                int(fields[1]),
                _unescaped(fields[4]),
                frozenset(own),
                tail[0],
                _unescaped(tail[1]),
                read_only="ro" in own or "ro" in system,
            )
        )
    return mounts


def _unescaped(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)


def visible(mounts: list[MountLine]) -> list[MountLine]:
    """Those that a path leads to, parents first: a mount can hide another, by its own place or by one above it."""
    children = defaultdict(list)
    by_number = {mount.number: mount for mount in mounts}
    for mount in mounts:
        if mount.parent != mount.number:
            children[mount.parent].append(mount)

    def is_reached(mount: MountLine) -> bool:
        for sibling in children[mount.parent]:
            if sibling is not mount and is_below(mount.point, sibling.point):
                return False
        parent = by_number.get(mount.parent)
        return parent is None or parent is mount or is_reached(parent)

    def is_covered(mount: MountLine) -> bool:
        return any(child.point == mount.point for child in children[mount.number])

    found = [mount for mount in mounts if not is_covered(mount) and is_reached(mount)]
    return sorted(found, key=lambda mount: parts(mount.point))


def parts(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def is_below(path: str, folder: str) -> bool:
    """True for what lies in the folder, not for the folder itself."""
    return path != folder and path.startswith(folder.rstrip("/") + "/")


def is_within(path: str, folder: str) -> bool:
    return path == folder or is_below(path, folder)
