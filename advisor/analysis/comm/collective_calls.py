"""Measures the collectives that the job calls from Python: the phases in which they hold a rank, and their calls and bytes per step.

A blocking collective holds its caller until the last rank has arrived and the data is transferred. The rank that is held shortest in a step
was usually the last to arrive: its time is the transfer. Anything beyond it on another rank is waiting for the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.comm.stream_meetings import stream_values
from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, common_rows
from rn50_advisor.advisor.model.comm.exchanged_bytes import (
    HELD_PHASES,
    broadcasts_of,
    held_ns,
    metrics_ns,
    model_ns,
)
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_BUFFERS_S,
    COLLECTIVES_BY_HAND_S,
    COLLECTIVES_CALLS,
    COLLECTIVES_HELD_S,
    COLLECTIVES_MEGABYTES,
    COLLECTIVES_METRICS_S,
    COLLECTIVES_MODEL_S,
    COLLECTIVES_NORM_CALLS,
    COLLECTIVES_NORM_S,
    COMM_GLOO_ON_GPU,
    DDP_SEARCHED,
    DDP_WITH_UNUSED,
    NCCL_SOCKET,
    NET_GBIT_PER_S,
)
from rn50_advisor.advisor.model.measures.measure import JOB, JobMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.documents.collective_documents import CollectiveSite
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

Array = NDArray[np.float64]


class TimeOfPlace(Protocol):
    """Nanoseconds of a place's blocking time, by phase."""

    def __call__(self, site: CollectiveSite, *, ddp: bool) -> dict[str, int]: ...


# Above this share of the latest steps with collectives, the job calls them regularly: steps without a record are assumed to have had them.
_USUAL_SHARE = 0.5
# Share of the busiest network card's traffic. A card with less serves a shell or storage, not the exchange between ranks.
_CARRIES_SHARE = 0.1


def group_size(recording: Recording, ranks: Iterable[int]) -> int:
    """Number of ranks that these ranks exchange with: DDP's group size, without DDP torch's world size; 0 if there is no exchange."""
    processes = process_by_rank(recording.processes)
    rank_facts = [recording.facts.get(processes[rank].pid, {}) for rank in ranks if rank in processes]
    wrapped = [int(model.get("world_size") or 0) for facts in rank_facts for model in facts.get("ddp") or ()]
    return max(
        [0, *(wrapped or [int(facts.get("group_size") or facts.get("world_size") or 0) for facts in rank_facts])]
    )


def per_row(steps: RankSteps, table: Table | None, name: str) -> Array:
    """A column of the records, aligned with the steps.

    If the job calls collectives regularly, rows without a record of their own (several steps in one row, or a record thinned out) get the
    mean. Otherwise they get 0.
    """
    found = np.zeros(steps.step.size)
    if table is None or table.size == 0:
        return found
    order = np.argsort(table["step"], kind="stable")
    rows = table[order]
    at = np.clip(np.searchsorted(rows["step"], steps.step), 0, rows.size - 1)
    known = (rows["step"][at] == steps.step) & (steps.count == 1)
    found[known] = rows[name][at[known]]
    within = rows[(rows["step"] >= int(steps.step[0])) & (rows["step"] <= int(steps.step[-1]))]
    span = int(steps.step[-1]) - int(steps.step[0]) + 1
    latest = known[steps.latest]
    if within.size >= _USUAL_SHARE * span or (latest.any() and latest.mean() >= _USUAL_SHARE):
        found[~known] = float(within[name].mean()) * steps.count[~known]
    return found


def held(steps: RankSteps, table: Table | None) -> dict[str, Array] | None:
    """Seconds per row and phase that collectives called from Python held this rank; None if none did."""
    if table is None or table.size == 0:
        return None
    seconds = {phase: per_row(steps, table, f"{phase}_ns") / 1e9 for phase in HELD_PHASES}
    return seconds if sum(float(values.sum()) for values in seconds.values()) > 0 else None


