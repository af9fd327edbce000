"""A hang that agents of several nodes saw is one hang, with the ranks of all of them."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import SECOND
from rn50_advisor.advisor.merge.merged_stalls import merged_stalls
from rn50_advisor.advisor.model.recording import AnyEvent, Event


def seen(number: str, t_s: float, stalled_s: float, *ranks: int) -> AnyEvent:
    rows = [{"rank": rank, "phase": "backward", "step": 7} for rank in ranks]
    return Event(round(t_s * SECOND), "stall", None, None, {"id": number, "stalled_s": stalled_s, "ranks": rows})


def end(number: str, t_s: float) -> AnyEvent:
    return Event(round(t_s * SECOND), "stall_end", None, None, {"id": number, "stalled_s": 50.0})


def merged(*events: AnyEvent) -> list[Any]:
    """(kind, id, second, ranks) of each."""
    return [
        (event.kind, event.data["id"], event.t_ns / SECOND, [row["rank"] for row in event.data.get("ranks", ())])
        for event in merged_stalls(events)
    ]


def test_without_stalls_there_is_none() -> None:
    assert merged_stalls(()) == []
    assert merged_stalls([Event(5, "death", 1, 0, {"role": "rank"})]) == []


def test_a_hang_of_two_nodes_is_one_with_the_ranks_of_both_in_order() -> None:
    assert merged(seen("s@1", 40.0, 20.0, 3, 2), seen("s@0", 38.0, 19.0, 1, 0)) == [
        ("stall", "s@0", 40.0, [0, 1, 2, 3])
    ]


def test_each_row_has_its_time_and_the_longest_stall_counts() -> None:
    (event,) = merged_stalls([seen("s@0", 38.0, 18.0, 0), seen("s@1", 41.0, 22.0, 1)])
    assert [row["seen_ns"] for row in event.data["ranks"]] == [38 * SECOND, 41 * SECOND]
    assert event.data["stalled_s"] == 22.0


def test_the_last_two_of_many_reports_are_kept() -> None:
    reports = [seen("s@0", 30.0 + 10 * n, 10.0 + 10 * n, 0) for n in range(4)]
    assert [t_s for _, _, t_s, _ in merged(*reports)] == [50.0, 60.0]
    assert merged(*reversed(reports)) == merged(*reports)


def test_stalls_far_apart_are_different_hangs() -> None:
    first, second = seen("s@0", 40.0, 20.0, 0), seen("s@1", 200.0, 20.0, 1)
    assert [ranks for *_, ranks in merged(first, second)] == [[0], [1]]


@pytest.mark.parametrize(("began_s", "one"), [(69.0, True), (71.0, False)])
def test_a_stall_within_half_a_minute_of_the_last_report_is_the_same_hang(began_s: float, one: bool) -> None:
    found = merged(seen("s@0", 40.0, 20.0, 0), seen("s@1", began_s + 20.0, 20.0, 1))
    assert len(found) == (1 if one else 2)


def test_a_second_stall_of_one_node_is_another_hang() -> None:
    found = merged(seen("a@0", 40.0, 20.0, 0), seen("b@0", 62.0, 20.0, 0))
    assert [number for _, number, *_ in found] == ["a@0", "b@0"]


def test_a_hang_is_over_when_it_has_ended_on_all_nodes() -> None:
    stalls = (seen("s@0", 40.0, 20.0, 0), seen("s@1", 40.0, 20.0, 1))
    assert [kind for kind, *_ in merged(*stalls, end("s@0", 55.0))] == ["stall"]
    (_, number, *_), (kind, ended, t_s, _) = merged(*stalls, end("s@0", 55.0), end("s@1", 58.0))
    assert (kind, t_s) == ("stall_end", 58.0)
    assert ended == number


def test_an_end_without_its_stall_ends_nothing() -> None:
    assert merged(end("s@0", 55.0)) == []


def test_a_stall_without_details_is_kept() -> None:
    (event,) = merged_stalls([Event(5, "stall", None, None, {})])
    assert event.data["ranks"] == []
