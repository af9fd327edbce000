"""Tables of the rules on how ranks exchange what they compute, and their jobs. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rule_cases import META, SCRIPT, job, rank
from rule_table import Table, warm

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.findings import Where

WRAPPED = Where(SCRIPT, 7)
ONE_HOST = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
TWO_HOSTS = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}


def wrapped(
    own: dict[int, dict[str, float]], *, values: dict[str, Any], hosts: dict[str, str] = ONE_HOST, **options: Any
) -> Analysis:
    """Both ranks wrap a model of 100 MB in DDP at line 7; `options` are DDP's."""
    about = {
        "file": SCRIPT,
        "line": 7,
        "backend_name": "gloo",
        "total_parameter_size_bytes": 100_000_000,
        "bucket_cap_bytes": 1 << 30,
        "world_size": 2,
        **options,
    }
    facts = {str(number): {"ddp": [about], "environment_rank": hosts} for number in own}
    steady = values.pop("steady", 200)
    wire = values.pop("comm.wire_s")
    return job(own, wire_s=wire, values=values, facts=facts, steady=steady)


def com003(  # noqa: PLR0917 - what a table varies
    wire: float = 0.2,
    span: float | None = None,
    backward: float = 0.4,
    largest: float | None = 1.0,
    cap: int = 1 << 30,
    hand: float | None = None,
    steady: int = 200,
) -> Analysis:
    """One bucket, sent after the backward pass; or (`hand`) that share of the wire time in averaging after it, without DDP."""
    own = {n: rank(1.0 - wire, backward=backward) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "comm.span_s": wire if span is None else span, "steady": steady}
    if hand is not None:
        values |= {"collectives.by_hand_s": hand * wire, "collectives.calls": {0: 60.0, 1: 60.0}}
        return replace(wrapped(own, values=values), facts={})
    values |= {"comm.megabytes": 100.0, "comm.buckets": 1.0}
    if largest is not None:
        values["comm.largest_bucket"] = largest
    return wrapped(own, values=values, bucket_cap_bytes=cap)


def com006(
    calls: float = 106.0, batch: float = 64.0, spent: float | None = 0.2, batches: float = 1.0, steady: int = 200
) -> Analysis:
    """Ranks of 64 samples that synchronise 53 layers of batch norm."""
    own = {n: rank(1.0 - (spent or 0.0)) for n in (0, 1)}
    values: dict[str, Any] = {
        "step.samples": batch * batches,
        "step.batches": {0: batches, 1: batches},
        "collectives.norm_calls": {0: calls, 1: calls},
    }
    if spent is not None:
        values["collectives.norm_s"] = spent
    return job(own, wire_s=spent or 0.0, values=values, steady=steady)


def com007(wire: float = 0.4, gloo: float = 1.0, steady: int = 200) -> Analysis:
    own = {n: rank(1.0 - wire) for n in (0, 1)}
    values = {"comm.wire_s": wire, "comm.gloo_on_gpu": {0: gloo, 1: gloo}, "steady": steady}
    return wrapped(own, values=values, device="cuda")


def com009(
    wire: float = 0.4,
    socket: float = 1.0,
    carried: float | None = None,
    card: float | None = None,
    steady: int = 200,
    **said: Any,
) -> Analysis:
    """NCCL says that it uses sockets, unless `card`: then it says nothing, and the hosts have one of so many Gbit/s and no InfiniBand."""
    own = {n: rank(1.0 - wire) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "steady": steady}
    values |= {"nccl.socket": socket} if card is None else {"net.gbit_per_s": card}
    if carried is not None:
        values["comm.bus_gb_per_s"] = carried
    facts = NcclFacts(version="2.21.5", network="Socket", interfaces=("eth0",), transports={"NET/Socket": 4}, **said)
    made = wrapped(own, values=values, hosts=TWO_HOSTS, backend_name="nccl")
    if card is None:
        return replace(made, nccl=facts)
    return replace(made, meta=replace(META, environment={"rdma_ports": 0}))


