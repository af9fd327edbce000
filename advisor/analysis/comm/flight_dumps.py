"""Finds the collective that a job hangs in and the ranks missing from it, from our own recorder's counts or torch's flight recorder.

Both count the calls of each rank on each group, so the same number means the same collective. Our recorder sees the calls from Python.
Torch's also sees the calls that DDP makes in C++.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import StuckCollective
from rn50_advisor.probes.documents.collective_documents import FlightDump
from rn50_advisor.probes.documents.event_documents import StalledRankRow

Dumps = Mapping[int, Sequence[FlightDump]]  # by rank


@dataclass(frozen=True, slots=True)
class Recorded:
    """One entry of a flight recorder's dump."""

    group: str
    number: int
    name: str  # the name in torch's profiler: `gloo:all_reduce`, `nccl:_all_gather_base`
    state: str  # scheduled, started or completed; gloo's entries stay scheduled
    sizes: tuple[tuple[int, ...], ...]
    created_ns: int = 0  # wall clock

    @property
    def kind(self) -> str:
        return self.name.rpartition(":")[2].strip("_") or self.name


def entries(dump: FlightDump) -> tuple[Recorded, ...]:
    """The collectives of a dump, oldest first. Sends and receives between two ranks are left out: they are numbered separately."""
    found = []
    calls = dump.get("entries")
    for entry in calls if isinstance(calls, list) else ():
        if not isinstance(entry, Mapping) or entry.get("is_p2p"):
            continue
        group = entry.get("process_group")
        name = group[0] if isinstance(group, (list, tuple)) and group else group
        sizes = entry.get("input_sizes")
        found.append(
            Recorded(
                group=str(name),
                number=_number(entry.get("collective_seq_id")),
                name=str(entry.get("profiling_name") or ""),
                state=str(entry.get("state") or ""),
                sizes=tuple(tuple(map(_number, size)) for size in sizes if isinstance(size, (list, tuple)))
                if isinstance(sizes, (list, tuple))
                else (),
                created_ns=_number(entry.get("time_created_ns")),
            )
        )
    return tuple(found)


def stuck_by_flight(dumps: Dumps) -> StuckCollective | None:
    """The stuck collective, from each rank's dumps; None if no rank is behind and none calls a different collective.

    Ranks that wait for each other in two groups are stuck in both. The collective that was called first is the cause.
    """
    last: dict[str, dict[int, dict[int, Recorded]]] = {}  # group -> rank -> number -> entry
    for rank, several in dumps.items():
        for dump in several:
            for entry in entries(dump):
                last.setdefault(entry.group, {}).setdefault(rank, {})[entry.number] = entry
    found = [stuck for group, ranks in last.items() if (stuck := _in_group(ranks, _members(dumps, group)))]
    return min(found, key=lambda known: known[0], default=(0, None))[1]


def _in_group(
    ranks: Mapping[int, Mapping[int, Recorded]], members: frozenset[int]
) -> tuple[int, StuckCollective] | None:
    """The first collective that ranks call differently or that some have not begun, and when it was first called (ns)."""
    reached = {rank: max(known) for rank, known in ranks.items() if known}
    if len(reached) < 2:
        return None
    for number in sorted(set.intersection(*(set(ranks[rank]) for rank in reached))):
        called = {rank: ranks[rank][number] for rank in reached}
        if len({(entry.kind, entry.sizes) for entry in called.values()}) > 1 and _same_by_rule(called):
            return min(entry.created_ns for entry in called.values()), _differing(number, called)
    most, least = max(reached.values()), min(reached.values())
    if most == least:
        return None
    # The first collective that some have not begun. The others wait in it, whatever they have queued behind it.
    number = least + 1
    present = tuple(sorted(rank for rank, there in reached.items() if there >= number))
    entry = next((ranks[rank][number] for rank in present if number in ranks[rank]), ranks[present[0]][most])
    missing = tuple(sorted(rank for rank, there in reached.items() if there < number))
    stuck = StuckCollective(
        kind=entry.kind,
        number=number,
        group_size=len(members) or len(reached),
        present=present,
        missing=missing,
        elements=sum(_product(size) for size in entry.sizes) or None,
        source="torch's flight recorder",
    )
    return entry.created_ns, stuck


def _same_by_rule(called: Mapping[int, Recorded]) -> bool:
    """True if the calls must agree in kind and size. In a gather or an all-to-all sizes may differ, so only different kinds mismatch."""
    kinds = {entry.kind for entry in called.values()}
    return len(kinds) > 1 or next(iter(kinds)) in ("all_reduce", "allreduce", "reduce", "broadcast")


def _differing(number: int, called: Mapping[int, Recorded]) -> StuckCollective:
    usual, _ = Counter((entry.kind, entry.sizes) for entry in called.values()).most_common(1)[0]
    differing = "; ".join(
        f"rank {rank}: {entry.kind} of {_sizes(entry.sizes)}" for rank, entry in sorted(called.items())
    )
    present = tuple(sorted(rank for rank, entry in called.items() if (entry.kind, entry.sizes) == usual))
    return StuckCollective(
        kind=usual[0],
        number=number,
        group_size=len(called),
        present=present,
        missing=tuple(sorted(set(called) - set(present))),
        differing=differing,
        source="torch's flight recorder",
    )


def _members(dumps: Dumps, group: str) -> frozenset[int]:
    """Ranks of a group, from the first dump that lists them as `"ranks": "[0, 1]"`."""
    for several in dumps.values():
        for dump in several:
            groups = dump.get("pg_config")
            config = groups.get(group) if isinstance(groups, Mapping) else None
            text = str(config.get("ranks") or "").strip("[]") if isinstance(config, Mapping) else ""
            if text:
                return frozenset(int(part) for part in text.split(",") if part.strip().isdigit())
    return frozenset()


def stuck_by_calls(rows: Sequence[StalledRankRow]) -> StuckCollective | None:
    """The stuck collective, from the last one that each rank began from Python (in its ring's header); None if no rank is inside one."""
    known = {row["rank"]: row["collective"] for row in rows if row.get("collective")}
    inside = {rank: call for rank, call in known.items() if call.get("inside_s") is not None}
    if not inside:
        return None
    places = Counter((call["group"], call["begun"]) for call in inside.values())
    # The collective that most ranks are in. On a tie the earliest: no rank can be past it.
    (group, number), _ = min(places.items(), key=lambda item: (-item[1], item[0][1]))
    present = sorted(r for r, call in inside.items() if (call["group"], call["begun"]) == (group, number))
    size = inside[present[0]].get("size", 0)
    left = {r for r, call in known.items() if call["group"] == group and call["begun"] >= number} - set(present)
    seen = {row["rank"] for row in rows}
    kinds = {rank: inside[rank]["kind"] for rank in present}
    usual = Counter(kinds.values()).most_common(1)[0][0]
    differing = (
        "; ".join(f"rank {rank}: {kind}" for rank, kind in kinds.items()) if len(set(kinds.values())) > 1 else ""
    )
    missing = seen - set(present) - left if size >= len(seen) else set()
    if differing:
        missing |= {rank for rank, kind in kinds.items() if kind != usual}
    return StuckCollective(
        kind=usual,
        number=number,
        group_size=size or len(seen),
        present=tuple(rank for rank in present if rank not in missing),
        missing=tuple(sorted(missing)),
        differing=differing,
        source="calls from Python",
    )


def _sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join("x".join(map(str, size)) or "one number" for size in sizes) or "nothing"


def _product(size: tuple[int, ...]) -> int:
    made = 1
    for part in size:
        made *= part
    return made


def _number(value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return -1
