"""Merges several nodes' recordings of one job into one. Pure: the same recordings always give the same result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.steps.attribution import account
from rn50_advisor.advisor.analysis.steps.steady_state import steady_steps
from rn50_advisor.advisor.merge.job_identity import Identity, identity_of
from rn50_advisor.advisor.merge.merged_stalls import merged_stalls
from rn50_advisor.advisor.merge.node_clocks import clock_of
from rn50_advisor.advisor.merge.renaming import TABLES, Renaming
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, Clock, Meta, Node, Recording, Series, Source
from rn50_advisor.advisor.model.wording.quantities import counted, duration
from rn50_advisor.probes.documents.event_documents import KINDS, StallEnd, StallSeen
from rn50_advisor.probes.documents.machine_documents import MachineFacts

# A run is written every second, and a live merge receives frames every ten: a node silent for longer is gone, not slow.
LOST_AFTER_NS = 60_000_000_000
# Nodes of one job end within seconds, and a node's last frame may take another ten.
LATE_NS = 15_000_000_000
_OF_RANKS = ("pid:", "gpu:", "mig:")  # scopes that no two nodes share once renamed


def merge(recordings: Sequence[Recording]) -> Recording:
    """Merges nodes in the order of their launcher's node numbers, else of their ranks. Returns a single recording unchanged."""
    if len(recordings) < 2:
        return recordings[0]
    ordered = sorted(recordings, key=_place)
    numbers = _rank_numbers(ordered)
    first, nodes, gpus = ordered[0], [], 0
    for number, own in enumerate(ordered):
        clock = Clock() if number == 0 else clock_of(own, first)
        made = Renaming(number, clock, first_gpu=gpus, ranks=numbers[number]).recording(own)
        nodes.append(Node(number, "", identity_of(made).ranks, made, clock))
        gpus += _gpus(own)
    nodes = _with_losses(_named(nodes))
    return _with_host(_joined(nodes), nodes)


def _place(recording: Recording) -> tuple[int, int, float, str]:
    who = identity_of(recording)
    most = 1 << 30
    return (
        who.node_rank if who.node_rank is not None else most,
        min(who.ranks, default=most),
        who.began_unix_s,
        who.host,
    )


def _rank_numbers(ordered: Sequence[Recording]) -> list[Mapping[int, int]]:
    """Returns new numbers for ranks of nodes that all count from 0, since their launcher gave them no global rank."""
    taken: set[int] = set()
    found: list[Mapping[int, int]] = []
    for own in ordered:
        ranks = identity_of(own).ranks
        first = max(taken, default=-1) + 1
        new = {rank: first + place for place, rank in enumerate(ranks)} if taken & set(ranks) else {}
        found.append(new)
        taken |= {new.get(rank, rank) for rank in ranks}
    return found


def _gpus(recording: Recording) -> int:
    return 1 + max((gpu["index"] for gpu in recording.meta.environment.get("gpus", ())), default=-1)


def _named(nodes: list[Node]) -> list[Node]:
    """Sets the nodes' host names; if several share one, as containers may, appends the node's number."""
    hosts = [node.recording.meta.host or "node" for node in nodes]
    return [
        replace(node, host=host if hosts.count(host) == 1 else f"{host}#{node.number}")
        for node, host in zip(nodes, hosts, strict=True)
    ]


def _with_losses(nodes: Sequence[Node]) -> list[Node]:
    """Marks a node as lost if its data stops while other nodes go on, or well before they end."""
    last_ns = max(node.recording.meta.last_ns for node in nodes)
    end_ns = max((m.ended_ns for node in nodes if (m := node.recording.meta).ended_ns is not None), default=None)
    limit_ns = max(last_ns - LOST_AFTER_NS, 0 if end_ns is None else end_ns - LATE_NS)
    return [
        replace(node, lost_ns=node.recording.meta.last_ns)
        if not _over(node) and node.recording.meta.last_ns <= limit_ns
        else node
        for node in nodes
    ]


