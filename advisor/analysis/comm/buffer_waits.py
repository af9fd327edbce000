"""Estimates how long ranks wait for one another at the start of a forward pass, where the recorder does not time the wait.

Before each forward pass that follows an exchange of gradients, DistributedDataParallel broadcasts the buffers of rank 0 (batch norm's
running statistics). The other ranks cannot continue before rank 0 arrives. Gloo passes the buffers from rank to rank, so the sender also
waits for the receiver. All ranks leave the previous step's exchange together. This gives two upper bounds on a rank's wait: the extra time
that another rank needs to reach its forward, and the excess of its own forward over the shortest one. (ResNet18 on two ranks of a CPU:
with 147 ms of rank 0's own work after each update, rank 1's forward took 190 ms, 41 of them its own. With the same work on rank 1, rank 0's
forward took as long.)

The same holds for GPUs that meet early in the forward pass: at the first synchronised batch norm, or for the parameters of a sharded model,
unless their waits were timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.comm.stream_meetings import meetings_timed
from rn50_advisor.advisor.analysis.stacks.after_backward import with_own_work
from rn50_advisor.advisor.analysis.stacks.after_update import with_own_loop
from rn50_advisor.advisor.analysis.stacks.thinned_profiles import with_few_profiles
from rn50_advisor.advisor.analysis.steps.phases import AFTER_BACKWARD, WAITS_FOR_BUFFERS, phases_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, all_steps, common_rows
from rn50_advisor.advisor.model.comm.exchanged_bytes import broadcasts_of
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.rank_documents import RankFacts

Array = NDArray[np.float64]

_ON_DEVICE_SHARE = 0.5  # of the calls: from there on the times of the others say little
# A sharded model gathers the parameters of each unit in both passes, and scatters their gradients. A loop that averages gradients or
# metrics by hand gathers little, or calls a few collectives a step.
_GATHERS_SHARE_MIN, _SHARDED_CALLS_MIN = 1 / 3, 12
_SENDER = 0  # DistributedDataParallel's choice, except when a rank has joined early


def accounted_steps(recording: Recording) -> dict[int, RankSteps]:
    """Every rank's real steps, with added columns: seconds that its forward waited for another rank, and its own work."""
    recording = with_few_profiles(recording)
    everything = with_own_loop(recording, with_own_work(recording, all_steps(recording)))
    if len(everything) < 2 or _SENDER not in everything:
        return everything
    if meetings_timed(recording, everything):
        return everything
    groups = [backend for rank in everything if (backend := _sent_over(recording, rank)) is not None]
    early = all(_meets_on_stream(recording, rank) for rank in everything)
    rows = common_rows(everything)
    if not (early or len(groups) == len(everything)) or rows[_SENDER].size < 2:
        return everything
    waits = _waits(everything, recording, rows, mutual=early or any("gloo" in backend for backend in groups))
    return {rank: _with_column(steps, rows[rank], waits[rank]) for rank, steps in everything.items()}


def _facts_of(recording: Recording, rank: int) -> list[RankFacts]:
    return [recording.facts.get(p.pid, RankFacts()) for p in recording.processes if p.role == "rank" and p.rank == rank]


def _sent_over(recording: Recording, rank: int) -> str | None:
    """The backend that broadcasts the buffers of the rank's models; None if none are sent, they are timed, or the backend is unknown."""
    found = _facts_of(recording, rank)
    if any(broadcasts_of(facts) for facts in found):
        return None
    models = [model for facts in found for model in facts.get("ddp", ())]
    return next((str(model.get("backend_name")) for model in models if model.get("synced_buffers")), None)


def _meets_on_stream(recording: Recording, rank: int) -> bool:
    """True if the rank's GPU meets the others in the forward pass, in collectives that the host only queues.

    Those are of synchronised batch norm, or gather the parameters of a sharded model.
    """
    table = recording.collectives.get(rank)
    if (
        table is None
        or not table.size
        or float(table["on_device"].sum()) < _ON_DEVICE_SHARE * float(table["calls"].sum())
    ):
        return False
    sites = [site for facts in _facts_of(recording, rank) for site in facts.get("collectives", ())]
    gathers = sum(site["calls"] for site in sites if site.get("kind") == "all_gather")
    gathered = gathers >= _GATHERS_SHARE_MIN * sum(site["calls"] for site in sites) > 0
    return bool(np.median(table["norm_calls"]) >= 2 or (gathered and np.median(table["calls"]) >= _SHARDED_CALLS_MIN))


def _waits(
    everything: Mapping[int, RankSteps], recording: Recording, rows: Mapping[int, NDArray[np.int64]], *, mutual: bool
) -> dict[int, Array]:
    """Seconds that each rank waited for buffers, for each row that all ranks have in common."""
    way: dict[int, Array] = {}
    forward: dict[int, Array] = {}
    for rank, steps in everything.items():
        phases = {name: s[rows[rank]] for name, s in phases_of(steps, recording.gpu_steps.get(rank)).items()}
        batches = np.maximum(steps.columns["micro_batches"][rows[rank]], 1.0)  # the wait before the first of them
        after = np.sum([phases[name] for name in AFTER_BACKWARD], axis=0)
        way[rank] = np.roll(after, 1) + phases["input_wait"] / batches
        forward[rank] = phases["forward"]
    longest = np.max(np.stack(list(way.values())), axis=0) if mutual else way[_SENDER]
    shortest = np.min(np.stack(list(forward.values())), axis=0)
    found = {}
    for rank, own in way.items():
        found[rank] = np.clip(np.minimum(longest - own, forward[rank] - shortest), 0.0, None)
        found[rank][0] = 0.0  # the time before the first step is unknown
    return found


def _with_column(steps: RankSteps, rows: NDArray[np.int64], waits: Array) -> RankSteps:
    """Adds the waits as a column. A row that holds several steps gets the mean wait times its number of steps."""
    column = np.where(steps.count > 1, float(waits.mean()) * steps.count, 0.0)
    column[rows] = waits
    return replace(steps, columns={**steps.columns, WAITS_FOR_BUFFERS: column})
