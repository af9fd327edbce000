"""The bundle for a provider's ticket: what was found, for people and for programs, and the files of the kernel that it was read from."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.probes.host.cgroup.cgroup_paths import find_levels
from rn50_advisor.probes.host.gpu.gpu_xid import logged
from rn50_advisor.probes.host.procfs import read_text
from rn50_advisor.probes.host.storage.mount_table import parse_mountinfo

FILE_BYTES_MAX = 1 << 20
# Counters and descriptions of the machine alone: none of them shows what runs on it, or for whom.
KERNEL_FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/stat",
    "proc/diskstats",
    "proc/loadavg",
    "proc/version",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/self/limits",
    "proc/self/cgroup",
    "proc/driver/nvidia/version",
    "sys/devices/system/cpu/online",
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/sys_vendor",
)
# Files of our own control group and of those above it, wherever they are mounted; the root's contain no quota.
GROUP_FILES = {
    "cpu": ("cpu.max", "cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "io": ("io.max",),
    "blkio": ("blkio.throttle.read_bps_device", "blkio.throttle.read_iops_device"),
}


def write_bundle(output: Path, documents: Mapping[str, str], root: Path = Path("/")) -> None:
    """A .tar.gz that only its owner may read. Raises AdvisorError."""
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in documents.items():
                _add(archive, name, text.encode(errors="replace"))
            for name, data in _kernel_files(root):
                _add(archive, f"kernel/{name}", data)
    except FileExistsError:
        raise UsageError(f"{output} exists", "name another file with --bundle") from None
    except OSError as error:
        raise AdvisorError(f"the bundle {output} could not be written: {error.strerror or error}") from error


def _kernel_files(root: Path) -> Iterator[tuple[str, bytes]]:
    if xids := logged(root):
        yield "xids.txt", "\n".join(xids).encode()[-FILE_BYTES_MAX:]
    for name in (*KERNEL_FILES, *_group_files(root)):
        try:
            with (root / name).open("rb") as file:
                yield name, file.read(FILE_BYTES_MAX)
        except OSError:
            continue  # this kernel or container has none


def _group_files(root: Path) -> Iterator[str]:
    groups = read_text(root / "proc/self/cgroup") or ""
    mounts = parse_mountinfo(read_text(root / "proc/self/mountinfo") or "")
    for controller, names in GROUP_FILES.items():
        levels = find_levels(controller, os.getpid(), groups, mounts, root)
        for directory in dict.fromkeys(levels.directories) if levels else ():
            yield from (f"{directory}/{name}" for name in names)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(f"rn50-advisor-triage/{name}")
    member.size, member.mode = len(data), 0o600
    archive.addfile(member, io.BytesIO(data))