def _over(node: Node) -> bool:
    return node.recording.meta.ended_ns is not None or node.recording.meta.recording_stopped_ns is not None


def _joined(nodes: Sequence[Node]) -> Recording:
    own = [node.recording for node in nodes]
    tables: dict[str, Any] = {
        name: {rank: rows for r in own for rank, rows in getattr(r, name).items()} for name in TABLES
    }
    return replace(
        own[0],
        meta=_meta(nodes),
        processes=tuple(sorted((p for r in own for p in r.processes), key=lambda p: (p.first_seen_ns, p.pid))),
        facts={pid: facts for r in own for pid, facts in r.facts.items()},
        part_names={part: name for r in reversed(own) for part, name in r.part_names.items()},
        samples={},
        events=_events([event for r in own for event in r.events]),
        gaps=(*_node_gaps(nodes), *_gaps(nodes)),
        sources=_sources(own),
        positions={rank: at for r in own for rank, at in r.positions.items()},
        nodes=tuple(nodes),
        **tables,
    )


def _meta(nodes: Sequence[Node]) -> Meta:
    """Returns the first node's meta over the time of all nodes. The job ended with the nodes that did, unless others went on well after."""
    metas = [node.recording.meta for node in nodes]
    first, last_ns = metas[0], max(m.last_ns for m in metas)
    ended = sorted((m for m in metas if m.ended_ns is not None), key=lambda m: m.ended_ns or 0)
    end_ns = ended[-1].ended_ns if ended else None
    goes_on = [node.recording.meta for node in nodes if not _over(node) and node.lost_ns is None]
    over = end_ns is not None and all(m.last_ns < end_ns + LATE_NS for m in goes_on)
    failed = next((m for m in ended if m.exit_code or m.exit_signal), None)
    outcome = failed or (ended[-1] if ended else first)
    return replace(
        first,
        started_ns=min(m.started_ns for m in metas),
        started_unix_s=first.started_unix_s - (first.started_ns - min(m.started_ns for m in metas)) / 1e9,
        last_ns=last_ns,
        ended_ns=end_ns if over else None,
        exit_code=outcome.exit_code if over else None,
        exit_signal=outcome.exit_signal if over else None,
        launch_error=next((m.launch_error for m in metas if m.launch_error), None),
        environment={**first.environment, **_devices(metas)},
        agent=_agent(metas),
    )


def _devices(metas: Sequence[Meta]) -> MachineFacts:
    """Returns the GPUs of all nodes and the paths between them."""
    found: MachineFacts = {}
    if gpus := [gpu for meta in metas for gpu in meta.environment.get("gpus", ())]:
        found["gpus"] = gpus
    if paths := [path for meta in metas for path in meta.environment.get("gpu_paths", ())]:
        found["gpu_paths"] = paths
    return found


def _agent(metas: Sequence[Meta]) -> dict[str, float]:
    """Returns the cost of the most expensive agent; it is a share of a core on its node."""
    costly: list[Mapping[str, float]] = [m.agent for m in metas if m.agent.get("wall_s")]
    most = sorted(costly, key=lambda agent: agent.get("cpu_s", 0.0) / agent["wall_s"])
    return dict(most[-1]) if most else {}


def _events(events: Sequence[AnyEvent]) -> tuple[AnyEvent, ...]:
    others = [event for event in events if event.kind not in (KINDS[StallSeen], KINDS[StallEnd])]
    return tuple(sorted([*others, *merged_stalls(events)], key=lambda event: event.t_ns))


def _sources(own: Sequence[Recording]) -> tuple[Source, ...]:
    """Returns the source files; if a file differs between hosts, the first node's version, whose lines the findings name."""
    return tuple({source.path: source for r in reversed(own) for source in r.sources}.values())


def _gaps(nodes: Sequence[Node]) -> tuple[ProbeGap, ...]:
    """Gaps of all nodes; a gap that all of them share is listed once."""
    by_gap: dict[ProbeGap, list[str]] = {}
    for node in nodes:
        for gap in node.recording.gaps:
            by_gap.setdefault(gap, []).append(node.host)
    return tuple(
        gap if len(hosts) == len(nodes) else replace(gap, reason=f"on {', '.join(hosts)}: {gap.reason}")
        for gap, hosts in by_gap.items()
    )


