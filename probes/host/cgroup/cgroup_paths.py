"""Finds the directories of a process's cgroup and all its parents, in v1, v2, hybrid and container layouts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rn50_advisor.probes.host.storage.mount_table import MountEntry

SEARCH_DIRECTORIES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Membership:
    """One line of /proc/<pid>/cgroup; v2 lists no controllers there. The path is relative to the reader's cgroup namespace."""

    controllers: tuple[str, ...]
    path: str
    v2: bool


@dataclass(frozen=True, slots=True)
class Levels:
    """Directories (relative to the given root) from the process's own cgroup up to the highest visible one."""

    version: Literal[1, 2]
    directories: tuple[str, ...]


def parse_membership(text: str) -> tuple[Membership, ...]:
    memberships = []
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/"):
            names = tuple(c for c in controllers.split(",") if c)
            memberships.append(Membership(names, path.removesuffix(" (deleted)"), hierarchy == "0" and not names))
    return tuple(memberships)


def membership_for(controller: str, memberships: Iterable[Membership]) -> Membership | None:
    """The v1 hierarchy with the controller, else v2. A controller is in one of the two, never in both."""
    v2 = None
    for membership in memberships:
        if controller in membership.controllers:
            return membership
        if membership.v2:
            v2 = membership
    return v2


def below_mount(path: str, mount_root: str) -> str | None:
    """Path of a cgroup below a mount of its hierarchy; "" for the mount itself, None if the cgroup is outside.

    Both paths are relative to the reader's cgroup namespace and may lead out of it (`/../..`); the parents' names are then unknown.
    """
    parts = [p for p in path.split("/") if p]
    base = [p for p in mount_root.split("/") if p]
    if parts[: len(base)] != base or ".." in parts[len(base) :]:
        return None
    return "/".join(parts[len(base) :])


def mounts_of(membership: Membership, controller: str, mounts: Sequence[MountEntry]) -> list[MountEntry]:
    """Mounts of the hierarchy. Mounts that show the most levels above the process come first."""
    if membership.v2:
        found = [m for m in mounts if m.fs_type == "cgroup2"]
    else:
        found = [m for m in mounts if m.fs_type == "cgroup" and controller in m.options.split(",")]
    return sorted(found, key=lambda m: sum(-1 if p == ".." else 1 for p in m.root.split("/") if p))


def find_levels(controller: str, pid: int, text: str, mounts: Sequence[MountEntry], root: Path) -> Levels | None:
    """The levels of the process's cgroup for a controller; None if the cgroup is not visible from here.

    Tries the path first. The path fails in a container that sees its host's paths but mounts only its own subtree, and for a process of
    another cgroup namespace. Then it searches each mount's `cgroup.procs` files for the pid, which is unambiguous.
    """
    membership = membership_for(controller, parse_membership(text))
    if membership is None:
        return None
    candidates = mounts_of(membership, controller, mounts)
    for mount in candidates:
        below = below_mount(membership.path, mount.root)
        directory = root / mount.mount_point.lstrip("/") / (below or "")
        # not Path.is_dir: it raises if we may not read another user's process root
        if below is not None and os.path.isdir(directory):  # noqa: PTH112
            return _climb(mount, below, v2=membership.v2)
    for mount in candidates:
        below = _search(root / mount.mount_point.lstrip("/"), pid)
        if below is not None:
            return _climb(mount, below, v2=membership.v2)
    return None


def _climb(mount: MountEntry, below: str, *, v2: bool) -> Levels:
    top = mount.mount_point.strip("/")
    parts = below.split("/") if below else []
    directories = tuple("/".join([top, *parts[:depth]]) for depth in range(len(parts), -1, -1))
    return Levels(2 if v2 else 1, directories)


def _search(top: Path, pid: int) -> str | None:
    wanted = str(pid)
    for count, (directory, names, _) in enumerate(os.walk(top)):
        if count >= SEARCH_DIRECTORIES_MAX:
            break
        names.sort()
        try:
            pids = Path(directory, "cgroup.procs").read_text().split()
        except OSError:
            continue
        if wanted in pids:
            below = os.path.relpath(directory, top)
            return "" if below == "." else below
    return None
