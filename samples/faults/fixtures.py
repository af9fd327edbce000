"""Circumstances outside a job: quotas, neighbours, a slow disk, a slow network, little memory. Each undoes itself.

Everything they create is named after this process (NAME), so that a later run can remove what a killed one left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.probes.host.topology import host_facts, slow_denormals
from samples.faults.scenario import CannotBeMade, Conditions

CGROUP = Path("/sys/fs/cgroup")
NAME = "rn50-faults-"
# Child processes die with this one, however it dies.
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
_OTHERS_BYTES = 64 << 20
_DISK_READER = Path(__file__).parent / "disk_reader.py"
_ENTER = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'


def own_name() -> str:
    return f"{NAME}{os.getpid()}-{uuid.uuid4().hex[:8]}"


def need(condition: bool, what: str) -> None:
    if not condition:
        raise CannotBeMade(what)


def need_tools(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    need(os.geteuid() == 0, "root is needed")
    need(not missing, f"{', '.join(missing)} not installed")


def call(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def undo(*command: object) -> None:
    """Runs a clean-up command. Raises CalledProcessError if it fails, not CannotBeMade: something would be left behind."""
    subprocess.run(list(map(str, command)), capture_output=True, check=True)


def unified() -> bool:
    """True if control groups are of version 2."""
    return (CGROUP / "cgroup.controllers").exists()


@contextlib.contextmanager
def control_group(controller: str) -> Iterator[Path]:
    base = CGROUP if unified() else CGROUP / ("blkio" if controller == "io" else controller)
    need(
        os.geteuid() == 0 and base.is_dir(), f"no control group '{controller}' to make: root and cgroup v1 or v2 needed"
    )
    group = base / own_name()
    try:
        if unified():
            (base / "cgroup.subtree_control").write_text(f"+{controller}")
        group.mkdir()
    except OSError as error:
        raise CannotBeMade(f"control groups cannot be made: {error}") from error
    try:
        yield group
    finally:
        remove_group(group)


def remove_group(group: Path) -> None:
    """Removes the group. Moves its remaining processes to the parent first, because a group with processes cannot be removed."""
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(pid)
    group.rmdir()


def limit(file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except OSError as error:
        raise CannotBeMade(f"{file.name} cannot be set to {value!r}: {error}") from error


def entering(group: Path) -> tuple[str, ...]:
    """Returns a command prefix that runs the command after it inside the group."""
    return ("sh", "-c", _ENTER, "sh", str(group))


@dataclass(frozen=True, slots=True)
class NvidiaGpu:
    """Requires an NVIDIA GPU and changes nothing."""

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need(any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg")), "no NVIDIA GPU in this machine")
        yield Conditions()


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """A CPU quota of `cores` cores for the whole container (`everybody`), or for processes that move into `{group}`."""

    cores: float
    everybody: bool = True

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        with control_group("cpu") as group:
            quota_us = int(self.cores * 100_000)
            if unified():
                limit(group / "cpu.max", f"{quota_us} 100000")
            else:
                limit(group / "cpu.cfs_period_us", "100000")
                limit(group / "cpu.cfs_quota_us", str(quota_us))
            yield Conditions(container=entering(group) if self.everybody else (), values={"group": str(group)})


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Limits the job's memory; the kernel's OOM killer does the rest."""

    megabytes: int

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        with control_group("memory") as group:
            limit(group / ("memory.max" if unified() else "memory.limit_in_bytes"), str(self.megabytes << 20))
            yield Conditions(prefix=entering(group))


@dataclass(frozen=True, slots=True)
class WarmLibraries:
    """Loads the job's libraries into the page cache, so that a MemoryLimit does not count them: pages belong to their first reader."""

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        call(sys.executable, "-c", "import torch")
        yield Conditions()


@dataclass(frozen=True, slots=True)
class Burners:
    """Neighbours: processes that keep `cores` cores busy."""

    cores: int = 1

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need(shutil.which(ENDS_WITH_US[0]) is not None, f"{ENDS_WITH_US[0]} not installed")
        command = [*ENDS_WITH_US, sys.executable, "-c", "while True: pass"]
        with contextlib.ExitStack() as stack:
            for _ in range(self.cores):
                stack.callback(end_process, subprocess.Popen(command, start_new_session=True))
            yield Conditions()


