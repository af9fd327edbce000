"""Wording of the communication between ranks in a step, for the reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_CALLS,
    COLLECTIVES_HELD_S,
    COLLECTIVES_MEGABYTES,
    COLLECTIVES_TIMED_SHARE,
    COMM_BUCKETS,
    COMM_BUS_GB_PER_S,
    COMM_EXCHANGES,
    COMM_EXPOSED_S,
    COMM_HIDDEN_S,
    COMM_KEPT_WAITING_S,
    COMM_LARGEST_BUCKET,
    COMM_LATE_SHARE,
    COMM_MEGABYTES,
    COMM_WIRE_S,
)
from rn50_advisor.advisor.model.measures.measure import JOB, RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.wording.quantities import counted, duration, quantity, share
from rn50_advisor.probes.documents.collective_documents import CollectiveSite
from rn50_advisor.probes.documents.rank_documents import RankFacts

FACT = "exchange"
_BUFFERS = "DistributedDataParallel"  # the library of such places; other collectives of DDP's are not recorded as calls
# Phases of a step in which collectives block a rank, in the order of a place's `held_ns`, whose last value is the time elsewhere.
HELD_PHASES = ("forward", "backward", "optimizer", "gap")
_NUMBERS_BYTES = 1024  # in a call on average: 128 numbers of double precision
_RANKS_SHOWN = 3
# Share of the gradient bytes that torch's hooks send, by the last part of the hook's name.
_SENT = {
    "": 1.0,
    "allreduce_hook": 1.0,
    "allreduce": 1.0,
    "fp16_compress_hook": 0.5,
    "bf16_compress_hook": 0.5,
    "fp16_compress": 0.5,
}


def sent_share(hook: object) -> float | None:
    """Share of the gradient bytes that this DDP compression hook sends; None if unknown (PowerSGD, wrappers, the job's own hooks)."""
    return _SENT.get(str(hook or "").rpartition(".")[2].lower())


def broadcasts_of(facts: RankFacts) -> list[CollectiveSite]:
    """The lines that make a DistributedDataParallel whose broadcasts of buffers were timed."""
    return [site for site in facts.get("collectives", ()) if site.get("library") == _BUFFERS]


def is_metric(site: CollectiveSite) -> bool:
    """True for a line that exchanges a few numbers which the model does not need: outside its call, or through a library for metrics."""
    calls, own = site.get("calls", 0), site.get("library", "") == "" and not site.get("in_module", True)
    return calls > 0 and site.get("bytes", 0) <= _NUMBERS_BYTES * calls and (own or site.get("for_metrics", False))


def held_ns(site: CollectiveSite, phase: str) -> int:
    """The time for which a place's calls blocked the rank in a phase; 0 in a recording that does not tell."""
    held = site.get("held_ns")
    return held[HELD_PHASES.index(phase)] if held else 0


def metrics_ns(site: CollectiveSite, *, ddp: bool) -> dict[str, int]:
    """The part of a place's blocking time before the update that goes to metrics, by phase.

    Gradients averaged by hand, between backward and optimizer, may be as few numbers as a metric; DDP leaves nothing to average.
    """
    phases = ("forward", *(("optimizer",) if ddp else ())) if is_metric(site) else ()
    return {phase: held_ns(site, phase) for phase in phases}


def model_ns(site: CollectiveSite, *, ddp: bool) -> dict[str, int]:
    """The part of a place's blocking time that goes to what the model or its loss exchanges, by phase: features of all ranks.

    DDP's own exchange is no call from Python; without it, calls in the backward pass may be that of gradients.
    """
    of_job = site.get("library", "") in ("", "torch") and site.get("calls", 0) > 0 and not is_metric(site)
    return {phase: held_ns(site, phase) for phase in (("forward", *(("backward",) if ddp else ())) if of_job else ())}


@dataclass(frozen=True, slots=True)
class TimedCollective:
    """A collective as NCCL timed it. `size`: bytes of one rank's inputs; `took_s`: seconds of a call."""

    kind: str
    size: int
    ranks: int  # 0: unknown
    took_s: float

    @property
    def bus_gb_per_s(self) -> float | None:
        """GB/s on each link of a ring; None if unknown.

        A link carries 2(N-1)/N of the bytes of an all-reduce and (N-1)/N of those of an all-gather or reduce-scatter.
        """
        if self.ranks < 2 or not self.size or self.took_s <= 0:
            return None
        part = (self.ranks - 1) / self.ranks
        if self.kind in ("all_reduce", "allreduce"):
            carried = 2 * part * self.size
        elif "all_gather" in self.kind or "allgather" in self.kind:
            carried = (self.ranks - 1) * self.size  # the input is one rank's part
        elif self.kind in ("broadcast", "reduce"):
            carried = self.size
        else:
            carried = part * self.size
        return carried / self.took_s / 1e9

    @property
    def words(self) -> str:
        """For example `all_reduce of 25 MB in 1.9 ms, 24 GB/s on each link`."""
        size = f" of {quantity(self.size / 1e6, 'MB')}" if self.size else ""
        rate = self.bus_gb_per_s
        return f"{self.kind}{size} in {duration(self.took_s)}" + (
            f", {quantity(rate, 'GB/s')} on each link" if rate else ""
        )


def exchange_facts(values: Measured, timed: Iterable[TimedCollective] = ()) -> dict[str, dict[str, str]]:
    """The report's facts about communication; empty if no exchange was seen."""
    found = {
        "each step": ", ".join(_each_step(values)),
        "called from Python": _called(values),
        "network transfer": _wire(values),
        "beside backward": _spread(values, COMM_HIDDEN_S),
        "exposed": _spread(values, COMM_EXPOSED_S),
        "each link": _link(values),
        "timed by NCCL": "; ".join([*(each.words for each in timed), *_share_of_time(values)]),
        "last to arrive": "; ".join(_last(values)),
    }
    found = {label: text for label, text in found.items() if text}
    return {FACT: found} if set(found) - {"last to arrive"} else {}


def _each_step(values: Measured) -> Iterator[str]:
    megabytes, buckets = values.get((COMM_MEGABYTES, JOB)), values.get((COMM_BUCKETS, JOB))
    if megabytes:
        yield f"{quantity(megabytes, 'MB')} of gradients"
    if buckets:
        yield f"in {counted(round(buckets), 'bucket')}"
        largest = values.get((COMM_LARGEST_BUCKET, JOB))
        if largest is not None and buckets > 1:
            yield f"the largest with {share(largest)} of the bytes"
    exchanges = values.get((COMM_EXCHANGES, JOB), 1.0)
    if exchanges > 1:
        yield f"exchanged {round(exchanges)} times"


def _called(values: Measured) -> str:
    calls = values.by_rank(COLLECTIVES_CALLS)
    if not calls:
        return ""
    rank = max(calls, key=lambda rank: calls[rank])
    moved, held = (values.get((measure, rank), 0.0) for measure in (COLLECTIVES_MEGABYTES, COLLECTIVES_HELD_S))
    often = round(calls[rank], 1)
    return (
        f"{quantity(often, 'call' if often == 1 else 'calls')}, {quantity(moved, 'MB')}; "
        f"they hold rank {rank} for {duration(held)}"
    )


def _wire(values: Measured) -> str:
    wire_s = values.get((COMM_WIRE_S, JOB))
    return "" if wire_s is None else f"{duration(wire_s)} exposed on the rank that arrives last"


def _spread(values: Measured, measure: RankMeasure) -> str:
    """The range of a measure over all ranks."""
    known = sorted(values.by_rank(measure).values())
    if not known:
        return ""
    least, most = duration(known[0]), duration(known[-1])
    words = least if least == most else f"{least} to {most}, by rank"
    return words if measure is COMM_HIDDEN_S else f"{words}, including waiting for late ranks"


def _link(values: Measured) -> str:
    rate = values.get((COMM_BUS_GB_PER_S, JOB))
    return f"{quantity(rate, 'GB/s')}: 2(N−1)/N of the bytes, over the exchange's time" if rate else ""


def _share_of_time(values: Measured) -> Iterator[str]:
    known = values.by_rank(COLLECTIVES_TIMED_SHARE)
    if known:
        yield f"at most {share(max(known.values()))} of a rank's time, what computes beside them included"


def _last(values: Measured) -> Iterator[str]:
    kept = {rank: s for rank, s in values.by_rank(COMM_KEPT_WAITING_S).items() if s > 0}
    for rank in sorted(kept, key=lambda rank: -kept[rank])[:_RANKS_SHOWN]:
        often = values.get((COMM_LATE_SHARE, rank))
        share_ = "" if often is None else f" in {share(often)} of the steps,"
        yield f"rank {rank}{share_} for {duration(kept[rank])} of each step"