def collective_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Collectives per step of each rank, and seconds per step: for synchronised batch norm, for averaging by hand, for metrics.

    DDP's broadcasts of buffers are not among them; their time is a measure of its own.
    """
    values = Measured()
    seconds: dict[int, dict[JobMeasure, Array]] = {}
    buffers: dict[int, Array] = {}
    known = facts_by_rank(recording)
    for rank, steps in steady.items():
        table = recording.collectives.get(rank)
        if table is None or table.size == 0:
            continue
        rows = {name: per_row(steps, table, name) for name in COLLECTIVES_FIELDS if name not in ("step", "group_size")}
        count = max(float(steps.count.sum()), 1.0)
        facts = known.get(rank, RankFacts())
        of_metrics, of_model = (_of_places(facts, table, rows, part) for part in (metrics_ns, model_ns))
        if of_buffers := broadcasts_of(facts):
            ours = sum(held_ns(site, "forward") for site in of_buffers)
            buffers[rank] = _share(ours, table, "forward") * rows["forward_ns"]
            rows["forward_ns"] = rows["forward_ns"] - buffers[rank]
        if not (table["calls"].any() or table["waits"].any()):
            continue
        values[COLLECTIVES_CALLS, rank] = float(rows["calls"].sum()) / count
        values[COLLECTIVES_MEGABYTES, rank] = float(rows["bytes"].sum()) / count / 1e6
        values[COLLECTIVES_HELD_S, rank] = sum(float(rows[f"{phase}_ns"].sum()) for phase in HELD_PHASES) / count / 1e9
        values[COLLECTIVES_NORM_CALLS, rank] = float(rows["norm_calls"].sum()) / count
        if float(rows["on_device"].sum()) < 0.5 * max(float(rows["calls"].sum()), 1.0):
            seconds[rank] = {
                COLLECTIVES_NORM_S: rows["norm_ns"] / 1e9,
                COLLECTIVES_BY_HAND_S: rows["optimizer_ns"] / 1e9 - of_metrics.get("optimizer", 0.0),
                COLLECTIVES_METRICS_S: rows["gap_ns"] / 1e9 + sum(of_metrics.values()),
                COLLECTIVES_MODEL_S: np.zeros(steps.step.size) + sum(of_model.values()),
            }
    if len(seconds) == len(steady) > 1:
        for measure in (COLLECTIVES_NORM_S, COLLECTIVES_BY_HAND_S, COLLECTIVES_METRICS_S, COLLECTIVES_MODEL_S):
            values[measure, JOB] = _shortest(steady, {rank: own[measure] for rank, own in seconds.items()})
    values.update(stream_values(recording, steady))
    if len(buffers) == len(steady) > 1:
        values[COLLECTIVES_BUFFERS_S, JOB] = _shortest(steady, {rank: own / 1e9 for rank, own in buffers.items()})
    return values


def _of_places(facts: RankFacts, table: Table, rows: Mapping[str, Array], part: TimeOfPlace) -> dict[str, Array]:
    """Seconds of each row that go to this part of what places exchange before the update, by phase."""
    found = Counter[str]()
    for site in facts.get("collectives", ()):
        found.update(part(site, ddp=bool(facts.get("ddp"))))
    return {phase: _share(ours, table, phase) * rows[f"{phase}_ns"] / 1e9 for phase, ours in found.items()}


def _share(ours: int, table: Table, phase: str) -> float:
    """The share of some places in the time that collectives hold a rank in a phase. `ours`: their sum over the run, in ns."""
    whole = float(table[f"{phase}_ns"].sum())
    return min(1.0, ours / whole) if whole else 0.0


def _shortest(steady: Mapping[int, RankSteps], seconds: Mapping[int, Array]) -> float:
    """Seconds per step on the rank that was held shortest. They include no waiting for a straggler."""
    rows = common_rows(steady)
    if min(own.size for own in rows.values()) > 0:
        return float(np.min(np.stack([values[rows[rank]] for rank, values in seconds.items()]), axis=0).mean())
    return min(float(values.sum() / max(steady[rank].count.sum(), 1.0)) for rank, values in seconds.items())


def network_values(recording: Recording, nccl: NcclFacts | None) -> Measured:
    """Measures of the network between the ranks, from NCCL or the host's cards, and of GPU tensors exchanged over gloo instead of NCCL."""
    found = Measured()
    if nccl is not None and nccl.over_sockets is not None:
        found[NCCL_SOCKET, JOB] = float(nccl.over_sockets and nccl.nodes != 1)
    speed = _speed_mbps(recording, nccl)
    if speed:
        found[NET_GBIT_PER_S, JOB] = speed / 1000
    for process in recording.processes:
        models = recording.facts.get(process.pid, {}).get("ddp") or ()
        if process.role == "rank" and process.rank is not None and models:
            slow = any(m.get("device") == "cuda" and "gloo" in str(m.get("backend_name")) for m in models)
            found[COMM_GLOO_ON_GPU, process.rank] = float(slow)
    return found


def _speed_mbps(recording: Recording, nccl: NcclFacts | None) -> float | None:
    """Speed in Mbit/s of the fastest card that the exchange may use; over sockets, only cards that carried traffic. Excludes InfiniBand."""
    speeds = {
        scope: float(series.value[-1])
        for (metric, scope), series in recording.samples.items()
        if metric == "net.speed_mbps" and series.value.size and scope != "net:lo"
    }
    carried = {scope: sum(_grown(recording, f"net.{way}_bytes", scope) for way in ("rx", "tx")) for scope in speeds}
    most = max(carried.values(), default=0.0)
    if _by_sockets(recording, nccl) and most > 0:
        speeds = {scope: speed for scope, speed in speeds.items() if carried[scope] >= _CARRIES_SHARE * most}
    return max(speeds.values(), default=None)


def _grown(recording: Recording, metric: str, scope: str) -> float:
    series = recording.samples.get((metric, scope))
    return float(series.value[-1] - series.value[0]) if series is not None and series.value.size else 0.0


def _by_sockets(recording: Recording, nccl: NcclFacts | None) -> bool:
    """True if NCCL reports sockets or the ranks use another backend. False if they use NCCL and it reports no network."""
    if nccl is not None and nccl.over_sockets is not None:
        return nccl.over_sockets
    facts = list(recording.facts.values())
    backends = {model.get("backend_name") or "" for own in facts for model in own.get("ddp", ())}
    backends |= {site.get("backend", "") for own in facts for site in own.get("collectives", ())}
    backends -= {""}
    return bool(backends) and not any("nccl" in backend for backend in backends)


# Results of DistributedDataParallel's searches for unused parameters.
def search_values(recording: Recording) -> Measured:
    """Iterations in which DDP searched for unused parameters, and in which it found some, per rank.

    Both are 0 where DDP does not search in every iteration (it searches a static graph once).
    """
    found = Measured()
    for rank, process in process_by_rank(recording.processes).items():
        models = recording.facts.get(process.pid, {}).get("ddp") or ()
        searching = [m for m in models if m.get("find_unused_parameters") and not m.get("static_graph")]
        if models:
            found[DDP_SEARCHED, rank] = sum(float(m.get("searched_iterations", 0)) for m in searching)
            found[DDP_WITH_UNUSED, rank] = sum(float(m.get("iterations_with_unused", 0)) for m in searching)
    if not found:
        found.missing[DDP_SEARCHED, JOB] = found.missing[DDP_WITH_UNUSED, JOB] = "no DistributedDataParallel here"
    return found
