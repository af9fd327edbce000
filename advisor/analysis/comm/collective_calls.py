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
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.comm.exchanged_bytes import sent_share
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

Array = NDArray[np.float64]
Values = dict[tuple[str, str], float]

HELD = ("forward", "backward", "optimizer", "gap")  # phases whose collectives are told apart; evaluation keeps its own
# A job that calls them in so many of its latest steps does so by its nature: steps whose record is gone had some as well.
_USUAL_SHARE = 0.5
# Of the traffic of the busiest card: one that carries less is not what the ranks exchange over, but somebody's shell or storage.
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


def collective_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Values:
    """What each rank calls in a step, and what of it is synchronised batch norm and averaging by hand."""
    values: Values = {}
    norms: dict[int, Array] = {}
    averaging: dict[int, Array] = {}
    for rank, steps in steady.items():
        table = recording.collectives.get(rank)
        if table is None or table.size == 0:
            continue
        rows = {name: per_row(steps, table, name) for name in COLLECTIVES_FIELDS if name not in ("step", "group_size")}
        scope, count = f"rank:{rank}", max(float(steps.count.sum()), 1.0)
        values["collectives.calls", scope] = float(rows["calls"].sum()) / count
        values["collectives.megabytes", scope] = float(rows["bytes"].sum()) / count / 1e6
        values["collectives.held_s", scope] = sum(float(rows[f"{phase}_ns"].sum()) for phase in HELD) / count / 1e9
        values["collectives.norm_calls", scope] = float(rows["norm_calls"].sum()) / count
        if float(rows["on_device"].sum()) < 0.5 * max(float(rows["calls"].sum()), 1.0):
            norms[rank] = rows["norm_ns"] / 1e9
            averaging[rank] = rows["optimizer_ns"] / 1e9
    if len(norms) == len(steady) > 1:
        values["collectives.norm_s", JOB] = _shortest(steady, norms)
        values["collectives.by_hand_s", JOB] = _shortest(steady, averaging)
    return values


def _shortest(steady: Mapping[int, RankSteps], seconds: Mapping[int, Array]) -> float:
    """Of each step the rank that was held shortest: what no waiting for a late rank is in. Seconds per step."""
    rows = common_rows(steady)
    if min(own.size for own in rows.values()) > 0:
        return float(np.min(np.stack([values[rows[rank]] for rank, values in seconds.items()]), axis=0).mean())
    return min(float(values.sum() / max(steady[rank].count.sum(), 1.0)) for rank, values in seconds.items())


def wire_values(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    *,
    wire_s: float | None,
    span_s: float | None,
    exchanges: int = 1,
) -> Values:
    """How many bytes a step exchanges in how many parts, what each link carried of them, and what the backward pass hid."""
    found: Values = {}
    models = [model for facts in recording.facts.values() for model in facts.get("ddp") or ()]
    largest = max(models, key=lambda model: float(model.get("total_parameter_size_bytes") or 0), default=None)
    buckets = [float(size) for size in (largest or {}).get("bucket_bytes") or ()]
    if sum(buckets) > 0:
        found["comm.buckets", JOB] = float(len(buckets))
        found["comm.largest_bucket", JOB] = max(buckets) / sum(buckets)
    for rank, table in recording.comm.items():
        if table.size:
            found["comm.hidden_s", f"rank:{rank}"] = exchanges * float(np.median(table["overlap_ns"])) / 1e9
            found["comm.exchanges", JOB] = float(exchanges)
    size = float((largest or {}).get("total_parameter_size_bytes") or 0)
    if largest is not None and size:
        share = sent_share(largest.get("comm_hook"))
        if share is None:
            return found
        size *= exchanges * share
        found["comm.megabytes", JOB] = size / 1e6
        ranks = max(int(largest.get("world_size") or 0), 1)
        bus, seconds = 2 * (ranks - 1) / ranks * size, max(wire_s or 0.0, span_s or 0.0)
    else:
        bus, seconds = _bus_bytes(recording, steady), wire_s or 0.0
    if bus > 0 and seconds > 0:
        found["comm.bus_gb_per_s", JOB] = bus / seconds / 1e9
    return found


def _bus_bytes(recording: Recording, steady: Mapping[int, RankSteps]) -> float:
    """Per steady step, what each link carries of the collectives called from Python. Steps without such calls have no record."""
    means = [
        float(per_row(steps, recording.collectives.get(rank), "bus_bytes").sum() / max(steps.count.sum(), 1.0))
        for rank, steps in steady.items()
    ]
    return max(means, default=0.0)


def network_values(recording: Recording, nccl: NcclFacts | None) -> Values:
    """What lies between the ranks, as far as NCCL or the host's cards tell; and whether GPUs go around NCCL."""
    found: Values = {}
    if nccl is not None and nccl.over_sockets is not None:
        found["nccl.socket", JOB] = float(nccl.over_sockets and nccl.nodes != 1)
    speed = _speed_mbps(recording, nccl)
    if speed:
        found["net.gbit_per_s", JOB] = speed / 1000
    for process in recording.processes:
        models = recording.facts.get(process.pid, {}).get("ddp") or ()
        if process.role == "rank" and process.rank is not None and models:
            slow = any(m.get("device") == "cuda" and "gloo" in str(m.get("backend_name")) for m in models)
            found["comm.gloo_on_gpu", f"rank:{process.rank}"] = float(slow)
    return found


def _speed_mbps(recording: Recording, nccl: NcclFacts | None) -> float | None:
    """Of the fastest card that the exchange may go over: by sockets one that carries something, else any (InfiniBand's is not counted)."""
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
    facts = recording.facts.values()
    told = [row for named in facts for key in ("ddp", "collectives") for row in named.get(key) or ()]
    backends = {str(row.get("backend_name") or row.get("backend") or "") for row in told} - {""}
    return bool(backends) and not any("nccl" in backend for backend in backends)


# What DistributedDataParallel's searches for unused parameters found.
def search_values(recording: Recording, missing: dict[str, str]) -> dict[tuple[str, str], float]:
    """Values of each rank; zero iterations where DDP does not search in each of them (a static graph is searched once)."""
    found: dict[tuple[str, str], float] = {}
    for rank, process in process_by_rank(recording.processes).items():
        models = recording.facts.get(process.pid, {}).get("ddp") or ()
        searching = [m for m in models if m.get("find_unused_parameters") and not m.get("static_graph")]
        if models:
            scope = f"rank:{rank}"
            found["ddp.searched", scope] = sum(float(m.get("searched_iterations", 0)) for m in searching)
            found["ddp.with_unused", scope] = sum(float(m.get("iterations_with_unused", 0)) for m in searching)
    if not found:
        missing["ddp.searched"] = missing["ddp.with_unused"] = "no DistributedDataParallel here"
    return found
