"""The network cards as their drivers describe them: enough for one machine, and what a second one would be reached by."""

from __future__ import annotations

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
    # a container's end of a link to its host has no device, and claims 10 Gbit/s whatever the host has
    cards = {n: mbps for n, mbps in speeds.items() if not n.startswith(_VIRTUAL) and _has_device(n, root)}
    infiniband = [rate for port in sorted(root.glob("sys/class/infiniband/*/ports/*/rate")) if (rate := _gbit(port))]
    if not cards and not infiniband:
        known = [gap for gap in reading.gaps if gap.metric == "net.speed_mbps"]
        reason = known[0].reason if known else "no card tells a speed"
        hint = known[0].hint if known else "usual in containers: the provider's instance type tells it"
        yield TriageGap("network.link_gbit_per_s", reason, hint)
        return
    for name, mbps in sorted(cards.items()):
        yield fact(f"network.{name}_gbit_per_s", mbps / 1e3, "Gbit/s")
    best = max([*(mbps / 1e3 for mbps in cards.values()), *infiniband])
    hint = "enough for one machine; ranks on several machines would wait for it (rule COM009)"
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
