"""Real faults for jobs under test: control groups, a throttled block device, a slow network. Each cleans up after itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

CGROUP = Path("/sys/fs/cgroup")


def need(condition: bool, what: str) -> None:
    if not condition:
        pytest.skip(f"NOT TESTED here: {what}")


def call(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED here: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def _v2() -> bool:
    return (CGROUP / "cgroup.controllers").exists()


def _group(controller: str) -> Path:
    base = CGROUP if _v2() else CGROUP / controller
    need(
        os.geteuid() == 0 and base.is_dir(),
        f"no control group '{controller}' to make (root and cgroup v1 or v2 needed)",
    )
    folder = base / f"rn50-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        if _v2():
            (CGROUP / "cgroup.subtree_control").write_text(f"+{'io' if controller == 'blkio' else controller}")
    except OSError as error:
        pytest.skip(f"NOT TESTED here: control groups cannot be made: {error}")
    return folder


def _remove(group: Path) -> None:
    """A group goes once its processes have: those left are moved out first."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


@contextlib.contextmanager
def cpu_quota(cores: float) -> Iterator[Path]:
    """A control group that may use so many cores; processes move themselves in."""
    group = _group("cpu")
    try:
        quota = int(cores * 100_000)
        if _v2():
            (group / "cpu.max").write_text(f"{quota} 100000")
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        yield group
    finally:
        _remove(group)


@contextlib.contextmanager
def slow_disk(folder: Path, *, megabytes: int, bytes_per_s: int) -> Iterator[tuple[Path, Path]]:
    """(mount point of a disk of its own, control group whose processes read it at this rate)"""
    need(
        os.geteuid() == 0 and all(shutil.which(tool) for tool in ("losetup", "mkfs.ext4", "mount")),
        "loop devices need root",
    )
    image, mounted = folder / "disk.img", folder / "disk"
    image.write_bytes(b"")
    os.truncate(image, megabytes << 20)
    mounted.mkdir()
    call("mkfs.ext4", "-q", "-F", image)
    device = call("losetup", "--find", "--show", image)
    try:
        call("mount", device, mounted)
        try:
            status = Path(device).stat()
            numbers = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
            group = _group("blkio")
            try:
                if _v2():
                    (group / "io.max").write_text(f"{numbers} rbps={bytes_per_s}")
                else:
                    (group / "blkio.throttle.read_bps_device").write_text(f"{numbers} {bytes_per_s}")
                yield mounted, group
            finally:
                _remove(group)
        finally:
            call("umount", mounted)
    finally:
        call("losetup", "-d", device)


def forget_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


@contextlib.contextmanager
def slow_loopback(rate: str) -> Iterator[list[str]]:
    """The prefix of a command that runs it in a network namespace whose `lo` carries this much."""
    need(
        os.geteuid() == 0 and all(shutil.which(tool) for tool in ("ip", "tc")),
        "network namespaces need root, ip and tc",
    )
    name = f"rn50-{uuid.uuid4().hex[:8]}"
    call("ip", "netns", "add", name)
    try:
        inside = ["ip", "netns", "exec", name]
        call(*inside, "ip", "link", "set", "lo", "up")
        call(
            *inside, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"
        )
        yield inside
    finally:
        call("ip", "netns", "delete", name)
