"""What NCCL itself timed of a job's collectives, where the user has it do so (`TORCH_NCCL_ENABLE_TIMING=1`), by torch's flight recorder.

A collective runs on a GPU for as long as it waits for the last rank to come, so of one kind and size the shortest of all ranks is the wire.
How much of it the GPU computed beside is not told: all of them together are the most that they can have held it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.comm.exchanged_bytes import TimedCollective
from rn50_advisor.advisor.model.recording import Recording

Values = dict[tuple[str, str], float]
FACT = "collective_times"
_SPAN_S = 1.0  # between the first and the last: of less, chance decides
_UNTIMED_SHARE = 0.05  # of the calls: those under way when the times were read; of more, nobody knows what they take
_ROWS_MAX = 3


def timed_values(recording: Recording) -> Values:
    """Of a rank's time the share in which a collective ran on its GPU."""
    return {
        ("collectives.timed_share", f"rank:{rank}"): min(1.0, float(told["ms"]) / 1e3 / float(told["span_s"]))
        for rank, told in _told(recording)
        if float(told.get("span_s") or 0.0) >= _SPAN_S and told["untimed"] <= _UNTIMED_SHARE * told["calls"]
    }


def timed_collectives(recording: Recording) -> tuple[TimedCollective, ...]:
    """Those that take the most, of each the shortest mean of all ranks and its rate on each link of a ring."""
    means: dict[tuple[str, int, int], list[float]] = {}
    spent: dict[tuple[str, int, int], float] = {}
    for _, told in _told(recording):
        for row in told.get("rows") or ():
            if not isinstance(row, Mapping) or not row.get("calls"):
                continue
            key = (_kind(str(row.get("name"))), int(row.get("bytes") or 0), _ranks(str(row.get("ranks") or "")))
            means.setdefault(key, []).append(float(row["ms"]) / 1e3 / int(row["calls"]))
            spent[key] = max(spent.get(key, 0.0), float(row["ms"]))
    most = sorted(means, key=lambda key: -spent[key])[:_ROWS_MAX]
    return tuple(TimedCollective(kind, size, ranks, min(means[kind, size, ranks])) for kind, size, ranks in most)


def _told(recording: Recording) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        told = recording.facts.get(process.pid, {}).get(FACT)
        if isinstance(told, Mapping) and told.get("rows"):
            yield rank, told


def _kind(name: str) -> str:
    """`nccl:_all_gather_base` is an all_gather."""
    return name.rpartition(":")[2].strip("_").removesuffix("_base") or name


def _ranks(text: str) -> int:
    """Of `[0, 1, 2]`; 0 where nothing is told."""
    return sum(part.strip().isdigit() for part in text.strip("[]").split(","))
