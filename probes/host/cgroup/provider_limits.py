"""Throttling reported by the provider: EBS volumes in their NVMe log, ENA links in their driver's counters.

Neither needs an external tool: EBS takes an ioctl on the device (as root), ENA an ioctl on any socket.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.storage.block_devices import model
from rn50_advisor.probes.host.target import Target

DISK_METRICS = ("disk.volume_exceeded_s", "disk.instance_exceeded_s")
EBS_MODEL = "Amazon Elastic Block Store"
_NVME_ADMIN = 0xC0484E41  # NVME_IOCTL_ADMIN_CMD
_GET_LOG_PAGE, _EBS_PAGE, _PAGE_BYTES = 0x02, 0xD0, 4096
_EBS_MAGIC = 0x3C23B510
_COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")  # struct nvme_passthru_cmd
# magic, reserved; operations, bytes and times of reads and writes; microseconds beyond the volume's and the machine's limits
_EBS_LOG = struct.Struct("<II6Q4Q")
_SIOCETHTOOL, _GSSET_INFO, _GSTRINGS, _GSTATS = 0x8946, 0x37, 0x1B, 0x1D
_STATS_SET, _NAME_BYTES = 1, 32
_ENA_COUNTER = "bw_in_allowance_exceeded"


def parse_ebs_log(page: bytes) -> tuple[float, float] | None:
    """Seconds beyond the limits of the volume and of the machine; None if the device is no EBS volume or has no such log."""
    magic, _, *numbers = _EBS_LOG.unpack_from(page)
    if magic != _EBS_MAGIC:
        return None
    volume_iops, volume_bytes, machine_iops, machine_bytes = numbers[6:]
    return max(volume_iops, volume_bytes) / 1e6, max(machine_iops, machine_bytes) / 1e6


def read_ebs_log(device: str) -> bytes:
    """Returns the device's EBS log page. Raises OSError."""
    page = ctypes.create_string_buffer(_PAGE_BYTES)
    words = _PAGE_BYTES // 4 - 1
    command = bytearray(
        _COMMAND.pack(
            _GET_LOG_PAGE, 0, 0, 1, 0, 0, 0, ctypes.addressof(page), 0, _PAGE_BYTES, _EBS_PAGE | words << 16, *[0] * 7
        )
    )
    fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _NVME_ADMIN, command)
    finally:
        os.close(fd)
    return page.raw


def ethtool(interface: str, request: bytearray) -> None:
    """Sends an ethtool request; the kernel's answer replaces it in place. Raises OSError."""
    buffer = array.array("B", request)
    address, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP8x", interface.encode(), address))
    request[:] = buffer.tobytes()


def statistic_names(interface: str) -> tuple[str, ...]:
    """Names of the interface driver's counters, in the order of their values. Raises OSError."""
    asked = bytearray(struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATS_SET, 0))
    ethtool(interface, asked)
    count = struct.unpack_from("=I", asked, 16)[0]
    names = bytearray(struct.pack("=III", _GSTRINGS, _STATS_SET, count)) + bytes(count * _NAME_BYTES)
    ethtool(interface, names)
    raw = [names[12 + n * _NAME_BYTES : 12 + (n + 1) * _NAME_BYTES] for n in range(count)]
    return tuple(bytes(name).partition(b"\0")[0].decode(errors="replace") for name in raw)


def statistic(interface: str, place: int, count: int) -> float:
    """Value of the driver's counter at `place` of `count`. Raises OSError."""
    values = bytearray(struct.pack("=II", _GSTATS, count)) + bytes(8 * count)
    ethtool(interface, values)
    return float(struct.unpack_from("=Q", values, 8 + 8 * place)[0])


class AllowancesProbe:
    """Reports nothing, and no gap, without such a device. Devices are listed once."""

    name = "allowances"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._gaps = GapsOnce()
        self._volumes: list[str] | None = None
        self._links: dict[str, tuple[int, int]] = {}  # index of the counter, and number of counters

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        if self._volumes is None:
            self._volumes = [disk for disk in self._names("sys/block") if model(disk, self._root) == EBS_MODEL]
            self._links = self._find_links()
        samples: list[Sample] = []
        for disk in list(self._volumes):
            samples += self._of_volume(disk)
        for link, (place, count) in self._links.items():
            try:
                samples.append(Sample("net.in_exceeded", f"net:{link}", statistic(link, place, count)))
            except OSError:
                continue  # the device was removed
        return Reading(tuple(samples), self._gaps.take())

    def _names(self, folder: str) -> list[str]:
        try:
            return sorted(path.name for path in (self._root / folder).iterdir())
        except OSError:
            return []

    def _find_links(self) -> dict[str, tuple[int, int]]:
        found = {}
        for link in self._names("sys/class/net"):
            try:
                names = statistic_names(link)
            except (OSError, struct.error):
                continue  # a device without driver counters
            if _ENA_COUNTER in names:
                found[link] = (names.index(_ENA_COUNTER), len(names))
        return found

    def _of_volume(self, disk: str) -> list[Sample]:
        assert self._volumes is not None
        try:
            exceeded_s = parse_ebs_log(read_ebs_log(f"{self._root}/dev/{disk}"))
            reason = "the volume keeps no log of its limits"
        except OSError as e:
            exceeded_s, reason = None, f"/dev/{disk}: {e.strerror}"
        if exceeded_s is None:
            self._volumes.remove(disk)
            hint = (
                "run the advisor as root with the volume's device, or see VolumeThroughputExceededCheck in CloudWatch"
            )
            self._gaps.add(DISK_METRICS, f"disk:{disk}", reason, hint)
            return []
        return [Sample(metric, f"disk:{disk}", value) for metric, value in zip(DISK_METRICS, exceeded_s, strict=True)]
