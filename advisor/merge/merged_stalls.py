"""Joins a hang seen by the agents of several nodes: each knows only its own ranks, but all ranks are needed to find the culprit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rn50_advisor.advisor.model.recording import AnyEvent, Event, events_of
from rn50_advisor.probes.documents.event_documents import StalledRankRow, StallEnd, StallSeen

Number = int | str | None
Ends = Mapping[Number, Event[StallEnd]]
# Agents report every few seconds, and only after 15 s of silence: stalls further apart are different hangs.
_APART_NS = 30_000_000_000


def merged_stalls(events: Sequence[AnyEvent]) -> list[AnyEvent]:
    """Returns the stalls and their ends; stalls of the same time are joined, with the ranks of all nodes."""
    by_id: dict[Number, list[Event[StallSeen]]] = {}
    for event in events_of(events, StallSeen):
        by_id.setdefault(event.data.get("id"), []).append(event)
    ends: Ends = {event.data.get("id"): event for event in events_of(events, StallEnd)}
    # the last two reports, since a rank that is at the same place in both has not run in between
    reports = {number: sorted(stalls, key=lambda e: e.t_ns)[-2:] for number, stalls in by_id.items()}
    found: list[AnyEvent] = []
    for group in _groups(sorted((pair[-1] for pair in reports.values()), key=_began_ns), ends):
        number = group[0].data.get("id")
        before = [pair[0] for event in group if len(pair := reports[event.data.get("id")]) > 1]
        found += [_joined_report(stalls, number) for stalls in (before, group) if stalls]
        known = [ends[stall] for stall in (event.data.get("id") for event in group) if stall in ends]
        if len(known) == len(group):
            last = max(known, key=lambda e: e.t_ns)
            end: StallEnd = {**last.data, "id": number or ""}
            found.append(replace(last, data=end))
    return found


def _began_ns(event: Event[StallSeen]) -> int:
    return event.t_ns - round(event.data.get("stalled_s", 0.0) * 1e9)


def _groups(stalls: Sequence[Event[StallSeen]], ends: Ends) -> list[list[Event[StallSeen]]]:
    groups: list[list[Event[StallSeen]]] = []
    until_ns = 0
    for event in stalls:
        end = ends.get(event.data.get("id"))
        last_ns = max(event.t_ns, end.t_ns if end else 0) + _APART_NS
        if groups and _began_ns(event) <= until_ns and not _same_node(event, groups[-1]):
            groups[-1].append(event)
            until_ns = max(until_ns, last_ns)
        else:
            groups.append([event])
            until_ns = last_ns
    return groups


def _same_node(event: Event[StallSeen], group: Sequence[Event[StallSeen]]) -> bool:
    """True if the group already has a stall of this node: then this one is another hang."""
    node = str(event.data.get("id")).rpartition("@")[2]
    return any(str(other.data.get("id")).rpartition("@")[2] == node for other in group)


def _joined_report(group: Sequence[Event[StallSeen]], number: Number) -> Event[StallSeen]:
    longest = max(group, key=lambda e: e.data.get("stalled_s", 0.0))
    rows: list[StalledRankRow] = [
        {**row, "seen_ns": event.t_ns} for event in group for row in event.data.get("ranks", ())
    ]
    rows.sort(key=lambda row: row["rank"])
    data: StallSeen = {**longest.data, "id": number or "", "ranks": rows}
    return replace(longest, t_ns=max(e.t_ns for e in group), data=data)