def com010(
    wire: float = 0.6,
    span: float | None = None,
    carried: float | None = 1.0,
    steady: int = 200,
    hosts: dict[str, str] = ONE_HOST,
    **more: Any,
) -> Analysis:
    """Both ranks compute what is left of the second."""
    own = {n: rank(1.0 - wire) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "comm.span_s": wire if span is None else span, "steady": steady}
    if carried is not None:
        values["comm.bus_gb_per_s"] = carried
    return wrapped(own, values={**values, **more}, hosts=hosts)


COMM_TABLES: dict[str, Table] = {
    "COM003": Table(
        com003,
        lines={
            "wire": ({"wire": 0.15}, {"wire": 0.1499}),
            "room": ({"wire": 0.4, "backward": 0.4}, {"wire": 0.4, "backward": 0.399}),
            "hidden": ({"wire": 0.375, "span": 0.5, "backward": 0.5}, {"wire": 0.37, "span": 0.5, "backward": 0.5}),
            "bucket": ({"largest": 0.8}, {"largest": 0.799}),
            "by_hand": ({"hand": 0.8}, {"hand": 0.799}),
        },
        false_alarms={
            "an exchange that no backward pass could hide": {"wire": 0.6, "backward": 0.2},
            "buckets that leave one by one": {"largest": 0.3, "span": 0.35},
            "a wire that costs next to nothing": {"wire": 0.05},
            "barriers elsewhere": {"hand": 0.1},
        },
        severities=(({"wire": 0.30}, "critical"), ({"wire": 0.15}, "high")),
        where=WRAPPED,
        best=({"wire": 0.3}, 1 / 0.75),
        also_fires={"gradients averaged by hand": {"hand": 1.0}, "a bucket of DDP's own size": {"cap": 25 << 20}},
    ),
    "COM006": Table(
        com006,
        lines={
            "calls": ({"calls": 2.0}, {"calls": 1.99}),
            "batch": ({"batch": 32.0}, {"batch": 31.9}),
            "share": ({"spent": 0.05}, {"spent": 0.0499}),
        },
        false_alarms={
            "detection with two pictures a GPU": {"batch": 2.0},
            "a large batch accumulated from small ones": {"batch": 8.0, "batches": 8.0},
            "plain batch norm": {"calls": 0.0, "spent": 0.0},
        },
        severities=(({"spent": 0.30}, "critical"), ({"spent": 0.15}, "high"), ({"spent": 0.05}, "medium")),
        best=({"spent": 0.2}, warm(1 / 0.8)),
    ),
    "COM007": Table(
        com007,
        lines={"wire": ({"wire": 0.03}, {"wire": 0.0299})},
        false_alarms={"ranks on CPUs, or by NCCL": {"gloo": 0.0}},
        severities=(({"wire": 0.4}, "critical"), ({"wire": 0.2}, "high"), ({"wire": 0.1}, "medium")),
        ranks=(0, 1),
        best=({"wire": 0.4}, 1 / 0.62),
    ),
    "COM009": Table(
        com009,
        lines={"wire": ({"wire": 0.05}, {"wire": 0.0499}), "card": ({"card": 24.9}, {"card": 25.0})},
        false_alarms={"ranks that NCCL connects by InfiniBand": {"socket": 0.0}},
        severities=(({"wire": 0.4}, "critical"), ({"wire": 0.2}, "high"), ({"wire": 0.07}, "medium")),
        best=({"wire": 0.4}, 1 / 0.68),
        also_fires={"bytes that are known": {"carried": 1.25}},
    ),
    "COM010": Table(
        com010,
        lines={
            "wire": ({"wire": 0.15, "span": 0.85}, {"wire": 0.1499, "span": 0.9}),
            "compute": ({"wire": 0.5}, {"wire": 0.499}),
        },
        false_alarms={"an exchange that the backward pass hides": {"wire": 0.02, "span": 0.9}},
        severities=(({"wire": 0.5}, "critical"), ({"wire": 0.15, "span": 0.9}, "high")),
        # twice the batch: half of the exchange is spared, and half of the optimizer
        best=({"wire": 0.5}, warm(1 / 0.725)),
        also_fires={"a slow wire, which is the root then": {"carried": 0.1}, "bytes unknown": {"carried": None}},
    ),
}
