"""NCCL's settings from its own log. Only the user switches this log on (`NCCL_DEBUG=INFO`), never the advisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class NcclFacts:
    """NCCL's settings for the whole job, from the log lines that were kept. Unknown ones are empty, 0 or None."""

    version: str = ""
    network: str = ""  # as NCCL names it: IB, Socket, AWS Libfabric, IBext_v8
    interfaces: tuple[str, ...] = ()  # that the network uses, e.g. eth0, mlx5_0
    transports: Mapping[str, int] = field(default_factory=dict)  # P2P, SHM, NET/Socket, NET/IB -> connections
    direct: bool | None = None  # GPUs read and write the network card's memory (GDRDMA); None: no connection crosses it
    channels: int = 0
    ranks: int = 0
    nodes: int = 0
    algorithms: Mapping[str, int] = field(default_factory=dict)  # "AllReduce Ring Simple" -> reported calls
    switches: Mapping[str, str] = field(default_factory=dict)  # environment variables that NCCL reports as set

    @property
    def over_sockets(self) -> bool | None:
        """True if ranks of different nodes (or without a better connection) use TCP; None if no connection was logged."""
        if any(name.startswith("NET/") for name in self.transports):
            return "NET/Socket" in self.transports
        return None if not self.transports else False


def nccl_words(facts: NcclFacts | None) -> dict[str, Any]:
    """NCCL's settings for the report's facts; empty if NCCL logged nothing."""
    if facts is None:
        return {}
    values = {field.name: getattr(facts, field.name) for field in fields(facts)}
    return {"nccl": {name: value for name, value in values.items() if value or value is False}}
