"""Traffic of the network interfaces in the job's network namespaces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import Continued, GapsOnce
from rn50_advisor.probes.host.procfs import KeptFiles, read_text
from rn50_advisor.probes.host.target import Target

SPEED_PERIOD_NS = 60_000_000_000
# The host's ends of container links: hundreds on a busy host, and the physical interface counts their traffic, too.
IGNORED_PREFIXES = ("veth", "cali", "lxc")


def parse_net_dev(text: bytes) -> dict[str, tuple[int, int]]:
    """Bytes received and bytes sent, by interface."""
    traffic = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        f = rest.split()
        if len(f) >= 9:
            traffic[name.strip().decode()] = (int(f[0]), int(f[8]))
    return traffic


def namespace_of(pid: int | str, root: Path = Path("/")) -> str | None:
    """Name of a process's network namespace (`net:[4026531840]`); None: gone or not permitted."""
    try:
        return os.readlink(f"{root}/proc/{pid}/ns/net")  # noqa: PTH115 - it is no path, and this runs for every rank at every tick
    except OSError:
        return None


class NetworkProbe:
    """Reads the network namespaces of the job's ranks, or our own before there is a rank.

    The lowest rank's namespace has plain scopes (`net:eth0`); other namespaces add their inode (`net:eth0@4026532601`).
    """

    name = "network"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._files = KeptFiles(root, limit=64)
        self._gaps = GapsOnce()
        self._continued = Continued()
        self._own = namespace_of("self", root)
        self._speeds: dict[tuple[str, str], float | None] = {}
        self._speeds_due_ns = 0

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        self._files.prune({t.pid for t in targets})
        if now_ns >= self._speeds_due_ns:
            self._speeds.clear()
            self._speeds_due_ns = now_ns + SPEED_PERIOD_NS
        samples: list[Sample] = []
        for position, (namespace, pid) in enumerate(self._namespaces(targets).items()):
            suffix = "" if position == 0 else "@" + namespace.strip("net:[]")
            self._read(namespace, pid, suffix, samples)
        return Reading(tuple(samples), self._gaps.take())

    def _namespaces(self, targets: Sequence[Target]) -> dict[str, int]:
        """Maps each namespace to a process in it (0: ourselves), the lowest rank's first."""
        own = self._own or "net:[self]"
        ranks = sorted((t.rank or 0, t.pid) for t in targets if t.role == "rank")
        pids = [pid for _, pid in ranks] or [t.pid for t in targets[:1]]
        found: dict[str, int] = {}
        for pid in pids:
            namespace = namespace_of(pid, self._root)
            if namespace is not None:
                found.setdefault(namespace, 0 if namespace == own else pid)
        return found or {own: 0}

    def _read(self, namespace: str, pid: int, suffix: str, samples: list[Sample]) -> None:
        try:
            text = self._files.read_all(pid, "net/dev" if pid else "proc/net/dev")
        except FileNotFoundError:
            if pid == 0:
                self._gaps.add(("net.rx_bytes", "net.tx_bytes"), "host", "no /proc/net/dev")
            return
        except OSError as e:
            if pid == 0 or not isinstance(e, ProcessLookupError):
                self._gaps.add(("net.rx_bytes", "net.tx_bytes"), "host", f"/proc/net/dev: {e.strerror}")
            return
        for name, traffic in parse_net_dev(text).items():
            if name.startswith(IGNORED_PREFIXES):
                continue
            interface = name + suffix
            for metric, raw in zip(("net.rx_bytes", "net.tx_bytes"), traffic, strict=True):
                value = self._continued.value(0, metric + interface, namespace, float(raw))
                samples.append(Sample(metric, f"net:{interface}", value))
            speed = self._speed(namespace, pid, name, interface)
            if speed is not None:
                samples.append(Sample("net.speed_mbps", f"net:{interface}", speed))

    def _speed(self, namespace: str, pid: int, name: str, interface: str) -> float | None:
        """Link speed that the driver reports. Interfaces without hardware have none, which is no gap."""
        key = (namespace, name)
        if key not in self._speeds:
            sys = self._root / (f"proc/{pid}/root/sys" if pid else "sys") / "class/net" / name
            text = read_text(sys / "speed")
            known = text is not None and text.isdigit() and 0 < int(text) < 0xFFFFFFFF and _on_hardware(sys)
            self._speeds[key] = float(text) if known and text else None
            if not known and (sys / "device").exists():
                self._gaps.add(
                    "net.speed_mbps",
                    f"net:{interface}",
                    "the driver reports no link speed",
                    "usual for virtual network cards: see the provider's instance type",
                )
        return self._speeds[key]


def _on_hardware(sys: Path) -> bool:
    """True for a network card, or an interface on top of cards (bond, VLAN).

    Container bridges and their links always claim 10 Gbit/s, whatever the host has.
    """
    return (sys / "device").exists() or any((below / "device").exists() for below in sys.glob("lower_*"))