def end_process(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def loop_disk(folder: Path, name: str, size_bytes: int, *, direct: bool = False) -> Iterator[tuple[str, Path]]:
    """Yields a block device over a file in this folder, and the mount point of its empty file system."""
    image, mounted = folder / f"{name}.img", folder / name
    with contextlib.ExitStack() as stack:
        image.write_bytes(b"")
        stack.callback(image.unlink)
        os.truncate(image, size_bytes)
        mounted.mkdir(exist_ok=True)
        call("mkfs.ext4", "-q", "-F", image)
        device = call("losetup", "--find", "--show", *(["--direct-io=on"] if direct else []), image)
        stack.callback(undo, "losetup", "-d", device)
        call("mount", device, mounted)
        stack.callback(unmount, mounted)
        yield device, mounted


def unmount(mounted: Path) -> None:
    if mounted.is_mount():
        undo("umount", mounted)


def forget(device: str, mounted: Path) -> None:
    """Drops this disk from the page cache. Everything else stays cached: without torch's files, jobs start half a minute late."""
    unmount(mounted)
    os.sync()  # else its writes would continue during the job
    call("mount", device, mounted)


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Provides `{disk}`: files on a separate disk, not in the page cache. The job reads at most at these rates (0: no limit).

    `behind`: the limit applies to a disk below that one, like a provider's limit, so that the upper disk only looks slow. `neighbours`:
    processes outside the job that read the same disk, with a pause of `pause_ms` between two reads.
    """

    bytes_per_s: int
    files: int
    file_bytes: int = 60_000
    reads_per_s: int = 0
    behind: bool = False
    neighbours: int = 0
    pause_ms: int = 0

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need_tools("losetup", "mkfs.ext4", "mount", "umount", ENDS_WITH_US[0])
        image_bytes = (32 << 20) + self.files * (self.file_bytes + 8192) + (_OTHERS_BYTES if self.neighbours else 0)
        with contextlib.ExitStack() as stack:
            lower, place = "", folder
            if self.behind or self.neighbours:
                lower, place = stack.enter_context(loop_disk(folder, "lower", image_bytes + (64 << 20)))
            # so that repeated reads do not come from the page cache below the disk
            device, mounted = stack.enter_context(loop_disk(place, "disk", image_bytes, direct=bool(lower)))
            group = stack.enter_context(control_group("io"))
            self.throttle(group, lower or device)
            self._fill(mounted / "data")
            forget(device, mounted)
            reader = [sys.executable, str(_DISK_READER), str(mounted / "others"), str(self.pause_ms)]
            command = [*ENDS_WITH_US, *entering(group), *reader]
            for _ in range(self.neighbours):
                stack.callback(end_process, subprocess.Popen(command, start_new_session=True))
            yield Conditions(prefix=entering(group), values={"disk": str(mounted / "data")})

    def throttle(self, group: Path, device: str) -> None:
        number = Path(device).stat().st_rdev
        numbers = f"{os.major(number)}:{os.minor(number)}"
        for most, key, name in ((self.bytes_per_s, "rbps", "bps"), (self.reads_per_s, "riops", "iops")):
            if most and unified():
                limit(group / "io.max", f"{numbers} {key}={most}")
            elif most:
                limit(group / f"blkio.throttle.read_{name}_device", f"{numbers} {most}")

    def _fill(self, data: Path) -> None:
        data.mkdir()
        for number in range(self.files):
            (data / f"{number:05}.bin").write_bytes(os.urandom(self.file_bytes))
        if self.neighbours:
            (data.parent / "others").write_bytes(os.urandom(_OTHERS_BYTES))  # reads of holes would not reach the disk


@dataclass(frozen=True, slots=True)
class SlowLoopback:
    """Runs the job in a network namespace whose `lo` is limited to `rate` (in tc's notation)."""

    rate: str

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need_tools("ip", "tc", "nsenter")
        name = own_name()
        call("ip", "netns", "add", name)
        try:
            inside = (
                "nsenter",
                f"--net=/run/netns/{name}",
            )  # `ip netns exec` mounts a /sys without control groups
            call(*inside, "ip", "link", "set", "lo", "up")
            shaped = ("root", "tbf", "rate", self.rate, "burst", "256kb", "latency", "50ms")
            call(*inside, "tc", "qdisc", "add", "dev", "lo", *shaped)
            yield Conditions(prefix=inside)
        finally:
            undo("ip", "netns", "delete", name)


@dataclass(frozen=True, slots=True)
class SmallSharedMemory:
    """A container with a /dev/shm of this size, in a mount namespace that ends with its processes."""

    megabytes: int

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need_tools("unshare", "mount")
        mount = f'mount -t tmpfs -o size={self.megabytes}m none /dev/shm && exec "$@"'
        yield Conditions(container=("unshare", "--mount", "sh", "-c", mount, "sh"))


@dataclass(frozen=True, slots=True)
class Compiler:
    """Requires the C++ compiler that torch.compile needs on CPUs."""

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need(any(shutil.which(name) for name in ("g++", "clang++")), "no C++ compiler for torch.compile")
        yield Conditions()


@dataclass(frozen=True, slots=True)
class SlowDenormals:
    """Requires a CPU that computes more slowly with denormal numbers."""

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need(slow_denormals(), "this CPU multiplies denormal numbers as fast as others")
        yield Conditions()


@dataclass(frozen=True, slots=True)
class EmulatedHalf:
    """Requires a CPU without instructions for this format of half precision."""

    format: str

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        need(self.format not in (host_facts()["fast_half"] or ()), f"this CPU has instructions for {self.format}")
        yield Conditions()


@dataclass(frozen=True, slots=True)
class Images:
    """Provides `{images}`: an ImageFolder of JPEGs, made once and kept beside the folders of all runs."""

    per_class: int
    scale: float = 1.0
    classes: int = 10
    val_per_class: int = 4

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        name = f"{self.classes}x{self.per_class}+{self.val_per_class}-at-{self.scale:g}"
        images = folder.parents[1] / "images" / name
        make = [sys.executable, str(Path(__file__).parents[1] / "make_images.py"), str(images)]
        make += ["--classes", str(self.classes), "--per-class", str(self.per_class), "--scale", str(self.scale)]
        call(*make, "--val-per-class", str(self.val_per_class))
        yield Conditions(values={"images": str(images)})
