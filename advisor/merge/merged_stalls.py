"""One hang, seen by the agents of several nodes: each knows only its own ranks, and who is the culprit shows among all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.recording import Event

# Agents look every few seconds, and only after a quarter of a minute of silence: what is further apart is another hang.
_APART_NS = 30_000_000_000


def merged_stalls(events: Iterable[Event]) -> list[Event]:
    """The stalls, those of the same time with the ranks of all nodes in one; and their ends."""
    by_id: dict[Any, list[Event]] = {}
    ends: dict[Any, Event] = {}
    for event in events:
        if event.kind == "stall":
            by_id.setdefault(event.data.get("id"), []).append(event)
        else:
            ends[event.data.get("id")] = event
    # two looks tell more of a rank than one: what stands at the same place in both has not run in between
    looks = {number: sorted(told, key=lambda e: e.t_ns)[-2:] for number, told in by_id.items()}
    found: list[Event] = []
    for group in _groups(sorted((told[-1] for told in looks.values()), key=_began_ns), ends):
        number = group[0].data.get("id")
        before = [told[0] for event in group if len(told := looks[event.data.get("id")]) > 1]
        found += [_one(look, number) for look in (before, group) if look]
        over = [ends.get(event.data.get("id")) for event in group]
        known = [end for end in over if end is not None]
        if len(known) == len(group):
            last = max(known, key=lambda e: e.t_ns)
            found.append(replace(last, data={**last.data, "id": number}))
    return found


def _began_ns(event: Event) -> int:
    return event.t_ns - round(float(event.data.get("stalled_s", 0.0)) * 1e9)


def _groups(stalls: Sequence[Event], ends: Mapping[Any, Event]) -> list[list[Event]]:
    groups: list[list[Event]] = []
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


def _same_node(event: Event, group: Sequence[Event]) -> bool:
    """A second stall of one node is a second stall."""
    node = str(event.data.get("id")).rpartition("@")[2]
    return any(str(other.data.get("id")).rpartition("@")[2] == node for other in group)


def _one(group: Sequence[Event], number: object) -> Event:
    longest = max(group, key=lambda e: float(e.data.get("stalled_s", 0.0)))
    rows = [{**row, "seen_ns": event.t_ns} for event in group for row in event.data.get("ranks") or ()]
    rows.sort(key=lambda row: int(row["rank"]))
    return replace(longest, t_ns=max(e.t_ns for e in group), data={**longest.data, "id": number, "ranks": rows})
