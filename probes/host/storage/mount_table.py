"""Parses /proc/<pid>/mountinfo, for cgroups and for data."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountEntry:
    device: str  # major:minor
    root: str  # the part of the file system that appears at the mount point
    mount_point: str
    fs_type: str
    source: str
    options: str  # superblock options; cgroup v1 names its controllers here


def parse_mountinfo(text: str) -> tuple[MountEntry, ...]:
    """Entries in the kernel's order: of two entries with the same mount point the later hides the earlier."""
    entries = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if not separator or len(fields) < 5 or len(tail) < 2:
            continue
        options = tail[2] if len(tail) > 2 else ""
        values = (fields[2], fields[3], fields[4], tail[0], tail[1], options)
        entries.append(MountEntry(*(_ESCAPE.sub(lambda m: chr(int(m[1], 8)), value) for value in values)))
    return tuple(entries)
