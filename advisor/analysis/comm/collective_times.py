"""Collective durations that NCCL timed itself (`TORCH_NCCL_ENABLE_TIMING=1`, set by the user), read from torch's flight recorder.

A collective runs on a GPU until the last rank has joined, so the shortest duration over all ranks, for one kind and
size, is the transfer. How much of it overlaps with compute is unknown: the sum of all collectives is an upper bound
on the time they can have cost.
"""

from __future__ import annotations

from collections.abc import Iterator

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.comm.exchanged_bytes import TimedCollective
from rn50_advisor.advisor.model.measures.comm_measures import COLLECTIVES_TIMED_SHARE
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.collective_documents import TimedCollectives
from rn50_advisor.probes.documents.rank_documents import RankFacts

_SPAN_S = 1.0  # least time from the first to the last collective; a shorter sample depends on chance
# Highest share of untimed calls. A few are under way when the times are read; more make the total unknown.
_UNTIMED_SHARE = 0.05
_ROWS_MAX = 3


def timed_values(recording: Recording) -> Measured:
    """Share of each rank's time in which a collective ran on its GPU."""
    return Measured(
        {
            (COLLECTIVES_TIMED_SHARE, rank): min(1.0, timed["ms"] / 1e3 / timed["span_s"])
            for rank, timed in _timed_ranks(recording)
            if _is_enough(timed)
        }
    )


def _is_enough(timed: TimedCollectives) -> bool:
    """True if the sample covers enough time and hardly any call is missing."""
    return timed.get("span_s", 0.0) >= _SPAN_S and timed["untimed"] <= _UNTIMED_SHARE * timed["calls"]


def timed_collectives(recording: Recording) -> tuple[TimedCollective, ...]:
    """The costliest collectives: for each the shortest mean over all ranks and its rate per link of a ring."""
    means: dict[tuple[str, int, int], list[float]] = {}
    spent: dict[tuple[str, int, int], float] = {}
    for _, timed in _timed_ranks(recording):
        for row in timed["rows"]:
            key = _kind(row["name"]), row["bytes"], _ranks(row["ranks"])
            means.setdefault(key, []).append(row["ms"] / 1e3 / max(row["calls"], 1))
            spent[key] = max(spent.get(key, 0.0), row["ms"])
    most = sorted(means, key=lambda key: -spent[key])[:_ROWS_MAX]
    return tuple(TimedCollective(kind, size, ranks, min(means[kind, size, ranks])) for kind, size, ranks in most)


def _timed_ranks(recording: Recording) -> Iterator[tuple[int, TimedCollectives]]:
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        timed = recording.facts.get(process.pid, RankFacts()).get("collective_times")
        if timed is not None and timed.get("rows"):
            yield rank, timed


def _kind(name: str) -> str:
    """Kind of a collective from its name: "all_gather" for `nccl:_all_gather_base`."""
    return name.rpartition(":")[2].strip("_").removesuffix("_base") or name


def _ranks(text: str) -> int:
    """Number of ranks in a text like `[0, 1, 2]`; 0 if there is none."""
    return sum(part.strip().isdigit() for part in text.strip("[]").split(","))
