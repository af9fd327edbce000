"""What the ranks of a job exchange in a step, in words for the reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.wording.quantities import counted, duration, quantity, share

FACT = "exchange"
_RANKS_SHOWN = 3
# Of the gradients' bytes, what a hook of torch sends, by the last part of its name.
_SENT = {
    "": 1.0,
    "allreduce_hook": 1.0,
    "allreduce": 1.0,
    "fp16_compress_hook": 0.5,
    "bf16_compress_hook": 0.5,
    "fp16_compress": 0.5,
}
_Values = Mapping[tuple[str, str], float]


def sent_share(hook: object) -> float | None:
    """Of the gradients' bytes, what this compression hook of DDP sends; None: nobody knows (PowerSGD, wrappers, hooks of the job's own)."""
    return _SENT.get(str(hook or "").rpartition(".")[2].lower())


@dataclass(frozen=True, slots=True)
class TimedCollective:
    """As NCCL timed it: bytes of the inputs of one rank, and seconds of a call."""

    kind: str
    size: int
    ranks: int  # 0: not known
    took_s: float

    @property
    def bus_gb_per_s(self) -> float | None:
        """What each link of a ring carries: 2(N-1)/N of the bytes of an all-reduce, (N-1)/N of what a gather or scatter makes or takes."""
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
        """`all_reduce of 25 MB in 1.9 ms, 24 GB/s on each link`"""
        size = f" of {quantity(self.size / 1e6, 'MB')}" if self.size else ""
        rate = self.bus_gb_per_s
        return f"{self.kind}{size} in {duration(self.took_s)}" + (
            f", {quantity(rate, 'GB/s')} on each link" if rate else ""
        )


def exchange_facts(values: _Values, timed: Iterable[TimedCollective] = ()) -> dict[str, dict[str, str]]:
    """For the report, from values named as in rn50_advisor.advisor.model.values.VALUES; empty where nothing was seen to be exchanged."""
    found = {
        "each step": ", ".join(_each_step(values)),
        "called from Python": _called(values),
        "the wire": _wire(values),
        "beside backward": _spread(values, "comm.hidden_s"),
        "exposed": _spread(values, "comm.exposed_s"),
        "each link": _link(values),
        "timed by NCCL": "; ".join([*(each.words for each in timed), *_share_of_time(values)]),
        "who comes last": "; ".join(_last(values)),
    }
    found = {label: text for label, text in found.items() if text}
    return {FACT: found} if set(found) - {"who comes last"} else {}


def _each_step(values: _Values) -> Iterator[str]:
    megabytes, buckets = values.get(("comm.megabytes", "job")), values.get(("comm.buckets", "job"))
    if megabytes:
        yield f"{quantity(megabytes, 'MB')} of gradients"
    if buckets:
        yield f"in {counted(round(buckets), 'bucket')}"
        largest = values.get(("comm.largest_bucket", "job"))
        if largest is not None and buckets > 1:
            yield f"the largest with {share(largest)} of the bytes"
    exchanges = values.get(("comm.exchanges", "job"), 1.0)
    if exchanges > 1:
        yield f"exchanged {round(exchanges)} times"


def _called(values: _Values) -> str:
    calls = _by_rank(values, "collectives.calls")
    if not calls:
        return ""
    rank = max(calls, key=lambda rank: calls[rank])
    moved, held = (values.get((f"collectives.{name}", rank), 0.0) for name in ("megabytes", "held_s"))
    often = round(calls[rank], 1)
    return (
        f"{quantity(often, 'call' if often == 1 else 'calls')}, {quantity(moved, 'MB')}; "
        f"they hold {rank.replace(':', ' ')} for {duration(held)}"
    )


def _wire(values: _Values) -> str:
    wire_s = values.get(("comm.wire_s", "job"))
    return "" if wire_s is None else f"{duration(wire_s)} exposed on the rank that comes last"


def _spread(values: _Values, name: str) -> str:
    """Of all ranks, from the least to the most."""
    known = sorted(_by_rank(values, name).values())
    if not known:
        return ""
    least, most = duration(known[0]), duration(known[-1])
    words = least if least == most else f"{least} to {most}, by rank"
    return words if name == "comm.hidden_s" else f"{words}, waiting for late ranks included"


def _link(values: _Values) -> str:
    rate = values.get(("comm.bus_gb_per_s", "job"))
    return f"{quantity(rate, 'GB/s')}: 2(N−1)/N of the bytes, over the exchange's time" if rate else ""


def _share_of_time(values: _Values) -> Iterator[str]:
    known = _by_rank(values, "collectives.timed_share")
    if known:
        yield f"at most {share(max(known.values()))} of a rank's time, what computes beside them included"


def _last(values: _Values) -> Iterator[str]:
    kept = {rank: s for rank, s in _by_rank(values, "comm.kept_waiting_s").items() if s > 0}
    for rank in sorted(kept, key=lambda rank: -kept[rank])[:_RANKS_SHOWN]:
        often = values.get(("comm.late_share", rank))
        share_ = "" if often is None else f" in {share(often)} of the steps,"
        yield f"{rank.replace(':', ' ')}{share_} for {duration(kept[rank])} of each step"


def _by_rank(values: _Values, name: str) -> dict[str, float]:
    return {scope: value for (known, scope), value in values.items() if known == name and scope.startswith("rank:")}
