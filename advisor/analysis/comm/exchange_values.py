"""Measures communication between the ranks per step: bytes, transfer time, exposed time, and the ranks that keep the others waiting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rn50_advisor.advisor.analysis.comm.collective_calls import group_size, per_row
from rn50_advisor.advisor.analysis.steps.attribution import StepAttribution
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.comm.exchanged_bytes import sent_share
from rn50_advisor.advisor.model.measures.comm_measures import (
    COMM_BUCKETS,
    COMM_BUS_GB_PER_S,
    COMM_EXCESS_ERROR_S,
    COMM_EXCESS_S,
    COMM_EXCHANGES,
    COMM_EXPOSED_S,
    COMM_HIDDEN_S,
    COMM_JOINED,
    COMM_KEPT_WAITING_S,
    COMM_LARGEST_BUCKET,
    COMM_LATE_RUN_STEPS,
    COMM_LATE_SHARE,
    COMM_MEGABYTES,
    COMM_SKEW_S,
    COMM_SPAN_S,
    COMM_WIRE_ERROR,
    COMM_WIRE_S,
)
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.statistics import beyond_others

_UNTIMED = "the collectives of this job only queue work on the GPUs, and nothing times them there"


def exchange_values(recording: Recording, steady: Mapping[int, RankSteps], accounts: StepAttribution) -> Measured:
    """Exposed communication and transfer time per step, and how often and how long each rank keeps the others waiting."""
    found = Measured()
    ranks, group = len(accounts.own), group_size(recording, accounts.own)
    partly = (
        f"{ranks} of {group} ranks are in this recording: transfer time cannot be separated from waiting for the others"
    )
    joined = max((int(facts.get("group_size") or 0) for facts in recording.facts.values()), default=0)
    if joined:
        found[COMM_JOINED, JOB] = float(joined)
    if max(ranks, group) > 1:
        found.update({(COMM_EXPOSED_S, rank): seconds for rank, seconds in accounts.exposed.items()})
    why = ""
    if ranks < 2:
        why = partly if group > 1 else "one rank: nothing to communicate"
    elif not accounts.late_share:
        why = "no DistributedDataParallel times its collectives here, and no blocking collective is called from Python"
        if accounts.exposed:
            why = (
                "the ranks' exchanges were not timed in the same steps: transfer time cannot be separated from waiting"
            )
    if why:
        found.missing[COMM_WIRE_S, JOB] = found.missing[COMM_SKEW_S, JOB] = why
        return found
    _late_values(accounts, found)
    wire_s, span_s = (None, None) if group > ranks else (accounts.wire_s, accounts.span_s)
    if wire_s is None:
        found.missing[COMM_WIRE_S, JOB] = partly if group > ranks else _UNTIMED
    else:
        found[COMM_WIRE_S, JOB] = wire_s
        found[COMM_WIRE_ERROR, JOB] = accounts.wire_error
    if span_s is not None:
        found[COMM_SPAN_S, JOB] = span_s
    found.update(wire_values(recording, steady, wire_s=wire_s, span_s=span_s, exchanges=accounts.exchanges))
    return found


def _late_values(accounts: StepAttribution, found: Measured) -> None:
    found[COMM_SKEW_S, JOB] = accounts.skew_s
    beyond = beyond_others({rank: sum(phases.values()) for rank, phases in accounts.own.items()})
    for rank, share in accounts.late_share.items():
        found[COMM_LATE_SHARE, rank] = share
        found[COMM_LATE_RUN_STEPS, rank] = accounts.late_run.get(rank, 0.0)
        found[COMM_KEPT_WAITING_S, rank] = accounts.kept_waiting_s.get(rank, 0.0)
        found[COMM_EXCESS_S, rank] = beyond[rank]
        found[COMM_EXCESS_ERROR_S, rank] = accounts.excess_error_s[rank]


def wire_values(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    *,
    wire_s: float | None,
    span_s: float | None,
    exchanges: int = 1,
) -> Measured:
    """Bytes and buckets exchanged per step, the rate per link, and the communication hidden behind the backward pass."""
    found = Measured()
    models = [model for facts in recording.facts.values() for model in facts.get("ddp") or ()]
    largest = max(models, key=lambda model: float(model.get("total_parameter_size_bytes") or 0), default=None)
    buckets = [float(size) for size in (largest or {}).get("bucket_bytes") or ()]
    if sum(buckets) > 0:
        found[COMM_BUCKETS, JOB] = float(len(buckets))
        found[COMM_LARGEST_BUCKET, JOB] = max(buckets) / sum(buckets)
    for rank, table in recording.comm.items():
        if table.size:
            found[COMM_HIDDEN_S, rank] = exchanges * float(np.median(table["overlap_ns"])) / 1e9
            found[COMM_EXCHANGES, JOB] = float(exchanges)
    size = float((largest or {}).get("total_parameter_size_bytes") or 0)
    if largest is not None and size:
        share = sent_share(largest.get("comm_hook"))
        if share is None:
            return found
        size *= exchanges * share
        found[COMM_MEGABYTES, JOB] = size / 1e6
        ranks = max(int(largest.get("world_size") or 0), 1)
        bus, seconds = 2 * (ranks - 1) / ranks * size, max(wire_s or 0.0, span_s or 0.0)
    else:
        bus, seconds = _bus_bytes(recording, steady), wire_s or 0.0
    if bus > 0 and seconds > 0:
        found[COMM_BUS_GB_PER_S, JOB] = bus / seconds / 1e9
    return found


def _bus_bytes(recording: Recording, steady: Mapping[int, RankSteps]) -> float:
    """Bytes per steady step that each link carries for collectives called from Python. Steps without such calls have no record."""
    means = [
        float(per_row(steps, recording.collectives.get(rank), "bus_bytes").sum() / max(steps.count.sum(), 1.0))
        for rank, steps in steady.items()
    ]
    return max(means, default=0.0)
