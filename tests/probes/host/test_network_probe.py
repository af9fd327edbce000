"""Interfaces of the network namespace that the job lives in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probe_trees import missing, values, write_tree
from rn50_advisor.probes.host.network_probe import NetworkProbe
from rn50_advisor.probes.host.target import Target

HEAD = "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n"


def net_dev(**traffic: tuple[int, int]) -> str:
    lines = (f"{name:>6}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0\n" for name, (rx, tx) in traffic.items())
    return HEAD + "".join(lines)


def host(root: Path) -> Path:
    write_tree(
        root,
        {
            "proc/net/dev": net_dev(lo=(10, 20), eth0=(1000, 2000), vethab12=(5, 5)),
            "sys/class/net/eth0/speed": "25000\n",
            "sys/class/net/eth0/device": "",
            "sys/class/net/lo/mtu": "65536",
        },
    )
    enter(root, "self", 1)
    return root


def enter(root: Path, pid: int | str, namespace: int) -> None:
    link = root / f"proc/{pid}/ns/net"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"net:[{namespace}]")


def test_traffic_and_speed_of_our_own_namespace(tmp_path: Path) -> None:
    reading = NetworkProbe(host(tmp_path)).sample(0, [])
    assert values(reading) == {
        ("net.rx_bytes", "net:lo"): 10.0,
        ("net.tx_bytes", "net:lo"): 20.0,
        ("net.rx_bytes", "net:eth0"): 1000.0,
        ("net.tx_bytes", "net:eth0"): 2000.0,
        ("net.speed_mbps", "net:eth0"): 25000.0,
    }
    assert not reading.gaps


def test_only_cards_and_what_is_made_of_them_have_a_speed(tmp_path: Path) -> None:
    """A bridge of containers and a container's own end say 10 Gbit/s whatever the host has."""
    names = ("eth0", "bond0", "docker0", "eth9")
    files = {f"sys/class/net/{name}/speed": "10000\n" for name in names}
    files |= {"proc/net/dev": net_dev(**dict.fromkeys(names, (1, 1))), "sys/class/net/docker0/lower_veth1/mtu": "1500"}
    root = write_tree(host(tmp_path), {**files, "sys/class/net/bond0/lower_eth0/device/vendor": "0x8086\n"})
    reading = NetworkProbe(root).sample(0, [])
    speeds = {scope for name, scope in values(reading) if name == "net.speed_mbps"}
    assert speeds == {"net:eth0", "net:bond0"} and not reading.gaps


@pytest.mark.parametrize("speed", ["-1\n", "4294967295\n", ""])
def test_a_card_without_a_speed_is_a_gap_reported_once(tmp_path: Path, speed: str) -> None:
    probe = NetworkProbe(write_tree(host(tmp_path), {"sys/class/net/eth0/speed": speed}))
    reading = probe.sample(0, [])
    assert [(g.metric, g.scope) for g in reading.gaps] == [("net.speed_mbps", "net:eth0")]
    assert ("net.speed_mbps", "net:eth0") not in values(reading)
    assert not probe.sample(1, []).gaps


def test_ranks_in_another_namespace_are_read_there_and_counters_do_not_jump(tmp_path: Path) -> None:
    root = host(tmp_path)
    enter(root, 7, 2)
    enter(root, 8, 3)
    write_tree(root, {"proc/7/net/dev": net_dev(lo=(7000, 7000)), "proc/8/net/dev": net_dev(lo=(8000, 8000))})
    probe = NetworkProbe(root)
    assert values(probe.sample(0, []))["net.rx_bytes", "net:lo"] == 10
    ranks = [Target(8, "rank", 1), Target(7, "rank", 0)]
    probe.sample(1, ranks)
    write_tree(root, {"proc/7/net/dev": net_dev(lo=(7100, 7000))})
    found = values(probe.sample(2, ranks))
    assert found["net.rx_bytes", "net:lo"] == 10 + 100
    assert found["net.rx_bytes", "net:lo@3"] == 8000
    assert not any(scope.startswith("net:eth0") for _, scope in found)


def test_a_rank_in_our_own_namespace_changes_nothing(tmp_path: Path) -> None:
    root = host(tmp_path)
    enter(root, 7, 1)
    found = values(NetworkProbe(root).sample(0, [Target(7, "rank", 0), Target(99, "rank", 1)]))
    assert found["net.tx_bytes", "net:eth0"] == 2000


def test_no_proc_net_is_a_gap(tmp_path: Path) -> None:
    assert missing(NetworkProbe(tmp_path).sample(0, [])) == {"net.rx_bytes", "net.tx_bytes"}


TALK = """
import socket, sys
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0))
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(50): a.sendto(bytes(1000), a.getsockname())
    print("sent", flush=True)
"""


def test_a_real_job_in_its_own_network_namespace() -> None:
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if os.geteuid() != 0 or not unshare or not ip:
        pytest.skip("A REAL NETWORK NAMESPACE IS NOT TESTED HERE: needs root, unshare and ip")
    inside = f"{ip} link set lo up && exec {sys.executable} -c '{TALK}'"
    command = [unshare, "--net", "sh", "-c", inside]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        if job.stdout.readline() != "ready\n":
            pytest.skip("A REAL NETWORK NAMESPACE IS NOT TESTED HERE: unshare --net is refused")
        probe, target = NetworkProbe(), Target(job.pid, "rank", 0)
        before = values(probe.sample(0, [target]))
        assert {scope for _, scope in before} == {"net:lo"}, "that namespace has nothing else"
        job.stdin.write("talk\n")
        job.stdin.flush()
        assert job.stdout.readline() == "sent\n"
        after = values(probe.sample(1, [target]))
        assert 50_000 <= after["net.tx_bytes", "net:lo"] - before["net.tx_bytes", "net:lo"] < 100_000
        job.stdin.close()
