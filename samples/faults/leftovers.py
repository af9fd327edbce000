"""Removes what a killed run could not remove itself: processes, control groups, namespaces, mounts, loop devices, folders."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from rn50_advisor.advisor.run.rings import own_folder
from rn50_advisor.advisor.run.rings.own_folder import remove_tree
from samples.faults.fixtures import CGROUP, NAME, call, remove_group, unified
from samples.faults.scenario import CannotBeMade

OWNER = "RN50_FAULTS_OWNER"  # in the environment of every process that a run starts, even after reparenting
_OLD_S = 86_400.0  # no run takes that long
_LAYERS = 2  # a disk on top of another one is removed first
_MAKER = re.compile(rf"{NAME}(\d+)-")


def end_processes(owner: int) -> list[str]:
    """Kills the processes that run `owner` started and that still run; returns their commands."""
    left = [process for process in psutil.process_iter() if _owner(process) == owner]
    commands = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            commands.append(" ".join(process.cmdline()))
            process.kill()
    psutil.wait_procs(left, timeout=10)
    return commands


def _owner(process: psutil.Process) -> int | None:
    """PID of the run that started this process; None if there is none, and in a container, where the PID means another process."""
    if process.pid == os.getpid():
        return None
    try:
        here = Path("/proc/self/ns/pid").readlink() == Path(f"/proc/{process.pid}/ns/pid").readlink()
        return int(process.environ().get(OWNER, "")) if here else None
    except (psutil.Error, ValueError, OSError):
        return None


def sweep(folder: Path) -> list[str]:
    """Removes what ended runs have left; returns names of what it removed. `folder`: holds the working folders of runs."""
    swept = []
    for owner in {_owner(process) for process in psutil.process_iter()}:
        if owner is not None and not psutil.pid_exists(owner):
            swept += end_processes(owner)
    for _ in range(_LAYERS):
        for mounted in reversed(_mounts(folder)):
            swept += _tried(str(mounted), "umount", mounted)
        for device, backing in _loop_devices():
            if Path(backing).is_relative_to(folder) and _is_stale(backing):
                swept += _tried(device, "losetup", "-d", device)
    for group in _groups():
        with contextlib.suppress(OSError):
            remove_group(group)
            swept.append(str(group))
    for name in _stale(_namespaces()):
        swept += _tried(name, "ip", "netns", "delete", name)

    def remove(place: int, name: str, left: int) -> bool:
        swept.append(name)
        return remove_tree(place, name, left)

    own_folder.sweep(folder, NAME, remove, other_boots_after_s=_OLD_S)
    return swept


def _tried(what: str, *command: object) -> list[str]:
    try:
        call(*command)
    except CannotBeMade:
        return []
    return [what]


def _is_stale(name: str) -> bool:
    maker = _MAKER.search(name)
    return maker is not None and not psutil.pid_exists(int(maker[1]))


def _stale(names: Iterable[str]) -> list[str]:
    return [name for name in names if _is_stale(name)]


def _mounts(folder: Path) -> list[Path]:
    mounted = [Path(line.split()[1]) for line in Path("/proc/mounts").read_text().splitlines()]
    return [path for path in mounted if path.is_relative_to(folder) and _is_stale(str(path))]


def _loop_devices() -> Iterator[tuple[str, str]]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            yield f"/dev/{backing.parts[3]}", backing.read_text().strip()


def _groups() -> list[Path]:
    folders = [CGROUP] if unified() else [CGROUP / controller for controller in ("cpu", "blkio", "memory")]
    return [group for base in folders for group in base.glob(f"{NAME}*") if _is_stale(group.name)]


def _namespaces() -> list[str]:
    if shutil.which("ip") is None:
        return []
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return [line.split()[0] for line in shown.splitlines() if line.strip()]
