"""Which collective a hung job stands in: by flight recorder dumps as torch writes them, and by what ranks begin from Python."""

from __future__ import annotations

from typing import Any

import pytest

from flight_entries import dump, entry, upto
from recordings import plan, recording, stall
from rn50_advisor.advisor.analysis.comm.flight_dumps import entries, stuck_by_calls, stuck_by_flight
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import StuckCollective


def test_a_rank_that_has_not_begun_what_the_others_stand_in_is_missing() -> None:
    stuck = stuck_by_flight({0: upto(57), 1: upto(56), 2: upto(57)})
    assert stuck == StuckCollective("all_reduce", 57, 3, (0, 2), (1,), elements=1024, source="torch's flight recorder")


def test_those_who_have_queued_more_stand_at_the_first_that_is_not_complete() -> None:
    stuck = stuck_by_flight({0: upto(60), 1: upto(56), 2: upto(59)})
    assert stuck is not None and (stuck.number, stuck.present, stuck.missing) == (57, (0, 2), (1,))


def test_different_collectives_at_one_place_are_listed_with_their_sizes() -> None:
    stuck = stuck_by_flight({0: dump(entry(7)), 1: dump(entry(7, "nccl:broadcast", 5)), 2: dump(entry(7))})
    assert stuck is not None and (stuck.present, stuck.missing, stuck.number) == ((0, 2), (1,), 7)
    assert stuck.differing == "rank 0: all_reduce of 1024; rank 1: broadcast of 5; rank 2: all_reduce of 1024"
    other_size = stuck_by_flight({0: dump(entry(7)), 1: dump(entry(7, size=2048))})
    assert other_size is not None and "rank 1: all_reduce of 2048" in other_size.differing


def test_of_ranks_that_wait_for_each_other_in_two_groups_the_earlier_call_counts() -> None:
    pairs = {"process_group": ["1", "metrics"]}
    at = {"time_created_ns": 1}
    one = dump(entry(6), entry(4, **pairs), entry(5, **pairs, **at))  # rank 1 has not made this call, and goes on
    other = dump(entry(6), entry(4, **pairs), entry(7))
    stuck = stuck_by_flight({0: one, 1: other})
    assert stuck is not None and (stuck.number, stuck.present, stuck.missing) == (5, (0,), (1,))


def test_gathers_may_differ_in_size() -> None:
    assert stuck_by_flight({0: dump(entry(7, "nccl:all_gather")), 1: dump(entry(7, "nccl:all_gather", 9))}) is None


@pytest.mark.parametrize(
    "dumps",
    [
        {},
        {0: upto(57)},
        {0: upto(57), 1: upto(57)},
        {0: [], 1: upto(57)},
        {0: [{"entries": [None, {"collective_seq_id": "x", "input_sizes": 3}]}], 1: [{"entries": None}]},
        {0: dump(entry(0, is_p2p=True, p2p_seq_id=9)), 1: dump(entry(0, is_p2p=True, p2p_seq_id=3))},
    ],
    ids=["none", "one rank", "all alike", "one silent", "broken", "sends"],
)
def test_without_evidence_no_rank_is_blamed(dumps: dict[int, list[dict[str, Any]]]) -> None:
    assert stuck_by_flight(dumps) is None


def test_names_of_torch_are_read_whatever_their_form() -> None:
    one = entries({"entries": [entry(3, "gloo:_allgather_base", process_group="pairs")]})[0]
    assert (one.kind, one.group, one.number, one.sizes) == ("allgather_base", "pairs", 3, ((1024,),))


def call(begun: int, kind: str = "all_reduce", *, inside: bool = True, group: int = 1, size: int = 3) -> dict[str, Any]:
    return {"begun": begun, "kind": kind, "group": group, "size": size, "inside_s": 20.0 if inside else None}


def rows(*calls: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [{"rank": rank, "collective": call} for rank, call in enumerate(calls)]


@pytest.mark.parametrize(
    ("calls", "present", "missing"),
    [
        ((call(9), call(8, inside=False), call(9)), (0, 2), (1,)),
        ((call(9), None, call(9)), (0, 2), (1,)),
        ((call(9), call(9, inside=False), call(9)), (0, 2), ()),  # it has left already: a broadcast's source
        ((call(9), call(3, inside=False, group=7), call(9)), (0, 2), (1,)),
        ((call(9, size=2), call(4, group=7, size=1), call(9, size=2)), (0, 2), ()),  # a group that not all belong to
    ],
)
def test_ranks_are_compared_by_their_call_counts(
    calls: Any, present: tuple[int, ...], missing: tuple[int, ...]
) -> None:
    stuck = stuck_by_calls(rows(*calls))
    assert stuck is not None and (stuck.number, stuck.present, stuck.missing) == (9, present, missing)


def test_ranks_that_call_different_things_at_the_same_place() -> None:
    stuck = stuck_by_calls(rows(call(9), call(9, "broadcast"), call(9)))
    assert (
        stuck is not None
        and stuck.missing == (1,)
        and stuck.differing.startswith("rank 0: all_reduce; rank 1: broadcast")
    )


def test_nobody_inside_is_no_collective() -> None:
    assert stuck_by_calls(rows(call(9, inside=False), None)) is None


def culprits(*ranks: dict[str, Any]) -> list[int]:
    analysis = analyse(recording({n: plan() for n in range(len(ranks))}, events=(stall(40.0, *ranks),)))
    return [rank.rank for rank in analysis.stalls[-1].ranks if rank.culprit]


def test_a_rank_that_hangs_inside_its_backward_is_found_by_what_it_has_not_begun() -> None:
    waiting = {"rank": 0, "phase": "backward", "flight": upto(57)}
    hanging = {"rank": 1, "phase": "backward", "flight": upto(56)}
    assert culprits(waiting, hanging) == [1]
    assert culprits({"rank": 0, "phase": "backward"}, {"rank": 1, "phase": "backward"}) == []


def test_a_rank_is_in_a_collective_where_its_header_says_so() -> None:
    assert culprits(
        {"rank": 0, "collective": call(5, size=2)}, {"rank": 1, "collective": call(4, inside=False, size=2)}
    ) == [1]
