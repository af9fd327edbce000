"""How long a provider's volumes and links were held back."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from probe_trees import values, write_tree
from rn50_advisor.probes.host.cgroup import provider_limits
from rn50_advisor.probes.host.cgroup.provider_limits import AllowancesProbe, parse_ebs_log

EBS = {"sys/block/nvme1n1/size": "9\n", "sys/class/block/nvme1n1/device/model": "Amazon Elastic Block Store  \n"}

OTHER = {"sys/block/nvme0n1/size": "9\n", "sys/class/block/nvme0n1/device/model": "Amazon EC2 NVMe Instance Storage\n"}


def ebs_log(*exceeded_us: int, magic: int = 0x3C23B510) -> bytes:
    """As a volume answers: six counters, then microseconds beyond the volume's and the machine's limits."""
    return struct.pack("<II10Q", magic, 0, 1, 2, 3, 4, 5, 6, *exceeded_us).ljust(4096, b"\0")


def test_an_ebs_volume_reports_how_long_it_was_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        provider_limits,
        "read_ebs_log",
        lambda device: asked.append(device) or ebs_log(1_000_000, 31_500_000, 0, 200_000),
    )
    found = values(AllowancesProbe(write_tree(tmp_path, EBS | OTHER)).sample(0, []))
    assert found == {
        ("disk.volume_exceeded_s", "disk:nvme1n1"): 31.5,
        ("disk.instance_exceeded_s", "disk:nvme1n1"): 0.2,
    }
    assert asked == [f"{tmp_path}/dev/nvme1n1"]


def test_a_log_of_another_vendor_is_not_read_as_one() -> None:
    assert parse_ebs_log(ebs_log(1, 1, 1, 1, magic=0xEC2C0D7E)) is None


def test_a_volume_that_may_not_be_asked_is_a_gap_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(device: str) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(provider_limits, "read_ebs_log", refused)
    probe = AllowancesProbe(write_tree(tmp_path, EBS))
    (gap, _) = probe.sample(0, []).gaps
    assert gap.scope == "disk:nvme1n1" and "Permission denied" in gap.reason and "root" in gap.hint
    assert not probe.sample(1, []).gaps


def test_the_counter_of_a_link_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's answers as the kernel packs them: the number of counters, their names, their values."""
    counters = {"tx_timeout": 1, "bw_in_allowance_exceeded": 815, "bw_out_allowance_exceeded": 4}

    def driver(interface: str, request: bytearray) -> None:
        if interface != "eth0":
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        command = struct.unpack_from("=I", request)[0]
        if command == 0x37:
            struct.pack_into("=I", request, 16, len(counters))
        elif command == 0x1B:
            request[12:] = b"".join(name.encode().ljust(32, b"\0") for name in counters)
        else:
            request[8:] = struct.pack("=3Q", *counters.values())

    monkeypatch.setattr(provider_limits, "ethtool", driver)
    root = write_tree(tmp_path, {"sys/class/net/eth0/mtu": "1", "sys/class/net/lo/mtu": "1"})
    assert values(AllowancesProbe(root).sample(0, [])) == {("net.in_exceeded", "net:eth0"): 815.0}


def test_the_real_machine_is_asked_without_harm() -> None:
    reading = AllowancesProbe().sample(0, [])
    assert all(sample.metric in (*provider_limits.DISK_METRICS, "net.in_exceeded") for sample in reading.samples)
