"""Collectives that the job calls from Python: where they hold a rank, and what they and DDP's own come to per step.

The caller of a collective that blocks is held until the last rank has come and the wire has carried it. Of one step the rank that is held
shortest was the last to come, most of the time: what it is held for is the wire, the rest of the others' is waiting for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, common_rows
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_BY_HAND_S,
    COLLECTIVES_CALLS,
    COLLECTIVES_HELD_S,
    COLLECTIVES_MEGABYTES,
    COLLECTIVES_NORM_CALLS,
    COLLECTIVES_NORM_S,
    COMM_GLOO_ON_GPU,
    DDP_SEARCHED,
    DDP_WITH_UNUSED,
    NCCL_SOCKET,
    NET_GBIT_PER_S,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

Array = NDArray[np.float64]

HELD = ("forward", "backward", "optimizer", "gap")  # phases whose collectives are told apart; evaluation keeps its own
# A job that calls them in so many of its latest steps does so by its nature: steps whose record is gone had some as well.
_USUAL_SHARE = 0.5
# Share of the busiest card's traffic: a card with less serves a shell or storage, not the exchange between ranks.
_CARRIES_SHARE = 0.1


def group_size(recording: Recording, ranks: Iterable[int]) -> int:
    """With how many these ranks exchange: as DDP tells of its group, without it as torch does of all; 0 where nobody does."""
    processes = process_by_rank(recording.processes)
    told = [recording.facts.get(processes[rank].pid, {}) for rank in ranks if rank in processes]
    wrapped = [int(model.get("world_size") or 0) for facts in told for model in facts.get("ddp") or ()]
    return max([0, *(wrapped or [int(facts.get("group_size") or facts.get("world_size") or 0) for facts in told])])


def per_row(steps: RankSteps, table: Table | None, name: str) -> Array:
    """A column of the records laid beside the steps. A row that holds several steps, or whose record was thinned out, gets the mean."""
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
    """Per row and phase, the seconds for which collectives called from Python held this rank; None where none did."""
    if table is None or table.size == 0:
        return None
    seconds = {phase: per_row(steps, table, f"{phase}_ns") / 1e9 for phase in HELD}
    return seconds if sum(float(values.sum()) for values in seconds.values()) > 0 else None


def collective_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Collectives per step of each rank, and the part of synchronised batch norm and of averaging by hand."""
    values = Measured()
    norms: dict[int, Array] = {}
    averaging: dict[int, Array] = {}
    for rank, steps in steady.items():
        table = recording.collectives.get(rank)
        if table is None or table.size == 0:
            continue
        rows = {name: per_row(steps, table, name) for name in COLLECTIVES_FIELDS if name not in ("step", "group_size")}
        count = max(float(steps.count.sum()), 1.0)
        values[COLLECTIVES_CALLS, rank] = float(rows["calls"].sum()) / count
        values[COLLECTIVES_MEGABYTES, rank] = float(rows["bytes"].sum()) / count / 1e6
        values[COLLECTIVES_HELD_S, rank] = sum(float(rows[f"{phase}_ns"].sum()) for phase in HELD) / count / 1e9
        values[COLLECTIVES_NORM_CALLS, rank] = float(rows["norm_calls"].sum()) / count
        if float(rows["on_device"].sum()) < 0.5 * max(float(rows["calls"].sum()), 1.0):
            norms[rank] = rows["norm_ns"] / 1e9
            averaging[rank] = rows["optimizer_ns"] / 1e9
    if len(norms) == len(steady) > 1:
        values[COLLECTIVES_NORM_S, JOB] = _shortest(steady, norms)
        values[COLLECTIVES_BY_HAND_S, JOB] = _shortest(steady, averaging)
    return values


def _shortest(steady: Mapping[int, RankSteps], seconds: Mapping[int, Array]) -> float:
    """Seconds per step on the rank that was held shortest, which includes no waiting for a straggler."""
    rows = common_rows(steady)
    if min(own.size for own in rows.values()) > 0:
        return float(np.min(np.stack([values[rows[rank]] for rank, values in seconds.items()]), axis=0).mean())
    return min(float(values.sum() / max(steady[rank].count.sum(), 1.0)) for rank, values in seconds.items())


def network_values(recording: Recording, nccl: NcclFacts | None) -> Measured:
    """The network between the ranks, as NCCL or the host's cards report it, and whether GPU tensors bypass NCCL."""
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
    """Speed of the fastest card the exchange may use: with sockets a card that carried traffic, otherwise any
    (InfiniBand is not counted).
    """
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
    """NCCL says so, or the ranks exchange by another backend; where NCCL says nothing it may be either."""
    if nccl is not None and nccl.over_sockets is not None:
        return nccl.over_sockets
    facts = list(recording.facts.values())
    backends = {model.get("backend_name") or "" for told in facts for model in told.get("ddp", ())}
    backends |= {site.get("backend", "") for told in facts for site in told.get("collectives", ())}
    backends -= {""}
    return bool(backends) and not any("nccl" in backend for backend in backends)


# Results of DistributedDataParallel's searches for unused parameters.
def search_values(recording: Recording) -> Measured:
    """Values of each rank; zero iterations where DDP does not search in each of them (a static graph is searched once)."""
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
