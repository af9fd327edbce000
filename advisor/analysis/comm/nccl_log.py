"""Parses the log of NCCL 2.4 to 2.30 under `NCCL_DEBUG=INFO`: version, network, transports, channels, algorithms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.event_documents import NcclPrinted

_VERSION = re.compile(r"NCCL version (\d[\w.+-]*)")
_NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$")
_USING = re.compile(r"NCCL INFO NET/(\w+)\s*: Using (\[\d+\].*?)(?:;|$)")
_INTERFACE = re.compile(r"\[\d+\](?:\{[^}]*\}\s*)?([\w.-]+)")
# Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM; Channel 01 : 3[4a000] -> 6[44000] [send] via NET/IB/0/GDRDMA; Ring 00 : 0[0] -> 1[1] via SHM
_CONNECTION = re.compile(
    r"NCCL INFO (?:Channel|Ring|Trees?) \d+(?:/\d+)? : (\d+)\S* -> (\d+)\S*(?: \[(send|receive)\])? via (\S+)"
)
_CHANNELS = re.compile(r"NCCL INFO (\d+) coll channels")
_RANKS = re.compile(r"\b[nN][rR]anks (\d+)")
_NODES = re.compile(r"\bnNodes (\d+)")
_ALGORITHM = re.compile(
    r"NCCL INFO (\w+): \d+ Bytes -> Algo (?:NVLS_TREE|(\w+)) [pP]roto (\w+)|NCCL INFO (\w+) .*\balgo(?:rithm)? (\w+) proto(?:col)? (\w+)"
)
_SWITCH = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to (\S+?)\.?\s*$")
_ALGORITHMS = {"0": "Tree", "1": "Ring", "2": "CollNetDirect", "3": "CollNetChain", "4": "NVLS", "5": "NVLSTree"}
_PROTOCOLS = {"0": "LL", "1": "LL128", "2": "Simple"}


def nccl_facts(recording: Recording) -> NcclFacts | None:
    """NCCL's log as facts; None if no line of it was kept."""
    lines = [line for event in events_of(recording.events, NcclPrinted) for line in event.data.get("lines", ())]
    return parse(lines) if lines else None


def parse(lines: Iterable[str]) -> NcclFacts | None:
    """Parses lines of any number of ranks, in any order. Returns None if none of them is NCCL's."""
    nccl_lines = [line for line in lines if "NCCL" in line]
    if not nccl_lines:
        return None
    network = _last(_NETWORK, nccl_lines)
    transports, direct = _connections(nccl_lines)
    return NcclFacts(
        version=next(iter(_found(_VERSION, nccl_lines)), ""),
        network=network,
        interfaces=_carriers(nccl_lines, network),
        transports=transports,
        direct=direct,
        channels=max(map(int, _found(_CHANNELS, nccl_lines)), default=0),
        ranks=max(map(int, _found(_RANKS, nccl_lines)), default=0),
        nodes=max(map(int, _found(_NODES, nccl_lines)), default=0),
        algorithms=dict(Counter(name for line in nccl_lines if (name := _algorithm(line)))),
        switches={found[1]: found[2] for line in nccl_lines if (found := _SWITCH.search(line))},
    )


def _found(pattern: re.Pattern[str], lines: Iterable[str]) -> list[str]:
    return [found[1] for line in lines if (found := pattern.search(line))]


def _last(pattern: re.Pattern[str], lines: Iterable[str]) -> str:
    return (_found(pattern, lines) or [""])[-1]


def _connections(lines: Iterable[str]) -> tuple[dict[str, int], bool | None]:
    """Connections by transport, and whether any network card reads GPU memory directly (GPUDirect RDMA)."""
    transports: Counter[str] = Counter()
    direct: bool | None = None
    for line in lines:
        found = _CONNECTION.search(line)
        if found is None:
            continue
        name, gdr = _transport(found[4])
        if found[3] != "receive":  # both ends log the connection
            transports[name] += 1
        if name.startswith("NET/"):
            direct = bool(direct) or gdr
    return dict(transports), direct


def _carriers(lines: Iterable[str], network: str) -> tuple[str, ...]:
    """Interfaces of the network in use. If it is unknown, those of the first network listed."""
    interfaces: dict[str, list[str]] = {}
    for line in lines:
        if found := _USING.search(line):
            interfaces.setdefault(found[1], []).extend(_INTERFACE.findall(found[2]))
    found_there = interfaces.get(_family(network)) or next(iter(interfaces.values()), [])
    return tuple(dict.fromkeys(found_there))


def _transport(via: str) -> tuple[str, bool]:
    """Transport and use of GPUDirect RDMA: ("NET/IB", True) for `NET/IB/0/GDRDMA`, ("P2P", False) for `P2P/CUMEM/read`."""
    parts = via.split("/")
    gdr = "GDRDMA" in parts
    if parts[0] == "NET" and len(parts) > 1:
        plugin = parts[1]
        return (f"NET/{_family(plugin)}", gdr)
    return ("P2P" if parts[0] in ("P2P", "direct") else parts[0], gdr)


def _family(network: str) -> str:
    """Network name without a version: IBext_v8 is a version of the InfiniBand plugin."""
    return "IB" if network.startswith("IB") else network


def _algorithm(line: str) -> str:
    found = _ALGORITHM.search(line)
    if found is None:
        return ""
    if found[4]:
        name, algorithm, protocol = found[4], found[5], found[6]
    else:
        name, algorithm, protocol = found[1], found[2] or "NVLSTree", found[3]
    algorithm, protocol = _ALGORITHMS.get(algorithm, algorithm.title()), _PROTOCOLS.get(protocol, protocol)
    return f"{name} {algorithm} {protocol.title() if protocol.isupper() and len(protocol) > 5 else protocol}"