def _node_gaps(nodes: Sequence[Node]) -> tuple[ProbeGap, ...]:
    found = []
    origin_ns = min(node.recording.meta.started_ns for node in nodes)
    over = _meta(nodes).ended_ns is not None
    for node in nodes:
        meta = node.recording.meta
        if node.lost_ns is not None:
            reason = f"nothing was received from {node.host} after {duration((node.lost_ns - origin_ns) / 1e9)}"
            found.append(
                ProbeGap(
                    "node", node.host, reason, "its agent ended or the connection broke; its own run file may hold more"
                )
            )
        elif over and not _over(node):
            reason = f"the end of {node.host} was not seen: the last data came after {duration((meta.last_ns - origin_ns) / 1e9)}"
            found.append(ProbeGap("node", node.host, reason, "its own run file may hold more"))
        if node.number > 0 and meta.recording_stopped_ns is not None:
            found.append(ProbeGap("recording", node.host, meta.recording_stopped_reason or "recording stopped there"))
        if node.clock.basis == "wall clock":
            reason = f"the clock of {node.host} is known from wall time only: the ranks exchanged nothing that shows it"
            found.append(ProbeGap("node.clock", node.host, reason, "blame between hosts by time is left out below 1 s"))
    return (*found, *_of_one_host(nodes), *_missing_ranks(nodes))


def _of_one_host(nodes: Sequence[Node]) -> list[ProbeGap]:
    """Reports runs from one host: one agent per rank (plain `srun`) turns every rank into a node, and these share the host's GPUs."""
    gpus = [{gpu.get("uuid") for gpu in node.recording.meta.environment.get("gpus", ())} for node in nodes]
    uuids = [uuid for of_node in gpus for uuid in of_node if uuid]
    if len(uuids) == len(set(uuids)):
        return []
    reason = "several of the merged runs are from one host: its GPUs and cores count once per run, its ranks as if on different hosts"
    return [
        ProbeGap("node", "job", reason, "one agent a host: srun --ntasks-per-node=1 rn50-advisor run -- torchrun ...")
    ]


def _missing_ranks(nodes: Sequence[Node]) -> list[ProbeGap]:
    who: list[Identity] = [identity_of(node.recording) for node in nodes]
    world = max((w.world_size for w in who if w.world_size), default=None)
    seen = {rank for w in who for rank in w.ranks}
    if world is None or len(seen) >= world:
        return []
    reason = f"{counted(world - len(seen), 'rank')} of {world} are in none of the {len(nodes)} merged runs"
    return [ProbeGap("node", "job", reason, "run rn50-advisor on every node, and pass the runs of all nodes to report")]


def _with_host(merged: Recording, nodes: Sequence[Node]) -> Recording:
    """Adds the samples; those of a host (cores, disks, memory) are of one node only: the one that others wait for, else the first."""
    shown = _critical(merged, nodes)
    samples: dict[tuple[str, str], Series] = {}
    for node in nodes:
        for (metric, scope), series in node.recording.samples.items():
            if scope.startswith(_OF_RANKS) or node.number == shown:
                samples[metric, scope] = series
    marked = tuple(replace(node, shown=node.number == shown) for node in nodes)
    return replace(merged, samples=samples, nodes=marked)


def _critical(merged: Recording, nodes: Sequence[Node]) -> int:
    """Returns the number of the node whose rank most often arrives last; if none does, of the rank with the most own work."""
    steady = steady_steps(accounted_steps(merged))
    if not steady:
        return 0
    accounts = account(steady, merged.gpu_steps, merged.comm, merged.collectives)
    own_s = {rank: sum(phases.values()) for rank, phases in accounts.own.items()}
    late = accounts.late_share
    rank = max(own_s, key=lambda r: (late.get(r, 0.0), own_s[r], -r))
    return next((node.number for node in nodes if rank in node.ranks), 0)
