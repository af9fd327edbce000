"""The network cards as their drivers describe them: enough for one machine, and what a second one would be reached by."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.triage.found_checks import Item, fact, judged
from rn50_advisor.probes.host.network_probe import NetworkProbe

SEVERAL_NODES_MBPS = 25_000.0  # COM009
_VIRTUAL = ("lo", "docker", "br-", "virbr", "ifb", "bond", "tun", "tap", "dummy", "sit", "wg", "flannel", "cni", "veth")


def links(root: Path = Path("/")) -> Iterator[Item]:
    """The fastest card counts: it is the one that ranks on other nodes would be reached by."""
    reading = NetworkProbe(root).sample(time.monotonic_ns(), ())
    speeds = {s.scope.removeprefix("net:"): s.value for s in reading.samples if s.metric == "net.speed_mbps"}
    # a container's end of a link to its host has no device, and always claims 10 Gbit/s
    cards = {n: mbps for n, mbps in speeds.items() if not n.startswith(_VIRTUAL) and _has_device(n, root)}
    infiniband = [rate for port in sorted(root.glob("sys/class/infiniband/*/ports/*/rate")) if (rate := _gbit(port))]
    if not cards and not infiniband:
        known = [gap for gap in reading.gaps if gap.metric == "net.speed_mbps"]
        reason = known[0].reason if known else "no network card reports a speed"
        hint = known[0].hint if known else "usual in containers: look up the provider's instance type"
        yield TriageGap("network.link_gbit_per_s", reason, hint)
        return
    for name, mbps in sorted(cards.items()):
        yield fact(f"network.{name}_gbit_per_s", mbps / 1e3, "Gbit/s")
    best = max([*(mbps / 1e3 for mbps in cards.values()), *infiniband])
    hint = "enough for one machine; ranks on several machines would be limited by it (rule COM009)"
    band = Band(
        SEVERAL_NODES_MBPS / 1e3, None, "rule COM009: below 25 Gbit/s several nodes train slower than their sum"
    )
    # slow for several machines is no fault of one
    yield judged("network.link_gbit_per_s", best, "Gbit/s", band, bad_share=0.0, hint=hint)


def _has_device(name: str, root: Path) -> bool:
    return (root / f"sys/class/net/{name}/device").exists()


def _gbit(rate: Path) -> float | None:
    """`200 Gb/sec (4X HDR)`."""
    try:
        return float(rate.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


FILES_LEAST = 1024.0


# Limits of the shell or container that a training meets late: open files, locked memory.
def limits(root: Path = Path("/")) -> Iterator[Item]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield fact("limits.open_files", "unlimited")
    else:
        hint = (
            f"ulimit -n (hard limit {hard}): loader workers pass batches as file descriptors, which add up to hundreds"
        )
        band = Band(
            FILES_LEAST, None, "the usual soft limit of Linux; PyTorch's sharing strategy file_descriptor asks for more"
        )
        yield judged("limits.open_files", float(soft), "files", band, remedy="fix", hint=hint, why=hint)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield fact("limits.locked_memory", "unlimited")
        return
    if not list(root.glob("sys/class/infiniband/*")):
        yield fact(
            "limits.locked_memory", float(soft), "bytes", hint="matters only for RDMA, which this machine does not have"
        )
        return
    hint = "docker run --ulimit memlock=-1: NCCL cannot register memory with the network card beyond it"
    band = Band(float(1 << 40), None, "NCCL's troubleshooting guide: unlimited where RDMA is used")
    yield judged("limits.locked_memory", float(soft), "bytes", band, remedy="fix", hint=hint, why=hint)
