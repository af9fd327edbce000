"""Two network namespaces as two hosts: names and clocks of their own, a wire between them for data and one for the merge. Not a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from samples.faults.fixtures import call, need, need_tools, own_name, undo

from cli_process import environment

ROOT = Path(__file__).resolve().parents[3]
DATA, MERGE = "10.77.0", "10.77.1"  # networks; host n has address n + 1
APART_S = 5000  # by so much the second host was started before the first
_NAMED = 'hostname "$1" && shift && exec "$@"'


class Hosts:
    def __init__(self, names: list[str], folder: Path) -> None:
        self._names = names
        self._folder = folder

    def torchrun(self, host: int, *script: str) -> list[str]:
        rendezvous = ["--nnodes=2", f"--node_rank={host}", f"--master_addr={DATA}.1", "--master_port=29500"]
        return [sys.executable, "-m", "torch.distributed.run", *rendezvous, "--nproc_per_node=1", *script]

    def advisor(self, host: int, *arguments: str, job: list[str]) -> subprocess.Popen[bytes]:
        """`rn50-advisor run` on this host; the pid is that of what enters the namespaces, the advisor its child."""
        clock = ["unshare", "--uts", "--time", "--monotonic", str(APART_S * host), "--boottime", str(APART_S * host)]
        inside = [*clock, "--fork", "--kill-child", "sh", "-c", _NAMED, "sh", f"node{host}"]
        command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", *arguments, "--", *job]
        variables = {"GLOO_SOCKET_IFNAME": "data0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        return subprocess.Popen(
            ["ip", "netns", "exec", self._names[host], *inside, *command],
            cwd=self._folder,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / f"stderr-{host}").open("wb"),
        )

    def stderr_of(self, host: int) -> str:
        return (self._folder / f"stderr-{host}").read_text(errors="replace")

    def cut_the_merge(self) -> None:
        """The wire between agents goes dead; that between ranks does not."""
        call("ip", "-n", self._names[1], "link", "set", "merge0", "down")


@contextlib.contextmanager
def two_hosts(folder: Path, *, rate: str = "") -> Iterator[Hosts]:
    """Raises CannotBeMade. `rate`: of the wire that ranks use, each way, as tc writes it."""
    need_tools("ip", "tc", "unshare", "hostname")
    need(Path("/proc/self/ns/time").exists(), "the kernel has no time namespaces")
    need(shutil.which("ip") is not None and os.access("/sys", os.R_OK), "no iproute2")
    names = [own_name(), own_name()]
    with contextlib.ExitStack() as stack:
        for name in names:
            call("ip", "netns", "add", name)
            stack.callback(undo, "ip", "netns", "delete", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
        for wire, network in (("data0", DATA), ("merge0", MERGE)):
            ends = ("name", wire, "netns", names[0], "type", "veth", "peer", "name", wire, "netns", names[1])
            call("ip", "link", "add", *ends)
            for host, name in enumerate(names):
                call("ip", "-n", name, "address", "add", f"{network}.{host + 1}/24", "dev", wire)
                call("ip", "-n", name, "link", "set", wire, "up")
                if rate and wire == "data0":
                    shaped = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
                    call("tc", "-n", name, "qdisc", "add", "dev", wire, *shaped)
        yield Hosts(names, folder)
