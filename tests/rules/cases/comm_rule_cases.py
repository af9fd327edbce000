"""Jobs of several ranks that exchange what their rules are about. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.report import Capacity
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules
from rule_cases import META, SCRIPT, job, rank
from rule_runs import found

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
    error: float = 0.0,
) -> Analysis:
    """One bucket, sent after the backward pass; or (`hand`) that share of the wire time in averaging after it, without DDP."""
    own = {n: rank(1.0 - wire, backward=backward) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "comm.span_s": wire if span is None else span, "steady": steady}
    values["comm.wire_error"] = error
    if hand is not None:
        values |= {"collectives.by_hand_s": hand * wire, "collectives.calls": {0: 60.0, 1: 60.0}}
        return replace(wrapped(own, values=values), facts={})
    values |= {"comm.megabytes": 100.0, "comm.buckets": 1.0}
    if largest is not None:
        values["comm.largest_bucket"] = largest
    return wrapped(own, values=values, bucket_cap_bytes=cap)


def com006(  # noqa: PLR0917 - what a table varies
    calls: float = 106.0,
    batch: float = 64.0,
    spent: float | None = 0.2,
    batches: float = 1.0,
    loads: float | None = None,
    steady: int = 200,
) -> Analysis:
    """Ranks of 64 samples that synchronise 53 layers of batch norm; `loads`: steps a second that loading allows."""
    own = {n: rank(1.0 - (spent or 0.0)) for n in (0, 1)}
    values: dict[str, Any] = {
        "step.samples": batch * batches,
        "step.batches": {0: batches, 1: batches},
        "collectives.norm_calls": {0: calls, 1: calls},
    }
    if spent is not None:
        values["collectives.norm_s"] = spent
    rate = None if loads is None else 2 * batch * batches * loads
    stages = () if rate is None else (Capacity("preprocessing", rate, rate, rate, ""),)
    return job(own, wire_s=spent or 0.0, values=values, steady=steady, capacities=stages)


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
    **facts: Any,
) -> Analysis:
    """NCCL says that it uses sockets, unless `card`: then it says nothing, and the hosts have one of so many Gbit/s and no InfiniBand."""
    own = {n: rank(1.0 - wire) for n in (0, 1)}
    values: dict[str, Any] = {"comm.wire_s": wire, "steady": steady}
    values |= {"nccl.socket": socket} if card is None else {"net.gbit_per_s": card}
    if carried is not None:
        values["comm.bus_gb_per_s"] = carried
    nccl = NcclFacts(version="2.21.5", network="Socket", interfaces=("eth0",), transports={"NET/Socket": 4}, **facts)
    made = wrapped(own, values=values, hosts=TWO_HOSTS, backend_name="nccl")
    if card is None:
        return replace(made, nccl=nccl)
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


def exchanging(
    megabytes: float = 100.0, ranks: int = 2, wire: float = 0.4, span: float | None = None, **more: Any
) -> Analysis:
    """Ranks that exchange so much in steps of a second; the rate is made of it as the analysis makes it."""
    own = {number: rank(1.0 - wire) for number in range(ranks)}
    seconds = max(wire, span or 0.0)
    rate = 2 * (ranks - 1) / ranks * megabytes / 1000 / seconds
    values = {"comm.wire_s": wire, "comm.span_s": span or wire, "comm.megabytes": megabytes, "comm.bus_gb_per_s": rate}
    options = {name: more.pop(name) for name in ("hosts", "backend_name", "comm_hook", "bucket_bytes") if name in more}
    return wrapped(own, values={**values, **more}, **options)


def with_values(analysis: Analysis, **values: float) -> Analysis:
    named = {(name.replace("_", ".", 1), "job"): value for name, value in values.items()}
    return replace(analysis, values={**analysis.values, **named})


def in_buckets(**options: Any) -> Analysis:
    """Four buckets, and the backward pass is over before the first of them leaves."""
    own = {n: rank(0.7, backward=0.4) for n in (0, 1)}
    sizes = options.pop("bucket_bytes", [25_000_000] * 4)
    values = {
        "comm.wire_s": 0.3, "comm.span_s": 0.31, "comm.megabytes": 100.0, "comm.buckets": 4.0,
        "comm.largest_bucket": max(sizes) / sum(sizes), **options.pop("values", {}),
    }  # fmt: skip
    return wrapped(own, values=values, **{"bucket_cap_bytes": 25 << 20, "bucket_bytes": sizes, **options})


def com001_beside_norms(wire: float, norms: float) -> Analysis:
    own = {n: rank(1.0 - wire, backward=0.6 * (1.0 - wire)) for n in (0, 1)}
    values = {"comm.wire_s": wire, "collectives.norm_s": norms, "comm.largest_bucket": 1.0}
    return wrapped(own, values=values)


def on_full_cores(made: Any, burns_s: float) -> Analysis:
    """The same job on two cores, one for each rank, which burns so much for each of them beside computing and loading."""
    work = sum(map(made.model.own_s, made.model.own)) + 2 * burns_s
    return replace(made, model=replace(made.model, allowed_cores=2.0, job_cpu_s=work))


def rate_row(analysis: Analysis, rule: str = "COM001") -> Evidence | None:
    return next((row for row in found(rule, analysis).evidence if row.metric == "comm.bus_gb_per_s"), None)


def causes(analysis: Analysis) -> dict[str, str | None]:
    judgement = judge(analysis, all_rules(), Config())
    return {f.rule: f.explained_by for f in judgement.findings if f.rule.startswith(("COM", "CMP"))}
